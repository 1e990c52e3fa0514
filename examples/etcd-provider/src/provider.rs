//! The provider: which address of a pool a claim gets.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use capi_ipam_provider::prelude::*;
use ipnet::IpNet;
use kube::CustomResource;

use crate::store::{Record, Store};
use crate::vlans::Vlans;

/// The label of an IPAddress with the revision of etcd at which its address was allocated.
const REVISION_LABEL: &str = "etcd-provider.example.com/revision";

/// A pool: the host addresses of a subnet.
#[derive(
    CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[kube(group = "example.com", version = "v1", kind = "EtcdPool", namespaced)]
#[serde(rename_all = "camelCase")]
pub struct EtcdPoolSpec {
    /// The subnet in CIDR notation, such as `10.0.0.0/24`.
    pub(crate) subnet: String,
    /// The gateway of the subnet, which is not allocated.
    gateway: Option<IpAddr>,
    /// The VLAN of the subnet, in the namespace of the pool. No address is allocated before it is
    /// ready.
    pub(crate) vlan: Option<String>,
}

/// Allocates the lowest free address of a pool.
pub struct EtcdProvider {
    /// The record of allocated addresses.
    pub store: Arc<Store>,
    /// The VLANs of pools.
    pub vlans: Vlans,
}

fn subnet(pool: &EtcdPool) -> Result<IpNet, String> {
    let text = &pool.spec.subnet;
    text.parse()
        .map_err(|error| format!("spec.subnet: {text:?} is not a subnet in CIDR notation: {error}"))
}

/// The key of the pool of a claim in etcd.
fn pool_key(claim: &Claim) -> String {
    format!("{}/{}", claim.namespace, claim.pool)
}

impl PoolProvider for EtcdProvider {
    type Pool = EtcdPool;

    async fn allocate(
        &self,
        claim: &Claim,
        pool: &EtcdPool,
        existing: Option<IpAddr>,
    ) -> Result<Allocation, HandlerError> {
        let (key, uid) = (pool_key(claim), claim.uid.to_string());
        let subnet = subnet(pool).map_err(HandlerError::PoolNotReady)?;
        let own = if existing.is_some() {
            existing
        } else {
            self.store.address_of(&key, &uid).await?
        };
        let wanted = if let Some(own) = own {
            own
        } else {
            self.vlans.require(pool)?;
            let used: HashSet<IpAddr> = self.store.addresses(&key).await?.into_iter().collect();
            let is_free =
                |address: &IpAddr| pool.spec.gateway != Some(*address) && !used.contains(address);
            let exhausted =
                || HandlerError::PoolExhausted(format!("no address of {subnet} is free"));
            subnet.hosts().find(is_free).ok_or_else(exhausted)?
        };
        match self.store.allocate(&key, wanted, &uid).await? {
            Record::Allocated { revision } => {
                let labels = [(REVISION_LABEL.to_owned(), revision.to_string())].into();
                let gateway = pool.spec.gateway;
                Ok(Allocation {
                    gateway,
                    labels,
                    ..Allocation::new(wanted, subnet.prefix_len())
                })
            }
            Record::Taken { owner } if existing.is_some() => Err(HandlerError::DuplicateAddress(
                format!("{wanted} is allocated to {owner} in etcd"),
            )),
            Record::Taken { .. } => Err(HandlerError::Conflict(format!(
                "{wanted} was just allocated to another claim"
            ))),
        }
    }

    async fn release(&self, claim: &Claim) -> Result<Released, HandlerError> {
        self.store
            .release(&pool_key(claim), &claim.uid.to_string())
            .await?;
        Ok(Released::Now)
    }

    async fn verify(
        &self,
        claim: &Claim,
        _: &EtcdPool,
        address: IpAddr,
    ) -> Result<bool, HandlerError> {
        let owner = self.store.owner_of(&pool_key(claim), address).await?;
        Ok(owner == Some(claim.uid.to_string()))
    }

    fn validate(&self, pool: &EtcdPool) -> Result<(), String> {
        let subnet = subnet(pool)?;
        match pool.spec.gateway {
            Some(gateway) if !subnet.contains(&gateway) => Err(format!(
                "spec.gateway: {gateway} is outside of the subnet {subnet}"
            )),
            _ => Ok(()),
        }
    }
}
