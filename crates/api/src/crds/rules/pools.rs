//! Validation rules for pools.
//!
//! Only the webhooks check what CEL cannot express: that a range of IPv6 addresses is not reversed,
//! that the ranges of a pool do not overlap, that all pools of a network allocate blocks of the
//! same length, and everything that depends on other objects, such as addresses in use. The rules
//! do not apply to writes in `v1alpha1`, but the limits do.

mod ranges;

use capi_ipam_ip::{MAX_ENTRY_LENGTH, MAX_RANGES};
use serde_json::Value;

use super::{Rule, access, add, decimal, limit, metadata, slices};
use crate::crds::CrdError;

/// Maximum number of entries of a list. With this many full-length IPv6 ranges, each rule stays
/// below the cost limit of the API server; tests/crds.rs verifies it.
const MAX_ENTRIES: usize = 4096;
/// Maximum length of an address in bytes: a full IPv6 address with an embedded IPv4 address.
const MAX_ADDRESS_LENGTH: usize = 45;
/// Maximum length of a DNS label (RFC 1123).
const MAX_LABEL_LENGTH: usize = 63;

const INVALID_ENTRY: &str = "must be an IP address (10.0.0.7), a network (10.0.0.0/24) or a range of two addresses of \
                             the same IP family (10.0.0.10-10.0.0.99), without blanks, zones, leading zeros and \
                             IPv4-mapped addresses";
const REVERSED_RANGE: &str = "the range ends before it begins; write the lower address first";
const MIXED_FAMILIES: &str = "all entries must have the same IP family, IPv4 or IPv6";
const IMMUTABLE: &str = "field is immutable; create another pool";

/// Adds the limits to the schema of a pool of single addresses in the deprecated version: those of
/// the same fields of the stored version. The rules are left to the webhooks, since the fields of
/// the two versions differ.
pub(in crate::crds) fn old_addresses(schema: &mut Value) -> Result<(), CrdError> {
    limits(schema, "spec.addresses", "spec.addresses[]")?;
    limit(schema, "spec.subnet", "maxLength", MAX_ENTRY_LENGTH)?;
    for address in ["spec.gateway", "spec.start", "spec.end"] {
        limit(schema, address, "maxLength", MAX_ADDRESS_LENGTH)?;
    }
    Ok(())
}

/// Adds the limits and rules to the schema of a pool of single addresses.
pub(in crate::crds) fn addresses(schema: &mut Value, is_global: bool) -> Result<(), CrdError> {
    shared(schema, is_global)?;
    add(schema, "spec.addresses", [one_family()])?;
    entries(schema, "spec.addresses", "spec.addresses[]")?;
    entries(schema, "spec.excludedAddresses", "spec.excludedAddresses[]")?;
    ranges::addresses(schema)?;
    let first = "self.addresses[0]";
    let unknown = "!has(self.addresses) || size(self.addresses) == 0";
    let all = FirstEntry::of("addresses");
    add(
        schema,
        "spec",
        [
            all.required("addresses or ranges is required"),
            required_in("prefix", &format!("{unknown} || has(self.prefix)"), "prefix is required with addresses: the prefix length of their subnet, such as 24"),
            all.family_of("excludedAddresses", "all entries must have the IP family of the addresses"),
            all.family_of("draining", "all entries must have the IP family of the addresses"),
            all.family_of_ranges("all ranges must have the IP family of the addresses"),
            all.family_of_gateway("must have the IP family of the addresses"),
            Rule::of(
                "prefix",
                format!("{unknown} || !has(self.prefix) || !{} || self.prefix <= 32", is_v4(first)),
                "must be at most 32 for IPv4 addresses",
            ),
            Rule::of(
                "addresses",
                format!(
                    "{unknown} || !has(self.prefix) || {} && oldSelf.?prefix.orValue(-1) == self.prefix || {}",
                    same_list("addresses"),
                    within_subnet(first)
                ),
                "all entries must be within one subnet: the subnet of the first entry with the given prefix length",
            )
            .with_optional_old_self(),
        ],
    )
}

/// Adds the limits and rules to the schema of a pool of prefixes.
pub(in crate::crds) fn prefixes(schema: &mut Value, is_global: bool) -> Result<(), CrdError> {
    shared(schema, is_global)?;
    add(schema, "spec.prefixes", [one_family()])?;
    limits(schema, "spec.prefixes", "spec.prefixes[]")?;
    entries(schema, "spec.excludedPrefixes", "spec.excludedPrefixes[]")?;
    add(schema, "spec.prefixes[]", prefix_rules())?;
    ranges::prefixes(schema)?;
    let all = FirstEntry::of("prefixes");
    let length = length_of("self");
    add(
        schema,
        "spec",
        [
            all.required("prefixes or ranges is required"),
            all.family_of("excludedPrefixes", "all entries must have the IP family of the prefixes"),
            all.family_of("draining", "all entries must have the IP family of the prefixes"),
            all.family_of_ranges("all ranges must have the IP family of the prefixes"),
            all.family_of_gateway("must have the IP family of the prefixes"),
            Rule::of(
                "allocationPrefixLength",
                format!("!{} || {length} <= 32", is_v4(&all.text)),
                "must be at most 32 for IPv4 prefixes",
            ),
            Rule::of(
                "prefixes",
                format!(
                    "!has(self.prefixes) || {same_list} || size(self.prefixes) > {MAX_ENTRIES} || self.prefixes.all(p, \
                     !isCIDR(p) || cidr(p).prefixLength() <= {length})",
                    same_list = same_list("prefixes"),
                ),
                "the length of a prefix must be at most allocationPrefixLength",
            )
            .with_optional_old_self(),
            Rule::of(
                "ranges",
                format!(
                    "!has(self.ranges) || {same_list} || size(self.ranges) > {MAX_RANGES} || self.ranges.all(r, \
                     size(r.prefixes) > {entries} || r.prefixes.all(p, !isCIDR(p) || cidr(p).prefixLength() <= \
                     {length}))",
                    same_list = same_list("ranges"),
                    entries = ranges::MAX_ENTRIES,
                ),
                "the length of a prefix must be at most allocationPrefixLength",
            )
            .with_optional_old_self(),
            Rule::of("allocationPrefixLength", format!("{length} == {}", length_of("oldSelf")), IMMUTABLE),
        ],
    )
}

/// Adds the rules that are common to all pools.
fn shared(schema: &mut Value, is_global: bool) -> Result<(), CrdError> {
    if is_global {
        access::pools(schema)?;
    }
    slices::policy(schema)?;
    // An old object without a specification can still be updated, so that its finalizer can be
    // removed.
    let has_spec = Rule {
        reason: Some("FieldValueRequired"),
        ..Rule::of(
            "spec",
            "has(self.spec) || oldSelf.hasValue() && !has(oldSelf.value().spec)",
            "spec is required",
        )
    };
    add(schema, "", [has_spec.with_optional_old_self()])?;
    limit(schema, "spec.gateway", "maxLength", MAX_ADDRESS_LENGTH)?;
    add(schema, "spec.gateway", [gateway_rule()])?;
    entries(schema, "spec.draining", "spec.draining[]")?;
    metadata::address_metadata(schema)?;
    limit(schema, "spec.network", "maxLength", MAX_LABEL_LENGTH)?;
    let label = Rule::new(
        "self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",
        "must be a DNS label: at most 63 lower case letters, digits and dashes, without a dash at either end",
    );
    add(schema, "spec.network", [label])
}

/// Adds the limits of a list of addresses, networks or prefixes.
fn limits(schema: &mut Value, list: &'static str, entry: &'static str) -> Result<(), CrdError> {
    limit(schema, list, "maxItems", MAX_ENTRIES)?;
    limit(schema, entry, "maxLength", MAX_ENTRY_LENGTH)
}

/// Adds the limits and rules of a list of addresses, networks and ranges.
pub(super) fn entries(
    schema: &mut Value,
    list: &'static str,
    entry: &'static str,
) -> Result<(), CrdError> {
    limits(schema, list, entry)?;
    add(schema, entry, [entry_rule()])
}

/// The rule of an address, network or range.
fn entry_rule() -> Rule {
    let (from, to) = (first_of_range("self"), last_of_range("self"));
    let range = format!("isIP({from}) && isIP({to})");
    let in_order = format!("!{} && {} <= {}", is_v6(&to), number(&from), number(&to));
    let rule = format!(
        "self.contains('-') ? {range} && ({} ? {} : {in_order}) : self.contains('/') ? isCIDR(self) : isIP(self)",
        is_v6(&from),
        is_v6(&to)
    );
    let of_one_family = format!("{} == {}", is_v6(&from), is_v6(&to));
    let message = format!(
        "self.contains('-') && {range} && {of_one_family} ? '{REVERSED_RANGE}' : '{INVALID_ENTRY}'"
    );
    Rule {
        message_expression: Some(message),
        ..Rule::new(rule, INVALID_ENTRY)
    }
}

/// The rules of a prefix.
fn prefix_rules() -> [Rule; 2] {
    let aligned = Rule::new(
        "!isCIDR(self) || cidr(self).masked() == cidr(self)",
        "must not have host bits; write the first address of the prefix, a slash, and the length",
    );
    [
        Rule::new(
            "isCIDR(self)",
            "must be a prefix in CIDR notation, such as fd00:1::/48",
        ),
        aligned,
    ]
}

fn gateway_rule() -> Rule {
    Rule::new(
        "self == '' || isIP(self)",
        "must be an IPv4 or IPv6 address",
    )
}

fn required(message: &'static str) -> Rule {
    Rule {
        reason: Some("FieldValueRequired"),
        ..Rule::new("size(self) > 0", message)
    }
}

fn required_in(field: &'static str, expression: &str, message: &'static str) -> Rule {
    Rule {
        reason: Some("FieldValueRequired"),
        ..Rule::of(field, expression, message)
    }
}

fn one_family() -> Rule {
    let (v4, v6) = (is_v4("a"), is_v6("a"));
    let rule = format!(
        "oldSelf.orValue([]) == self || size(self) > {MAX_ENTRIES} || !self.exists(a, {v4}) || !self.exists(a, {v6})"
    );
    Rule::new(rule, MIXED_FAMILIES).with_optional_old_self()
}

/// The first entry of a pool, whose family all others must have: that of `list`, or that of the
/// first range.
struct FirstEntry {
    list: &'static str,
    /// CEL: the entry; empty if there is none.
    text: String,
}

impl FirstEntry {
    fn of(list: &'static str) -> Self {
        let text = format!(
            "(has(self.{list}) && size(self.{list}) > 0 ? self.{list}[0] : has(self.ranges) && size(self.ranges) > 0 && \
             size(self.ranges[0].{list}) > 0 ? self.ranges[0].{list}[0] : '')"
        );
        Self { list, text }
    }

    /// The list or the ranges have an entry. An object that is older than the rule can be updated.
    fn required(&self, message: &'static str) -> Rule {
        let list = self.list;
        let expression = format!(
            "has(self.{list}) && size(self.{list}) > 0 || has(self.ranges) && size(self.ranges) > 0 || \
             oldSelf.hasValue() && size(oldSelf.?{list}.orValue([])) == 0 && size(oldSelf.?ranges.orValue([])) == 0"
        );
        required_in(list, &expression, message).with_optional_old_self()
    }

    /// All entries of the list `name` have the family of this entry.
    fn family_of(&self, name: &'static str, message: &'static str) -> Rule {
        let no = |other: &str| format!("!self.{name}.exists(e, {other})");
        let same = of_family_of(&self.text, &no(&is_v4("e")), &no(&is_v6("e")));
        let expression = format!(
            "!has(self.{name}) || {} && {} && {} || size(self.{name}) > {MAX_ENTRIES} || {same}",
            same_list(name),
            same_list(self.list),
            same_list("ranges"),
        );
        Rule::of(name, expression, message).with_optional_old_self()
    }

    /// All entries and gateways of the ranges have the family of this entry.
    fn family_of_ranges(&self, message: &'static str) -> Rule {
        let list = self.list;
        let no = |is_other: fn(&str) -> String| {
            format!(
                "!self.ranges.exists(r, r.{list}.exists(e, {}) || has(r.gateway) && {})",
                is_other("e"),
                is_other("r.gateway")
            )
        };
        let same = of_family_of(&self.text, &no(is_v4), &no(is_v6));
        let expression = format!(
            "!has(self.ranges) || {} && {} || size(self.ranges) > {MAX_RANGES} || {same}",
            same_list("ranges"),
            same_list(list),
        );
        Rule::of("ranges", expression, message).with_optional_old_self()
    }

    /// The gateway has the family of this entry.
    fn family_of_gateway(&self, message: &'static str) -> Rule {
        let no = |other: &str| format!("!{other}");
        let same = of_family_of(
            &self.text,
            &no(&is_v4("self.gateway")),
            &no(&is_v6("self.gateway")),
        );
        Rule::of("gateway", format!("!has(self.gateway) || {same}"), message)
    }
}

/// CEL: a list is unchanged. Rules that iterate over a long list check it first. Otherwise each
/// update of the status would evaluate them too, which takes the API server about 0.1 s for a list
/// of the maximum length.
fn same_list(list: &str) -> String {
    // Not `self.?list`: the API server does not know the size of an optional list, and estimates a
    // cost beyond its limit.
    format!(
        "(has(self.{list}) ? oldSelf.?{list}.orValue([]) == self.{list} : !oldSelf.?{list}.hasValue())"
    )
}

/// CEL: no value has a different family than `first`. A text that is not an address is not of a
/// different family.
fn of_family_of(first: &str, no_v4: &str, no_v6: &str) -> String {
    format!(
        "({} ? {no_v4} : !{} || {no_v6})",
        is_v6(first),
        is_v4(first)
    )
}

/// CEL: a text is IPv4 if it is an address. An IPv6 address may end with an embedded IPv4 address.
fn is_v4(text: &str) -> String {
    format!("({text}.contains('.') && !{text}.contains(':'))")
}

/// CEL: a text is IPv6 if it is an address.
fn is_v6(text: &str) -> String {
    format!("{text}.contains(':')")
}

/// CEL: the text before the first dash, which must exist.
fn first_of_range(text: &str) -> String {
    format!("{text}.substring(0, {text}.indexOf('-'))")
}

/// CEL: the text after the first dash, which must exist.
fn last_of_range(text: &str) -> String {
    format!("{text}.substring({text}.indexOf('-') + 1)")
}

/// CEL: an IPv4 address as a number.
fn number(address: &str) -> String {
    let byte = |index, weight| format!("int({address}.split('.')[{index}]) * {weight}");
    [
        byte(0, 1 << 24),
        byte(1, 1 << 16),
        byte(2, 1 << 8),
        byte(3, 1),
    ]
    .join(" + ")
}

/// CEL: all entries that are valid and have the family of `first` are in its subnet.
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
    // CEL has no variables: a list with one element binds a name.
    format!(
        "size(self.addresses) > {MAX_ENTRIES} || self.prefix < 0 || self.prefix > 128 || !isCIDR({subnet}) || \
         [cidr({subnet})].all(subnet, self.addresses.all(a, (a.contains('-') ? !({both}) || {inside} : a.contains('/') \
         ? {network} : {single}) || a.contains(':') != {first}.contains(':')))"
    )
}

/// CEL: the length of the allocated prefixes.
fn length_of(spec: &str) -> String {
    format!("(has({spec}.allocationPrefixLength) ? {spec}.allocationPrefixLength : 64)")
}
