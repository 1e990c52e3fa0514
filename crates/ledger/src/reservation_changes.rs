//! Changes of reservations, from the watch and from responses to our own requests.

use std::time::Instant;

use capi_ipam_api::{IPReservation, PoolKey, Slot, block_of_name, slot_of_name};
use capi_ipam_controller::clock;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::{Invalid, MaybeInvalid};
use capi_ipam_provider::api::Uid;

use super::Ledger;
use super::networks::LengthRecord;
use super::state::{Ignored, Source, State, TOMBSTONE_TTL};
use super::usage::{AddressUsage, ReservationInfo};

impl Ledger {
    /// Records what a response has shown under the name of the reservation of an address: the name is taken, also if
    /// the object is not a valid reservation or cannot be decoded.
    pub fn insert_found(&self, slot: &Slot, found: &MaybeInvalid<IPReservation>) {
        let claim = self.change(|state| {
            let claim = match &found.0 {
                Ok(reservation) => state.insert(reservation, Source::Response),
                Err(invalid) => {
                    state.insert_undecodable(invalid, Source::Response);
                    None
                }
            };
            state.block_name(slot);
            claim
        });
        self.wake(&claim);
    }

    /// Records a page of a list.
    pub fn insert_page(&self, page: &[MaybeInvalid<IPReservation>]) {
        for found in page {
            match &found.0 {
                Ok(reservation) => self.insert_reservation(reservation),
                Err(invalid) => self.change(|state| state.insert_undecodable(invalid, Source::Response)),
            }
        }
    }
}

impl State {
    /// Records a reservation. A state that is older than a known one of the same reservation has no effect: the watch and
    /// responses can be late. What a new list shows is always newer than what was known before it, also if a restore of
    /// etcd has lowered the resource versions. Returns the claim that has to be reconciled because of it.
    pub(super) fn insert(&mut self, reservation: &IPReservation, source: Source) -> Option<NamespacedName> {
        let (list, lacks_label) = (self.reservation_list, reservation.needs_move_label());
        let uid = || -> Box<str> { reservation.metadata.uid.as_deref().unwrap_or_default().into() };
        match source {
            // After a restore of etcd a deleted object can exist again.
            Source::Watch => self.tombstones.remove(&uid_of(reservation)),
            Source::Response if self.was_deleted(uid_of(reservation), Instant::now()) => return None,
            Source::Response => {}
        }
        match reservation.slot() {
            Ok((slot, pool)) => {
                self.forget_ignored(reservation.metadata.name.as_deref().unwrap_or_default(), None);
                let slot = Slot { scope: self.shared_scope(slot.scope), block: slot.block };
                let cluster = reservation.spec.claim_ref.as_ref().and_then(|claim| claim.cluster.as_deref());
                let cluster = self.clusters.share(cluster);
                let is_observed = source == Source::Watch;
                let info = ReservationInfo::of(reservation, self.shared_key(pool), cluster, list, is_observed);
                let known = self.usage(&slot).and_then(|usage| usage.reservation.as_ref());
                let is_comparable = |known: &ReservationInfo| match source {
                    Source::Response => true,
                    Source::Watch => known.list == list && known.uid == info.uid,
                };
                if known.is_some_and(|known| is_comparable(known) && known.version > info.version) {
                    return None;
                }
                self.insert_at(&slot, info)
            }
            Err(problem) => {
                let name = reservation.metadata.name.as_ref();
                if let Some((name, (network, family, length))) = name.zip(reservation.network_block_length()) {
                    let record = LengthRecord { name: name.clone(), uid: uid().into_string(), network, family, length };
                    let change = self.networks.set_record(record, list);
                    self.refresh_pools(&change);
                } else if let Some(name) = name {
                    let slot = self.slot_of_name(name);
                    let ignored = Ignored { slot, uid: uid(), problem: problem.to_string(), list, lacks_label };
                    self.ignore(name, ignored);
                }
                None
            }
        }
    }

    /// Records an object that cannot be decoded. It exists, so it reserves the address of its name, and what was known
    /// of it before stays.
    pub(super) fn insert_undecodable(&mut self, object: &Invalid, source: Source) {
        let metadata = &object.metadata;
        let Some(name) = metadata.name.as_deref() else { return };
        let uid = metadata.uid.as_deref().unwrap_or_default();
        match source {
            Source::Watch => self.tombstones.remove(&Uid::of(uid)),
            Source::Response if self.was_deleted(Uid::of(uid), Instant::now()) => return,
            Source::Response => {}
        }
        let list = self.reservation_list;
        if self.networks.keep_record(name, uid, list) {
            return;
        }
        let slot = self.slot_of_name(name);
        let known = slot.as_ref().and_then(|slot| self.usage(slot)?.reservation.as_ref());
        if let Some(slot) = slot.as_ref().filter(|_| known.is_some_and(|known| known.uid.uid() == Uid::of(uid))) {
            self.update(slot, |usage| usage.reservation.iter_mut().for_each(|known| known.list = list));
        }
        let problem = format!("it cannot be decoded: {}", object.error);
        self.ignore(name, Ignored { slot, uid: uid.into(), problem, list, lacks_label: false });
    }

    /// Removes an object whose last state cannot be decoded. Returns its address.
    pub(super) fn remove_undecodable(&mut self, object: &Invalid) -> Option<Slot> {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        self.remember_deletion(Uid::of(uid), Instant::now());
        let change = self.networks.remove_record(name, uid);
        self.refresh_pools(&change);
        let slot = self.forget_ignored(name, Some(uid)).or_else(|| self.slot_of_name(name))?;
        self.remove_at(&slot, Some(Uid::of(uid)));
        Some(slot)
    }

    /// Records that the name of the reservation of an address is taken by an object that was found under it, if that
    /// object is not a valid reservation.
    pub(super) fn block_name(&mut self, slot: &Slot) {
        let Some(ignored) = self.ignored.get_mut(&slot.reservation_name()) else { return };
        if ignored.slot.is_none() {
            ignored.slot = Some(slot.clone());
            self.update(slot, |usage| usage.is_name_taken = true);
        }
    }

    /// Records an object that is not a valid reservation. Its name reserves an address all the same.
    fn ignore(&mut self, name: &str, ignored: Ignored) {
        let slot = ignored.slot.clone();
        let before = self.ignored.insert(name.to_owned(), ignored);
        let Some(slot) = slot else {
            // A scope whose hash the name contains may not be known any more.
            let slot_before = before.and_then(|before| before.slot);
            self.ignored.entry(name.to_owned()).and_modify(|ignored| ignored.slot = slot_before);
            return;
        };
        if before.is_none_or(|before| before.slot.is_none()) {
            self.update(&slot, |usage| usage.is_name_taken = true);
        }
    }

    /// Forgets an object that is not a valid reservation: of this uid, if one is passed. Returns its address.
    fn forget_ignored(&mut self, name: &str, uid: Option<&str>) -> Option<Slot> {
        let is_of_uid = |ignored: &Ignored| uid.is_none_or(|uid| *ignored.uid == *uid);
        if !self.ignored.get(name).is_some_and(is_of_uid) {
            return None;
        }
        let slot = self.ignored.remove(name)?.slot?;
        self.update(&slot, |usage| usage.is_name_taken = false);
        Some(slot)
    }

    /// The address that an object of this name reserves. A hash in the name is compared with those of the known scopes.
    fn slot_of_name(&self, name: &str) -> Option<Slot> {
        if !name.starts_with("h.") {
            return slot_of_name(name);
        }
        let of_pools = self.pools.iter().map(|(pool, entry)| entry.scope(pool));
        let mut scopes = self.scopes.keys().cloned().chain(of_pools);
        scopes.find_map(|scope| block_of_name(&scope, name).map(|block| Slot { scope, block }))
    }

    /// Records the reservation of an address. Returns its claim if the reservation is new and is promised to the claim,
    /// or the claim waits: its creation had an unknown outcome.
    fn insert_at(&mut self, slot: &Slot, reservation: ReservationInfo) -> Option<NamespacedName> {
        let known = self.usage(slot).and_then(|usage| usage.reservation.as_ref());
        let is_new = known.is_none_or(|known| {
            let was_taken_over = known.claim_uid != reservation.claim_uid;
            known.uid != reservation.uid || was_taken_over
        });
        let is_remembered = self.is_remembered(&reservation, clock::now().0.as_second());
        let reservation = ReservationInfo { is_remembered, ..reservation };
        self.unindex_holder(slot);
        self.holdings.insert(&reservation, slot);
        let is_promise = reservation.is_manual() && reservation.released_at.is_none();
        let waits = |claim: &NamespacedName| {
            let entry = self.pools.get(&reservation.pool);
            reservation.released_at.is_none() && entry.is_some_and(|entry| entry.wait_queue.waits(claim))
        };
        // The next claim of the same name may have been observed before the release.
        let is_kept_for = |claim: &NamespacedName| {
            let entry = self.pools.get(&reservation.pool).filter(|_| reservation.released_at.is_some());
            entry.is_some_and(|entry| entry.is_sticky() && entry.wait_queue.waits(claim))
        };
        let is_woken = |claim: &NamespacedName| (is_new && (is_promise || waits(claim))) || is_kept_for(claim);
        let to_wake = reservation.claim.clone().filter(is_woken);
        let holder = reservation.claim.clone().zip(reservation.claim_uid);
        let pool = reservation.pool.clone();
        self.update(slot, |usage| {
            usage.drop_candidate();
            usage.set_reservation(reservation);
        });
        self.reservation_inserted(&pool, &slot.scope);
        if let Some((claim, uid)) = holder {
            self.leave_when_served(&pool, &claim, uid);
        }
        to_wake
    }

    /// Removes a claim that has an IPAddress and its reservation from the wait queue, and returns whether it was there.
    /// Two managers can serve one claim: it can have requested an address after its IPAddress was observed. Nothing
    /// reconciles it any more, so a turn would stay unused.
    pub(super) fn leave_when_served(&mut self, pool: &PoolKey, claim: &NamespacedName, uid: Uid) -> bool {
        if !self.pools.get(pool).is_some_and(|entry| entry.wait_queue.waits(claim)) {
            return false;
        }
        let has_address = |slot: &Slot| {
            let owners = self.usage(slot).into_iter().flat_map(|usage| &usage.owners);
            owners.into_iter().any(|owner| owner.name == *claim && owner.pool == *pool)
        };
        let is_served = self.holdings.of(claim, uid).any(has_address);
        let Some(entry) = self.pools.get_mut(pool).filter(|_| is_served) else { return false };
        let has_left = entry.wait_queue.leave(claim);
        if has_left {
            self.dirty_pools.push(pool.clone());
        }
        has_left
    }

    /// Removes a reservation. Returns its address if it is a valid one.
    pub(super) fn remove(&mut self, reservation: &IPReservation) -> Option<Slot> {
        let uid = reservation.metadata.uid.as_deref().unwrap_or_default();
        self.remember_deletion(Uid::of(uid), Instant::now());
        let name = reservation.metadata.name.as_deref().unwrap_or_default();
        if let Ok((slot, _)) = reservation.slot() {
            self.forget_ignored(name, Some(uid));
            self.remove_at(&slot, Some(Uid::of(uid)));
            return Some(slot);
        }
        let change = self.networks.remove_record(name, uid);
        self.refresh_pools(&change);
        self.forget_ignored(name, Some(uid))
    }

    /// Removes the reservation of an address, if it has that uid or no uid is passed.
    pub(super) fn remove_at(&mut self, slot: &Slot, uid: Option<Uid>) {
        let known = self.usage(slot).and_then(|usage| usage.reservation.as_ref());
        let Some(known) = known.map(|known| known.uid.uid()) else { return };
        if uid.is_some_and(|uid| known != uid) {
            return;
        }
        self.remember_deletion(known, Instant::now());
        self.unindex_holder(slot);
        self.update(slot, |usage| usage.reservation = None);
    }

    /// Removes all IPAddress objects that the newest list does not show.
    pub(super) fn remove_unlisted_addresses(&mut self) {
        let newest = self.address_list;
        for slot in self.slots(|usage| usage.owners.iter().any(|owner| owner.list != newest)) {
            self.update(&slot, |usage| usage.owners.retain(|owner| owner.list == newest));
        }
    }

    /// The addresses whose usage matches.
    fn slots(&self, matches: impl Fn(&AddressUsage) -> bool) -> Vec<Slot> {
        let matching = self.all_usage().filter(|(_, _, usage)| matches(usage));
        matching.map(|(scope, block, _)| Slot { scope: scope.clone(), block }).collect()
    }

    /// Removes all reservations that the newest list does not show.
    pub(super) fn remove_unlisted_reservations(&mut self) {
        self.is_listing_reservations = false;
        let newest = self.reservation_list;
        for slot in self.slots(|usage| usage.reservation.as_ref().is_some_and(|known| known.list != newest)) {
            self.remove_at(&slot, None);
        }
        let unlisted = self.ignored.iter().filter(|(_, ignored)| ignored.list != newest);
        let unlisted: Vec<String> = unlisted.map(|(name, _)| name.clone()).collect();
        for name in unlisted {
            self.forget_ignored(&name, None);
        }
        let changes = self.networks.remove_unlisted_records(newest);
        changes.iter().for_each(|change| self.refresh_pools(change));
    }

    /// Records that the reservation with this uid is deleted.
    pub(super) fn remember_deletion(&mut self, uid: Uid, now: Instant) {
        self.tombstones.insert(uid, (), TOMBSTONE_TTL, now);
    }

    /// Whether the reservation with this uid was deleted recently.
    pub(super) fn was_deleted(&self, uid: Uid, now: Instant) -> bool {
        self.tombstones.get(&uid, now).is_some()
    }

    /// The names of the reservations that have to be labelled for `clusterctl move` and are not those of an address.
    pub(super) fn unlabelled_others(&self) -> impl Iterator<Item = String> {
        let ignored = self.ignored.iter().filter(|(_, ignored)| ignored.lacks_label);
        ignored.map(|(name, _)| name.clone())
    }

    fn unindex_holder(&mut self, slot: &Slot) {
        let Self { scopes, holdings, .. } = self;
        let usage = scopes.get(&slot.scope).and_then(|scope| scope.usage.get(&slot.block));
        if let Some(known) = usage.and_then(|usage| usage.reservation.as_ref()) {
            holdings.remove(known, slot);
        }
    }
}

fn uid_of(reservation: &IPReservation) -> Uid {
    Uid::of(reservation.metadata.uid.as_deref().unwrap_or_default())
}
