//! The state of the cluster that admission reads.

use std::sync::Arc;

use capi_ipam_api::{
    AccessRules, IPNetwork, NetworkView, OverLimit, Pool, PoolKey, Scope, ScopeChange, Slot,
};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, Family, UsableBlocks};

/// The state of the cluster that admission reads. It can lag behind: admission reports mistakes
/// early, and nothing depends on it for safety.
pub trait View: Send + Sync + 'static {
    /// Whether all objects have been listed. Until then, requests that depend on the addresses in
    /// use are denied.
    fn is_complete(&self) -> bool;

    /// The addresses of a pool that are in use and for which `filter` returns true, in ascending
    /// order.
    fn in_use(&self, pool: &PoolKey, filter: &dyn Fn(Block) -> bool) -> Vec<Block>;

    /// The pools of other scopes that can allocate the same addresses as this pool.
    fn overlapping(&self, pool: &PoolKey, scope: &Scope, usable: &UsableBlocks) -> Vec<PoolKey>;

    /// Whether a pool could allocate an address if this management cluster had its block of the
    /// network.
    fn is_in_other_block(&self, pool: &PoolKey, block: Block) -> bool;

    /// The length of the blocks that the pools of a network allocate, once it is declared.
    fn network_length(&self, network: &str, family: Family) -> Option<u8>;

    /// The scope of a pool as it is written, and as it is now.
    fn scope_change(&self, key: &PoolKey, pool: &Pool) -> ScopeChange;

    /// The existing pools whose scope a network changes as it is written, or that it does not
    /// accept any more.
    fn scope_changes(&self, network: &IPNetwork) -> Vec<ScopeChange>;

    /// The state of a network.
    fn network(&self, name: &str) -> NetworkView;

    /// Whether there is no registry of this name. False before all are listed.
    fn lacks_registry(&self, name: &str) -> bool;

    /// The networks that share blocks through a registry, and those with blocks of it that are not
    /// returned yet.
    fn networks_of_registry(&self, name: &str) -> Vec<String>;

    /// A registry other than this one to which blocks of a network have to be returned, and their
    /// number.
    fn blocks_of_other_registry(&self, network: &str, registry: &str) -> Option<(String, usize)>;

    /// The length of the blocks that a network shares with other management clusters; `None` if it
    /// shares none, or if the length is not known yet.
    fn shared_block_length(&self, network: &str, family: Family) -> Option<u8>;

    /// The scope of a pool, and its blocks if its spec is valid. `None` if the pool does not exist.
    fn pool(&self, pool: &PoolKey) -> Option<(Scope, Option<Arc<UsableBlocks>>)>;

    /// The number of reservations that users created in a pool that does not exist, in this scope.
    fn reservations_without_pool(&self, pool: &PoolKey, scope: &Scope) -> usize;

    /// The addresses of a pool beyond what these rules allow.
    fn over_limit(&self, pool: &PoolKey, rules: &AccessRules) -> OverLimit;

    /// The IPAddress objects with that address.
    fn owners(&self, slot: &Slot) -> Vec<NamespacedName>;
}
