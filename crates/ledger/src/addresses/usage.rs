//! What uses an address: its reservation, its IPAddress objects and the proposal of it.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::num::NonZeroI64;
use std::ops::Bound;

use capi_ipam_api::{IPReservation, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, Family};
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::{Known, ListNumber, ObjectVersion, Stamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use smallvec::SmallVec;

use super::PoolKey;
use super::object_uid::ObjectUid;
use super::shared_names::SharedName;
use crate::quota::Consumer;

/// The addresses of one scope that are not free, and the pools that allocate from the scope.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScopeEntry {
    pub(crate) usage: UsageMap,
    /// The existing pools of the scope, ordered: one, unless the scope is a network.
    pub(crate) members: Vec<PoolKey>,
    /// The pools with a reservation or a candidate in the scope, ordered; only of a network.
    pub(crate) holders: Vec<PoolKey>,
}

/// The usage of each address that is not free, in the order of the addresses. Boxed, since the
/// nodes of a map are half empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsageMap {
    entries: BTreeMap<Block, Box<AddressUsage>>,
    /// The number of blocks of each family and length.
    lengths: BTreeMap<(Family, u8), usize>,
}

impl UsageMap {
    pub(crate) fn get(&self, block: &Block) -> Option<&AddressUsage> {
        self.entries.get(block).map(Box::as_ref)
    }

    pub(crate) fn get_or_insert(&mut self, block: Block) -> &mut AddressUsage {
        let Self { entries, lengths } = self;
        entries.entry(block).or_insert_with(|| {
            let count = lengths.entry((block.family(), block.length())).or_default();
            *count += 1;
            Box::default()
        })
    }

    pub(crate) fn remove(&mut self, block: &Block) {
        if self.entries.remove(block).is_none() {
            return;
        }
        let length = (block.family(), block.length());
        let Some(count) = self.lengths.get_mut(&length) else {
            return;
        };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.lengths.remove(&length);
        }
    }

    /// Whether there are blocks of the family with another length.
    pub(crate) fn has_other_lengths(&self, family: Family, length: u8) -> bool {
        for (of, other) in self.lengths.keys() {
            if *of == family && *other != length {
                return true;
            }
        }
        false
    }

    /// The blocks that IPAddress objects have, in families with blocks of several lengths:
    /// elsewhere none contains another one.
    pub(crate) fn of_several_lengths(&self) -> Vec<Block> {
        if self.lengths.len() < 2 {
            return Vec::new();
        }
        let has_others = |block: Block| self.has_other_lengths(block.family(), block.length());
        let in_use = self.iter().filter(|(_, usage)| !usage.owners.is_empty());
        in_use
            .map(|(block, _)| block)
            .filter(|block| has_others(*block))
            .collect()
    }

    /// The use of the blocks from one to another, which begin there or between.
    pub(crate) fn between(
        &self,
        first: Block,
        last: Block,
    ) -> impl Iterator<Item = (Block, &AddressUsage)> {
        let found = self.entries.range(first..=last_address(last));
        found.map(|(block, usage)| (*block, &**usage))
    }

    /// Whether an address of a block is not free. Takes logarithmic time.
    pub(crate) fn has_address_in(&self, block: Block) -> bool {
        let mut within = self.entries.range(block..=last_address(block));
        within.next().is_some() || self.has_larger(block)
    }

    /// Whether a block is a part of a larger one that is not free.
    fn has_larger(&self, block: Block) -> bool {
        for (family, length) in self.lengths.keys() {
            let is_larger = *family == block.family() && *length < block.length();
            if is_larger
                && self
                    .entries
                    .contains_key(&Block::new(block.base(), *length))
            {
                return true;
            }
        }
        false
    }

    /// The blocks of a length with an address that is not free. Larger ones that are not free as a
    /// whole are left out. Takes logarithmic time for each block.
    pub(crate) fn blocks_in_use(&self, family: Family, length: u8) -> Vec<Block> {
        let mut found = Vec::new();
        let all = Block::new(family.address(0), 0);
        let mut next = Bound::Included(all);
        let end = Bound::Included(last_address(all));
        while let Some((used, _)) = self.entries.range((next, end)).next() {
            if used.length() < length {
                next = Bound::Excluded(*used);
                continue;
            }
            let block = Block::new(used.base(), length);
            next = Bound::Excluded(last_address(block));
            found.push(block);
        }
        found
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Block, &AddressUsage)> {
        let entries = self.entries.iter();
        entries.map(|(block, usage)| (*block, usage.as_ref()))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl ScopeEntry {
    pub(crate) fn is_empty(&self) -> bool {
        self.usage.is_empty() && self.members.is_empty()
    }
}

/// Adds a pool to an ordered list, or removes it.
pub(crate) fn set_in_order(pools: &mut Vec<PoolKey>, pool: &PoolKey, is_included: bool) {
    match pools.binary_search(pool) {
        Ok(index) if !is_included => drop(pools.remove(index)),
        Err(index) if is_included => pools.insert(index, pool.clone()),
        _ => {}
    }
}

/// What uses one address. It is free when nothing does.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressUsage {
    pub(crate) reservation: Option<ReservationInfo>,
    /// The IPAddress objects with this address: more than one if it is a duplicate.
    pub(crate) owners: SmallVec<[AddressOwner; 1]>,
    pub(crate) candidate: Option<Box<CandidateInfo>>,
    /// The number of reservations and candidates of this address in other scopes, of pools that
    /// belong to this scope now.
    pub(crate) elsewhere: u32,
    /// Whether an object that is not a valid reservation has the name of the reservation of this
    /// address: no other one can be created.
    pub(crate) is_name_taken: bool,
}

/// A claim whose reservation of the address is being created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CandidateInfo {
    pub(crate) pool: PoolKey,
    /// The claim; only of a pool with access rules.
    pub(crate) consumer: Option<Consumer>,
}

/// What the ledger keeps of an IPReservation.
#[derive(Clone, Debug)]
pub(crate) struct ReservationInfo {
    pub(crate) uid: ObjectUid,
    /// When it was last seen.
    pub(crate) stamp: Stamp,
    pub(crate) pool: PoolKey,
    pub(crate) claim: Option<NamespacedName>,
    pub(crate) claim_uid: Option<Uid>,
    /// The name of the Cluster of the claim.
    pub(crate) cluster: Option<SharedName>,
    /// Whether the watch has reported it, and so all reservations that were created before.
    pub(crate) is_observed: bool,
    /// In seconds since the Unix epoch, as it is written: all managers have to derive the same
    /// times from it. A time in the future is corrected in the object.
    pub(crate) released_at: Option<NonZeroI64>,
    /// Until when it is quarantined, in the same way. It has no claim then.
    pub(crate) quarantined_until: Option<NonZeroI64>,
    /// Whether the released address is only kept for the next claim of the same name: its cool-down
    /// has ended, and other claims get it if no other address is free.
    pub(crate) is_remembered: bool,
    /// Whether an IPAddress of the claim with this address was observed. Two managers can reserve
    /// two addresses for one claim, which uses one of them.
    pub(crate) was_used: bool,
    /// Whether it is being deleted and waits for a finalizer: no claim has it, and the address is
    /// not free.
    pub(crate) is_terminating: bool,
    /// Whether it has to be labelled for `clusterctl move`.
    pub(crate) lacks_label: bool,
    /// Whether its status reports that it has an effect. `None` if it reports neither.
    pub(crate) is_ready: Option<bool>,
}

/// Whether an address can be allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Availability {
    /// Nothing uses the address.
    #[default]
    Free,
    /// It was released at this second, and is kept for the next claim of the same name as long as
    /// others are free.
    Remembered(i64),
    /// It cannot be allocated.
    Taken,
}

/// A released or a quarantined address with a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    pub(crate) pool: PoolKey,
    pub(crate) period: Period,
    /// The second in which it was released, or in which its quarantine ends.
    pub(crate) second: i64,
}

/// Why the reservation of a released address is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    /// It cools down.
    CoolingDown,
    /// Its cool-down has ended: it is kept for the next claim of the same name.
    Remembered,
    /// An IPAddress has the address: the reservation is kept for its claim.
    InUse,
    /// It is quarantined.
    Quarantined,
}

/// The addresses that are reserved for each claim. The reverse of [`AddressUsage::reservation`],
/// except that an address that cools down is not held.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings {
    /// Addresses that the last claim of that name has released, and that cool down or are
    /// remembered.
    released: HashMap<NamespacedName, Slots>,
    by_uid: HashMap<Uid, Slots>,
    /// Addresses that a user promised to the name of a claim.
    by_name: HashMap<NamespacedName, Slots>,
}

/// The addresses of a claim: nearly always one.
type Slots = SmallVec<[Slot; 1]>;

impl Holdings {
    /// Records the reservation of an address.
    pub(crate) fn insert(&mut self, reservation: &ReservationInfo, slot: &Slot) {
        let Some(claim) = reservation.claim.as_ref() else {
            return;
        };
        let slots = match reservation.claim_uid {
            _ if reservation.released_at.is_some() => {
                self.released.entry(claim.clone()).or_default()
            }
            Some(uid) => self.by_uid.entry(uid).or_default(),
            None => self.by_name.entry(claim.clone()).or_default(),
        };
        slots.push(slot.clone());
    }

    /// Removes the reservation of an address.
    pub(crate) fn remove(&mut self, reservation: &ReservationInfo, slot: &Slot) {
        let Some(claim) = reservation.claim.as_ref() else {
            return;
        };
        match reservation.claim_uid {
            _ if reservation.released_at.is_some() => remove_from(&mut self.released, claim, slot),
            Some(uid) => remove_from(&mut self.by_uid, &uid, slot),
            None => remove_from(&mut self.by_name, claim, slot),
        }
    }

    /// Whether a user promised an address to the name of a claim.
    pub(crate) fn has_promises(&self) -> bool {
        !self.by_name.is_empty()
    }

    /// The addresses that claims of that name have released, and that still have a reservation.
    pub(crate) fn released_by(&self, claim: &NamespacedName) -> impl Iterator<Item = &Slot> {
        self.released.get(claim).into_iter().flatten()
    }

    /// The addresses reserved for the uid of a claim, and those promised to its name.
    pub(crate) fn of(&self, claim: &NamespacedName, uid: Uid) -> impl Iterator<Item = &Slot> {
        let promised = if self.has_promises() {
            self.by_name.get(claim)
        } else {
            None
        };
        self.by_uid.get(&uid).into_iter().chain(promised).flatten()
    }
}

/// Removes an address from those of a claim.
fn remove_from<K: Eq + Hash>(index: &mut HashMap<K, Slots>, key: &K, slot: &Slot) {
    let Some(slots) = index.get_mut(key) else {
        return;
    };
    slots.retain(|held| held != slot);
    if slots.is_empty() {
        index.remove(key);
    }
}

/// What the ledger keeps of an IPAddress. It has the name of its claim.
#[derive(Clone, Debug)]
pub(crate) struct AddressOwner {
    pub(crate) name: NamespacedName,
    pub(crate) pool: PoolKey,
    /// The name of the Cluster of the claim.
    pub(crate) cluster: Option<SharedName>,
    /// The newest list when the watch last showed it.
    pub(crate) list: ListNumber,
}

/// The second of a time. No address was released in 1970: 0 stands for none.
fn second_of(time: Option<&Time>) -> Option<NonZeroI64> {
    NonZeroI64::new(time?.0.as_second().max(1))
}

impl ReservationInfo {
    pub(crate) fn of(
        reservation: &IPReservation,
        pool: PoolKey,
        cluster: Option<SharedName>,
        stamp: Stamp,
        is_observed: bool,
    ) -> Self {
        let claim = reservation.spec.claim_ref.as_ref();
        let claim_uid = match claim {
            Some(claim) => claim.uid.as_deref().map(Uid::of),
            None => None,
        };
        let quarantine = reservation.spec.quarantine.as_ref();
        Self {
            uid: ObjectUid::of(reservation.metadata.uid.as_deref().unwrap_or_default()),
            stamp,
            pool,
            claim: claim.map(|claim| NamespacedName::new(&claim.namespace, &claim.name)),
            claim_uid,
            cluster,
            is_observed,
            released_at: second_of(reservation.spec.released_at.as_ref()),
            quarantined_until: second_of(quarantine.map(|quarantine| &quarantine.until)),
            is_remembered: false,
            was_used: false,
            is_terminating: reservation.metadata.deletion_timestamp.is_some(),
            lacks_label: reservation.needs_move_label(),
            is_ready: reservation.is_ready(),
        }
    }

    /// When it was last seen, and its uid.
    pub(crate) fn known(&self) -> Known {
        Known {
            uid: self.uid.uid(),
            stamp: self.stamp,
        }
    }

    /// The state of the object that this describes.
    pub(crate) fn seen(&self) -> ObjectVersion {
        ObjectVersion {
            uid: self.uid.uid(),
            version: self.stamp.version(),
        }
    }

    /// Whether a user created it, to exclude the address or to promise it to a claim by name: it
    /// has no claim uid.
    pub(crate) fn is_manual(&self) -> bool {
        self.claim_uid.is_none()
    }

    /// Whether the status has to report that the reservation has an effect: it says the contrary,
    /// or a user created it.
    pub(crate) fn needs_ready(&self) -> bool {
        let is_new = self.is_ready.is_none() && self.is_manual() && !self.is_terminating;
        is_new || self.is_ready == Some(false)
    }

    /// Whether a claim has the reservation: it is neither created by a user nor released.
    pub(crate) fn is_held(&self) -> bool {
        !self.is_manual() && self.released_at.is_none()
    }
}

impl AddressUsage {
    pub(crate) fn is_free(&self) -> bool {
        self.reservation.is_none() && self.is_unused()
    }

    /// Whether nothing but a reservation uses the address.
    pub(crate) fn is_unused(&self) -> bool {
        self.owners.is_empty() && !self.is_held()
    }

    /// Whether the address is proposed, or held in another scope or by another object.
    fn is_held(&self) -> bool {
        self.candidate.is_some() || self.elsewhere > 0 || self.is_name_taken
    }

    /// The reservation of a released address of a pool that only keeps the address for the next
    /// claim of this name. The watch of IPAddresses can still show that of the last claim: the next
    /// one has the same name, and cannot be bound before it is gone.
    pub(crate) fn kept_for_next(
        &self,
        pool: &PoolKey,
        claim: &NamespacedName,
    ) -> Option<&ReservationInfo> {
        let reservation = self.reservation.as_ref()?;
        let is_kept = reservation.pool == *pool && !reservation.is_terminating;
        let is_of_another = self.owners.iter().any(|owner| owner.name != *claim);
        (is_kept && !is_of_another && !self.is_held()).then_some(reservation)
    }

    /// Whether the address can be allocated.
    pub(crate) fn availability(&self) -> Availability {
        if self.is_free() {
            return Availability::Free;
        }
        // An address that is only kept for the next claim of a name can be allocated to others.
        if self.is_unused()
            && let Some(reservation) = &self.reservation
            && reservation.is_remembered
            && let Some(since) = reservation.released_at
        {
            return Availability::Remembered(since.get());
        }
        Availability::Taken
    }

    /// Whether the address is in use by a claim of the pool: it has an IPAddress, or is reserved
    /// for a claim.
    pub(crate) fn is_in_use_of(&self, pool: &PoolKey) -> bool {
        match &self.reservation {
            Some(reservation) if reservation.pool == *pool && reservation.is_held() => true,
            _ => self.has_address_of(pool),
        }
    }

    /// Whether an IPAddress of the pool has this address.
    pub(crate) fn has_address_of(&self, pool: &PoolKey) -> bool {
        self.owners.iter().any(|owner| owner.pool == *pool)
    }

    /// Whether a claim has an IPAddress with this address.
    pub(crate) fn is_owned_by(&self, claim: &NamespacedName) -> bool {
        self.owners.iter().any(|owner| owner.name == *claim)
    }

    /// Whether anything other than this claim uses the address.
    pub(crate) fn is_of_another(&self, claim: &NamespacedName) -> bool {
        if let Some(reservation) = &self.reservation
            && reservation.claim.as_ref() != Some(claim)
        {
            return true;
        }
        self.candidate.is_some() || self.owners.iter().any(|owner| owner.name != *claim)
    }

    /// How often a pool holds the address: by a reservation, and by a candidate.
    pub(crate) fn holds_of(&self, pool: &PoolKey) -> usize {
        let mut holds = 0_usize;
        if let Some(reservation) = &self.reservation
            && reservation.pool == *pool
        {
            holds += 1;
        }
        if self.candidate_pool() == Some(pool) {
            holds += 1;
        }
        holds
    }

    /// Counts a hold of this address in another scope that was added or removed.
    pub(crate) fn count_elsewhere(&mut self, is_added: bool) {
        let count = self.elsewhere;
        self.elsewhere = if is_added {
            count.saturating_add(1)
        } else {
            count.saturating_sub(1)
        };
    }

    /// The pool that holds the address for a claim whose reservation is being created.
    pub(crate) fn candidate_pool(&self) -> Option<&PoolKey> {
        self.candidate.as_ref().map(|candidate| &candidate.pool)
    }

    /// Whether the address has no reservation, and one can be created.
    pub(crate) fn is_unreserved(&self) -> bool {
        self.reservation.is_none() && self.candidate.is_none() && !self.is_name_taken
    }

    /// The release, if the address is released and has a reservation, or the quarantine of an address
    /// that is not in use: that of an address in use ends with the use. One that is being deleted is
    /// not released a second time, and nobody can take it over. One whose last state is not valid
    /// may have been taken over in that state: it is kept until it is corrected or deleted.
    pub(crate) fn release(&self) -> Option<Released> {
        let reservation = self.reservation.as_ref()?;
        if reservation.is_terminating || self.is_name_taken {
            return None;
        }
        let (period, second) = match (reservation.quarantined_until, reservation.released_at) {
            (_, Some(released_at)) if !self.owners.is_empty() => (Period::InUse, released_at),
            (Some(until), _) if self.owners.is_empty() => (Period::Quarantined, until),
            (_, Some(released_at)) if reservation.is_remembered => {
                (Period::Remembered, released_at)
            }
            (_, Some(released_at)) => (Period::CoolingDown, released_at),
            (_, None) => return None,
        };
        Some(Released {
            pool: reservation.pool.clone(),
            period,
            second: second.get(),
        })
    }

    /// The claims that use the address or have reserved it, and the pool of each. An IPAddress
    /// without a reservation counts too, unless its reservation is being moved to this scope. So
    /// does that of a claim whose address a user promised; the promise alone does not: the
    /// namespace does not use the address yet, and cannot release it.
    pub(crate) fn charges(&self) -> Vec<(PoolKey, Consumer)> {
        let mut charges = Vec::new();
        let holder = self.holder();
        if let Some((reservation, claim)) = holder {
            let owner = self.owners.iter().find(|owner| owner.name == *claim);
            // The Cluster of the IPAddress, if the reservation names none.
            let cluster = match &reservation.cluster {
                Some(cluster) => Some(cluster),
                None => owner.and_then(|owner| owner.cluster.as_ref()),
            };
            let consumer = Consumer::new(claim.clone(), cluster.map(SharedName::text));
            charges.push((reservation.pool.clone(), consumer));
        }
        for owner in &self.owners {
            let is_counted = match holder {
                Some((reservation, claim)) => {
                    owner.name != *claim || owner.pool != reservation.pool
                }
                None => self.elsewhere == 0,
            };
            if is_counted {
                let cluster = owner.cluster.as_ref().map(SharedName::text);
                let consumer = Consumer::new(owner.name.clone(), cluster);
                charges.push((owner.pool.clone(), consumer));
            }
        }
        if let Some(candidate) = &self.candidate
            && let Some(consumer) = &candidate.consumer
        {
            charges.push((candidate.pool.clone(), consumer.clone()));
        }
        charges
    }

    /// The reservation that a claim has, and the claim. One that is being deleted is released.
    fn holder(&self) -> Option<(&ReservationInfo, &NamespacedName)> {
        let reservation = self.reservation.as_ref()?;
        if !reservation.is_held() || reservation.is_terminating {
            return None;
        }
        Some((reservation, reservation.claim.as_ref()?))
    }

    /// The pools whose IPAddress objects have this address, in order.
    pub(crate) fn pools(&self) -> SmallVec<[PoolKey; 1]> {
        let owners = self.owners.iter();
        let mut pools: SmallVec<[PoolKey; 1]> = owners.map(|owner| owner.pool.clone()).collect();
        pools.sort_unstable();
        pools.dedup();
        pools
    }

    /// The claim to which a user promised the address.
    pub(crate) fn promised_to(&self) -> Option<&NamespacedName> {
        match &self.reservation {
            Some(reservation) if reservation.is_manual() => reservation.claim.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn set_reservation(&mut self, mut reservation: ReservationInfo) {
        // What was observed of an earlier state stays known, unless another claim took it over.
        if let Some(known) = &self.reservation
            && known.uid == reservation.uid
            && known.claim_uid == reservation.claim_uid
        {
            reservation.is_observed |= known.is_observed;
            reservation.was_used |= known.was_used;
        }
        if let Some(claim) = &reservation.claim
            && let Some(owner) = self.owners.iter().find(|owner| owner.name == *claim)
        {
            // Shared to save memory: there is one for each claim.
            reservation.claim = Some(owner.name.clone());
            reservation.was_used = true;
        }
        self.reservation = Some(reservation);
    }

    pub(crate) fn insert_address(&mut self, mut owner: AddressOwner) {
        if let Some(reservation) = &mut self.reservation
            && let Some(claim) = &reservation.claim
            && *claim == owner.name
        {
            // Shared to save memory: there is one for each claim.
            owner.name = claim.clone();
            reservation.was_used = true;
        }
        for present in &mut self.owners {
            if present.name == owner.name {
                *present = owner;
                return;
            }
        }
        self.owners.push(owner);
    }

    /// Records in which list the IPAddress of a name was last shown.
    pub(crate) fn set_list(&mut self, name: &NamespacedName, list: ListNumber) {
        for owner in &mut self.owners {
            if owner.name == *name {
                owner.list = list;
            }
        }
    }

    pub(crate) fn remove_address(&mut self, name: &NamespacedName) {
        self.owners.retain(|owner| owner.name != *name);
    }
}

/// The last address of a block: the last one of all blocks in it, in their order.
fn last_address(block: Block) -> Block {
    Block::address(block.family().address(block.span().last()))
}
