//! Warnings about valid pools that are probably not what the user intended.

use capi_ipam_ip::{Family, SpanSet, UsableBlocks, parse_entry};

use super::view::View;
use crate::api::{AccessRules, Audience, Pool, PoolKey, PoolSpec};

/// The maximum number of warnings about excluded entries.
const MAX_EXCLUSION_WARNINGS: usize = 5;

/// Returns the warnings about a valid pool.
pub(super) fn of(pool: &Pool, key: &PoolKey, usable: &UsableBlocks, view: &dyn View) -> Vec<String> {
    let mut warnings = Vec::new();
    match &pool.spec {
        PoolSpec::Addresses(spec) => {
            if let Some((gateway, subnet)) = usable.gateway.zip(usable.subnet)
                && !subnet.contains(&gateway)
            {
                warnings.push(format!("spec.gateway: {gateway} is outside of the subnet {subnet}"));
            }
            warnings.extend(ineffective_exclusions(
                "spec.excludedAddresses",
                &spec.excluded_addresses,
                &spec.addresses,
            ));
        }
        PoolSpec::Prefixes(spec) => {
            if usable.length == usable.family.bits() {
                warnings.push(format!(
                    "spec.allocationPrefixLength: {} allocates single addresses; consider a pool of addresses instead",
                    usable.length
                ));
            }
            if let Some(gateway) = usable.gateway
                && usable.addresses().contains(Family::to_number(gateway))
            {
                warnings.push(format!(
                    "spec.gateway: {gateway} is within the pool and can be allocated; exclude it to prevent this"
                ));
            }
            warnings.extend(ineffective_exclusions("spec.excludedPrefixes", &spec.excluded_prefixes, &spec.prefixes));
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
    let (scope, refusal) = view.network_of(key, pool);
    // Not denied: `clusterctl move` and restores create pools and networks in any order.
    warnings.extend(refusal.map(|refusal| format!("spec.network: {refusal}")));
    let overlapping = view.overlapping(key, &scope, usable);
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

/// Warns about entries that exclude nothing because the pool has none of their addresses.
fn ineffective_exclusions(field: &str, excluded: &[String], given: &[String]) -> Vec<String> {
    let spans = |texts: &[String]| -> SpanSet {
        texts.iter().filter_map(|text| parse_entry(text).ok()).map(|entry| entry.span).collect()
    };
    let given = spans(given);
    let warnings = excluded.iter().enumerate().filter_map(move |(index, text)| {
        let entry = parse_entry(text).ok()?;
        let excludes_nothing = given.intersect(&SpanSet::from(entry.span)).is_empty();
        excludes_nothing.then(|| format!("{field}[{index}]: {text} excludes nothing: it is not in the pool"))
    });
    warnings.take(MAX_EXCLUSION_WARNINGS).collect()
}
