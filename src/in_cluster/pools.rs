//! Pools: their finalizer, counts and conditions.

mod status;
mod status_rate;

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, ResourceClient, chain};
use capi_ipam_controller::controller::{Attempt, ControllerBuilder, MainWatch, Outcome, Reconciler, Trigger};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::{EXPECTATION_TTL, Expectations};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::retry::RetryPolicy;
use capi_ipam_controller::watch::{Observer, trim};
use capi_ipam_controller::{clock, finalizer, patch};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tracing::{debug, info};

use crate::api::conditions::{self, Condition};
use crate::api::{GlobalInClusterIPPool, GlobalInClusterPrefixPool, InClusterIPPool, InClusterKind, InClusterPrefixPool, names, PoolKey, PoolStatus};
use self::status::Seen;
use self::status_rate::{STATUS_INTERVAL, StatusLimiter};
use super::context::Shared;
use super::kinds::PoolApi;
use super::ledger::{Ledger, PoolInfo};
use super::pool_use::Obstacle;
use super::reservation::network_block_length;

/// When to look again at a pool that is being deleted and still has reservations.
const DELETION_RETRY_DELAY: Duration = Duration::from_secs(5);
/// When a pool is reconciled again after its first failure.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
/// The longest time between two attempts at a pool that keeps failing.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
/// A refused finalizer is reported on the pool after this many failures.
const FAILURES_BEFORE_REPORT: u32 = 2;
/// How many pools of a kind are worked on at the same time.
const CONCURRENCY: u16 = 4;

/// The controllers of the kinds of pools, before they start.
pub(super) struct Controllers {
    ip: ControllerBuilder<InClusterIPPool, Infallible>,
    global_ip: ControllerBuilder<GlobalInClusterIPPool, Infallible>,
    prefix: ControllerBuilder<InClusterPrefixPool, Infallible>,
    global_prefix: ControllerBuilder<GlobalInClusterPrefixPool, Infallible>,
}

/// Wakes pools of all kinds.
pub(super) struct PoolTriggers {
    ip: Trigger<InClusterIPPool>,
    global_ip: Trigger<GlobalInClusterIPPool>,
    prefix: Trigger<InClusterPrefixPool>,
    global_prefix: Trigger<GlobalInClusterPrefixPool>,
}

impl PoolTriggers {
    /// Has the pool's status looked at.
    pub(super) fn wake(&self, pool: &PoolKey) {
        let namespace = pool.namespace.as_deref();
        match pool.kind {
            InClusterKind::IPPool => self.ip.wake(namespace, &pool.name),
            InClusterKind::GlobalIPPool => self.global_ip.wake(namespace, &pool.name),
            InClusterKind::PrefixPool => self.prefix.wake(namespace, &pool.name),
            InClusterKind::GlobalPrefixPool => self.global_prefix.wake(namespace, &pool.name),
        }
    }
}

impl Controllers {
    pub(super) fn new() -> Self {
        Self { ip: builder(), global_ip: builder(), prefix: builder(), global_prefix: builder() }
    }

    pub(super) fn wakers(&self) -> PoolTriggers {
        PoolTriggers {
            ip: self.ip.waker(),
            global_ip: self.global_ip.waker(),
            prefix: self.prefix.waker(),
            global_prefix: self.global_prefix.waker(),
        }
    }

    /// Starts the controllers; they act once everything in `awaited` is listed. Returns what says that the pools are.
    pub(super) fn start(self, manager: &mut Manager, shared: &Arc<Shared>, awaited: &[ReadinessGate]) -> [ReadinessGate; 4] {
        [
            start(self.ip, manager, shared, awaited),
            start(self.global_ip, manager, shared, awaited),
            start(self.prefix, manager, shared, awaited),
            start(self.global_prefix, manager, shared, awaited),
        ]
    }
}

fn builder<P: PoolApi>() -> ControllerBuilder<P, Infallible> {
    ControllerBuilder::new(P::KIND.name(), ())
}

fn start<P: PoolApi>(
    mut controller: ControllerBuilder<P, Infallible>,
    manager: &mut Manager,
    shared: &Arc<Shared>,
    awaited: &[ReadinessGate],
) -> ReadinessGate
where
    Ledger: Observer<P>,
{
    let synced = manager.health.announce(P::KIND.name());
    awaited.iter().for_each(|other| controller.wait_for(other.clone()));
    let main = MainWatch {
        api: P::watched(&manager.client),
        config: watcher::Config::default(),
        observer: Arc::clone(&shared.ledger) as _,
        trim: |pool: &mut P| trim(pool.meta_mut()),
        compact: P::drop_spec,
        synced: synced.clone(),
    };
    let reconciler = PoolReconciler::<P> {
        client: manager.client.clone(),
        events: manager.events.clone(),
        shared: Arc::clone(shared),
        written: Expectations::default(),
        status_turns: StatusLimiter::default(),
        kind: PhantomData,
    };
    let stop = manager.stop.clone();
    let task = controller.run(main, CONCURRENCY, stop, Arc::new(reconciler));
    manager.add(format!("the controller of {}s", P::KIND), task);
    synced
}

/// Why a pool could not be reconciled.
#[derive(Debug, thiserror::Error)]
enum PoolError {
    /// A call for the pool failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// What uses a deleted pool could not be read.
    #[error("cannot read what uses the pool")]
    Use(#[from] Arc<CallError>),
}

struct PoolReconciler<P> {
    client: Client,
    events: EventPublisher,
    shared: Arc<Shared>,
    written: Expectations,
    status_turns: StatusLimiter,
    kind: PhantomData<fn(P)>,
}

impl<P: PoolApi> Reconciler for PoolReconciler<P>
where
    Ledger: Observer<P>,
{
    type Object = P;
    type Settled = Infallible;
    type State = ();
    type Error = PoolError;

    /// A pool recovers within seconds once the cause of its failure is gone.
    fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy::Exponential { first: FIRST_RETRY_DELAY, longest: MAX_RETRY_DELAY }
    }

    async fn reconcile(&self, pool: Arc<P>, attempt: &mut Attempt<()>) -> Result<Outcome, PoolError> {
        if !self.shared.selection.includes(pool.as_ref()) {
            return Ok(Outcome::Done);
        }
        if self.written.is_newer_than(pool.as_ref(), Instant::now()) {
            return Ok(Outcome::Yield(EXPECTATION_TTL));
        }
        match self.act(&pool, attempt.failures).await {
            Err(PoolError::Call(error)) if error.is_not_found() => Ok(Outcome::Done),
            Err(PoolError::Call(error)) if error.is_conflict() => {
                debug!(pool = %PoolKey::of(pool.as_ref()), "the pool changed meanwhile; starting over");
                Ok(Outcome::Yield(STATUS_INTERVAL))
            }
            outcome => outcome,
        }
    }
}

impl<P: PoolApi> PoolReconciler<P>
where
    Ledger: Observer<P>,
{
    async fn act(&self, pool: &Arc<P>, failures: u32) -> Result<Outcome, PoolError> {
        let key = PoolKey::of(pool.as_ref());
        self.shared.ledger.look(&key);
        // The ledger hears of every pool before its controller does.
        let Some(facts) = self.shared.ledger.facts(&key) else { return Ok(Outcome::Done) };
        let protected = finalizer::is_set(pool.as_ref(), names::PROTECT_POOL);
        let calls = P::calls(&self.client, &key);
        let mut pool = Arc::clone(pool);
        if !facts.deleting && !protected && !facts.paused {
            match finalizer::add(&calls, pool.as_ref(), names::PROTECT_POOL).await {
                Ok(written) => pool = Arc::new(self.note(written)),
                Err(error) => return Ok(self.refused(&calls, &key, error, failures).await?),
            }
        }
        if !facts.deleting && !facts.paused {
            self.prepare_network(&key).await?;
        }
        let mut obstacle = None;
        if facts.deleting && protected && !facts.paused {
            obstacle = self.obstacle(&key).await?;
            if obstacle.is_none() {
                // The last finalizer is removed by writing the object whole, and what is kept of it is not.
                let Some(whole) = calls.get(&key.name).await? else { return Ok(Outcome::Done) };
                finalizer::remove(&calls, &whole, names::PROTECT_POOL).await?;
                info!(pool = %key, "no address of the deleted pool is in use any more; it goes");
                return Ok(Outcome::Done);
            }
        }
        let status = self.status(&key, pool.as_ref(), obstacle.as_ref(), None);
        if let Some(wait) = self.write_status(&calls, pool.as_ref(), status).await? {
            self.shared.ledger.will_look(&key);
            return Ok(Outcome::Yield(wait));
        }
        match obstacle {
            // The ledger wakes the pool when one of these changes; of the others it may never hear.
            None | Some(Obstacle::Addresses(_)) => Ok(Outcome::Done),
            Some(Obstacle::Reservation(_) | Obstacle::UnknownAddress) => Ok(Outcome::Yield(DELETION_RETRY_DELAY)),
        }
    }

    /// After the API server did not take our finalizer. It refuses one on a pool that is being deleted, which is in
    /// order; what else fails for long is reported on the pool.
    async fn refused(
        &self,
        calls: &ResourceClient<P>,
        key: &PoolKey,
        error: CallError,
        failures: u32,
    ) -> Result<Outcome, CallError> {
        if error.is_conflict() || error.is_not_found() {
            return Err(error);
        }
        let current = calls.get(&key.name).await?;
        let Some(current) = current.filter(|found| found.meta().deletion_timestamp.is_none()) else {
            return Ok(Outcome::Done);
        };
        if failures >= FAILURES_BEFORE_REPORT {
            let status = self.status(key, &current, None, Some(&chain(&error)));
            self.write_status(calls, &current, status).await?;
        }
        Err(error)
    }

    /// Has the pools of a network agree on the length of what they give out: the first one to come says how long. Of
    /// two that come at once the API server lets one through.
    async fn prepare_network(&self, key: &PoolKey) -> Result<(), CallError> {
        let Some((network, family, length)) = self.shared.ledger.missing_block_length(key) else { return Ok(()) };
        let wanted = network_block_length(&network, family, length, key);
        let name = wanted.name_any();
        let agreed = match self.shared.reservations.create(&wanted).await {
            Ok(created) => Some(created),
            Err(error) if error.is_already_exists() || error.outcome_is_unknown() => {
                self.shared.reservations.get(&name).await?
            }
            Err(error) => return Err(error),
        };
        agreed.iter().for_each(|unit| self.shared.ledger.insert_reservation(unit));
        Ok(())
    }

    /// Whether an address of a deleted pool may be in use: by what the ledger knows, and if it knows nothing, by live
    /// reads.
    async fn obstacle(&self, key: &PoolKey) -> Result<Option<Obstacle>, Arc<CallError>> {
        let ledger = &self.shared.ledger;
        if ledger.is_in_use(key) {
            let counts = ledger.counts(key);
            let used = counts.used.saturating_add(counts.out_of_range);
            return Ok(Some(Obstacle::Addresses(used.unsigned_abs())));
        }
        if let Some(held) = ledger.held_in(key) {
            return Ok(Some(Obstacle::Reservation(held.reservation_name())));
        }
        self.shared.pool_use.find(key).await
    }

    fn status(&self, key: &PoolKey, pool: &P, obstacle: Option<&Obstacle>, refused: Option<&str>) -> PoolStatus {
        let ledger = &self.shared.ledger;
        let facts = ledger.facts(key).unwrap_or_else(|| PoolInfo::of(pool));
        let seen = Seen {
            key,
            facts: &facts,
            counts: ledger.counts(key),
            cooldown_end: ledger.cooldown_end(key),
            refused,
            overlapping: ledger.overlapping(key),
            obstacle,
        };
        let mut list = pool.status().map(|status| status.conditions.clone()).unwrap_or_default();
        for condition in seen.conditions() {
            conditions::set(&mut list, condition.observed(pool.meta().generation), clock::now());
        }
        PoolStatus { ip_addresses: Some(seen.counts), conditions: list }
    }

    /// Writes the status if it says something new. Returns how long to wait when it was written a moment ago.
    async fn write_status(
        &self,
        calls: &ResourceClient<P>,
        pool: &P,
        status: PoolStatus,
    ) -> Result<Option<Duration>, CallError> {
        if pool.status() == Some(&status) {
            return Ok(None);
        }
        let before = pool.status().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let said = |condition: &Condition| {
            let present = conditions::find(before, &condition.type_);
            present.is_some_and(|present| (&present.status, &present.reason) == (&condition.status, &condition.reason))
        };
        let news: Vec<Condition> = status.conditions.iter().filter(|condition| !said(condition)).cloned().collect();
        if let Some(wait) = self.status_turns.wait(pool, !news.is_empty(), Instant::now()) {
            return Ok(Some(wait));
        }
        let mut wanted = pool.clone();
        *wanted.status_mut() = status;
        let began = Instant::now();
        let written = patch::write(calls, pool, &wanted).await;
        self.status_turns.took(began.elapsed());
        if let Some(written) = written? {
            let written = self.note(written);
            for condition in news.iter().filter(|condition| status::is_warning(condition)) {
                let reason = condition.reason.as_deref().unwrap_or_default();
                let message = condition.message.as_deref().unwrap_or_default();
                self.events.warning(&written, &(), reason, "Inspect", message);
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
