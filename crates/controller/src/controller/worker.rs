//! The task of a controller: puts changes and triggers into the queue, and reconciles what is due.

mod changes;

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::backoff::Backoffs;
use super::compaction::Compaction;
use super::progress::LowPriorityProgress;
use super::queue::{Queue, Reason};
use super::store::{Cached, Store};
use super::{Action, Attempt, Cause, Failure, Reconciler, Settings, Triggered};
use crate::client::error_chain;
use crate::health::ReadinessGate;
use crate::metrics::Outcome;
use crate::namespaced_name::NamespacedName;
use crate::priority::Priority;
use crate::retry::{Retry, RetryPolicy};
use crate::traces;
use crate::watch::{Change, EventHandler, Keyed};

/// Limit for one reconcile, after which it is cancelled and counts as a failure. Requests have
/// shorter timeouts, so this is a safety net.
const RECONCILE_TIMEOUT: Duration = Duration::from_mins(2);

/// The limit for one of low priority, as a multiple: each of its requests can wait for others.
const LOW_PRIORITY_TIMEOUT_FACTOR: u32 = 5;

/// Time until an object that could not be fetched is fetched again.
const INVALID_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Time until an object is retried after a panic outside of the reconciler.
const PANIC_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The maximum number of concurrent reconciles of low priority is the concurrency divided by this,
/// rounded up.
const LOW_PRIORITY_DIVISOR: usize = 4;

struct Context<R: Reconciler, C> {
    settings: Settings<R::Object>,
    reconciler: Arc<R>,
    compaction: Arc<C>,
    backoffs: Backoffs<R::Object, R::State>,
    timeout: Duration,
}

/// An ended reconcile.
struct Ended<K> {
    key: NamespacedName,
    priority: Priority,
    requeue_after: Option<Duration>,
    /// The object, if it is gone and was reconciled as deleted.
    deleted: Option<Arc<K>>,
}

/// A running controller.
pub(super) struct Worker<R: Reconciler, C: Compaction<R::Object>> {
    context: Arc<Context<R, C>>,
    handler: Arc<dyn EventHandler<R::Object>>,
    /// Becomes ready when the initial list is in the store.
    synced: ReadinessGate,
    /// The initial list is complete.
    is_listed: bool,
    store: Store<R::Object, C::Compact>,
    /// The last states of objects that are gone, until they are reconciled as deleted. Empty if the
    /// reconciler [does not need them](Reconciler::wants_deleted).
    deleted: HashMap<NamespacedName, Arc<R::Object>>,
    queue: Queue,
    /// An initial list has begun. Objects are reconciled as soon as they are listed: of a hundred
    /// thousand most need no reconcile, and the others do not wait for the end of the list.
    started: bool,
    concurrency: usize,
    /// Number of reconciles of low priority in progress.
    running_low: usize,
    progress: LowPriorityProgress,
}

impl<R: Reconciler, C: Compaction<R::Object>> Worker<R, C> {
    pub(super) fn new(
        settings: Settings<R::Object>,
        reconciler: Arc<R>,
        compaction: Arc<C>,
        handler: Arc<dyn EventHandler<R::Object>>,
        store: Store<R::Object, C::Compact>,
        synced: ReadinessGate,
    ) -> Self {
        Self {
            handler,
            is_listed: false,
            store,
            deleted: HashMap::new(),
            queue: Queue::default(),
            started: false,
            concurrency: usize::from(settings.concurrency.max(1)),
            running_low: 0,
            progress: LowPriorityProgress::new(&settings.name, &synced),
            synced,
            context: Arc::new(Context {
                settings,
                reconciler,
                compaction,
                backoffs: Backoffs::default(),
                timeout: RECONCILE_TIMEOUT,
            }),
        }
    }

    /// Runs until `stop` is cancelled, then waits for the reconciles in progress.
    pub(super) async fn run(
        mut self,
        mut changes: mpsc::Receiver<Change<R::Object>>,
        mut triggered: mpsc::UnboundedReceiver<Triggered>,
        stop: CancellationToken,
    ) {
        let controller = &self.context.settings.name.clone();
        info!(controller, "the controller starts");
        // Created once: this loop iterates several times for every write of an object.
        let mut cancelled = std::pin::pin!(stop.cancelled());
        let mut timer = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        let mut timer_at = None;
        let mut running = JoinSet::new();
        loop {
            self.start_due(&mut running);
            let due_low = self.queue.low_due();
            let due = self.queue.due(running.len()).saturating_sub(due_low);
            let counts = [due, due_low, self.queue.delayed(), running.len()];
            self.context.settings.metrics.set_objects(counts);
            self.progress
                .observe(due_low.saturating_add(self.running_low), Instant::now());
            // At full concurrency only the end of a reconcile matters: objects that are already due
            // would make the loop spin.
            let next_due = self
                .queue
                .next_due()
                .filter(|_| running.len() < self.concurrency);
            if let Some(at) = next_due.filter(|_| next_due != timer_at) {
                timer.as_mut().reset(at.into());
            }
            timer_at = next_due;
            tokio::select! {
                () = &mut cancelled => break,
                Some(change) = changes.recv() => self.handle_change(change),
                Some(trigger) = triggered.recv() => self.handle_trigger(trigger),
                Some(ended) = running.join_next(), if !running.is_empty() => self.handle_end(ended),
                () = &mut timer, if timer_at.is_some() => timer_at = None,
            }
            while let Ok(change) = changes.try_recv() {
                self.handle_change(change);
            }
            while let Ok(trigger) = triggered.try_recv() {
                self.handle_trigger(trigger);
            }
            while let Some(ended) = running.try_join_next() {
                self.handle_end(ended);
            }
        }
        while running.join_next().await.is_some() {}
        debug!(controller, "the controller has stopped");
    }

    /// Starts reconciles of due objects, up to the concurrency; of low priority only up to a part
    /// of it, so that an object of normal priority rarely waits for the end of one.
    fn start_due(&mut self, running: &mut JoinSet<Ended<R::Object>>) {
        let max_low = self.concurrency.div_ceil(LOW_PRIORITY_DIVISOR);
        while running.len() < self.concurrency {
            let now = Instant::now();
            let Some((key, reason)) = self.queue.next(now, self.running_low < max_low) else {
                return;
            };
            let (cached, cause) = match self.deleted.get(&key) {
                Some(object) => (Some(Cached::Full(Arc::clone(object))), Cause::Deleted),
                None => (self.store.find(&key), reason.cause),
            };
            match cached {
                // Triggered or requeued before it was deleted.
                None => self.context.backoffs.forget(&key),
                Some(cached) if self.needs_reconcile(&key, &cached) => {
                    if reason.priority == Priority::Low {
                        self.running_low = self.running_low.saturating_add(1);
                    }
                    let started = match &cached {
                        Cached::Full(object) => (self.context.settings.starting)(object),
                        Cached::Compact(_) => None,
                    };
                    running.spawn(catch_panic(
                        Arc::clone(&self.context),
                        key,
                        cached,
                        Reason { cause, ..reason },
                        started,
                    ));
                    continue;
                }
                Some(_) => {}
            }
            self.queue.finished(key, None, now);
        }
    }

    fn needs_reconcile(
        &self,
        key: &NamespacedName,
        cached: &Cached<R::Object, C::Compact>,
    ) -> bool {
        match cached {
            Cached::Full(_) => true,
            Cached::Compact(compact) => self.context.compaction.needs_reconcile(key, compact),
        }
    }

    fn handle_trigger(&mut self, trigger: Triggered) {
        let Triggered { object: key, cause } = trigger;
        // Before the initial list nothing is cached, and all listed objects are enqueued anyway.
        if self.started {
            if cause == Cause::Triggered {
                self.context.backoffs.trigger(&key);
            }
            let (priority, now) = (self.priority(&key, cause), Instant::now());
            self.queue.add(key, now, now, Reason { cause, priority });
        }
    }

    /// The priority of an object that is cached or gone; low if it is neither, since there is
    /// nothing to do then.
    fn priority(&self, key: &NamespacedName, cause: Cause) -> Priority {
        if let Some(object) = self.deleted.get(key) {
            return (self.context.settings.priority)(object, Cause::Deleted);
        }
        let cached = self.store.find(key);
        cached.map_or(Priority::Low, |cached| self.priority_of(&cached, cause))
    }

    /// Nobody waits for an object in compact form: it needs no reconcile by its own fields.
    fn priority_of(&self, cached: &Cached<R::Object, C::Compact>, cause: Cause) -> Priority {
        match cached {
            Cached::Full(object) => (self.context.settings.priority)(object, cause),
            Cached::Compact(_) => Priority::Low,
        }
    }

    fn handle_end(&mut self, ended: Result<Ended<R::Object>, JoinError>) {
        match ended {
            Ok(Ended {
                key,
                priority,
                requeue_after,
                deleted,
            }) => {
                if priority == Priority::Low {
                    self.running_low = self.running_low.saturating_sub(1);
                }
                let now = Instant::now();
                let requeue_at = requeue_after.and_then(|delay| now.checked_add(delay));
                let requeue = requeue_at.map(|at| (at, self.priority(&key, Cause::Requeued)));
                self.queue.finished(key.clone(), requeue, now);
                if let Some(object) = deleted {
                    self.finish_deleted(key, &object, now);
                }
            }
            // The task catches panics, so the runtime is shutting down.
            Err(error) => {
                error!(
                    controller = self.context.settings.name,
                    error = error_chain(&error),
                    "a reconcile was cancelled"
                );
            }
        }
    }

    /// After an object was reconciled as deleted, it is the turn of the next one of its key.
    fn finish_deleted(&mut self, key: NamespacedName, object: &Arc<R::Object>, now: Instant) {
        // Another one may have replaced it during the reconcile.
        let waiting = self.deleted.get(&key);
        if waiting.is_some_and(|waiting| Arc::ptr_eq(waiting, object)) {
            self.deleted.remove(&key);
        }
        if self.deleted.contains_key(&key) || self.store.find(&key).is_some() {
            let cause = Cause::Created;
            let priority = self.priority(&key, cause);
            self.queue.add(key, now, now, Reason { cause, priority });
        }
    }
}

/// Processes one object, and returns its key even after a panic: the queue never starts a key that
/// is not returned.
async fn catch_panic<R: Reconciler, C: Compaction<R::Object>>(
    context: Arc<Context<R, C>>,
    key: NamespacedName,
    cached: Cached<R::Object, C::Compact>,
    Reason { cause, priority }: Reason,
    _started: Option<Box<dyn Any + Send>>,
) -> Ended<R::Object> {
    let deleted = match &cached {
        Cached::Full(object) if cause == Cause::Deleted => Some(Arc::clone(object)),
        _ => None,
    };
    let work = context
        .settings
        .priorities
        .run(priority, process(&context, &key, cached, cause, priority));
    let requeue_after = AssertUnwindSafe(work).catch_unwind().await;
    let requeue_after = requeue_after.unwrap_or_else(|_| {
        error!(controller = context.settings.name, object = %key, "a reconcile panicked; this is a bug");
        Some(PANIC_RETRY_DELAY)
    });
    Ended {
        key,
        priority,
        requeue_after,
        // It is retried until there is nothing left to do.
        deleted: deleted.filter(|_| requeue_after.is_none()),
    }
}

/// Fetches the object if necessary and reconciles it. Returns when to requeue it.
async fn process<R: Reconciler, C: Compaction<R::Object>>(
    context: &Context<R, C>,
    key: &NamespacedName,
    cached: Cached<R::Object, C::Compact>,
    cause: Cause,
    priority: Priority,
) -> Option<Duration> {
    let object = match cached {
        Cached::Full(object) => object,
        Cached::Compact(_) => match context.compaction.fetch(key).await {
            Ok(Some(object)) => Arc::new(object),
            Ok(None) => return None,
            Err(error) => {
                let controller = &context.settings.name;
                debug!(controller, object = %key, error = error_chain(&error), "cannot read an object, retrying");
                return Some(INVALID_RETRY_DELAY);
            }
        },
    };
    let timeout = match priority {
        Priority::Normal => context.timeout,
        Priority::Low => context.timeout.saturating_mul(LOW_PRIORITY_TIMEOUT_FACTOR),
    };
    reconcile(context, key, &object, cause, timeout).await
}

async fn reconcile<R: Reconciler, C>(
    context: &Context<R, C>,
    key: &NamespacedName,
    object: &Arc<R::Object>,
    cause: Cause,
    timeout: Duration,
) -> Option<Duration> {
    // A deletion, or another object of the name, never waits for what failed before.
    let dequeues = |waiting: &R::Object| {
        waiting.is_deleting() != object.is_deleting()
            || !object.is_same(waiting)
            || (context.settings.dequeues)(waiting, object)
    };
    let start = context
        .backoffs
        .begin(key, object.as_ref(), cause, Instant::now(), dequeues);
    let mut attempt = match start {
        Ok(attempt) => attempt,
        Err(wait) => return wait,
    };
    let controller = &context.settings.name;
    let before = attempt.with_state(());
    let failures = attempt.failures.saturating_add(1);
    let cause = attempt.cause;
    debug!(controller, object = %key, ?cause, attempt = failures, "reconciling");
    let begin = Instant::now();
    let span = (context.settings.span)(object, &before);
    span.record("controller", controller);
    // It can be large, and each wrapper would move it: the stack of an unoptimized build is too
    // small for several copies.
    let run = Box::pin(
        context
            .reconciler
            .reconcile(Arc::clone(object), &mut attempt),
    );
    let run = AssertUnwindSafe(traces::in_span(span.clone(), run)).catch_unwind();
    let ended = tokio::time::timeout(timeout, run).await;
    let result = match &ended {
        Ok(Ok(result)) => result.as_ref().map_err(Failure::Error),
        Ok(Err(_)) => Err(Failure::Panicked),
        Err(_) => Err(Failure::TimedOut(timeout)),
    };
    let outcome = outcome(&result);
    span.record("outcome", outcome.in_traces());
    context.settings.metrics.record(outcome, begin.elapsed());
    let failure = match result {
        Ok(Action::AwaitChange) => {
            context.backoffs.forget(key);
            return None;
        }
        Ok(Action::Requeue(delay)) => {
            return Some(context.backoffs.requeued(key, attempt, *delay));
        }
        Err(failure) => failure,
    };
    context.reconciler.on_error(object, &before, &failure);
    let retry = match &failure {
        Failure::Error(error) => context.reconciler.retry(error, failures),
        Failure::Panicked | Failure::TimedOut(_) => {
            Retry::After(RetryPolicy::default().delay(failures))
        }
    };
    // No change can come of an object that is gone.
    let retry = match retry {
        Retry::GiveUp if cause == Cause::Deleted => Retry::After(RetryPolicy::default().max),
        retry => retry,
    };
    if matches!(retry, Retry::After(_)) {
        context.settings.metrics.record_retry();
    }
    log_failure(controller, key, failures, &failure, retry);
    let attempt = Attempt {
        failures,
        ..attempt
    };
    context
        .backoffs
        .failed(object, attempt, Instant::now(), retry)
}

/// Logs a failure: as a warning if it lasts, and then less and less often.
fn log_failure<E: std::error::Error + 'static>(
    controller: &str,
    key: &NamespacedName,
    failures: u32,
    failure: &Failure<'_, E>,
    retry: Retry,
) {
    if retry == Retry::GiveUp {
        warn!(
            controller,
            object = %key,
            failures,
            error = %failure,
            "reconcile failed; waiting for a change"
        );
    } else if failures <= 3 || !failures.is_power_of_two() {
        debug!(
            controller,
            object = %key,
            failures,
            error = %failure,
            "reconcile failed, retrying"
        );
    } else {
        warn!(
            controller,
            object = %key,
            failures,
            ?retry,
            error = %failure,
            "reconcile keeps failing"
        );
    }
}

/// How a reconcile ended: by a timeout, a panic, an error, or well.
fn outcome<E>(result: &Result<&Action, Failure<'_, E>>) -> Outcome {
    match result {
        Ok(Action::AwaitChange) => Outcome::Success,
        Ok(Action::Requeue(_)) => Outcome::Requeue,
        Err(Failure::Error(_)) => Outcome::Error,
        Err(Failure::Panicked) => Outcome::Panic,
        Err(Failure::TimedOut(_)) => Outcome::Timeout,
    }
}

#[cfg(test)]
mod tests;
