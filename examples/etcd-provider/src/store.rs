//! The record of allocated addresses in etcd.
//!
//! - `/capi-ipam/<pool>/addresses/<address>`: the uid of the claim;
//! - `/capi-ipam/<pool>/claims/<uid>`: the address.

use std::net::IpAddr;
use std::time::Duration;

use capi_ipam_provider::HandlerError;
use etcd_client::{Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, Txn, TxnOp, TxnOpResponse};

/// The longest time for one request. A request that takes longer may still be applied.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A client of etcd.
pub struct Store {
    client: Client,
}

/// The result of an allocation.
pub enum Record {
    /// The address is allocated to the claim, since this revision.
    Allocated {
        /// The revision of etcd.
        revision: i64,
    },
    /// The address is allocated to another claim.
    Taken {
        /// Its uid.
        owner: String,
    },
}

fn address_key(pool: &str, address: IpAddr) -> String {
    format!("/capi-ipam/{pool}/addresses/{address}")
}

fn claim_key(pool: &str, uid: &str) -> String {
    format!("/capi-ipam/{pool}/claims/{uid}")
}

fn failed(operation: &'static str) -> impl FnOnce(Error) -> HandlerError {
    move |error| HandlerError::transient(format!("cannot {operation} in etcd"), error)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Store {
    /// Creates a client. Connects when the first request is sent.
    pub async fn connect(endpoints: &[String]) -> Result<Self, Error> {
        let options = ConnectOptions::new().with_connect_timeout(TIMEOUT).with_timeout(TIMEOUT);
        Ok(Self { client: Client::connect(endpoints, Some(options)).await? })
    }

    async fn get(&self, key: String) -> Result<Option<String>, HandlerError> {
        let response = self.client.kv_client().get(key, None).await.map_err(failed("read a key"))?;
        Ok(response.kvs().first().map(|found| text(found.value())))
    }

    /// The address that is allocated to a claim.
    pub async fn address_of(&self, pool: &str, uid: &str) -> Result<Option<IpAddr>, HandlerError> {
        Ok(self.get(claim_key(pool, uid)).await?.and_then(|address| address.parse().ok()))
    }

    /// The uid of the claim to which an address is allocated.
    pub async fn owner_of(&self, pool: &str, address: IpAddr) -> Result<Option<String>, HandlerError> {
        self.get(address_key(pool, address)).await
    }

    /// All allocated addresses of a pool.
    pub async fn addresses(&self, pool: &str) -> Result<Vec<IpAddr>, HandlerError> {
        let folder = format!("/capi-ipam/{pool}/addresses/");
        let options = GetOptions::new().with_prefix().with_keys_only();
        let found =
            self.client.kv_client().get(folder.as_str(), Some(options)).await.map_err(failed("list addresses"))?;
        let address = |key: &[u8]| text(key).strip_prefix(&folder)?.parse().ok();
        Ok(found.kvs().iter().filter_map(|found| address(found.key())).collect())
    }

    /// Allocates an address to a claim, unless it is allocated to another one.
    pub async fn allocate(&self, pool: &str, address: IpAddr, uid: &str) -> Result<Record, HandlerError> {
        let (address_key, claim_key) = (address_key(pool, address), claim_key(pool, uid));
        let is_free = Compare::version(address_key.as_str(), CompareOp::Equal, 0);
        let has_none = Compare::version(claim_key.as_str(), CompareOp::Equal, 0);
        let put =
            [TxnOp::put(address_key.as_str(), uid, None), TxnOp::put(claim_key.as_str(), address.to_string(), None)];
        let read = [TxnOp::get(address_key.as_str(), None), TxnOp::get(claim_key.as_str(), None)];
        let transaction = Txn::new().when([is_free, has_none]).and_then(put).or_else(read);
        let response = self.client.kv_client().txn(transaction).await.map_err(failed("allocate an address"))?;
        if response.succeeded() {
            let revision = response.header().map(etcd_client::ResponseHeader::revision).unwrap_or_default();
            return Ok(Record::Allocated { revision });
        }
        let mut found = response.op_responses().into_iter().map(|response| match response {
            TxnOpResponse::Get(found) => {
                found.kvs().first().map(|found| (text(found.value()), found.create_revision()))
            }
            _ => None,
        });
        match (found.next().flatten(), found.next().flatten()) {
            (Some((owner, revision)), _) if owner == uid => Ok(Record::Allocated { revision }),
            (Some((owner, _)), _) => Ok(Record::Taken { owner }),
            // The claim has another address. One of the keys was changed by hand, or belongs to an attempt whose answer
            // was lost.
            (None, Some((other, _))) if other != address.to_string() => {
                Err(HandlerError::DuplicateAddress(format!("the claim has the address {other} in etcd, not {address}")))
            }
            (None, _) => self.restore(pool, address, uid).await,
        }
    }

    /// Allocates an address again to the claim whose key names it.
    async fn restore(&self, pool: &str, address: IpAddr, uid: &str) -> Result<Record, HandlerError> {
        let key = address_key(pool, address);
        let is_free = Compare::version(key.as_str(), CompareOp::Equal, 0);
        let names_it = Compare::value(claim_key(pool, uid), CompareOp::Equal, address.to_string());
        let transaction = Txn::new().when([is_free, names_it]).and_then([TxnOp::put(key, uid, None)]);
        let response = self.client.kv_client().txn(transaction).await.map_err(failed("allocate an address"))?;
        if !response.succeeded() {
            return Err(HandlerError::Conflict(format!("the keys of {address} have changed in etcd")));
        }
        let revision = response.header().map(etcd_client::ResponseHeader::revision).unwrap_or_default();
        Ok(Record::Allocated { revision })
    }

    /// Releases the address of a claim, if it has one.
    pub async fn release(&self, pool: &str, uid: &str) -> Result<(), HandlerError> {
        let Some(address) = self.address_of(pool, uid).await? else { return Ok(()) };
        let (address_key, claim_key) = (address_key(pool, address), claim_key(pool, uid));
        let is_owner = Compare::value(address_key.as_str(), CompareOp::Equal, uid);
        let delete = [TxnOp::delete(address_key, None), TxnOp::delete(claim_key.as_str(), None)];
        // Somebody else has the address: only the key of the claim is deleted.
        let transaction = Txn::new().when([is_owner]).and_then(delete).or_else([TxnOp::delete(claim_key, None)]);
        self.client.kv_client().txn(transaction).await.map_err(failed("release an address"))?;
        Ok(())
    }
}
