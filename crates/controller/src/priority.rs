//! The priority of work: what somebody waits for goes before background work.
//!
//! Repairs, counts and garbage collection share the API server with the objects that somebody waits
//! for. Work of [`Priority::Low`] therefore sends few requests at once: eight while nothing else
//! happens, and one while work of normal priority is in progress and for two seconds after it. It
//! always goes on, since a request waits one second at most. Only requests of
//! [`ResourceClient`](crate::client::ResourceClient) wait, before their timeout begins. Lists of
//! low priority have smaller pages.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How many requests of low priority are in flight while nothing else happens.
const IDLE_REQUESTS: usize = 8;
/// How many are in flight while work of normal priority is in progress, and for [`BUSY_TIME`] after
/// it, since more of it probably follows.
const BUSY_REQUESTS: usize = 1;
/// How long after work of normal priority more of it is expected.
const BUSY_TIME: Duration = Duration::from_secs(2);
/// How long a request of low priority waits at most.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The priority of an object in the queue of a controller, and of the requests of its reconcile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Background work: nobody waits for it.
    Low,
    /// Everything else.
    #[default]
    Normal,
}

tokio::task_local! {
    /// Set while a task does work of low priority.
    static LOW_PRIORITY: Priorities;
}

/// The work in progress of one process, by priority. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Priorities {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when a request may be admitted.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Number of reconciles of normal priority in progress.
    normal: usize,
    /// When the last one ended.
    normal_ended: Option<Instant>,
    /// Number of requests of low priority in flight.
    low: usize,
}

impl State {
    /// How many requests of low priority may be in flight.
    fn limit(&self, now: Instant) -> usize {
        let has_just_ended = |ended| now.saturating_duration_since(ended) < BUSY_TIME;
        let is_busy = self.normal > 0 || self.normal_ended.is_some_and(has_just_ended);
        if is_busy {
            BUSY_REQUESTS
        } else {
            IDLE_REQUESTS
        }
    }
}

impl Priorities {
    /// Runs work with a priority. What the work spawns as another task does not have it, except
    /// with [`inherited`].
    pub async fn run<F: Future>(&self, priority: Priority, work: F) -> F::Output {
        match priority {
            Priority::Low => LOW_PRIORITY.scope(self.clone(), work).await,
            Priority::Normal => {
                let _normal = self.begin_normal();
                work.await
            }
        }
    }

    fn begin_normal(&self) -> Running {
        let mut state = self.shared.state.lock();
        state.normal = state.normal.saturating_add(1);
        Running(Arc::clone(&self.shared), Priority::Normal)
    }

    /// Waits until a request of low priority may be sent.
    async fn admit(&self) -> Running {
        let until = tokio::time::Instant::now() + MAX_WAIT;
        loop {
            // Before the check, so that no change after it is missed.
            let changed = self.shared.changed.notified();
            {
                let (mut state, now) = (self.shared.state.lock(), tokio::time::Instant::now());
                if state.low < state.limit(now.into_std()) || now >= until {
                    state.low = state.low.saturating_add(1);
                    if state.low < state.limit(now.into_std()) {
                        self.shared.changed.notify_one();
                    }
                    return Running(Arc::clone(&self.shared), Priority::Low);
                }
            }
            let _ = tokio::time::timeout_at(until, changed).await;
        }
    }
}

/// Work of normal priority in progress, or a request of low priority in flight, until it is dropped.
pub(crate) struct Running(Arc<Shared>, Priority);

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        match self.1 {
            Priority::Normal => {
                state.normal = state.normal.saturating_sub(1);
                state.normal_ended = Some(tokio::time::Instant::now().into_std());
            }
            Priority::Low => state.low = state.low.saturating_sub(1),
        }
        drop(state);
        self.0.changed.notify_one();
    }
}

/// Gives work the priority of the current task, so that it can be spawned as another task.
///
/// ```
/// # async fn work() {}
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # let _guard = runtime.enter();
/// tokio::spawn(capi_ipam_controller::priority::inherited(work()));
/// ```
pub fn inherited<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let priorities = LOW_PRIORITY.try_with(Clone::clone).ok();
    async move {
        match priorities {
            Some(priorities) => priorities.run(Priority::Low, work).await,
            None => work.await,
        }
    }
}

/// Whether the current task does work of low priority.
pub(crate) fn is_low() -> bool {
    LOW_PRIORITY.try_with(|_| ()).is_ok()
}

/// Waits if the current task does work of low priority. The request is in flight until the result
/// is dropped.
pub(crate) async fn admit() -> Option<Running> {
    let priorities = LOW_PRIORITY.try_with(Clone::clone).ok()?;
    Some(priorities.admit().await)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of requests that are admitted immediately.
    async fn admitted(priorities: &Priorities) -> Vec<Running> {
        let mut admitted = Vec::new();
        while let Ok(request) =
            tokio::time::timeout(Duration::from_millis(1), priorities.admit()).await
        {
            admitted.push(request);
        }
        admitted
    }

    #[tokio::test]
    async fn low_priority_yields_to_normal() {
        let priorities = Priorities::default();
        assert_eq!(admitted(&priorities).await.len(), IDLE_REQUESTS);
        let normal = priorities.begin_normal();
        let first = admitted(&priorities).await;
        assert_eq!(first.len(), BUSY_REQUESTS);
        drop((normal, first));
        assert_eq!(admitted(&priorities).await.len(), BUSY_REQUESTS);
    }

    #[tokio::test]
    async fn request_waits_for_another_and_at_most_a_second() {
        let priorities = Priorities::default();
        let _normal = priorities.begin_normal();
        let first = priorities.admit().await;
        let begun = tokio::time::Instant::now();
        let second = tokio::spawn({
            let priorities = priorities.clone();
            async move { priorities.admit().await }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        let _second = second.await.unwrap();
        assert!(begun.elapsed() < MAX_WAIT);
        let _third = priorities.admit().await;
        assert!(begun.elapsed() >= MAX_WAIT);
    }

    #[tokio::test]
    async fn priority_is_that_of_the_task() {
        let priorities = Priorities::default();
        assert!(admit().await.is_none());
        priorities
            .run(Priority::Normal, async { assert!(admit().await.is_none()) })
            .await;
        priorities
            .run(Priority::Low, async {
                assert!(admit().await.is_some());
                assert!(tokio::spawn(admit()).await.unwrap().is_none());
                assert!(tokio::spawn(inherited(admit())).await.unwrap().is_some());
            })
            .await;
    }
}
