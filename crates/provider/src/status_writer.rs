//! Writes the status of pools, networks and other objects with conditions: at a limited rate, with
//! one line in the log and an event for each change of a status or reason, and none while nothing
//! changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use capi_ipam_controller::client::{ApiObject, CallError, ResourceClient, error_chain};
use capi_ipam_controller::controller::{Action, Attempt};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::Expectations;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::patch;
use kube::{Resource, ResourceExt};
use tracing::{debug, info, warn};

use crate::api::conditions::{self, Condition};
use crate::contract::uid_of;
use crate::status_rate::StatusLimiter;

/// Writes the status of the objects of a controller.
pub struct StatusWriter<K: Resource> {
    events: EventPublisher,
    version: K::DynamicType,
    /// The conditions of an object.
    conditions: fn(&K) -> Vec<Condition>,
    /// Whether a condition reports a problem: its transitions are warnings.
    is_warning: fn(&Condition) -> bool,
    expectations: Arc<Expectations>,
    limiter: StatusLimiter,
    /// Whether it is logged that no status can be written.
    is_reported: AtomicBool,
}

/// The result of [`StatusWriter::write_limited`].
#[derive(Debug)]
pub enum StatusWrite<K> {
    /// There is nothing to write, or nothing that the API server would store.
    Unchanged,
    /// The rate limit does not permit a write before this time is over.
    Delayed(Duration),
    /// The object after the write.
    Written(Box<K>),
}

impl<K: ApiObject> StatusWriter<K> {
    /// Creates a writer that writes the status of an object once per `interval`.
    pub fn new(
        events: EventPublisher,
        version: K::DynamicType,
        interval: Duration,
        conditions: fn(&K) -> Vec<Condition>,
        is_warning: fn(&Condition) -> bool,
    ) -> Self {
        Self {
            events,
            version,
            conditions,
            is_warning,
            expectations: Arc::default(),
            limiter: StatusLimiter::new(interval),
            is_reported: AtomicBool::new(false),
        }
    }

    /// Whether this controller has written the object after this state, which its watch has not
    /// shown yet.
    pub fn is_stale(&self, object: &K) -> bool {
        self.expectations.is_stale(object, Instant::now())
    }

    /// Records a write of an object, as the API server returned it.
    pub fn expect(&self, written: &K) {
        self.expectations.expect(written, Instant::now());
    }

    /// Whether a change is not the last write of this controller, which knows what it has written.
    /// For [`ControllerBuilder::wants`](capi_ipam_controller::controller::ControllerBuilder::wants).
    pub fn is_change_by_others(&self) -> impl Fn(&K, &K) -> bool + use<K> {
        let expectations = Arc::clone(&self.expectations);
        move |_, after| !expectations.is_own_write(after, Instant::now())
    }

    /// The time until a transition of the object can be written; `None` if it can be written now.
    /// It counts as written then.
    pub fn delay(&self, object: &K) -> Option<Duration> {
        self.limiter.delay(uid_of(object), true, Instant::now())
    }

    /// The next write of the object is not delayed.
    pub(crate) fn write_at_once(&self, object: &K) {
        self.limiter.retry(uid_of(object), Instant::now());
    }

    /// Writes the status of `wanted` if the rate limit permits it: a transition of a condition at
    /// once, and counts alone after a short delay.
    ///
    /// # Errors
    /// If the write fails.
    pub async fn write_limited(
        &self,
        client: &ResourceClient<K>,
        before: &K,
        wanted: &K,
    ) -> Result<StatusWrite<K>, CallError> {
        let has_transition = !self.changed(before, wanted).is_empty();
        let (uid, started) = (uid_of(before), Instant::now());
        if let Some(wait) = self.limiter.delay(uid, has_transition, started) {
            return Ok(StatusWrite::Delayed(wait));
        }
        let written = self.write(client, before, wanted).await;
        self.limiter.record_latency(started.elapsed());
        Ok(match written? {
            Some(written) => StatusWrite::Written(Box::new(written)),
            None => StatusWrite::Unchanged,
        })
    }

    /// Like [`Self::write_limited`], for a `wanted` that differs. Logs once if the kind has no status.
    ///
    /// # Errors
    /// If the write fails.
    pub(crate) async fn write_or_log(
        &self,
        client: &ResourceClient<K>,
        before: &K,
        wanted: &K,
    ) -> Result<StatusWrite<K>, CallError> {
        match self.write_limited(client, before, wanted).await {
            Err(error) if error.is_not_found() => {
                let found = client.get(&before.name_any()).await?;
                if found.is_none_or(|found| found.meta().uid != before.meta().uid) {
                    return Err(error);
                }
                let why = "their CustomResourceDefinition has no status subresource";
                self.report_missing(why);
                Ok(StatusWrite::Unchanged)
            }
            Ok(StatusWrite::Unchanged) => {
                self.report_missing("the API server would store nothing of it");
                Ok(StatusWrite::Unchanged)
            }
            write => write,
        }
    }

    /// Logs once why no status can be written.
    fn report_missing(&self, why: &str) {
        let kind = K::kind(&self.version);
        if self.is_reported.swap(true, Ordering::Relaxed) {
            debug!(%kind, why, "the status of an object is not written");
        } else {
            warn!(%kind, why, "the status of the objects is not written");
        }
    }

    /// Writes the status of `wanted`, without a rate limit. `None` if there is nothing to write.
    ///
    /// # Errors
    /// If the write fails.
    pub async fn write(
        &self,
        client: &ResourceClient<K>,
        before: &K,
        wanted: &K,
    ) -> Result<Option<K>, CallError> {
        let Some(written) = patch::write(client, before, wanted).await? else {
            return Ok(None);
        };
        self.expect(&written);
        let name = NamespacedName::of(written.meta());
        let object = format!("{} {name}", K::kind(&self.version));
        let (old, new) = ((self.conditions)(before), (self.conditions)(wanted));
        for (before, after) in transitions(&old, &new) {
            log(&object, before, after, after.is_some_and(self.is_warning));
        }
        for condition in changed_conditions(&old, &new) {
            if (self.is_warning)(&condition) {
                let reason = condition.reason();
                let message = condition.message();
                self.warn(&written, reason, message);
            }
        }
        Ok(Some(written))
    }

    /// The conditions of `after` whose status or reason differs from that in `before`.
    pub fn changed(&self, before: &K, after: &K) -> Vec<Condition> {
        changed_conditions(&(self.conditions)(before), &(self.conditions)(after))
    }

    /// What follows from the result of an attempt at an object, see [`Attempt::conclude`]. After an
    /// error the next attempt, whose delay is that of its backoff, writes at once. Publishes a
    /// warning event if the API server rejects the object or its status lastingly: then the
    /// conditions cannot report it.
    ///
    /// # Errors
    /// As for [`Attempt::conclude`].
    pub fn conclude<S>(
        &self,
        object: &K,
        result: Result<Action, CallError>,
        attempt: &mut Attempt<S>,
        delay: Duration,
    ) -> Result<Action, CallError> {
        if let Err(error) = &result {
            self.write_at_once(object);
            let is_rejected = error.is_rejected() || error.is_conflict();
            if is_rejected && attempt.begins_to_be_rejected_lastingly() {
                let error = error_chain(error);
                let note = format!("cannot write the object or its status, will retry: {error}");
                self.warn(object, conditions::INITIALIZATION_FAILED, &note);
            }
        }
        let is_deleting = object.meta().deletion_timestamp.is_some();
        attempt.conclude(is_deleting, result, delay)
    }

    fn warn(&self, object: &K, reason: &str, note: &str) {
        self.events
            .warning(object, &self.version, reason, "Inspect", note);
    }
}

/// Logs the change of a condition; `None` is an object without it.
fn log(object: &str, before: Option<&Condition>, after: Option<&Condition>, is_problem: bool) {
    let condition = after.or(before).map(|condition| condition.type_.as_ref());
    let [from, to] = [before, after].map(|state| state.map(|state| state.status.as_ref()));
    let reason = after.map_or("", Condition::reason);
    let details = after.map_or("", Condition::message);
    if is_problem {
        warn!(%object, condition, from, to, reason, details, "condition changed");
    } else {
        info!(%object, condition, from, to, reason, details, "condition changed");
    }
}

/// The conditions in `after` whose status or reason differs from that in `before`.
fn changed_conditions(before: &[Condition], after: &[Condition]) -> Vec<Condition> {
    let mut changed = after.to_vec();
    changed.retain(|condition| {
        let present = conditions::find(before, &condition.type_);
        present.is_none_or(|present| differ(present, condition))
    });
    changed
}

fn differ(before: &Condition, after: &Condition) -> bool {
    (&before.status, &before.reason) != (&after.status, &after.reason)
}

/// The changes of conditions: each before and after, `None` for an object without it.
fn transitions<'a>(
    before: &'a [Condition],
    after: &'a [Condition],
) -> Vec<(Option<&'a Condition>, Option<&'a Condition>)> {
    let repeats_ready = |condition: &Condition| {
        [conditions::RECONCILING, conditions::STALLED].contains(&condition.type_.as_ref())
    };
    let mut changes = Vec::new();
    for condition in after {
        let present = conditions::find(before, &condition.type_);
        if is_news(present, condition) && !repeats_ready(condition) {
            changes.push((present, Some(condition)));
        }
    }
    for condition in before {
        let is_removed = conditions::find(after, &condition.type_).is_none();
        if is_removed && condition.status == "True" && !repeats_ready(condition) {
            changes.push((Some(condition), None));
        }
    }
    changes
}

/// Whether a condition is news. That a new object has no problem is none.
fn is_news(before: Option<&Condition>, after: &Condition) -> bool {
    match before {
        Some(before) => differ(before, after),
        None => after.type_ == conditions::READY || after.status == "True",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(conditions: &[(&'static str, bool, &'static str)]) -> Vec<Condition> {
        let condition =
            |(type_, status, reason): &(&'static str, bool, &'static str)| -> Condition {
                Condition::new(type_, *status, reason, "text")
            };
        conditions.iter().map(condition).collect()
    }

    fn changes(before: &[Condition], after: &[Condition]) -> Vec<String> {
        let text = |(before, after): (Option<&Condition>, Option<&Condition>)| {
            let status = |state: Option<&Condition>| {
                state.map_or("-".to_owned(), |state| state.status.to_string())
            };
            let type_ = &after.or(before).unwrap().type_;
            let reason = after.map_or("", Condition::reason);
            format!("{type_} {} {} {reason}", status(before), status(after))
        };
        transitions(before, after).into_iter().map(text).collect()
    }

    #[test]
    fn each_change_of_a_condition_is_one_line() {
        let free = list(&[
            ("Ready", true, "PoolReady"),
            ("Exhausted", false, "AddressesFree"),
            ("Overlapping", false, "NoOverlap"),
        ]);
        let full = list(&[
            ("Ready", true, "PoolReady"),
            ("Exhausted", true, "NoFreeAddress"),
            ("Overlapping", false, "NoOverlap"),
        ]);
        assert_eq!(changes(&[], &free), ["Ready - True PoolReady"]);
        assert_eq!(changes(&free, &free), [""; 0]);
        assert_eq!(
            changes(&free, &full),
            ["Exhausted False True NoFreeAddress"]
        );
        assert_eq!(
            changes(&full, &free),
            ["Exhausted True False AddressesFree"]
        );
    }

    #[test]
    fn conditions_that_repeat_ready_are_no_lines() {
        let ready = list(&[
            ("Ready", true, "PoolReady"),
            ("OverLimit", true, "LimitsExceeded"),
        ]);
        let invalid = list(&[
            ("Ready", false, "InvalidSpec"),
            ("Stalled", true, "InvalidSpec"),
        ]);
        assert_eq!(
            changes(&ready, &invalid),
            ["Ready True False InvalidSpec", "OverLimit True - "]
        );
        let other = list(&[("Ready", false, "NetworkNotFound")]);
        assert_eq!(
            changes(&invalid, &other),
            ["Ready False False NetworkNotFound"]
        );
    }
}
