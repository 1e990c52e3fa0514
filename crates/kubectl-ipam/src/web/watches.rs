//! Watches of all kinds that the page shows.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{
    IPNetwork, IPRegistry, IPReservation, IPSlice, InClusterKind, NamespaceAccess, NamespaceSource,
    Pool, PoolKey, names,
};
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::watch::{MaybeInvalid, WatchApi};
use capi_ipam_ledger::{Ledger, Observe};
use capi_ipam_provider::api::{ContractVersion, IPAddress, IPAddressClaim};
use futures::StreamExt;
use kube::core::ObjectMeta;
use kube::runtime::watcher::{self, Config, Event, watcher as start_watch};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::claim_entry::ClaimEntry;
use super::heartbeat;
use super::records;
use super::state::{State, Tables};
use super::table::Table;
use crate::cluster::{Cluster, Kind, PAGE_SIZE, WATCH_TIMEOUT};
use crate::error::{Error, MissingRight};
use crate::objects::{AddressRow, NetworkRow, PoolRow, RegistryRow, ReservationRow, SliceRow};

/// Time before a failed watch is opened again.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Time before a list or a watch that the permissions do not allow is tried again.
const REFUSED_DELAY: Duration = Duration::from_secs(15);

/// Starts the watches. They end when the set is dropped.
pub(super) fn start(cluster: &Arc<Cluster>, state: &Arc<State>) -> Result<JoinSet<()>, Error> {
    let mut watches = JoinSet::new();
    watches.spawn(heartbeat::run(cluster.client.clone(), Arc::clone(state)));
    watches.spawn(records::run(Arc::clone(cluster), Arc::clone(state)));
    for pool in InClusterKind::ALL {
        if let Some((watch, _)) = Watch::new(cluster, state, Kind::Pool(pool))? {
            let client = watch.client.clone();
            let api = move |namespace: Option<&str>| match namespace {
                Some(name) => WatchApi::<Pool>::namespaced_with(client.clone(), name, &pool),
                None => WatchApi::<Pool>::all_with(client.clone(), &pool),
            };
            let row = |pool: &Pool| Some(PoolRow::from(pool));
            let feed = move |ledger: &mut Ledger, event: &Event<MaybeInvalid<Pool>>| {
                feed_pool(ledger, pool, event);
            };
            watches.spawn(watch.run(
                api,
                row,
                move |tables| tables.pools.entry(pool).or_default(),
                feed,
            ));
        }
    }
    if let Some((watch, _)) = Watch::new(cluster, state, Kind::Reservation)? {
        let client = watch.client.clone();
        let api = move |_: Option<&str>| WatchApi::<IPReservation>::all(client.clone());
        watches.spawn(watch.run(
            api,
            ReservationRow::of,
            |tables| &mut tables.reservations,
            feed,
        ));
    } else {
        state.update(|tables| tables.reservations.skip_list());
    }
    if let Some((watch, _)) = Watch::new(cluster, state, Kind::Network)? {
        let client = watch.client.clone();
        let api = move |_: Option<&str>| WatchApi::<IPNetwork>::all(client.clone());
        let row = |network: &IPNetwork| Some(NetworkRow::from(network.clone()));
        watches.spawn(watch.run(api, row, |tables| &mut tables.networks, feed_network));
    } else {
        state.update(|tables| tables.networks.skip_list());
    }
    if let Some((watch, _)) = Watch::new(cluster, state, Kind::Slice)? {
        let client = watch.client.clone();
        let api = move |_: Option<&str>| WatchApi::<IPSlice>::all(client.clone());
        let row = |slice: &IPSlice| Some(SliceRow::from(slice.clone()));
        watches.spawn(watch.run(api, row, |tables| &mut tables.slices, feed));
    } else {
        state.update(|tables| tables.slices.skip_list());
    }
    if let Some((watch, _)) = Watch::new(cluster, state, Kind::Registry)? {
        let client = watch.client.clone();
        let api = move |_: Option<&str>| WatchApi::<IPRegistry>::all(client.clone());
        let row = |registry: &IPRegistry| Some(RegistryRow::from(registry.clone()));
        watches.spawn(watch.run(api, row, |tables| &mut tables.registries, feed_registry));
    } else {
        state.update(|tables| tables.registries.skip_list());
    }
    if let Some((watch, version)) = Watch::new(cluster, state, Kind::Address)? {
        let (client, version) = (watch.client.clone(), contract(version));
        let api = move |namespace: Option<&str>| {
            let api = WatchApi::<IPAddress>::all_with(client.clone(), &version);
            api.constrain(namespace.unwrap_or_default())
        };
        watches.spawn(watch.run(api, AddressRow::of, |tables| &mut tables.addresses, feed));
    }
    if let Some((watch, version)) = Watch::new(cluster, state, Kind::Claim)? {
        let (client, version) = (watch.client.clone(), contract(version));
        let api = move |namespace: Option<&str>| {
            let api = WatchApi::<IPAddressClaim>::all_with(client.clone(), &version);
            api.constrain(namespace.unwrap_or_default())
        };
        let served = cluster.kinds.clone();
        let row = move |claim: &IPAddressClaim| ClaimEntry::of(claim, &served);
        watches.spawn(watch.run(api, row, |tables| &mut tables.claims, |_, _| ()));
    }
    Ok(watches)
}

fn contract(version: &str) -> ContractVersion {
    ContractVersion::ALL
        .into_iter()
        .find(|known| known.as_str() == version)
        .unwrap_or_default()
}

/// The watch of one kind.
struct Watch {
    client: Client,
    kind: Kind,
    /// The namespace that is watched if the permissions do not allow the whole cluster.
    own_namespace: String,
    state: Arc<State>,
}

/// What the permissions do not allow.
enum Refused {
    List,
    Watch,
}

impl Watch {
    /// The watch and the version of a kind; `None` if the cluster does not have it.
    fn new(
        cluster: &Cluster,
        state: &Arc<State>,
        kind: Kind,
    ) -> Result<Option<(Self, &'static str)>, Error> {
        let Some(version) = cluster.version(kind)? else {
            return Ok(None);
        };
        let (client, own_namespace) = (cluster.client.clone(), cluster.namespace.clone());
        Ok(Some((
            Self {
                client,
                kind,
                own_namespace,
                state: Arc::clone(state),
            },
            version,
        )))
    }

    /// Watches the whole cluster. Without the permission, watches the namespace of the caller.
    async fn run<K, V>(
        self,
        api: impl Fn(Option<&str>) -> WatchApi<K> + Send,
        row: impl Fn(&K) -> Option<V> + Send + Sync,
        table: impl Fn(&mut Tables) -> &mut Table<V> + Send + Sync,
        feed: impl Fn(&mut Ledger, &Event<MaybeInvalid<K>>) + Send + Sync,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut namespace: Option<&str> = None;
        self.state.update(|tables| {
            table(tables);
        });
        loop {
            let config = Config::default()
                .page_size(PAGE_SIZE)
                .timeout(WATCH_TIMEOUT);
            let mut events = pin!(start_watch(api(namespace), config));
            while let Some(event) = events.next().await {
                let error = match event {
                    Ok(event) => {
                        self.receive(event, &row, &table, &feed);
                        continue;
                    }
                    Err(error) => error,
                };
                let Some(refused) = refused(&error) else {
                    let problem = format!(
                        "cannot watch {}: {}",
                        self.kind.plural(),
                        error_chain(&error)
                    );
                    self.state.update(|tables| table(tables).failed(problem));
                    self.state.suspect();
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                };
                let right = self.right(&refused, namespace);
                self.state.update(|tables| table(tables).missing(right));
                if matches!(refused, Refused::List) && namespace.is_none() && !self.kind.is_global()
                {
                    namespace = Some(&self.own_namespace);
                } else {
                    // The ledger computes nothing before all lists that have begun are complete.
                    if matches!(refused, Refused::List) {
                        let ended = Event::InitDone;
                        self.state.update(|tables| feed(&mut tables.ledger, &ended));
                    }
                    // The rows of a list stay; it is read again, since there is no watch.
                    self.state.update(|tables| table(tables).skip_list());
                    tokio::time::sleep(REFUSED_DELAY).await;
                }
                break;
            }
        }
    }

    fn receive<K: Resource, V>(
        &self,
        event: Event<MaybeInvalid<K>>,
        row: impl Fn(&K) -> Option<V>,
        table: impl Fn(&mut Tables) -> &mut Table<V>,
        feed: impl Fn(&mut Ledger, &Event<MaybeInvalid<K>>),
    ) {
        // kube sends `Init` before its request.
        let is_answer = !matches!(event, Event::Init);
        let apply = |tables: &mut Tables| {
            feed(&mut tables.ledger, &event);
            table(tables).apply(event, row);
        };
        if is_answer {
            self.state.receive(apply);
        } else {
            self.state.update(apply);
        }
    }

    fn right(&self, refused: &Refused, namespace: Option<&str>) -> MissingRight {
        let verb = match refused {
            Refused::List => "list",
            Refused::Watch => "watch",
        };
        let resource = format!("{}.{}", self.kind.plural(), names::GROUP);
        MissingRight {
            verb,
            resource,
            namespace: namespace.map(str::to_owned),
        }
    }
}

/// Passes an event to the ledger.
fn feed<K>(ledger: &mut Ledger, event: &Event<MaybeInvalid<K>>)
where
    Ledger: Observe<K>,
{
    match event {
        Event::Init => Observe::<K>::init(ledger),
        Event::InitDone => Observe::<K>::init_done(ledger),
        Event::InitApply(object) | Event::Apply(object) => match &object.0 {
            Ok(valid) => ledger.apply(valid),
            Err(invalid) => Observe::<K>::apply_invalid(ledger, invalid),
        },
        Event::Delete(object) => match &object.0 {
            Ok(valid) => ledger.delete(valid),
            Err(invalid) => Observe::<K>::delete_invalid(ledger, invalid),
        },
    }
    // The page has no controllers that they would be for.
    drop(ledger.take_effects());
}

/// The same for a network. The page does not read the labels of namespaces.
fn feed_network(ledger: &mut Ledger, event: &Event<MaybeInvalid<IPNetwork>>) {
    match event {
        Event::InitApply(MaybeInvalid(Ok(network))) | Event::Apply(MaybeInvalid(Ok(network))) => {
            let mut network = network.clone();
            network.spec.namespaces = Some(NamespaceAccess {
                from: NamespaceSource::All,
                ..NamespaceAccess::default()
            });
            ledger.apply_network(&network);
        }
        _ => feed(ledger, event),
    }
}

/// The same for a registry, which has the identity of this management cluster.
fn feed_registry(ledger: &mut Ledger, event: &Event<MaybeInvalid<IPRegistry>>) {
    feed(ledger, event);
    if let Event::InitApply(MaybeInvalid(Ok(registry))) | Event::Apply(MaybeInvalid(Ok(registry))) =
        event
    {
        let row = RegistryRow::from(registry.clone());
        if let Some(id) = row.cluster_id() {
            ledger.set_management_cluster(&row.name, id);
        }
    }
}

/// The same for a pool of a kind.
fn feed_pool(ledger: &mut Ledger, kind: InClusterKind, event: &Event<MaybeInvalid<Pool>>) {
    match event {
        Event::Init => ledger.begin_pool_list(kind),
        Event::InitDone => ledger.end_pool_list(kind),
        Event::InitApply(object) | Event::Apply(object) => match &object.0 {
            Ok(pool) => ledger.apply_pool(pool),
            Err(invalid) => ledger.apply_invalid_pool(&key_of(kind, object.meta()), invalid),
        },
        Event::Delete(object) => match &object.0 {
            Ok(pool) => ledger.delete_pool(pool),
            Err(invalid) => ledger.delete_invalid_pool(&key_of(kind, object.meta()), invalid),
        },
    }
    drop(ledger.take_effects());
}

fn key_of(kind: InClusterKind, metadata: &ObjectMeta) -> PoolKey {
    let name = metadata.name.as_deref().unwrap_or_default();
    PoolKey::new(kind, metadata.namespace.as_deref(), name)
}

/// Whether the permissions do not allow a request.
fn refused(error: &watcher::Error) -> Option<Refused> {
    let is_forbidden =
        |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
    match error {
        watcher::Error::InitialListFailed(error) if is_forbidden(error) => Some(Refused::List),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error)
            if is_forbidden(error) =>
        {
            Some(Refused::Watch)
        }
        watcher::Error::WatchError(status) if status.code == 403 => Some(Refused::Watch),
        _ => None,
    }
}
