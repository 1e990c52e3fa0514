//! A reconciler whose outcome is written into the status of its objects.

use std::sync::Arc;

use capi_ipam_controller::client::{ApiObject, CallError, ResourceClient, error_chain};
use capi_ipam_controller::clock;
use capi_ipam_controller::controller::{
    Action, Attempt, CONFLICT_DELAY, Cause, CleanUp, Failure, Finalized, IN_USE_DELAY, Protect,
    Protection, Reconciler,
};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::EXPECTATION_TTL;
use capi_ipam_controller::retry::Retry;
use capi_ipam_controller::watch::Keyed;
use kube::Resource;
use serde::{Deserialize, Serialize};

use crate::api::conditions::{self, Condition, DELETING, READY, set_ready_or_retried};
use crate::status_fields;
use crate::status_rate::STATUS_INTERVAL;
use crate::status_writer::{StatusWrite, StatusWriter};

/// Reason of an object that is reconciled.
const RECONCILED: &str = "Reconciled";
/// Reason of an object whose reconcile fails.
const RECONCILE_FAILED: &str = "ReconcileFailed";

/// The client that writes the status of an object.
type ClientOf<K> = dyn Fn(&K) -> ResourceClient<K> + Send + Sync;
/// Says who uses an object.
type Users<K> = dyn Fn(&K) -> Option<String> + Send + Sync;

/// The fields of a status that [`Reported`] writes.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadyStatus {
    #[serde(deserialize_with = "conditions::observed_generation")]
    observed_generation: Option<i64>,
    conditions: Vec<Condition>,
}

/// Writes the outcome of each attempt into the status of the object: `observedGeneration`, and the
/// condition `Ready` with `Reconciling` or `Stalled`, so that `kubectl wait --for=condition=Ready`
/// ends, and Flux and Argo CD show the state of the object. Other conditions and fields are kept.
///
/// | attempt | `Ready` | and |
/// |---|---|---|
/// | succeeds | `True`, reason `Reconciled` | |
/// | waits ([`Attempt::wait`]) | `False`, with the reason and the message of the wait | `Reconciling` |
/// | fails and is retried | `False`, with the reason and the text of the error | `Reconciling` |
/// | fails with [`Retry::GiveUp`] | `False`, with the reason and the text of the error | `Stalled` |
/// | of an object in deletion waits | `False`, reason `Deleting`, with what it waits for | |
///
/// An attempt that panics or times out is not reported, and neither is one that has done nothing
/// yet ([`Attempt::keeps_cause`]). The policy of retries is asked twice for each failure.
///
/// A transition is logged, and one to `False` is a warning event. A status that the API server
/// rejects lastingly is an event, too.
///
/// ```
/// use std::fmt::Error;
/// use std::sync::Arc;
///
/// use capi_ipam_provider::advanced::Reported;
/// use capi_ipam_provider::controller::client::{CallError, ResourceClient};
/// use capi_ipam_provider::controller::controller::{Action, Reconciler, reconcile_fn};
/// use capi_ipam_provider::controller::events::EventPublisher;
/// use k8s_openapi::api::core::v1::PersistentVolume;
///
/// fn volumes(events: &EventPublisher, volumes: ResourceClient<PersistentVolume>) -> impl Reconciler {
///     let format = reconcile_fn(async |_: Arc<PersistentVolume>| Ok::<_, CallError>(Action::AwaitChange));
///     let of_volume = move |_: &PersistentVolume| volumes.clone();
///     Reported::new(format, events, of_volume, |_| Some("FormatFailed"))
///         .finalizer("volumes.example.com/format", async |_| Ok(Action::AwaitChange))
/// }
/// ```
pub struct Reported<R: Reconciler<Object: Resource>> {
    inner: R,
    objects: Arc<ClientOf<R::Object>>,
    status: StatusWriter<R::Object>,
    /// The reason of an error.
    reason: fn(&R::Error) -> Option<&'static str>,
    /// Says who uses an object.
    users: Box<Users<R::Object>>,
}

impl<R> Reported<R>
where
    R: Reconciler<Object: ApiObject + Resource<DynamicType: Default>, Error: From<CallError>>,
{
    /// Reports the outcome of a reconciler. `objects` is the client that writes the status of an
    /// object. `reason` is the reason of an error in CamelCase; an error without one, such as that
    /// of a request, is reported as `ReconcileFailed`, and not before it lasts.
    pub fn new(
        inner: R,
        events: &EventPublisher,
        objects: impl Fn(&R::Object) -> ResourceClient<R::Object> + Send + Sync + 'static,
        reason: fn(&R::Error) -> Option<&'static str>,
    ) -> Self {
        let version = <R::Object as Resource>::DynamicType::default();
        let conditions =
            |object: &R::Object| status_fields::read::<_, ReadyStatus>(object).conditions;
        let status = StatusWriter::new(
            events.clone(),
            version,
            STATUS_INTERVAL,
            conditions,
            is_warning,
        );
        Self {
            inner,
            objects: Arc::new(objects),
            status,
            reason,
            users: Box::new(|object| {
                let nobody: [&R::Object; 0] = [];
                crate::references::describe(object, &nobody, &Default::default())
            }),
        }
    }

    /// Says by whom an object in deletion is used, see
    /// [`references::describe`](crate::references::describe). By default only by how many others.
    #[must_use]
    pub fn users(
        mut self,
        users: impl Fn(&R::Object) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.users = Box::new(users);
        self
    }

    /// Like [`Reconciler::finalizer`]. What an object in deletion waits for is reported, too.
    pub fn finalizer<C, F>(
        self,
        finalizer: impl Into<Arc<str>>,
        clean_up: C,
    ) -> Finalized<Reported<impl Protect<Object = R::Object, State = R::State, Error = R::Error>>>
    where
        C: Fn(Arc<R::Object>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, R::Error>> + Send,
    {
        let objects = Arc::clone(&self.objects);
        let reported = Reported {
            inner: CleanUp::new(self.inner, move |object: &_| objects(object), clean_up),
            objects: self.objects,
            status: self.status,
            reason: self.reason,
            users: self.users,
        };
        Finalized::new(reported, finalizer)
    }

    /// Whether a change of an object is not the last write of its status: for
    /// [`ControllerBuilder::wants`](capi_ipam_controller::controller::ControllerBuilder::wants).
    pub fn is_change_by_others(&self) -> impl Fn(&R::Object, &R::Object) -> bool + use<R> {
        self.status.is_change_by_others()
    }

    /// The condition Ready after an attempt, and whether the object can become ready without being
    /// changed. `None` if nothing is reported.
    fn ready(
        &self,
        object: &R::Object,
        attempt: &Attempt<R::State>,
        result: &Result<Action, R::Error>,
    ) -> Option<(Condition, bool)> {
        let not_ready = |reason, message: String| Condition::new(READY, false, reason, message);
        match (result, &attempt.waits_for) {
            (Err(error), _) => {
                let failures = attempt.failures.saturating_add(1);
                let is_retried = self.inner.retry(error, failures) != Retry::GiveUp;
                let reason = match (self.reason)(error) {
                    Some(reason) => reason,
                    None if !is_retried || attempt.is_rejected_lastingly() => RECONCILE_FAILED,
                    None => return None,
                };
                Some((not_ready(reason, error_chain(error)), is_retried))
            }
            // It has done nothing yet.
            (Ok(_), _) if attempt.keeps_cause => None,
            (Ok(Action::AwaitChange), _) if object.is_deleting() => None,
            (Ok(_), waiting) if object.is_deleting() => {
                let message = waiting.as_ref().map(|waiting| waiting.message.clone());
                Some((not_ready(DELETING, message.unwrap_or_default()), true))
            }
            (Ok(_), Some(waiting)) => {
                let ready = not_ready(waiting.reason, waiting.message.clone());
                Some((ready, true))
            }
            (Ok(_), None) => Some((Condition::new(READY, true, RECONCILED, ""), true)),
        }
    }

    /// Reports the outcome of an attempt.
    async fn report(
        &self,
        object: &R::Object,
        attempt: &mut Attempt<R::State>,
        result: Result<Action, R::Error>,
    ) -> Result<Action, R::Error> {
        let ready = self.ready(object, attempt, &result);
        attempt.waits_for = None;
        let Some((ready, is_retried)) = ready else {
            return result;
        };
        // No later attempt would write it.
        let is_last = result.is_err() && !is_retried;
        if is_last {
            self.status.write_at_once(object);
        }
        let written = self.write(object, ready, is_retried).await;
        let next = self
            .status
            .conclude(object, written, attempt, CONFLICT_DELAY);
        if is_last && !matches!(next, Ok(Action::AwaitChange)) {
            return Ok(next?);
        }
        // The failure of the attempt itself says more.
        let action = result?;
        Ok(action.earlier(next?))
    }

    async fn write(
        &self,
        object: &R::Object,
        ready: Condition,
        is_retried: bool,
    ) -> Result<Action, CallError> {
        let generation = object.meta().generation;
        let before: ReadyStatus = status_fields::read(object);
        let mut fields = before.clone();
        fields.observed_generation = generation;
        let ready = ready.with_observed_generation(generation);
        set_ready_or_retried(&mut fields.conditions, ready, is_retried, clock::now());
        if fields == before {
            return Ok(Action::AwaitChange);
        }
        let wanted = status_fields::with(object, &fields)?;
        let client = (self.objects)(object);
        let write = self.status.write_or_log(&client, object, &wanted);
        Ok(match write.await? {
            StatusWrite::Delayed(wait) => Action::Requeue(wait),
            StatusWrite::Unchanged | StatusWrite::Written(_) => Action::AwaitChange,
        })
    }
}

/// Whether a transition to this condition is reported by a warning event.
fn is_warning(condition: &Condition) -> bool {
    let is_requested = condition.reason() == DELETING;
    condition.type_ == READY && condition.status == "False" && !is_requested
}

impl<R> Reconciler for Reported<R>
where
    R: Reconciler<Object: ApiObject + Resource<DynamicType: Default>, Error: From<CallError>>,
{
    type Object = R::Object;
    type State = R::State;
    type Error = R::Error;

    async fn reconcile(
        &self,
        object: Arc<R::Object>,
        attempt: &mut Attempt<R::State>,
    ) -> Result<Action, R::Error> {
        // What is gone has no status.
        if attempt.cause == Cause::Deleted {
            return self.inner.reconcile(object, attempt).await;
        }
        if self.status.is_stale(&object) {
            attempt.keeps_cause = true;
            return Ok(Action::Requeue(EXPECTATION_TTL));
        }
        let result = self.inner.reconcile(Arc::clone(&object), attempt).await;
        self.report(&object, attempt, result).await
    }

    fn wants_deleted(&self, object: &R::Object) -> bool {
        self.inner.wants_deleted(object)
    }

    fn retry(&self, error: &R::Error, failures: u32) -> Retry {
        self.inner.retry(error, failures)
    }

    fn on_error(&self, object: &R::Object, attempt: &Attempt<()>, failure: &Failure<'_, R::Error>) {
        self.inner.on_error(object, attempt, failure);
    }
}

impl<R: Protect<Object: Resource<DynamicType: Default>>> Protect for Reported<R> {
    fn objects(&self, object: &R::Object) -> ResourceClient<R::Object> {
        self.inner.objects(object)
    }

    fn protection(&self, object: &R::Object) -> Protection {
        if self.status.is_stale(object) {
            return Protection::Postponed(Action::Requeue(EXPECTATION_TTL));
        }
        self.inner.protection(object)
    }

    fn protected(&self, object: &R::Object) {
        self.status.expect(object);
        self.inner.protected(object);
    }

    async fn rejected(
        &self,
        object: &R::Object,
        error: CallError,
        attempt: &mut Attempt<R::State>,
    ) -> Result<Action, R::Error> {
        let result = self.inner.rejected(object, error, attempt).await;
        self.report(object, attempt, result).await
    }

    async fn in_use(
        &self,
        object: Arc<R::Object>,
        attempt: &mut Attempt<R::State>,
    ) -> Result<Action, R::Error> {
        let users = (self.users)(&object).unwrap_or_default();
        let action = attempt.wait(DELETING, users, IN_USE_DELAY);
        self.report(&object, attempt, Ok(action)).await
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::controller::reconcile_fn;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use std::time::Duration;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("no place")]
        Place,
        #[error(transparent)]
        Request(#[from] CallError),
    }

    fn reason(error: &Failed) -> Option<&'static str> {
        match error {
            Failed::Place => Some("NoPlace"),
            Failed::Request(_) => None,
        }
    }

    /// The conditions after an attempt: type, status, reason and message.
    fn after(
        node: &serde_json::Value,
        attempt: &Attempt<()>,
        result: &Result<Action, Failed>,
    ) -> Vec<String> {
        // Nothing is sent.
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let (events, _) = EventPublisher::new(client.clone(), "test", "test");
        let nodes = ResourceClient::new(kube::Api::<Node>::all(client), &());
        let inner = reconcile_fn(async |_: Arc<Node>| Ok::<_, Failed>(Action::AwaitChange))
            .with_retry(|_, failures| {
                if failures < 3 {
                    Retry::After(Duration::ZERO)
                } else {
                    Retry::GiveUp
                }
            });
        let reported = Reported::new(inner, &events, move |_: &Node| nodes.clone(), reason);
        let node: Node = serde_json::from_value(json!({"metadata": node})).unwrap();
        let Some((ready, is_retried)) = reported.ready(&node, attempt, result) else {
            return Vec::new();
        };
        let mut list = Vec::new();
        set_ready_or_retried(&mut list, ready, is_retried, clock::now());
        let text = |one: Condition| {
            format!(
                "{}={} {} {}",
                one.type_,
                one.status,
                one.reason.unwrap_or_default(),
                one.message.unwrap_or_default()
            )
        };
        list.into_iter().map(text).collect()
    }

    fn attempt(failures: u32) -> Attempt<()> {
        let mut attempt = Attempt::default();
        attempt.failures = failures;
        attempt
    }

    #[tokio::test]
    async fn conditions_follow_the_outcome() {
        let (node, deleting) = (
            json!({}),
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        );
        let later = Action::Requeue(Duration::from_secs(1));
        for action in [Action::AwaitChange, later] {
            assert_eq!(
                after(&node, &attempt(0), &Ok(action)),
                ["Ready=True Reconciled "]
            );
        }
        let mut waiting = attempt(0);
        let action = waiting.wait("RackMissing", "rack a does not exist", Duration::ZERO);
        assert_eq!(
            after(&node, &waiting, &Ok(action)),
            [
                "Ready=False RackMissing rack a does not exist",
                "Reconciling=True RackMissing rack a does not exist"
            ]
        );
        for (failures, progress) in [(0, "Reconciling"), (2, "Stalled")] {
            assert_eq!(
                after(&node, &attempt(failures), &Err(Failed::Place)),
                [
                    "Ready=False NoPlace no place".to_owned(),
                    format!("{progress}=True NoPlace no place")
                ]
            );
        }
        let request = || {
            Err(CallError::TimedOut {
                operation: "get a".to_owned(),
            }
            .into())
        };
        assert_eq!(after(&node, &attempt(0), &request()), [""; 0]);
        let lasting = after(&node, &attempt(2), &request());
        assert!(
            lasting.concat().contains("ReconcileFailed cannot get a"),
            "{lasting:?}"
        );
        assert_eq!(
            after(&deleting, &attempt(0), &Ok(Action::AwaitChange)),
            [""; 0]
        );
        let mut nothing = attempt(0);
        nothing.keeps_cause = true;
        assert_eq!(after(&node, &nothing, &Ok(later)), [""; 0]);
        let mut used = attempt(0);
        let action = used.wait(DELETING, "used by 1 object", Duration::ZERO);
        assert_eq!(
            after(&deleting, &used, &Ok(action)),
            ["Ready=False Deleting used by 1 object"]
        );
    }
}
