//! Pools: their finalizer, counts and conditions.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tracing::{debug, info};

use super::key::{PoolKey, PoolScope};
use super::ledger::{Ledger, PoolFacts};
use super::shared::Shared;
use crate::api::conditions::{self, Condition};
use crate::api::{GlobalInClusterIPPool, InClusterIPPool, Pool, PoolStatus, Uid, names};
use crate::provider::Contract;
use crate::runtime::client::{CallError, Calls};
use crate::runtime::controller::{Attempt, ControllerBuilder, MainWatch, Outcome, Reconciler, Waker};
use crate::runtime::echo::{LONGEST_ECHO, Written};
use crate::runtime::events::EventPublisher;
use crate::runtime::health::Synced;
use crate::runtime::manager::Manager;
use crate::runtime::watch::{GuardedApi, Observer, trim};
use crate::runtime::{clock, finalizer, patch};

/// The status of one pool is written at most this often.
const STATUS_PAUSE: Duration = Duration::from_millis(250);
/// Counts are written this long after they began to change, when the claim that changed them has its address: one write
/// tells of the whole change, and none competes with those that the claim waits for.
const SETTLING: Duration = Duration::from_millis(100);
/// When to look again at a pool that is being deleted and still has reservations.
const DELETION_PAUSE: Duration = Duration::from_secs(5);
/// How many pools of a kind are worked on at the same time.
const CONCURRENCY: u16 = 4;

/// A kind of pool with its two ways to be reached.
pub(super) trait PoolApi: Pool {
    /// The calls for one pool.
    fn calls(client: &Client, key: &PoolKey) -> Calls<Self>;
    /// What to watch.
    fn watched(manager: &Manager) -> GuardedApi<Self>;
}

impl PoolApi for InClusterIPPool {
    fn calls(client: &Client, key: &PoolKey) -> Calls<Self> {
        Calls::new(Api::namespaced(client.clone(), key.namespace.as_deref().unwrap_or_default()), &())
    }
    fn watched(manager: &Manager) -> GuardedApi<Self> {
        manager.watched(&())
    }
}

impl PoolApi for GlobalInClusterIPPool {
    fn calls(client: &Client, _: &PoolKey) -> Calls<Self> {
        Calls::new(Api::all(client.clone()), &())
    }
    fn watched(manager: &Manager) -> GuardedApi<Self> {
        GuardedApi::all(manager.client.clone())
    }
}

/// The controllers of the kinds of pools, before they start.
pub(super) struct Controllers {
    namespaced: ControllerBuilder<InClusterIPPool>,
    global: ControllerBuilder<GlobalInClusterIPPool>,
}

/// Wakes pools of all kinds.
pub(super) struct PoolWakers {
    namespaced: Waker<InClusterIPPool>,
    global: Waker<GlobalInClusterIPPool>,
}

impl PoolWakers {
    /// Has the pool's status looked at.
    pub(super) fn wake(&self, pool: &PoolKey) {
        match pool.scope() {
            PoolScope::Namespaced => self.namespaced.wake(pool.namespace.as_deref(), &pool.name),
            PoolScope::Global => self.global.wake(None, &pool.name),
        }
    }
}

impl Controllers {
    pub(super) fn new() -> Self {
        let namespaced = ControllerBuilder::new(InClusterIPPool::KIND, ());
        let global = ControllerBuilder::new(GlobalInClusterIPPool::KIND, ());
        Self { namespaced, global }
    }

    pub(super) fn wakers(&self) -> PoolWakers {
        PoolWakers { namespaced: self.namespaced.waker(), global: self.global.waker() }
    }

    /// Starts the controllers; they act once everything in `awaited` is listed. Returns what says that the pools are.
    pub(super) fn start(
        self,
        manager: &mut Manager,
        contract: &Contract,
        shared: &Arc<Shared>,
        awaited: &[Synced],
    ) -> [Synced; 2] {
        [
            start(self.namespaced, manager, contract, shared, awaited),
            start(self.global, manager, contract, shared, awaited),
        ]
    }
}

fn start<P: PoolApi>(
    mut controller: ControllerBuilder<P>,
    manager: &mut Manager,
    contract: &Contract,
    shared: &Arc<Shared>,
    awaited: &[Synced],
) -> Synced
where
    Ledger: Observer<P>,
{
    let synced = manager.health.announce(P::KIND);
    awaited.iter().for_each(|other| controller.wait_for(other.clone()));
    let main = MainWatch {
        api: P::watched(manager),
        config: watcher::Config::default(),
        observer: Arc::clone(&shared.ledger) as _,
        trim: |pool: &mut P| trim(pool.meta_mut()),
        synced: synced.clone(),
    };
    let reconciler = PoolReconciler::<P> {
        client: manager.client.clone(),
        contract: contract.clone(),
        events: manager.events.clone(),
        shared: Arc::clone(shared),
        namespace: manager.options.namespace.clone(),
        watch_filter: manager.options.watch_filter.clone(),
        written: Written::default(),
        status_turns: StatusTurns::default(),
        kind: PhantomData,
    };
    let stop = manager.stop.clone();
    let task = controller.run(main, CONCURRENCY, stop, Arc::new(reconciler));
    manager.add(format!("the controller of {}s", P::KIND), task);
    synced
}

struct PoolReconciler<P> {
    client: Client,
    contract: Contract,
    events: EventPublisher,
    shared: Arc<Shared>,
    namespace: String,
    watch_filter: String,
    written: Written,
    status_turns: StatusTurns,
    kind: PhantomData<fn(P)>,
}

/// What keeps a deleted pool from going.
enum Obstacle {
    Addresses(usize),
    Reservations(String),
}

impl<P: PoolApi> Reconciler for PoolReconciler<P>
where
    Ledger: Observer<P>,
{
    type Object = P;
    type State = ();
    type Error = CallError;

    async fn reconcile(&self, pool: Arc<P>, _: &mut Attempt<()>) -> Result<Outcome, CallError> {
        let filter = pool.labels().get(names::WATCH_FILTER_LABEL).map(String::as_str);
        if !self.watch_filter.is_empty() && filter != Some(&self.watch_filter) {
            return Ok(Outcome::Done);
        }
        if self.written.is_newer_than(pool.as_ref(), Instant::now()) {
            return Ok(Outcome::Yield(LONGEST_ECHO));
        }
        match self.act(&pool).await {
            Err(error) if error.is_not_found() => Ok(Outcome::Done),
            Err(error) if error.is_conflict() => {
                debug!(pool = %PoolKey::of(pool.as_ref()), "the pool changed meanwhile; starting over");
                Ok(Outcome::Yield(STATUS_PAUSE))
            }
            outcome => outcome,
        }
    }
}

impl<P: PoolApi> PoolReconciler<P>
where
    Ledger: Observer<P>,
{
    async fn act(&self, pool: &Arc<P>) -> Result<Outcome, CallError> {
        let (key, facts) = (PoolKey::of(pool.as_ref()), PoolFacts::of(pool.as_ref()));
        let calls = P::calls(&self.client, &key);
        let mut pool = Arc::clone(pool);
        if !facts.deleting && !facts.protected && !facts.paused {
            match finalizer::add(&calls, pool.as_ref(), names::PROTECT_POOL).await {
                Ok(written) => pool = Arc::new(self.note(written)),
                // Deleted meanwhile: the server takes no new finalizer.
                Err(error) if error.is_invalid() => return Ok(Outcome::Done),
                Err(error) => return Err(error),
            }
        }
        let mut obstacle = None;
        if facts.deleting && facts.protected && !facts.paused {
            obstacle = self.obstacle(&key).await?;
            if obstacle.is_none() {
                finalizer::remove(&calls, pool.as_ref(), names::PROTECT_POOL).await?;
                info!(pool = %key, "no address of the deleted pool is in use any more; it goes");
                return Ok(Outcome::Done);
            }
        }
        let status = self.status(&key, &facts, pool.as_ref(), obstacle.as_ref());
        if let Some(wait) = self.write_status(&calls, pool.as_ref(), status).await? {
            return Ok(Outcome::Yield(wait));
        }
        match obstacle {
            Some(Obstacle::Reservations(_)) => Ok(Outcome::Yield(DELETION_PAUSE)),
            _ => Ok(Outcome::Done),
        }
    }

    /// Whether an address of a deleted pool may be in use: by what the ledger knows, and if it knows nothing, by live
    /// reads.
    async fn obstacle(&self, key: &PoolKey) -> Result<Option<Obstacle>, CallError> {
        if self.shared.ledger.is_in_use(key) {
            let counts = self.shared.ledger.counts(key);
            let used = counts.used.saturating_add(counts.out_of_range);
            return Ok(Some(Obstacle::Addresses(usize::try_from(used).unwrap_or(usize::MAX))));
        }
        let held = |reservation: &&crate::api::IPReservation| {
            PoolKey::of_reservation(&reservation.spec.pool_ref).as_ref() == Some(key)
                && reservation.spec.released_at.is_none()
                && reservation.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid.is_some())
        };
        let reservations = self.shared.reservations.list().await?;
        if let Some(reservation) = reservations.iter().find(held) {
            return Ok(Some(Obstacle::Reservations(reservation.name_any())));
        }
        let namespace = key.namespace.as_deref().unwrap_or(&self.namespace);
        let addresses = self.contract.addresses(namespace).list().await?;
        let of_pool = addresses.iter().filter(|address| {
            PoolKey::referred_to(&address.spec.pool_ref, address.metadata.namespace.as_deref()).as_ref() == Some(key)
        });
        let count = of_pool.count();
        Ok((count > 0).then_some(Obstacle::Addresses(count)))
    }

    fn status(&self, key: &PoolKey, facts: &PoolFacts, pool: &P, obstacle: Option<&Obstacle>) -> PoolStatus {
        let condition = |ready, reason, message: String| Condition::new(conditions::READY, ready, reason, message);
        let ready = if facts.deleting {
            let why = match obstacle {
                Some(Obstacle::Addresses(count)) => format!("waits until {count} addresses are released"),
                Some(Obstacle::Reservations(name)) => {
                    format!("waits until IPReservation {name} is released; delete the claim that holds it")
                }
                None => String::new(),
            };
            condition(false, conditions::DELETING, why)
        } else if let Err(problems) = &facts.usable {
            condition(false, conditions::INVALID_SPEC, problems.to_string())
        } else if facts.paused {
            let message = format!("remove the annotation {} to go on", names::PAUSED_ANNOTATION);
            condition(false, conditions::PAUSED_REASON, message)
        } else {
            condition(true, conditions::POOL_READY, String::new())
        };
        let mut list = pool.status().map(|status| status.conditions.clone()).unwrap_or_default();
        conditions::set(&mut list, ready.observed(pool.meta().generation), clock::now());
        PoolStatus { ip_addresses: Some(self.shared.ledger.counts(key)), conditions: list }
    }

    /// Writes the status if it says something new. Returns how long to wait when it was written a moment ago.
    async fn write_status(
        &self,
        calls: &Calls<P>,
        pool: &P,
        status: PoolStatus,
    ) -> Result<Option<Duration>, CallError> {
        if pool.status() == Some(&status) {
            return Ok(None);
        }
        let ready = |status: Option<&PoolStatus>| {
            let found = status.and_then(|status| conditions::find(&status.conditions, conditions::READY));
            found.map(|condition| (condition.reason.clone(), condition.message.clone()))
        };
        let news = ready(pool.status()) != ready(Some(&status));
        if let Some(wait) = self.status_turns.wait(pool, news, Instant::now()) {
            return Ok(Some(wait));
        }
        let mut wanted = pool.clone();
        *wanted.status_mut() = status;
        if let Some(written) = patch::write(calls, pool, &wanted).await? {
            let written = self.note(written);
            if let Some((reason, message)) = ready(written.status()).filter(|_| news) {
                let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
                if reason == conditions::INVALID_SPEC {
                    self.events.warning(&written, &(), &reason, "ReadSpec", &message);
                }
            }
        }
        Ok(None)
    }

    fn note(&self, written: P) -> P {
        self.written.note(&written, Instant::now());
        Observer::<P>::applied(self.shared.ledger.as_ref(), &written);
        written
    }
}

/// When the status of each pool was last written, and since when it differs.
#[derive(Default)]
struct StatusTurns {
    turns: Mutex<HashMap<Uid, (Instant, Turn)>>,
}

#[derive(PartialEq)]
enum Turn {
    Written,
    Differs,
}

impl StatusTurns {
    /// How long the status has to wait; `None` when it is to be written now. News are written at once, counts once they
    /// have settled, and neither sooner than [`STATUS_PAUSE`] after the last write.
    fn wait<P: Pool>(&self, pool: &P, news: bool, now: Instant) -> Option<Duration> {
        let uid = Uid::of(pool.meta().uid.as_deref().unwrap_or_default());
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, (since, _)| now.saturating_duration_since(*since) < STATUS_PAUSE * 4);
        let (since, turn) = turns.entry(uid).or_insert((now, Turn::Differs));
        let waited = now.saturating_duration_since(*since);
        if *turn == Turn::Written && waited >= STATUS_PAUSE {
            (*since, *turn) = (now, Turn::Differs);
        }
        let pause = match turn {
            Turn::Written => STATUS_PAUSE,
            Turn::Differs if news => Duration::ZERO,
            Turn::Differs => SETTLING,
        };
        let wait = pause.saturating_sub(now.saturating_duration_since(*since));
        if wait.is_zero() {
            (*since, *turn) = (now, Turn::Written);
        }
        Some(wait).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_settle_news_do_not_wait_and_no_write_follows_another_at_once() {
        let (turns, pool, start) = (StatusTurns::default(), InClusterIPPool::default(), Instant::now());
        assert_eq!(turns.wait(&pool, false, start), Some(SETTLING));
        assert_eq!(turns.wait(&pool, false, start + SETTLING), None);
        assert_eq!(turns.wait(&pool, true, start + SETTLING), Some(STATUS_PAUSE));
        assert_eq!(turns.wait(&pool, false, start + SETTLING + STATUS_PAUSE), Some(SETTLING));
        assert_eq!(turns.wait(&pool, true, start + SETTLING + STATUS_PAUSE), None);
        let fresh = StatusTurns::default();
        assert_eq!(fresh.wait(&pool, true, start), None);
    }
}
