//! Validation rules for pools.
//!
//! The rules check each entry by itself: its notation, its length, and that fields stay that cannot
//! change. What compares addresses is checked by the webhooks: the order of a range, the family and
//! the subnet of all entries, and that ranges do not overlap. So is what depends on other objects.
//! Without webhooks the condition `Ready` of the pool reports it (`InvalidSpec`), and the pool
//! allocates nothing. The rules do not apply to writes in `v1alpha1`, but the limits do.

use capi_ipam_ip::{MAX_ENTRY_LENGTH, MAX_RANGES};
use serde_json::Value;

use super::{Rule, access, add, limit, metadata, slices};
use crate::crds::CrdError;
use crate::{MAX_DNS_SERVERS, MAX_SEARCH_DOMAINS};

/// Maximum number of entries of a list. With this many full-length IPv6 ranges, each rule stays
/// below the cost limit of the API server; tests/crds.rs verifies it.
const MAX_ENTRIES: usize = 4096;
/// Maximum number of entries of a range. All ranges together have as many entries as the other
/// lists.
const MAX_RANGE_ENTRIES: usize = 64;
/// Maximum length of an address in bytes: a full IPv6 address with an embedded IPv4 address.
const MAX_ADDRESS_LENGTH: usize = 45;
/// Maximum length of a DNS subdomain (RFC 1123).
const MAX_DOMAIN_LENGTH: usize = 253;
/// Maximum length of a DNS label (RFC 1123).
const MAX_LABEL_LENGTH: usize = 63;

const INVALID_ENTRY: &str = "must be an IP address (10.0.0.7), a network (10.0.0.0/24) or a range of two addresses of \
                             the same IP family (10.0.0.10-10.0.0.99), without blanks, zones, leading zeros and \
                             IPv4-mapped addresses";
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
    entries(schema, "spec.addresses", "spec.addresses[]")?;
    entries(schema, "spec.excludedAddresses", "spec.excludedAddresses[]")?;
    let (list, entry) = ("spec.ranges[].addresses", "spec.ranges[].addresses[]");
    ranges(schema, list, entry, "addresses is required")?;
    add(schema, entry, [entry_rule()])?;
    let has_prefix = required_in(
        "prefix",
        "!has(self.addresses) || size(self.addresses) == 0 || has(self.prefix)",
        "prefix is required with addresses: the prefix length of their subnet, such as 24",
    );
    name_servers(schema)?;
    let has_entry = has_entry("addresses", "addresses or ranges is required");
    add(schema, "spec", [has_entry, has_prefix])
}

/// Adds the limits and rules of name servers and search domains.
fn name_servers(schema: &mut Value) -> Result<(), CrdError> {
    let lists = [
        ("spec.dnsServers", "spec.dnsServers[]"),
        ("spec.ranges[].dnsServers", "spec.ranges[].dnsServers[]"),
    ];
    for (list, entry) in lists {
        limit(schema, list, "maxItems", MAX_DNS_SERVERS)?;
        limit(schema, entry, "maxLength", MAX_ADDRESS_LENGTH)?;
        let is_address = Rule::new("isIP(self)", "must be an IPv4 or IPv6 address");
        add(schema, entry, [is_address])?;
    }
    let lists = [
        ("spec.searchDomains", "spec.searchDomains[]"),
        (
            "spec.ranges[].searchDomains",
            "spec.ranges[].searchDomains[]",
        ),
    ];
    for (list, entry) in lists {
        limit(schema, list, "maxItems", MAX_SEARCH_DOMAINS)?;
        limit(schema, entry, "maxLength", MAX_DOMAIN_LENGTH)?;
        add(schema, entry, [domain_rule()])?;
    }
    limit(schema, "spec.dns.zone", "maxLength", MAX_DOMAIN_LENGTH)?;
    add(schema, "spec.dns.zone", [domain_rule()])
}

fn domain_rule() -> Rule {
    Rule::new(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        "must be a domain of lower case letters, digits, dashes and dots, such as example.com",
    )
}

/// Adds the limits and rules to the schema of a pool of prefixes.
pub(in crate::crds) fn prefixes(schema: &mut Value, is_global: bool) -> Result<(), CrdError> {
    shared(schema, is_global)?;
    limits(schema, "spec.prefixes", "spec.prefixes[]")?;
    entries(schema, "spec.excludedPrefixes", "spec.excludedPrefixes[]")?;
    add(schema, "spec.prefixes[]", prefix_rules())?;
    let (list, entry) = ("spec.ranges[].prefixes", "spec.ranges[].prefixes[]");
    ranges(schema, list, entry, "prefixes is required")?;
    add(schema, entry, prefix_rules())?;
    let expression = format!("{} == {}", length_of("self"), length_of("oldSelf"));
    let same_length = Rule::of("allocationPrefixLength", expression, IMMUTABLE);
    let has_entry = has_entry("prefixes", "prefixes or ranges is required");
    add(schema, "spec", [has_entry, same_length])
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

/// Adds the limits of the ranges, and the rules of their parts. A range is an entry of a list, so
/// that its rules cannot use the old value.
fn ranges(
    schema: &mut Value,
    list: &'static str,
    entry: &'static str,
    missing: &'static str,
) -> Result<(), CrdError> {
    limit(schema, "spec.ranges", "maxItems", MAX_RANGES)?;
    let gateway = "spec.ranges[].gateway";
    limit(schema, gateway, "maxLength", MAX_ADDRESS_LENGTH)?;
    add(schema, gateway, [gateway_rule()])?;
    limit(schema, list, "maxItems", MAX_RANGE_ENTRIES)?;
    limit(schema, entry, "maxLength", MAX_ENTRY_LENGTH)?;
    let has_entry = Rule {
        reason: Some("FieldValueRequired"),
        ..Rule::new("size(self) > 0", missing)
    };
    add(schema, list, [has_entry])
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
    let (from, to) = (
        "self.substring(0, self.indexOf('-'))",
        "self.substring(self.indexOf('-') + 1)",
    );
    let range = format!("isIP({from}) && isIP({to}) && {from}.contains(':') == {to}.contains(':')");
    let rule =
        format!("self.contains('-') ? {range} : self.contains('/') ? isCIDR(self) : isIP(self)");
    Rule::new(rule, INVALID_ENTRY)
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

fn required_in(field: &'static str, expression: &str, message: &'static str) -> Rule {
    Rule {
        reason: Some("FieldValueRequired"),
        ..Rule::of(field, expression, message)
    }
}

/// The list or the ranges have an entry. An object that is older than the rule can be updated.
fn has_entry(list: &'static str, message: &'static str) -> Rule {
    let expression = format!(
        "has(self.{list}) && size(self.{list}) > 0 || has(self.ranges) && size(self.ranges) > 0 || \
         oldSelf.hasValue() && size(oldSelf.?{list}.orValue([])) == 0 && size(oldSelf.?ranges.orValue([])) == 0"
    );
    required_in(list, &expression, message).with_optional_old_self()
}

/// CEL: the length of the allocated prefixes.
fn length_of(spec: &str) -> String {
    format!("(has({spec}.allocationPrefixLength) ? {spec}.allocationPrefixLength : 64)")
}
