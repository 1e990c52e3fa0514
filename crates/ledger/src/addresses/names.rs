//! The names of reservations: which states of an object are later ones, and objects that are not
//! valid reservations and take the name of one.

use std::time::Instant;

use capi_ipam_api::{Scope, Slot, block_of_name, slot_of_name};
use capi_ipam_contract::Uid;
use capi_ipam_objects::observed::{Known, ObjectVersion, Origin, Stamp};
use kube::core::ObjectMeta;

use super::problems::InvalidReservation;
use super::{Addresses, slot};

/// A reservation that is not valid. The API server creates no other one of its name.
#[derive(Clone)]
pub(super) struct Ignored {
    /// The address that its name reserves, if it is known.
    pub(super) slot: Option<Slot>,
    pub(super) uid: Box<str>,
    pub(super) problem: String,
    pub(super) stamp: Stamp,
    pub(super) lacks_label: bool,
}

impl Addresses {
    /// Decides on a state of the reservation of this name: returns its stamp, or `None` if a later
    /// state is known.
    pub(crate) fn see(
        &mut self,
        name: &str,
        slot: Option<&Slot>,
        seen: ObjectVersion,
        origin: Origin,
    ) -> Option<Stamp> {
        let known = self.known_object(name, slot);
        self.versions.see(origin, known, seen, Instant::now())
    }

    /// Records that the reservation of an address was deleted, the one with that uid or any.
    /// Returns false if another one is known.
    pub(crate) fn see_deleted(&mut self, slot: &Slot, uid: Option<Uid>) -> bool {
        let known = self.reservation(slot).map(|known| known.uid.uid());
        uid.or(known)
            .is_some_and(|uid| self.versions.delete(known, uid, Instant::now()))
    }

    /// Records that an object which is not a valid reservation was deleted.
    pub(crate) fn see_invalid_deleted(&mut self, uid: &str) {
        self.versions.delete(None, Uid::of(uid), Instant::now());
    }

    /// The last state of the object of this name: of one that is not valid, or of the reservation
    /// of the address.
    fn known_object(&self, name: &str, slot: Option<&Slot>) -> Option<Known> {
        if let Some(ignored) = self.ignored.get(name) {
            return Some(Known {
                uid: Uid::of(&ignored.uid),
                stamp: ignored.stamp,
            });
        }
        Some(self.reservation(slot?)?.known())
    }

    /// Records an object that is not a valid reservation. Its name reserves an address all the
    /// same: returns the address if its name was not taken before.
    pub(crate) fn ignore(
        &mut self,
        metadata: &ObjectMeta,
        slot: Option<Slot>,
        problem: String,
        stamp: Stamp,
        lacks_label: bool,
    ) -> Option<Slot> {
        let name = metadata.name.as_deref()?;
        let slot_before = match self.ignored.get_mut(name) {
            Some(before) => before.slot.take(),
            None => None,
        };
        // A scope whose hash the name contains may not be known any more: then the address is still
        // the one that was known before.
        let is_taken = slot_before.is_some();
        let slot = slot.or(slot_before);
        let ignored = Ignored {
            slot: slot.clone(),
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            problem,
            stamp,
            lacks_label,
        };
        self.ignored.insert(name.to_owned(), ignored);
        slot.filter(|_| !is_taken)
    }

    /// Records that the name of the reservation of an address is taken by an object that was found
    /// under it, if that object is not a valid reservation. Returns whether this was not known.
    pub(crate) fn take_name(&mut self, slot: &Slot) -> bool {
        match self.ignored.get_mut(&slot.reservation_name()) {
            Some(ignored) if ignored.slot.is_none() => {
                ignored.slot = Some(slot.clone());
                true
            }
            _ => false,
        }
    }

    /// Forgets an object that is not a valid reservation: of this uid, if one is passed. Returns
    /// its address.
    pub(crate) fn forget_ignored(&mut self, name: &str, uid: Option<&str>) -> Option<Slot> {
        let ignored = self.ignored.get(name)?;
        if uid.is_some_and(|uid| *ignored.uid != *uid) {
            return None;
        }
        self.ignored.remove(name)?.slot
    }

    /// All objects that are not valid reservations.
    pub(crate) fn ignored(&self) -> impl Iterator<Item = InvalidReservation> {
        self.ignored.iter().map(|(name, ignored)| {
            let mut problem = ignored.problem.clone();
            if let Some(Slot { block, .. }) = &ignored.slot {
                problem = format!(
                    "{problem}; {block} is not allocated while an IPReservation has this name"
                );
            }
            let uid = ignored.uid.to_string();
            let seen = ObjectVersion {
                uid: Uid::of(&uid),
                version: ignored.stamp.version(),
            };
            InvalidReservation {
                name: name.clone(),
                uid,
                seen,
                problem,
            }
        })
    }

    /// The names of the manually created reservations that have to be labelled for `clusterctl
    /// move`.
    pub fn unlabelled(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (scope, block, usage) in self.all() {
            if usage
                .reservation
                .as_ref()
                .is_some_and(|known| known.lacks_label)
            {
                names.push(slot(scope, block).reservation_name());
            }
        }
        let ignored = self.ignored.iter();
        let unlabelled = ignored.filter(|(_, ignored)| ignored.lacks_label);
        names.extend(unlabelled.map(|(name, _)| name.clone()));
        names
    }

    /// The address that an object of this name reserves. A hash in the name is compared with those
    /// of the scopes with addresses in use, and of `others`.
    pub(crate) fn slot_of_name(
        &self,
        name: &str,
        others: impl Iterator<Item = Scope>,
    ) -> Option<Slot> {
        if !name.starts_with("h.") {
            return slot_of_name(name);
        }
        let slot_in = |scope: &Scope| Some(slot(scope, block_of_name(scope, name)?));
        let known = self.scopes.keys().find_map(slot_in);
        known.or_else(|| { others }.find_map(|scope| slot_in(&scope)))
    }
}
