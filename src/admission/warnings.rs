//! Warnings about valid pools that are probably not what the user intended.

use std::net::IpAddr;

use capi_ipam_ip::{Family, SpanSet, UsableBlocks, UsableRange, parse_entry};

use super::scope_changes;
use super::view::View;
use crate::api::{AccessRules, Audience, Pool, PoolKey, PoolSpec};

/// The maximum number of warnings about the entries of a list.
const MAX_ENTRY_WARNINGS: usize = 5;

/// Returns the warnings about a valid pool. `old` is the pool before the write.
pub(super) fn of(
    pool: &Pool,
    old: Option<&Pool>,
    key: &PoolKey,
    usable: &UsableBlocks,
    view: &dyn View,
) -> Vec<String> {
    let mut warnings = Vec::new();
    match &pool.spec {
        PoolSpec::Addresses(spec) => {
            warnings.extend(outside_gateways(usable, !spec.addresses.is_empty()));
            if spec.addresses.is_empty() && spec.gateway.as_ref().is_some_and(|gateway| !gateway.is_empty()) {
                warnings.push("spec.gateway: is not set on any IPAddress; it is for spec.addresses".to_owned());
            }
            let ranges = spec.ranges.iter().flat_map(|range| &range.addresses);
            let given = spans_of(spec.addresses.iter().chain(ranges));
            warnings.extend(without_effect("spec.excludedAddresses", &spec.excluded_addresses, &given, "excludes"));
            warnings.extend(without_effect("spec.draining", &spec.draining, &given, "drains"));
        }
        PoolSpec::Prefixes(spec) => {
            if usable.length == usable.family.bits() {
                warnings.push(format!(
                    "spec.allocationPrefixLength: {} allocates single addresses; consider a pool of addresses instead",
                    usable.length
                ));
            }
            warnings.extend(allocatable_gateways(usable, !spec.prefixes.is_empty()));
            let ranges = spec.ranges.iter().flat_map(|range| &range.prefixes);
            let given = spans_of(spec.prefixes.iter().chain(ranges));
            warnings.extend(without_effect("spec.excludedPrefixes", &spec.excluded_prefixes, &given, "excludes"));
            warnings.extend(without_effect("spec.draining", &spec.draining, &given, "drains"));
        }
    }
    if let Some((addresses, _)) = access_rules(pool).and_then(|rules| rules.headroom)
        && addresses >= usable.set.len()
    {
        warnings.push(format!(
            "spec.headroom.addresses: {addresses} leaves no address for other claims; the pool has {}",
            usable.set.len()
        ));
    }
    let over = access_rules(pool).map(|rules| view.over_limit(key, &rules)).unwrap_or_default();
    if over.addresses > 0 {
        warnings.push(format!(
            "spec.limits: {} namespaces or Clusters have {} addresses more; they keep them",
            over.groups, over.addresses
        ));
    }
    if over.not_allowed > 0 {
        warnings.push(format!(
            "spec.allowedNamespaces: {} addresses are in namespaces that are not allowed; they stay in use",
            over.not_allowed
        ));
    }
    if let Some(limit) = pool.spec.reclaim().terminating_limit() {
        warnings.push(format!(
            "spec.reclaim.terminating.afterSeconds: an address is released {} seconds after the deletion of its claim, \
             even if a machine still uses it; another machine can then get the same address",
            limit.as_secs()
        ));
    }
    let change = view.scope_change(key, pool);
    warnings.extend(scope_changes::of_pool(&change, pool, old));
    let overlapping = view.overlapping(key, &change.after, usable);
    if !overlapping.is_empty() {
        let pools = Audience::of_pool(key).pools(&overlapping);
        warnings.push(format!(
            "the same addresses can be allocated by {pools}; pools of one IPNetwork never share addresses"
        ));
    }
    warnings
}

/// Who may use a global pool, if its specification restricts it.
fn access_rules(pool: &Pool) -> Option<AccessRules> {
    pool.kind.is_global().then(|| pool.spec.access().rules().ok().flatten()).flatten()
}

/// The gateways of the pool, each with the path of its field. `has_own` tells whether the first range is the pool's own.
fn gateways(usable: &UsableBlocks, has_own: bool) -> impl Iterator<Item = (String, IpAddr, &UsableRange)> {
    usable.ranges.iter().enumerate().filter_map(move |(index, range)| {
        let field = match (index.checked_sub(1), has_own) {
            (None, true) => "spec.gateway".to_owned(),
            (Some(index), true) => format!("spec.ranges[{index}].gateway"),
            (_, false) => format!("spec.ranges[{index}].gateway"),
        };
        Some((field, range.gateway?, range))
    })
}

/// Warns about gateways outside of their subnets.
fn outside_gateways(usable: &UsableBlocks, has_own: bool) -> impl Iterator<Item = String> {
    gateways(usable, has_own).filter_map(|(field, gateway, range)| {
        let subnet = range.subnet.filter(|subnet| !subnet.contains(&gateway))?;
        Some(format!("{field}: {gateway} is outside of the subnet {subnet}"))
    })
}

/// Warns about gateways of a pool of prefixes that can be allocated.
fn allocatable_gateways(usable: &UsableBlocks, has_own: bool) -> impl Iterator<Item = String> {
    let addresses = usable.addresses();
    let within =
        gateways(usable, has_own).filter(move |(_, gateway, _)| addresses.contains(Family::to_number(*gateway)));
    within.map(|(field, gateway, _)| {
        format!("{field}: {gateway} is within the pool and can be allocated; exclude it to prevent this")
    })
}

fn spans_of<'a>(texts: impl IntoIterator<Item = &'a String>) -> SpanSet {
    texts.into_iter().filter_map(|text| parse_entry(text).ok()).map(|entry| entry.span).collect()
}

/// Warns about entries that exclude or drain nothing because the pool has none of their addresses.
fn without_effect(field: &str, entries: &[String], given: &SpanSet, verb: &str) -> impl Iterator<Item = String> {
    let warnings = entries.iter().enumerate().filter_map(move |(index, text)| {
        let entry = parse_entry(text).ok()?;
        let has_effect = given.overlaps(entry.span);
        (!has_effect).then(|| format!("{field}[{index}]: {text} {verb} nothing: it is not in the pool"))
    });
    warnings.take(MAX_ENTRY_WARNINGS)
}
