//! The VLANs of pools. Another controller configures them in the switches, and writes their status.
//!
//! A pool can name its VLAN. The VLAN is kept from deletion while the pool exists, and no address is
//! allocated before it is ready.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_provider::controller::client::ResourceClient;
use capi_ipam_provider::controller::controller::{
    Action, Attempt, Cause, Changed, Failure, Finalized, Protect, Reconciler, watch_fn,
};
use capi_ipam_provider::controller::retry::Retry;
use capi_ipam_provider::controller::{finalizer, ready};
use capi_ipam_provider::prelude::*;
use capi_ipam_provider::references::{self, ReferenceError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client, CustomResource, ResourceExt};

use crate::provider::EtcdPool;

/// The finalizer of a pool, until its VLAN is released.
const FINALIZER: &str = "etcd-provider.example.com/vlan";

/// The time until a pool whose VLAN cannot be kept is reconciled again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// A VLAN.
#[derive(CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Vlan",
    namespaced,
    status = "VlanStatus",
    schema = "disabled"
)]
pub struct VlanSpec {
    /// The number of the VLAN.
    id: u16,
}

/// What the controller of VLANs reports.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct VlanStatus {
    /// `Ready` is True if all switches have the VLAN.
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// The VLANs of all pools.
#[derive(Clone)]
pub struct Vlans {
    client: Client,
}

impl Vlans {
    /// Reads VLANs with this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn of(&self, pool: &EtcdPool) -> ResourceClient<Vlan> {
        let namespace = pool.namespace().unwrap_or_default();
        ResourceClient::new(Api::namespaced(self.client.clone(), &namespace), &())
    }

    /// Requires that the VLAN of a pool is ready, and that the pool keeps it.
    pub async fn require(&self, pool: &EtcdPool) -> Result<(), HandlerError> {
        let Some(name) = &pool.spec.vlan else {
            return Ok(());
        };
        let Some(vlan) = self.of(pool).get(name).await? else {
            let message = format!("spec.vlan: Vlan {name} does not exist");
            return Err(HandlerError::PoolNotReady(message));
        };
        if vlan.metadata.deletion_timestamp.is_some() {
            let used = references::describe(&vlan, &[pool], &());
            let used = used.unwrap_or_else(|| "not used".to_owned());
            let message = format!("spec.vlan: Vlan {name} is being deleted; it is {used}");
            return Err(HandlerError::PoolNotReady(message));
        }
        if !finalizer::is_set(&vlan, &references::name_of(pool, &())) {
            return Err(HandlerError::RetryAfter {
                message: format!("spec.vlan: Vlan {name} is not kept for the pool yet"),
                after: Duration::from_secs(1),
            });
        }
        Ok(ready::require(&vlan)?)
    }

    /// Adds a controller of pools, which keeps their VLANs.
    pub fn add_controller(self, manager: &mut manager::Manager) {
        let pools = manager.watch(manager.watch_api(&()));
        // Others add labels, annotations and finalizers to pools.
        let controller = manager
            .controller("pools")
            .dequeues(|waiting, newer| state(waiting) != state(newer));
        let kept = Finalized::new(self, FINALIZER);
        manager.run_controller(controller, pools, kept.then(watch_fn(report_subnet)));
    }
}

/// What ends the pause after a failure when it changes.
fn state(pool: &EtcdPool) -> (Option<String>, Option<i64>) {
    (pool.metadata.uid.clone(), pool.metadata.generation)
}

/// Reports that the subnet of a pool has changed: allocated addresses stay as they are.
async fn report_subnet(change: Changed<EtcdPool>) -> Result<(), Infallible> {
    if let Changed::Updated { before, after } = change
        && before.spec.subnet != after.spec.subnet
    {
        let pool = after.name_any();
        let (before, after) = (&before.spec.subnet, &after.spec.subnet);
        tracing::warn!(pool, before, after, "the subnet has changed");
    }
    Ok(())
}

impl Reconciler for Vlans {
    type Object = EtcdPool;
    type State = ();
    type Error = ReferenceError;

    async fn reconcile(
        &self,
        pool: Arc<EtcdPool>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, ReferenceError> {
        let (vlans, reference) = (self.of(&pool), references::name_of(pool.as_ref(), &()));
        if attempt.cause == Cause::Deleting {
            references::clear(&vlans, &reference).await?;
            return Ok(Action::AwaitChange);
        }
        let named: Vec<&str> = pool.spec.vlan.as_deref().into_iter().collect();
        references::set(&vlans, &named, &reference).await?;
        Ok(Action::AwaitChange)
    }

    fn on_error(
        &self,
        pool: &EtcdPool,
        attempt: &Attempt<()>,
        failure: &Failure<'_, ReferenceError>,
    ) {
        if attempt.failures == 0 {
            let (pool, vlan) = (pool.name_any(), &pool.spec.vlan);
            tracing::warn!(pool, vlan, %failure, "cannot keep the VLAN of a pool");
        }
    }

    fn retry(&self, _: &ReferenceError, _: u32) -> Retry {
        Retry::After(RETRY_DELAY)
    }
}

impl Protect for Vlans {
    fn objects(&self, pool: &EtcdPool) -> ResourceClient<EtcdPool> {
        let namespace = pool.namespace().unwrap_or_default();
        ResourceClient::new(Api::namespaced(self.client.clone(), &namespace), &())
    }
}
