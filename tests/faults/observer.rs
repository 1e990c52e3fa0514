//! Observes every change of every relevant object, with watches that bypass the proxy.

use std::{
    fmt::Debug,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use capi_ipam_api::{IPReservation, IPSlice, PoolKey, PoolSpec, Scope, conditions, names};
use capi_ipam_provider::api::{ContractVersion, IPAddress, is_paused};
use futures::TryStreamExt;
use kube::{
    Client, Resource,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use support::{consumer::counts_of, prelude::*};
use tokio::task::JoinHandle;

use crate::{
    workload::{NETWORK_LABEL, SLICE_LABEL},
    world::{Address, Change, Claim, Name, Object, Pool, PoolName, Reservation, Slice, World},
};

/// The number of addresses of a block of a pool of prefixes in the workloads.
const PREFIX_SIZE: u32 = 4;

/// How long the watches may take to deliver the state of the lists.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Watches from its start until it is dropped.
pub struct Observer {
    changes: Arc<Mutex<Vec<Change>>>,
    watches: Vec<JoinHandle<()>>,
}

impl Observer {
    /// Starts to watch; existing objects are observed, too.
    pub async fn start(client: &Client) -> Self {
        let version = ContractVersion::V1Beta2;
        let mut observer = Self {
            changes: Arc::default(),
            watches: Vec::new(),
        };
        observer
            .watch(
                Api::<IPAddressClaim>::all_with(client.clone(), &version),
                claim,
            )
            .await;
        observer
            .watch(
                Api::<IPAddress>::all_with(client.clone(), &version),
                address,
            )
            .await;
        observer
            .watch(Api::<IPReservation>::all(client.clone()), reservation)
            .await;
        observer
            .watch(Api::<IPSlice>::all(client.clone()), slice)
            .await;
        for kind in [
            InClusterKind::IPPool,
            InClusterKind::GlobalIPPool,
            InClusterKind::PrefixPool,
        ] {
            observer
                .watch(Api::all_with(client.clone(), &kind), pool)
                .await;
        }
        observer
    }

    async fn watch<K>(&mut self, api: Api<K>, object: fn(&K) -> Object)
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        // The API server serves a new kind after a delay.
        let list = || async { api.list(&ListParams::default()).await.ok() };
        let listed = eventually("objects can be listed", list).await;
        let note = move |changes: &Mutex<Vec<Change>>, found: &K, gone| {
            let version = found
                .resource_version()
                .and_then(|version| version.parse().ok());
            let version = version.expect("versions of this API server are numbers");
            locked(changes).push(Change {
                version,
                object: object(found),
                gone,
            });
        };
        listed
            .items
            .iter()
            .for_each(|found| note(&self.changes, found, false));
        let changes = Arc::clone(&self.changes);
        let mut from = listed.metadata.resource_version.unwrap_or_default();
        self.watches.push(tokio::spawn(async move {
            loop {
                let Ok(stream) = api.watch(&WatchParams::default(), &from).await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let mut stream = std::pin::pin!(stream);
                while let Ok(Some(event)) = stream.try_next().await {
                    match event {
                        WatchEvent::Added(found) | WatchEvent::Modified(found) => {
                            note(&changes, &found, false);
                            from = found.resource_version().unwrap_or_default();
                        }
                        WatchEvent::Deleted(found) => {
                            note(&changes, &found, true);
                            from = found.resource_version().unwrap_or_default();
                        }
                        WatchEvent::Bookmark(mark) => {
                            from.clone_from(&mark.metadata.resource_version)
                        }
                        WatchEvent::Error(_) => break,
                    }
                }
            }
        }));
    }

    /// All changes so far.
    pub fn changes(&self) -> Vec<Change> {
        locked(&self.changes).clone()
    }

    /// The current state.
    pub fn world(&self) -> World {
        World::after(&locked(&self.changes))
    }

    /// Waits until the watches have delivered all changes so far.
    ///
    /// # Panics
    /// When they have not in time.
    pub async fn catch_up(&self, client: &Client) {
        let patience = Patience::new(TIMEOUT);
        loop {
            let listed = Self::start(client).await.world();
            let known = self.world();
            let same = listed.claims == known.claims
                && listed.addresses == known.addresses
                && listed.reservations == known.reservations
                && listed.pools == known.pools
                && listed.slices == known.slices;
            if same {
                return;
            }
            assert!(
                !patience.is_over(),
                "the watches do not deliver the state of the lists"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
    }
}

fn locked(changes: &Mutex<Vec<Change>>) -> MutexGuard<'_, Vec<Change>> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name_of<K: Resource>(object: &K) -> Name {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn pool_name(pool: Option<PoolKey>) -> PoolName {
    let name = |pool: PoolKey| {
        let namespace = pool.namespace.as_deref().unwrap_or_default().to_owned();
        (
            pool.kind.name().to_owned(),
            (namespace, pool.name.to_string()),
        )
    };
    pool.map(name).unwrap_or_default()
}

fn claim(claim: &IPAddressClaim) -> Object {
    let status = claim.status.as_ref();
    let ready = status.and_then(|status| conditions::find(&status.conditions, conditions::READY));
    let says_why = ready
        .filter(|ready| ready.status != "True")
        .and_then(|ready| ready.reason.as_deref());
    let request = claim.annotations().get(names::RELEASE_NOW_ANNOTATION);
    let state = Claim {
        release_requested: request.is_some() && request == claim.metadata.uid.as_ref(),
        uid: claim.uid().unwrap_or_default(),
        pool: pool_name(PoolKey::of_claim(claim)),
        bound: claim.bound_address().map(str::to_owned),
        deleting: claim.metadata.deletion_timestamp.is_some(),
        held: claim
            .finalizers()
            .iter()
            .any(|finalizer| finalizer == names::RELEASE_ADDRESS),
        in_use: claim
            .finalizers()
            .iter()
            .any(|finalizer| finalizer != names::RELEASE_ADDRESS),
        label: claim.labels().get(SLICE_LABEL).cloned(),
        reason: says_why.map(str::to_owned),
    };
    Object::Claim(name_of(claim), state)
}

fn address(address: &IPAddress) -> Object {
    let owner = address
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "IPAddressClaim");
    let state = Address {
        uid: address.uid().unwrap_or_default(),
        owner: owner.map(|owner| owner.uid.clone()),
        pool: pool_name(PoolKey::of_address(address)),
        value: address.spec.address.clone(),
        deleting: address.metadata.deletion_timestamp.is_some(),
    };
    Object::Address(name_of(address), state)
}

fn reservation(reservation: &IPReservation) -> Object {
    let state = Reservation {
        uid: reservation.uid().unwrap_or_default(),
        network: reservation.spec.scope.strip_prefix("n.").map(str::to_owned),
        holder: reservation
            .spec
            .claim_ref
            .as_ref()
            .and_then(|claim| claim.uid.clone()),
        pool: pool_name(PoolKey::of_reservation(&reservation.spec.pool_ref)),
        value: reservation.spec.address.clone(),
        released: reservation.spec.released_at.is_some(),
    };
    Object::Reservation(reservation.name_any(), state)
}

/// The first and the last address of a prefix.
fn bounds(prefix: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (first, length) = prefix.split_once('/')?;
    let first: Ipv4Addr = first.parse().ok()?;
    let host_bits = 32_u32.checked_sub(length.parse().ok()?)?;
    Some((
        first,
        Ipv4Addr::from(u32::from(first) | 1_u32.checked_shl(host_bits)?.checked_sub(1)?),
    ))
}

fn range_of(prefix: &str) -> String {
    let (first, last) = bounds(prefix).expect("the workloads write prefixes as they should be");
    format!("{first}-{last}")
}

fn slice(slice: &IPSlice) -> Object {
    let pool = match slice.place() {
        Ok((Scope::Pool(pool), _)) => Some(pool),
        _ => None,
    };
    let state = Slice {
        uid: slice.uid().unwrap_or_default(),
        pool: pool_name(pool),
        block: bounds(&slice.spec.block),
        owner: slice.spec.owner.name.clone(),
        is_marked: slice.spec.empty_since.is_some(),
    };
    Object::Slice(slice.name_any(), state)
}

/// Pools whose ranges are completely allocatable, see the workloads. Pools of prefixes have another
/// block length than the networks, so they belong to none.
fn pool(pool: &capi_ipam_api::Pool) -> Object {
    let selected_by = pool
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(NETWORK_LABEL));
    let (addresses, block, network) = match &pool.spec {
        PoolSpec::Addresses(spec) => {
            let network = pool.spec.network().or(selected_by.map(String::as_str));
            (spec.addresses.clone(), 1, network.map(str::to_owned))
        }
        PoolSpec::Prefixes(spec) => (
            spec.prefixes
                .iter()
                .map(|prefix| range_of(prefix))
                .collect(),
            PREFIX_SIZE,
            None,
        ),
    };
    let state = Pool {
        uid: pool.metadata.uid.clone().unwrap_or_default(),
        addresses,
        block,
        network,
        deleting: pool.metadata.deletion_timestamp.is_some(),
        paused: is_paused(&pool.metadata),
        has_cooldown: pool.spec.cooldown_seconds() > 0,
        counts: counts_of(pool),
        slices: pool
            .status
            .as_ref()
            .and_then(|status| status.slices.as_ref())
            .map(|slices| slices.assigned),
    };
    Object::Pool(pool_name(Some(PoolKey::of(pool))), state)
}
