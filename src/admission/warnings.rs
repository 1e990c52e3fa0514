//! What is not wrong with a pool and yet probably not meant.

use capi_ipam_ip::{Family, parse_entry, SpanSet, Usable};

use crate::api::{Audience, PoolKey, PoolSpec, Scope};
use super::view::View;

/// How many texts of one sort are told.
const MOST: usize = 5;

/// Everything worth a warning about a pool that can be used.
pub(super) fn of(spec: &PoolSpec<'_>, key: &PoolKey, usable: &Usable, view: &dyn View) -> Vec<String> {
    let mut warnings = Vec::new();
    match spec {
        PoolSpec::Addresses(spec) => {
            if let Some((gateway, subnet)) = usable.gateway.zip(usable.subnet)
                && !subnet.contains(&gateway)
            {
                warnings.push(format!("spec.gateway: {gateway} is outside of the subnet {subnet}"));
            }
            warnings.extend(idle("spec.excludedAddresses", &spec.excluded_addresses, &spec.addresses));
        }
        PoolSpec::Prefixes(spec) => {
            if usable.length == usable.family.bits() {
                warnings.push(format!(
                    "spec.allocationPrefixLength: {} gives single addresses; a pool of addresses may be what you want",
                    usable.length
                ));
            }
            if let Some(gateway) = usable.gateway
                && usable.addresses().contains(Family::to_number(gateway))
            {
                warnings.push(format!("spec.gateway: {gateway} is within the pool and is not kept out of it"));
            }
            warnings.extend(idle("spec.excludedPrefixes", &spec.excluded_prefixes, &spec.prefixes));
        }
    }
    let overlapping = view.overlapping(key, &Scope::of(key, spec.network()), usable);
    if !overlapping.is_empty() {
        let pools = Audience::of_pool(key).pools(&overlapping);
        warnings
            .push(format!("the same addresses can be given out by {pools}; pools with the same spec.network never do"));
    }
    warnings
}

/// Entries that exclude nothing, because the pool has none of their addresses.
fn idle(field: &str, excluded: &[String], given: &[String]) -> Vec<String> {
    let spans = |texts: &[String]| -> SpanSet {
        texts.iter().filter_map(|text| parse_entry(text).ok()).map(|entry| entry.span).collect()
    };
    let given = spans(given);
    let idle = excluded.iter().enumerate().filter_map(move |(index, text)| {
        let entry = parse_entry(text).ok()?;
        let excludes_nothing = given.intersect(&SpanSet::from(entry.span)).is_empty();
        excludes_nothing.then(|| format!("{field}[{index}]: {text} excludes nothing, it is not in the pool"))
    });
    idle.take(MOST).collect()
}
