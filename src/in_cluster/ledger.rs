//! Who holds what: an index in memory of all addresses in use, of the free ones, and of the claims that wait.
//!
//! It is fed by watches and by the answers to our own writes, and never written to the API server. It may lag behind;
//! then it proposes an address that is taken, which the API server refuses.
//!
//! An address is looked up in its scope: a pool, or the network that several pools name. What is taken in a scope is
//! taken for all its pools. Single addresses and whole prefixes are the same to the ledger: blocks of some length.

mod pool_info;
mod wait_queue;
mod events;
mod overlaps;
mod pool;
mod queries;
mod state;
mod usage;
mod tombstones;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

pub use self::pool_info::PoolInfo;
use self::wait_queue::WaitQueue;
pub use self::wait_queue::{ClaimKey, Priority, priority};
pub(super) use self::events::holding;
pub use self::overlaps::MAX_OVERLAPS;
pub use self::queries::{Conflict, CooledDown, Suspect, Unclaimed, Unreserved, InvalidReservation};
use self::state::{Source, State};
pub(super) use self::usage::Origin;
use capi_ipam_controller::controller::Trigger;
use capi_ipam_provider::api::{IPAddressClaim, Uid};

use crate::api::{InClusterKind, IPReservation, names, Pool, PoolKey, Slot};

/// The index. All methods are quick and never block on anything but each other.
pub struct Ledger {
    state: Mutex<State>,
    claims: Box<dyn Fn(&ClaimKey) + Send + Sync>,
    pools: Box<dyn Fn(&PoolKey) + Send + Sync>,
    cooldowns: Notify,
    catching_up: AtomicBool,
}

/// How many attempts without an answer are remembered.
const MAX_ATTEMPTS: usize = 10_000;

/// A listing of all reservations by which a ledger that is far behind catches up. Only one is under way at a time.
#[derive(Debug)]
pub struct CatchUp<'a>(&'a AtomicBool);

impl Drop for CatchUp<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What the ledger proposes to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// This address seems free, and is not proposed to anybody else until it is given back or found taken.
    Slot(Slot),
    /// There is none for this claim now; it waits in line and will be woken.
    Wait,
}

/// What the ledger knows of the pool of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolLookup {
    /// The pool is there.
    Found(PoolInfo),
    /// There is none, and the claim asks for the first time: pool and claim may have been made in the same moment and
    /// be seen in the other order.
    NotSeenYet,
    /// There is none, and there was none before.
    Missing,
}

impl Ledger {
    /// An empty ledger that wakes claims whose turn it is and pools whose counts changed.
    pub fn new(claims: Trigger<IPAddressClaim>, pools: impl Fn(&PoolKey) + Send + Sync + 'static) -> Self {
        let wake = move |(namespace, name): &ClaimKey| claims.wake(Some(namespace), name);
        Self {
            state: Mutex::default(),
            claims: Box::new(wake),
            pools: Box::new(pools),
            cooldowns: Notify::new(),
            catching_up: AtomicBool::new(false),
        }
    }

    /// An empty ledger that only answers questions.
    pub fn read_only() -> Self {
        Self {
            state: Mutex::default(),
            claims: Box::new(|_| {}),
            pools: Box::new(|_| {}),
            cooldowns: Notify::new(),
            catching_up: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake<'a>(&self, claims: impl IntoIterator<Item = &'a ClaimKey>) {
        claims.into_iter().for_each(|claim| (self.claims)(claim));
    }

    /// Changes the index, then serves the lines of all pools concerned: whatever freed an address, those whose turn it
    /// is are woken. The controllers of these pools are told, once until they look.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, called, touched, cooldowns_changed) = {
            let mut state = self.lock();
            let result = change(&mut state);
            let cooldowns_changed = std::mem::take(&mut state.cooldowns_changed);
            let mut touched = std::mem::take(&mut state.touched);
            touched.sort_unstable();
            touched.dedup();
            let mut called = std::mem::take(&mut state.unblocked);
            let now = Instant::now();
            touched.retain(|pool| {
                let Some(entry) = state.pools.get_mut(pool) else { return true };
                called.extend(entry.grant_turns(now));
                let is_news = !std::mem::replace(&mut entry.told, true);
                if entry.is_empty() {
                    state.pools.remove(pool);
                }
                is_news
            });
            (result, called, touched, cooldowns_changed)
        };
        if cooldowns_changed {
            self.cooldowns.notify_one();
        }
        self.wake(&called);
        touched.iter().for_each(|pool| (self.pools)(pool));
        result
    }

    /// Allows a listing of all reservations for as long as the value lives; `None` while another one is under way.
    pub fn begin_catch_up(&self) -> Option<CatchUp<'_>> {
        let was_idle = !self.catching_up.swap(true, Ordering::AcqRel);
        was_idle.then_some(CatchUp(&self.catching_up))
    }

    /// Waits until a cool-down begins, ends, or may end at another time. A change that came before counts too.
    pub async fn cooldowns_changed(&self) {
        self.cooldowns.notified().await;
    }

    /// What is known of a pool for a claim. A claim that cannot be served now is remembered, and woken when the pool
    /// changes.
    pub fn pool_for(&self, pool: &PoolKey, claim: &ClaimKey, priority: Priority) -> PoolLookup {
        let mut state = self.lock();
        let entry = state.pools.entry(pool.clone()).or_default();
        let facts = entry.facts.clone();
        let serves = facts.as_ref().is_some_and(PoolInfo::serves);
        let first_time = !serves && entry.line.block(claim, priority);
        match facts {
            Some(facts) => PoolLookup::Found(facts),
            None if first_time => PoolLookup::NotSeenYet,
            None => PoolLookup::Missing,
        }
    }

    /// Proposes the lowest free address that no claim before this one has a right to, and marks it as taken.
    pub fn propose(&self, pool: &PoolKey, claim: &ClaimKey, priority: Priority) -> Proposal {
        self.change(|state| state.propose(pool, claim, priority, Instant::now()))
    }

    /// Marks an address that a claim has already as about to be reserved, until it is given back or found taken. Returns
    /// whether it was not marked before.
    pub fn announce(&self, pool: &PoolKey, slot: &Slot) -> bool {
        self.change(|state| state.announce(pool, slot))
    }

    /// Gives a proposal back: the address is marked as free again unless it was found to be reserved.
    pub fn withdraw(&self, slot: &Slot) {
        self.change(|state| state.withdraw(slot));
    }

    /// Records that the claim of that uid tried to reserve an address and got no answer: the reservation may exist.
    pub fn remember_attempt(&self, claim: Uid, pool: &PoolKey, slot: &Slot) {
        let attempts = &mut self.lock().attempts;
        // Only claims that are gone leave theirs behind.
        if attempts.len() >= MAX_ATTEMPTS {
            attempts.clear();
        }
        attempts.insert(claim, (pool.clone(), slot.clone()));
    }

    /// The address of the pool that the claim of that uid tried to reserve last without an answer. Forgotten by this call.
    pub fn take_attempt(&self, claim: Uid, pool: &PoolKey) -> Option<Slot> {
        let (from, slot) = self.lock().attempts.remove(&claim)?;
        (from == *pool).then_some(slot)
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
            entry.grant_turns(Instant::now())
        };
        self.wake(&called);
    }

    /// The claim waits no longer.
    fn leave_line(&self, pool: &PoolKey, claim: &ClaimKey) {
        let called = {
            let mut state = self.lock();
            let Some(entry) = state.pools.get_mut(pool) else { return };
            entry.line.leave(claim);
            let called = entry.grant_turns(Instant::now());
            if entry.is_empty() {
                state.pools.remove(pool);
            }
            called
        };
        self.wake(&called);
    }

    /// Serves all lines once more: a claim that was called and does not come has its address kept for it only for a while.
    /// Claims that do not exist are taken out of line.
    pub fn prune_wait_queues(&self, exists: impl Fn(&ClaimKey) -> bool) {
        let called: Vec<ClaimKey> = {
            let mut state = self.lock();
            let entries = state.pools.values_mut();
            let now = Instant::now();
            entries
                .flat_map(|entry| {
                    let gone: Vec<ClaimKey> = entry.line.claims().filter(|claim| !exists(claim)).cloned().collect();
                    gone.iter().for_each(|claim| entry.line.leave(claim));
                    entry.grant_turns(now)
                })
                .collect()
        };
        self.wake(&called);
    }

    /// The controller of a pool looks at it now, and is to be told of what changes from here on.
    pub fn look(&self, pool: &PoolKey) {
        self.set_told(pool, false);
    }

    /// The controller of a pool will look again by itself, and need not be told of anything before.
    pub fn will_look(&self, pool: &PoolKey) {
        self.set_told(pool, true);
    }

    fn set_told(&self, pool: &PoolKey, told: bool) {
        if let Some(entry) = self.lock().pools.get_mut(pool) {
            entry.told = told;
        }
    }

    /// Records a reservation as the answer to a call showed it. Ignored when something newer is known: that this
    /// reservation ended, or a later state of its name.
    pub fn insert_reservation(&self, reservation: &IPReservation) {
        self.insert(reservation, Source::Call);
    }

    /// Records a reservation as its watch reports it.
    fn observe_reservation(&self, reservation: &IPReservation) {
        self.insert(reservation, Source::Watch);
    }

    fn insert(&self, reservation: &IPReservation, source: Source) {
        let promised_to = self.change(|state| state.insert(reservation, source));
        self.wake(&promised_to);
    }

    /// Forgets a reservation, unless another one has taken its name since. Claims that have an IPAddress with this very
    /// address are woken: one may have been waiting for the other to go.
    pub fn remove_reservation(&self, reservation: &IPReservation) {
        if let Some(slot) = self.change(|state| state.remove(reservation)) {
            self.wake(&self.holders(&slot));
        }
    }

    /// Forgets the reservation of an address if it has that uid.
    pub fn remove_reservation_of(&self, slot: &Slot, uid: &str) {
        self.change(|state| state.remove_reserved(slot, Some(Uid::of(uid))));
        self.wake(&self.holders(slot));
    }

    fn apply_pool<P: Pool>(&self, pool: &P) {
        let key = PoolKey::of(pool);
        let known = self.lock().pools.get(&key).and_then(|entry| entry.object.clone());
        let facts = PoolInfo::after(known.as_ref(), pool);
        let blocked = self.change(|state| {
            let listing = state.listings.of_kind(P::KIND).map_or(0, |listing| *listing);
            let key = state.shared_key(key);
            let entry = state.pools.entry(key.clone()).or_default();
            entry.listing = listing;
            if entry.object.as_ref() == Some(&facts) {
                return Vec::new();
            }
            state.set_pool(&key, Some(facts));
            state.pools.get_mut(&key).map(|entry| entry.line.unblock()).unwrap_or_default()
        });
        self.wake(&blocked);
    }

    fn remove_pool(&self, key: &PoolKey) {
        let blocked = self.change(|state| {
            if !state.pools.contains_key(key) {
                return Vec::new();
            }
            state.set_pool(key, None);
            state.pools.get_mut(key).map(|entry| entry.line.unblock()).unwrap_or_default()
        });
        self.wake(&blocked);
    }

    fn pools_listed(&self, kind: InClusterKind) {
        let gone: Vec<PoolKey> = {
            let mut state = self.lock();
            let newest = state.listings.of_kind(kind).map_or(0, |listing| *listing);
            let concerned = state.pools.iter().filter(|(key, entry)| key.kind == kind && entry.facts.is_some());
            concerned.filter(|(_, entry)| entry.listing != newest).map(|(key, _)| key.clone()).collect()
        };
        gone.iter().for_each(|key| self.remove_pool(key));
    }
}

/// Whether an object carries the annotation that pauses it.
fn is_paused<K: kube::Resource>(object: &K) -> bool {
    object.meta().annotations.as_ref().is_some_and(|all| all.contains_key(names::PAUSED_ANNOTATION))
}

#[cfg(test)]
mod tests;
