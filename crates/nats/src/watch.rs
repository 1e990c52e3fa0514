//! Watches: the keys of a bucket as a list, followed by their changes.
//!
//! Each watch has a separate ordered consumer. It trusts neither the consumer nor the server that
//! runs it to deliver everything: when it finds a gap, or the bucket is another one than before, it
//! lists again from the start.

mod consumer;
mod markers;
mod progress;
mod session;

use std::time::{Duration, Instant};

use capi_ipam_controller::log_limit::RepetitionLimit;
use capi_ipam_controller::retry::RetryPolicy;
use capi_ipam_controller::watch::{Change, Invalid};
use kube::core::ObjectMeta;
use tokio::time::sleep;

use self::consumer::ConsumerName;
use self::markers::Markers;
use self::session::{Ending, Session};
use crate::bucket::Bucket;
use crate::error::{self, KvError};
use crate::object::{KvObject, Record, Value};

/// The time before a list that follows a failed one.
const RETRY_POLICY: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(20),
    max: Duration::from_millis(500),
};

/// What a watch delivers.
pub(crate) enum Event {
    /// A list starts.
    Init,
    /// The last write of a key of the list.
    Listed(Record),
    /// The list is complete.
    InitDone,
    /// A write after the list.
    Changed(Record),
}

/// A watch of the keys below a prefix. It has to be polled and dropped in a runtime of tokio.
/// Requests are sent only while it is polled.
pub(crate) struct Watch<T> {
    bucket: Bucket<T>,
    /// The subjects of the watched keys.
    subjects: String,
    consumer: ConsumerName,
    /// The list and the changes since; `None` before a list.
    session: Option<Session<T>>,
    /// The number of lists that failed since the last complete one.
    failures: u32,
    markers: Markers,
    /// Limits the messages about values that cannot be decoded: each list contains them.
    invalid: RepetitionLimit,
}

impl<T: Value> Watch<T> {
    /// A watch of the keys below a prefix that ends between two parts of the keys, such as
    /// `block.backbone`; of all keys if it is empty.
    ///
    /// # Errors
    /// When the prefix is not one of keys.
    pub(crate) fn new(bucket: &Bucket<T>, prefix: &str) -> Result<Self, error::Invalid> {
        Ok(Self {
            subjects: bucket.names.subjects_below(prefix)?,
            consumer: ConsumerName::new(&bucket.connection, &bucket.names),
            bucket: bucket.clone(),
            session: None,
            failures: 0,
            markers: Markers::default(),
            invalid: RepetitionLimit::default(),
        })
    }

    /// When the bucket was created that is watched; `None` before a list.
    pub(crate) fn incarnation(&self) -> Option<&str> {
        let session = self.session.as_ref();
        session.map(|session| session.incarnation.as_str())
    }

    /// The next change, or what interrupts the watch: it goes on with the next list.
    pub(crate) async fn next_change(&mut self) -> Result<Change<KvObject<T>>, KvError> {
        loop {
            let (record, apply): (_, fn(_) -> Change<KvObject<T>>) = match self.next().await? {
                Event::Init => {
                    let incarnation = self.incarnation().unwrap_or_default().to_owned();
                    self.markers.begin_list(incarnation);
                    return Ok(Change::Init);
                }
                Event::InitDone => {
                    self.markers.end_list();
                    return Ok(Change::InitDone);
                }
                Event::Listed(record) => (record, Change::InitApply),
                Event::Changed(record) => (record, Change::Apply),
            };
            if self.is_news(&record) {
                return Ok(self.change(record, apply));
            }
        }
    }

    /// Whether a write has to be delivered: a marker is only once.
    fn is_news(&mut self, record: &Record) -> bool {
        if record.is_deleted() {
            return self.markers.is_new(&record.key, record.revision);
        }
        self.markers.forget(&record.key);
        true
    }

    /// What a write means. `apply` is the change if it wrote a value.
    fn change(
        &self,
        record: Record,
        apply: fn(KvObject<T>) -> Change<KvObject<T>>,
    ) -> Change<KvObject<T>> {
        let mut object: KvObject<T> = record.into_object();
        object.incarnation = self.incarnation().map(str::to_owned);
        // Also in a list: a handler of changes must not take a marker for an object.
        if object.is_deleted() {
            return Change::Delete(object);
        }
        let Some(problem) = object.problem.take() else {
            return apply(object);
        };
        self.report_invalid(&object.key, &problem);
        let metadata = ObjectMeta {
            name: Some(object.key),
            resource_version: Some(object.revision.to_string()),
            uid: object.incarnation,
            ..ObjectMeta::default()
        };
        Change::ApplyInvalid(Invalid {
            spec: serde_json::Value::Null,
            error: problem,
            metadata: Box::new(metadata),
        })
    }

    fn report_invalid(&self, key: &str, error: &str) {
        let bucket = self.bucket.name();
        let problem = format!("{key}: {error}");
        if self.invalid.allow(&problem, Instant::now()).is_some() {
            tracing::warn!(
                bucket,
                key,
                error,
                "skipping a value that cannot be decoded; correct or delete it"
            );
        }
    }

    /// The next event, or what interrupts the watch.
    pub(crate) async fn next(&mut self) -> Result<Event, KvError> {
        loop {
            let Some(session) = &mut self.session else {
                return self.start_list().await;
            };
            let ending = match session.next().await {
                Ok(event) => {
                    if matches!(event, Event::InitDone) {
                        self.failures = 0;
                    }
                    return Ok(event);
                }
                Err(ending) => ending,
            };
            if is_failure(&ending, session.is_listing()) {
                self.failures = self.failures.saturating_add(1);
            }
            self.session = None;
            self.report(&ending);
            match ending {
                Ending::Failed(source) => return Err(self.bucket.unavailable(source)),
                // Its revisions are other ones.
                Ending::OtherBucket => self.markers = Markers::default(),
                Ending::Resync | Ending::Gap => {}
            }
        }
    }

    /// Starts a list. After failed ones it waits first.
    async fn start_list(&mut self) -> Result<Event, KvError> {
        sleep(retry_delay(self.failures)).await;
        let started = Session::start(&self.bucket, &self.subjects, &self.consumer).await;
        match started {
            Ok(session) => {
                self.session = Some(session);
                Ok(Event::Init)
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                Err(error)
            }
        }
    }

    /// Logs why a list is followed by another one.
    fn report(&self, ending: &Ending) {
        let bucket = self.bucket.name();
        match ending {
            Ending::Resync => tracing::debug!(bucket, "the watch lists again"),
            Ending::Gap => tracing::info!(bucket, "the watch missed changes and lists again"),
            Ending::OtherBucket => {
                tracing::warn!(
                    bucket,
                    "the bucket was restored or created again: listing again"
                );
            }
            // The source reports it.
            Ending::Failed(_) => {}
        }
    }
}

/// The delay before the next attempt after a number of failures in a row.
fn retry_delay(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        failures => RETRY_POLICY.delay(failures),
    }
}

/// Whether the next list has to wait. A list that is not completed fails, whatever ended it.
fn is_failure(ending: &Ending, is_listing: bool) -> bool {
    is_listing || matches!(ending, Ending::Failed(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_that_is_not_completed_delays_the_next_one() {
        assert!(is_failure(&Ending::Gap, true));
        assert!(is_failure(&Ending::OtherBucket, true));
        assert!(!is_failure(&Ending::Gap, false));
        assert!(!is_failure(&Ending::Resync, false));
        assert_eq!(retry_delay(0), Duration::ZERO);
        assert!(retry_delay(1) > Duration::ZERO);
    }
}
