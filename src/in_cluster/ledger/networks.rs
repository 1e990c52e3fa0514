//! Networks: which pools belong to them, and what their pools must not allocate.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use capi_ipam_controller::finalizer;
use capi_ipam_controller::object_map::ListEpoch;
use capi_ipam_ip::{Block, Family, SpanSet, UsableBlocks};
use kube::core::SelectorExt;

use super::{NetworkCounts, PoolInfo, PoolKey};
use crate::api::{AllowedNamespaces, BlockLengths, IPNetwork, NetworkRules, Scope, names};

/// The labels of an object.
type Labels = BTreeMap<String, String>;

/// Why a pool must not allocate addresses of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkRefusal {
    /// The network that the pool names does not exist.
    NotFound(Arc<str>),
    /// The network does not allow the namespace of the pool.
    NotAllowed(Arc<str>),
    /// The specification of the network is not valid.
    Invalid(Arc<str>),
    /// The network is being deleted.
    Deleting(Arc<str>),
    /// Several networks select the pool, which names none of them.
    Ambiguous(Arc<str>, Arc<str>),
}

impl NetworkRefusal {
    /// Whether claims that hold an address of the pool can still be bound.
    pub(super) fn keeps_members(&self) -> bool {
        matches!(self, Self::Deleting(_))
    }
}

impl fmt::Display for NetworkRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(network) => {
                write!(formatter, "IPNetwork {network} does not exist; create it, or correct spec.network")
            }
            Self::NotAllowed(network) => {
                write!(formatter, "IPNetwork {network} does not allow pools of this namespace (spec.namespaces)")
            }
            Self::Invalid(network) => write!(formatter, "the specification of IPNetwork {network} is not valid"),
            Self::Deleting(network) => write!(formatter, "IPNetwork {network} is being deleted"),
            Self::Ambiguous(one, other) => write!(
                formatter,
                "the IPNetworks {one} and {other} both select the pool; name one of them in spec.network"
            ),
        }
    }
}

/// The network of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    /// The pool belongs to no network.
    None,
    /// The pool belongs to the network.
    Member(Arc<str>),
    /// The pool asks for a network, or is selected by one, that it must not use.
    Refused(NetworkRefusal),
    /// An earlier version has put the pool into the network, whose object is not created yet.
    Pending(Arc<str>),
}

/// An IPReservation with which versions without IPNetwork declare the block length of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LengthRecord {
    /// The name of the reservation.
    pub name: String,
    /// The uid of the reservation.
    pub uid: String,
    /// The network.
    pub network: Arc<str>,
    /// The family of the blocks.
    pub family: Family,
    /// The length of the blocks.
    pub length: u8,
}

/// What the ledger keeps of an IPNetwork.
#[derive(Clone, Debug)]
pub(super) struct NetworkInfo {
    pub(super) uid: String,
    /// The resource version; 0 if it is not a number.
    pub(super) version: u64,
    generation: Option<i64>,
    deleting: bool,
    initialized: bool,
    rules: Result<Arc<NetworkRules>, Arc<str>>,
    block_lengths: BlockLengths,
    counts: Box<NetworkCounts>,
}

impl NetworkInfo {
    pub(super) fn of(network: &IPNetwork) -> Self {
        let rules = network.spec.rules().map(Arc::new).map_err(|problems| {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            texts.join("; ").into()
        });
        let version = network.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        Self {
            uid: network.metadata.uid.clone().unwrap_or_default(),
            version: version.unwrap_or_default(),
            generation: network.metadata.generation,
            deleting: network.metadata.deletion_timestamp.is_some(),
            initialized: finalizer::is_set(network, names::PROTECT_NETWORK),
            rules,
            // Those of the specification are in the status as soon as they can be used.
            block_lengths: network.status.as_ref().and_then(|status| status.block_lengths).unwrap_or_default(),
            counts: Box::new(NetworkCounts::of(network)),
        }
    }

    /// Whether both mean the same to pools: only the counts and conditions of the status differ.
    fn is_same(&self, other: &Self) -> bool {
        let key = |info: &Self| {
            (info.uid.clone(), info.generation, info.deleting, info.initialized, info.block_lengths, info.rules.is_ok())
        };
        key(self) == key(other) && self.generation.is_some()
    }

    fn selector(&self) -> Option<&kube::core::Selector> {
        self.rules.as_ref().ok()?.pools.as_ref()
    }
}

/// The networks and namespaces that decide to which network a pool belongs.
#[derive(Default)]
pub(super) struct Networks {
    known: BTreeMap<Arc<str>, (NetworkInfo, ListEpoch)>,
    namespaces: HashMap<Arc<str>, (Labels, ListEpoch)>,
    /// What earlier versions have stored of networks, by name.
    records: BTreeMap<String, (LengthRecord, ListEpoch)>,
    /// The gateways of the pools of each network, with the number of pools.
    gateways: HashMap<Arc<str>, BTreeMap<IpAddr, usize>>,
    pub(super) network_list: ListEpoch,
    pub(super) namespace_list: ListEpoch,
}

impl Networks {
    /// Accepts any state of the known networks from now on, see [`State::forget_deletions`](super::state::State).
    pub(super) fn forget_versions(&mut self) {
        self.known.values_mut().for_each(|(info, _)| info.version = 0);
    }

    /// Records a network. Returns whether pools may be affected, and whether that can be any pool.
    pub(super) fn set(&mut self, name: &Arc<str>, info: NetworkInfo) -> Change {
        let list = self.network_list;
        let selects = info.selector().is_some();
        let is_same = self.known.get(name).is_some_and(|(before, _)| before.is_same(&info));
        let before = self.known.insert(name.clone(), (info, list));
        match before {
            Some(_) if is_same => Change::None,
            Some((before, _)) if selects || before.selector().is_some() => Change::All,
            _ if selects => Change::All,
            _ => Change::Network(name.clone()),
        }
    }

    /// A network, as last observed.
    pub(super) fn get(&self, name: &str) -> Option<&NetworkInfo> {
        self.known.get(name).map(|(info, _)| info)
    }

    /// Removes a network. Returns which pools may be affected.
    pub(super) fn remove(&mut self, name: &str) -> Change {
        match self.known.remove_entry(name) {
            None => Change::None,
            Some((_, (info, _))) if info.selector().is_some() => Change::All,
            Some((name, _)) => Change::Network(name),
        }
    }

    /// The names of the networks that the newest list does not show.
    pub(super) fn unlisted(&self) -> Vec<Arc<str>> {
        let unlisted = self.known.iter().filter(|(_, (_, list))| *list != self.network_list);
        unlisted.map(|(name, _)| name.clone()).collect()
    }

    /// Records the labels of a namespace. Returns which pools may be affected.
    pub(super) fn set_namespace(&mut self, name: &str, labels: &Labels) -> Change {
        let list = self.namespace_list;
        let before = self.namespaces.insert(name.into(), (labels.clone(), list));
        let is_same = before.is_some_and(|(before, _)| before == *labels);
        if is_same || !self.depend_on_labels() { Change::None } else { Change::Namespace(name.into()) }
    }

    /// Removes a namespace. Returns which pools may be affected.
    pub(super) fn remove_namespace(&mut self, name: &str) -> Change {
        let is_known = self.namespaces.remove(name).is_some();
        if is_known && self.depend_on_labels() { Change::Namespace(name.into()) } else { Change::None }
    }

    /// Whether a namespace exists, as last observed.
    pub(super) fn namespace_exists(&self, name: &str) -> bool {
        self.namespaces.contains_key(name)
    }

    /// The names of the namespaces that the newest list does not show.
    pub(super) fn unlisted_namespaces(&self) -> Vec<Arc<str>> {
        let unlisted = self.namespaces.iter().filter(|(_, (_, list))| *list != self.namespace_list);
        unlisted.map(|(name, _)| name.clone()).collect()
    }

    fn depend_on_labels(&self) -> bool {
        let by_labels = |info: &NetworkInfo| {
            info.rules.as_ref().is_ok_and(|rules| matches!(rules.namespaces, AllowedNamespaces::Selector(_)))
        };
        self.known.values().any(|(info, _)| by_labels(info))
    }

    /// The network to which a pool belongs: the one that it names, or else the one that selects it.
    pub(super) fn membership(&self, pool: &PoolKey, info: &PoolInfo) -> Membership {
        if let Some(network) = &info.network {
            let Some((known, _)) = self.known.get(network) else {
                return if self.records.values().any(|(record, _)| record.network == *network) {
                    Membership::Pending(network.clone())
                } else {
                    Membership::Refused(NetworkRefusal::NotFound(network.clone()))
                };
            };
            return match &known.rules {
                Err(_) => Membership::Refused(NetworkRefusal::Invalid(network.clone())),
                Ok(rules) if self.allows(rules, pool) => Membership::Member(network.clone()),
                Ok(_) => Membership::Refused(NetworkRefusal::NotAllowed(network.clone())),
            };
        }
        let selects = |known: &NetworkInfo| {
            let rules = known.rules.as_ref().ok().filter(|_| !known.deleting);
            rules.is_some_and(|rules| {
                rules.pools.as_ref().is_some_and(|selector| selector.matches(&*info.labels)) && self.allows(rules, pool)
            })
        };
        let mut selecting = self.known.iter().filter(|(_, (known, _))| selects(known)).map(|(name, _)| name);
        match (selecting.next(), selecting.next()) {
            (None, _) => Membership::None,
            (Some(network), None) => Membership::Member(network.clone()),
            (Some(one), Some(other)) => Membership::Refused(NetworkRefusal::Ambiguous(one.clone(), other.clone())),
        }
    }

    fn allows(&self, rules: &NetworkRules, pool: &PoolKey) -> bool {
        pool.namespace.as_deref().is_none_or(|namespace| self.allows_namespace(&rules.namespaces, namespace))
    }

    /// Whether a namespace is among the allowed ones.
    pub(super) fn allows_namespace(&self, allowed: &AllowedNamespaces, namespace: &str) -> bool {
        let labels = self.namespaces.get(namespace).map(|(labels, _)| labels);
        // A namespace that is not known yet has no permission.
        allowed.allows(namespace, labels).unwrap_or(false)
    }

    /// Applies the network of a pool to its declared state: the scope, and what it can allocate. A pool is not
    /// initialized before the block length of its network is set, and not usable if that is another length.
    pub(super) fn apply(&self, pool: &PoolKey, declared: &PoolInfo) -> PoolInfo {
        let mut info = declared.clone();
        let network = match self.membership(pool, declared) {
            Membership::None => return info,
            Membership::Refused(refusal) => {
                info.network_problem = Some(refusal);
                return info;
            }
            Membership::Pending(network) => {
                (info.scope, info.initialized) = (Scope::Network(network), false);
                return info;
            }
            Membership::Member(network) => network,
        };
        info.scope = Scope::Network(network.clone());
        let Some((known, _)) = self.known.get(&network) else { return info };
        if known.deleting {
            info.network_problem = Some(NetworkRefusal::Deleting(network.clone()));
        }
        let (Ok(usable), Ok(rules)) = (&declared.usable, &known.rules) else { return info };
        match known.block_lengths.of(usable.family) {
            _ if !known.initialized => info.initialized = false,
            None => info.initialized = false,
            Some(length) if length == usable.length => {
                let excluded = self.excluded(&network, rules, usable.family);
                if !excluded.is_empty() {
                    info.usable = Ok(Arc::new(usable.without(&excluded)));
                }
            }
            Some(length) => {
                let problem = format!(
                    "spec.network: the pools of network {network} allocate {} blocks of length {length}, this pool \
                     allocates length {}; use another network for it",
                    usable.family, usable.length
                );
                info.usable = Err(problem.into());
            }
        }
        info
    }

    /// The addresses of a family that no pool of a network allocates.
    fn excluded(&self, network: &str, rules: &NetworkRules, family: Family) -> SpanSet {
        let excluded = match family {
            Family::V4 => &rules.excluded_v4,
            Family::V6 => &rules.excluded_v6,
        };
        let gateways = self.gateways.get(network).into_iter().flat_map(BTreeMap::keys);
        let gateways = gateways.map(|gateway| Block::address(*gateway)).filter(|block| block.family() == family);
        excluded.spans().iter().copied().chain(gateways.map(Block::span)).collect()
    }

    /// Records that the gateway of a pool of a network was added or removed. Returns whether it is a new one, or was
    /// the last.
    pub(super) fn count_gateway(&mut self, network: &Arc<str>, gateway: IpAddr, is_added: bool) -> bool {
        let gateways = self.gateways.entry(network.clone()).or_default();
        let count = gateways.entry(gateway).or_default();
        *count = if is_added { count.saturating_add(1) } else { count.saturating_sub(1) };
        let is_changed = *count == usize::from(is_added);
        gateways.retain(|_, count| *count > 0);
        if gateways.is_empty() {
            self.gateways.remove(network);
        }
        is_changed
    }

    /// Records what an earlier version has stored of a network. Returns which pools may be affected.
    pub(super) fn set_record(&mut self, record: LengthRecord, list: ListEpoch) -> Change {
        let network = record.network.clone();
        let is_new = self.records.insert(record.name.clone(), (record, list)).is_none();
        if is_new { Change::Network(network) } else { Change::None }
    }

    /// Removes what an earlier version has stored of a network. Returns which pools may be affected.
    pub(super) fn remove_record(&mut self, name: &str, uid: &str) -> Change {
        if self.records.get(name).is_none_or(|(record, _)| record.uid != uid) {
            return Change::None;
        }
        let removed = self.records.remove(name);
        removed.map_or(Change::None, |(record, _)| Change::Network(record.network))
    }

    /// Keeps a record that exists, and that cannot be decoded now. Returns whether it is known.
    pub(super) fn keep_record(&mut self, name: &str, uid: &str, list: ListEpoch) -> bool {
        let known = self.records.get_mut(name).filter(|(record, _)| record.uid == uid);
        known.map(|(_, epoch)| *epoch = list).is_some()
    }

    /// Removes the records that a list does not show. Returns which pools may be affected.
    pub(super) fn remove_unlisted_records(&mut self, newest: ListEpoch) -> Vec<Change> {
        let is_unlisted = |list: &ListEpoch| *list != newest;
        let unlisted = self.records.values().filter(|(_, list)| is_unlisted(list));
        let changes = unlisted.map(|(record, _)| Change::Network(record.network.clone())).collect();
        self.records.retain(|_, (_, list)| !is_unlisted(list));
        changes
    }

    /// What earlier versions have stored of networks.
    pub(super) fn records(&self) -> impl Iterator<Item = &LengthRecord> {
        self.records.values().map(|(record, _)| record)
    }

    /// The counts of all networks.
    pub(super) fn counts(&self) -> Vec<NetworkCounts> {
        self.known.values().map(|(info, _)| NetworkCounts::clone(&info.counts)).collect()
    }

    /// Whether the object of a network exists.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// The block length of a network, once it is set.
    pub(super) fn block_length(&self, network: &str, family: Family) -> Option<u8> {
        self.known.get(network)?.0.block_lengths.of(family)
    }
}

/// The pools that a change of a network or namespace may affect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No pool.
    None,
    /// The pools that name this network.
    Network(Arc<str>),
    /// The pools of this namespace.
    Namespace(Arc<str>),
    /// All pools.
    All,
}

impl Change {
    /// Whether a pool may be affected.
    pub(super) fn affects(&self, pool: &PoolKey, declared: &PoolInfo) -> bool {
        match self {
            Self::None => false,
            Self::Network(network) => declared.network.as_ref() == Some(network),
            Self::Namespace(namespace) => pool.namespace.as_deref() == Some(namespace),
            Self::All => true,
        }
    }
}

/// Whether a pool contains an address.
pub(super) fn contains_address(usable: &UsableBlocks, address: IpAddr) -> bool {
    let numbers = usable.numbers_overlapping(Block::address(address));
    numbers.is_some_and(|numbers| usable.set.contains(numbers.first()))
}
