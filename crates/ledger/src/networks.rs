//! Networks: which pools belong to them, and what their pools must not allocate.

pub(crate) mod counts;
pub(crate) mod exclusions;
pub(crate) mod scope_rule;
mod shared_blocks;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{
    AllowedNamespaces, BlockLengths, IPNetwork, NetworkRefusal, NetworkRules, names,
};
use capi_ipam_contract::Uid;
use capi_ipam_ip::Family;
use capi_ipam_objects::finalizer;
use capi_ipam_objects::maybe_invalid::{Invalid, readable};
use capi_ipam_objects::observed::{
    Known, ListNumber, Lists, ObjectVersion, Origin, Stamp, Versions,
};
use kube::core::SelectorExt;

use self::exclusions::{AppliedExclusions, Exclusions};
use self::scope_rule::{Facts, NetworkForPool, NetworkState, PoolUsage, Record, StatusRecord};
use super::blocks::ManagementClusters;
use super::registry_names::RegistryNames;
use super::{NetworkCounts, PoolInfo, PoolKey};

/// The labels of an object.
type Labels = BTreeMap<String, String>;

/// What the ledger keeps of an IPNetwork.
#[derive(Clone, Debug)]
pub(super) struct NetworkInfo {
    pub(super) uid: String,
    generation: Option<i64>,
    deleting: bool,
    initialized: bool,
    is_valid: bool,
    /// The specification as far as it can be read: of a network that is not valid, which pools it
    /// selects.
    rules: Arc<NetworkRules>,
    /// The last valid specification, which decides what no pool of the network allocates; if none
    /// is known, what can be read.
    in_force: Arc<NetworkRules>,
    block_lengths: BlockLengths,
    counts: Box<NetworkCounts>,
}

impl NetworkInfo {
    pub(super) fn of(network: &IPNetwork) -> Self {
        let valid = network.spec.rules().ok();
        let is_valid = valid.is_some();
        let rules = Arc::new(valid.unwrap_or_else(|| network.spec.readable_rules()));
        // Those of the specification are in the status as soon as they can be used.
        let block_lengths = match &network.status {
            Some(status) => status.block_lengths.unwrap_or_default(),
            None => BlockLengths::default(),
        };
        Self {
            uid: network.metadata.uid.clone().unwrap_or_default(),
            generation: network.metadata.generation,
            deleting: network.metadata.deletion_timestamp.is_some(),
            initialized: finalizer::is_set(network, names::PROTECT_NETWORK),
            is_valid,
            in_force: Arc::clone(&rules),
            rules,
            block_lengths,
            counts: Box::new(NetworkCounts::of(network)),
        }
    }

    /// A network that exists and cannot be decoded: its metadata, and the fields that can be read.
    pub(super) fn undecodable(object: &Invalid) -> Self {
        let known = Self::of(&IPNetwork {
            metadata: (*object.metadata).clone(),
            spec: readable(&object.spec),
            ..IPNetwork::default()
        });
        Self {
            generation: None,
            is_valid: false,
            ..known
        }
    }

    /// The network after an earlier state of it. While it is not valid, its last valid
    /// specification stays in force, and so does what the status showed while it cannot be decoded.
    /// If the specification has fewer parts with the same generation, the definition has lost
    /// fields.
    fn after(self, before: &Self) -> Self {
        if self.uid != before.uid {
            return self;
        }
        if self.has_lost_fields(before) {
            return Self {
                rules: Arc::clone(&before.rules),
                in_force: Arc::clone(&before.in_force),
                ..self
            };
        }
        if self.is_valid {
            return self;
        }
        let is_decodable = self.generation.is_some();
        let in_force = Arc::clone(&before.in_force);
        if is_decodable {
            return Self { in_force, ..self };
        }
        Self {
            in_force,
            block_lengths: before.block_lengths,
            ..self
        }
    }

    /// Whether the network has fewer fields than with the same generation before.
    fn has_lost_fields(&self, before: &Self) -> bool {
        let is_same_spec = self.uid == before.uid
            && self.generation.is_some()
            && self.generation == before.generation;
        is_same_spec && parts(&self.rules) < parts(&before.rules)
    }

    /// Whether both mean the same to pools: only the counts and conditions of the status differ.
    fn is_same(&self, other: &Self) -> bool {
        // The same generation means the same specification.
        self.generation.is_some()
            && self.generation == other.generation
            && self.uid == other.uid
            && self.deleting == other.deleting
            && self.initialized == other.initialized
            && self.block_lengths == other.block_lengths
            && self.is_valid == other.is_valid
    }

    /// Which pools the network selects; `None` if it selects none.
    fn selector(&self) -> Option<&kube::core::Selector> {
        self.rules.pools.as_ref()
    }

    /// Whether the network selects pools with these labels.
    fn selects(&self, labels: &Labels) -> bool {
        self.selector()
            .is_some_and(|selector| selector.matches(labels))
    }

    /// Whether the labels of a namespace decide if its pools may use the network.
    fn depends_on_labels(&self) -> bool {
        matches!(self.rules.namespaces, AllowedNamespaces::Selector(_))
    }

    /// The state for pools of a family; `has_length` is whether the length of its blocks is set.
    fn state(&self, has_length: bool) -> NetworkState {
        if !self.is_valid {
            NetworkState::Invalid
        } else if self.deleting {
            NetworkState::Deleting
        } else if self.initialized && has_length {
            NetworkState::Ready
        } else {
            NetworkState::Initializing
        }
    }
}

/// How many parts of a specification are set.
fn parts(rules: &NetworkRules) -> usize {
    let allows_none = match &rules.namespaces {
        AllowedNamespaces::Names(names) => names.is_empty(),
        AllowedNamespaces::All | AllowedNamespaces::Selector(_) => false,
    };
    let is_set = [
        !allows_none,
        rules.pools.is_some(),
        !rules.excluded_v4.is_empty() || !rules.excluded_v6.is_empty(),
        rules.block_lengths != BlockLengths::default(),
        rules.blocks.is_some(),
    ];
    is_set.into_iter().filter(|is_set| *is_set).count()
}

/// What is known of a pool besides its object.
#[derive(Clone, Default)]
pub(super) struct PoolPast<'a> {
    pub(super) record: Record,
    pub(super) status: Option<&'a StatusRecord>,
    /// The network in which claims have reservations of the pool.
    pub(super) reserved_in: Option<Arc<str>>,
    /// What the pool has in networks.
    pub(super) usage: PoolUsage<'a>,
    /// The exclusions as last applied.
    pub(super) applied: Option<&'a AppliedExclusions>,
}

/// A pool with the restrictions of its network.
pub(super) struct PoolInNetwork {
    pub(super) info: PoolInfo,
    pub(super) record: Record,
    /// Whether addresses in use decide whether the pool stays in its network.
    pub(super) depends_on_use: bool,
    /// The network that the pool joins once it is initialized.
    pub(super) awaited: Option<Arc<str>>,
    pub(super) applied: Option<AppliedExclusions>,
}

/// The networks and namespaces that decide to which network a pool belongs.
#[derive(Clone, Default)]
pub struct Networks {
    known: BTreeMap<Arc<str>, (NetworkInfo, Stamp)>,
    namespaces: HashMap<Arc<str>, (Labels, ListNumber)>,
    /// What no pool of a network allocates.
    pub(super) exclusions: HashMap<Arc<str>, Exclusions>,
    /// The registries that exist.
    pub(super) registries: RegistryNames,
    /// The identities of this management cluster in the registries of blocks.
    pub(super) clusters: ManagementClusters,
    /// Why the objects may lack fields: the API server serves a definition without them.
    pub(super) definitions_problem: Option<Arc<str>>,
    /// The pools that join a network once it is initialized.
    awaiting: HashMap<Arc<str>, BTreeSet<PoolKey>>,
    pub(super) versions: Versions,
    /// Only the watch shows namespaces.
    pub(super) namespace_lists: Lists,
}

impl Networks {
    /// Whether a network has fewer fields than with the same generation before.
    pub(super) fn has_lost_fields(&self, name: &str, info: &NetworkInfo) -> bool {
        self.known
            .get(name)
            .is_some_and(|(before, _)| info.has_lost_fields(before))
    }

    /// Records a network, unless a later state is known. Returns which pools may be affected.
    pub(super) fn see(
        &mut self,
        name: &Arc<str>,
        info: NetworkInfo,
        seen: ObjectVersion,
        origin: Origin,
    ) -> Change {
        let known = self.known.get(name).map(|(info, stamp)| Known {
            uid: Uid::of(&info.uid),
            stamp: *stamp,
        });
        match self.versions.see(origin, known, seen, Instant::now()) {
            Some(stamp) => self.set(name, info, stamp),
            None => Change::None,
        }
    }

    /// etcd was restored to an earlier state: any state of a network is accepted from now on.
    /// Another edit can have the generation of one that is lost.
    pub(super) fn restored(&mut self) {
        self.versions.restored();
        for (info, _) in self.known.values_mut() {
            info.generation = None;
        }
    }

    fn set(&mut self, name: &Arc<str>, info: NetworkInfo, stamp: Stamp) -> Change {
        let mut info = info;
        let mut is_same = false;
        let mut selected = false;
        if let Some((before, _)) = self.known.get(name) {
            is_same = before.is_same(&info);
            selected = before.selector().is_some();
            info = info.after(before);
        }
        let selects = info.selector().is_some();
        let rules = Some(Arc::clone(&info.in_force));
        let block_lengths = info.block_lengths;
        self.known.insert(name.clone(), (info, stamp));
        let exclusions = self.exclusions.entry(name.clone()).or_default();
        exclusions.set_rules(rules, block_lengths, name, &self.clusters);
        if is_same {
            Change::None
        } else if selects || selected {
            // Any pool may join or leave the network.
            Change::All
        } else {
            Change::Network(name.clone())
        }
    }

    /// These networks with one as it would be written, to decide on pools that are not changed. A
    /// new network is initialized in it.
    pub(super) fn preview(&self, name: &str, mut info: NetworkInfo) -> Self {
        info.initialized = true;
        let mut networks = Self {
            known: self.known.clone(),
            namespaces: self.namespaces.clone(),
            ..Self::default()
        };
        networks.set(&name.into(), info, Stamp::default());
        networks
    }

    /// Removes a network: the one with this uid, or any. Returns which pools may be affected.
    pub(super) fn remove(&mut self, name: &str, uid: Option<Uid>) -> Change {
        let known = self.known.get(name).map(|(info, _)| Uid::of(&info.uid));
        let Some(uid) = uid.or(known) else {
            return Change::None;
        };
        if !self.versions.delete(known, uid, Instant::now()) {
            return Change::None;
        }
        if let Some(exclusions) = self.exclusions.get_mut(name) {
            exclusions.set_rules(None, BlockLengths::default(), &name.into(), &self.clusters);
            if exclusions.is_empty() {
                self.exclusions.remove(name);
            }
        }
        match self.known.remove_entry(name) {
            None => Change::None,
            Some((_, (info, _))) if info.selector().is_some() => Change::All,
            Some((name, _)) => Change::Network(name),
        }
    }

    /// The list of networks is complete: removes those that it does not show. Returns which pools
    /// may be affected.
    pub(super) fn end_list(&mut self) -> Change {
        let unlisted = self.versions.end_list();
        let known = self.known.iter();
        let missing = known.filter(|(_, (_, stamp))| stamp.is_unlisted(unlisted));
        let names: Vec<Arc<str>> = missing.map(|(name, _)| name.clone()).collect();
        Change::of_all(names.iter().map(|name| self.remove(name, None)))
    }

    /// Records the labels of a namespace. Returns which pools may be affected.
    pub(super) fn set_namespace(&mut self, name: &str, labels: Labels) -> Change {
        let list = self.namespace_lists.current();
        let known = self.namespaces.get(name);
        let is_same = known.is_some_and(|(before, _)| *before == labels);
        self.namespaces.insert(name.into(), (labels, list));
        if is_same || !self.depend_on_labels() {
            Change::None
        } else {
            Change::Namespace(name.into())
        }
    }

    /// Removes a namespace. Returns which pools may be affected.
    pub(super) fn remove_namespace(&mut self, name: &str) -> Change {
        let is_known = self.namespaces.remove(name).is_some();
        if is_known && self.depend_on_labels() {
            Change::Namespace(name.into())
        } else {
            Change::None
        }
    }

    /// Whether a served definition lacks fields: pools, networks and registries must not be
    /// written, since a write removes these fields for good.
    pub fn have_definitions_problem(&self) -> bool {
        self.definitions_problem.is_some()
    }

    /// Whether a namespace exists, as last observed.
    pub fn namespace_exists(&self, name: &str) -> bool {
        self.namespaces.contains_key(name)
    }

    /// The list of namespaces is complete: removes those that it does not show. Returns which pools
    /// may be affected.
    pub(super) fn end_namespace_list(&mut self) -> Change {
        let unlisted = self.namespace_lists.end();
        let known = self.namespaces.iter();
        let missing = known.filter(|(_, (_, list))| unlisted.contains(*list));
        let names: Vec<Arc<str>> = missing.map(|(name, _)| name.clone()).collect();
        Change::of_all(names.iter().map(|name| self.remove_namespace(name)))
    }

    /// Whether the labels of a namespace decide if its pools may use a network.
    fn depend_on_labels(&self) -> bool {
        let mut networks = self.known.values();
        networks.any(|(info, _)| info.depends_on_labels())
    }

    /// A network that need not exist, in relation to a pool.
    fn for_pool(&self, name: &Arc<str>, pool: &PoolKey, declared: &PoolInfo) -> NetworkForPool {
        let Some((known, _)) = self.known.get(name) else {
            return NetworkForPool {
                name: name.clone(),
                state: NetworkState::Missing,
                selects: false,
                allows: false,
                lengths: None,
            };
        };
        let mut has_length = true;
        let mut lengths = None;
        // Nothing is known of the blocks of a pool that is not valid.
        if let Some(usable) = declared.blocks() {
            match known.block_lengths.of(usable.family) {
                Some(theirs) if theirs != usable.length => lengths = Some((theirs, usable.length)),
                Some(_) => {}
                None => has_length = false,
            }
        }
        NetworkForPool {
            name: name.clone(),
            state: known.state(has_length),
            selects: known.selects(&declared.labels),
            allows: self.allows(&known.rules, pool),
            lengths,
        }
    }

    /// Whether the rules of a network allow a pool. One without a namespace is always allowed.
    fn allows(&self, rules: &NetworkRules, pool: &PoolKey) -> bool {
        match &pool.namespace {
            Some(namespace) => self.allows_namespace(&rules.namespaces, namespace),
            None => true,
        }
    }

    /// Whether a namespace is among the allowed ones.
    pub(super) fn allows_namespace(&self, allowed: &AllowedNamespaces, namespace: &str) -> bool {
        let labels = self.namespaces.get(namespace).map(|(labels, _)| labels);
        // A namespace that is not known yet has no permission.
        allowed.allows(namespace, labels).unwrap_or(false)
    }

    /// Applies the network of a pool to its declared state: the scope, whether it can allocate, and
    /// what.
    pub(super) fn apply(
        &self,
        pool: &PoolKey,
        declared: &PoolInfo,
        past: &PoolPast<'_>,
    ) -> PoolInNetwork {
        let mut placed = self.place(pool, declared, past);
        self.exclude(&mut placed, past.applied);
        placed
    }

    /// The same, with all blocks of the pool: also those that no pool of its network allocates.
    pub(super) fn place(
        &self,
        pool: &PoolKey,
        declared: &PoolInfo,
        past: &PoolPast<'_>,
    ) -> PoolInNetwork {
        let mut selecting = Vec::new();
        for (name, (known, _)) in &self.known {
            if known.selects(&declared.labels) {
                selecting.push(self.for_pool(name, pool, declared));
            }
        }
        let facts = Facts {
            record: &past.record,
            named: declared.network.as_ref(),
            status: past.status,
            reserved_in: past.reserved_in.as_ref(),
            selecting: &selecting,
            usage: past.usage,
            leaves: declared.leaves_network.as_ref(),
        };
        let has_all_fields = self.definitions_problem.is_none();
        let decision = if has_all_fields && declared.usable.is_ok() {
            scope_rule::decide(&facts, |name| self.for_pool(name, pool, declared))
        } else {
            scope_rule::keep(&facts)
        };
        let mut info = declared.clone();
        info.scope = decision.record.scope(pool);
        info.initialized &= decision.awaited.is_none();
        info.is_kept_in_network = decision.is_kept;
        info.network_problem = decision.refusal;
        if let Some(problem) = self.definitions_problem_of(&decision.record) {
            info.network_problem = Some(NetworkRefusal::DefinitionOutdated(problem));
        }
        if let Some(refusal) = self.length_mismatch(&info) {
            // Blocks of another length have no numbers in this scope.
            info.usable = Err(refusal.to_string().into());
        }
        PoolInNetwork {
            info,
            record: decision.record,
            depends_on_use: decision.depends_on_use,
            awaited: decision.awaited,
            applied: None,
        }
    }

    /// Why a pool with this record does not allocate while a served definition lacks fields: it
    /// belongs to a network, or it may, and its field is lost.
    fn definitions_problem_of(&self, record: &Record) -> Option<Arc<str>> {
        let may_be_in_network = matches!(record, Record::Network(_)) || !self.known.is_empty();
        if may_be_in_network {
            self.definitions_problem.clone()
        } else {
            None
        }
    }

    /// Why a network cannot have the blocks of a pool that belongs to it.
    fn length_mismatch(&self, info: &PoolInfo) -> Option<NetworkRefusal> {
        let network = info.scope.network()?;
        let usable = info.blocks()?;
        let theirs = self.block_length(network, usable.family)?;
        if theirs == usable.length {
            return None;
        }
        Some(NetworkRefusal::LengthMismatch {
            network: network.into(),
            theirs,
            ours: usable.length,
        })
    }

    /// Removes what no pool of the network allocates from the blocks of a pool.
    fn exclude(&self, placed: &mut PoolInNetwork, before: Option<&AppliedExclusions>) {
        let Some(network) = placed.info.scope.network() else {
            return;
        };
        let Some(exclusions) = self.exclusions.get(network) else {
            return;
        };
        let Ok(usable) = &placed.info.usable else {
            return;
        };
        let Some(applied) = exclusions.apply(usable, before) else {
            return;
        };
        placed.info.usable = Ok(Arc::clone(&applied.usable));
        placed.applied = Some(applied);
    }

    /// Records the network that a pool joins once it is initialized, after a change.
    pub(super) fn set_awaited(
        &mut self,
        pool: &PoolKey,
        before: Option<&Arc<str>>,
        after: Option<&Arc<str>>,
    ) {
        if let Some(before) = before
            && let Some(pools) = self.awaiting.get_mut(before)
        {
            pools.remove(pool);
            if pools.is_empty() {
                self.awaiting.remove(before);
            }
        }
        if let Some(after) = after {
            self.awaiting
                .entry(after.clone())
                .or_default()
                .insert(pool.clone());
        }
    }

    /// The pools that join a network once it is initialized.
    pub(super) fn awaiting(&self, network: &str) -> impl Iterator<Item = &PoolKey> {
        self.awaiting.get(network).into_iter().flatten()
    }

    /// The names of the networks that exist, or that others have mentioned.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.known.keys().chain(self.exclusions.keys())
    }

    /// The uid of a network that exists.
    pub fn uid(&self, network: &str) -> Option<String> {
        let (info, _) = self.known.get(network)?;
        Some(info.uid.clone())
    }

    /// The counts of all networks.
    pub fn counts(&self) -> Vec<NetworkCounts> {
        let networks = self.known.values();
        networks.map(|(info, _)| (*info.counts).clone()).collect()
    }

    /// The block length of a network, once it is set.
    pub fn block_length(&self, network: &str, family: Family) -> Option<u8> {
        let (info, _) = self.known.get(network)?;
        info.block_lengths.of(family)
    }
}

/// The pools that a change of a network or namespace may affect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No pool.
    None,
    /// The pools that name this network, or belong to it.
    Network(Arc<str>),
    /// The pools of this namespace.
    Namespace(Arc<str>),
    /// All pools.
    All,
}

impl Change {
    /// The pools that any of several changes may affect: they are searched once.
    fn of_all(changes: impl Iterator<Item = Self>) -> Self {
        let mut combined = Self::None;
        for change in changes {
            combined = match (combined, change) {
                (one, Self::None) | (Self::None, one) => one,
                _ => Self::All,
            };
        }
        combined
    }

    /// Whether a pool may be affected.
    pub(super) fn affects(&self, pool: &PoolKey, declared: &PoolInfo, record: &Record) -> bool {
        match self {
            Self::None => false,
            Self::Network(network) => {
                let is_member = matches!(record, Record::Network(known) if known.name == *network);
                is_member || declared.network.as_ref() == Some(network)
            }
            Self::Namespace(namespace) => pool.namespace.as_deref() == Some(namespace),
            Self::All => true,
        }
    }
}
