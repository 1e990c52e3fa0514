//! Rules for pools.
//!
//! Left to the webhooks, because the expression language cannot say it: that a range of IPv6 addresses ends before it
//! begins, that pools of one network give out blocks of one length, and all that needs other objects, such as which
//! addresses are in use. Objects that are written in `v1alpha1` are not subject to these rules at all.

use capi_ipam_ip::MAX_ENTRY_LENGTH;
use serde_json::Value;

use crate::api::crds::CrdError;
use super::{add, decimal, limit, Rule};

/// Most entries of a list. So many ranges of IPv6 addresses in full keep each rule below what the API server lets one
/// cost; tests/crds.rs tries it.
const MOST_ENTRIES: usize = 4096;
/// The longest text of one address: an IPv6 address in full that ends like an IPv4 address.
const LONGEST_ADDRESS: usize = 45;
/// The longest DNS label (RFC 1123).
const LONGEST_LABEL: usize = 63;

const UNREADABLE: &str = "is neither an IP address (10.0.0.7) nor a network (10.0.0.0/24) nor a range of two addresses \
                          of one family (10.0.0.10-10.0.0.99); zones, leading zeros and IPv4-mapped addresses are not \
                          read";
const REVERSED: &str = "ends before it begins; write the lower address first";
const TWO_FAMILIES: &str = "all entries have to be of one family, IPv4 or IPv6";
const FIXED: &str = "this field is immutable; make another pool";

/// Limits and rules for the definition of a pool of single addresses.
pub(in crate::api::crds) fn addresses(schema: &mut Value) -> Result<(), CrdError> {
    shared(schema)?;
    add(schema, "spec.addresses", [required("addresses is required"), one_family()])?;
    entries(schema, "spec.addresses", "spec.addresses[]")?;
    entries(schema, "spec.excludedAddresses", "spec.excludedAddresses[]")?;
    let first = "self.addresses[0]";
    let unknown = "!has(self.addresses) || size(self.addresses) == 0";
    add(
        schema,
        "spec",
        [
            Rule::of(
                "excludedAddresses",
                family_of_all(unknown, "excludedAddresses", "addresses"),
                "an entry is of another family than the addresses",
            )
            .with_optional_old_self(),
            Rule::of("gateway", family_of_gateway(unknown, first), "is of another family than the addresses"),
            Rule::of(
                "prefix",
                format!("{unknown} || !has(self.prefix) || !{} || self.prefix <= 32", is_v4(first)),
                "is at most 32 for IPv4 addresses",
            ),
            Rule::of(
                "addresses",
                format!(
                    "{unknown} || !has(self.prefix) || {} && oldSelf.?prefix.orValue(-1) == self.prefix || {}",
                    same_list("addresses"),
                    within_subnet(first)
                ),
                "all entries have to lie within one subnet: the one of the given prefix around the first entry",
            )
            .with_optional_old_self(),
        ],
    )
}

/// Limits and rules for the definition of a pool of prefixes.
pub(in crate::api::crds) fn prefixes(schema: &mut Value) -> Result<(), CrdError> {
    shared(schema)?;
    add(schema, "spec.prefixes", [required("prefixes is required"), one_family()])?;
    limits(schema, "spec.prefixes", "spec.prefixes[]")?;
    entries(schema, "spec.excludedPrefixes", "spec.excludedPrefixes[]")?;
    let aligned = Rule::new(
        "!isCIDR(self) || cidr(self).masked() == cidr(self)",
        "has bits behind its length; write the first address of the prefix, a slash, and the length",
    );
    add(
        schema,
        "spec.prefixes[]",
        [Rule::new("isCIDR(self)", "is not a prefix in CIDR notation; write for example fd00:1::/48"), aligned],
    )?;
    let first = "self.prefixes[0]";
    let unknown = "!has(self.prefixes) || size(self.prefixes) == 0";
    let length = length_of("self");
    add(
        schema,
        "spec",
        [
            Rule::of(
                "excludedPrefixes",
                family_of_all(unknown, "excludedPrefixes", "prefixes"),
                "an entry is of another family than the prefixes",
            )
            .with_optional_old_self(),
            Rule::of("gateway", family_of_gateway(unknown, first), "is of another family than the prefixes"),
            Rule::of(
                "allocationPrefixLength",
                format!("{unknown} || !{} || {length} <= 32", is_v4(first)),
                "is at most 32 for IPv4 prefixes",
            ),
            Rule::of(
                "prefixes",
                format!(
                    "{unknown} || {same_list} || size(self.prefixes) > {MOST_ENTRIES} || self.prefixes.all(p, \
                     !isCIDR(p) || cidr(p).prefixLength() <= {length})",
                    same_list = same_list("prefixes"),
                ),
                "an entry is longer than the allocation prefix length",
            )
            .with_optional_old_self(),
            Rule::of("allocationPrefixLength", format!("{length} == {}", length_of("oldSelf")), FIXED),
        ],
    )
}

/// What all pools have in common.
fn shared(schema: &mut Value) -> Result<(), CrdError> {
    // An object that never had a specification can be changed, so that it can also be let go.
    let has_spec = Rule {
        reason: Some("FieldValueRequired"),
        ..Rule::of("spec", "has(self.spec) || oldSelf.hasValue() && !has(oldSelf.value().spec)", "spec is required")
    };
    add(schema, "", [has_spec.with_optional_old_self()])?;
    limit(schema, "spec.gateway", "maxLength", LONGEST_ADDRESS)?;
    add(schema, "spec.gateway", [Rule::new("self == '' || isIP(self)", "is not an IPv4 or IPv6 address")])?;
    limit(schema, "spec.network", "maxLength", LONGEST_LABEL)?;
    let label = Rule::new(
        "self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",
        "a network's name has at most 63 lower case letters, digits and dashes, and no dash at its ends",
    );
    add(schema, "spec.network", [label])?;
    let network = |of: &str| format!("(has({of}.network) ? {of}.network : '')");
    add(schema, "spec", [Rule::of("network", format!("{} == {}", network("self"), network("oldSelf")), FIXED)])
}

/// Limits of a list of addresses, networks or prefixes.
fn limits(schema: &mut Value, list: &'static str, entry: &'static str) -> Result<(), CrdError> {
    limit(schema, list, "maxItems", MOST_ENTRIES)?;
    limit(schema, entry, "maxLength", MAX_ENTRY_LENGTH)
}

/// Limits and rules of a list of addresses, networks and ranges.
fn entries(schema: &mut Value, list: &'static str, entry: &'static str) -> Result<(), CrdError> {
    limits(schema, list, entry)?;
    let (from, to) = (first_of_range("self"), last_of_range("self"));
    let range = format!("isIP({from}) && isIP({to})");
    let in_order = format!("!{} && {} <= {}", is_v6(&to), number(&from), number(&to));
    let rule = format!(
        "self.contains('-') ? {range} && ({} ? {} : {in_order}) : self.contains('/') ? isCIDR(self) : isIP(self)",
        is_v6(&from),
        is_v6(&to)
    );
    let of_one_family = format!("{} == {}", is_v6(&from), is_v6(&to));
    let message = format!("self.contains('-') && {range} && {of_one_family} ? '{REVERSED}' : '{UNREADABLE}'");
    add(schema, entry, [Rule { better_message: Some(message), ..Rule::new(rule, UNREADABLE) }])
}

fn required(message: &'static str) -> Rule {
    Rule { reason: Some("FieldValueRequired"), ..Rule::new("size(self) > 0", message) }
}

fn one_family() -> Rule {
    let (v4, v6) = (is_v4("a"), is_v6("a"));
    let rule = format!(
        "oldSelf.orValue([]) == self || size(self) > {MOST_ENTRIES} || !self.exists(a, {v4}) || !self.exists(a, {v6})"
    );
    Rule::new(rule, TWO_FAMILIES).with_optional_old_self()
}

/// Whether all of the list `excluded` is of the family of the first of `list`, unless that is `unknown`.
fn family_of_all(unknown: &str, excluded: &str, list: &str) -> String {
    let no = |other: &str| format!("!self.{excluded}.exists(e, {other})");
    let same = of_family_of(&format!("self.{list}[0]"), &no(&is_v4("e")), &no(&is_v6("e")));
    format!(
        "{unknown} || !has(self.{excluded}) || {} && oldSelf.?{list}[?0].orValue('') == self.{list}[0] || \
         size(self.{excluded}) > {MOST_ENTRIES} || {same}",
        same_list(excluded)
    )
}

/// Whether a list is what it was. What goes through a long list is asked with that before: it would be asked at each
/// change of a status, too, and takes the API server some 0.1 s for a list of the greatest length.
fn same_list(list: &str) -> String {
    format!("oldSelf.?{list}.orValue([]) == self.{list}")
}

/// Whether the gateway is of the family of `first`, unless that is `unknown`.
fn family_of_gateway(unknown: &str, first: &str) -> String {
    let no = |other: &str| format!("!{other}");
    let same = of_family_of(first, &no(&is_v4("self.gateway")), &no(&is_v6("self.gateway")));
    format!("{unknown} || !has(self.gateway) || {same}")
}

/// Whether there is nothing of the other family than that of `first`. A text that is of none is not known to be of
/// another one.
fn of_family_of(first: &str, no_v4: &str, no_v6: &str) -> String {
    format!("({} ? {no_v4} : !{} || {no_v6})", is_v6(first), is_v4(first))
}

/// Whether a text is IPv4 if it can be read at all. An IPv6 address may end like an IPv4 address.
fn is_v4(text: &str) -> String {
    format!("({text}.contains('.') && !{text}.contains(':'))")
}

/// Whether a text is IPv6 if it can be read at all.
fn is_v6(text: &str) -> String {
    format!("{text}.contains(':')")
}

/// The text before the first dash. There has to be one.
fn first_of_range(text: &str) -> String {
    format!("{text}.substring(0, {text}.indexOf('-'))")
}

/// The text behind the first dash.
fn last_of_range(text: &str) -> String {
    format!("{text}.substring({text}.indexOf('-') + 1)")
}

/// The number of an IPv4 address.
fn number(address: &str) -> String {
    let byte = |index, weight| format!("int({address}.split('.')[{index}]) * {weight}");
    [byte(0, 1 << 24), byte(1, 1 << 16), byte(2, 1 << 8), byte(3, 1)].join(" + ")
}

/// Whether all addresses are in the subnet of `first`, as far as they can be read and are of its family.
fn within_subnet(first: &str) -> String {
    let address = format!(
        "({first}.contains('-') ? {} : {first}.contains('/') ? {first}.substring(0, {first}.indexOf('/')) : {first})",
        first_of_range(first)
    );
    let subnet = format!("{address} + '/' + {}", decimal("self.prefix"));
    let (from, to) = (first_of_range("a"), last_of_range("a"));
    let [both, inside, single, network] = [
        format!("isIP({from}) && isIP({to})"),
        format!("subnet.containsIP({from}) && subnet.containsIP({to})"),
        "!isIP(a) || subnet.containsIP(a)".to_owned(),
        "!isCIDR(a) || subnet.containsCIDR(a)".to_owned(),
    ];
    // A list of one is how an expression gives something a name.
    format!(
        "size(self.addresses) > {MOST_ENTRIES} || self.prefix < 0 || self.prefix > 128 || !isCIDR({subnet}) || \
         [cidr({subnet})].all(subnet, self.addresses.all(a, (a.contains('-') ? !({both}) || {inside} : a.contains('/') \
         ? {network} : {single}) || a.contains(':') != {first}.contains(':')))"
    )
}

/// The length of the prefixes that are given out.
fn length_of(spec: &str) -> String {
    format!("(has({spec}.allocationPrefixLength) ? {spec}.allocationPrefixLength : 64)")
}
