//! A complete IPAM provider. A pool is a list of addresses, and a ConfigMap with the name of the pool records the
//! allocated addresses.
//!
//! The SDK provides the rest: flags, logging, probes, leader election, pausing, finalizers, owner references,
//! conditions and events. Run `list_provider --help` for the flags.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;

use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use capi_ipam_provider::controller::client::ResourceClient;
use capi_ipam_provider::controller::manager::{self, Identity};
use capi_ipam_provider::controller::patch;
use capi_ipam_provider::{
    Allocation, ClaimHandler, ClaimReconciler, Ensured, HandlerError, PoolKind, PoolView, ProviderAdapter, Released,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pool: a list of addresses of one subnet.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "ListPool", namespaced)]
struct ListPoolSpec {
    addresses: Vec<String>,
    prefix: u8,
}

struct ListAdapter {
    client: Client,
}

impl ProviderAdapter for ListAdapter {
    type Handler = ListHandler;

    fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> ListHandler {
        let namespace = claim.namespace().unwrap_or_default();
        let pools = ResourceClient::new(Api::namespaced(self.client.clone(), &namespace), &());
        let allocations = ResourceClient::new(Api::namespaced(self.client.clone(), &namespace), &());
        ListHandler { claim, pools, allocations, pool: None }
    }
}

struct ListHandler {
    claim: Arc<IPAddressClaim>,
    pools: ResourceClient<ListPool>,
    allocations: ResourceClient<ConfigMap>,
    pool: Option<ListPool>,
}

impl ListHandler {
    fn uid(&self) -> String {
        self.claim.uid().unwrap_or_default()
    }

    /// Reads the ConfigMap, which maps each address in use to the uid of its claim.
    async fn allocated(&self) -> Result<Option<ConfigMap>, HandlerError> {
        Ok(self.allocations.get(&self.claim.spec.pool_ref.name).await?)
    }
}

impl ClaimHandler for ListHandler {
    async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
        let name = &self.claim.spec.pool_ref.name;
        let found = self.pools.get(name).await?;
        let pool = found.ok_or_else(|| HandlerError::PoolNotFound(format!("ListPool {name} does not exist")))?;
        let view = PoolView::of(&pool);
        self.pool = Some(pool);
        Ok(view)
    }

    async fn ensure_address(&mut self, existing: Option<&IPAddress>) -> Result<Ensured, HandlerError> {
        let pool = self.pool.clone().ok_or_else(|| HandlerError::Permanent("the pool is missing".to_owned()))?;
        let config_map = match self.allocated().await? {
            Some(config_map) => config_map,
            None => {
                let mut config_map = ConfigMap::default();
                config_map.metadata.name = pool.metadata.name.clone();
                self.allocations.create(&config_map).await?
            }
        };
        let owners = config_map.data.clone().unwrap_or_default();
        let wanted = existing.map(|address| address.spec.address.clone());
        if let Some(taken) = &wanted
            && owners.get(&taken.replace(':', "_")).is_some_and(|owner| *owner != self.uid())
        {
            return Err(HandlerError::DuplicateAddress(format!("{taken} is allocated to another claim")));
        }
        let own = |text: &&String| owners.get(text.replace(':', "_").as_str()) == Some(&self.uid());
        let free = |text: &&String| !owners.contains_key(text.replace(':', "_").as_str());
        let exhausted = || {
            let name = pool.name_any();
            HandlerError::PoolExhausted(format!("ListPool {name} has no free address; add addresses or release claims"))
        };
        let addresses = &pool.spec.addresses;
        let chosen = wanted.or_else(|| addresses.iter().find(own).or_else(|| addresses.iter().find(free)).cloned());
        let chosen = chosen.ok_or_else(exhausted)?;
        let address: IpAddr = chosen
            .parse()
            .map_err(|error| HandlerError::Permanent(format!("{chosen:?} is not an IP address: {error}")))?;

        // The write fails with a conflict if the ConfigMap changed since it was read, so no address is allocated twice.
        let mut updated = config_map.clone();
        updated.data.get_or_insert_default().insert(chosen.replace(':', "_"), self.uid());
        patch::write(&self.allocations, &config_map, &updated).await?;
        Ok(Allocation { address, prefix: pool.spec.prefix, gateway: None }.into())
    }

    async fn release_address(&mut self) -> Result<Released, HandlerError> {
        let Some(config_map) = self.allocated().await? else { return Ok(Released::Now) };
        let mut updated = config_map.clone();
        updated.data.get_or_insert_with(BTreeMap::new).retain(|_, owner| *owner != self.uid());
        patch::write(&self.allocations, &config_map, &updated).await?;
        Ok(Released::Now)
    }
}

fn main() -> ExitCode {
    manager::main(Identity::new("list-provider", env!("CARGO_PKG_VERSION")), async |manager| {
        ClaimReconciler::builder(manager)
            .pools(PoolKind::new("example.com", "ListPool"))
            .build(async |setup| Ok(ListAdapter { client: setup.manager.client.clone() }))
            .await
    })
}
