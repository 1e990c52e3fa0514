//! All objects that a command has listed, or that the page watches.

use std::collections::BTreeMap;
use std::fmt::Debug;

use capi_ipam_api::{
    IPNetwork, IPRegistry, IPReservation, IPSlice, InClusterKind, NamedPool, NamespaceAccess,
    NamespaceSource, Pool, PoolKey, PoolSet, PoolSetKey, PoolSetKind, Scope, names,
};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::{MaybeInvalid, WatchApi};
use capi_ipam_ledger::{Ledger, Observe, SetInfo};
use capi_ipam_provider::api::{ContractVersion, IPAddress, IPAddressClaim};
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use super::kind::Kind;
use super::table::{ListState, Table};
use super::{
    AddressRow, ClaimRow, NetworkRow, PoolRow, PoolSetRow, RegistryRow, ReservationRow,
    ServedKinds, SliceRow,
};
use crate::error::MissingRight;

/// The objects of all kinds.
///
/// A list that may not be read is not empty: it is unknown. Who concludes that an object does not exist
/// asks [`Objects::has`] before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) pools: BTreeMap<InClusterKind, Table<PoolRow>>,
    pub(crate) pool_sets: BTreeMap<PoolSetKind, Table<PoolSetRow>>,
    pub(crate) addresses: Table<AddressRow>,
    pub(crate) claims: Table<ClaimRow>,
    pub(crate) networks: Table<NetworkRow>,
    pub(crate) registries: Table<RegistryRow>,
    pub(crate) reservations: Table<ReservationRow>,
    pub(crate) slices: Table<SliceRow>,
    pub(crate) lists: BTreeMap<Kind, ListState>,
    /// What the API server serves.
    pub(crate) served: ServedKinds,
}

/// A kind whose objects are shown.
pub(crate) trait Shown:
    Resource + Clone + DeserializeOwned + Debug + Send + 'static
{
    /// What is kept of an object.
    type Row;

    /// The API in a version, for a namespace or for the whole cluster.
    fn api(client: Client, kind: Kind, version: &str, namespace: Option<&str>) -> WatchApi<Self>;

    /// The objects of the kind.
    fn table(objects: &mut Objects, kind: Kind) -> &mut Table<Self::Row>;

    /// What is kept of an object; `None` for one of another provider.
    fn row(&self, served: &ServedKinds) -> Option<Self::Row>;

    /// Why nothing can be kept of an object of this provider.
    fn problem(&self) -> Option<String> {
        None
    }

    /// Passes an event to the ledger. An object of a list is an event, too.
    fn feed(ledger: &mut Ledger, kind: Kind, event: &Event<MaybeInvalid<Self>>);

    /// As [`Shown::feed`], for a ledger that does not know the labels of namespaces.
    fn feed_without_namespaces(ledger: &mut Ledger, kind: Kind, event: &Event<MaybeInvalid<Self>>) {
        Self::feed(ledger, kind, event);
    }
}

impl Objects {
    /// Applies an event of a watch or an object of a list.
    pub(crate) fn apply<K: Shown>(&mut self, kind: Kind, event: Event<MaybeInvalid<K>>) {
        self.list_mut(kind).receive(&event);
        let mut table = std::mem::take(K::table(self, kind));
        table.apply(event, |object: &K| match object.problem() {
            Some(problem) => Some(Err(problem)),
            None => object.row(&self.served).map(Ok),
        });
        *K::table(self, kind) = table;
    }

    /// Adds what another one has listed.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.pools.extend(other.pools);
        self.pool_sets.extend(other.pool_sets);
        self.lists.extend(other.lists);
        take(&mut self.addresses, other.addresses);
        take(&mut self.claims, other.claims);
        take(&mut self.networks, other.networks);
        take(&mut self.registries, other.registries);
        take(&mut self.reservations, other.reservations);
        take(&mut self.slices, other.slices);
    }

    /// How far the objects of a kind are known; `None` before they are listed.
    pub(crate) fn list(&self, kind: Kind) -> Option<&ListState> {
        self.lists.get(&kind)
    }

    /// As [`Objects::list`], to change it.
    pub(crate) fn list_mut(&mut self, kind: Kind) -> &mut ListState {
        self.lists.entry(kind).or_default()
    }

    /// What cannot be decoded of a kind.
    pub(crate) fn undecodable(&self, kind: Kind) -> Option<String> {
        match kind {
            Kind::Pool(of) => self.pools.get(&of)?.undecodable(kind),
            Kind::PoolSet(of) => self.pool_sets.get(&of)?.undecodable(kind),
            Kind::Address => self.addresses.undecodable(kind),
            Kind::Claim => self.claims.undecodable(kind),
            Kind::Network => self.networks.undecodable(kind),
            Kind::Registry => self.registries.undecodable(kind),
            Kind::Reservation => self.reservations.undecodable(kind),
            Kind::Slice => self.slices.undecodable(kind),
        }
    }

    /// The permissions without which the objects of some kinds are not all.
    pub(crate) fn lacking(&self, kinds: &[Kind]) -> Vec<MissingRight> {
        let lists = kinds.iter().filter_map(|kind| self.list(*kind));
        let mut missing: Vec<MissingRight> = Vec::new();
        for right in lists.flat_map(ListState::lacking) {
            if !missing.contains(right) {
                missing.push(right.clone());
            }
        }
        missing
    }

    /// As [`Objects::lacking`], for pools and some other kinds.
    pub(crate) fn lacking_of_pools_and(&self, kinds: &[Kind]) -> Vec<MissingRight> {
        let mut all = Kind::POOLS.to_vec();
        all.extend_from_slice(kinds);
        self.lacking(&all)
    }

    /// Whether all objects of some kinds are known, as far as they were asked for.
    pub(crate) fn has(&self, kinds: &[Kind]) -> bool {
        self.lacking(kinds).is_empty()
    }

    /// Whether all objects of a kind in a namespace are known; `None` stands for all namespaces.
    pub(crate) fn covers(&self, kind: Kind, namespace: Option<&str>) -> bool {
        self.list(kind).is_none_or(|list| list.covers(namespace))
    }

    /// The pools, by kind, namespace and name.
    pub(crate) fn pools(&self) -> Vec<&PoolRow> {
        let mut rows: Vec<&PoolRow> = self.pools.values().flat_map(Table::iter).collect();
        rows.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        rows
    }

    pub(crate) fn pool(&self, key: &PoolKey) -> Option<&PoolRow> {
        self.pools.get(&key.kind)?.get(&name_of(key))
    }

    /// The sets of pools, by kind, namespace and name.
    pub(crate) fn pool_sets(&self) -> impl Iterator<Item = &PoolSetRow> {
        self.pool_sets.values().flat_map(Table::sorted)
    }

    /// The pool of a claim: the one that it names or, if it names a set, that of its IPAddress.
    pub(crate) fn pool_of<'a>(&'a self, claim: &'a ClaimRow) -> Option<&'a PoolKey> {
        match claim.pool.as_ref().ok()? {
            NamedPool::Pool(pool) => Some(pool),
            NamedPool::Set(_) => Some(&self.addresses.get(&claim.address_key()?)?.pool),
        }
    }

    /// Whether a pool exists, also one that cannot be decoded.
    pub(crate) fn has_pool(&self, key: &PoolKey) -> bool {
        let table = self.pools.get(&key.kind);
        table.is_some_and(|table| table.contains(&name_of(key)))
    }

    /// The pools of a network, by kind, namespace and name.
    pub(crate) fn members(&self, network: &str) -> Vec<&PoolRow> {
        let mut pools = self.pools();
        pools.retain(|pool| pool.network.as_deref() == Some(network));
        pools
    }

    /// The scope of a pool. Of one that is not known, it is the pool itself.
    pub(crate) fn scope_of(&self, key: &PoolKey) -> Scope {
        match self.pool(key) {
            Some(pool) => pool.scope.clone(),
            None => Scope::Pool(key.clone()),
        }
    }

    /// The slices of management clusters in a network.
    pub(crate) fn slices_of(&self, network: &str) -> Vec<&SliceRow> {
        let is_of_network = |row: &&SliceRow| {
            let place = row.shared_block();
            place.is_some_and(|(name, _)| name == network)
        };
        self.slices.iter().filter(is_of_network).collect()
    }

    pub(crate) fn network(&self, name: &str) -> Option<&NetworkRow> {
        self.networks.get(&NamespacedName::new("", name))
    }

    pub(crate) fn registry(&self, name: &str) -> Option<&RegistryRow> {
        self.registries.get(&NamespacedName::new("", name))
    }

    /// The claims for pools and sets of this provider, by namespace and name.
    pub(crate) fn served(&self) -> Vec<&ClaimRow> {
        let mut claims = self.claims.sorted();
        claims.retain(|claim| claim.pool.is_ok());
        claims
    }
}

/// The namespace and the name of a pool.
fn name_of(key: &PoolKey) -> NamespacedName {
    NamespacedName::new(key.namespace.as_deref().unwrap_or_default(), &key.name)
}

/// Takes the rows of another table, if there are some.
fn take<V>(table: &mut Table<V>, other: Table<V>) {
    if !other.is_empty() {
        *table = other;
    }
}

impl Shown for Pool {
    type Row = PoolRow;

    fn api(client: Client, kind: Kind, _: &str, namespace: Option<&str>) -> WatchApi<Self> {
        let kind = kind.of_pool();
        match namespace {
            Some(name) => WatchApi::namespaced_with(client, name, &kind),
            None => WatchApi::all_with(client, &kind),
        }
    }

    fn table(objects: &mut Objects, kind: Kind) -> &mut Table<PoolRow> {
        objects.pools.entry(kind.of_pool()).or_default()
    }

    fn row(&self, _: &ServedKinds) -> Option<PoolRow> {
        Some(PoolRow::from(self))
    }

    fn feed(ledger: &mut Ledger, kind: Kind, event: &Event<MaybeInvalid<Self>>) {
        let kind = kind.of_pool();
        let key_of = |metadata: &ObjectMeta| {
            let name = metadata.name.as_deref().unwrap_or_default();
            PoolKey::new(kind, metadata.namespace.as_deref(), name)
        };
        match event {
            Event::Init => ledger.begin_pool_list(kind),
            Event::InitDone => ledger.end_pool_list(kind),
            Event::InitApply(object) | Event::Apply(object) => match &object.0 {
                Ok(pool) => ledger.apply_pool(pool),
                Err(invalid) => ledger.apply_invalid_pool(&key_of(object.meta()), invalid),
            },
            Event::Delete(object) => {
                ledger.delete_pool(&key_of(object.meta()), object.meta());
            }
        }
        drop(ledger.take_effects());
    }
}

impl Shown for PoolSet {
    type Row = PoolSetRow;

    fn api(client: Client, kind: Kind, _: &str, namespace: Option<&str>) -> WatchApi<Self> {
        let kind = kind.of_pool_set();
        match namespace {
            Some(name) => WatchApi::namespaced_with(client, name, &kind),
            None => WatchApi::all_with(client, &kind),
        }
    }

    fn table(objects: &mut Objects, kind: Kind) -> &mut Table<PoolSetRow> {
        objects.pool_sets.entry(kind.of_pool_set()).or_default()
    }

    fn row(&self, _: &ServedKinds) -> Option<PoolSetRow> {
        Some(PoolSetRow::from(self))
    }

    fn feed(ledger: &mut Ledger, kind: Kind, event: &Event<MaybeInvalid<Self>>) {
        let kind = kind.of_pool_set();
        let key_of = |object: &MaybeInvalid<Self>| PoolSetKey::new(kind, object.meta());
        match event {
            Event::Init => ledger.begin_set_list(kind),
            Event::InitDone => ledger.end_set_list(kind),
            Event::InitApply(object) | Event::Apply(object) => {
                let key = key_of(object);
                let info = object.0.as_ref().ok().map(|set| SetInfo::of(&key, set));
                ledger.apply_set(&key, info);
            }
            Event::Delete(object) => ledger.remove_set(&key_of(object)),
        }
        drop(ledger.take_effects());
    }
}

impl Shown for IPAddress {
    type Row = AddressRow;

    fn api(client: Client, _: Kind, version: &str, namespace: Option<&str>) -> WatchApi<Self> {
        let api = WatchApi::all_with(client, &contract(version));
        api.constrain(namespace.unwrap_or_default())
    }

    fn table(objects: &mut Objects, _: Kind) -> &mut Table<AddressRow> {
        &mut objects.addresses
    }

    fn row(&self, _: &ServedKinds) -> Option<AddressRow> {
        AddressRow::of(self)
    }

    fn problem(&self) -> Option<String> {
        let is_unknown =
            PoolSetKey::of_address(self).is_some() && PoolKey::of_address(self).is_none();
        let annotation = names::MEMBER_POOL_ANNOTATION;
        is_unknown.then(|| format!("the annotation {annotation} does not name its pool"))
    }

    fn feed(ledger: &mut Ledger, _: Kind, event: &Event<MaybeInvalid<Self>>) {
        observe(ledger, event);
    }
}

impl Shown for IPAddressClaim {
    type Row = ClaimRow;

    fn api(client: Client, _: Kind, version: &str, namespace: Option<&str>) -> WatchApi<Self> {
        let api = WatchApi::all_with(client, &contract(version));
        api.constrain(namespace.unwrap_or_default())
    }

    fn table(objects: &mut Objects, _: Kind) -> &mut Table<ClaimRow> {
        &mut objects.claims
    }

    fn row(&self, served: &ServedKinds) -> Option<ClaimRow> {
        ClaimRow::of(self, served)
    }

    fn feed(_: &mut Ledger, _: Kind, _: &Event<MaybeInvalid<Self>>) {}
}

impl Shown for IPNetwork {
    type Row = NetworkRow;

    fn api(client: Client, _: Kind, _: &str, _: Option<&str>) -> WatchApi<Self> {
        WatchApi::all(client)
    }

    fn table(objects: &mut Objects, _: Kind) -> &mut Table<NetworkRow> {
        &mut objects.networks
    }

    fn row(&self, _: &ServedKinds) -> Option<NetworkRow> {
        Some(NetworkRow::from(self.clone()))
    }

    fn feed(ledger: &mut Ledger, _: Kind, event: &Event<MaybeInvalid<Self>>) {
        observe(ledger, event);
    }

    /// The network accepts the pools of all namespaces: their status says whether they are in it.
    fn feed_without_namespaces(ledger: &mut Ledger, kind: Kind, event: &Event<MaybeInvalid<Self>>) {
        match event {
            Event::InitApply(MaybeInvalid(Ok(network)))
            | Event::Apply(MaybeInvalid(Ok(network))) => {
                let mut network = network.clone();
                network.spec.namespaces = Some(NamespaceAccess {
                    from: NamespaceSource::All,
                    ..NamespaceAccess::default()
                });
                ledger.apply_network(&network);
            }
            _ => Self::feed(ledger, kind, event),
        }
    }
}

impl Shown for IPReservation {
    type Row = ReservationRow;

    fn api(client: Client, _: Kind, _: &str, _: Option<&str>) -> WatchApi<Self> {
        WatchApi::all(client)
    }

    fn table(objects: &mut Objects, _: Kind) -> &mut Table<ReservationRow> {
        &mut objects.reservations
    }

    fn row(&self, _: &ServedKinds) -> Option<ReservationRow> {
        ReservationRow::of(self)
    }

    fn feed(ledger: &mut Ledger, _: Kind, event: &Event<MaybeInvalid<Self>>) {
        observe(ledger, event);
    }
}

impl Shown for IPSlice {
    type Row = SliceRow;

    fn api(client: Client, _: Kind, _: &str, _: Option<&str>) -> WatchApi<Self> {
        WatchApi::all(client)
    }

    fn table(objects: &mut Objects, _: Kind) -> &mut Table<SliceRow> {
        &mut objects.slices
    }

    fn row(&self, _: &ServedKinds) -> Option<SliceRow> {
        Some(SliceRow::from(self.clone()))
    }

    fn feed(ledger: &mut Ledger, _: Kind, event: &Event<MaybeInvalid<Self>>) {
        observe(ledger, event);
    }
}

impl Shown for IPRegistry {
    type Row = RegistryRow;

    fn api(client: Client, _: Kind, _: &str, _: Option<&str>) -> WatchApi<Self> {
        WatchApi::all(client)
    }

    fn table(objects: &mut Objects, _: Kind) -> &mut Table<RegistryRow> {
        &mut objects.registries
    }

    fn row(&self, _: &ServedKinds) -> Option<RegistryRow> {
        Some(RegistryRow::from(self.clone()))
    }

    /// The registry has the identity of this management cluster.
    fn feed(ledger: &mut Ledger, _: Kind, event: &Event<MaybeInvalid<Self>>) {
        observe(ledger, event);
        let (Event::InitApply(object) | Event::Apply(object)) = event else {
            return;
        };
        if let Ok(registry) = &object.0 {
            let row = RegistryRow::from(registry.clone());
            if let Some(id) = row.cluster_id() {
                ledger.set_management_cluster(&row.name, id);
            }
        }
    }
}

fn contract(version: &str) -> ContractVersion {
    let mut all = ContractVersion::ALL.into_iter();
    all.find(|known| known.as_str() == version)
        .unwrap_or_default()
}

/// Passes an event to the ledger.
fn observe<K>(ledger: &mut Ledger, event: &Event<MaybeInvalid<K>>)
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
    // There are no controllers that they would be for.
    drop(ledger.take_effects());
}
