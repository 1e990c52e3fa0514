//! Kubernetes events, which `kubectl describe` shows.
//!
//! Publishing never delays or fails a reconcile. Events wait in a bounded queue; their rate is
//! limited in each namespace and in total, with a smaller limit for `Normal` than for `Warning`; an
//! event that cannot be published is logged at debug level. Conditions, not events, are the
//! complete record.
//!
//! An event that repeats the last one of its object, reason and action within 10 minutes only
//! increases its count (`series`). An event with another note is a new one.
//!
//! Needs `create` and `patch` on `events` in `events.k8s.io`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_controller::events::{Event, EventRecorder, EventType, Reporter};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{DynamicResourceScope, ObjectMeta};
use kube::{Client, Resource};
use tokio::sync::mpsc;
use tracing::debug;

use crate::client::{REQUEST_TIMEOUT, error_chain};

/// Length of the queue. Events are dropped when it is full.
const QUEUE_LENGTH: usize = 1_000;

/// The rate of all events, as a multiple of that of one namespace.
const TOTAL_FACTOR: u32 = 5;

/// Number of namespaces whose rate is remembered, unless more of them have events at the same time.
const MAX_NAMESPACES: usize = 1_000;

/// Publishes events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventPublisher {
    queue: mpsc::Sender<(Event, Regarding)>,
}

impl EventPublisher {
    /// Creates a publisher, and the task that sends its events. `controller` and `instance` are the
    /// reporter.
    pub fn new(
        client: Client,
        controller: &str,
        instance: &str,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, waiting) = mpsc::channel(QUEUE_LENGTH);
        let reporter = Reporter {
            controller: controller.to_owned(),
            instance: Some(instance.to_owned()),
        };
        let recorder = EventRecorder::new(client, reporter).with_timeout(REQUEST_TIMEOUT);
        (Self { queue }, publish(recorder, waiting))
    }

    /// Publishes an event of type `Normal`.
    pub fn normal<K: Resource>(
        &self,
        object: &K,
        version: &K::DynamicType,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        self.send(
            EventType::Normal,
            object.object_ref(version),
            reason,
            action,
            note,
        );
    }

    /// Publishes an event of type `Warning`.
    pub fn warning<K: Resource>(
        &self,
        object: &K,
        version: &K::DynamicType,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        self.send(
            EventType::Warning,
            object.object_ref(version),
            reason,
            action,
            note,
        );
    }

    fn send(
        &self,
        type_: EventType,
        object: ObjectReference,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.to_owned()),
            action: action.to_owned(),
            related: None,
        };
        let metadata = ObjectMeta::default();
        let regarding = Regarding { object, metadata };
        if self.queue.try_send((event, regarding)).is_err() {
            debug!(reason, "the queue of events is full, dropping one");
        }
    }
}

/// The object of an event. The recorder publishes events of a [`Resource`], and uses only its
/// reference.
struct Regarding {
    object: ObjectReference,
    metadata: ObjectMeta,
}

impl Resource for Regarding {
    type DynamicType = ();
    type Scope = DynamicResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn object_ref(&self, (): &()) -> ObjectReference {
        self.object.clone()
    }
}

async fn publish(recorder: EventRecorder, mut waiting: mpsc::Receiver<(Event, Regarding)>) {
    let mut normal = RateLimits::new(10, 2);
    let mut warnings = RateLimits::new(100, 20);
    while let Some((event, regarding)) = waiting.recv().await {
        let limits = if matches!(event.type_, EventType::Normal) {
            &mut normal
        } else {
            &mut warnings
        };
        let namespace = regarding.object.namespace.as_deref().unwrap_or_default();
        if !limits.take(namespace, Instant::now()) {
            debug!(
                reason = event.reason,
                object = regarding.object.name,
                "the rate limit of events is exceeded, dropping one"
            );
            continue;
        }
        if let Err(error) = recorder.publish(&regarding, &event).await {
            debug!(
                reason = event.reason,
                error = error_chain(&error),
                "cannot publish an event"
            );
        }
    }
}

/// Limits the events of each namespace, so that one tenant does not suppress those of others, and
/// all events together, so that they do not load the API server.
struct RateLimits {
    of_each: TokenBucket,
    of_all: TokenBucket,
    namespaces: HashMap<String, TokenBucket>,
}

impl RateLimits {
    fn new(burst: u32, per_second: u32) -> Self {
        Self {
            of_each: TokenBucket::new(burst, per_second),
            of_all: TokenBucket::new(burst * TOTAL_FACTOR, per_second * TOTAL_FACTOR),
            namespaces: HashMap::new(),
        }
    }

    /// Takes a token of the namespace, if there is one.
    fn take(&mut self, namespace: &str, now: Instant) -> bool {
        if self.namespaces.len() >= MAX_NAMESPACES {
            self.namespaces.retain(|_, bucket| !bucket.is_full(now));
        }
        let bucket = self.namespaces.entry(namespace.to_owned());
        let bucket = bucket.or_insert_with(|| self.of_each.clone());
        bucket.take(now) && self.of_all.take(now)
    }
}

/// A token bucket: limits bursts and the rate in the long run.
#[derive(Clone)]
struct TokenBucket {
    /// The time after which there is one more token.
    refill: Duration,
    /// The time after which an empty bucket is full.
    capacity: Duration,
    full_at: Option<Instant>,
}

impl TokenBucket {
    fn new(burst: u32, per_second: u32) -> Self {
        let refill = Duration::from_secs(1) / per_second;
        Self {
            refill,
            capacity: refill * burst,
            full_at: None,
        }
    }

    fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|full_at| full_at <= now)
    }

    /// Takes a token, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now)) + self.refill;
        let has_token = full_at <= now + self.capacity;
        if has_token {
            self.full_at = Some(full_at);
        }
        has_token
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Method, Request, Response};
    use http_body_util::BodyExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use serde_json::Value;
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn another_note_is_a_new_event() {
        let (requests, mut received) = mpsc::unbounded_channel();
        let answer = move |request: Request<Body>| {
            let requests = requests.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                requests
                    .send((head.method, serde_json::from_slice::<Value>(&body).unwrap()))
                    .unwrap();
                Ok::<_, Infallible>(Response::new(Body::from(body)))
            }
        };
        let client = Client::new(service_fn(answer), "default");
        let (publisher, task) = EventPublisher::new(client, "example.com/test", "pod");
        let mut object = ConfigMap::default();
        object.metadata.name = Some("a".to_owned());
        object.metadata.uid = Some("u".to_owned());
        for note in ["first", "first", "second"] {
            publisher.warning(&object, &(), "Broken", "Test", note);
        }
        drop(publisher);
        task.await;
        let (method, first) = received.recv().await.unwrap();
        assert_eq!(
            (method, first["note"].as_str()),
            (Method::POST, Some("first"))
        );
        assert_eq!(
            (&first["regarding"]["kind"], &first["regarding"]["name"]),
            (&"ConfigMap".into(), &"a".into())
        );
        let (method, repeated) = received.recv().await.unwrap();
        assert_eq!(
            (method, repeated["series"]["count"].as_u64()),
            (Method::PATCH, Some(2))
        );
        let (method, second) = received.recv().await.unwrap();
        assert_eq!(
            (method, second["note"].as_str()),
            (Method::POST, Some("second"))
        );
    }

    #[test]
    fn burst_is_limited_and_tokens_refill() {
        let (mut bucket, start) = (TokenBucket::new(3, 1), Instant::now());
        let taken = (0..10).filter(|_| bucket.take(start)).count();
        assert_eq!(taken, 3);
        assert!(bucket.take(start + Duration::from_secs(1)));
        assert!(!bucket.take(start + Duration::from_secs(1)));
    }

    #[test]
    fn one_namespace_does_not_use_up_the_events_of_others() {
        let (mut limits, now) = (RateLimits::new(10, 1), Instant::now());
        let mut taken = |namespace: &str| (0..100).filter(|_| limits.take(namespace, now)).count();
        let counts: Vec<_> = (0..7).map(|number| taken(&number.to_string())).collect();
        assert_eq!(counts, [10, 10, 10, 10, 10, 0, 0], "50 in total");
    }
}
