//! The draining parts of a pool: nothing is allocated there, and what is in use stays.

use std::collections::BTreeSet;

use capi_ipam_api::{DrainingStatus, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, FreeSet, SpanSet, UsableBlocks};

use super::usage::UsageMap;
use super::{Ledger, PoolKey};

/// The maximum number of claims that are named.
const MAX_NAMED: usize = 5;

/// The draining parts of a pool. Empty if the pool has none.
#[derive(Debug, Default)]
pub(super) struct Draining {
    /// The numbers of these parts that are not in use, reserved or cooling down.
    pub(super) unused: FreeSet,
    /// The blocks of these parts that are in use.
    in_use: BTreeSet<Block>,
}

/// What is in use in the draining parts of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainingUse {
    /// The number of addresses in use.
    pub addresses: usize,
    /// The claims of the lowest of these addresses.
    pub claims: Vec<NamespacedName>,
}

impl DrainingUse {
    /// The status of the pool.
    pub fn status(&self) -> DrainingStatus {
        DrainingStatus {
            addresses: i64::try_from(self.addresses).unwrap_or(i64::MAX),
        }
    }
}

impl Draining {
    /// Counts the draining parts of a pool. `other_lengths` are the numbers that overlap with a
    /// used block of another length.
    pub(super) fn of(
        pool: &PoolKey,
        usable: &UsableBlocks,
        other_lengths: &SpanSet,
        usage: &UsageMap,
    ) -> Self {
        if usable.draining.is_empty() {
            return Self::default();
        }
        let numbers = usage.blocks().filter_map(|block| usable.number(*block));
        let in_use = usage
            .iter()
            .filter(|(block, usage)| usable.is_draining(**block) && usage.is_in_use_of(pool));
        Self {
            unused: FreeSet::without(&usable.draining.subtract(other_lengths), numbers),
            in_use: in_use.map(|(block, _)| *block).collect(),
        }
    }

    /// Records that a draining number became free, or is no longer free.
    pub(super) fn set_free(&mut self, number: u128, is_free: bool) {
        if is_free {
            self.unused.release(number);
        } else {
            self.unused.take(number);
        }
    }

    /// Records whether a draining block is in use.
    pub(super) fn set_in_use(&mut self, block: Block, is_in_use: bool) {
        if is_in_use {
            self.in_use.insert(block);
        } else {
            self.in_use.remove(&block);
        }
    }

    /// The number of addresses that nothing uses.
    pub(super) fn unused(&self) -> u128 {
        self.unused.len()
    }
}

impl Ledger {
    /// What is in use in the draining parts of a pool; `None` if its spec names none.
    pub fn draining_use(&self, pool: &PoolKey) -> Option<DrainingUse> {
        let entry = self.pools.get(pool)?;
        entry.info.as_ref().filter(|info| info.is_draining)?;
        let in_use = &entry.draining.in_use;
        let scope = entry.scope(pool);
        let claim_of = |block: &Block| {
            let usage = self.usage(&Slot {
                scope: scope.clone(),
                block: *block,
            })?;
            let owner = usage
                .owners
                .iter()
                .find(|owner| owner.pool == *pool)
                .map(|owner| &owner.name);
            owner
                .or(usage.reservation.as_ref()?.claim.as_ref())
                .cloned()
        };
        Some(DrainingUse {
            addresses: in_use.len(),
            claims: in_use.iter().filter_map(claim_of).take(MAX_NAMED).collect(),
        })
    }
}
