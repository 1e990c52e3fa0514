//! IPSlices in the ledger: changes from the watch and from responses, and queries.

use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{IPSlice, Scope, block_of_name, slot_of_name};
use capi_ipam_contract::Uid;
use capi_ipam_ip::Block;
use capi_ipam_objects::maybe_invalid::{Invalid, MaybeInvalid};
use capi_ipam_objects::observed::{Known, ObjectVersion, Origin};
use kube::Resource;
use kube::core::ObjectMeta;

use crate::blocks::BlockInfo;
use crate::observe::Observe;
use crate::pools::start::PoolInput;
use crate::slices::SliceInfo;
use crate::slices::view::{SliceRetention, SliceView};
use crate::{Ledger, PoolKey};

impl Ledger {
    /// Records an IPSlice that a response has shown. Ignored if the ledger has newer information.
    pub fn insert_slice(&mut self, slice: &IPSlice) {
        self.change(|ledger| ledger.apply_slice(slice, Origin::Response));
    }

    /// Records what a response has shown under the name of the slice of a block: the name is taken,
    /// also if the object is not a valid slice or cannot be decoded.
    pub fn insert_found_slice(
        &mut self,
        scope: &Scope,
        block: Block,
        found: &MaybeInvalid<IPSlice>,
    ) {
        let valid = found.0.as_ref().ok();
        let valid = valid.filter(|slice| slice.place().is_ok());
        self.change(|ledger| {
            ledger.insert_slice_at(scope.clone(), block, found.meta(), valid, Origin::Response);
        });
    }

    /// Removes the IPSlice with this metadata: of the block in `place`, else that of its name.
    fn remove_slice_with(&mut self, metadata: &ObjectMeta, place: Option<(Scope, Block)>) {
        let uid = ObjectVersion::of(metadata).uid;
        self.change(|ledger| {
            let name = metadata.name.as_deref().unwrap_or_default();
            let place = match place {
                Some(place) => Some(place),
                None => ledger.slice_of_name(name),
            };
            if let Some((scope, block)) = place {
                ledger.remove_slice_at(&scope, block, uid);
            }
        });
    }

    /// Removes the IPSlice of a block if it has that uid.
    pub fn remove_slice_of(&mut self, scope: &Scope, block: Block, uid: &str) {
        self.change(|ledger| ledger.remove_slice_at(scope, block, Uid::of(uid)));
    }

    /// Removes the IPSlice of a block, which a live read has not found.
    pub fn forget_slice(&mut self, scope: &Scope, block: Block) {
        if let Some((known, _)) = self.known_slice(scope, block) {
            self.change(|ledger| ledger.remove_slice_at(scope, block, known.uid));
        }
    }

    /// Records that the request which assigns the slice of a proposal has ended, whatever the pool
    /// is now.
    pub fn end_slice_assignment(&mut self, pool: &PoolKey, block: Block) {
        self.change(|ledger| {
            if let Some(entry) = ledger.pools.get_mut(pool) {
                entry.end_slice_assignment(block);
                ledger.dirty_pools.push(pool.clone());
            }
        });
    }

    /// Stops allocating addresses of a block whose slice with this uid is about to be deleted.
    /// Returns false if an address of it is not free, or if there is no such slice. Otherwise none
    /// is allocated until [`Ledger::cancel_slice_return`] is called, or another slice of the block
    /// exists.
    pub fn begin_slice_return(&mut self, scope: &Scope, block: Block, uid: &str) -> bool {
        self.change(|ledger| {
            let is_used = ledger.has_address_in(scope, block);
            !is_used && ledger.set_returning(scope, block, uid, true)
        })
    }

    /// Allocates addresses of a block again whose slice was not deleted.
    pub fn cancel_slice_return(&mut self, scope: &Scope, block: Block, uid: &str) {
        self.change(|ledger| ledger.set_returning(scope, block, uid, false));
    }

    /// All slices.
    pub fn slices(&self) -> Vec<SliceView> {
        let mut views = Vec::new();
        for (pool, entry) in self.pools.iter() {
            let retention = SliceRetention::of(entry.info());
            let scope = Scope::Pool(pool.clone());
            for (block, slice) in entry.slice_objects() {
                // An object that is not valid has no owner, and is never returned.
                let Some(owner) = &slice.owner else { continue };
                views.push(SliceView {
                    pool: pool.clone(),
                    block: *block,
                    uid: slice.uid.to_string(),
                    version: self.slice_versions.precondition(slice.stamp).to_string(),
                    owner: Arc::clone(owner),
                    is_pinned: slice.is_pinned,
                    empty_since: slice.empty_since,
                    absence: slice.absence,
                    is_in_use: self.has_address_in(&scope, *block),
                    retention,
                });
            }
        }
        views
    }
}

impl Observe<IPSlice> for Ledger {
    fn init(&mut self) {
        self.slice_versions.begin_list();
        self.start.begin_list(PoolInput::Slices);
    }

    fn init_done(&mut self) {
        self.change(|ledger| {
            let unlisted = ledger.slice_versions.end_list();
            for (scope, block, known) in ledger.known_slices() {
                if known.stamp.is_unlisted(unlisted) {
                    ledger.remove_slice_at(&scope, block, known.uid);
                }
            }
        });
        self.complete_list(PoolInput::Slices);
    }

    fn restored(&mut self) {
        self.slice_versions.restored();
    }

    fn apply(&mut self, slice: &IPSlice) {
        self.change(|ledger| ledger.apply_slice(slice, Origin::Watch));
    }

    fn delete(&mut self, slice: &IPSlice) {
        self.remove_slice_with(&slice.metadata, slice.place().ok());
    }

    fn apply_invalid(&mut self, object: &Invalid) {
        self.change(|ledger| ledger.insert_invalid_slice(&object.metadata, Origin::Watch));
    }

    fn delete_invalid(&mut self, object: &Invalid) {
        self.remove_slice_with(&object.metadata, None);
    }
}

impl Ledger {
    /// Records an IPSlice. The name of one that is not valid takes its block.
    fn apply_slice(&mut self, slice: &IPSlice, origin: Origin) {
        let metadata = &slice.metadata;
        match slice.place() {
            Ok((scope, block)) => {
                self.insert_slice_at(scope, block, metadata, Some(slice), origin);
            }
            Err(_) => self.insert_invalid_slice(metadata, origin),
        }
    }

    /// Records an object that is not a valid slice, or that cannot be decoded: no other slice of
    /// its name can be created.
    fn insert_invalid_slice(&mut self, metadata: &ObjectMeta, origin: Origin) {
        let name = metadata.name.as_deref().unwrap_or_default();
        if let Some((scope, block)) = self.slice_of_name(name) {
            self.insert_slice_at(scope, block, metadata, None, origin);
        }
    }

    /// The pool or the network, and the block of the slice of this name. A hash in the name is
    /// compared with those of the known pools and networks.
    fn slice_of_name(&self, name: &str) -> Option<(Scope, Block)> {
        if !name.starts_with("h.") {
            let slot = slot_of_name(name)?;
            return Some((slot.scope, slot.block));
        }
        let pools = self.pools.iter().map(|(pool, _)| Scope::Pool(pool.clone()));
        let networks = self.networks.names().cloned().map(Scope::Network);
        for scope in pools.chain(networks) {
            if let Some(block) = block_of_name(&scope, name) {
                return Some((scope, block));
            }
        }
        None
    }

    /// What is known of the slice of a block, and whether this process is returning it.
    fn known_slice(&self, scope: &Scope, block: Block) -> Option<(Known, bool)> {
        match scope {
            Scope::Pool(pool) => {
                let known = self.pools.get(pool)?.slice_objects().get(&block)?;
                Some((known.known(), known.is_returning))
            }
            Scope::Network(network) => {
                let known = self.networks.blocks(network)?.slices().get(&block)?;
                Some((known.known(), known.slice.is_returning))
            }
        }
    }

    /// All slices of pools and networks.
    fn known_slices(&self) -> Vec<(Scope, Block, Known)> {
        let mut found = Vec::new();
        for (pool, entry) in self.pools.iter() {
            for (block, slice) in entry.slice_objects() {
                found.push((Scope::Pool(pool.clone()), *block, slice.known()));
            }
        }
        for (network, blocks) in self.networks.with_blocks() {
            for (block, slice) in blocks.slices() {
                found.push((Scope::Network(network.clone()), *block, slice.known()));
            }
        }
        found
    }

    /// Records the object under the name of the slice of a block, unless a later state is known, of
    /// the same slice or of a later one of the block. `valid` is the object if it is a valid slice.
    fn insert_slice_at(
        &mut self,
        scope: Scope,
        block: Block,
        metadata: &ObjectMeta,
        valid: Option<&IPSlice>,
        origin: Origin,
    ) {
        let seen = ObjectVersion::of(metadata);
        let known = self.known_slice(&scope, block);
        let last = known.map(|(known, _)| known);
        let Some(stamp) = self.slice_versions.see(origin, last, seen, Instant::now()) else {
            return;
        };
        let mut is_returning = false;
        if let Some((known, is_being_returned)) = known
            && known.uid == seen.uid
        {
            if known.stamp == stamp && seen.version.is_some() {
                return;
            }
            // This process decides whether it returns the slice: no object says so.
            is_returning = is_being_returned;
        }
        match scope {
            Scope::Pool(pool) => {
                let info = SliceInfo {
                    stamp,
                    is_returning,
                    ..SliceInfo::of(metadata, valid)
                };
                let pool = self.pools.shared_key(pool);
                self.set_pool_slice(&pool, block, Some(info));
            }
            Scope::Network(network) => {
                let info = BlockInfo::of(metadata, valid, stamp, is_returning);
                self.set_block(&network, block, Some(info));
            }
        }
    }

    /// Removes the slice of a block with this uid.
    fn remove_slice_at(&mut self, scope: &Scope, block: Block, uid: Uid) {
        let known = self.known_slice(scope, block);
        let known = known.map(|(known, _)| known.uid);
        if !self.slice_versions.delete(known, uid, Instant::now()) {
            return;
        }
        match scope {
            Scope::Pool(pool) => self.set_pool_slice(pool, block, None),
            Scope::Network(network) => self.set_block(network, block, None),
        }
    }

    /// Replaces the slice of a block of a pool; `None` removes it.
    fn set_pool_slice(&mut self, pool: &PoolKey, block: Block, slice: Option<SliceInfo>) {
        let entry = self.pools.entry(pool);
        match slice {
            Some(slice) => entry.insert_slice(block, slice),
            None => entry.remove_slice(block),
        }
        let requesting = entry.wake_requests();
        self.effects.claims.extend(requesting);
        self.dirty_pools.push(pool.clone());
    }

    /// Records whether this process is returning the slice with this uid. Returns false if it is no
    /// longer known.
    fn set_returning(
        &mut self,
        scope: &Scope,
        block: Block,
        uid: &str,
        is_returning: bool,
    ) -> bool {
        match self.known_slice(scope, block) {
            Some((known, _)) if known.uid == Uid::of(uid) => {}
            _ => return false,
        }
        match scope {
            Scope::Pool(pool) => {
                if let Some(entry) = self.pools.get_mut(pool)
                    && let Some(known) = entry.slice_objects().get(&block)
                {
                    let info = SliceInfo {
                        is_returning,
                        ..known.clone()
                    };
                    entry.insert_slice(block, info);
                    self.dirty_pools.push(pool.clone());
                }
            }
            Scope::Network(network) => {
                let blocks = self.networks.blocks(network);
                let known = blocks.and_then(|blocks| blocks.slices().get(&block));
                if let Some(mut info) = known.cloned() {
                    info.slice.is_returning = is_returning;
                    self.set_block(network, block, Some(info));
                }
            }
        }
        true
    }

    /// Whether an address of a block of a pool or a network is not free.
    pub(super) fn has_address_in(&self, scope: &Scope, block: Block) -> bool {
        match scope {
            Scope::Pool(pool) => {
                let Some(entry) = self.pools.get(pool) else {
                    return false;
                };
                let scope = self.addresses.scope(&self.pools.scope(pool));
                entry.has_address_in(block, scope.map(|scope| &scope.usage))
            }
            Scope::Network(_) => self
                .addresses
                .scope(scope)
                .is_some_and(|entry| entry.usage.has_address_in(block)),
        }
    }
}
