//! How our kinds are reached on the API server.

use capi_ipam_controller::client::ResourceClient;
use capi_ipam_controller::discovery::wait_for_kind;
use capi_ipam_controller::watch::WatchApi;
use kube::{Api, Client};

use crate::api::{GlobalInClusterIPPool, GlobalInClusterPrefixPool, InClusterIPPool, InClusterKind, InClusterPrefixPool, names, Pool, PoolKey};

/// A kind of pool and how it is reached.
pub(super) trait PoolApi: Pool {
    /// The calls for one pool.
    fn calls(client: &Client, key: &PoolKey) -> ResourceClient<Self>;

    /// All pools of the kind, to watch: whatever this process serves, every pool of a network has to be known.
    fn watched(client: &Client) -> WatchApi<Self> {
        WatchApi::all(client.clone())
    }
}

macro_rules! impl_pool_api {
    (namespaced: $($kind:ty),*) => {
        $(impl PoolApi for $kind {
            fn calls(client: &Client, key: &PoolKey) -> ResourceClient<Self> {
                ResourceClient::new(Api::namespaced(client.clone(), key.namespace.as_deref().unwrap_or_default()), &())
            }
        })*
    };
    (global: $($kind:ty),*) => {
        $(impl PoolApi for $kind {
            fn calls(client: &Client, _: &PoolKey) -> ResourceClient<Self> {
                ResourceClient::new(Api::all(client.clone()), &())
            }
        })*
    };
}
impl_pool_api!(namespaced: InClusterIPPool, InClusterPrefixPool);
impl_pool_api!(global: GlobalInClusterIPPool, GlobalInClusterPrefixPool);

/// Waits until the API server serves all our kinds.
pub(super) async fn wait_for_kinds(client: &Client) {
    for plural in InClusterKind::ALL.map(InClusterKind::plural).into_iter().chain(["ipreservations"]) {
        let versions = [names::POOL_VERSION];
        wait_for_kind(client, names::GROUP, plural, &versions).await;
    }
}
