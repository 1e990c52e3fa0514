//! The record of allocated addresses in etcd.
//!
//! - `/capi-ipam/<pool>/addresses/<address>`: the uid of the claim;
//! - `/capi-ipam/<pool>/claims/<uid>`: the address of the claim, or its tombstone, the text
//!   `released`.
//!
//! A request that timed out, or whose program was killed, may still be on its way to etcd. An
//! allocation requires that the claim has no key. So the tombstone rejects one that arrives after
//! the release of the claim, whose address would stay allocated to a claim that no longer exists.
//! etcd deletes the tombstone after an hour, with its lease.

use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use capi_ipam_provider::prelude::HandlerError;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, PutOptions, Txn, TxnOp,
    TxnOpResponse,
};

/// The folder of all keys.
const ROOT: &str = "/capi-ipam/";

/// The longest time for one request. A request that takes longer may still be applied.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The tombstone of a claim.
const RELEASED: &str = "released";

/// The lifetime of a tombstone in seconds: no request is on its way for that long.
const TOMBSTONE_LIFETIME: i64 = 60 * 60;

/// How often the key of a claim is read in one release. It changes twice at most: it gets an
/// address, then a tombstone.
const MAX_ROUNDS: usize = 3;

/// A connection to etcd.
pub struct Store {
    /// `None` after the connection is closed.
    client: RwLock<Option<Client>>,
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
    format!("{ROOT}{pool}/addresses/{address}")
}

fn claim_key(pool: &str, uid: &str) -> String {
    format!("{ROOT}{pool}/claims/{uid}")
}

fn failed(operation: &'static str) -> impl FnOnce(Error) -> HandlerError {
    move |error| HandlerError::transient(format!("cannot {operation} in etcd"), error)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Store {
    /// Connects to etcd, and checks that it answers.
    pub async fn connect(endpoints: &[String]) -> Result<Self, Error> {
        let options = ConnectOptions::new()
            .with_connect_timeout(TIMEOUT)
            .with_timeout(TIMEOUT);
        let client = Client::connect(endpoints, Some(options)).await?;
        // The client connects when it sends its first request.
        client.kv_client().get(ROOT, None).await?;
        Ok(Self {
            client: RwLock::new(Some(client)),
        })
    }

    /// Closes the connection. Later requests fail.
    pub fn close(&self) {
        let mut client = self.client.write().unwrap_or_else(PoisonError::into_inner);
        *client = None;
    }

    fn client(&self) -> Result<Client, HandlerError> {
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner);
        let closed = || HandlerError::transient("cannot reach etcd", "the connection is closed");
        client.clone().ok_or_else(closed)
    }

    async fn get(&self, key: String) -> Result<Option<String>, HandlerError> {
        let response = self
            .client()?
            .kv_client()
            .get(key, None)
            .await
            .map_err(failed("read a key"))?;
        Ok(response.kvs().first().map(|found| text(found.value())))
    }

    /// The address that is allocated to a claim.
    pub async fn address_of(&self, pool: &str, uid: &str) -> Result<Option<IpAddr>, HandlerError> {
        Ok(self
            .get(claim_key(pool, uid))
            .await?
            .and_then(|address| address.parse().ok()))
    }

    /// The uid of the claim to which an address is allocated.
    pub async fn owner_of(
        &self,
        pool: &str,
        address: IpAddr,
    ) -> Result<Option<String>, HandlerError> {
        self.get(address_key(pool, address)).await
    }

    /// All allocated addresses of a pool.
    pub async fn addresses(&self, pool: &str) -> Result<Vec<IpAddr>, HandlerError> {
        let folder = format!("{ROOT}{pool}/addresses/");
        let options = GetOptions::new().with_prefix().with_keys_only();
        let found = self
            .client()?
            .kv_client()
            .get(folder.as_str(), Some(options))
            .await
            .map_err(failed("list addresses"))?;
        let address = |key: &[u8]| text(key).strip_prefix(&folder)?.parse().ok();
        Ok(found
            .kvs()
            .iter()
            .filter_map(|found| address(found.key()))
            .collect())
    }

    /// Allocates an address to a claim, unless it is allocated to another one, or the claim was
    /// released.
    pub async fn allocate(
        &self,
        pool: &str,
        address: IpAddr,
        uid: &str,
    ) -> Result<Record, HandlerError> {
        let (address_key, claim_key) = (address_key(pool, address), claim_key(pool, uid));
        let is_free = Compare::version(address_key.as_str(), CompareOp::Equal, 0);
        let has_none = Compare::version(claim_key.as_str(), CompareOp::Equal, 0);
        let put = [
            TxnOp::put(address_key.as_str(), uid, None),
            TxnOp::put(claim_key.as_str(), address.to_string(), None),
        ];
        let read = [
            TxnOp::get(address_key.as_str(), None),
            TxnOp::get(claim_key.as_str(), None),
        ];
        let transaction = Txn::new()
            .when([is_free, has_none])
            .and_then(put)
            .or_else(read);
        let response = self
            .client()?
            .kv_client()
            .txn(transaction)
            .await
            .map_err(failed("allocate an address"))?;
        if response.succeeded() {
            let revision = response
                .header()
                .map(etcd_client::ResponseHeader::revision)
                .unwrap_or_default();
            return Ok(Record::Allocated { revision });
        }
        let mut found = response
            .op_responses()
            .into_iter()
            .map(|response| match response {
                TxnOpResponse::Get(found) => found
                    .kvs()
                    .first()
                    .map(|found| (text(found.value()), found.create_revision())),
                _ => None,
            });
        match (found.next().flatten(), found.next().flatten()) {
            (_, Some((value, _))) if value == RELEASED => Err(HandlerError::Conflict(
                "the claim was released in etcd".to_owned(),
            )),
            (Some((owner, revision)), _) if owner == uid => Ok(Record::Allocated { revision }),
            (Some((owner, _)), _) => Ok(Record::Taken { owner }),
            // The claim has another address. One of the keys was changed by hand, or belongs to an
            // attempt whose answer was lost.
            (None, Some((other, _))) if other != address.to_string() => {
                Err(HandlerError::DuplicateAddress(format!(
                    "the claim has the address {other} in etcd, not {address}"
                )))
            }
            (None, _) => self.restore(pool, address, uid).await,
        }
    }

    /// Allocates an address again to the claim whose key names it.
    async fn restore(
        &self,
        pool: &str,
        address: IpAddr,
        uid: &str,
    ) -> Result<Record, HandlerError> {
        let key = address_key(pool, address);
        let is_free = Compare::version(key.as_str(), CompareOp::Equal, 0);
        let names_it = Compare::value(claim_key(pool, uid), CompareOp::Equal, address.to_string());
        let transaction = Txn::new()
            .when([is_free, names_it])
            .and_then([TxnOp::put(key, uid, None)]);
        let response = self
            .client()?
            .kv_client()
            .txn(transaction)
            .await
            .map_err(failed("allocate an address"))?;
        if !response.succeeded() {
            return Err(HandlerError::Conflict(format!(
                "the keys of {address} have changed in etcd"
            )));
        }
        let revision = response
            .header()
            .map(etcd_client::ResponseHeader::revision)
            .unwrap_or_default();
        Ok(Record::Allocated { revision })
    }

    /// Releases the address of a claim, if it has one, and leaves a tombstone.
    pub async fn release(&self, pool: &str, uid: &str) -> Result<(), HandlerError> {
        let claim_key = claim_key(pool, uid);
        let mut lease = None;
        for _ in 0..MAX_ROUNDS {
            let found = self
                .client()?
                .kv_client()
                .get(claim_key.as_str(), None)
                .await
                .map_err(failed("read a key"))?;
            // A key that does not exist has the revision 0.
            let (value, revision) = found
                .kvs()
                .first()
                .map(|found| (text(found.value()), found.mod_revision()))
                .unwrap_or_default();
            if value == RELEASED {
                return Ok(());
            }
            let lease = if let Some(lease) = lease {
                lease
            } else {
                *lease.insert(self.grant_lease().await?)
            };
            let tombstone = PutOptions::new().with_lease(lease);
            let mut changes = vec![TxnOp::put(claim_key.as_str(), RELEASED, Some(tombstone))];
            if let Ok(address) = value.parse() {
                let address_key = address_key(pool, address);
                let is_owner = Compare::value(address_key.as_str(), CompareOp::Equal, uid);
                changes.push(TxnOp::txn(
                    Txn::new()
                        .when([is_owner])
                        .and_then([TxnOp::delete(address_key, None)]),
                ));
            }
            // A late allocation may be applied after the read.
            let is_unchanged =
                Compare::mod_revision(claim_key.as_str(), CompareOp::Equal, revision);
            let transaction = Txn::new().when([is_unchanged]).and_then(changes);
            let response = self
                .client()?
                .kv_client()
                .txn(transaction)
                .await
                .map_err(failed("release an address"))?;
            if response.succeeded() {
                return Ok(());
            }
        }
        Err(HandlerError::Conflict(
            "the key of the claim keeps changing in etcd".to_owned(),
        ))
    }

    /// Creates the lease of a tombstone.
    async fn grant_lease(&self) -> Result<i64, HandlerError> {
        let granted = self
            .client()?
            .lease_client()
            .grant(TOMBSTONE_LIFETIME, None)
            .await;
        Ok(granted.map_err(failed("create a lease"))?.id())
    }
}
