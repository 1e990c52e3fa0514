//! Rules for pools.
//!
//! Left to the webhooks, because the expression language cannot say it: that a range of IPv6 addresses ends before it
//! begins, that pools of one network give out blocks of one length, and all that needs other objects, such as which
//! addresses are in use. Objects that are written in `v1alpha1` are not subject to these rules at all.

use serde_json::Value;

use super::{Rule, add, decimal, limit};
use crate::addr::LONGEST_TEXT;
use crate::api::crds::CrdError;

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
                family_of_all(unknown, "self.excludedAddresses", first),
                "an entry is of another family than the addresses",
            ),
            Rule::of("gateway", family_of_gateway(unknown, first), "is of another family than the addresses"),
            Rule::of(
                "prefix",
                format!("{unknown} || !has(self.prefix) || !{} || self.prefix <= 32", is_v4(first)),
                "is at most 32 for IPv4 addresses",
            ),
            Rule::of(
                "addresses",
                format!("{unknown} || !has(self.prefix) || {}", within_subnet(first)),
                "all entries have to lie within one subnet: the one of the given prefix around the first entry",
            ),
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
                family_of_all(unknown, "self.excludedPrefixes", first),
                "an entry is of another family than the prefixes",
            ),
            Rule::of("gateway", family_of_gateway(unknown, first), "is of another family than the prefixes"),
            Rule::of(
                "allocationPrefixLength",
                format!("{unknown} || !{} || {length} <= 32", is_v4(first)),
                "is at most 32 for IPv4 prefixes",
            ),
            Rule::of(
                "prefixes",
                format!(
                    "{unknown} || size(self.prefixes) > {MOST_ENTRIES} || self.prefixes.all(p, !isCIDR(p) || \
                     cidr(p).prefixLength() <= {length})"
                ),
                "an entry is longer than the allocation prefix length",
            ),
            Rule::of("allocationPrefixLength", format!("{length} == {}", length_of("oldSelf")), FIXED),
        ],
    )
}

/// What all pools have in common.
fn shared(schema: &mut Value) -> Result<(), CrdError> {
    // An object that never had a specification can be changed, so that it can also be let go.
    let has_spec = Rule {
        reason: Some("FieldValueRequired"),
        old_self_is_optional: true,
        ..Rule::of("spec", "has(self.spec) || oldSelf.hasValue() && !has(oldSelf.value().spec)", "spec is required")
    };
    add(schema, "", [has_spec])?;
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
fn limits(schema: &mut Value, list: &'static str, items: &'static str) -> Result<(), CrdError> {
    limit(schema, list, "maxItems", MOST_ENTRIES)?;
    limit(schema, items, "maxLength", LONGEST_TEXT)
}

/// Limits and rules of a list of addresses, networks and ranges.
fn entries(schema: &mut Value, list: &'static str, items: &'static str) -> Result<(), CrdError> {
    limits(schema, list, items)?;
    let (first, last) = (first_of_range("self"), last_of_range("self"));
    let readable = format!(
        "isIP(self) || isCIDR(self) || self.contains('-') && isIP({first}) && isIP({last}) && \
         {first}.contains(':') == {last}.contains(':')"
    );
    let in_order = format!(
        "!self.contains('-') || self.contains(':') || !isIP({first}) || !isIP({last}) || {} <= {}",
        number(&first),
        number(&last)
    );
    add(schema, items, [Rule::new(readable, UNREADABLE), Rule::new(in_order, REVERSED)])
}

fn required(message: &'static str) -> Rule {
    Rule { reason: Some("FieldValueRequired"), ..Rule::new("size(self) > 0", message) }
}

fn one_family() -> Rule {
    let (v4, v6) = (is_v4("a"), is_v6("a"));
    let rule = format!("size(self) > {MOST_ENTRIES} || !self.exists(a, {v4}) || !self.exists(a, {v6})");
    Rule::new(rule, TWO_FAMILIES)
}

/// Whether all of `list` is of the family of `first`, unless that is `unknown`.
fn family_of_all(unknown: &str, list: &str, first: &str) -> String {
    let same = same_family("e", first);
    format!("{unknown} || !has({list}) || size({list}) > {MOST_ENTRIES} || {list}.all(e, {same})")
}

fn family_of_gateway(unknown: &str, first: &str) -> String {
    format!("{unknown} || !has(self.gateway) || {}", same_family("self.gateway", first))
}

/// Whether two texts are of one family. A text that is of none is not known to be of another one.
fn same_family(text: &str, other: &str) -> String {
    let [(v4, v6), (other_v4, other_v6)] = [text, other].map(|text| (is_v4(text), is_v6(text)));
    format!("!({v6} && {other_v4}) && !({v4} && {other_v6})")
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
    let other_family = format!("a.contains(':') != {first}.contains(':')");
    let range = format!("!isIP({from}) || !isIP({to}) || subnet.containsIP({from}) && subnet.containsIP({to})");
    let other = "isIP(a) ? subnet.containsIP(a) : !isCIDR(a) || subnet.containsCIDR(a)";
    // A list of one is how an expression gives something a name.
    format!(
        "size(self.addresses) > {MOST_ENTRIES} || self.prefix < 0 || self.prefix > 128 || !isCIDR({subnet}) || [cidr({subnet})].all(subnet, \
         self.addresses.all(a, {other_family} || (a.contains('-') ? ({range}) : ({other}))))"
    )
}

/// The length of the prefixes that are given out.
fn length_of(spec: &str) -> String {
    format!("(has({spec}.allocationPrefixLength) ? {spec}.allocationPrefixLength : 64)")
}
