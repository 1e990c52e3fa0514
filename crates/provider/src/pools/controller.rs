//! The controller of the pools of a provider: their finalizer and their status.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, PrunedFields, ResourceClient, error_chain};
use capi_ipam_controller::controller::{
    Action, Attempt, Conflicts, Protect, Protection, Reconciler,
};
use capi_ipam_controller::expectations::EXPECTATION_TTL;
use capi_ipam_controller::finalizer;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::Origin;
use capi_ipam_controller::retry::{Retry, RetryPolicy};
use capi_ipam_controller::watch::MaybeInvalid;
use kube::Resource;
use kube::core::ObjectMeta;

use super::status::{self, PoolCounts, PoolState, PoolStatus};
use super::{PoolProvider, Shared};
use crate::adapter::PoolKind;
use crate::api::{IPAddress, PoolReference, is_paused};
use crate::pending_creates::PendingCreates;
use crate::selection::Selection;
use crate::setup::ProviderSetup;
use crate::status_fields;
use crate::status_rate::STATUS_INTERVAL;
use crate::status_writer::{StatusWrite, StatusWriter};

/// The delay before a pool that is being deleted is checked again. The release of its addresses
/// enqueues it earlier.
const DELETION_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// The delay before a pool that is being deleted is checked again, if nothing enqueues it.
const DELETION_RETRY_DELAY: Duration = Duration::from_secs(2);
/// The delays before a pool is reconciled again after a failure.
const RETRY: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(50),
    max: Duration::from_secs(10),
};

/// What a pool waits for whose list of IPAddresses may become outdated.
const IN_FLIGHT: &str = "waiting for requests that may create an IPAddress of this pool";

/// Reconciles the pools of a provider.
pub(super) struct PoolReconciler<P: PoolProvider> {
    shared: Arc<Shared<P>>,
    selection: Selection,
    pending_creates: Arc<PendingCreates>,
    status: StatusWriter<P::Pool>,
    /// The status fields that the served definition does not have.
    pruned_fields: PrunedFields,
}

/// What a pool in deletion waits for.
struct Blocker {
    message: String,
    /// When to check again.
    retry: Duration,
}

impl<P: PoolProvider> Reconciler for PoolReconciler<P> {
    type Object = P::Pool;
    type State = Conflicts;
    type Error = CallError;

    fn retry(&self, error: &CallError, failures: u32) -> Retry {
        if error.is_unserializable() {
            Retry::GiveUp
        } else {
            Retry::After(RETRY.delay(failures))
        }
    }

    async fn reconcile(
        &self,
        pool: Arc<P::Pool>,
        attempt: &mut Attempt<Conflicts>,
    ) -> Result<Action, CallError> {
        // Without a finalizer nothing else asks.
        if let Protection::Postponed(action) = self.protection(&pool) {
            return Ok(action);
        }
        let result = self.reconcile_pool(&pool).await;
        if let Err(error) = &result {
            self.status.failed(&pool, error, attempt);
        }
        outcome(pool.as_ref(), result, attempt)
    }
}

impl<P: PoolProvider> Protect for PoolReconciler<P> {
    fn objects(&self, pool: &P::Pool) -> ResourceClient<P::Pool> {
        let namespace = pool.meta().namespace.as_deref().unwrap_or_default();
        let client = self.shared.pool_client(namespace);
        client.with_pruned_fields(self.pruned_fields.clone())
    }

    fn protection(&self, pool: &P::Pool) -> Protection {
        if !self.selection.includes(pool) {
            return Protection::Postponed(Action::AwaitChange);
        }
        if self.status.expectations().is_stale(pool, Instant::now()) {
            return Protection::Postponed(Action::Requeue(EXPECTATION_TTL));
        }
        let is_released = pool.meta().deletion_timestamp.is_some() && !self.is_protected(pool);
        if is_paused(pool.meta()) || is_released {
            return Protection::Unmanaged;
        }
        Protection::Managed
    }

    fn protected(&self, pool: &P::Pool) {
        self.status.expectations().expect(pool, Instant::now());
        self.shared.pools.see(Origin::Response, pool);
    }

    async fn rejected(
        &self,
        pool: &P::Pool,
        error: CallError,
        attempt: &mut Attempt<Conflicts>,
    ) -> Result<Action, CallError> {
        let is_reported = !error.is_not_found() && attempt.is_rejected_lastingly();
        if is_reported && pool.meta().deletion_timestamp.is_none() {
            let name = self.shared.options.finalizer.unwrap_or_default();
            let error = error_chain(&error);
            let message = format!("cannot add the finalizer {name}, will retry: {error}");
            let written = self.write_status(pool, None, Some(&message)).await;
            if let Err(error) = written {
                return outcome(pool, Err(error), attempt);
            }
        }
        outcome(pool, Err(error), attempt)
    }
}

impl<P: PoolProvider> PoolReconciler<P> {
    pub(super) fn new(shared: Arc<Shared<P>>, setup: &ProviderSetup<'_>) -> Self {
        Self {
            shared,
            selection: Selection::of(&setup.manager.options),
            pending_creates: Arc::clone(&setup.pending_creates),
            status: StatusWriter::new(
                setup.manager.events.clone(),
                (),
                STATUS_INTERVAL,
                |pool| status_fields::read::<_, PoolStatus>(pool).conditions,
                status::is_warning,
            ),
            pruned_fields: PrunedFields::default(),
        }
    }

    /// Whether a change of a pool is not the last write of this controller.
    pub(super) fn is_change_by_others(&self) -> impl Fn(&P::Pool, &P::Pool) -> bool + use<P> {
        self.status.is_change_by_others()
    }

    /// Whether the pool has the finalizer of the provider.
    fn is_protected(&self, pool: &P::Pool) -> bool {
        let finalizer = self.shared.options.finalizer;
        finalizer.is_some_and(|name| finalizer::is_set(pool, name))
    }

    async fn reconcile_pool(&self, pool: &P::Pool) -> Result<Action, CallError> {
        let is_deleting = pool.meta().deletion_timestamp.is_some();
        let mut blocker = None;
        if is_deleting && self.is_protected(pool) && !is_paused(pool.meta()) {
            blocker = self.find_blocker(pool).await?;
            if blocker.is_none() {
                // No IPAddress of the deleted pool exists.
                return Ok(Action::AwaitChange);
            }
        }
        let message = blocker.as_ref().map(|blocker| blocker.message.as_str());
        let deletion = is_deleting.then(|| message.unwrap_or_default());
        let wait = self.write_status(pool, deletion, None).await?;
        Ok(match (blocker, wait) {
            (Some(blocker), Some(wait)) => Action::Requeue(wait.min(blocker.retry)),
            (Some(blocker), None) => Action::Requeue(blocker.retry),
            (None, Some(wait)) => Action::Requeue(wait),
            (None, None) => Action::AwaitChange,
        })
    }

    /// What blocks the deletion of a pool: an IPAddress of it, or the request that creates one. The
    /// caches can only delay the release. A list of the IPAddresses decides, after the pool was
    /// seen in deletion: since then this manager only binds claims that have an IPAddress. One that
    /// is deleted meanwhile is allocated again, so no reconcile may be in flight before the list,
    /// and after it.
    async fn find_blocker(&self, pool: &P::Pool) -> Result<Option<Blocker>, CallError> {
        let key = NamespacedName::of(pool.meta());
        let waiting = |message: String, retry| Some(Blocker { message, retry });
        let count = self.shared.addresses.count(&key);
        if count > 0 {
            return Ok(waiting(in_use(count), DELETION_CHECK_INTERVAL));
        }
        let kind = PoolKind::of::<P::Pool>();
        let is_of_pool = |namespace: &str, reference: &PoolReference| {
            kind.matches(reference) && reference.name == key.name() && namespace == key.namespace()
        };
        // In this order: a reconcile that ends between the two has recorded its request before.
        let may_be_created = || {
            self.shared.pools.is_in_flight(&key)
                || self
                    .pending_creates
                    .may_still_apply_to(is_of_pool, Instant::now())
        };
        let in_flight = || waiting(IN_FLIGHT.to_owned(), DELETION_RETRY_DELAY);
        if may_be_created() {
            return Ok(in_flight());
        }
        let mut count = 0_usize;
        let mut undecodable = None;
        let use_page = |page: Vec<MaybeInvalid<IPAddress>>| {
            for address in page {
                match address.0 {
                    Ok(address) if is_of_pool(key.namespace(), &address.spec.pool_ref) => {
                        count = count.saturating_add(1);
                    }
                    Err(invalid) if may_be_of(&kind, key.name(), &invalid.metadata) => {
                        undecodable = invalid.metadata.name;
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        };
        let addresses = self.shared.contract.addresses(key.namespace());
        addresses.for_each_page(use_page).await?;
        if count > 0 {
            return Ok(waiting(in_use(count), DELETION_RETRY_DELAY));
        }
        if may_be_created() {
            return Ok(in_flight());
        }
        Ok(undecodable.and_then(|name| {
            let message = format!(
                "IPAddress {name} cannot be decoded and may have an address of this pool; correct or delete it"
            );
            waiting(message, DELETION_CHECK_INTERVAL)
        }))
    }

    /// Writes the status if it has changed. `deletion` is what a pool in deletion waits for.
    /// Returns the remaining delay if the rate limit does not permit a write now.
    async fn write_status(
        &self,
        pool: &P::Pool,
        deletion: Option<&str>,
        finalizer_error: Option<&str>,
    ) -> Result<Option<Duration>, CallError> {
        if !self.shared.options.status {
            return Ok(None);
        }
        let key = NamespacedName::of(pool.meta());
        let problem = self.shared.provider.validate(pool).err();
        let capacity = self.shared.provider.capacity(pool);
        let state = PoolState {
            generation: pool.meta().generation,
            counts: PoolCounts::new(self.shared.addresses.count(&key), capacity),
            has_no_address: self.shared.pools.is_exhausted(&key),
            problem: problem.as_deref(),
            finalizer_error,
            deletion: deletion.map(str::to_owned),
            is_paused: is_paused(pool.meta()),
        };
        let wanted = state.status(status_fields::read(pool));
        let client = self.objects(pool);
        let write = self.status.write_fields(&client, pool, &wanted);
        Ok(match write.await? {
            StatusWrite::Delayed(wait) => Some(wait),
            StatusWrite::Written(written) => {
                self.shared.pools.see(Origin::Response, &written);
                None
            }
            StatusWrite::Unchanged => None,
        })
    }
}

/// Whether an IPAddress that cannot be decoded may be of a pool: the pool of an IPAddress is one of
/// its owners. Without such an owner it may be of any pool of its namespace.
fn may_be_of(kind: &PoolKind, pool: &str, address: &ObjectMeta) -> bool {
    let owners = address.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| kind.is_kind_of(owner));
    owner.is_none_or(|owner| owner.name == pool)
}

/// What follows from the result of a reconcile. A pool in deletion is only released by a reconcile
/// that says so.
fn outcome<K: Resource>(
    pool: &K,
    result: Result<Action, CallError>,
    attempt: &mut Attempt<Conflicts>,
) -> Result<Action, CallError> {
    let is_deleting = pool.meta().deletion_timestamp.is_some();
    attempt.conclude(is_deleting, result, DELETION_RETRY_DELAY)
}

/// What a pool with `count` IPAddresses waits for.
fn in_use(count: usize) -> String {
    let addresses = if count == 1 {
        "IPAddress"
    } else {
        "IPAddresses"
    };
    format!(
        "waiting for {count} {addresses} to be released; delete the claims that have them, since a deletion cannot be \
         undone"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn undecodable_address_is_of_the_pool_that_owns_it() {
        let kind = PoolKind::new("example.com", "ListPool");
        let owner = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "name": name, "uid": "u"});
        let claim = owner("ipam.cluster.x-k8s.io/v1beta2", "IPAddressClaim", "c");
        let other_kind = owner("other.com/v1", "ListPool", "q");
        for (owners, expected) in [
            (
                json!([claim, owner("example.com/v2", "ListPool", "p")]),
                true,
            ),
            (
                json!([claim, owner("example.com/v1", "ListPool", "q")]),
                false,
            ),
            (json!([claim, other_kind]), true),
            (json!(null), true),
        ] {
            let address = serde_json::from_value(json!({"ownerReferences": owners})).unwrap();
            assert_eq!(may_be_of(&kind, "p", &address), expected, "{owners}");
        }
    }
}
