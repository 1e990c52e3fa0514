//! The cluster of the tests of admission.

use std::collections::HashMap;
use std::sync::Arc;

use capi_ipam_api::{
    AccessRules, IPNetwork, NetworkRefusal, NetworkView, OverLimit, Pool, PoolKey, Scope,
    ScopeChange, Slot,
};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, Family, UsableBlocks};

use super::View;

/// A cluster of which only what a test sets is known.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) incomplete: bool,
    /// The addresses in use of each pool.
    pub(super) in_use: Vec<&'static str>,
    pub(super) overlapping: Vec<PoolKey>,
    /// The lengths of the blocks of the networks that exist.
    pub(super) networks: HashMap<&'static str, u8>,
    /// The scope of the pool under review, if it exists.
    pub(super) scope: Option<Scope>,
    /// The length of the blocks that all networks share.
    pub(super) shared_length: Option<u8>,
    /// The number of reservations of an earlier pool.
    pub(super) older: usize,
    /// The state of the network `lab`.
    pub(super) network: NetworkView,
    /// What a write of a network changes.
    pub(super) changes: Vec<ScopeChange>,
    pub(super) lacks_registry: bool,
    /// The registry to which blocks of each network have to be returned.
    pub(super) old_registry: Option<&'static str>,
    /// The networks that share blocks through the registry `site`.
    pub(super) networks_of_site: &'static [&'static str],
    /// A pool that exists.
    pub(super) pool: Option<Pool>,
    /// An address outside of the blocks of this management cluster.
    pub(super) other_block: Option<&'static str>,
    /// An address in use, and its claim.
    pub(super) owner: Option<(&'static str, NamespacedName)>,
}

impl View for Cluster {
    fn is_complete(&self) -> bool {
        !self.incomplete
    }
    fn in_use(&self, _: &PoolKey, filter: &dyn Fn(Block) -> bool) -> Vec<Block> {
        let blocks = self
            .in_use
            .iter()
            .map(|text| Block::address(text.parse().unwrap()));
        blocks.filter(|block| filter(*block)).collect()
    }
    fn overlapping(&self, _: &PoolKey, _: &Scope, _: &UsableBlocks) -> Vec<PoolKey> {
        self.overlapping.clone()
    }
    fn is_in_other_block(&self, _: &PoolKey, block: Block) -> bool {
        self.other_block == Some(&block.to_string())
    }
    fn network_length(&self, network: &str, _: Family) -> Option<u8> {
        self.networks.get(network).copied()
    }
    /// The label `net` names a network that selects the pool.
    fn scope_change(&self, key: &PoolKey, pool: &Pool) -> ScopeChange {
        let unknown = pool
            .spec
            .network()
            .filter(|name| !self.networks.contains_key(name));
        let label = pool
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get("net"));
        let network = pool
            .spec
            .network()
            .or(label.map(String::as_str))
            .filter(|_| unknown.is_none());
        let after = Scope::of(key, network);
        let affected = if self.scope.as_ref() == Some(&after) {
            Vec::new()
        } else {
            self.in_use(key, &|_| true)
        };
        let refusal = unknown.map(|name| NetworkRefusal::NotFound(name.into()));
        ScopeChange {
            pool: key.clone(),
            before: self.scope.clone(),
            after,
            refusal,
            is_kept: false,
            affected,
        }
    }
    fn scope_changes(&self, _: &IPNetwork) -> Vec<ScopeChange> {
        self.changes.clone()
    }
    fn network(&self, name: &str) -> NetworkView {
        if name == "lab" {
            self.network.clone()
        } else {
            NetworkView::default()
        }
    }
    fn lacks_registry(&self, _: &str) -> bool {
        self.lacks_registry
    }
    fn networks_of_registry(&self, name: &str) -> Vec<String> {
        let networks = self.networks_of_site.iter().filter(|_| name == "site");
        networks.map(ToString::to_string).collect()
    }
    fn blocks_of_other_registry(&self, _: &str, registry: &str) -> Option<(String, usize)> {
        let old = self.old_registry.filter(|old| *old != registry)?;
        Some((old.to_owned(), 2))
    }
    fn shared_block_length(&self, _: &str, _: Family) -> Option<u8> {
        self.shared_length
    }
    fn pool(&self, key: &PoolKey) -> Option<(Scope, Option<Arc<UsableBlocks>>)> {
        let pool = self
            .pool
            .as_ref()
            .filter(|pool| PoolKey::of(pool) == *key)?;
        let usable = pool.spec.usable().ok().map(Arc::new);
        Some((Scope::Pool(key.clone()), usable))
    }
    fn reservations_without_pool(&self, _: &PoolKey, _: &Scope) -> usize {
        self.older
    }
    fn over_limit(&self, _: &PoolKey, _: &AccessRules) -> OverLimit {
        OverLimit::default()
    }
    fn owners(&self, slot: &Slot) -> Vec<NamespacedName> {
        let owner = self.owner.iter();
        let of_block = owner.filter(|(address, _)| slot.block.to_string() == *address);
        of_block.map(|(_, claim)| claim.clone()).collect()
    }
}
