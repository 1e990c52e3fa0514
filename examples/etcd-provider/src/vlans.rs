//! The VLANs of pools. Another controller configures them in the switches, and writes their status.
//!
//! A pool can name its VLAN. The VLAN is kept from deletion while the pool exists, and no address is
//! allocated before it is ready.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_provider::controller::client::ResourceClient;
use capi_ipam_provider::controller::controller::{
    Action, Attempt, Cached, Cause, Changed, Finalized, Protect, Reconciler, Store, watch_fn,
};
use capi_ipam_provider::controller::health::ReadinessGate;
use capi_ipam_provider::controller::watch::Keyed;
use capi_ipam_provider::controller::{finalizer, ready};
use capi_ipam_provider::prelude::*;
use capi_ipam_provider::references::{self, ReferenceError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client, CustomResource, ResourceExt};

use crate::provider::EtcdPool;

/// The finalizer of a pool, until its VLAN is released.
const FINALIZER: &str = "etcd-provider.example.com/vlan";

/// The index of the pools by VLAN: `namespace/name`.
const BY_VLAN: &str = "vlan";

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
    cache: Store<Vlan>,
    /// Ready when the VLANs are listed.
    pub synced: ReadinessGate,
}

impl Vlans {
    /// Adds a controller of pools, which keeps their VLANs. A pool is reconciled again when its VLAN
    /// changes.
    pub fn start(manager: &mut manager::Manager) -> Self {
        let mut controller = manager.controller("pools");
        let (pools, trigger) = (controller.store(), controller.trigger());
        pools.index(BY_VLAN, |pool: &EtcdPool| {
            let key = |vlan| format!("{}/{vlan}", pool.key().namespace());
            pool.spec.vlan.iter().map(key).collect()
        });
        let (cache, handler) = Store::watched(move |vlan| {
            for pool in pools.by(BY_VLAN, &vlan.to_string()) {
                trigger.enqueue(pool.key());
            }
        });
        let watched = manager.watch(manager.watch_api(&())).handler(handler);
        let synced = watched.synced.clone();
        controller.watch(watched);
        let vlans = Self {
            client: manager.client.clone(),
            cache,
            synced,
        };
        // Others add labels, annotations and finalizers to pools.
        let controller = controller
            .dequeues(|waiting, newer| waiting.metadata.generation != newer.metadata.generation);
        let kept = Finalized::new(vlans.clone(), FINALIZER).then(watch_fn(report_subnet));
        manager.run_controller(controller, manager.watch(manager.watch_api(&())), kept);
        vlans
    }

    fn of(&self, pool: &EtcdPool) -> ResourceClient<Vlan> {
        let namespace = pool.namespace().unwrap_or_default();
        ResourceClient::new(Api::namespaced(self.client.clone(), &namespace), &())
    }

    /// Requires that the VLAN of a pool is ready, and that the pool keeps it.
    pub fn require(&self, pool: &EtcdPool) -> Result<(), HandlerError> {
        let Some(name) = &pool.spec.vlan else {
            return Ok(());
        };
        let namespace = pool.metadata.namespace.as_deref();
        let Some(Cached::Full(vlan)) = self.cache.get(namespace, name) else {
            let message = format!("spec.vlan: Vlan {name} does not exist");
            return Err(HandlerError::PoolNotReady(message));
        };
        let vlan = vlan.as_ref();
        if vlan.metadata.deletion_timestamp.is_some() {
            let used = references::describe(vlan, &[pool], &());
            let used = used.unwrap_or_else(|| "not used".to_owned());
            let message = format!("spec.vlan: Vlan {name} is being deleted; it is {used}");
            return Err(HandlerError::PoolNotReady(message));
        }
        if !finalizer::is_set(vlan, &references::name_of(pool, &())) {
            return Err(HandlerError::RetryAfter {
                message: format!("spec.vlan: Vlan {name} is not kept for the pool yet"),
                after: Duration::from_secs(1),
            });
        }
        Ok(ready::require(vlan)?)
    }
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
}

impl Protect for Vlans {
    fn objects(&self, pool: &EtcdPool) -> ResourceClient<EtcdPool> {
        let namespace = pool.namespace().unwrap_or_default();
        ResourceClient::new(Api::namespaced(self.client.clone(), &namespace), &())
    }
}
