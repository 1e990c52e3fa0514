//! Tasks that are repeated in the background.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Manager;
use crate::health::ReadinessGate;
use crate::priority::Priority;

/// When a [`BackgroundTask`] runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRun {
    /// At once: there is more to do.
    Now,
    /// After this time, or when the task is notified.
    After(Duration),
    /// When the task is notified.
    OnNotification,
}

/// A task that is repeated as long as the process runs, such as the repair of what interruptions
/// leave behind.
pub trait BackgroundTask: Send + Sync + 'static {
    /// Runs the task once. It is dropped at any await when the process stops. Errors are logged by
    /// the task, which chooses the time of the next attempt.
    fn run_once(&mut self) -> impl Future<Output = NextRun> + Send;

    /// Completes if the task has to run before the time that it has asked for. By default it never
    /// does.
    fn notified(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

impl Manager {
    /// Adds a task that is repeated from the moment when all `gates` are ready, until
    /// [`Manager::stop`] is cancelled.
    pub fn add_task(
        &mut self,
        name: impl Into<String>,
        gates: Vec<ReadinessGate>,
        task: impl BackgroundTask,
    ) {
        let work = repeat_until(self.stop.clone(), gates, task);
        self.add(name, work);
    }

    /// Like [`Manager::add_task`], for a task that nobody waits for: its requests have [low
    /// priority](crate::priority).
    pub fn add_background_task(
        &mut self,
        name: impl Into<String>,
        gates: Vec<ReadinessGate>,
        task: impl BackgroundTask,
    ) {
        let work = repeat_until(self.stop.clone(), gates, task);
        let priorities = self.priorities.clone();
        self.add(
            name,
            async move { priorities.run(Priority::Low, work).await },
        );
    }
}

async fn repeat_until(
    stop: CancellationToken,
    gates: Vec<ReadinessGate>,
    task: impl BackgroundTask,
) {
    stop.run_until_cancelled(repeat(gates, task)).await;
}

/// Repeats a task. Never returns.
async fn repeat(gates: Vec<ReadinessGate>, mut task: impl BackgroundTask) {
    for gate in &gates {
        gate.wait().await;
    }
    loop {
        match task.run_once().await {
            // The runtime gets the chance to stop a task that always has more to do.
            NextRun::Now => tokio::task::yield_now().await,
            NextRun::OnNotification => task.notified().await,
            NextRun::After(wait) => {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = task.notified() => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;
    use tokio::sync::Notify;

    use super::*;
    use crate::health::Health;

    struct Counter {
        runs: Arc<parking_lot::Mutex<usize>>,
        notify: Arc<Notify>,
        next: NextRun,
    }

    impl BackgroundTask for Counter {
        async fn run_once(&mut self) -> NextRun {
            *self.runs.lock() += 1;
            self.next
        }

        async fn notified(&self) {
            self.notify.notified().await;
        }
    }

    fn counter(next: NextRun) -> (Counter, Arc<parking_lot::Mutex<usize>>, Arc<Notify>) {
        let (runs, notify) = (Arc::default(), Arc::new(Notify::new()));
        (
            Counter {
                runs: Arc::clone(&runs),
                notify: Arc::clone(&notify),
                next,
            },
            runs,
            notify,
        )
    }

    /// Waits until the task has run that often.
    async fn runs_reach(runs: &parking_lot::Mutex<usize>, expected: usize) {
        while *runs.lock() < expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn task_runs_again_after_its_time() {
        for next in [NextRun::Now, NextRun::After(Duration::from_millis(1))] {
            let (task, runs, _) = counter(next);
            tokio::spawn(repeat(Vec::new(), task));
            runs_reach(&runs, 3).await;
        }
    }

    #[tokio::test]
    async fn notification_runs_the_task_earlier() {
        for next in [
            NextRun::OnNotification,
            NextRun::After(Duration::from_hours(1)),
        ] {
            let (task, runs, notify) = counter(next);
            let mut work = Box::pin(repeat(Vec::new(), task));
            assert!(work.as_mut().now_or_never().is_none());
            assert_eq!(*runs.lock(), 1, "{next:?}");
            notify.notify_one();
            assert!(work.as_mut().now_or_never().is_none());
            assert_eq!(*runs.lock(), 2, "{next:?}");
        }
    }

    #[tokio::test]
    async fn task_waits_for_its_gates() {
        let (task, runs, _) = counter(NextRun::OnNotification);
        let gate = Health::default().register_watch("ConfigMap");
        let mut work = Box::pin(repeat(vec![gate.clone()], task));
        assert!(work.as_mut().now_or_never().is_none());
        assert_eq!(*runs.lock(), 0);
        gate.ready();
        assert!(work.as_mut().now_or_never().is_none());
        assert_eq!(*runs.lock(), 1);
    }
}
