//! A whole IPAM provider: pools are lists of addresses, and a ConfigMap beside each pool says who has which.
//!
//! What makes it a provider of its own is below; flags, logs, probes, leader election, pausing, finalizers, owner
//! references, conditions and events come from the framework. Run `list_provider --help` to see the flags.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;

use capi_ipam_controller::client::ResourceClient;
use capi_ipam_controller::manager::{BoxError, main as run, Identity};
use capi_ipam_controller::patch;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use capi_ipam_provider::{Allocation, ClaimHandler, ClaimReconciler, HandlerError, PoolKind, PoolView, ProviderAdapter, ProviderSetup, Released};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The pool: a list of addresses of one subnet.
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

    fn setup(&self, setup: &mut ProviderSetup<'_>) -> Result<(), BoxError> {
        setup.serve(PoolKind::new("example.com", "ListPool"));
        Ok(())
    }

    fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> ListHandler {
        let namespace = claim.namespace().unwrap_or_default();
        let pools = ResourceClient::new(Api::namespaced(self.client.clone(), &namespace), &());
        let books = ResourceClient::new(Api::namespaced(self.client.clone(), &namespace), &());
        ListHandler { claim, pools, books, pool: None }
    }
}

struct ListHandler {
    claim: Arc<IPAddressClaim>,
    pools: ResourceClient<ListPool>,
    books: ResourceClient<ConfigMap>,
    pool: Option<ListPool>,
}

impl ListHandler {
    fn uid(&self) -> String {
        self.claim.uid().unwrap_or_default()
    }

    /// The ConfigMap that maps each address in use to the uid of its claim.
    async fn book(&self) -> Result<Option<ConfigMap>, HandlerError> {
        Ok(self.books.get(&self.claim.spec.pool_ref.name).await?)
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

    async fn ensure_address(&mut self, existing: Option<&IPAddress>) -> Result<Allocation, HandlerError> {
        let pool = self.pool.clone().ok_or_else(|| HandlerError::Permanent("there is no pool".to_owned()))?;
        let book = match self.book().await? {
            Some(book) => book,
            None => {
                let mut book = ConfigMap::default();
                book.metadata.name = pool.metadata.name.clone();
                self.books.create(&book).await?
            }
        };
        let holders = book.data.clone().unwrap_or_default();
        let wanted = existing.map(|address| address.spec.address.clone());
        let mine = |text: &&String| holders.get(text.replace(':', "_").as_str()) == Some(&self.uid());
        let free = |text: &&String| !holders.contains_key(text.replace(':', "_").as_str());
        let addresses = &pool.spec.addresses;
        let chosen = wanted.or_else(|| addresses.iter().find(mine).or_else(|| addresses.iter().find(free)).cloned());
        let chosen = chosen.ok_or_else(|| HandlerError::PoolExhausted(format!("{} is used up", pool.name_any())))?;
        let address: IpAddr =
            chosen.parse().map_err(|error| HandlerError::Permanent(format!("{chosen:?} is no address: {error}")))?;

        // Written only if nobody else wrote since it was read: two claims never get the same address.
        let mut written = book.clone();
        written.data.get_or_insert_default().insert(chosen.replace(':', "_"), self.uid());
        patch::write(&self.books, &book, &written).await?;
        Ok(Allocation { address, prefix: pool.spec.prefix, gateway: None })
    }

    async fn release_address(&mut self) -> Result<Released, HandlerError> {
        let Some(book) = self.book().await? else { return Ok(Released::Now) };
        let mut written = book.clone();
        written.data.get_or_insert_with(BTreeMap::new).retain(|_, holder| *holder != self.uid());
        patch::write(&self.books, &book, &written).await?;
        Ok(Released::Now)
    }
}

fn main() -> ExitCode {
    run(Identity { name: "list-provider", lease: "list-provider.example.com" }, async |manager| {
        let adapter = ListAdapter { client: manager.client.clone() };
        ClaimReconciler::register(adapter, manager).await
    })
}
