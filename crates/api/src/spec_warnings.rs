//! Warnings about valid specifications that are probably not what the user intended. They depend on
//! the specification alone; those that depend on other objects are in `admission`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use capi_ipam_ip::{
    Entry, Family, SpanSet, UsableBlocks, UsableRange, network_with_host_bits, parse_entry,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::access::{Headroom, NamespaceAccess, NamespaceSource};
use super::network::IPNetworkSpec;
use super::pool_spec::PoolSpec;
use super::visibility::counted;

/// The maximum number of warnings of one kind about the entries of a list.
const MAX_ENTRY_WARNINGS: usize = 5;

/// Addresses that hosts do not accept as their own (RFC 6890), and what they are.
const SPECIAL: [(&str, &str); 6] = [
    ("0.0.0.0/8", "addresses of this network"),
    ("127.0.0.0/8", "loopback addresses"),
    ("224.0.0.0/4", "multicast addresses"),
    ("240.0.0.0/4", "reserved addresses"),
    ("::/127", "the unspecified address and the loopback address"),
    ("ff00::/8", "multicast addresses"),
];

/// A list of addresses, with the path of its field.
type EntryList<'a> = (String, &'a [String]);

/// Returns the warnings about the specification of a pool, which has these blocks.
pub fn pool_warnings(spec: &PoolSpec, usable: &UsableBlocks) -> Vec<String> {
    let mut warnings = Vec::new();
    for (field, entries) in entry_lists(spec) {
        warnings.extend(host_bits(&field, entries));
    }
    warnings.extend(single_addresses_warning(spec, usable));
    warnings.extend(gateway_warnings(spec, usable));
    let given: SpanSet = given_lists(spec)
        .flat_map(|(_, entries)| spans_of(entries))
        .collect();
    let (excluded, name) = match spec {
        PoolSpec::Addresses(spec) => (&spec.excluded_addresses, "spec.excludedAddresses"),
        PoolSpec::Prefixes(spec) => (&spec.excluded_prefixes, "spec.excludedPrefixes"),
    };
    warnings.extend(without_effect(name, excluded, &given, "excludes"));
    warnings.extend(without_effect(
        "spec.draining",
        spec.draining(),
        &given,
        "drains",
    ));
    warnings.extend(unusable_ranges(spec, usable));
    warnings.extend(special_addresses(name, usable));
    let access = spec.access();
    warnings.extend(
        access
            .allowed_namespaces
            .and_then(|it| namespaces_warning("spec.allowedNamespaces", it)),
    );
    warnings.extend(
        access
            .headroom
            .and_then(|headroom| headroom_warning(headroom, usable)),
    );
    warnings
}

/// Returns the warnings about the specification of a network.
pub fn network_warnings(spec: &IPNetworkSpec) -> Vec<String> {
    let mut warnings: Vec<String> = host_bits("spec.excluded", &spec.excluded).collect();
    warnings.extend(
        spec.namespaces
            .as_ref()
            .and_then(|it| namespaces_warning("spec.namespaces", it)),
    );
    if spec.pools.as_ref().is_some_and(selects_nothing) {
        warnings
            .push("spec.pools: selects no pool: its requirements contradict each other".to_owned());
    }
    warnings
}

/// The warning about a field with a network that has host bits set.
pub fn host_bits_warning(field: &str, text: &str) -> Option<String> {
    let network = network_with_host_bits(text)?;
    let Entry { family, span } = network;
    let (first, last) = (family.address(span.first()), family.address(span.last()));
    Some(format!(
        "{field}: {text} means {network} ({} addresses, {first}-{last})",
        span.len()
    ))
}

fn host_bits(field: &str, entries: &[String]) -> impl Iterator<Item = String> {
    let warnings = entries.iter().enumerate();
    warnings
        .filter_map(move |(index, text)| host_bits_warning(&format!("{field}[{index}]"), text))
        .take(MAX_ENTRY_WARNINGS)
}

/// The lists of addresses that a pool allocates.
fn given_lists(spec: &PoolSpec) -> impl Iterator<Item = EntryList<'_>> {
    let name = if matches!(spec, PoolSpec::Addresses(_)) {
        "addresses"
    } else {
        "prefixes"
    };
    let (own, ranges): (&[String], Vec<&[String]>) = match spec {
        PoolSpec::Addresses(spec) => (
            &spec.addresses,
            spec.ranges
                .iter()
                .map(|it| it.addresses.as_slice())
                .collect(),
        ),
        PoolSpec::Prefixes(spec) => (
            &spec.prefixes,
            spec.ranges
                .iter()
                .map(|it| it.prefixes.as_slice())
                .collect(),
        ),
    };
    let numbered = ranges.into_iter().enumerate();
    let of_ranges =
        numbered.map(move |(index, entries)| (format!("spec.ranges[{index}].{name}"), entries));
    std::iter::once((format!("spec.{name}"), own)).chain(of_ranges)
}

/// All lists of addresses, networks and ranges of a pool.
fn entry_lists(spec: &PoolSpec) -> impl Iterator<Item = EntryList<'_>> {
    let excluded: EntryList<'_> = match spec {
        PoolSpec::Addresses(spec) => (
            "spec.excludedAddresses".to_owned(),
            &spec.excluded_addresses,
        ),
        PoolSpec::Prefixes(spec) => ("spec.excludedPrefixes".to_owned(), &spec.excluded_prefixes),
    };
    given_lists(spec).chain([excluded, ("spec.draining".to_owned(), spec.draining())])
}

fn spans_of(texts: &[String]) -> impl Iterator<Item = capi_ipam_ip::Span> {
    texts
        .iter()
        .filter_map(|text| parse_entry(text).ok())
        .map(|entry| entry.span)
}

/// Warns about entries that exclude or drain nothing because the pool has none of their addresses.
fn without_effect(
    field: &str,
    entries: &[String],
    given: &SpanSet,
    verb: &str,
) -> impl Iterator<Item = String> {
    let warnings = entries.iter().enumerate().filter_map(move |(index, text)| {
        let entry = parse_entry(text).ok()?;
        let has_effect = given.overlaps(entry.span);
        (!has_effect)
            .then(|| format!("{field}[{index}]: {text} {verb} nothing: it is not in the pool"))
    });
    warnings.take(MAX_ENTRY_WARNINGS)
}

/// The parts of a pool in their order, each with the path of its fields: the pool's own, if it has
/// one, and the ranges.
fn parts<'a>(
    spec: &PoolSpec,
    usable: &'a UsableBlocks,
) -> impl Iterator<Item = (String, &'a UsableRange)> {
    let has_own = given_lists(spec)
        .next()
        .is_some_and(|(_, own)| !own.is_empty());
    usable.ranges.iter().enumerate().map(move |(index, range)| {
        let path = match (index.checked_sub(1), has_own) {
            (None, true) => "spec".to_owned(),
            (Some(index), true) => format!("spec.ranges[{index}]"),
            (_, false) => format!("spec.ranges[{index}]"),
        };
        (path, range)
    })
}

/// Warns about parts of a pool without an address that can be allocated.
fn unusable_ranges(spec: &PoolSpec, usable: &UsableBlocks) -> Vec<String> {
    let name = if matches!(spec, PoolSpec::Addresses(_)) {
        "addresses"
    } else {
        "prefixes"
    };
    let unusable =
        parts(spec, usable).filter(|(_, range)| usable.set.intersect(&range.set).is_empty());
    let warning =
        |(path, _)| format!("{path}.{name}: nothing can be allocated: all is excluded or reserved");
    unusable.map(warning).take(MAX_ENTRY_WARNINGS).collect()
}

/// Warns about addresses that hosts do not accept as their own. `excluded` is the field that
/// excludes them.
fn special_addresses(excluded: &str, usable: &UsableBlocks) -> impl Iterator<Item = String> {
    SPECIAL.into_iter().filter_map(move |(text, what)| {
        let Entry { family, span } = parse_entry(text).ok()?;
        let is_allocated =
            family == usable.family && usable.overlaps_addresses(&SpanSet::from_iter([span]));
        is_allocated.then(|| {
            format!(
                "spec: the pool allocates {what} ({text}), which hosts do not accept as their own; add them to \
                 {excluded}"
            )
        })
    })
}

/// Warns about a pool of prefixes that are single addresses.
fn single_addresses_warning(spec: &PoolSpec, usable: &UsableBlocks) -> Option<String> {
    let has_prefixes = matches!(spec, PoolSpec::Prefixes(_));
    (has_prefixes && usable.length == usable.family.bits()).then(|| {
        format!(
            "spec.allocationPrefixLength: {} allocates single addresses; consider a pool of addresses instead",
            usable.length
        )
    })
}

/// Returns the warnings about the gateways of a pool, which has these blocks.
pub fn gateway_warnings(spec: &PoolSpec, usable: &UsableBlocks) -> Vec<String> {
    let mut warnings = empty_gateways(spec);
    let gateways = parts(spec, usable)
        .filter_map(|(path, range)| Some((format!("{path}.gateway"), range.gateway?, range)));
    match spec {
        PoolSpec::Addresses(spec) => {
            for (field, gateway, range) in gateways {
                let Some(problem) = gateway_problem(gateway, range) else {
                    continue;
                };
                warnings.push(format!("{field}: {gateway} {problem}"));
            }
            if spec.addresses.is_empty()
                && spec
                    .gateway
                    .as_ref()
                    .is_some_and(|gateway| !gateway.is_empty())
            {
                warnings.push(
                    "spec.gateway: is not set on any IPAddress; it is for spec.addresses"
                        .to_owned(),
                );
            }
        }
        PoolSpec::Prefixes(_) => {
            let addresses = usable.addresses();
            for (field, gateway, _) in gateways {
                if addresses.contains(Family::to_number(gateway)) {
                    warnings.push(format!(
                        "{field}: {gateway} is within the pool and can be allocated; exclude it to prevent this"
                    ));
                }
            }
        }
    }
    warnings
}

/// Warns about gateways that are empty texts.
fn empty_gateways(spec: &PoolSpec) -> Vec<String> {
    let (own, ranges): (&Option<String>, Vec<&Option<String>>) = match spec {
        PoolSpec::Addresses(spec) => (
            &spec.gateway,
            spec.ranges.iter().map(|range| &range.gateway).collect(),
        ),
        PoolSpec::Prefixes(spec) => (
            &spec.gateway,
            spec.ranges.iter().map(|range| &range.gateway).collect(),
        ),
    };
    let is_empty = |gateway: &Option<String>| gateway.as_ref().is_some_and(String::is_empty);
    let mut fields = Vec::new();
    if is_empty(own) {
        fields.push("spec.gateway".to_owned());
    }
    for (index, _) in ranges
        .into_iter()
        .enumerate()
        .filter(|(_, gateway)| is_empty(gateway))
    {
        fields.push(format!("spec.ranges[{index}].gateway"));
    }
    let warning = |field| {
        format!(
            "{field}: is empty: IPAddresses have no gateway; remove the field if this is intended"
        )
    };
    fields
        .into_iter()
        .map(warning)
        .take(MAX_ENTRY_WARNINGS)
        .collect()
}

/// Why machines cannot use the gateway of a range.
fn gateway_problem(gateway: IpAddr, range: &UsableRange) -> Option<String> {
    let subnet = range.subnet?;
    if !subnet.contains(&gateway) {
        return Some(format!("is outside of the subnet {subnet}"));
    }
    // Subnets of one or two addresses have neither. IPv6 has no broadcast address, and routers can
    // have the first one.
    if !subnet.addr().is_ipv4() || subnet.prefix_len() >= 31 {
        return None;
    }
    if gateway == subnet.network() {
        Some(format!("is the network address of the subnet {subnet}"))
    } else if gateway == subnet.broadcast() {
        Some(format!("is the broadcast address of the subnet {subnet}"))
    } else {
        None
    }
}

/// Warns about a choice of namespaces that selects all, or none, without saying so.
fn namespaces_warning(field: &str, access: &NamespaceAccess) -> Option<String> {
    match access.from {
        NamespaceSource::Names if access.names.is_empty() => Some(format!(
            "{field}.names: is empty and allows no namespace; write from: None if this is intended"
        )),
        NamespaceSource::All | NamespaceSource::None | NamespaceSource::Names => None,
        NamespaceSource::Selector => {
            let selector = access.selector.as_ref()?;
            if selects_all(selector) {
                return Some(format!(
                    "{field}.selector: is empty and selects all namespaces; write from: All if this is intended"
                ));
            }
            selects_nothing(selector).then(|| {
                format!(
                    "{field}.selector: selects no namespace: its requirements contradict each other"
                )
            })
        }
    }
}

fn headroom_warning(headroom: &Headroom, usable: &UsableBlocks) -> Option<String> {
    let addresses = u128::try_from(headroom.addresses).unwrap_or_default();
    if addresses >= usable.set.len() {
        let total = usable.set.len();
        return Some(format!(
            "spec.headroom.addresses: {addresses} leaves no address for other claims; the pool has {total}"
        ));
    }
    selects_nothing(&headroom.consumers).then(|| {
        format!(
            "spec.headroom.for: selects no claim: its requirements contradict each other, so {} never allocated",
            counted(addresses, "address is", "addresses are")
        )
    })
}

fn requirements(selector: &LabelSelector) -> impl Iterator<Item = &LabelSelectorRequirement> {
    selector.match_expressions.iter().flatten()
}

/// Whether a selector has no requirement.
fn selects_all(selector: &LabelSelector) -> bool {
    selector
        .match_labels
        .as_ref()
        .is_none_or(BTreeMap::is_empty)
        && requirements(selector).next().is_none()
}

/// Whether no labels can meet the requirements, whatever objects there are.
fn selects_nothing(selector: &LabelSelector) -> bool {
    let of_labels = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, _)| key.as_str());
    let keys: BTreeSet<&str> = of_labels
        .chain(requirements(selector).map(|it| it.key.as_str()))
        .collect();
    keys.into_iter().any(|key| is_contradictory(selector, key))
}

/// Whether no value of a label meets all requirements, and neither does its absence.
fn is_contradictory(selector: &LabelSelector, key: &str) -> bool {
    let of_key = || requirements(selector).filter(|it| it.key == key);
    let values = |it: &LabelSelectorRequirement| -> BTreeSet<String> {
        it.values.iter().flatten().cloned().collect()
    };
    let mut permitted: Option<BTreeSet<String>> = None;
    let mut permit = |more: BTreeSet<String>| {
        permitted = Some(permitted.take().map_or(more.clone(), |before| {
            before.intersection(&more).cloned().collect()
        }));
    };
    if let Some(value) = selector
        .match_labels
        .as_ref()
        .and_then(|labels| labels.get(key))
    {
        permit([value.clone()].into());
    }
    of_key()
        .filter(|it| it.operator == "In")
        .for_each(|it| permit(values(it)));
    let denied: BTreeSet<String> = of_key()
        .filter(|it| it.operator == "NotIn")
        .flat_map(values)
        .collect();
    let is_required = permitted.is_some() || of_key().any(|it| it.operator == "Exists");
    let is_forbidden = of_key().any(|it| it.operator == "DoesNotExist");
    is_required && is_forbidden || permitted.is_some_and(|permitted| permitted.is_subset(&denied))
}

#[cfg(test)]
mod tests;
