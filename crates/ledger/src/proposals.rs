//! Proposals of addresses, and the addresses held while their reservation is being created.

use capi_ipam_api::Slot;
use capi_ipam_contract::Uid;
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::outcome::Outcome;
use super::{ClaimAttributes, Ledger, PoolKey};

impl Ledger {
    /// Proposes an address that is not due to an earlier claim, and holds it for the claim: the one
    /// that it requests, else the one that the last claim of its name had, if the pool is sticky,
    /// else the next free one by the order of the pool. It can have the
    /// [reservation](Ledger::released_reservation) of the claim that released it. The address is
    /// held until [`Ledger::drop_candidate`] is called or a reservation of it is observed.
    pub fn propose(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        attributes: impl Into<ClaimAttributes>,
    ) -> Outcome<Slot> {
        let attributes = attributes.into();
        self.change(|ledger| ledger.choose_and_hold(pool, claim, &attributes))
    }

    /// Holds an address for a claim whose reservation is being created, until
    /// [`Ledger::drop_candidate`] is called or a reservation of it is observed. Returns false if
    /// the address is already held.
    pub fn hold_candidate(&mut self, pool: &PoolKey, slot: &Slot) -> bool {
        self.change(|ledger| ledger.hold(slot, pool, None))
    }

    /// Stops holding an address: it is free again unless a reservation of it was observed.
    pub fn drop_candidate(&mut self, slot: &Slot) {
        self.change(|ledger| ledger.release_candidate(slot));
    }

    /// Records an attempt to reserve an address for the claim with that uid whose outcome is
    /// unknown: the reservation may exist.
    pub fn remember_attempt(&mut self, claim: Uid, pool: &PoolKey, slot: &Slot) {
        self.addresses.remember_attempt(claim, pool, slot);
    }

    /// The slot whose reservation for the claim was requested from this pool with an unknown
    /// outcome. `None` if the pool has joined or left a network since: in its present scope the
    /// address may be reserved for another claim.
    pub fn attempt(&self, claim: Uid, pool: &PoolKey) -> Option<Slot> {
        let (from, slot) = self.addresses.attempt(claim)?;
        (from == pool && self.pools.scope(pool) == slot.scope).then(|| slot.clone())
    }

    /// Forgets the attempt of the claim: its outcome is known.
    pub fn forget_attempt(&mut self, claim: Uid) {
        self.addresses.forget_attempt(claim);
    }
}
