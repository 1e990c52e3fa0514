//! A complete IPAM provider. A pool is a list of addresses, and a ConfigMap records which claim has
//! which address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;

use capi_ipam_provider::advanced::SweepOptions;
use capi_ipam_provider::controller::{client, patch};
use capi_ipam_provider::prelude::*;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, CustomResource};

/// A pool: addresses of one subnet.
#[derive(
    CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[kube(group = "example.com", version = "v1", kind = "ListPool", namespaced)]
#[kube(status = "PoolStatus")]
struct ListPoolSpec {
    addresses: Vec<IpAddr>,
    prefix: u8,
}

#[derive(clap::Args, Clone)]
struct Flags {
    /// Prefix of the names of the ConfigMaps.
    #[arg(long, default_value = "listpool-")]
    config_map_prefix: String,
}

struct ListProvider {
    client: Client,
    flags: Flags,
}

impl ListProvider {
    /// Changes the record of a pool: addresses by the uid of the claim. Fails if it has changed
    /// since it was read.
    async fn update<T>(
        &self,
        claim: &Claim,
        change: impl FnOnce(&mut BTreeMap<String, String>) -> Result<T, HandlerError>,
    ) -> Result<T, HandlerError> {
        let api = Api::namespaced(self.client.clone(), &claim.namespace);
        let maps = client::ResourceClient::new(api, &());
        let mut empty = ConfigMap::default();
        empty.metadata.name = Some(self.flags.config_map_prefix.clone() + &claim.pool);
        let before = maps.get_or_create(&empty).await?;
        let mut after = before.clone();
        let result = change(after.data.get_or_insert_default())?;
        patch::write(&maps, &before, &after).await?;
        Ok(result)
    }
}

impl PoolProvider for ListProvider {
    type Pool = ListPool;

    async fn allocate(
        &self,
        claim: &Claim,
        pool: &ListPool,
        existing: Option<IpAddr>,
    ) -> Result<Allocation, HandlerError> {
        let uid = claim.uid.to_string();
        let choose = |record: &mut BTreeMap<String, String>| {
            let own = record.remove(&uid).and_then(|address| address.parse().ok());
            let is_free =
                |address: &IpAddr| record.values().all(|used| *used != address.to_string());
            let free = || pool.spec.addresses.iter().copied().find(is_free);
            let exhausted = || HandlerError::PoolExhausted("no address is free".to_owned());
            let address = existing.or(own).or_else(free).ok_or_else(exhausted)?;
            if !is_free(&address) {
                return Err(HandlerError::DuplicateAddress(format!(
                    "{address} is allocated to another claim"
                )));
            }
            record.insert(uid.clone(), address.to_string());
            Ok(Allocation::new(address, pool.spec.prefix))
        };
        self.update(claim, choose).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released, HandlerError> {
        let uid = claim.uid.to_string();
        // This changes the ConfigMap in any case, so a late write of `allocate` fails.
        self.update(claim, |record| {
            Ok((
                record.remove(&uid),
                record.insert("released".to_owned(), uid),
            ))
        })
        .await?;
        Ok(Released::Now)
    }

    fn capacity(&self, pool: &ListPool) -> Option<u128> {
        pool.spec.addresses.len().try_into().ok()
    }
}

fn main() -> ExitCode {
    manager::run(
        Identity::new("list-provider", env!("CARGO_PKG_VERSION")),
        async |manager, flags: &Flags| {
            let provider = ListProvider {
                client: manager.client.clone(),
                flags: flags.clone(),
            };
            let options = PoolOptions {
                finalizer: Some("example.com/protect-pool"),
                status: true,
            };
            ClaimReconciler::builder(manager)
                .sweep(SweepOptions::default())
                .build(async |setup| Ok(WatchedPools::with_options(setup, provider, options).await))
                .await
        },
    )
}
