//! API clients of our kinds.

use capi_ipam_api::{
    IPNetwork, IPRegistry, IPReservation, IPSlice, InClusterKind, Pool, PoolKey, PoolSet,
    PoolSetKind, names,
};
use capi_ipam_controller::client::ResourceClient;
use capi_ipam_controller::discovery::wait_for_kind;
use capi_ipam_controller::health::Health;
use capi_ipam_controller::watch::WatchApi;
use futures::future::join_all;
use kube::core::ApiResource;
use kube::{Api, Client};

/// The client for one pool.
pub(super) fn pool_client(client: &Client, key: &PoolKey) -> ResourceClient<Pool> {
    let (client, kind) = (client.clone(), &key.kind);
    let api = if kind.is_global() {
        Api::all_with(client, kind)
    } else {
        Api::namespaced_with(client, key.namespace.as_deref().unwrap_or_default(), kind)
    };
    ResourceClient::new(api, kind)
}

/// The API to watch all pools of a kind. All pools of a network have to be known, also those that
/// this process does not manage.
pub(super) fn watched_pools(client: &Client, kind: InClusterKind) -> WatchApi<Pool> {
    WatchApi::all_with(client.clone(), &kind)
}

/// Waits until the API server serves all our kinds. Reports all that are missing to `health`.
pub(super) async fn wait_for_kinds(client: &Client, health: &Health) {
    let pools = InClusterKind::ALL.map(|kind| ApiResource::erase::<Pool>(&kind));
    let sets = PoolSetKind::ALL.map(|kind| ApiResource::erase::<PoolSet>(&kind));
    let others = [
        ApiResource::erase::<IPNetwork>(&()),
        ApiResource::erase::<IPRegistry>(&()),
        ApiResource::erase::<IPReservation>(&()),
        ApiResource::erase::<IPSlice>(&()),
    ];
    let versions = [names::POOL_VERSION];
    let waits = pools
        .iter()
        .chain(&sets)
        .chain(&others)
        .map(|kind| wait_for_kind(client, health, kind, &versions));
    join_all(waits).await;
}

/// Waits until the API server serves a kind without which the process works: it is ready meanwhile.
pub(super) async fn wait_for_optional_kind(client: &Client, kind: &ApiResource) {
    // No probe serves this one.
    let unserved = Health::default();
    wait_for_kind(client, &unserved, kind, &[&kind.version]).await;
}
