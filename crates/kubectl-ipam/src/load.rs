//! Reads the objects that a command needs.

use std::collections::HashSet;

use capi_ipam::api::{
    IPNetwork, IPReservation, IPSlice, InClusterKind, NamespaceAccess, NamespaceSource, Pool, PoolKey, Scope, names,
};
use capi_ipam::in_cluster::ledger::Ledger;
use capi_ipam_controller::watch::EventHandler;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

use crate::cluster::{Cluster, Kind, ListError, OtherKind};
use crate::error::{Error, MissingRight};
use crate::objects::{AddressRow, ClaimRow, NetworkRow, PoolRow, ReservationRow, SliceRow};

/// Reads objects, and collects warnings.
pub(crate) struct Loader<'a> {
    pub(crate) cluster: &'a Cluster,
    /// Warnings for the caller.
    pub(crate) warnings: Vec<String>,
    /// Permissions without which the output is incomplete.
    pub(crate) missing: Vec<MissingRight>,
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

impl<'a> Loader<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, warnings: Vec::new(), missing: Vec::new() }
    }

    /// Lists a kind in the whole cluster. Without the permission, lists the namespace of the caller.
    pub(crate) async fn list<T: DeserializeOwned>(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
        mut each: impl FnMut(T),
    ) -> Result<(), Error> {
        let mut result = self.cluster.list(kind, namespace, &mut each).await;
        if namespace.is_none()
            && !kind.is_global()
            && let Err(ListError::Forbidden(right)) = &result
        {
            self.missing.push(right.clone());
            result = self.cluster.list(kind, Some(&self.cluster.namespace), &mut each).await;
        }
        match result {
            Ok(skipped) => self.warnings.extend(skipped.warning(kind)),
            Err(ListError::Forbidden(right)) => self.missing.push(right),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(crate) async fn each_pool(
        &mut self,
        namespace: Option<&str>,
        mut each: impl FnMut(&Pool),
    ) -> Result<(), Error> {
        for kind in InClusterKind::ALL {
            let namespace = namespace.filter(|_| !kind.is_global());
            self.list(Kind::Pool(kind), namespace, |pool: Pool| each(&pool)).await?;
        }
        Ok(())
    }

    /// The pools of a namespace, or of all, and the global pools.
    pub(crate) async fn pools(&mut self, namespace: Option<&str>) -> Result<Vec<PoolRow>, Error> {
        let mut rows = Vec::new();
        self.each_pool(namespace, |pool| rows.push(PoolRow::from(pool))).await?;
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(rows)
    }

    /// All networks.
    pub(crate) async fn networks(&mut self) -> Result<Vec<NetworkRow>, Error> {
        let mut rows = Vec::new();
        self.list(Kind::Network, None, |network: IPNetwork| rows.push(NetworkRow::from(network))).await?;
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(rows)
    }

    pub(crate) async fn addresses(&mut self, keep: impl Fn(&AddressRow) -> bool) -> Result<Vec<AddressRow>, Error> {
        self.addresses_in(None, keep).await
    }

    pub(crate) async fn addresses_in(
        &mut self,
        namespace: Option<&str>,
        keep: impl Fn(&AddressRow) -> bool,
    ) -> Result<Vec<AddressRow>, Error> {
        let (mut rows, mut pools) = (Vec::new(), SharedPools::default());
        let each = |address: IPAddress| {
            rows.extend(
                AddressRow::of(&address).filter(&keep).map(|row| AddressRow { pool: pools.share(row.pool), ..row }),
            );
        };
        self.list(Kind::Address, namespace, each).await?;
        Ok(rows)
    }

    pub(crate) async fn claims(
        &mut self,
        namespace: Option<&str>,
        keep: impl Fn(&ClaimRow) -> bool,
    ) -> Result<Vec<ClaimRow>, Error> {
        let (mut rows, mut pools) = (Vec::new(), SharedPools::default());
        let each = |claim: IPAddressClaim| {
            rows.extend(ClaimRow::of(&claim).filter(&keep).map(|row| ClaimRow { pool: pools.share(row.pool), ..row }));
        };
        self.list(Kind::Claim, namespace, each).await?;
        Ok(rows)
    }

    pub(crate) async fn reservations(
        &mut self,
        keep: impl Fn(&ReservationRow) -> bool,
    ) -> Result<Vec<ReservationRow>, Error> {
        let (mut rows, mut pools) = (Vec::new(), SharedPools::default());
        let each = |reservation: IPReservation| {
            rows.extend(ReservationRow::of(&reservation).filter(&keep).map(|mut row| {
                row.pool = pools.share(row.pool);
                if let Scope::Pool(pool) = &mut row.slot.scope {
                    *pool = row.pool.clone();
                }
                row
            }));
        };
        self.list(Kind::Reservation, None, each).await?;
        Ok(rows)
    }

    pub(crate) async fn slices(&mut self, keep: impl Fn(&SliceRow) -> bool) -> Result<Vec<SliceRow>, Error> {
        let mut rows = Vec::new();
        let each = |slice: IPSlice| rows.extend(Some(SliceRow::from(slice)).filter(&keep));
        self.list(Kind::Slice, None, each).await?;
        Ok(rows)
    }

    /// The objects of another API group that match a field selector and a label selector. `None` without the
    /// permission.
    pub(crate) async fn others<T: DeserializeOwned>(
        &mut self,
        kind: OtherKind,
        namespace: Option<&str>,
        fields: &str,
        labels: &str,
    ) -> Result<Option<Vec<T>>, Error> {
        let parameters = ListParams::default().fields(fields).labels(labels);
        match self.cluster.list_other(kind, namespace, &parameters).await {
            Ok(found) => Ok(Some(found)),
            Err(ListError::Forbidden(right)) => {
                self.missing.push(right);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The ledger of the manager, filled with everything that the caller can read.
    pub(crate) async fn ledger(&mut self) -> Result<Ledger, Error> {
        let ledger = Ledger::read_only();
        self.fill_networks(&ledger).await?;
        let needs_no_object = self.cluster.version(Kind::Network)?.is_none();
        let each = |pool: &Pool| {
            if needs_no_object && pool.spec.network().is_some() {
                ledger.apply_network(&open_network(pool));
            }
            ledger.apply_pool(pool);
        };
        self.each_pool(None, each).await?;
        self.list(Kind::Reservation, None, |object: IPReservation| ledger.apply(&object)).await?;
        self.list(Kind::Address, None, |object: IPAddress| ledger.apply(&object)).await?;
        Ok(ledger)
    }

    /// Adds the networks to the ledger, and the namespaces if a network selects some.
    pub(crate) async fn fill_networks(&mut self, ledger: &Ledger) -> Result<(), Error> {
        let mut selects = false;
        let each = |network: IPNetwork| {
            let access = network.spec.namespaces.as_ref();
            selects |= access.is_some_and(|access| access.from == NamespaceSource::Selector);
            ledger.apply_network(&network);
        };
        self.list(Kind::Network, None, each).await?;
        if selects {
            let namespaces = self.others::<Namespace>(OtherKind::Namespace, None, "", "").await?;
            namespaces.into_iter().flatten().for_each(|namespace| ledger.apply(&namespace));
        }
        Ok(())
    }

    /// Fails if reservations or networks could not be listed: without all of them, the next address is unknown.
    pub(crate) fn require_all_reservations(&self) -> Result<(), Error> {
        let find = |kind: &str| self.missing.iter().find(|right| right.resource.starts_with(kind));
        let missing = find("ipreservations").or_else(|| find("ipnetworks"));
        missing.map_or(Ok(()), |right| Err(Error::Forbidden(right.clone())))
    }

    /// Finds a pool by `NAME` or `KIND/NAME` in the namespace of the caller, or among the global pools.
    pub(crate) async fn find_pool(&mut self, name: &str) -> Result<PoolRow, Error> {
        let namespace = self.cluster.namespace.clone();
        let pools = self.pools(Some(&namespace)).await?;
        let found = find(&pools, name)?;
        let place = format!("the namespace {namespace} or among the global pools");
        found.cloned().ok_or_else(|| Error::NoPool { name: name.to_owned(), place })
    }
}

/// The network that a pool names, for a provider in which a network needs no object.
fn open_network(pool: &Pool) -> IPNetwork {
    let mut network = IPNetwork::default();
    network.metadata.name = pool.spec.network().map(str::to_owned);
    network.metadata.finalizers = Some(vec![names::PROTECT_NETWORK.to_owned()]);
    network.spec.namespaces = Some(NamespaceAccess { from: NamespaceSource::All, ..NamespaceAccess::default() });
    let lengths = network.status.get_or_insert_default().block_lengths.get_or_insert_default();
    if let Ok(usable) = pool.spec.usable() {
        lengths.set(usable.family, usable.length);
    }
    network
}

/// Whether a pool has the name `NAME` or `KIND/NAME`. The kind is a name, a plural, or the short form of the tables.
pub(crate) fn matches(key: &PoolKey, text: &str) -> bool {
    let (kind, name) = text.split_once('/').map_or((None, text), |(kind, name)| (Some(kind), name));
    key.name.as_ref() == name && kind.is_none_or(|text| is_kind(key.kind, text))
}

/// Whether a text is the name, the plural or the short form of a kind.
fn is_kind(kind: InClusterKind, text: &str) -> bool {
    [kind.name(), kind.plural(), short(kind)].iter().any(|name| name.eq_ignore_ascii_case(text))
}

/// The kind with this name, plural or short form.
pub(crate) fn kind_of(text: &str) -> Option<InClusterKind> {
    InClusterKind::ALL.into_iter().find(|kind| is_kind(*kind, text))
}

fn find<'a>(pools: &'a [PoolRow], name: &str) -> Result<Option<&'a PoolRow>, Error> {
    let found: Vec<_> = pools.iter().filter(|pool| matches(&pool.key, name)).collect();
    if found.len() > 1 {
        let choices: Vec<_> = found.iter().map(|pool| format!("{}/{}", short(pool.key.kind), pool.key.name)).collect();
        return Err(Error::AmbiguousPool { name: name.to_owned(), choices: choices.join(" or ") });
    }
    Ok(found.first().copied())
}

/// The short form of a kind in tables.
pub(crate) const fn short(kind: InClusterKind) -> &'static str {
    match kind {
        InClusterKind::IPPool => "IP",
        InClusterKind::GlobalIPPool => "GlobalIP",
        InClusterKind::PrefixPool => "Prefix",
        InClusterKind::GlobalPrefixPool => "GlobalPrefix",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_is_found_by_name_or_kind_and_name() {
        let key = |kind| PoolKey::new(kind, None, "web");
        let global = key(InClusterKind::GlobalIPPool);
        for text in ["web", "globalip/web", "GlobalInClusterIPPool/web", "globalinclusterippools/web"] {
            assert!(matches(&global, text), "{text}");
        }
        assert!(!matches(&global, "ip/web") && !matches(&global, "other"));
    }
}
