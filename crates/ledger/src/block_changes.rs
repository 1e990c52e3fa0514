//! The blocks that networks share with other management clusters: changes of the ledger.

use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{IPSlice, Scope};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, Family, SpanSet};
use capi_ipam_objects::maybe_invalid::MaybeInvalid;
use capi_ipam_objects::observed::{ObjectVersion, Origin, Unlisted};
use capi_ipam_protocol::block::Compared;
use kube::Resource;

use super::Ledger;
use super::blocks::{Affected, BlockInfo};
use super::usage::UsageMap;

impl Ledger {
    /// Records the identity of this management cluster in a registry. Before it is known, no block
    /// of the networks of this registry is usable.
    pub fn set_management_cluster(&mut self, registry: &str, id: &str) {
        self.change(|ledger| {
            for network in ledger.networks.set_management_cluster(registry, id) {
                ledger.blocks_changed(network, Affected::All);
            }
        });
    }

    /// Records whether another cluster writes with the identity of this one in a registry: as long as it
    /// does, no block of the networks of this registry is usable.
    pub fn suspend_blocks_of(&mut self, registry: &str, is_suspended: bool) {
        self.change(|ledger| {
            for network in ledger.networks.suspend_blocks(registry, is_suspended) {
                ledger.blocks_changed(network, Affected::All);
            }
        });
    }

    /// The identity of this management cluster in a registry, if it was recorded.
    pub fn management_cluster(&self, registry: &str) -> Option<Arc<str>> {
        self.networks.management_cluster(registry)
    }

    /// Forgets the identities of this management cluster: etcd was restored, and the IPSlices may be
    /// those of an earlier time. No block is usable until they are recorded again.
    pub(super) fn forget_management_clusters(&mut self) {
        self.change(|ledger| {
            for network in ledger.networks.forget_management_clusters() {
                ledger.blocks_changed(network, Affected::All);
            }
            if ledger.compares_slices {
                ledger.networks.forget_comparisons();
            }
        });
    }

    /// From now on, a block whose slice this process sees first when it is confirmed already is not
    /// usable before [`Ledger::set_block_compared`] is called for it.
    pub fn require_comparisons(&mut self) {
        self.compares_slices = true;
    }

    /// Records that the slices of a registry need not be compared with their records: it cannot be
    /// reached, and their blocks are used all the same.
    pub fn trust_slices_of(&mut self, registry: &str) {
        self.set_compared_of(registry, Compared::DONE);
    }

    /// Forgets that the slices of a registry were compared with their records: another IPRegistry has
    /// its name.
    pub fn forget_comparisons_of(&mut self, registry: &str) {
        if self.compares_slices {
            self.set_compared_of(registry, Compared::default());
        }
    }

    /// Records that a registry shows something else than the record of this management cluster for a
    /// block, such as that of another one: no address of the slices that overlap with the block is
    /// allocated before they are compared again.
    pub fn forget_comparisons_in(&mut self, registry: &str, network: &str, block: Block) {
        for (block, uid) in self.compared_slices_in(registry, network, block) {
            self.set_compared(network, block, &uid, Compared::default());
        }
    }

    fn set_compared_of(&mut self, registry: &str, compared: Compared) {
        let mut found = Vec::new();
        for network in self.networks.of_registry(registry) {
            let Some(blocks) = self.networks.blocks(network) else {
                continue;
            };
            for (block, slice) in blocks.slices() {
                let named = slice.registry.as_deref();
                if slice.compared != compared && self.networks.may_be_of_registry(named, registry) {
                    found.push((Arc::clone(network), *block, slice.uid.clone()));
                }
            }
        }
        for (network, block, uid) in found {
            self.set_compared(&network, block, &uid, compared);
        }
    }

    /// Records that the registry has the record of a block for the slice with this uid.
    pub fn set_block_compared(&mut self, network: &str, block: Block, uid: &str) {
        self.set_compared(network, block, uid, Compared::DONE);
    }

    fn set_compared(&mut self, network: &str, block: Block, uid: &str, compared: Compared) {
        self.change(|ledger| {
            let Some(known) = ledger.known_block(network, block) else {
                return;
            };
            if *known.uid == *uid && known.compared != compared {
                let info = BlockInfo {
                    compared,
                    ..known.clone()
                };
                ledger.set_block(&network.into(), block, Some(info));
            }
        });
    }

    /// Records what a response has shown under the name of the slice of a block of a network: the
    /// block is not usable if the object is not a valid slice or cannot be decoded.
    pub fn insert_found_block(
        &mut self,
        network: &str,
        block: Block,
        found: &MaybeInvalid<IPSlice>,
    ) {
        let info = match &found.0 {
            Ok(slice) if slice.place().is_ok() => BlockInfo::of(slice),
            _ => BlockInfo::invalid(found.meta()),
        };
        let seen = ObjectVersion::of(found.meta());
        self.change(|ledger| {
            ledger.insert_block_at(&network.into(), block, info, seen, Origin::Response);
        });
    }

    /// Removes the IPSlice of a block of a network if it has that uid.
    pub fn remove_block_of(&mut self, network: &str, block: Block, uid: &str) {
        self.change(|ledger| ledger.remove_block_at(&network.into(), block, Uid::of(uid)));
    }

    /// Removes the IPSlice of a block of a network, which a live read has not found.
    pub fn forget_block(&mut self, network: &str, block: Block) {
        if let Some(known) = self.known_block(network, block) {
            let uid = known.known().uid;
            self.change(|ledger| ledger.remove_block_at(&network.into(), block, uid));
        }
    }

    /// Stops allocating addresses of a block whose slice with this uid is about to be deleted.
    /// Returns false if an address of it is not free, or if there is no such slice. Otherwise none
    /// is allocated until [`Ledger::cancel_block_return`] is called, or another slice of the block
    /// exists.
    pub fn begin_block_return(&mut self, network: &str, block: Block, uid: &str) -> bool {
        self.change(|ledger| {
            let Some(blocks) = ledger.networks.blocks(network) else {
                return false;
            };
            !blocks.usage.is_used(block) && ledger.set_block_returning(network, block, uid, true)
        })
    }

    /// Allocates addresses of a block again whose slice was not deleted.
    pub fn cancel_block_return(&mut self, network: &str, block: Block, uid: &str) {
        self.change(|ledger| {
            ledger.set_block_returning(network, block, uid, false);
        });
    }

    /// Records whether this process is returning a block. Returns false if the slice is not known.
    fn set_block_returning(
        &mut self,
        network: &str,
        block: Block,
        uid: &str,
        is_returning: bool,
    ) -> bool {
        let Some(known) = self.known_block(network, block) else {
            return false;
        };
        if *known.uid != *uid {
            return false;
        }
        let info = BlockInfo {
            is_returning,
            ..known.clone()
        };
        self.set_block(&network.into(), block, Some(info));
        true
    }

    /// What is known of the slice of a block of a network.
    fn known_block(&self, network: &str, block: Block) -> Option<&BlockInfo> {
        self.networks.blocks(network)?.slices().get(&block)
    }

    /// Records the slice of a block, unless a later state is known, of the same slice or of a later
    /// one of the block.
    pub(super) fn insert_block_at(
        &mut self,
        network: &Arc<str>,
        block: Block,
        info: BlockInfo,
        seen: ObjectVersion,
        origin: Origin,
    ) {
        let known = self.known_block(network, block).map(BlockInfo::known);
        let Some(stamp) = self.slice_versions.see(origin, known, seen, Instant::now()) else {
            return;
        };
        let known = self.known_block(network, block);
        // This process decides whether it returns the block: no object says so.
        let is_returning = match known {
            Some(known) => known.is_returning && known.uid == info.uid,
            None => false,
        };
        let compared = if self.compares_slices {
            info.compared_after(known)
        } else {
            Compared::DONE
        };
        let info = BlockInfo {
            stamp,
            is_returning,
            compared,
            ..info
        };
        if known != Some(&info) {
            self.set_block(network, block, Some(info));
        }
    }

    /// Removes the slice of a block with this uid.
    pub(super) fn remove_block_at(&mut self, network: &Arc<str>, block: Block, uid: Uid) {
        let known = self.known_block(network, block);
        let known = known.map(|known| known.known().uid);
        if self.slice_versions.delete(known, uid, Instant::now()) {
            self.set_block(network, block, None);
        }
    }

    /// The slices of blocks that a list has not shown.
    pub(super) fn unlisted_blocks(&self, unlisted: Unlisted) -> Vec<(Scope, Block, Uid)> {
        let mut missing = Vec::new();
        for (network, blocks) in self.networks.with_blocks() {
            for (block, slice) in blocks.slices() {
                if slice.stamp.is_unlisted(unlisted) {
                    let scope = Scope::Network(network.clone());
                    missing.push((scope, *block, slice.known().uid));
                }
            }
        }
        missing
    }

    fn set_block(&mut self, network: &Arc<str>, block: Block, slice: Option<BlockInfo>) {
        let affected = self.networks.set_block(network, block, slice);
        self.count_block_use(network);
        self.blocks_changed(network.clone(), affected);
    }

    /// Counts the addresses in the shared blocks of a network if they are not counted.
    pub(super) fn count_block_use(&mut self, network: &Arc<str>) {
        let Some(counts) = self.networks.block_use(network) else {
            return;
        };
        if !counts.is_stale() {
            return;
        }
        match self.scopes.get(&Scope::Network(network.clone())) {
            Some(scope) => counts.recount(&scope.usage),
            None => counts.recount(&UsageMap::default()),
        }
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
                let others = SpanSet::default();
                match block.family() {
                    Family::V4 => self.exclusions_changed(network, &addresses, &others, None),
                    Family::V6 => self.exclusions_changed(network, &others, &addresses, None),
                }
            }
        }
    }

    /// Wakes the claims that have reserved an address of a block, or of any block, and have no
    /// IPAddress. They wait if the block was being returned when they read its slice. No address
    /// becomes free when the block is kept, so nothing else wakes them.
    fn wake_unbound(&mut self, network: &Arc<str>, block: Option<Block>) {
        let mut claims = Vec::new();
        for (address, usage) in self.usage_in(&Scope::Network(network.clone())) {
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
