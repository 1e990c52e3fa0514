//! A read-only ledger for admission in replicas that are not the leader.
//!
//! The ledger of the provider exists in the leader only. A standby keeps its own ledger up to date,
//! which needs watches of addresses, reservations, pools, and of what decides on their use. When
//! the standby becomes the leader, the provider lists all objects again, and the standby ledger is
//! dropped once the ledger of the provider is complete.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{IPNetwork, IPRegistry, IPReservation, IPSlice, InClusterKind, Pool};
use capi_ipam_controller::health::{Health, ReadinessGate};
use capi_ipam_controller::watch::{EventHandler, Invalid, WatchApi, WatchSpec, watch_into};
use capi_ipam_provider::advanced::ContractClient;
use capi_ipam_provider::api::IPAddress;
use futures::StreamExt as _;
use futures::stream::SelectAll;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::kinds::{wait_for_kinds, watched_pools};
use super::shared_ledger::{PoolEventHandler, SharedLedger};

/// How long to wait for the lease before the standby ledger is created. A process that acquires the
/// lease in this time needs one ledger only, and so half of the memory.
const START_DELAY: Duration = Duration::from_secs(2);

/// How often to check whether the ledger of the provider is complete.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A shared handle of the newest complete ledger of this process. Clones share their state.
#[derive(Clone, Default)]
pub struct LedgerHandle {
    published: Arc<RwLock<Vec<Published>>>,
}

struct Published {
    ledger: Arc<SharedLedger>,
    gates: Vec<ReadinessGate>,
}

impl Published {
    fn is_complete(&self) -> bool {
        self.gates.iter().all(ReadinessGate::is_ready)
    }
}

impl LedgerHandle {
    /// Publishes a ledger. It replaces earlier ones once all `gates` are ready.
    pub fn publish(&self, ledger: Arc<SharedLedger>, gates: Vec<ReadinessGate>) {
        let mut published = self.published.write();
        published.push(Published { ledger, gates });
    }

    /// Whether a ledger is published, complete or not.
    fn has_ledger(&self) -> bool {
        !self.published.read().is_empty()
    }

    /// Returns the newest complete ledger; `None` while the first one is being listed.
    pub fn complete(&self) -> Option<Arc<SharedLedger>> {
        let published = self.published.read();
        published
            .iter()
            .rev()
            .find(|entry| entry.is_complete())
            .map(|entry| Arc::clone(&entry.ledger))
    }

    /// Waits until another ledger is the newest complete one, and removes this one.
    async fn wait_for_successor(&self, ledger: &Arc<SharedLedger>) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if self
                .complete()
                .is_some_and(|complete| !Arc::ptr_eq(&complete, ledger))
            {
                let mut published = self.published.write();
                published.retain(|entry| !Arc::ptr_eq(&entry.ledger, ledger));
                return;
            }
        }
    }
}

/// Publishes a read-only ledger with `handle` and keeps it up to date, until another complete
/// ledger is published.
pub async fn run_standby(
    client: Client,
    health: Health,
    handle: LedgerHandle,
    stop: CancellationToken,
) {
    let standby = async {
        tokio::time::sleep(START_DELAY).await;
        if handle.has_ledger() {
            return;
        }
        let discovery = ContractClient::discover(&client, &health);
        let (contract, ()) = futures::join!(discovery, wait_for_kinds(&client, &health));
        let ledger = Arc::new(SharedLedger::read_only());
        let mut watches = Watches {
            health: health.detached(),
            gates: Vec::new(),
            streams: SelectAll::new(),
        };
        watches.add::<IPAddress>(
            contract.watched_addresses(),
            contract.ipam,
            Arc::clone(&ledger) as _,
        );
        watches.add::<IPReservation>(WatchApi::all(client.clone()), (), Arc::clone(&ledger) as _);
        watches.add::<IPNetwork>(WatchApi::all(client.clone()), (), Arc::clone(&ledger) as _);
        // A registry is in use as long as a network has blocks of it, also without `spec.blocks`.
        watches.add::<IPSlice>(WatchApi::all(client.clone()), (), Arc::clone(&ledger) as _);
        let registries = Arc::new(RegistryEventHandler(Arc::clone(&ledger)));
        watches.add::<IPRegistry>(WatchApi::all(client.clone()), (), registries);
        watches.add::<Namespace>(WatchApi::all(client.clone()), (), Arc::clone(&ledger) as _);
        for kind in InClusterKind::ALL {
            let handler = Arc::new(PoolEventHandler {
                ledger: Arc::clone(&ledger),
                kind,
            });
            watches.add::<Pool>(watched_pools(&client, kind), kind, handler);
        }
        handle.publish(Arc::clone(&ledger), watches.gates);
        tokio::select! {
            () = watches.streams.for_each(|()| std::future::ready(())) => {}
            () = handle.wait_for_successor(&ledger) => debug!("the ledger of the provider is complete"),
        }
    };
    let _ = stop.run_until_cancelled(Box::pin(standby)).await;
    stop.cancelled().await;
}

/// The event handler of registries. It also records the identity of this management cluster in each
/// registry, which the leader finds out when it connects and reports in the status.
struct RegistryEventHandler(Arc<SharedLedger>);

impl RegistryEventHandler {
    fn events(&self) -> &dyn EventHandler<IPRegistry> {
        self.0.as_ref()
    }
}

impl EventHandler<IPRegistry> for RegistryEventHandler {
    fn init(&self) {
        self.events().init();
    }

    fn init_done(&self) {
        self.events().init_done();
    }

    fn restored(&self) {
        self.events().restored();
    }

    fn apply(&self, registry: &IPRegistry) {
        self.events().apply(registry);
        if let (Some(name), Some(id)) = (&registry.metadata.name, cluster_id(registry)) {
            self.0
                .change(|ledger| ledger.set_management_cluster(name, id));
        }
    }

    fn delete(&self, registry: &IPRegistry) {
        self.events().delete(registry);
    }

    fn apply_invalid(&self, object: &Invalid) {
        self.events().apply_invalid(object);
    }

    fn delete_invalid(&self, object: &Invalid) {
        self.events().delete_invalid(object);
    }
}

/// The identity of this management cluster in a registry; `None` if the leader has not reported it.
fn cluster_id(registry: &IPRegistry) -> Option<&str> {
    let status = registry.status.as_ref();
    let reported = status.and_then(|status| status.cluster_id.as_deref());
    registry.spec.cluster_id.as_deref().or(reported)
}

struct Watches {
    health: Health,
    gates: Vec<ReadinessGate>,
    streams: SelectAll<futures::stream::BoxStream<'static, ()>>,
}

impl Watches {
    fn add<K>(
        &mut self,
        api: WatchApi<K>,
        version: K::DynamicType,
        handler: Arc<dyn EventHandler<K>>,
    ) where
        K: kube::Resource
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug
            + Send
            + Sync
            + 'static,
        K::DynamicType: Clone + std::fmt::Debug + Send + Sync,
    {
        let gate = self.health.register_watch(K::kind(&version));
        self.streams
            .push(watch_into(WatchSpec::new(api, version, handler, gate.clone())).boxed());
        self.gates.push(gate);
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::{Scope, SliceOwner, SliceOwnerKind};
    use capi_ipam_controller::clock;
    use capi_ipam_ip::Block;

    use super::*;

    /// The standby ledger after it has seen a block of the management cluster west, in a network
    /// without `spec.blocks`.
    fn ledger_with_block() -> Arc<SharedLedger> {
        let ledger = Arc::new(SharedLedger::read_only());
        let owner = SliceOwner {
            kind: SliceOwnerKind::ManagementCluster,
            namespace: None,
            name: "west".to_owned(),
        };
        let block = Block::new([10, 0, 0, 0].into(), 26);
        let scope = Scope::Network("lab".into());
        let mut slice = IPSlice::assigned(&scope, block, owner, clock::now());
        slice.metadata.uid = Some("1".to_owned());
        slice.metadata.resource_version = Some("1".to_owned());
        EventHandler::<IPSlice>::apply(ledger.as_ref(), &slice);
        ledger
    }

    fn registry(spec: Option<&str>, status: Option<&str>) -> IPRegistry {
        let mut registry = IPRegistry::default();
        registry.metadata.name = Some("site".to_owned());
        registry.spec.cluster_id = spec.map(str::to_owned);
        registry.status = status.map(|id| capi_ipam_api::IPRegistryStatus {
            cluster_id: Some(id.to_owned()),
            ..capi_ipam_api::IPRegistryStatus::default()
        });
        registry
    }

    #[test]
    fn registry_is_in_use_until_its_blocks_are_returned() {
        for (spec, status, is_in_use) in [
            (Some("west"), None, true),
            (None, Some("west"), true),
            (None, Some("east"), false),
            (Some("east"), Some("east"), false),
            // The leader has not reported it yet.
            (None, None, true),
        ] {
            let ledger = ledger_with_block();
            let handler = RegistryEventHandler(Arc::clone(&ledger));
            handler.apply(&registry(spec, status));
            let networks = ledger.read(|ledger| ledger.networks_of_registry("site"));
            assert_eq!(networks == ["lab"], is_in_use, "{spec:?} {status:?}");
        }
    }
}
