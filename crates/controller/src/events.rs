//! Events: what happened to an object, for `kubectl describe`.
//!
//! Publishing never holds up or fails a reconcile: events wait in a short queue, good news is dropped first when there
//! is much of it, and what cannot be published is logged at debug level. Conditions carry the whole truth.
//!
//! Needs `create` and `patch` on `events` in `events.k8s.io`.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tokio::sync::mpsc;
use tracing::debug;

use crate::client::{chain, REQUEST_TIMEOUT};

/// Events that wait to be published; more are dropped.
const QUEUE: usize = 1_000;
/// Longest text the API server takes, in bytes.
const MAX_NOTE_LENGTH: usize = 1_000;

/// Publishes events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventPublisher {
    queue: mpsc::Sender<(Event, ObjectReference)>,
}

impl EventPublisher {
    /// A publisher, and the task that has to be driven for it to work.
    pub fn new(client: Client, controller: &str, instance: &str) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let reporter = Reporter { controller: controller.to_owned(), instance: Some(instance.to_owned()) };
        (Self { queue }, publish(Recorder::new(client, reporter), waiting))
    }

    /// Something went as it should.
    pub fn normal<K: Resource>(&self, object: &K, version: &K::DynamicType, reason: &str, action: &str, note: &str) {
        self.send(EventType::Normal, object.object_ref(version), reason, action, note);
    }

    /// Something needs attention.
    pub fn warning<K: Resource>(&self, object: &K, version: &K::DynamicType, reason: &str, action: &str, note: &str) {
        self.send(EventType::Warning, object.object_ref(version), reason, action, note);
    }

    fn send(&self, type_: EventType, object: ObjectReference, reason: &str, action: &str, note: &str) {
        let end = note.floor_char_boundary(MAX_NOTE_LENGTH);
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: note.get(..end).map(str::to_owned),
            action: action.to_owned(),
            secondary: None,
        };
        if self.queue.try_send((event, object)).is_err() {
            debug!(reason, "too many events; one is dropped");
        }
    }
}

async fn publish(recorder: Recorder, mut waiting: mpsc::Receiver<(Event, ObjectReference)>) {
    let mut good_news = Budget::new(10.0, 2.0);
    let mut bad_news = Budget::new(100.0, 20.0);
    while let Some((event, object)) = waiting.recv().await {
        let budget = if matches!(event.type_, EventType::Normal) { &mut good_news } else { &mut bad_news };
        if !budget.spend(Instant::now()) {
            debug!(reason = event.reason, object = object.name, "events come too fast; one is dropped");
            continue;
        }
        match tokio::time::timeout(REQUEST_TIMEOUT, recorder.publish(&event, &object)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(reason = event.reason, error = chain(&error), "an event cannot be published"),
            Err(_) => debug!(reason = event.reason, "an event is not published in time"),
        }
    }
}

/// A token bucket: so many at once, so many a second in the long run.
#[derive(Debug)]
struct Budget {
    most: f64,
    per_second: f64,
    left: f64,
    counted: Option<Instant>,
}

impl Budget {
    fn new(most: f64, per_second: f64) -> Self {
        Self { most, per_second, left: most, counted: None }
    }

    fn spend(&mut self, now: Instant) -> bool {
        let elapsed = self.counted.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        self.counted = Some(now);
        self.left = self.per_second.mul_add(elapsed.as_secs_f64(), self.left).min(self.most);
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_cut_and_the_budget_comes_back() {
        let (mut budget, start) = (Budget::new(3.0, 1.0), Instant::now());
        let spent = (0..10).filter(|_| budget.spend(start)).count();
        assert_eq!(spent, 3);
        assert!(budget.spend(start + Duration::from_secs(1)));
        assert!(!budget.spend(start + Duration::from_secs(1)));
    }
}
