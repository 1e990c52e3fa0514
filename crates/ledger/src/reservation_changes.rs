//! Changes of reservations, from the watch and from responses to our own requests.

use capi_ipam_api::{IPReservation, PoolKey, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_objects::clock;
use capi_ipam_objects::maybe_invalid::{Invalid, MaybeInvalid};
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::{ObjectVersion, Origin, Stamp};
use kube::core::ObjectMeta;

use super::Ledger;
use super::addresses::{AddressOwner, ReservationInfo};

impl Ledger {
    /// Records what a response has shown under the name of the reservation of an address: the name
    /// is taken, also if the object is not a valid reservation or cannot be decoded.
    pub fn insert_found(&mut self, slot: &Slot, found: &MaybeInvalid<IPReservation>) {
        let claim = self.change(|ledger| {
            let claim = match &found.0 {
                Ok(reservation) => ledger.insert(reservation, Origin::Response),
                Err(invalid) => {
                    ledger.ignore_undecodable(invalid, Origin::Response);
                    None
                }
            };
            if ledger.addresses.take_name(slot) {
                ledger.set_name_taken(slot, true);
            }
            claim
        });
        self.wake(claim);
    }

    /// Records what a list has shown.
    pub fn insert_listed(&mut self, found: &MaybeInvalid<IPReservation>) {
        match &found.0 {
            Ok(reservation) => self.insert_reservation(reservation),
            Err(invalid) => {
                self.change(|ledger| ledger.ignore_undecodable(invalid, Origin::Response));
            }
        }
    }

    /// Records a reservation that a response has shown. Ignored if the ledger has newer
    /// information: the reservation was deleted, or a newer version of it was observed.
    pub fn insert_reservation(&mut self, reservation: &IPReservation) {
        self.record_reservation(reservation, Origin::Response);
    }

    pub(super) fn record_reservation(&mut self, reservation: &IPReservation, origin: Origin) {
        let claim = self.change(|ledger| ledger.insert(reservation, origin));
        self.wake(claim);
    }

    /// Removes a reservation that was deleted, unless another one of its name was created since.
    /// Claims that have an IPAddress with its address are reconciled again: they may be waiting for
    /// the deletion of the reservation. A bound claim needs another reservation.
    pub fn remove_reservation(&mut self, reservation: &IPReservation) {
        let removed = self.change(|ledger| ledger.remove(reservation));
        if let Some(slot) = removed {
            self.wake(self.addresses.owners(&slot));
            if self.unreserved_at(&slot).is_some() {
                self.effects.unreserved.push(slot);
            }
        }
    }

    /// Removes the reservation of an address if it has that uid.
    pub fn remove_reservation_of(&mut self, slot: &Slot, uid: &str) {
        self.change(|ledger| ledger.remove_at(slot, Some(Uid::of(uid))));
        self.wake(self.addresses.owners(slot));
    }

    /// Records a reservation, unless a later state is known. Returns the claim that has to be
    /// reconciled because of it.
    pub(super) fn insert(
        &mut self,
        reservation: &IPReservation,
        origin: Origin,
    ) -> Option<NamespacedName> {
        let name = reservation.metadata.name.as_deref().unwrap_or_default();
        let (slot, pool) = match reservation.slot() {
            Ok(placed) => placed,
            Err(problem) => {
                let lacks_label = reservation.needs_move_label();
                self.ignore(
                    &reservation.metadata,
                    problem.to_string(),
                    lacks_label,
                    origin,
                );
                return None;
            }
        };
        let seen = ObjectVersion::of(&reservation.metadata);
        let stamp = self.addresses.see(name, Some(&slot), seen, origin)?;
        self.forget_ignored(name, None);
        let slot = Slot {
            scope: self.addresses.shared_scope(slot.scope),
            block: slot.block,
        };
        let cluster = match &reservation.spec.claim_ref {
            Some(claim) => self.addresses.share_cluster(claim.cluster.as_deref()),
            None => None,
        };
        let is_observed = origin == Origin::Watch;
        let info = ReservationInfo::of(
            reservation,
            self.pools.shared_key(pool),
            cluster,
            stamp,
            is_observed,
        );
        self.insert_at(&slot, info)
    }

    /// Keeps what is known of a reservation that exists in a state which is not valid. Its version
    /// stays that of the known state.
    fn keep_known(&mut self, slot: Option<&Slot>, uid: Uid, stamp: Stamp) {
        let Some(slot) = slot else { return };
        let is_known = match self.addresses.reservation(slot) {
            Some(known) => known.uid.uid() == uid,
            None => false,
        };
        if is_known {
            self.update(slot, |usage| {
                if let Some(known) = &mut usage.reservation {
                    known.stamp = known.stamp.seen_again(stamp);
                }
            });
        }
    }

    /// Records an object that cannot be decoded. It exists, so it reserves the address of its name,
    /// and what was known of it before stays.
    pub(super) fn ignore_undecodable(&mut self, object: &Invalid, origin: Origin) {
        let error = &object.error;
        let problem = format!("it cannot be decoded ({error}); correct or delete it");
        self.ignore(&object.metadata, problem, false, origin);
    }

    /// Records an object that is not a valid reservation.
    fn ignore(
        &mut self,
        metadata: &ObjectMeta,
        problem: String,
        lacks_label: bool,
        origin: Origin,
    ) {
        let Some(name) = metadata.name.as_deref() else {
            return;
        };
        let slot = self.slot_of_name(name);
        let seen = ObjectVersion::of(metadata);
        let Some(stamp) = self.addresses.see(name, slot.as_ref(), seen, origin) else {
            return;
        };
        self.keep_known(slot.as_ref(), seen.uid, stamp);
        let taken = self
            .addresses
            .ignore(metadata, slot, problem, stamp, lacks_label);
        if let Some(slot) = taken {
            self.set_name_taken(&slot, true);
        }
    }

    /// Forgets an object that is not a valid reservation: of this uid, if one is passed. Returns
    /// its address.
    fn forget_ignored(&mut self, name: &str, uid: Option<&str>) -> Option<Slot> {
        let slot = self.addresses.forget_ignored(name, uid)?;
        self.set_name_taken(&slot, false);
        Some(slot)
    }

    fn set_name_taken(&mut self, slot: &Slot, is_taken: bool) {
        self.update(slot, |usage| usage.is_name_taken = is_taken);
    }

    /// The address that an object of this name reserves.
    fn slot_of_name(&self, name: &str) -> Option<Slot> {
        // A pool without addresses in use has no scope with some.
        let pools = self.pools.iter().map(|(pool, entry)| entry.scope(pool));
        self.addresses.slot_of_name(name, pools)
    }

    /// Removes an object that is not a valid reservation. Returns its address.
    pub(super) fn remove_invalid(&mut self, name: &str, uid: &str) -> Option<Slot> {
        self.addresses.see_invalid_deleted(uid);
        let slot = match self.forget_ignored(name, Some(uid)) {
            Some(slot) => slot,
            None => self.slot_of_name(name)?,
        };
        self.remove_at(&slot, Some(Uid::of(uid)));
        Some(slot)
    }

    /// Records the reservation of an address. Returns its claim if it has to be reconciled.
    fn insert_at(
        &mut self,
        slot: &Slot,
        mut reservation: ReservationInfo,
    ) -> Option<NamespacedName> {
        reservation.is_remembered = self
            .pools
            .keeps_for_next(&reservation, clock::now().0.as_second());
        let to_wake = if self.wakes_its_claim(slot, &reservation) {
            reservation.claim.clone()
        } else {
            None
        };
        if let Some(claim) = &to_wake
            && let Some(entry) = self.pools.get_mut(&reservation.pool)
        {
            entry.wait_queue.stop_waiting_for_pool(claim);
        }
        self.addresses.index_holder(slot, Some(&reservation));
        let claim = reservation.claim.clone();
        let claim_uid = reservation.claim_uid;
        let pool = reservation.pool.clone();
        self.update(slot, |usage| {
            usage.drop_candidate();
            usage.set_reservation(reservation);
        });
        self.reservation_inserted(&pool, &slot.scope);
        if let Some(claim) = claim
            && let Some(uid) = claim_uid
        {
            self.leave_when_served(&pool, &claim, uid);
        }
        to_wake
    }

    /// Whether the claim of a reservation, which is to be recorded, has to be reconciled.
    fn wakes_its_claim(&self, slot: &Slot, reservation: &ReservationInfo) -> bool {
        let Some(claim) = &reservation.claim else {
            return false;
        };
        let mut waits = false;
        let mut is_sticky = false;
        if let Some(entry) = self.pools.get(&reservation.pool) {
            waits = entry.wait_queue.waits(claim);
            is_sticky = entry.retention().is_sticky;
        }
        if reservation.released_at.is_some() {
            // The next claim of the same name may have been observed before the release.
            return waits && is_sticky;
        }
        let mut is_new = true;
        let mut was_observed = false;
        if let Some(known) = self.addresses.reservation(slot) {
            is_new = known.uid != reservation.uid || known.claim_uid != reservation.claim_uid;
            was_observed = known.is_observed && !is_new;
            // The claim has an IPAddress with this address, which was reserved for another claim.
            if is_new
                && self
                    .addresses
                    .usage(slot)
                    .is_some_and(|usage| usage.is_owned_by(claim))
            {
                return true;
            }
        }
        // The limits of the pool are checked when the watch has reported it.
        let is_checked_now = reservation.is_observed && !was_observed;
        // It is promised to the claim, or the claim waits since its creation had an unknown
        // outcome.
        (is_new && reservation.is_manual()) || (waits && (is_new || is_checked_now))
    }

    /// Removes a claim that has an IPAddress and its reservation from the wait queue, and returns
    /// whether it was there. Two managers can serve one claim: it can have requested an address
    /// after its IPAddress was observed. Nothing reconciles it any more, so a turn would stay
    /// unused.
    pub(super) fn leave_when_served(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        uid: Uid,
    ) -> bool {
        // Nearly no claim waits: this is cheaper than to search its addresses.
        match self.pools.get(pool) {
            Some(entry) if entry.wait_queue.waits(claim) => {}
            _ => return false,
        }
        if !self.addresses.is_served(pool, claim, uid) {
            return false;
        }
        let Some(entry) = self.pools.get_mut(pool) else {
            return false;
        };
        let has_left = entry.wait_queue.leave(claim);
        if has_left {
            self.dirty_pools.push(pool.clone());
        }
        has_left
    }

    /// Removes a reservation. Returns its address if it is a valid one.
    pub(super) fn remove(&mut self, reservation: &IPReservation) -> Option<Slot> {
        let uid = reservation.metadata.uid.as_deref().unwrap_or_default();
        let name = reservation.metadata.name.as_deref().unwrap_or_default();
        if let Ok((slot, _)) = reservation.slot() {
            self.forget_ignored(name, Some(uid));
            self.remove_at(&slot, Some(Uid::of(uid)));
            return Some(slot);
        }
        self.remove_invalid(name, uid)
    }

    /// Removes the reservation of an address, if it has that uid or no uid is passed.
    pub(super) fn remove_at(&mut self, slot: &Slot, uid: Option<Uid>) {
        if self.addresses.see_deleted(slot, uid) {
            self.addresses.index_holder(slot, None);
            self.update(slot, |usage| usage.reservation = None);
        }
    }

    /// Removes all IPAddress objects that the newest list does not show.
    pub(super) fn remove_unlisted_addresses(&mut self) {
        let unlisted = self.addresses.end_list();
        let is_missing = |owner: &AddressOwner| unlisted.contains(owner.list);
        let slots = self
            .addresses
            .slots(|usage| usage.owners.iter().any(is_missing));
        for slot in &slots {
            self.update(slot, |usage| {
                usage.owners.retain(|owner| !is_missing(owner))
            });
        }
    }

    /// Records that the IPAddress of this name exists, although its address cannot be read. Linear in
    /// the addresses in use: such an object is rare.
    pub(super) fn keep_addresses_of(&mut self, name: &NamespacedName) {
        let list = self.addresses.list();
        for slot in self.addresses.slots(|usage| usage.is_owned_by(name)) {
            self.update(&slot, |usage| usage.set_list(name, list));
        }
    }

    /// Removes the IPAddress of this name, whatever address it has. Linear in the addresses in use.
    pub(super) fn remove_addresses_of(&mut self, name: &NamespacedName) {
        for slot in self.addresses.slots(|usage| usage.is_owned_by(name)) {
            self.update(&slot, |usage| usage.remove_address(name));
        }
    }

    /// Removes all reservations that the newest list does not show.
    pub(super) fn remove_unlisted_reservations(&mut self) {
        let (slots, names) = self.addresses.end_reservation_list();
        for slot in &slots {
            self.remove_at(slot, None);
        }
        for name in &names {
            self.forget_ignored(name, None);
        }
    }
}
