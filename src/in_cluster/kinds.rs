//! How our kinds are reached on the API server.

use kube::{Api, Client};

use crate::api::{
    GlobalInClusterIPPool, GlobalInClusterPrefixPool, InClusterIPPool, InClusterKind, InClusterPrefixPool, Pool,
    PoolKey, names,
};
use crate::runtime::client::Calls;
use crate::runtime::discovery::wait_for_kind;
use crate::runtime::watch::GuardedApi;

/// A kind of pool with its two ways to be reached.
pub(super) trait PoolApi: Pool {
    /// The calls for one pool.
    fn calls(client: &Client, key: &PoolKey) -> Calls<Self>;
    /// What to watch: in the namespace given by flag, or in all.
    fn watched(client: &Client, namespace: &str) -> GuardedApi<Self>;
}

macro_rules! impl_pool_api {
    (namespaced: $($kind:ty),*) => {
        $(impl PoolApi for $kind {
            fn calls(client: &Client, key: &PoolKey) -> Calls<Self> {
                Calls::new(Api::namespaced(client.clone(), key.namespace.as_deref().unwrap_or_default()), &())
            }
            fn watched(client: &Client, namespace: &str) -> GuardedApi<Self> {
                // An empty namespace means all.
                GuardedApi::all(client.clone()).constrain(namespace)
            }
        })*
    };
    (global: $($kind:ty),*) => {
        $(impl PoolApi for $kind {
            fn calls(client: &Client, _: &PoolKey) -> Calls<Self> {
                Calls::new(Api::all(client.clone()), &())
            }
            fn watched(client: &Client, _: &str) -> GuardedApi<Self> {
                GuardedApi::all(client.clone())
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
