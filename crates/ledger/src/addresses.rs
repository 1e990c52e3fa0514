//! The addresses that are not free: their reservations, IPAddresses and candidates, and what claims
//! hold of them.
//!
//! An address changes in one place, [`Addresses::change`], which reports what it contributed to
//! every count before and afterwards.

mod facts;
mod in_use;
mod known_reservation;
mod names;
mod object_uid;
pub(crate) mod problems;
mod shared_names;
mod usage;

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use capi_ipam_api::{PoolKey, Scope, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_ip::Block;
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::{ListNumber, Lists, Unlisted, Versions};

pub(crate) use self::facts::Facts;
use self::in_use::InUse;
pub use self::known_reservation::{Held, KnownReservation};
use self::names::Ignored;
pub(crate) use self::shared_names::SharedName;
use self::shared_names::SharedNames;
use self::usage::Holdings;
pub(crate) use self::usage::{
    AddressOwner, AddressUsage, Availability, CandidateInfo, Period, Released, ReservationInfo,
    ScopeEntry, UsageMap, set_in_order,
};

/// The maximum number of remembered reservations with an unknown outcome.
const MAX_ATTEMPTS: usize = 10_000;

/// The addresses that are not free, by scope.
#[derive(Clone, Default)]
pub struct Addresses {
    scopes: HashMap<Scope, ScopeEntry>,
    holdings: Holdings,
    in_use: InUse,
    /// Reservations that are not valid, by name.
    ignored: BTreeMap<String, Ignored>,
    /// Reservations whose creation has an unknown outcome, by the uid of the claim.
    attempts: HashMap<Uid, (PoolKey, Slot)>,
    /// Only the watch shows IPAddresses.
    lists: Lists,
    versions: Versions,
    /// The names of Clusters, shared by their addresses.
    clusters: SharedNames,
}

/// What one address contributed before a change, and what it contributes afterwards.
pub(crate) struct Change<'a> {
    pub(crate) slot: &'a Slot,
    pub(crate) before: Facts,
    pub(crate) after: Facts,
}

/// A change of an address, and the state of its scope afterwards.
pub(crate) struct Changed<'a> {
    pub(crate) change: Change<'a>,
    /// The claim to which the address is promised, if the promise can be kept now: another claim
    /// had the address.
    pub(crate) kept_promise: Option<NamespacedName>,
    pub(crate) scope: &'a mut ScopeEntry,
}

/// An address of a scope.
pub(crate) fn slot(scope: &Scope, block: Block) -> Slot {
    let scope = scope.clone();
    Slot { scope, block }
}

impl Addresses {
    /// Changes the usage of an address. `has_quotas` is whether a pool has limits.
    pub(crate) fn change<'a>(
        &'a mut self,
        slot: &'a Slot,
        has_quotas: bool,
        change: impl FnOnce(&mut AddressUsage),
    ) -> Changed<'a> {
        let scope = self.scopes.entry(slot.scope.clone()).or_default();
        let usage = scope.usage.get_or_insert(slot.block);
        let before = Facts::of(usage, has_quotas);
        change(usage);
        let after = Facts::of(usage, has_quotas);
        let (was_in_use, is_in_use) = (!before.used_by.is_empty(), !after.used_by.is_empty());
        let mut kept_promise = None;
        if was_in_use && !is_in_use {
            kept_promise = usage.promised_to().cloned();
        }
        if usage.is_free() {
            scope.usage.remove(&slot.block);
        }
        if was_in_use != is_in_use {
            self.in_use.set(slot, is_in_use);
        }
        Changed {
            change: Change {
                slot,
                before,
                after,
            },
            kept_promise,
            scope,
        }
    }

    /// Adds a pool to the members of a scope, or removes it.
    pub(crate) fn set_member(&mut self, scope: &Scope, pool: &PoolKey, is_member: bool) {
        if is_member {
            let entry = self.scopes.entry(scope.clone()).or_default();
            set_in_order(&mut entry.members, pool, true);
        } else if let Some(entry) = self.scopes.get_mut(scope) {
            set_in_order(&mut entry.members, pool, false);
        }
    }

    /// Removes the entry of a scope of which nothing is left.
    pub(crate) fn remove_if_empty(&mut self, scope: &Scope) {
        if self.scopes.get(scope).is_some_and(ScopeEntry::is_empty) {
            self.scopes.remove(scope);
        }
    }

    /// Returns the stored copy of the scope, if there is one, to share its memory.
    pub(crate) fn shared_scope(&self, scope: Scope) -> Scope {
        let stored = self.scopes.get_key_value(&scope);
        stored.map_or(scope, |(stored, _)| stored.clone())
    }

    /// The stored copy of the name of a Cluster.
    pub(crate) fn share_cluster(&mut self, name: Option<&str>) -> Option<SharedName> {
        self.clusters.share(name)
    }

    /// The addresses of a scope that are not free, and its pools.
    pub(crate) fn scope(&self, scope: &Scope) -> Option<&ScopeEntry> {
        self.scopes.get(scope)
    }

    /// The usage of all addresses of a scope that are not free.
    pub(crate) fn usage_in(&self, scope: &Scope) -> impl Iterator<Item = (Block, &AddressUsage)> {
        let scope = self.scopes.get(scope).into_iter();
        scope.flat_map(|scope| scope.usage.iter())
    }

    /// All addresses that are not free.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Scope, Block, &AddressUsage)> {
        self.scopes.iter().flat_map(|(scope, entry)| {
            let usage = entry.usage.iter();
            usage.map(move |(block, usage)| (scope, block, usage))
        })
    }

    /// The addresses whose usage matches.
    pub(crate) fn slots(&self, matches: impl Fn(&AddressUsage) -> bool) -> Vec<Slot> {
        let found = self.all().filter(|(_, _, usage)| matches(usage));
        found.map(|(scope, block, _)| slot(scope, block)).collect()
    }

    pub(crate) fn usage(&self, slot: &Slot) -> Option<&AddressUsage> {
        self.scopes.get(&slot.scope)?.usage.get(&slot.block)
    }

    /// The reservation of an address.
    pub(crate) fn reservation(&self, slot: &Slot) -> Option<&ReservationInfo> {
        self.usage(slot)?.reservation.as_ref()
    }

    /// The pools of a network.
    pub fn members(&self, network: &str) -> &[PoolKey] {
        match self.scopes.get(&Scope::Network(network.into())) {
            Some(scope) => &scope.members,
            None => &[],
        }
    }

    /// The number of addresses of a scope that are not free.
    pub fn usage_count(&self, scope: &Scope) -> usize {
        match self.scopes.get(scope) {
            Some(scope) => scope.usage.len(),
            None => 0,
        }
    }

    /// The number of addresses and prefixes that IPAddresses of several scopes have: of pools that
    /// overlap, at most one of which is in a network. It is counted with each change, so to read it
    /// costs nothing.
    pub fn shared_addresses(&self) -> usize {
        self.in_use.shared()
    }

    /// The namespaces and names of the IPAddress objects with that address.
    pub fn owners(&self, slot: &Slot) -> Vec<NamespacedName> {
        let owners = self.usage(slot).into_iter().flat_map(|usage| &usage.owners);
        owners.map(|owner| owner.name.clone()).collect()
    }

    /// Whether a block that overlaps with the slot is used by anything other than this claim.
    pub fn overlaps_other_claim(&self, slot: &Slot, claim: &NamespacedName) -> bool {
        self.usage_in(&slot.scope)
            .any(|(block, usage)| block.overlaps(slot.block) && usage.is_of_another(claim))
    }

    /// Whether an address has no reservation and none is being created.
    pub fn is_unreserved(&self, slot: &Slot) -> bool {
        self.usage(slot).is_some_and(AddressUsage::is_unreserved)
    }

    /// The prefixes in use that a larger prefix in use of the same scope contains.
    pub fn contained_in_use(&self) -> Vec<Slot> {
        let mut found = Vec::new();
        for (scope, entry) in &self.scopes {
            let mut in_use = entry.usage.of_several_lengths();
            in_use.sort_unstable();
            // Of two prefixes that overlap, the larger one is first, and contains the other one.
            let mut last: Option<Block> = None;
            for block in in_use {
                if last.is_some_and(|outer| outer.overlaps(block)) {
                    found.push(slot(scope, block));
                } else {
                    last = Some(block);
                }
            }
        }
        found
    }

    /// Records an attempt to reserve an address for the claim with that uid whose outcome is
    /// unknown: the reservation may exist.
    pub fn remember_attempt(&mut self, claim: Uid, pool: &PoolKey, slot: &Slot) {
        // Only attempts of deleted claims accumulate.
        if self.attempts.len() >= MAX_ATTEMPTS {
            self.attempts.clear();
        }
        self.attempts.insert(claim, (pool.clone(), slot.clone()));
    }

    /// The slot whose reservation for the claim was requested from a pool with an unknown outcome.
    pub(crate) fn attempt(&self, claim: Uid) -> Option<&(PoolKey, Slot)> {
        self.attempts.get(&claim)
    }

    /// Forgets the attempt of the claim: its outcome is known.
    pub fn forget_attempt(&mut self, claim: Uid) {
        self.attempts.remove(&claim);
    }

    /// Whether a user promised an address to the name of a claim.
    pub(crate) fn has_promises(&self) -> bool {
        self.holdings.has_promises()
    }

    /// The addresses that claims of that name have released, and that still have a reservation.
    pub(crate) fn released_by(&self, claim: &NamespacedName) -> impl Iterator<Item = &Slot> {
        self.holdings.released_by(claim)
    }

    /// The addresses reserved for the uid of a claim, and those promised to its name.
    pub(crate) fn slots_of(&self, claim: &NamespacedName, uid: Uid) -> impl Iterator<Item = &Slot> {
        self.holdings.of(claim, uid)
    }

    /// Records the reservation of an address for its claim, in place of the known one; `None` if it
    /// was deleted.
    pub(crate) fn index_holder(&mut self, slot: &Slot, reservation: Option<&ReservationInfo>) {
        if let Some(scope) = self.scopes.get(&slot.scope)
            && let Some(usage) = scope.usage.get(&slot.block)
            && let Some(known) = &usage.reservation
        {
            self.holdings.remove(known, slot);
        }
        if let Some(reservation) = reservation {
            self.holdings.insert(reservation, slot);
        }
    }

    /// A list of IPAddresses begins.
    pub(crate) fn begin_list(&mut self) {
        self.lists.begin();
    }

    /// The newest list of IPAddresses.
    pub(crate) fn list(&self) -> ListNumber {
        self.lists.current()
    }

    /// The list of IPAddresses is complete. Returns which ones it does not show.
    pub(crate) fn end_list(&mut self) -> Unlisted {
        self.lists.end()
    }

    /// The versions of the reservations.
    pub(crate) fn versions(&self) -> &Versions {
        &self.versions
    }

    /// A list of reservations begins.
    pub(crate) fn begin_reservation_list(&mut self) {
        self.versions.begin_list();
    }

    /// etcd was restored to an earlier state: any state of a reservation is accepted from now on.
    pub(crate) fn reservations_restored(&mut self) {
        self.versions.restored();
    }

    /// The list of reservations is complete. Returns the addresses of those that it does not show,
    /// and the names of those that are not valid.
    pub(crate) fn end_reservation_list(&mut self) -> (Vec<Slot>, Vec<String>) {
        let unlisted = self.versions.end_list();
        let slots = self.slots(|usage| {
            usage
                .reservation
                .as_ref()
                .is_some_and(|known| known.stamp.is_unlisted(unlisted))
        });
        let mut names = Vec::new();
        for (name, ignored) in &self.ignored {
            if ignored.stamp.is_unlisted(unlisted) {
                self.versions
                    .delete(None, Uid::of(&ignored.uid), Instant::now());
                names.push(name.clone());
            }
        }
        (slots, names)
    }
}

#[cfg(test)]
impl Addresses {
    pub(crate) fn scopes_mut(&mut self) -> impl Iterator<Item = (&Scope, &mut ScopeEntry)> {
        self.scopes.iter_mut()
    }

    /// Asserts that the counts of the addresses in use equal those of all addresses.
    pub(crate) fn check_in_use(&self) {
        let mut all = InUse::default();
        for (scope, block, usage) in self.all() {
            if !usage.owners.is_empty() {
                all.set(&slot(scope, block), true);
            }
        }
        assert_eq!(all, self.in_use);
    }
}
