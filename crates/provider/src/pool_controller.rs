//! The controller of pools: their finalizer, their deletion and their status. It is the same for
//! all providers: what a pool contains, and what keeps it from deletion, is a [`PoolControl`].

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::{
    ApiObject, CallError, PrunedFields, ResourceClient, error_chain,
};
use capi_ipam_controller::controller::{
    Action, Attempt, ControllerBuilder, Finalized, Protect, Protection, Reconciler,
    low_with_finalizer, retry_write,
};
use capi_ipam_controller::expectations::EXPECTATION_TTL;
use capi_ipam_controller::finalizer;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::priority::Priority;
use capi_ipam_controller::retry::Retry;
use capi_ipam_controller::watch::{Keyed, WatchSpec};
use kube::Resource;

use crate::api::conditions::Condition;
use crate::selection::Selection;
use crate::status_rate::STATUS_INTERVAL;
use crate::status_writer::{StatusWrite, StatusWriter};

/// The number of pools of a kind that are reconciled concurrently.
const CONCURRENCY: u16 = 4;
/// The delay before the next attempt at a pool in deletion that was not found, or after a conflict.
pub(crate) const DELETION_RETRY_DELAY: Duration = Duration::from_secs(2);
/// The delay before the next check of a pool in deletion that has not been searched for what keeps it,
/// and of a pool that cannot be decoded.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// What the controller of pools has to know of the pools of a provider.
pub trait PoolControl: Send + Sync + 'static {
    /// The kind of the pools.
    type Pool: ApiObject;

    /// The finalizer of the pools, if they have one.
    fn finalizer(&self) -> Option<&'static str>;

    /// The client that reads and writes a pool.
    fn client(&self, pool: &Self::Pool) -> ResourceClient<Self::Pool>;

    /// Whether a selected pool is reconciled now, and with which rule for its finalizer.
    fn protection(&self, pool: &Self::Pool) -> Protection;

    /// Records a pool as the API server returned it after a write.
    fn seen(&self, pool: &Self::Pool);

    /// The conditions in the status of a pool.
    fn conditions(pool: &Self::Pool) -> Vec<Condition>;

    /// Whether a transition to a condition is reported by a warning event.
    fn is_warning(condition: &Condition) -> bool;

    /// Finds what keeps a pool in deletion, and computes the status of a pool.
    /// `finalizer_error` is why the API server rejects the finalizer.
    fn plan(
        &self,
        pool: &Self::Pool,
        finalizer_error: Option<&str>,
    ) -> impl Future<Output = Result<PoolPlan<Self::Pool>, CallError>> + Send;

    /// The status of a pool was not written yet, because of the rate limit.
    fn delayed(&self, _pool: &Self::Pool) {}

    /// The status of a pool was written.
    fn reported(&self, _before: &Self::Pool, _after: &Self::Pool) {}
}

/// What is done with a pool.
#[derive(Debug)]
pub enum PoolPlan<K> {
    /// Nothing keeps the pool, which is being deleted.
    Released,
    /// Something is not known yet. Nothing is written.
    Later(Duration),
    /// The pool with its new status; `None` if that is the same. The action follows. A pool in
    /// deletion is not released.
    Report(Option<Box<K>>, Action),
}

/// Reconciles the pools of a provider.
struct PoolReconciler<C: PoolControl> {
    control: C,
    selection: Selection,
    status: StatusWriter<C::Pool>,
    /// The status fields that the served definition does not have.
    pruned_fields: PrunedFields,
}

/// Runs the controller of the pools of `main`. Their counts, conditions and deletion are background
/// work.
pub fn run_pools<C: PoolControl>(
    manager: &mut Manager,
    controller: ControllerBuilder<C::Pool>,
    main: WatchSpec<C::Pool>,
    version: <C::Pool as Resource>::DynamicType,
    control: C,
) {
    let finalizer = control.finalizer();
    let reconciler = PoolReconciler {
        control,
        selection: Selection::of(&manager.options),
        status: StatusWriter::new(
            manager.events.clone(),
            version,
            STATUS_INTERVAL,
            C::conditions,
            C::is_warning,
        ),
        pruned_fields: PrunedFields::default(),
    };
    let controller = controller
        .concurrency(CONCURRENCY)
        .wants(reconciler.status.is_change_by_others());
    let controller = match finalizer {
        Some(finalizer) => controller.priority(low_with_finalizer(finalizer)),
        None => controller.priority(|_, _| Priority::Low),
    };
    // Without a finalizer no pool is managed.
    let reconciler = Finalized::new(reconciler, finalizer.unwrap_or_default());
    manager.run_controller(controller, main, reconciler);
}

impl<C: PoolControl> PoolReconciler<C> {
    async fn reconcile_pool(
        &self,
        pool: &C::Pool,
        finalizer_error: Option<&str>,
    ) -> Result<Action, CallError> {
        let (wanted, next) = match self.control.plan(pool, finalizer_error).await? {
            PoolPlan::Released => return Ok(Action::AwaitChange),
            PoolPlan::Later(delay) => return Ok(Action::Requeue(delay)),
            PoolPlan::Report(wanted, next) => (wanted, next),
        };
        // What is not searched is not released.
        let next = if pool.is_deleting() && self.is_protected(pool) {
            next.earlier(Action::Requeue(CHECK_INTERVAL))
        } else {
            next
        };
        let Some(wanted) = wanted else {
            return Ok(next);
        };
        let client = self.objects(pool);
        let write = self.status.write_or_log(&client, pool, &wanted);
        match write.await? {
            StatusWrite::Unchanged => {}
            StatusWrite::Delayed(wait) => {
                self.control.delayed(pool);
                return Ok(next.earlier(Action::Requeue(wait)));
            }
            StatusWrite::Written(written) => {
                self.control.seen(&written);
                self.control.reported(pool, &written);
            }
        }
        Ok(next)
    }

    fn is_protected(&self, pool: &C::Pool) -> bool {
        let finalizer = self.control.finalizer();
        finalizer.is_some_and(|name| finalizer::is_set(pool, name))
    }

    /// What follows from the result of a reconcile.
    fn conclude(
        &self,
        pool: &C::Pool,
        result: Result<Action, CallError>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let delay = if pool.is_deleting() {
            DELETION_RETRY_DELAY
        } else {
            STATUS_INTERVAL
        };
        match self.status.conclude(pool, result, attempt, delay) {
            // Nothing can be reported in the status of a pool that cannot be decoded.
            Err(error) if error.invalid_response().is_some() => Ok(Action::Requeue(CHECK_INTERVAL)),
            concluded => concluded,
        }
    }
}

impl<C: PoolControl> Reconciler for PoolReconciler<C> {
    type Object = C::Pool;
    type State = ();
    type Error = CallError;

    fn retry(&self, error: &CallError, failures: u32) -> Retry {
        retry_write(error, failures)
    }

    async fn reconcile(
        &self,
        pool: Arc<C::Pool>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let result = self.reconcile_pool(&pool, None).await;
        self.conclude(&pool, result, attempt)
    }
}

impl<C: PoolControl> Protect for PoolReconciler<C> {
    fn objects(&self, pool: &C::Pool) -> ResourceClient<C::Pool> {
        let client = self.control.client(pool);
        client.with_pruned_fields(self.pruned_fields.clone())
    }

    fn protection(&self, pool: &C::Pool) -> Protection {
        if !self.selection.includes(pool) {
            return Protection::Postponed(Action::AwaitChange);
        }
        if self.status.is_stale(pool) {
            return Protection::Postponed(Action::Requeue(EXPECTATION_TTL));
        }
        // The status of a released pool is written as long as others keep it.
        let is_released = pool.is_deleting() && !self.is_protected(pool);
        match self.control.protection(pool) {
            Protection::Managed if is_released || self.control.finalizer().is_none() => {
                Protection::Unmanaged
            }
            protection => protection,
        }
    }

    fn protected(&self, pool: &C::Pool) {
        self.status.expect(pool);
        self.control.seen(pool);
    }

    /// Counts and conditions are written while other objects refer to the pool.
    async fn in_use(
        &self,
        pool: Arc<C::Pool>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let action = self.reconcile(pool, attempt).await?;
        Ok(action.earlier(Action::Requeue(CHECK_INTERVAL)))
    }

    /// Reports in the status that the API server rejects the finalizer, if it does so lastingly.
    async fn rejected(
        &self,
        pool: &C::Pool,
        error: CallError,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let is_reported = !error.is_not_found() && attempt.is_rejected_lastingly();
        if is_reported && !pool.is_deleting() {
            let problem = error_chain(&error);
            if let Err(error) = self.reconcile_pool(pool, Some(&problem)).await {
                return self.conclude(pool, Err(error), attempt);
            }
        }
        self.conclude(pool, Err(error), attempt)
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::events::EventPublisher;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    /// A pool that its provider does not know any more, or whose deletion it has not searched.
    struct Unknown;

    impl PoolControl for Unknown {
        type Pool = ConfigMap;

        fn finalizer(&self) -> Option<&'static str> {
            Some("example.com/protect")
        }

        fn client(&self, _: &ConfigMap) -> ResourceClient<ConfigMap> {
            ResourceClient::new(kube::Api::namespaced(client(), "n"), &())
        }

        fn protection(&self, _: &ConfigMap) -> Protection {
            Protection::Postponed(Action::AwaitChange)
        }

        fn seen(&self, _: &ConfigMap) {}

        fn conditions(_: &ConfigMap) -> Vec<Condition> {
            Vec::new()
        }

        fn is_warning(_: &Condition) -> bool {
            false
        }

        async fn plan(
            &self,
            _: &ConfigMap,
            _: Option<&str>,
        ) -> Result<PoolPlan<ConfigMap>, CallError> {
            Ok(PoolPlan::Report(None, Action::AwaitChange))
        }
    }

    /// Nothing is sent.
    fn client() -> kube::Client {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        kube::Client::try_from(config).unwrap()
    }

    /// [`Finalized`] removes the finalizer after [`Action::AwaitChange`].
    #[tokio::test]
    async fn pool_in_deletion_is_not_released_without_a_search() {
        let (events, _) = EventPublisher::new(client(), "test", "test");
        let conditions = Unknown::conditions;
        let reconciler = PoolReconciler {
            control: Unknown,
            selection: Selection::default(),
            status: StatusWriter::new(events, (), STATUS_INTERVAL, conditions, |_| false),
            pruned_fields: PrunedFields::default(),
        };
        let metadata = json!({
            "namespace": "n", "name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["example.com/protect"],
        });
        let pool: ConfigMap = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        let mut attempt = Attempt::default();
        let action = reconciler.reconcile(Arc::new(pool), &mut attempt).await;
        assert_eq!(action.unwrap(), Action::Requeue(CHECK_INTERVAL));
    }
}
