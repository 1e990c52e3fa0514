//! What no pool of a network allocates: the gateways of all its pools, and the exclusions of the
//! network.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use capi_ipam_api::NetworkRules;
use capi_ipam_ip::{Block, Family, Span, SpanSet, UsableBlocks};

/// What no pool of one network allocates. The sets are computed once after a change and shared by
/// all pools.
#[derive(Default)]
pub(super) struct Exclusions {
    rules: Option<Arc<NetworkRules>>,
    /// The gateways of the pools, with the number of pools.
    gateways: BTreeMap<IpAddr, usize>,
    v4: OnceCell<Arc<SpanSet>>,
    v6: OnceCell<Arc<SpanSet>>,
}

/// The blocks of a pool without the exclusions of its network, and what they were computed from.
pub(super) struct AppliedExclusions {
    declared: Arc<UsableBlocks>,
    excluded: Arc<SpanSet>,
    pub(super) usable: Arc<UsableBlocks>,
}

impl AppliedExclusions {
    /// Whether the blocks were computed from these.
    fn is_of(&self, declared: &Arc<UsableBlocks>, excluded: &Arc<SpanSet>) -> bool {
        Arc::ptr_eq(&self.declared, declared) && Arc::ptr_eq(&self.excluded, excluded)
    }
}

impl Exclusions {
    /// Replaces the specification of the network; `None` if it does not exist or is not valid.
    pub(super) fn set_rules(&mut self, rules: Option<Arc<NetworkRules>>) {
        if excluded_by(self.rules.as_deref()) != excluded_by(rules.as_deref()) {
            self.reset();
        }
        self.rules = rules;
    }

    /// Forgets the sets: they are computed again when they are needed.
    fn reset(&mut self) {
        self.v4 = OnceCell::new();
        self.v6 = OnceCell::new();
    }

    /// Counts the gateways of a pool that has left, or that has joined. Returns those that are new,
    /// or that no other pool has.
    pub(super) fn count_gateways(
        &mut self,
        gateways: &BTreeSet<IpAddr>,
        is_added: bool,
    ) -> Vec<IpAddr> {
        let mut changed = Vec::new();
        for gateway in gateways {
            let count = self.gateways.entry(*gateway).or_default();
            *count = if is_added {
                count.saturating_add(1)
            } else {
                count.saturating_sub(1)
            };
            let count = *count;
            if count == 0 {
                self.gateways.remove(gateway);
            }
            if count == usize::from(is_added) {
                changed.push(*gateway);
            }
        }
        if !changed.is_empty() {
            self.reset();
        }
        changed
    }

    /// Whether there is nothing to keep.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_none() && self.gateways.is_empty()
    }

    /// The blocks of a pool without the exclusions; `None` if there are none. `before` is returned
    /// again if it is still right, since allocations compare the pointers.
    pub(super) fn apply(
        &self,
        declared: &Arc<UsableBlocks>,
        before: Option<&AppliedExclusions>,
    ) -> Option<AppliedExclusions> {
        let excluded = self.excluded(declared.family);
        if excluded.is_empty() {
            return None;
        }
        let usable = match before {
            Some(before) if before.is_of(declared, excluded) => Arc::clone(&before.usable),
            // Nothing of the pool is excluded: it shares the declared blocks.
            _ if !declared.overlaps_addresses(excluded) => Arc::clone(declared),
            _ => Arc::new(declared.without(excluded)),
        };
        Some(AppliedExclusions {
            declared: Arc::clone(declared),
            excluded: Arc::clone(excluded),
            usable,
        })
    }

    /// What no pool of the network allocates, computed once after a change.
    fn excluded(&self, family: Family) -> &Arc<SpanSet> {
        let set = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        set.get_or_init(|| Arc::new(self.compute(family)))
    }

    /// Computes the exclusions of a family from the specification and the gateways.
    fn compute(&self, family: Family) -> SpanSet {
        let mut spans: Vec<Span> = addresses_in(self.gateways.keys(), family).collect();
        if let Some(rules) = &self.rules {
            let excluded = match family {
                Family::V4 => &rules.excluded_v4,
                Family::V6 => &rules.excluded_v6,
            };
            spans.extend(excluded.spans());
        }
        spans.into_iter().collect()
    }
}

/// The exclusions of a specification.
fn excluded_by(rules: Option<&NetworkRules>) -> Option<(&SpanSet, &SpanSet)> {
    let rules = rules?;
    Some((&rules.excluded_v4, &rules.excluded_v6))
}

/// The numbers of the addresses of a family.
pub(super) fn addresses_in<'a>(
    addresses: impl IntoIterator<Item = &'a IpAddr>,
    family: Family,
) -> impl Iterator<Item = Span> {
    addresses.into_iter().filter_map(move |address| {
        let block = Block::address(*address);
        (block.family() == family).then(|| block.span())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateways(last: &[u8]) -> BTreeSet<IpAddr> {
        last.iter()
            .map(|last| IpAddr::from([10, 0, 0, *last]))
            .collect()
    }

    #[test]
    fn shared_gateway_counts_once() {
        let mut exclusions = Exclusions::default();
        assert_eq!(exclusions.count_gateways(&gateways(&[1, 2]), true).len(), 2);
        assert_eq!(exclusions.count_gateways(&gateways(&[2, 3]), true).len(), 1);
        assert_eq!(
            exclusions.count_gateways(&gateways(&[1, 2]), false),
            [IpAddr::from([10, 0, 0, 1])]
        );
        assert_eq!(
            exclusions.count_gateways(&gateways(&[2, 3]), false).len(),
            2
        );
        assert!(exclusions.is_empty());
    }

    #[test]
    fn excluded_set_is_computed_once_per_change() {
        let mut exclusions = Exclusions::default();
        exclusions.count_gateways(&gateways(&[1]), true);
        let first = Arc::clone(exclusions.excluded(Family::V4));
        // Another pool has the same gateway.
        exclusions.count_gateways(&gateways(&[1]), true);
        assert!(Arc::ptr_eq(&first, exclusions.excluded(Family::V4)));
        exclusions.count_gateways(&gateways(&[7]), true);
        assert_eq!(exclusions.excluded(Family::V4).len(), 2);
        assert!(exclusions.excluded(Family::V6).is_empty());
    }
}
