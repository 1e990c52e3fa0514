//! What no pool of a network allocates: the gateways of all its pools, the exclusions of the
//! network, and what is outside of its usable blocks if it shares blocks with other management
//! clusters.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use capi_ipam_api::{BlockLengths, NetworkRules, exclusions_hash};
use capi_ipam_ip::{Block, Family, Span, SpanSet, UsableBlocks};

use crate::blocks::{Affected, Blocks, ManagementClusters};
use crate::count;

/// What no pool of one network allocates. The sets are computed once after a change and shared by
/// all pools.
#[derive(Clone, Default)]
pub(crate) struct Exclusions {
    rules: Option<Arc<NetworkRules>>,
    /// The gateways of the pools, with the number of pools.
    gateways: BTreeMap<IpAddr, usize>,
    blocks: Blocks,
    /// The gateways and the exclusions of the network.
    excluded: ByFamily<Arc<SpanSet>>,
    /// What is outside of usable blocks; `None` if the network is not restricted.
    unusable: ByFamily<Option<Arc<SpanSet>>>,
}

/// A value for each IP family, computed when it is needed.
#[derive(Clone)]
struct ByFamily<T> {
    v4: OnceCell<T>,
    v6: OnceCell<T>,
}

impl<T> Default for ByFamily<T> {
    fn default() -> Self {
        Self {
            v4: OnceCell::new(),
            v6: OnceCell::new(),
        }
    }
}

impl<T> ByFamily<T> {
    fn get_or_init(&self, family: Family, compute: impl FnOnce() -> T) -> &T {
        let value = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        value.get_or_init(compute)
    }
}

/// The blocks of a pool without the exclusions of its network, and what they were computed from.
#[derive(Clone)]
pub(crate) struct AppliedExclusions {
    declared: Arc<UsableBlocks>,
    excluded: Arc<SpanSet>,
    unusable: Option<Arc<SpanSet>>,
    /// The blocks without the gateways and the exclusions of the network: what the pool could
    /// allocate if this management cluster had all blocks of the network.
    pub(crate) allowed: Arc<UsableBlocks>,
    pub(crate) usable: Arc<UsableBlocks>,
}

impl AppliedExclusions {
    /// Whether the pool allocates only addresses of usable blocks of its network.
    pub(crate) fn is_restricted(&self) -> bool {
        self.unusable.is_some()
    }

    /// Whether the allowed blocks were computed from these.
    fn is_of(&self, declared: &Arc<UsableBlocks>, excluded: &Arc<SpanSet>) -> bool {
        Arc::ptr_eq(&self.declared, declared) && Arc::ptr_eq(&self.excluded, excluded)
    }

    /// Whether the usable blocks were computed from these.
    fn is_restricted_to(&self, allowed: &Arc<UsableBlocks>, unusable: &Arc<SpanSet>) -> bool {
        let is_same = self
            .unusable
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, unusable));
        is_same && Arc::ptr_eq(&self.allowed, allowed)
    }
}

impl Exclusions {
    /// Replaces the specification of the network, and the lengths of what its pools allocate;
    /// `None` if it does not exist or is not valid.
    pub(crate) fn set_rules(
        &mut self,
        rules: Option<Arc<NetworkRules>>,
        lengths: BlockLengths,
        network: &Arc<str>,
        clusters: &ManagementClusters,
    ) {
        let shared = match &rules {
            Some(rules) => rules.blocks.clone(),
            None => None,
        };
        self.change_blocks(|blocks| blocks.set_rules(shared, lengths, network, clusters));
        if excluded_by(self.rules.as_deref()) != excluded_by(rules.as_deref()) {
            self.excluded = ByFamily::default();
        }
        self.rules = rules;
    }

    /// The hash of the gateways and the exclusions of the network.
    pub(crate) fn hash(&self) -> String {
        exclusions_hash(self.excluded(Family::V4), self.excluded(Family::V6))
    }

    /// The blocks that the network shares with other management clusters.
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Changes the shared blocks.
    pub(crate) fn change_blocks(
        &mut self,
        change: impl FnOnce(&mut Blocks) -> Affected,
    ) -> Affected {
        let affected = change(&mut self.blocks);
        if affected != Affected::Nothing {
            self.unusable = ByFamily::default();
        }
        affected
    }

    /// Counts the gateways of a pool that has left, or that has joined. Returns those that are new,
    /// or that no other pool has.
    pub(crate) fn count_gateways(
        &mut self,
        gateways: &BTreeSet<IpAddr>,
        is_added: bool,
    ) -> Vec<IpAddr> {
        let mut changed = Vec::new();
        for gateway in gateways {
            let pools = self.gateways.entry(*gateway).or_default();
            count(pools, is_added);
            let pools = *pools;
            if pools == 0 {
                self.gateways.remove(gateway);
            }
            if pools == usize::from(is_added) {
                changed.push(*gateway);
            }
        }
        if !changed.is_empty() {
            self.excluded = ByFamily::default();
        }
        changed
    }

    /// Whether there is nothing to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_none() && self.gateways.is_empty() && self.blocks.is_empty()
    }

    /// The blocks of a pool without the exclusions; `None` if there are none. `before` is returned
    /// again if it is still right, since allocations compare the pointers.
    pub(crate) fn apply(
        &self,
        declared: &Arc<UsableBlocks>,
        before: Option<&AppliedExclusions>,
    ) -> Option<AppliedExclusions> {
        let excluded = self.excluded(declared.family);
        let unusable = self.unusable(declared.family);
        if excluded.is_empty() && unusable.is_none() {
            return None;
        }
        let allowed = match before {
            Some(before) if before.is_of(declared, excluded) => Arc::clone(&before.allowed),
            _ => without(declared, excluded),
        };
        let usable = match (unusable, before) {
            (None, _) => Arc::clone(&allowed),
            (Some(unusable), Some(before)) if before.is_restricted_to(&allowed, unusable) => {
                Arc::clone(&before.usable)
            }
            (Some(unusable), _) => without(&allowed, unusable),
        };
        Some(AppliedExclusions {
            declared: Arc::clone(declared),
            excluded: Arc::clone(excluded),
            unusable: unusable.cloned(),
            allowed,
            usable,
        })
    }

    /// The gateways and the exclusions of the network, computed once after a change.
    fn excluded(&self, family: Family) -> &Arc<SpanSet> {
        let compute = || Arc::new(self.compute(family));
        self.excluded.get_or_init(family, compute)
    }

    /// What is outside of usable blocks, computed once after a change; `None` if the network is not
    /// restricted.
    pub(crate) fn unusable(&self, family: Family) -> Option<&Arc<SpanSet>> {
        let compute = || self.blocks.unusable(family).map(Arc::new);
        self.unusable.get_or_init(family, compute).as_ref()
    }

    /// Computes all exclusions of a family.
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

/// The blocks without those that overlap with some addresses. If none does, both share them.
fn without(blocks: &Arc<UsableBlocks>, addresses: &SpanSet) -> Arc<UsableBlocks> {
    if blocks.overlaps_addresses(addresses) {
        Arc::new(blocks.without(addresses))
    } else {
        Arc::clone(blocks)
    }
}

/// The exclusions of a specification.
fn excluded_by(rules: Option<&NetworkRules>) -> Option<(&SpanSet, &SpanSet)> {
    let rules = rules?;
    Some((&rules.excluded_v4, &rules.excluded_v6))
}

/// The numbers of the addresses of a family.
pub(crate) fn addresses_in<'a>(
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
