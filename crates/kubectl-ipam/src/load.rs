//! Lists the objects that a command needs.

use std::collections::BTreeSet;

use capi_ipam_api::{IPNetwork, IPRegistry, IPReservation, IPSlice, Pool, PoolSet};
use capi_ipam_api::{InClusterKind, NamedPool, PoolKey};
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_ledger::{Ledger, Observe};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::runtime::watcher::Event;

use crate::cli::ListFlags;
use crate::cluster::{Cluster, OtherKind};
use crate::error::{Error, MissingRight, sentences};
use crate::input::{PoolText, short};
use crate::objects::{Kind, Objects, PoolRow, Shown};
use crate::spelling::nearest;

/// Lists objects, and collects warnings.
pub(crate) struct Loader<'a> {
    pub(crate) cluster: &'a Cluster,
    /// What was listed.
    pub(crate) objects: Objects,
    /// The ledger of the manager, which gets the same objects; `None` if nothing is computed from it.
    pub(crate) ledger: Option<Ledger>,
    /// Warnings for the caller.
    pub(crate) warnings: Vec<String>,
    /// Permissions without which the output is incomplete.
    pub(crate) missing: Vec<MissingRight>,
    /// The label selector of the objects of some kinds.
    pub(crate) selected: Option<(Vec<Kind>, String)>,
    /// Whether a kind that is not served has no objects, instead of being an error.
    pub(crate) tolerates_missing_kinds: bool,
}

/// What can be read of other API groups, with the permissions without which it is not all.
#[derive(Clone, Debug)]
pub(crate) struct Readable<T> {
    value: T,
    pub(crate) missing: Vec<MissingRight>,
}

impl<T> Readable<T> {
    pub(crate) fn complete(value: T) -> Self {
        Self::part(value, Vec::new())
    }

    pub(crate) fn part(value: T, missing: Vec<MissingRight>) -> Self {
        Self { value, missing }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// The value, if no permission is missing.
    pub(crate) fn known(&self) -> Option<&T> {
        self.is_complete().then_some(&self.value)
    }

    /// What can be read. It must not be used to conclude that something does not exist.
    pub(crate) fn seen(&self) -> &T {
        &self.value
    }

    /// As [`Readable::seen`].
    pub(crate) fn into_seen(self) -> T {
        self.value
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Readable<U> {
        Readable::part(change(self.value), self.missing)
    }

    /// The permissions that are missing for this value, or for another one.
    pub(crate) fn missing_with<U>(&self, other: &Readable<U>) -> Vec<MissingRight> {
        let mut missing = self.missing.clone();
        for right in &other.missing {
            if !missing.contains(right) {
                missing.push(right.clone());
            }
        }
        missing
    }
}

impl<'a> Loader<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            objects: Objects {
                served: cluster.kinds.clone(),
                ..Objects::default()
            },
            ledger: None,
            warnings: Vec::new(),
            missing: Vec::new(),
            selected: None,
            tolerates_missing_kinds: false,
        }
    }

    /// Selects the objects of some kinds by the flags of a list.
    pub(crate) fn select(&mut self, kinds: &[Kind], flags: &ListFlags) {
        let labels = flags.selector.clone();
        self.selected = labels.map(|labels| (kinds.to_vec(), labels));
    }

    /// Fails if nothing of some kinds was found because something may not be read: then `what` is unknown,
    /// not empty.
    pub(crate) fn require_some(
        &self,
        kinds: &[Kind],
        is_empty: bool,
        what: &str,
    ) -> Result<(), Error> {
        if is_empty {
            return self.require_known(kinds, || format!("the list of {what}"));
        }
        Ok(())
    }

    /// Lists some kinds, in a namespace or in the whole cluster. Without the permission for the whole
    /// cluster, lists the namespace of the caller.
    pub(crate) async fn read(
        &mut self,
        kinds: &[Kind],
        namespace: Option<&str>,
    ) -> Result<(), Error> {
        for kind in kinds {
            match kind {
                Kind::Pool(_) => self.list::<Pool>(*kind, namespace).await?,
                Kind::PoolSet(_) => self.list::<PoolSet>(*kind, namespace).await?,
                Kind::Address => self.list::<IPAddress>(*kind, namespace).await?,
                Kind::Claim => self.list::<IPAddressClaim>(*kind, namespace).await?,
                Kind::Network => self.list_networks().await?,
                Kind::Registry => self.list::<IPRegistry>(*kind, None).await?,
                Kind::Reservation => self.list::<IPReservation>(*kind, None).await?,
                Kind::Slice => self.list::<IPSlice>(*kind, None).await?,
            }
        }
        Ok(())
    }

    /// As [`Loader::read`]. Fails if a permission is missing: then `what` is unknown.
    pub(crate) async fn require(
        &mut self,
        kinds: &[Kind],
        namespace: Option<&str>,
        what: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        self.read(kinds, namespace).await?;
        self.require_known(kinds, what)
    }

    /// Fails if the objects of some kinds are not all known.
    pub(crate) fn require_known(
        &self,
        kinds: &[Kind],
        what: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        let missing = self.objects.lacking(kinds);
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::Unknown {
            what: what(),
            missing,
        })
    }

    async fn list<K: Shown>(&mut self, kind: Kind, namespace: Option<&str>) -> Result<(), Error> {
        self.list_each::<K>(kind, namespace, |_| ()).await
    }

    /// As [`Loader::read`], for one kind.
    async fn list_each<K: Shown>(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
        mut each: impl FnMut(&MaybeInvalid<K>),
    ) -> Result<(), Error> {
        if self.tolerates_missing_kinds && self.cluster.version(kind).is_err() {
            return Ok(());
        }
        let namespace = namespace.filter(|_| !kind.is_global());
        let listed = self.list_in(kind, namespace, &mut each).await;
        if let Err(Error::Forbidden(right)) = listed {
            self.note(&right);
            self.objects.list_mut(kind).missing(right);
            if namespace.is_none() && !kind.is_global() {
                self.list_own_namespace(kind, &mut each).await?;
            }
        } else {
            listed?;
        }
        self.objects.list_mut(kind).finish();
        self.warnings.extend(self.objects.undecodable(kind));
        Ok(())
    }

    /// Lists the namespace of the caller, if it may. The permission for the whole cluster is reported: it
    /// is the one that the command needs.
    async fn list_own_namespace<K: Shown>(
        &mut self,
        kind: Kind,
        each: &mut impl FnMut(&MaybeInvalid<K>),
    ) -> Result<(), Error> {
        let own = self.cluster.namespace.clone();
        match self.list_in(kind, Some(&own), each).await {
            Ok(()) => self.objects.list_mut(kind).only(&own),
            Err(Error::Forbidden(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn list_in<K: Shown>(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
        each: &mut impl FnMut(&MaybeInvalid<K>),
    ) -> Result<(), Error> {
        let labels = match &self.selected {
            Some((kinds, labels)) if kinds.contains(&kind) => labels.as_str(),
            _ => "",
        };
        let parameters = ListParams::default().labels(labels);
        let (objects, ledger) = (&mut self.objects, &mut self.ledger);
        let apply = |object: MaybeInvalid<K>| {
            each(&object);
            let event = Event::Apply(object);
            if let Some(ledger) = ledger {
                K::feed(ledger, kind, &event);
            }
            objects.apply(kind, event);
        };
        self.cluster.list(kind, namespace, parameters, apply).await
    }

    /// Lists the whole objects of a kind, also as rows.
    pub(crate) async fn read_objects<K: Shown>(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
    ) -> Result<Vec<K>, Error> {
        let mut found = Vec::new();
        self.list_each(kind, namespace, |object: &MaybeInvalid<K>| {
            found.extend(object.0.as_ref().ok().cloned());
        })
        .await?;
        Ok(found)
    }

    /// Lists the networks, and for the ledger the namespaces if a network selects some.
    async fn list_networks(&mut self) -> Result<(), Error> {
        self.list::<IPNetwork>(Kind::Network, None).await?;
        let selects = self
            .objects
            .networks
            .iter()
            .any(|row| row.selects_namespaces);
        if self.ledger.is_none() || !selects {
            return Ok(());
        }
        // Which pools are in a network depends on them.
        self.list_namespaces(Kind::Network).await
    }

    /// Lists the namespaces for the ledger. Without the permission, the objects of a kind are not
    /// known either.
    pub(crate) async fn list_namespaces(&mut self, kind: Kind) -> Result<(), Error> {
        let namespaces = self
            .others::<Namespace>(None, &ListParams::default())
            .await?;
        if let Some(ledger) = &mut self.ledger {
            namespaces.seen().iter().for_each(|it| ledger.apply(it));
        }
        for right in namespaces.missing {
            self.objects.list_mut(kind).missing(right);
        }
        Ok(())
    }

    /// The missing permissions as sentences.
    pub(crate) fn sentences(&self) -> Vec<String> {
        sentences(&self.missing)
    }

    /// Adds what another loader has listed, and returns its other result.
    pub(crate) fn absorb<T>(&mut self, (value, other): (T, Self)) -> T {
        self.objects.absorb(other.objects);
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

    /// The objects of another API group that match selectors.
    pub(crate) async fn others<T: OtherKind>(
        &mut self,
        namespace: Option<&str>,
        parameters: &ListParams,
    ) -> Result<Readable<Vec<T>>, Error> {
        let found = self.cluster.list_other(namespace, parameters).await;
        self.readable(found, Vec::new())
    }

    /// The result of a request, or another value if a permission is missing for it.
    pub(crate) fn readable<T>(
        &mut self,
        result: Result<T, Error>,
        otherwise: T,
    ) -> Result<Readable<T>, Error> {
        match result {
            Ok(value) => Ok(Readable::complete(value)),
            Err(Error::Forbidden(right)) => {
                self.note(&right);
                Ok(Readable::part(otherwise, vec![right]))
            }
            Err(error) => Err(error),
        }
    }

    /// Lists the sets of pools, and all pools, for a ledger, if claims name a set.
    pub(crate) async fn read_sets(
        &mut self,
        named: impl IntoIterator<Item = NamedPool>,
        namespace: Option<&str>,
    ) -> Result<(), Error> {
        let is_set = |named: NamedPool| matches!(named, NamedPool::Set(_));
        if named.into_iter().any(is_set) {
            self.ledger.get_or_insert_default();
            self.read(&Kind::POOL_SETS, namespace).await?;
            self.read(&Kind::POOLS, namespace).await?;
        }
        Ok(())
    }

    /// Lists everything that the addresses of a pool depend on, also for a ledger.
    pub(crate) async fn read_supply(&mut self, pool: &PoolRow) -> Result<(), Error> {
        let namespace = pool.key.namespace.as_deref();
        self.read_supplies(std::slice::from_ref(pool), namespace)
            .await
    }

    /// As [`Loader::read_supply`], for some pools. All of them that have a namespace are in this one;
    /// `None` stands for all namespaces.
    pub(crate) async fn read_supplies(
        &mut self,
        pools: &[PoolRow],
        namespace: Option<&str>,
    ) -> Result<(), Error> {
        self.ledger.get_or_insert_default();
        // Objects of other namespaces matter for a network and for a global pool only.
        let is_alone = |pool: &PoolRow| pool.network.is_none() && pool.moving.is_none();
        let are_alone = pools.iter().all(is_alone);
        let are_global = pools.iter().any(|pool| pool.key.namespace.is_none());
        let namespace = namespace.filter(|_| are_alone && !are_global);
        if are_alone {
            if pools.iter().any(|pool| pool.spec.network().is_some()) {
                self.read(&[Kind::Network], None).await?;
            }
            let kinds: BTreeSet<Kind> = pools.iter().map(|it| Kind::Pool(it.key.kind)).collect();
            self.read(&Vec::from_iter(kinds), namespace).await?;
        } else {
            self.read(&[Kind::Network], None).await?;
            self.read(&Kind::POOLS, None).await?;
        }
        let networks = self.objects.networks.iter();
        let shares_blocks = networks.filter(|network| network.registry().is_some());
        if shares_blocks.count() > 0 {
            self.read(&[Kind::Slice, Kind::Registry], None).await?;
        } else if pools.iter().any(|pool| pool.spec.slices().is_some()) {
            self.read(&[Kind::Slice], None).await?;
        }
        self.read(&[Kind::Address, Kind::Reservation], namespace)
            .await?;
        let ledger = self.ledger.get_or_insert_default();
        ledger.end_cooldowns(Timestamp::now().as_second());
        Ok(())
    }

    /// Fails if a namespace does not exist: nothing found can mean that its name is misspelt. One that
    /// may not be read can exist, and so does `None`, which stands for all namespaces.
    pub(crate) async fn require_namespace(&self, name: Option<&str>) -> Result<(), Error> {
        let Some(name) = name else {
            return Ok(());
        };
        let all = ListParams::default();
        let found = self
            .cluster
            .list_if_allowed::<Namespace>(&all)
            .await?
            .into_iter();
        let names: Vec<String> = found.filter_map(|it| it.metadata.name).collect();
        if names.is_empty() || names.iter().any(|known| known == name) {
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
        let kinds = kind.as_ref().map_or(&Kind::POOLS[..], |kind| kind);
        self.read(kinds, Some(&namespace)).await?;
        let place = format!("the namespace {namespace} or among the global pools");
        let is_here = |key: &PoolKey| {
            let its_namespace = key.namespace.as_deref();
            text.matches(key) && its_namespace.is_none_or(|it| it == namespace)
        };
        let mut found = self.objects.pools();
        found.retain(|pool| is_here(&pool.key));
        match found.as_slice() {
            [] => {}
            [pool] => return Ok((*pool).clone()),
            several => {
                let choices = several
                    .iter()
                    .map(|pool| path(pool.key.kind, &pool.key.name));
                return Err(Error::AmbiguousPool {
                    name: name.to_owned(),
                    choices: choices.collect::<Vec<_>>().join(" or "),
                });
            }
        }
        self.require_decodable(kinds, &text, &namespace)?;
        self.require_namespace(Some(&namespace)).await?;
        self.require_known(kinds, || {
            format!("whether the pool {name} exists in {place}")
        })?;
        Err(Error::NoPool {
            name: name.to_owned(),
            place,
        })
    }
}

impl Loader<'_> {
    /// Fails if a pool with this name exists and cannot be decoded.
    fn require_decodable(
        &self,
        kinds: &[Kind],
        text: &PoolText<'_>,
        namespace: &str,
    ) -> Result<(), Error> {
        for kind in kinds {
            let of = kind.of_pool();
            let namespace = (!of.is_global()).then_some(namespace);
            if self
                .objects
                .has_pool(&PoolKey::new(of, namespace, text.name))
                && let Some(reason) = self.objects.undecodable(*kind)
            {
                let operation = format!("read pool {}", text.name);
                return Err(Error::Request { operation, reason });
            }
        }
        Ok(())
    }
}

/// How a user names the kind of a pool with its name.
pub(crate) fn path(kind: InClusterKind, name: &str) -> String {
    format!("{}/{name}", short(kind))
}
