//! Reads the objects that a command needs.

mod readable;
#[cfg(test)]
pub(crate) mod test_ledger;

use std::collections::{HashMap, HashSet};

use capi_ipam_api::{
    IPNetwork, IPRegistry, IPReservation, IPSlice, InClusterKind, NamespaceAccess, NamespaceSource,
    Pool, PoolKey, Scope, names,
};
use capi_ipam_ledger::{Ledger, Observe};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

pub(crate) use self::readable::Readable;
use crate::cluster::{Cluster, Kind, ListError, OtherKind};
use crate::error::{Error, MissingRight, sentences};
use crate::input::{PoolText, matches, short};
use crate::objects::{
    AddressRow, ClaimRow, NetworkRow, PoolRow, RegistryRow, ReservationRow, SliceRow, UnservedClaim,
};
use crate::spelling::nearest;

/// Reads objects, and collects warnings.
pub(crate) struct Loader<'a> {
    pub(crate) cluster: &'a Cluster,
    /// Warnings for the caller.
    pub(crate) warnings: Vec<String>,
    /// Permissions without which the output is incomplete.
    pub(crate) missing: Vec<MissingRight>,
    /// The label selector of the objects that a command lists.
    pub(crate) selected: Selected,
    /// Whether a kind that is not served has no objects, instead of being an error.
    pub(crate) tolerates_missing_kinds: bool,
}

/// Which objects a command lists.
#[derive(Clone, Debug, Default)]
pub(crate) enum Selected {
    #[default]
    All,
    Pools(String),
    Claims(String),
    Networks(String),
    Registries(String),
}

impl Selected {
    /// The label selector for lists of a kind; empty for all objects.
    fn labels(&self, kind: Kind) -> &str {
        match (self, kind) {
            (Self::Pools(labels), Kind::Pool(_))
            | (Self::Claims(labels), Kind::Claim)
            | (Self::Networks(labels), Kind::Network)
            | (Self::Registries(labels), Kind::Registry) => labels,
            _ => "",
        }
    }
}

/// The claims for pools of this provider, and those that it does not serve.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    pub(crate) served: Vec<ClaimRow>,
    pub(crate) unserved: Vec<UnservedClaim>,
}

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        self.served.is_empty() && self.unserved.is_empty()
    }
}

/// The names of pools that were read: rows of one pool share the memory of its name.
#[derive(Default)]
struct SharedPools(HashSet<PoolKey>);

impl SharedPools {
    fn share(&mut self, pool: PoolKey) -> PoolKey {
        match self.0.get(&pool) {
            Some(known) => known.clone(),
            None => {
                self.0.insert(pool.clone());
                pool
            }
        }
    }
}

/// What the addresses of a pool depend on.
pub(crate) struct Supply {
    /// The ledger of the manager, filled with all of it. Incomplete if an object is missing that
    /// decides which blocks the pool can allocate.
    pub(crate) ledger: Readable<Ledger>,
    /// The pools of the same scope, and others.
    pub(crate) pools: Readable<Vec<PoolRow>>,
    /// The addresses of the scope.
    pub(crate) addresses: Readable<Vec<AddressRow>>,
    /// The reservations of the scope.
    pub(crate) reservations: Readable<Vec<ReservationRow>>,
}

impl Supply {
    /// The ledger, for what depends on all objects.
    pub(crate) fn into_ledger(self) -> Readable<Ledger> {
        let ledger = self.ledger.depends_on(&self.addresses);
        ledger.depends_on(&self.reservations)
    }
}

impl<'a> Loader<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            warnings: Vec::new(),
            missing: Vec::new(),
            selected: Selected::default(),
            tolerates_missing_kinds: false,
        }
    }

    /// Lists a kind in the whole cluster. Without the permission, lists the namespace of the
    /// caller.
    pub(crate) async fn list<T: DeserializeOwned>(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
        mut each: impl FnMut(T),
    ) -> Result<Readable<()>, Error> {
        if self.tolerates_missing_kinds && self.cluster.version(kind).is_err() {
            return Ok(Readable::complete(()));
        }
        let labels = self.selected.labels(kind).to_owned();
        let right = match self.cluster.list(kind, namespace, &labels, &mut each).await {
            Ok(skipped) => {
                self.warnings.extend(skipped.warning(kind));
                return Ok(Readable::complete(()));
            }
            Err(ListError::Forbidden(right)) => right,
            Err(error) => return Err(error.into()),
        };
        self.note(&right);
        if namespace.is_some() || kind.is_global() {
            return Ok(Readable::part((), vec![right]));
        }
        let own = self.cluster.namespace.clone();
        match self
            .cluster
            .list(kind, Some(&own), &labels, &mut each)
            .await
        {
            Ok(skipped) => {
                self.warnings.extend(skipped.warning(kind));
                Ok(Readable::namespace((), right, &own))
            }
            // The permission for the whole cluster is reported: it is the one that the command
            // needs.
            Err(ListError::Forbidden(_)) => Ok(Readable::part((), vec![right])),
            Err(error) => Err(error.into()),
        }
    }

    /// The missing permissions as sentences.
    pub(crate) fn sentences(&self) -> Vec<String> {
        sentences(&self.missing)
    }

    /// The value that another loader has read, with its warnings and missing permissions.
    pub(crate) fn take<T>(&mut self, (value, other): (T, Self)) -> T {
        self.warnings.extend(other.warnings);
        for right in &other.missing {
            self.note(right);
        }
        value
    }

    fn note(&mut self, right: &MissingRight) {
        if !self.missing.contains(right) {
            self.missing.push(right.clone());
        }
    }

    /// Calls `each` for the pools of a namespace, or of all, and for the global pools.
    pub(crate) async fn each_pool(
        &mut self,
        namespace: Option<&str>,
        mut each: impl FnMut(&Pool),
    ) -> Result<Readable<()>, Error> {
        self.each_pool_of(&InClusterKind::ALL, namespace, &mut each)
            .await
    }

    async fn each_pool_of(
        &mut self,
        kinds: &[InClusterKind],
        namespace: Option<&str>,
        mut each: impl FnMut(&Pool),
    ) -> Result<Readable<()>, Error> {
        let mut all = Readable::complete(());
        for kind in kinds {
            let namespace = namespace.filter(|_| !kind.is_global());
            let read = self
                .list(Kind::Pool(*kind), namespace, |pool: Pool| each(&pool))
                .await?;
            all = all.depends_on(&read);
        }
        Ok(all)
    }

    /// The pools of a namespace, or of all, and the global pools.
    pub(crate) async fn pools(
        &mut self,
        namespace: Option<&str>,
    ) -> Result<Readable<Vec<PoolRow>>, Error> {
        self.pools_of(&InClusterKind::ALL, namespace).await
    }

    async fn pools_of(
        &mut self,
        kinds: &[InClusterKind],
        namespace: Option<&str>,
    ) -> Result<Readable<Vec<PoolRow>>, Error> {
        let mut rows = Vec::new();
        let read = self
            .each_pool_of(kinds, namespace, |pool| rows.push(PoolRow::from(pool)))
            .await?;
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(read.map(|()| rows))
    }

    /// All networks.
    pub(crate) async fn networks(&mut self) -> Result<Readable<Vec<NetworkRow>>, Error> {
        let mut rows = Vec::new();
        let read = self
            .list(Kind::Network, None, |network: IPNetwork| {
                rows.push(NetworkRow::from(network))
            })
            .await?;
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(read.map(|()| rows))
    }

    pub(crate) async fn addresses(
        &mut self,
        keep: impl Fn(&AddressRow) -> bool,
    ) -> Result<Readable<Vec<AddressRow>>, Error> {
        self.addresses_in(None, keep).await
    }

    pub(crate) async fn addresses_in(
        &mut self,
        namespace: Option<&str>,
        keep: impl Fn(&AddressRow) -> bool,
    ) -> Result<Readable<Vec<AddressRow>>, Error> {
        let (mut rows, mut pools) = (Vec::new(), SharedPools::default());
        let each = |address: IPAddress| {
            rows.extend(
                AddressRow::of(&address)
                    .filter(&keep)
                    .map(|row| AddressRow {
                        pool: pools.share(row.pool),
                        ..row
                    }),
            );
        };
        let read = self.list(Kind::Address, namespace, each).await?;
        Ok(read.map(|()| rows))
    }

    /// The claims for pools of this provider.
    pub(crate) async fn claims(
        &mut self,
        namespace: Option<&str>,
        keep: impl Fn(&ClaimRow) -> bool,
    ) -> Result<Readable<Vec<ClaimRow>>, Error> {
        Ok(self
            .all_claims(namespace, keep)
            .await?
            .map(|claims| claims.served))
    }

    /// The claims for pools of this provider, and those that it does not serve.
    pub(crate) async fn all_claims(
        &mut self,
        namespace: Option<&str>,
        keep: impl Fn(&ClaimRow) -> bool,
    ) -> Result<Readable<Claims>, Error> {
        let (mut claims, mut pools) = (Claims::default(), SharedPools::default());
        let kinds = &self.cluster.kinds;
        let each = |claim: IPAddressClaim| match UnservedClaim::of(&claim, kinds) {
            Some(row) => claims.unserved.push(row),
            None => {
                let row = ClaimRow::of(&claim).filter(&keep);
                claims.served.extend(row.map(|row| ClaimRow {
                    pool: pools.share(row.pool),
                    ..row
                }));
            }
        };
        let read = self.list(Kind::Claim, namespace, each).await?;
        Ok(read.map(|()| claims))
    }

    pub(crate) async fn reservations(
        &mut self,
        keep: impl Fn(&ReservationRow) -> bool,
    ) -> Result<Readable<Vec<ReservationRow>>, Error> {
        let (mut rows, mut pools) = (Vec::new(), SharedPools::default());
        let each = |reservation: IPReservation| {
            rows.extend(
                ReservationRow::of(&reservation)
                    .filter(&keep)
                    .map(|mut row| {
                        row.pool = pools.share(row.pool);
                        if let Scope::Pool(pool) = &mut row.slot.scope {
                            *pool = row.pool.clone();
                        }
                        row
                    }),
            );
        };
        let read = self.list(Kind::Reservation, None, each).await?;
        Ok(read.map(|()| rows))
    }

    pub(crate) async fn slices(
        &mut self,
        keep: impl Fn(&SliceRow) -> bool,
    ) -> Result<Readable<Vec<SliceRow>>, Error> {
        let mut rows = Vec::new();
        let each = |slice: IPSlice| rows.extend(Some(SliceRow::from(slice)).filter(&keep));
        let read = self.list(Kind::Slice, None, each).await?;
        Ok(read.map(|()| rows))
    }

    /// The objects of another API group that match selectors.
    pub(crate) async fn others<T: DeserializeOwned>(
        &mut self,
        kind: OtherKind,
        namespace: Option<&str>,
        parameters: &ListParams,
    ) -> Result<Readable<Vec<T>>, Error> {
        let found = self.cluster.list_other(kind, namespace, parameters).await;
        self.readable(found, Vec::new())
    }

    /// The result of a request, or another value if a permission is missing for it.
    pub(crate) fn readable<T>(
        &mut self,
        result: Result<T, ListError>,
        otherwise: T,
    ) -> Result<Readable<T>, Error> {
        match result {
            Ok(value) => Ok(Readable::complete(value)),
            Err(ListError::Forbidden(right)) => {
                self.note(&right);
                Ok(Readable::part(otherwise, vec![right]))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads everything that the addresses of a pool depend on.
    pub(crate) async fn supply(&mut self, pool: &PoolRow) -> Result<Supply, Error> {
        let mut ledger = Ledger::default();
        // Objects of other namespaces matter for a network and for a global pool only.
        let is_alone = pool.network.is_none() && pool.moving.is_none();
        let mut basis = Readable::complete(());
        if !is_alone || pool.spec.network().is_some() {
            basis = self.fill_networks(&mut ledger).await?;
        }
        let has_blocks = !ledger.networks_with_blocks().is_empty();
        let needs_no_object = self.cluster.version(Kind::Network)?.is_none();
        let mut pools = Vec::new();
        let each = |object: &Pool| {
            if needs_no_object && object.spec.network().is_some() {
                ledger.apply_network(&open_network(object));
            }
            ledger.apply_pool(object);
            pools.push(PoolRow::from(object));
        };
        let namespace = pool.key.namespace.as_deref().filter(|_| is_alone);
        let kinds = [pool.key.kind];
        let kinds = if is_alone {
            &kinds[..]
        } else {
            &InClusterKind::ALL
        };
        let read = self.each_pool_of(kinds, namespace, each).await?;
        let pools = read.map(|()| pools);
        basis = basis.depends_on(&pools);
        if has_blocks {
            let each = |slice: IPSlice| ledger.apply(&slice);
            let slices = self.list(Kind::Slice, None, each).await?;
            let each = |object: IPRegistry| {
                let row = RegistryRow::from(object);
                if let Some(id) = row.cluster_id() {
                    ledger.set_management_cluster(&row.name, id);
                }
            };
            let registries = self.list(Kind::Registry, None, each).await?;
            basis = basis.depends_on(&slices).depends_on(&registries);
        }
        let scopes: HashMap<&PoolKey, &Scope> = pools
            .seen()
            .iter()
            .map(|pool| (&pool.key, &pool.scope))
            .collect();
        let is_here = |key: &PoolKey| {
            *key == pool.key || scopes.get(key).is_some_and(|scope| **scope == pool.scope)
        };
        let (mut rows, mut shared) = (Vec::new(), SharedPools::default());
        let each = |object: IPAddress| {
            ledger.apply(&object);
            if let Some(mut row) = AddressRow::of(&object).filter(|row| is_here(&row.pool)) {
                row.pool = shared.share(row.pool);
                rows.push(row);
            }
        };
        let read = self.list(Kind::Address, namespace, each).await?;
        // Which addresses are in a network depends on its pools.
        let addresses = read.map(|()| rows).depends_on(&pools);
        let mut rows = Vec::new();
        let each = |object: IPReservation| {
            ledger.apply(&object);
            let row = ReservationRow::of(&object);
            rows.extend(row.filter(|row| row.slot.scope == pool.scope));
        };
        let read = self.list(Kind::Reservation, None, each).await?;
        let reservations = read.map(|()| rows);
        ledger.end_cooldowns(Timestamp::now().as_second());
        Ok(Supply {
            ledger: basis.map(|()| ledger),
            pools,
            addresses,
            reservations,
        })
    }

    /// Adds the networks to the ledger, and the namespaces if a network selects some.
    pub(crate) async fn fill_networks(
        &mut self,
        ledger: &mut Ledger,
    ) -> Result<Readable<()>, Error> {
        let mut selects = false;
        let each = |network: IPNetwork| {
            let access = network.spec.namespaces.as_ref();
            selects |= access.is_some_and(|access| access.from == NamespaceSource::Selector);
            ledger.apply_network(&network);
        };
        let networks = self.list(Kind::Network, None, each).await?;
        if !selects {
            return Ok(networks);
        }
        let namespaces = self
            .others::<Namespace>(OtherKind::Namespace, None, &ListParams::default())
            .await?;
        namespaces
            .seen()
            .iter()
            .for_each(|namespace| ledger.apply(namespace));
        Ok(networks.depends_on(&namespaces))
    }

    /// Fails if a namespace does not exist. One that may not be read can exist.
    pub(crate) async fn require_namespace(&self, name: &str) -> Result<(), Error> {
        let parameters = ListParams::default();
        let cluster = self.cluster;
        let list = cluster.list_other::<Namespace>(OtherKind::Namespace, None, &parameters);
        let namespaces = match list.await {
            Ok(namespaces) => namespaces,
            Err(ListError::Forbidden(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let names: Vec<String> = namespaces
            .into_iter()
            .filter_map(|namespace| namespace.metadata.name)
            .collect();
        if names.iter().any(|known| known == name) {
            return Ok(());
        }
        let similar = nearest(name, names.iter().map(String::as_str));
        Err(Error::NoNamespace {
            name: name.to_owned(),
            similar: similar.map(str::to_owned),
        })
    }

    /// Finds a pool by `NAME` or `KIND/NAME` in the namespace of the caller, or among the global
    /// pools. A pool that may not be read is not reported as missing.
    pub(crate) async fn find_pool(&mut self, name: &str) -> Result<PoolRow, Error> {
        let text = PoolText::parse(name);
        let namespace = match text.namespace {
            Some(namespace) => namespace.to_owned(),
            None => self.cluster.namespace.clone(),
        };
        let kind = text.kind.map(|kind| [kind]);
        let kinds = kind.as_ref().map_or(&InClusterKind::ALL[..], |kind| kind);
        let pools = self.pools_of(kinds, Some(&namespace)).await?;
        let place = format!("the namespace {namespace} or among the global pools");
        if let Some(found) = find(pools.seen(), name)? {
            return Ok(found.clone());
        }
        self.require_namespace(&namespace).await?;
        pools.require(|| format!("whether the pool {name} exists in {place}"))?;
        Err(Error::NoPool {
            name: name.to_owned(),
            place,
        })
    }
}

/// The network that a pool names, for a provider in which a network needs no object.
fn open_network(pool: &Pool) -> IPNetwork {
    let mut network = IPNetwork::default();
    network.metadata.name = pool.spec.network().map(str::to_owned);
    network.metadata.finalizers = Some(vec![names::PROTECT_NETWORK.to_owned()]);
    network.spec.namespaces = Some(NamespaceAccess {
        from: NamespaceSource::All,
        ..NamespaceAccess::default()
    });
    let lengths = network
        .status
        .get_or_insert_default()
        .block_lengths
        .get_or_insert_default();
    if let Ok(usable) = pool.spec.usable() {
        lengths.set(usable.family, usable.length);
    }
    network
}

fn find<'a>(pools: &'a [PoolRow], name: &str) -> Result<Option<&'a PoolRow>, Error> {
    let found: Vec<_> = pools
        .iter()
        .filter(|pool| matches(&pool.key, name))
        .collect();
    if found.len() > 1 {
        let choices: Vec<_> = found
            .iter()
            .map(|pool| format!("{}/{}", short(pool.key.kind), pool.key.name))
            .collect();
        return Err(Error::AmbiguousPool {
            name: name.to_owned(),
            choices: choices.join(" or "),
        });
    }
    Ok(found.first().copied())
}
