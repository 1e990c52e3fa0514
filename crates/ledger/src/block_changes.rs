//! The blocks that networks share with other management clusters: changes of the ledger.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{IPSlice, Scope};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, Family, SpanSet};
use capi_ipam_objects::maybe_invalid::MaybeInvalid;
use capi_ipam_objects::observed::{ObjectVersion, Origin, Unlisted};
use kube::Resource;

use super::Ledger;
use super::blocks::{Affected, BlockInfo, RecordedBlocks};
use super::usage::UsageMap;

impl Ledger {
    /// Records the identity of this management cluster in a registry. Before it is known, no block
    /// of the networks of this registry is usable.
    pub fn set_management_cluster(&mut self, registry: &str, id: &str) {
        self.change(|ledger| {
            for (network, affected) in ledger.networks.set_management_cluster(registry, id) {
                ledger.blocks_changed(network, affected);
            }
        });
    }

    /// Records whether another cluster writes with the identity of this one in a registry: as long as it
    /// does, no block of the networks of this registry is usable.
    pub fn suspend_blocks_of(&mut self, registry: &str, is_suspended: bool) {
        self.change(|ledger| {
            for (network, affected) in ledger.networks.suspend_blocks(registry, is_suspended) {
                ledger.blocks_changed(network, affected);
            }
        });
    }

    /// The identity of this management cluster in a registry, if it was recorded.
    pub fn management_cluster(&self, registry: &str) -> Option<Arc<str>> {
        self.networks.management_cluster(registry)
    }

    /// Records the blocks of which a registry shows that only this management cluster uses them, by network;
    /// `None` if they are not known, as before the first list of the records. No address of any other block
    /// of the registry is allocated. As long as they are not known, only the slices decide: another
    /// management cluster has not taken their blocks since, see [`capi_ipam_protocol::block`].
    pub fn set_recorded_blocks(&mut self, registry: &str, blocks: Option<Vec<(Arc<str>, Block)>>) {
        let blocks = blocks.map(|blocks| {
            let mut by_network = RecordedBlocks::default();
            for (network, block) in blocks {
                let of_network: &mut Arc<BTreeSet<Block>> = by_network.entry(network).or_default();
                Arc::make_mut(of_network).insert(block);
            }
            by_network
        });
        self.change(|ledger| {
            for (network, affected) in ledger.networks.set_recorded_blocks(registry, blocks) {
                ledger.blocks_changed(network, affected);
            }
        });
    }

    /// As [`Self::set_recorded_blocks`], for one block. Without effect on a registry whose blocks are not
    /// known.
    pub fn set_block_recorded(
        &mut self,
        registry: &str,
        network: &str,
        block: Block,
        is_recorded: bool,
    ) {
        let network = Arc::from(network);
        self.change(|ledger| {
            let networks = &mut ledger.networks;
            let affected = networks.set_block_recorded(registry, &network, block, is_recorded);
            if affected != Affected::Nothing {
                ledger.blocks_changed(network, affected);
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
        let info = BlockInfo {
            stamp,
            is_returning,
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
