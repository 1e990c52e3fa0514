//! API clients of our kinds.

use capi_ipam_controller::client::ResourceClient;
use capi_ipam_controller::discovery::wait_for_kind;
use capi_ipam_controller::watch::WatchApi;
use kube::{Api, Client};

use crate::api::{
    GlobalInClusterIPPool, GlobalInClusterPrefixPool, InClusterIPPool, InClusterKind, InClusterPrefixPool, Pool,
    PoolKey, names,
};

/// A kind of pool, with its API clients.
pub(super) trait PoolApi: Pool {
    /// The client for one pool.
    fn client(client: &Client, key: &PoolKey) -> ResourceClient<Self>;

    /// The API to watch all pools of the kind. All pools of a network have to be known, also those that this process
    /// does not manage.
    fn watched(client: &Client) -> WatchApi<Self> {
        WatchApi::all(client.clone())
    }
}

macro_rules! impl_pool_api {
    (namespaced: $($kind:ty),*) => {
        $(impl PoolApi for $kind {
            fn client(client: &Client, key: &PoolKey) -> ResourceClient<Self> {
                ResourceClient::new(Api::namespaced(client.clone(), key.namespace.as_deref().unwrap_or_default()), &())
            }
        })*
    };
    (global: $($kind:ty),*) => {
        $(impl PoolApi for $kind {
            fn client(client: &Client, _: &PoolKey) -> ResourceClient<Self> {
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
