//! What the controller of pools has to know of the pools of a [`PoolProvider`].

use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::controller::{Action, Protection};
use capi_ipam_controller::finalizer;
use capi_ipam_controller::observed::Origin;
use capi_ipam_controller::watch::{Keyed, MaybeInvalid};
use kube::Resource;
use kube::core::ObjectMeta;

use super::status::{self, PoolCounts, PoolState, PoolStatus};
use super::{PoolProvider, Shared};
use crate::adapter::PoolKind;
use crate::api::conditions::Condition;
use crate::api::{IPAddress, PoolReference, is_paused};
use crate::pending_creates::PendingCreates;
use crate::pool_controller::{CHECK_INTERVAL, DELETION_RETRY_DELAY, PoolControl, PoolPlan};
use crate::status_fields;

/// What a pool waits for whose list of IPAddresses may become outdated.
const IN_FLIGHT: &str = "waiting for requests that may create an IPAddress of this pool";

/// The pools of a provider.
pub(super) struct WatchedControl<P: PoolProvider> {
    pub(super) shared: Arc<Shared<P>>,
    pub(super) pending_creates: Arc<PendingCreates>,
}

impl<P: PoolProvider> PoolControl for WatchedControl<P> {
    type Pool = P::Pool;

    fn finalizer(&self) -> Option<&'static str> {
        self.shared.options.finalizer
    }

    fn client(&self, pool: &P::Pool) -> ResourceClient<P::Pool> {
        let namespace = pool.meta().namespace.as_deref().unwrap_or_default();
        self.shared.pool_client(namespace)
    }

    fn protection(&self, pool: &P::Pool) -> Protection {
        if is_paused(pool.meta()) {
            return Protection::Unmanaged;
        }
        Protection::Managed
    }

    fn seen(&self, pool: &P::Pool) {
        self.shared.pools.record(Origin::Response, pool);
    }

    fn conditions(pool: &P::Pool) -> Vec<Condition> {
        status_fields::read::<_, PoolStatus>(pool).conditions
    }

    fn is_warning(condition: &Condition) -> bool {
        status::is_warning(condition)
    }

    async fn plan(
        &self,
        pool: &P::Pool,
        finalizer_error: Option<&str>,
    ) -> Result<PoolPlan<P::Pool>, CallError> {
        let is_deleting = pool.is_deleting();
        let finalizer = self.finalizer();
        let is_protected = finalizer.is_some_and(|name| finalizer::is_set(pool, name));
        let mut next = Action::AwaitChange;
        let mut deletion = is_deleting.then(String::new);
        if is_deleting && is_protected && !is_paused(pool.meta()) {
            let Some(blocker) = self.find_blocker(pool).await? else {
                // No IPAddress of the deleted pool exists.
                return Ok(PoolPlan::Released);
            };
            let (message, action) = blocker;
            next = action;
            deletion = Some(message);
        }
        if !self.shared.options.status {
            return Ok(PoolPlan::Report(None, next));
        }
        let problem = finalizer_error.map(|error| {
            let name = finalizer.unwrap_or_default();
            format!("cannot add the finalizer {name}, will retry: {error}")
        });
        let before: PoolStatus = status_fields::read(pool);
        let key = pool.key();
        let state = PoolState {
            generation: pool.meta().generation,
            counts: PoolCounts::new(
                self.shared.addresses.count(&key),
                self.shared.provider.capacity(pool),
            ),
            has_no_address: self.shared.pools.is_exhausted(&key),
            problem: self.shared.provider.validate(pool).err(),
            finalizer_error: problem,
            deletion,
            is_paused: is_paused(pool.meta()),
        };
        let wanted = state.status(before.clone());
        if wanted == before {
            return Ok(PoolPlan::Report(None, next));
        }
        let wanted = status_fields::with(pool, &wanted)?;
        Ok(PoolPlan::Report(Some(Box::new(wanted)), next))
    }
}

impl<P: PoolProvider> WatchedControl<P> {
    /// What blocks the deletion of a pool: an IPAddress of it, or the request that creates one; and
    /// when to check again. The caches can only delay the release. A list of the IPAddresses decides,
    /// after the pool was seen in deletion: since then this manager only binds claims that have an
    /// IPAddress. One that is deleted meanwhile is allocated again, so no reconcile may be in flight
    /// before the list, and after it.
    async fn find_blocker(&self, pool: &P::Pool) -> Result<Option<(String, Action)>, CallError> {
        let key = pool.key();
        let soon = Action::Requeue(DELETION_RETRY_DELAY);
        let count = self.shared.addresses.count(&key);
        if count > 0 {
            // The release of its addresses enqueues it earlier.
            return Ok(Some((in_use(count), Action::Requeue(CHECK_INTERVAL))));
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
        if may_be_created() {
            return Ok(Some((IN_FLIGHT.to_owned(), soon)));
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
            return Ok(Some((in_use(count), soon)));
        }
        if may_be_created() {
            return Ok(Some((IN_FLIGHT.to_owned(), soon)));
        }
        Ok(undecodable.map(|name| {
            let message = format!(
                "IPAddress {name} cannot be decoded and may have an address of this pool; correct or delete it"
            );
            (message, Action::Requeue(CHECK_INTERVAL))
        }))
    }
}

/// Whether an IPAddress that cannot be decoded may be of a pool: the pool of an IPAddress is one of
/// its owners. Without such an owner it may be of any pool of its namespace.
fn may_be_of(kind: &PoolKind, pool: &str, address: &ObjectMeta) -> bool {
    let owners = address.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| kind.is_kind_of(owner));
    owner.is_none_or(|owner| owner.name == pool)
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
