//! The ledger of this process, which all tasks share: the lock, and what a change asks others to
//! do.
//!
//! The lock is held for a short time and never while something else is awaited or called. So the
//! ledger is lent to closures, and no guard is handed out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capi_ipam_api::{InClusterKind, Pool, PoolKey, PoolSetKey, Slot};
use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::Origin;
use capi_ipam_controller::watch::{EventHandler, Invalid};
use capi_ipam_ledger::{Effects, Ledger, Observe, PoolInfo};
use capi_ipam_provider::api::IPAddressClaim;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum number of addresses in use that are remembered without their reservation.
const MAX_UNRESERVED: usize = 10_000;

/// Enqueues an object.
type Enqueue<T> = Box<dyn Fn(&T) + Send + Sync>;

/// The ledger, and who is notified of its changes.
pub struct SharedLedger {
    ledger: Mutex<Ledger>,
    claims: Enqueue<NamespacedName>,
    rechecks: Enqueue<NamespacedName>,
    pools: Enqueue<PoolKey>,
    sets: Enqueue<PoolSetKey>,
    networks: Enqueue<str>,
    cooldowns: Notify,
    scopes: Notify,
    /// Notified when a pool was shown with fewer fields than before.
    fields_lost: Notify,
    /// Notified when claims have to be rechecked.
    rechecks_added: Notify,
    /// Addresses in use whose reservation was deleted.
    unreserved: Mutex<Vec<Slot>>,
    unreserved_added: Notify,
    catching_up: AtomicBool,
}

/// The permission to list all reservations, for a ledger that lags far behind. There is only one at
/// a time.
#[derive(Debug)]
pub(super) struct CatchUp<'a>(&'a AtomicBool);

impl Drop for CatchUp<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl SharedLedger {
    /// Creates an empty ledger. It enqueues claims with `claims`, and calls `pools` with pools
    /// whose counts or conditions may have changed, and `sets` and `networks` with sets and networks
    /// for which this is the case.
    pub(super) fn new(
        claims: Trigger<IPAddressClaim>,
        pools: impl Fn(&PoolKey) + Send + Sync + 'static,
        sets: impl Fn(&PoolSetKey) + Send + Sync + 'static,
        networks: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let recheck = claims.clone();
        Self {
            claims: Box::new(move |claim| claims.enqueue(claim.clone())),
            rechecks: Box::new(move |claim| recheck.enqueue_after(claim.clone(), Duration::ZERO)),
            pools: Box::new(pools),
            sets: Box::new(sets),
            networks: Box::new(networks),
            ..Self::read_only()
        }
    }

    /// Creates an empty ledger that only answers queries and triggers nothing.
    pub(super) fn read_only() -> Self {
        Self {
            ledger: Mutex::new(Ledger::shared()),
            claims: Box::new(|_| {}),
            rechecks: Box::new(|_| {}),
            pools: Box::new(|_| {}),
            sets: Box::new(|_| {}),
            networks: Box::new(|_| {}),
            cooldowns: Notify::new(),
            scopes: Notify::new(),
            fields_lost: Notify::new(),
            rechecks_added: Notify::new(),
            unreserved: Mutex::default(),
            unreserved_added: Notify::new(),
            catching_up: AtomicBool::new(false),
        }
    }

    /// Reads the ledger.
    pub fn read<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        read(&self.ledger.lock())
    }

    /// Changes the ledger, and computes the networks of the pools that this affects. That can be
    /// all pools: the lock is released between two steps of about a millisecond, so a claim of
    /// another pool does not wait for all of them.
    pub fn change<R>(&self, change: impl FnOnce(&mut Ledger) -> R) -> R {
        let (result, mut has_more) = self.change_once(change);
        while has_more {
            ((), has_more) = self.change_once(Ledger::refresh);
        }
        result
    }

    /// Changes what the ledger knows of one claim, or of the controller of one pool. This affects
    /// no network, so nothing else is computed.
    pub(super) fn note<R>(&self, change: impl FnOnce(&mut Ledger) -> R) -> R {
        let (result, _) = self.change_once(change);
        result
    }

    /// Changes the ledger and does what the change asks for, after the lock is released. Returns
    /// also whether networks of pools have to be computed again.
    fn change_once<R>(&self, change: impl FnOnce(&mut Ledger) -> R) -> (R, bool) {
        let (result, effects) = {
            let mut ledger = self.ledger.lock();
            let result = change(&mut ledger);
            (result, ledger.take_effects())
        };
        let has_more = effects.has_queued_refreshes;
        self.dispatch(&effects);
        (result, has_more)
    }

    fn dispatch(&self, effects: &Effects) {
        if effects.has_rechecks {
            self.rechecks_added.notify_one();
        }
        if effects.cooldowns_changed {
            self.cooldowns.notify_one();
        }
        if effects.scopes_changed {
            self.scopes.notify_one();
        }
        if effects.has_lost_fields {
            self.fields_lost.notify_one();
        }
        if !effects.unreserved.is_empty() {
            let mut unreserved = self.unreserved.lock();
            // The sweeper finds the others.
            let room = MAX_UNRESERVED.saturating_sub(unreserved.len());
            unreserved.extend(effects.unreserved.iter().take(room).cloned());
            self.unreserved_added.notify_one();
        }
        for claim in &effects.claims {
            (self.claims)(claim);
        }
        for pool in &effects.pools {
            (self.pools)(pool);
        }
        for set in &effects.sets {
            (self.sets)(set);
        }
        for network in &effects.networks {
            (self.networks)(network);
        }
    }

    /// Enqueues a pool for its controller.
    pub(super) fn notify_pool(&self, pool: &PoolKey) {
        (self.pools)(pool);
    }

    /// Waits until the reservation of an address in use was deleted. Returns immediately if this
    /// happened since the last call.
    pub(super) async fn unreserved_added(&self) {
        self.unreserved_added.notified().await;
    }

    /// The addresses in use whose reservation was deleted since the last call.
    pub(super) fn take_unreserved(&self) -> Vec<Slot> {
        std::mem::take(&mut self.unreserved.lock())
    }

    /// Permits a list of all reservations, until the returned value is dropped; `None` while
    /// another list is permitted.
    pub(super) fn begin_catch_up(&self) -> Option<CatchUp<'_>> {
        let was_idle = !self.catching_up.swap(true, Ordering::AcqRel);
        was_idle.then_some(CatchUp(&self.catching_up))
    }

    /// Waits until a cool-down has started or ended, or its end may have changed. Returns
    /// immediately if this happened since the last call.
    pub(super) async fn cooldowns_changed(&self) {
        self.cooldowns.notified().await;
    }

    /// Waits until reservations may have to be moved to another scope. Returns immediately if this
    /// happened since the last call.
    pub(super) async fn scopes_changed(&self) {
        self.scopes.notified().await;
    }

    /// Waits until a pool was shown with fewer fields than before. Returns immediately if this
    /// happened since the last call.
    pub(super) async fn fields_lost(&self) {
        self.fields_lost.notified().await;
    }

    /// Waits until claims have to be rechecked, because their pool can no longer allocate. Returns
    /// immediately if this happened since the last call.
    pub(super) async fn rechecks_added(&self) {
        self.rechecks_added.notified().await;
    }

    /// Enqueues at most `most` claims that have to be rechecked, at low priority. Returns whether
    /// there are others.
    pub(super) fn recheck(&self, most: usize) -> bool {
        let (claims, has_others) = self.ledger.lock().take_rechecks(most);
        for claim in &claims {
            (self.rechecks)(claim);
        }
        has_others
    }

    /// Records a pool that a response has shown. Ignored if the ledger has newer information.
    pub(super) fn insert_pool(&self, pool: &Pool) {
        self.record_pool(pool, Origin::Response);
    }

    /// Records a pool. Its addresses are parsed without holding the lock.
    fn record_pool(&self, pool: &Pool, origin: Origin) {
        let known = self.read(|ledger| ledger.pools().declared_pool(&PoolKey::of(pool)));
        let info = PoolInfo::updated(known.as_deref(), pool);
        self.change(|ledger| ledger.record_pool(pool, info, origin));
    }

    /// The pools of other scopes that can allocate an address of this one, as
    /// [`Ledger::overlapping`], for the status of the pool: a change of them notifies its
    /// controller. They are compared without holding the lock.
    pub(super) fn overlapping(&self, pool: &PoolKey) -> Vec<PoolKey> {
        let Some((usable, nearby)) =
            self.note(|ledger| ledger.pools_mut().begin_overlap_search(pool))
        else {
            return Vec::new();
        };
        let found = nearby.overlapping(&usable);
        self.note(|ledger| ledger.pools_mut().end_overlap_search(pool, &found));
        found
    }
}

impl<K> EventHandler<K> for SharedLedger
where
    Ledger: Observe<K>,
{
    fn init(&self) {
        self.note(Observe::<K>::init);
    }

    fn init_done(&self) {
        self.change(Observe::<K>::init_done);
    }

    fn restored(&self) {
        self.note(Observe::<K>::restored);
    }

    fn apply(&self, object: &K) {
        self.change(|ledger| ledger.apply(object));
    }

    fn delete(&self, object: &K) {
        self.change(|ledger| ledger.delete(object));
    }

    fn apply_invalid(&self, object: &Invalid) {
        self.change(|ledger| ledger.apply_invalid(object));
    }

    fn delete_invalid(&self, object: &Invalid) {
        self.change(|ledger| ledger.delete_invalid(object));
    }
}

/// The event handler of the pools of one kind. It updates the ledger.
pub(super) struct PoolEventHandler {
    /// The ledger to update.
    pub(super) ledger: Arc<SharedLedger>,
    /// The kind of the pools.
    pub(super) kind: InClusterKind,
}

impl EventHandler<Pool> for PoolEventHandler {
    fn init(&self) {
        self.ledger.note(|ledger| ledger.begin_pool_list(self.kind));
    }

    /// Removes the pools one by one, since each of them can have many addresses.
    fn init_done(&self) {
        let missing = self
            .ledger
            .note(|ledger| ledger.pools_mut().unlisted(self.kind));
        for key in &missing {
            self.ledger.change(|ledger| ledger.remove_pool(key));
        }
        self.ledger
            .change(|ledger| ledger.complete_pool_list(self.kind));
    }

    fn restored(&self) {
        self.ledger
            .note(|ledger| ledger.pools_mut().restored(self.kind));
    }

    fn apply(&self, pool: &Pool) {
        self.ledger.record_pool(pool, Origin::Watch);
    }

    fn delete(&self, pool: &Pool) {
        self.ledger
            .change(|ledger| ledger.delete_pool(&PoolKey::of(pool), &pool.metadata));
    }

    fn apply_invalid(&self, object: &Invalid) {
        let key = self.key_of(object);
        self.ledger
            .change(|ledger| ledger.apply_invalid_pool(&key, object));
    }

    fn delete_invalid(&self, object: &Invalid) {
        let key = self.key_of(object);
        self.ledger
            .change(|ledger| ledger.delete_pool(&key, &object.metadata));
    }
}

impl PoolEventHandler {
    fn key_of(&self, object: &Invalid) -> PoolKey {
        let metadata = &object.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        PoolKey::new(self.kind, metadata.namespace.as_deref(), name)
    }
}
