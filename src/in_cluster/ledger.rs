//! Who holds what: an index in memory of all addresses in use, of the free ones, and of the claims that wait.
//!
//! It is fed by watches and by the answers to our own writes, and never written to the API server. It may lag behind;
//! then it proposes an address that is taken, which the API server refuses.

mod facts;
mod line;
mod observe;
mod pool;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub use self::facts::PoolFacts;
use self::line::Line;
pub use self::line::{ClaimKey, Ticket, ticket};
use self::pool::{PoolEntry, Reserved};
use super::key::PoolKey;
use super::reservation::slot;
use crate::api::{AddressCounts, IPAddressClaim, IPReservation, Pool, Uid, names};
use crate::runtime::controller::Waker;

/// The index. All methods are quick and never block on anything but each other.
pub struct Ledger {
    state: Mutex<State>,
    claims: Waker<IPAddressClaim>,
    pools: Box<dyn Fn(&PoolKey) + Send + Sync>,
}

#[derive(Default)]
struct State {
    pools: HashMap<PoolKey, PoolEntry>,
    /// Reservations by the uid of the claim that holds them.
    held: HashMap<Uid, Vec<Slot>>,
    /// Reservations promised to a claim by name.
    promised: HashMap<ClaimKey, Vec<Slot>>,
    listings: Listings,
}

/// Counters of full listings, one for each kind; what an older listing named and the newest does not is gone.
#[derive(Default)]
struct Listings {
    addresses: u32,
    reservations: u32,
    namespaced_pools: u32,
    global_pools: u32,
}

/// An address of a pool.
pub type Slot = (PoolKey, IpAddr);

/// What the ledger proposes to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// This address seems free, and is not proposed to anybody else until it is given back or found taken.
    Address(IpAddr),
    /// There is none for this claim now; it waits in line and will be woken.
    Wait,
}

/// What the ledger knows of the pool of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolLookup {
    /// The pool is there.
    Found(PoolFacts),
    /// There is none, and the claim asks for the first time: pool and claim may have been made in the same moment and
    /// be seen in the other order.
    NotSeenYet,
    /// There is none, and there was none before.
    Missing,
}

/// An address without anybody who has a right to it, as far as the ledger knows. To be checked against the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Suspect {
    /// A reservation held by a claim.
    Reservation {
        /// Pool and address.
        slot: Slot,
        /// The claim that holds it.
        claim: ClaimKey,
        /// That claim's uid.
        uid: Uid,
    },
    /// An IPAddress, by the namespace and name that its claim had.
    Address {
        /// Pool and address.
        slot: Slot,
        /// Namespace and name.
        claim: ClaimKey,
    },
}

impl Ledger {
    /// An empty ledger that wakes claims whose turn it is and pools whose counts changed.
    pub fn new(claims: Waker<IPAddressClaim>, pools: impl Fn(&PoolKey) + Send + Sync + 'static) -> Self {
        Self { state: Mutex::default(), claims, pools: Box::new(pools) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, claims: impl IntoIterator<Item = ClaimKey>) {
        for (namespace, name) in claims {
            self.claims.wake(Some(&namespace), &name);
        }
    }

    /// Changes a pool's entry, then serves its line: whatever freed an address, those whose turn it is are woken.
    fn change<R>(&self, pool: &PoolKey, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, called) = {
            let mut state = self.lock();
            let result = change(&mut state);
            let entry = state.pools.get_mut(pool);
            (result, entry.map(|entry| entry.serve_line(Instant::now())).unwrap_or_default())
        };
        self.wake(called);
        (self.pools)(pool);
        result
    }

    /// What is known of a pool for a claim. A claim that cannot be served now is remembered, and woken when the pool
    /// changes.
    pub fn pool_for(&self, pool: &PoolKey, claim: &ClaimKey, ticket: Ticket) -> PoolLookup {
        let mut state = self.lock();
        let entry = state.pools.entry(pool.clone()).or_default();
        let facts = entry.facts.clone();
        let serves = facts.as_ref().is_some_and(PoolFacts::serves);
        let first_time = !serves && entry.line.block(claim, ticket);
        match facts {
            Some(facts) => PoolLookup::Found(facts),
            None if first_time => PoolLookup::NotSeenYet,
            None => PoolLookup::Missing,
        }
    }

    /// What is known of a pool.
    pub fn facts(&self, pool: &PoolKey) -> Option<PoolFacts> {
        self.lock().pools.get(pool)?.facts.clone()
    }

    /// Proposes the lowest free address that no claim before this one has a right to, and marks it as taken.
    pub fn propose(&self, pool: &PoolKey, claim: &ClaimKey, ticket: Ticket) -> Proposal {
        self.change(pool, |state| match state.pools.get_mut(pool) {
            Some(entry) => entry.propose(claim, ticket, Instant::now()),
            None => Proposal::Wait,
        })
    }

    /// Gives a proposal back: the address is marked as free again unless it was found to be reserved.
    pub fn withdraw(&self, pool: &PoolKey, address: IpAddr) {
        self.change(pool, |state| {
            if let Some(entry) = state.pools.get_mut(pool) {
                entry.update(address, |taken| taken.proposed = false);
            }
        });
    }

    /// The claim begins to be reconciled.
    pub fn attend(&self, pool: &PoolKey, claim: &ClaimKey) {
        if let Some(entry) = self.lock().pools.get_mut(pool) {
            entry.line.attend(claim);
        }
    }

    /// The claim has been reconciled. If it was its turn and it took nothing, the next one in line gets the turn.
    pub fn finished(&self, pool: &PoolKey, claim: &ClaimKey) {
        let called = {
            let mut state = self.lock();
            let Some(entry) = state.pools.get_mut(pool) else { return };
            if !entry.line.missed(claim) {
                return;
            }
            entry.serve_line(Instant::now())
        };
        self.wake(called);
    }

    /// The claim waits no longer.
    fn leave_line(&self, pool: &PoolKey, claim: &ClaimKey) {
        let called = {
            let mut state = self.lock();
            let Some(entry) = state.pools.get_mut(pool) else { return };
            entry.line.leave(claim);
            let called = entry.serve_line(Instant::now());
            if entry.is_empty() {
                state.pools.remove(pool);
            }
            called
        };
        self.wake(called);
    }

    /// The addresses reserved for a claim by uid, and those promised to it by name.
    pub fn reserved_for(&self, claim: &ClaimKey, uid: Uid) -> Vec<Slot> {
        let state = self.lock();
        let held = state.held.get(&uid).into_iter().flatten();
        held.chain(state.promised.get(claim).into_iter().flatten()).cloned().collect()
    }

    /// Remembers a reservation; also called with what a live read showed.
    pub fn insert_reservation(&self, reservation: &IPReservation) {
        let Some((pool, address)) = slot(reservation) else { return };
        let promised_to = self.change(&pool, |state| state.insert_reservation(&pool, address, reservation));
        self.wake(promised_to);
    }

    /// Forgets a reservation, unless another one has taken its name since.
    pub fn remove_reservation(&self, reservation: &IPReservation) {
        let Some((pool, address)) = slot(reservation) else { return };
        self.remove_reservation_of(&(pool, address), reservation.metadata.uid.as_deref().unwrap_or_default());
    }

    /// Whether the address is promised to a claim by name, whichever claim has that name.
    pub fn is_promise(&self, (pool, address): &Slot) -> bool {
        let state = self.lock();
        let reserved = state.pools.get(pool).and_then(|entry| entry.taken(*address)?.reserved.as_ref());
        reserved.is_some_and(|reserved| reserved.claim.is_some() && reserved.claim_uid.is_none())
    }

    /// Forgets the reservation of an address if it has that uid. Claims that have an IPAddress with this very address
    /// are woken: one may have been waiting for the other to go.
    pub fn remove_reservation_of(&self, (pool, address): &Slot, uid: &str) {
        let holders = self.change(pool, |state| {
            state.remove_reservation(pool, *address, Some(Uid::of(uid)));
            state.pools.get(pool).map(|entry| entry.holders(*address)).unwrap_or_default()
        });
        self.wake(holders);
    }

    /// The uid of the reservation of an address, as text.
    pub fn reservation_uid(&self, (pool, address): &Slot) -> Option<String> {
        Some(self.lock().pools.get(pool)?.taken(*address)?.reserved.as_ref()?.uid.to_string())
    }

    /// The pool's counts.
    pub fn counts(&self, pool: &PoolKey) -> AddressCounts {
        self.lock().pools.get(pool).map(PoolEntry::counts).unwrap_or_default()
    }

    /// Whether an address of the pool is in use or about to be.
    pub fn is_in_use(&self, pool: &PoolKey) -> bool {
        self.lock().pools.get(pool).is_some_and(PoolEntry::is_in_use)
    }

    /// How many addresses of the pool are taken in any way.
    pub fn taken(&self, pool: &PoolKey) -> usize {
        self.lock().pools.get(pool).map(PoolEntry::taken_count).unwrap_or_default()
    }

    /// Reservations whose rest is over at the given time, in seconds since 1970, and those whose pool is gone.
    pub fn rested(&self, now: i64) -> Vec<Slot> {
        let state = self.lock();
        let rested = |(key, entry): (&PoolKey, &PoolEntry)| {
            entry.rested(now).into_iter().map(|address| (key.clone(), address)).collect::<Vec<_>>()
        };
        state.pools.iter().flat_map(rested).collect()
    }

    /// Whether any address rests.
    pub fn anything_rests(&self) -> bool {
        self.lock().pools.values().any(PoolEntry::anything_rests)
    }

    /// IPAddress objects without a reservation, by pool, address, namespace and name; at most so many.
    pub fn unreserved(&self, most: usize) -> Vec<(Slot, ClaimKey)> {
        let state = self.lock();
        let in_pool = |(key, entry): (&PoolKey, &PoolEntry)| {
            entry.unreserved().map(|(address, claim)| ((key.clone(), address), claim)).collect::<Vec<_>>()
        };
        state.pools.iter().flat_map(in_pool).take(most).collect()
    }

    /// Everything for which `has_a_right` says no: it is asked with the claim, the uid of the claim that a reservation
    /// names (none for an IPAddress), and whether the claim of that name has an IPAddress with this very address.
    pub fn suspects(&self, has_a_right: impl Fn(&ClaimKey, Option<Uid>, bool) -> bool) -> Vec<Suspect> {
        let state = self.lock();
        let in_pool = |(key, entry): (&PoolKey, &PoolEntry)| entry.suspects(key, &has_a_right);
        state.pools.iter().flat_map(in_pool).collect()
    }

    /// The pools that have an entry, existing or not.
    pub fn known_pools(&self) -> Vec<PoolKey> {
        self.lock().pools.keys().cloned().collect()
    }

    fn apply_pool<P: Pool>(&self, pool: &P) {
        let (key, facts) = (PoolKey::of(pool), PoolFacts::of(pool));
        let blocked = self.change(&key, |state| {
            let listing = state.listings.of_pool(&key);
            let entry = state.pools.entry(key.clone()).or_default();
            entry.listing = listing;
            if entry.facts.as_ref() == Some(&facts) {
                return Vec::new();
            }
            entry.set_facts(Some(facts));
            entry.line.unblock()
        });
        self.wake(blocked);
    }

    fn remove_pool(&self, key: &PoolKey) {
        let blocked = self.change(key, |state| {
            let Some(entry) = state.pools.get_mut(key) else { return Vec::new() };
            entry.set_facts(None);
            let blocked = entry.line.unblock();
            if entry.is_empty() {
                state.pools.remove(key);
            }
            blocked
        });
        self.wake(blocked);
    }

    fn pools_listed(&self, global: bool) {
        let gone: Vec<PoolKey> = {
            let state = self.lock();
            let vanished = |(key, entry): (&PoolKey, &PoolEntry)| {
                let concerned = key.namespace.is_none() == global && entry.facts.is_some();
                (concerned && entry.listing != state.listings.of_pool(key)).then(|| key.clone())
            };
            state.pools.iter().filter_map(vanished).collect()
        };
        gone.iter().for_each(|key| self.remove_pool(key));
    }
}

impl Listings {
    fn of_pool(&self, key: &PoolKey) -> u32 {
        if key.namespace.is_some() { self.namespaced_pools } else { self.global_pools }
    }
}

impl State {
    /// Returns the claim that the address is promised to, if that is news.
    fn insert_reservation(&mut self, pool: &PoolKey, address: IpAddr, reservation: &IPReservation) -> Option<ClaimKey> {
        let known = self.pools.get(pool).and_then(|entry| entry.taken(address)?.reserved.as_ref());
        let is_news = known.is_none_or(|known| Some(&*known.uid) != reservation.metadata.uid.as_deref());
        self.forget_holder(pool, address);
        let listing = self.listings.reservations;
        let reserved = Reserved::of(reservation, listing);
        let slot = (pool.clone(), address);
        let mut promised_to = None;
        if let Some(claim) = reserved.claim.clone().filter(|_| reserved.released_at.is_none()) {
            match reserved.claim_uid {
                Some(uid) => self.held.entry(uid).or_default().push(slot),
                None => {
                    self.promised.entry(claim.clone()).or_default().push(slot);
                    promised_to = Some(claim).filter(|_| is_news);
                }
            }
        }
        let entry = self.pools.entry(pool.clone()).or_default();
        entry.update(address, |taken| {
            taken.proposed = false;
            taken.reserved = Some(reserved);
        });
        promised_to
    }

    fn remove_reservation(&mut self, pool: &PoolKey, address: IpAddr, uid: Option<Uid>) {
        let Some(entry) = self.pools.get(pool) else { return };
        let reserved = entry.taken(address).and_then(|taken| taken.reserved.as_ref());
        if reserved.is_none_or(|reserved| uid.is_some_and(|uid| Uid::of(&reserved.uid) != uid)) {
            return;
        }
        self.forget_holder(pool, address);
        if let Some(entry) = self.pools.get_mut(pool) {
            entry.update(address, |taken| taken.reserved = None);
            if entry.is_empty() {
                self.pools.remove(pool);
            }
        }
    }

    fn forget_holder(&mut self, pool: &PoolKey, address: IpAddr) {
        let Some(reserved) = self.pools.get(pool).and_then(|entry| entry.taken(address)?.reserved.as_ref()) else {
            return;
        };
        let is_it = |slot: &mut Slot| slot.1 == address && slot.0 == *pool;
        if let Some(uid) = reserved.claim_uid
            && let Some(slots) = self.held.get_mut(&uid)
        {
            slots.retain_mut(|slot| !is_it(slot));
            if slots.is_empty() {
                self.held.remove(&uid);
            }
        } else if let Some(claim) = &reserved.claim
            && let Some(slots) = self.promised.get_mut(claim)
        {
            slots.retain_mut(|slot| !is_it(slot));
            if slots.is_empty() {
                self.promised.remove(claim);
            }
        }
    }
}

/// Whether an object carries the annotation that pauses it.
fn is_paused<K: kube::Resource>(object: &K) -> bool {
    object.meta().annotations.as_ref().is_some_and(|all| all.contains_key(names::PAUSED_ANNOTATION))
}

#[cfg(test)]
mod tests;
