//! The blocks that networks share with other management clusters: changes of the ledger.

use std::sync::Arc;

use capi_ipam_api::Scope;
use capi_ipam_ip::{Block, SpanSet};
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::Ledger;
use super::blocks::{Affected, BlockInfo, ManagementCluster};

impl Ledger {
    /// Records the identity of this management cluster in a registry. Before it is known, no block
    /// of the networks of this registry is usable.
    pub fn set_management_cluster(&mut self, registry: &str, id: &str) {
        self.change_cluster(registry, |cluster| set(&mut cluster.id, Some(id.into())));
    }

    /// Records whether another cluster writes with the identity of this one in a registry: as long
    /// as it does, no block of the networks of this registry is usable.
    pub fn suspend_blocks_of(&mut self, registry: &str, is_suspended: bool) {
        self.change_cluster(registry, |cluster| {
            set(&mut cluster.is_suspended, is_suspended)
        });
    }

    /// The identity of this management cluster in a registry, if it was recorded.
    pub fn management_cluster(&self, registry: &str) -> Option<Arc<str>> {
        self.networks.clusters.id_in(registry).cloned()
    }

    /// Records the blocks of which a registry shows that only this management cluster uses them, by
    /// network; `None` if they are not known, as before the first list of the records. No address
    /// of any other block of the registry is allocated. As long as they are not known, only the
    /// slices decide: another management cluster has not taken their blocks since, see
    /// [`capi_ipam_protocol::block`].
    pub fn set_recorded_blocks(&mut self, registry: &str, blocks: Option<Vec<(Arc<str>, Block)>>) {
        let recorded = blocks.map(|blocks| blocks.into_iter().collect());
        self.change_cluster(registry, |cluster| set(&mut cluster.recorded, recorded));
    }

    /// As [`Self::set_recorded_blocks`], for one block. Without effect on a registry whose blocks
    /// are not known.
    pub fn set_block_recorded(
        &mut self,
        registry: &str,
        network: &str,
        block: Block,
        is_recorded: bool,
    ) {
        let place = (Arc::from(network), block);
        self.change_cluster(registry, |cluster| match &mut cluster.recorded {
            Some(recorded) if is_recorded => recorded.insert(place),
            Some(recorded) => recorded.remove(&place),
            None => false,
        });
    }

    /// Changes what is known of this management cluster in a registry. `change` returns whether it
    /// is new.
    fn change_cluster(
        &mut self,
        registry: &str,
        change: impl FnOnce(&mut ManagementCluster) -> bool,
    ) {
        self.change(|ledger| {
            for (network, affected) in ledger.networks.change_cluster(registry, change) {
                ledger.blocks_changed(network, affected);
            }
        });
    }

    /// Replaces the slice of a block; `None` removes it.
    pub(super) fn set_block(&mut self, network: &Arc<str>, block: Block, slice: Option<BlockInfo>) {
        let affected = self.networks.set_block(network, block, slice);
        self.blocks_changed(network.clone(), affected);
    }

    /// Records that the shared blocks of a network have changed, and which addresses this affects.
    fn blocks_changed(&mut self, network: Arc<str>, affected: Affected) {
        self.effects.networks.push(network.clone());
        match affected {
            Affected::Nothing => {}
            Affected::All => {
                self.wake_unbound(&network, None);
                self.members_are_stale(network);
            }
            Affected::Block(block) => {
                self.wake_unbound(&network, Some(block));
                let addresses = SpanSet::from(block.span());
                self.exclusions_changed(&network, block.family(), &addresses, None);
            }
        }
    }

    /// Wakes the claims that have reserved an address of a block, or of any block, and have no
    /// IPAddress. They wait if the block was being returned when they read its slice. No address
    /// becomes free when the block is kept, so nothing else wakes them.
    fn wake_unbound(&mut self, network: &Arc<str>, block: Option<Block>) {
        let mut claims: Vec<NamespacedName> = Vec::new();
        for (address, usage) in self.addresses.usage_in(&Scope::Network(network.clone())) {
            let is_in_block = block.is_none_or(|block| block.overlaps(address));
            let Some(reservation) = &usage.reservation else {
                continue;
            };
            if is_in_block && reservation.is_held() && usage.owners.is_empty() {
                claims.extend(reservation.claim.clone());
            }
        }
        self.wake(claims);
    }
}

/// Replaces a value. Returns whether it is another one.
fn set<T: PartialEq>(known: &mut T, value: T) -> bool {
    let is_new = *known != value;
    *known = value;
    is_new
}
