//! Which registries the page shows.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long after the last request of a page its registry is read. A page asks after every read.
const SHOWN_FOR: Duration = Duration::from_secs(15);

/// The registries whose records a page shows.
#[derive(Debug, Default)]
pub(super) struct Demand {
    asked: Mutex<BTreeMap<String, Asked>>,
    changed: Notify,
}

/// The demand for the records of a registry.
#[derive(Debug)]
struct Asked {
    /// The last request of a page.
    at: Instant,
    /// Whether a task reads them.
    is_read: bool,
}

impl Demand {
    /// A page shows the records of a registry.
    pub(super) fn ask(&self, registry: &str, now: Instant) {
        let mut all = self.asked.lock();
        if let Some(known) = all.get_mut(registry) {
            known.at = now;
            return;
        }
        let asked = Asked {
            at: now,
            is_read: false,
        };
        all.insert(registry.to_owned(), asked);
        drop(all);
        self.changed.notify_one();
    }

    /// Waits until a page shows the records of another registry.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The registries that no task reads yet. The caller starts one for each.
    pub(super) fn start(&self) -> Vec<String> {
        let mut started = Vec::new();
        for (registry, asked) in &mut *self.asked.lock() {
            if !asked.is_read {
                asked.is_read = true;
                started.push(registry.clone());
            }
        }
        started
    }

    /// Whether no page shows the records any more. Then the task that reads them has to end.
    pub(super) fn is_over(&self, registry: &str, now: Instant) -> bool {
        let mut all = self.asked.lock();
        let is_shown = all
            .get(registry)
            .is_some_and(|asked| now.duration_since(asked.at) < SHOWN_FOR);
        if !is_shown {
            all.remove(registry);
        }
        !is_shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn registry_is_read_by_one_task_while_a_page_shows_it() {
        let demand = Demand::default();
        let start = Instant::now();
        demand.ask("site", start);
        demand.changed().await;
        demand.ask("site", start);
        assert_eq!(demand.start(), ["site"]);
        assert!(demand.start().is_empty(), "a task reads it");
        assert!(!demand.is_over("site", start + STEP));
        demand.ask("site", start + STEP);
        assert!(
            !demand.is_over("site", start + 2 * STEP),
            "it was asked for again"
        );
        let later = start + 3 * STEP;
        assert!(demand.is_over("site", later));
        demand.ask("site", later);
        demand.changed().await;
        assert_eq!(demand.start(), ["site"]);
    }
}
