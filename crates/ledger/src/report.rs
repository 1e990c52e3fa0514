//! What the ledger knows of a pool or a network at one moment. A status is computed from one report, so it
//! does not contradict itself.

use std::sync::Arc;

use capi_ipam_api::{
    AddressCounts, NetworkView, OverLimit, PoolKey, PoolNetwork, Scope, SliceCounts, Slot,
};
use capi_ipam_ip::Entry;
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::block_queries::NetworkBlocks;
use super::block_supply::MissingBlock;
use super::draining_use::DrainingUse;
use super::ledger::Ledger;
use super::pool_info::PoolInfo;

/// What the ledger knows of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolReport {
    /// The pool.
    pub key: PoolKey,
    /// What the pool declares, and its scope.
    pub info: Arc<PoolInfo>,
    /// The counts of its addresses.
    pub counts: AddressCounts,
    /// How many of the addresses out of range are in blocks of the network that are not usable.
    pub in_unusable_blocks: usize,
    /// When the next cool-down ends, in seconds since the Unix epoch.
    pub cooldown_end: Option<i64>,
    /// The block of its network that the pool needs for its next claim.
    pub missing_block: Option<MissingBlock>,
    /// The pools of other scopes that can allocate an address of this one.
    pub overlapping: Vec<PoolKey>,
    /// The first addresses that the first of these has, too.
    pub shared: Option<Entry>,
    /// Whether these allocate blocks of the same length as this pool.
    pub has_one_length: bool,
    /// The addresses beyond what the access rules of the pool allow; `None` without rules.
    pub over_limit: Option<OverLimit>,
    /// The counts of the slices of the pool; `None` without slices.
    pub slices: Option<SliceCounts>,
    /// What is in use in the draining parts of the pool; `None` without such parts.
    pub draining: Option<DrainingUse>,
    /// The network to which the pool belongs, or which it leaves.
    pub network: Option<PoolNetwork>,
}

/// What holds addresses of a pool, as far as the ledger knows.
#[derive(Clone, Debug)]
pub enum PoolUse {
    /// Claims have addresses of it.
    Addresses {
        /// The number of addresses.
        count: usize,
        /// The claims with the lowest ones.
        claims: Vec<NamespacedName>,
    },
    /// A reservation of the provider, of this address.
    Reservation(Slot),
    /// Nothing.
    Unused {
        /// The scopes in which the API server can have reservations of the pool.
        scopes: Vec<Scope>,
    },
}

/// What the ledger knows of a network.
#[derive(Clone, Debug)]
pub struct NetworkReport {
    /// Its pools and counts.
    pub view: NetworkView,
    /// The blocks that it shares with other management clusters; `None` if it shares none.
    pub blocks: Option<NetworkBlocks>,
    /// Whether pools wait for the length of its blocks.
    pub lacks_block_length: bool,
    /// Whether it is unknown which of its blocks are those of this management cluster.
    pub awaits_identity: bool,
    /// Whether the registry that it names does not exist, as far as is known.
    pub lacks_registry: bool,
}

impl Ledger {
    /// What is known of a pool; `None` if it is not known. `overlapping` are the pools of other scopes that
    /// can allocate an address of it: they are searched without the ledger, see
    /// [`Ledger::begin_overlap_search`].
    pub fn pool_report(&self, key: &PoolKey, overlapping: Vec<PoolKey>) -> Option<PoolReport> {
        let info = self.pool_info(key)?;
        let mut has_one_length = false;
        let mut shared = None;
        if let Ok(usable) = &info.usable {
            has_one_length = self.have_length(&overlapping, usable.length);
            let first = overlapping.first().and_then(|first| self.pool_info(first));
            if let Some(Ok(theirs)) = first.as_ref().map(|first| &first.usable) {
                shared = usable.first_shared(theirs);
            }
        }
        Some(PoolReport {
            key: key.clone(),
            counts: self.counts(key),
            in_unusable_blocks: self.in_unusable_blocks(key),
            cooldown_end: self.cooldown_end(key),
            missing_block: self.missing_block(key),
            overlapping,
            shared,
            has_one_length,
            over_limit: self.over_limit(key),
            slices: self.slice_counts(key),
            draining: self.draining_use(key),
            network: self.pool_network(key),
            info,
        })
    }

    /// What holds addresses of a pool.
    pub fn pool_use(&self, key: &PoolKey) -> PoolUse {
        if self.is_in_use(key) {
            let counts = self.counts(key);
            let used = counts.used.saturating_add(counts.out_of_range);
            return PoolUse::Addresses {
                count: usize::try_from(used).unwrap_or_default(),
                claims: self.first_claims(key),
            };
        }
        match self.held_in(key) {
            Some(held) => PoolUse::Reservation(held),
            None => PoolUse::Unused {
                scopes: self.possible_scopes(key),
            },
        }
    }

    /// What is known of a network. `registry` is the one that it names.
    pub fn network_report(&self, name: &str, registry: Option<&str>) -> NetworkReport {
        NetworkReport {
            view: self.network(name),
            blocks: self.network_blocks(name),
            lacks_block_length: self.lacks_block_length(name),
            awaits_identity: self.awaits_identity(name),
            lacks_registry: registry.is_some_and(|registry| self.lacks_registry(registry)),
        }
    }
}
