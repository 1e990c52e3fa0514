//! Kubernetes events, which `kubectl describe` shows.
//!
//! Publishing never delays or fails a reconcile. Events wait in a bounded queue; their rate is limited, with a smaller
//! limit for `Normal` than for `Warning`; an event that cannot be published is logged at debug level. Conditions, not
//! events, are the complete record.
//!
//! Needs `create` and `patch` on `events` in `events.k8s.io`.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tokio::sync::mpsc;
use tracing::debug;

use crate::client::{REQUEST_TIMEOUT, error_chain};

/// Length of the queue. Events are dropped when it is full.
const QUEUE_LENGTH: usize = 1_000;
/// Length of the longest note that the API server accepts, in bytes.
const MAX_NOTE_LENGTH: usize = 1_000;

/// Publishes events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventPublisher {
    queue: mpsc::Sender<(Event, ObjectReference)>,
}

impl EventPublisher {
    /// Creates a publisher, and the task that sends its events. `controller` and `instance` are the reporter.
    pub fn new(client: Client, controller: &str, instance: &str) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, waiting) = mpsc::channel(QUEUE_LENGTH);
        let reporter = Reporter { controller: controller.to_owned(), instance: Some(instance.to_owned()) };
        (Self { queue }, publish(Recorder::new(client, reporter), waiting))
    }

    /// Publishes an event of type `Normal`.
    pub fn normal<K: Resource>(&self, object: &K, version: &K::DynamicType, reason: &str, action: &str, note: &str) {
        self.send(EventType::Normal, object.object_ref(version), reason, action, note);
    }

    /// Publishes an event of type `Warning`.
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
            debug!(reason, "the queue of events is full, dropping one");
        }
    }
}

async fn publish(recorder: Recorder, mut waiting: mpsc::Receiver<(Event, ObjectReference)>) {
    let mut normal = TokenBucket::new(10.0, 2.0);
    let mut warnings = TokenBucket::new(100.0, 20.0);
    while let Some((event, object)) = waiting.recv().await {
        let bucket = if matches!(event.type_, EventType::Normal) { &mut normal } else { &mut warnings };
        if !bucket.take(Instant::now()) {
            debug!(reason = event.reason, object = object.name, "the rate limit of events is exceeded, dropping one");
            continue;
        }
        match tokio::time::timeout(REQUEST_TIMEOUT, recorder.publish(&event, &object)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(reason = event.reason, error = error_chain(&error), "cannot publish an event"),
            Err(_) => debug!(reason = event.reason, "cannot publish an event: timed out"),
        }
    }
}

/// A token bucket: limits bursts and the rate in the long run.
#[derive(Debug)]
struct TokenBucket {
    burst: f64,
    per_second: f64,
    tokens: f64,
    updated: Option<Instant>,
}

impl TokenBucket {
    fn new(burst: f64, per_second: f64) -> Self {
        Self { burst, per_second, tokens: burst, updated: None }
    }

    /// Takes a token, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        let elapsed = self.updated.map_or(Duration::ZERO, |updated| now.saturating_duration_since(updated));
        self.updated = Some(now);
        self.tokens = self.per_second.mul_add(elapsed.as_secs_f64(), self.tokens).min(self.burst);
        let has_token = self.tokens >= 1.0;
        if has_token {
            self.tokens -= 1.0;
        }
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_is_limited_and_tokens_refill() {
        let (mut bucket, start) = (TokenBucket::new(3.0, 1.0), Instant::now());
        let taken = (0..10).filter(|_| bucket.take(start)).count();
        assert_eq!(taken, 3);
        assert!(bucket.take(start + Duration::from_secs(1)));
        assert!(!bucket.take(start + Duration::from_secs(1)));
    }
}
