//! What admission knows of the cluster beside the object itself.

use std::sync::Arc;

use capi_ipam_ip::{Block, Family, Usable};

use crate::api::{PoolKey, Scope, Slot};

/// What is known of the cluster. It may lag behind: admission gives early and clear answers, it does not make anything
/// safe.
pub trait View: Send + Sync + 'static {
    /// Whether everything has been listed. Until then nothing is decided that depends on what is in use.
    fn is_complete(&self) -> bool;

    /// The addresses of a pool that are in use and that `of_interest` says yes to, in ascending order.
    fn in_use(&self, pool: &PoolKey, of_interest: &dyn Fn(Block) -> bool) -> Vec<Block>;

    /// Other pools that could give out the same addresses as a pool of that scope, with nothing to keep them apart.
    fn overlapping(&self, pool: &PoolKey, scope: &Scope, usable: &Usable) -> Vec<PoolKey>;

    /// The length of the blocks that a network gives out, once it has been agreed on.
    fn network_length(&self, network: &str, family: Family) -> Option<u8>;

    /// The pools that name a network.
    fn members(&self, network: &str) -> Vec<PoolKey>;

    /// Where the addresses of a pool are unique, and what it gives out if it is understood. `None` when it is not there.
    fn pool(&self, pool: &PoolKey) -> Option<(Scope, Option<Arc<Usable>>)>;

    /// Namespace and name of the IPAddress objects with that address.
    fn holders(&self, slot: &Slot) -> Vec<(String, String)>;
}
