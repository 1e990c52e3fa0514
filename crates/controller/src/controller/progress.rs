//! The progress of work of low priority: how much is left, in the log and in the readiness of the
//! process.

use std::time::{Duration, Instant};

use tracing::info;

use crate::health::ReadinessGate;

/// Interval at which the progress is reported.
const INTERVAL: Duration = Duration::from_secs(10);
/// Number of objects from which the progress is reported. Less work is over in a moment.
const REPORTED_FROM: usize = 100;

/// Reports how many objects of low priority of one controller are left.
pub(super) struct LowPriorityProgress {
    controller: String,
    gate: ReadinessGate,
    run: Option<Run>,
}

/// Work that has not ended.
#[derive(Clone, Copy)]
struct Run {
    began: Instant,
    reported: Instant,
    /// Objects that were left at that time.
    left: usize,
}

impl LowPriorityProgress {
    pub(super) fn new(controller: &str, gate: &ReadinessGate) -> Self {
        Self {
            controller: controller.to_owned(),
            gate: gate.clone(),
            run: None,
        }
    }

    /// Called with the number of objects that are left, whenever it may have changed.
    pub(super) fn observe(&mut self, left: usize, now: Instant) {
        let controller = self.controller.as_str();
        match &mut self.run {
            None if left >= REPORTED_FROM => {
                info!(
                    controller,
                    left, "work of low priority begins; objects of normal priority go first"
                );
                self.gate.set_progress(Some(left));
                self.run = Some(Run {
                    began: now,
                    reported: now,
                    left,
                });
            }
            None => {}
            Some(run) if left == 0 => {
                info!(controller, took = ?now.saturating_duration_since(run.began), "work of low priority is done");
                self.gate.set_progress(None);
                self.run = None;
            }
            Some(run) => {
                let since = now.saturating_duration_since(run.reported);
                if since >= INTERVAL {
                    let seconds = usize::try_from(since.as_secs())
                        .unwrap_or(usize::MAX)
                        .max(1);
                    let per_second = run.left.saturating_sub(left) / seconds;
                    info!(
                        controller,
                        left, per_second, "work of low priority is in progress"
                    );
                    self.gate.set_progress(Some(left));
                    (run.reported, run.left) = (now, left);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Health;

    #[test]
    fn progress_is_reported_until_nothing_is_left() {
        let (health, began) = (Health::default(), Instant::now());
        let gate = health.register_watch("Node");
        gate.ready();
        let mut progress = LowPriorityProgress::new("nodes", &gate);
        let after = |seconds| began + Duration::from_secs(seconds);
        progress.observe(REPORTED_FROM - 1, began);
        assert!(health.in_progress().is_empty());
        progress.observe(300, began);
        progress.observe(250, after(5));
        assert_eq!(
            health.in_progress(),
            ["Node: 300 objects of low priority are left"]
        );
        progress.observe(200, after(10));
        assert_eq!(
            health.in_progress(),
            ["Node: 200 objects of low priority are left"]
        );
        progress.observe(0, after(11));
        assert!(health.in_progress().is_empty());
    }
}
