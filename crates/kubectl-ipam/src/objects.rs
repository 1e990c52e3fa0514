//! What the program keeps of each object: only what it shows.

mod kind;
mod lists;
mod metadata;
#[cfg(test)]
#[path = "objects/tests/samples.rs"]
pub(crate) mod samples;
mod table;
mod unserved;

use capi_ipam_api::{
    AddressingItem, BlockLengths, IPNetwork, IPNetworkStatus, IPRegistry, IPRegistrySpec,
    IPRegistryStatus, IPReservation, IPSlice, MemberPhase, NamedPool, NamespaceSource, Pool,
    PoolKey, PoolNetwork, PoolSet, PoolSetKey, PoolSetKind, PoolSpec, Quarantine, Scope,
    SharedBlocks, SliceOwner, SliceOwnerKind, Slot, conditions, gateway_warnings, names,
};
use capi_ipam_controller::absence::Absence;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, UsableBlocks};
use capi_ipam_ledger::allocated_block;
use capi_ipam_provider::api::conditions::Condition;
use capi_ipam_provider::api::{ContractVersion, IPAddress, IPAddressClaim, is_paused};
use jiff::Timestamp;
use kube::api::ObjectMeta;

pub(crate) use self::kind::Kind;
pub(crate) use self::lists::{Objects, Shown};
pub(crate) use self::metadata::Deletion;
use self::metadata::{created, deletion, label, machine, own_finalizer};
pub(crate) use self::table::ListState;
pub(crate) use self::unserved::UnservedPool;
pub(crate) use self::unserved::{Cause, ServedKinds};

/// Maximum number of problems of one specification that a message has.
const MAX_PROBLEMS: usize = 3;

/// A pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolRow {
    pub(crate) key: PoolKey,
    pub(crate) scope: Scope,
    pub(crate) network: Option<String>,
    /// The network that the pool joins or leaves, with the number of reservations that are not
    /// moved yet.
    pub(crate) moving: Option<PoolNetwork>,
    pub(crate) spec: PoolSpec,
    pub(crate) usable: Result<UsableBlocks, String>,
    pub(crate) counts: Option<capi_ipam_api::AddressCounts>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) paused: bool,
    pub(crate) created: Option<Timestamp>,
    /// Time of the deletion, of a pool that is being deleted.
    pub(crate) deleted: Option<Timestamp>,
}

impl From<&Pool> for PoolRow {
    fn from(pool: &Pool) -> Self {
        let key = PoolKey::of(pool);
        let usable = pool
            .spec
            .usable()
            .map_err(|problems| first_problems(&problems));
        let scope = scope_of(pool);
        Self {
            network: scope.network().map(str::to_owned),
            scope,
            moving: moving_of(pool),
            key,
            spec: pool.spec.clone(),
            usable,
            counts: pool.status.as_ref().and_then(|status| status.ip_addresses),
            conditions: pool
                .status
                .as_ref()
                .map(|status| status.conditions.clone())
                .unwrap_or_default(),
            paused: is_paused(&pool.metadata),
            created: created(&pool.metadata),
            deleted: pool.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        }
    }
}

/// A set of pools.
#[derive(Clone, Debug)]
pub(crate) struct PoolSetRow {
    pub(crate) key: PoolSetKey,
    pub(crate) paused: bool,
    /// The condition `Ready`.
    pub(crate) ready: Option<Condition>,
}

impl From<&PoolSet> for PoolSetRow {
    fn from(set: &PoolSet) -> Self {
        let kind = match set.metadata.namespace {
            Some(_) => PoolSetKind::Namespaced,
            None => PoolSetKind::Global,
        };
        let status = set.status.as_ref();
        let ready = status.and_then(|it| conditions::find(&it.conditions, conditions::READY));
        Self {
            key: PoolSetKey::new(kind, &set.metadata),
            paused: is_paused(&set.metadata),
            ready: ready.cloned(),
        }
    }
}

/// The first problems of a specification, and the number of the others.
fn first_problems<'a, P: ToString + 'a>(problems: impl IntoIterator<Item = &'a P>) -> String {
    let texts: Vec<String> = problems.into_iter().map(ToString::to_string).collect();
    let more = texts.len().saturating_sub(MAX_PROBLEMS);
    let more = if more > 0 {
        format!("; and {more} more problems")
    } else {
        String::new()
    };
    let first: Vec<String> = texts.into_iter().take(MAX_PROBLEMS).collect();
    format!("{}{more}", first.join("; "))
}

/// The scope of a stored pool: the network to which it belongs, or else the pool itself.
///
/// The network is in the status: a network can select pools that do not name it. A pool that leaves
/// a network has left it. If the provider has not observed the specification, it is the network
/// that the pool names.
pub(crate) fn scope_of(pool: &Pool) -> Scope {
    Scope::of(&PoolKey::of(pool), network_of(pool))
}

fn network_of(pool: &Pool) -> Option<&str> {
    let named = pool.spec.network();
    let Some(status) = pool.status.as_ref() else {
        return named;
    };
    let joined = status
        .network
        .as_ref()
        .filter(|network| network.phase != MemberPhase::Leaving);
    let is_observed = status
        .observed_generation
        .is_some_and(|observed| Some(observed) >= pool.metadata.generation);
    match joined {
        Some(network) => Some(network.name.as_str()),
        // The network that it names does not accept the pool.
        None if is_observed => None,
        None => named,
    }
}

/// The network that a pool joins or leaves.
fn moving_of(pool: &Pool) -> Option<PoolNetwork> {
    let network = pool.status.as_ref()?.network.as_ref();
    network
        .filter(|network| network.phase != MemberPhase::Member)
        .cloned()
}

impl PoolRow {
    /// Gateways that machines cannot use; none if the specification is invalid. Admission only warns
    /// about them.
    pub(crate) fn unusable_gateways(&self) -> Vec<String> {
        match &self.usable {
            Ok(usable) => gateway_warnings(&self.spec, usable),
            Err(_) => Vec::new(),
        }
    }

    /// An address or a prefix in the scope of the pool.
    pub(crate) fn slot(&self, block: Block) -> Slot {
        Slot {
            scope: self.scope.clone(),
            block,
        }
    }

    /// The namespace of all claims that can use the addresses of the pool; `None` for all
    /// namespaces. Addresses of a network are used by claims for its other pools, too.
    pub(crate) fn namespace_of_users(&self) -> Option<&str> {
        match self.network {
            Some(_) => None,
            None => self.key.namespace.as_deref(),
        }
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.deleted.is_some()
    }

    /// The addresses or prefixes of the specification, with those of its ranges.
    pub(crate) fn entries(&self) -> Vec<String> {
        let mut entries;
        match &self.spec {
            PoolSpec::Addresses(spec) => {
                entries = spec.addresses.clone();
                for range in &spec.ranges {
                    entries.extend_from_slice(&range.addresses);
                }
            }
            PoolSpec::Prefixes(spec) => {
                entries = spec.prefixes.clone();
                for range in &spec.ranges {
                    entries.extend_from_slice(&range.prefixes);
                }
            }
        }
        entries
    }

    /// The status and the reason of `Ready`; `None` if no provider has reported it.
    pub(crate) fn ready(&self) -> Option<(&str, Option<&str>)> {
        let ready = self.condition(conditions::READY)?;
        Some((ready.status.as_ref(), ready.reason.as_deref()))
    }

    fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(&self.conditions, type_)
    }

    /// Why the pool is exhausted, or is not; `None` if no provider has reported it.
    pub(crate) fn exhausted_reason(&self) -> Option<&str> {
        self.condition(conditions::EXHAUSTED)?.reason.as_deref()
    }

    /// Whether the pool has no free address, and gets no further block of its network. From the counts if no provider has reported it: the Go
    /// provider writes no conditions.
    pub(crate) fn is_exhausted(&self) -> bool {
        match self.condition(conditions::EXHAUSTED) {
            Some(exhausted) => exhausted.status == "True",
            None => self
                .counts
                .is_some_and(|counts| counts.total > 0 && counts.free == 0),
        }
    }
}

/// A network.
#[derive(Clone, Debug)]
pub(crate) struct NetworkRow {
    pub(crate) name: String,
    pub(crate) status: IPNetworkStatus,
    /// How it shares blocks with other management clusters.
    pub(crate) blocks: Option<SharedBlocks>,
    /// Why the specification is not valid.
    pub(crate) invalid: Option<String>,
    /// Whether the labels of namespaces decide which pools may be in it.
    pub(crate) selects_namespaces: bool,
}

impl From<IPNetwork> for NetworkRow {
    fn from(network: IPNetwork) -> Self {
        let problems = network.spec.rules().err();
        let access = network.spec.namespaces.as_ref();
        Self {
            selects_namespaces: access.is_some_and(|it| it.from == NamespaceSource::Selector),
            name: network.metadata.name.unwrap_or_default(),
            status: network.status.unwrap_or_default(),
            blocks: network.spec.blocks,
            invalid: problems.map(|problems| first_problems(&problems)),
        }
    }
}

impl NetworkRow {
    pub(crate) fn ready(&self) -> Option<&Condition> {
        self.condition(conditions::READY)
    }

    fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(&self.status.conditions, type_)
    }

    /// The message of the condition of a type, if it is True.
    pub(crate) fn message_of(&self, type_: &str) -> Option<String> {
        let condition = self.condition(type_)?;
        (condition.status == "True").then(|| condition.message.clone().unwrap_or_default())
    }

    /// The registry of its blocks; `None` if it shares none.
    pub(crate) fn registry(&self) -> Option<&str> {
        let blocks = self.blocks.as_ref()?;
        Some(&blocks.registry)
    }

    /// The number of addresses or prefixes of a shared block.
    pub(crate) fn block_size(&self) -> Option<u64> {
        let blocks = self.blocks.as_ref()?;
        u64::try_from(blocks.size).ok()
    }

    /// The shared block that contains an address or a prefix.
    pub(crate) fn block_of(&self, address: Block) -> Option<Block> {
        let lengths = self.status.block_lengths.unwrap_or_default();
        shared_block(lengths, self.block_size()?, address)
    }

    /// The condition `Ready` if it is not True.
    pub(crate) fn problem(&self) -> Option<&Condition> {
        self.ready().filter(|ready| ready.status != "True")
    }
}

/// The block of this number of addresses or prefixes that contains one of them. Without the length
/// of what a network allocates, it is that of the address. `None` if no such block exists.
pub(crate) fn shared_block(lengths: BlockLengths, size: u64, address: Block) -> Option<Block> {
    let unit = lengths.of(address.family());
    let unit = u32::from(unit.unwrap_or(address.length()));
    let length = unit.checked_sub(size.checked_ilog2()?)?;
    let block = Block::new(address.base(), u8::try_from(length).ok()?);
    // A prefix can be larger than a block.
    (address.length() >= block.length()).then_some(block)
}

/// An IPAddress of a pool of this provider.
#[derive(Clone, Debug)]
pub(crate) struct AddressRow {
    pub(crate) pool: PoolKey,
    pub(crate) block: Block,
    pub(crate) key: NamespacedName,
    pub(crate) claim: Box<str>,
    pub(crate) created: Option<Timestamp>,
    pub(crate) cluster: Option<Box<str>>,
    /// The prefix that the machine configures; `None` if it is invalid.
    pub(crate) prefix: Option<u8>,
    /// The gateway that the machine configures; as it is written if it is no address.
    pub(crate) gateway: Option<Box<str>>,
    /// Whether it was restored from a backup, as far as its labels and annotations show.
    pub(crate) is_restored: bool,
    /// Whether the claim is its owner in the version v1beta1.
    pub(crate) has_old_owner: bool,
    pub(crate) deletion: Option<Box<Deletion>>,
}

impl AddressRow {
    /// `None` if the IPAddress is of another provider, or its address is invalid.
    pub(crate) fn of(address: &IPAddress) -> Option<Self> {
        let (pool, block, name) = allocated_block(address)?;
        let claim = &address.spec.claim_ref.name;
        Some(Self {
            pool,
            block,
            claim: if claim.is_empty() {
                name.name().into()
            } else {
                claim.as_str().into()
            },
            key: name,
            is_restored: Absence::of(&address.metadata, None) != Absence::Deleted,
            created: created(&address.metadata),
            cluster: label(&address.metadata, names::CLUSTER_NAME_LABEL),
            prefix: u8::try_from(address.spec.prefix).ok(),
            gateway: address
                .spec
                .gateway
                .as_deref()
                .filter(|it| !it.is_empty())
                .map(Into::into),
            has_old_owner: has_old_owner(&address.metadata),
            deletion: deletion(&address.metadata),
        })
    }

    /// The claim, which is in the same namespace.
    pub(crate) fn claim_key(&self) -> NamespacedName {
        NamespacedName::new(self.key.namespace(), &self.claim)
    }
}

fn has_old_owner(metadata: &ObjectMeta) -> bool {
    let version = format!("{}/{}", names::GROUP, ContractVersion::V1Beta1.as_str());
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners
        .iter()
        .any(|owner| owner.kind == "IPAddressClaim" && owner.api_version == version)
}

/// A reservation of an address.
#[derive(Clone, Debug)]
pub(crate) struct ReservationRow {
    pub(crate) slot: Slot,
    pub(crate) pool: PoolKey,
    pub(crate) claim: Option<NamespacedName>,
    /// The uid of the claim that holds it, or has held it; `None` if only its name does.
    pub(crate) claim_uid: Option<String>,
    pub(crate) created: Option<Timestamp>,
    pub(crate) released: Option<Timestamp>,
    pub(crate) quarantine: Option<Quarantine>,
}

impl ReservationRow {
    /// Whether a claim holds it, or has held it, and not only its name.
    pub(crate) fn has_uid(&self) -> bool {
        self.claim_uid.is_some()
    }

    /// `None` if the reservation has no effect, or records the block length of a network.
    pub(crate) fn of(reservation: &IPReservation) -> Option<Self> {
        let (slot, pool) = reservation.slot().ok()?;
        let claim = reservation.spec.claim_ref.as_ref();
        Some(Self {
            slot,
            pool,
            claim: claim.map(|claim| NamespacedName::new(&claim.namespace, &claim.name)),
            claim_uid: claim.and_then(|claim| claim.uid.clone()),
            created: created(&reservation.metadata),
            released: reservation.spec.released_at.as_ref().map(|time| time.0),
            quarantine: reservation.spec.quarantine.clone(),
        })
    }
}

/// A slice of a pool.
#[derive(Clone, Debug)]
pub(crate) struct SliceRow {
    pub(crate) name: String,
    /// The pool or the network and the block, or why the slice has no effect.
    pub(crate) place: Result<(Scope, Block), String>,
    pub(crate) owner: SliceOwner,
    /// Whether a user created it: it is never returned.
    pub(crate) is_pinned: bool,
    pub(crate) empty_since: Option<Timestamp>,
    pub(crate) created: Option<Timestamp>,
    /// When the provider assigned it.
    pub(crate) assigned: Option<Timestamp>,
    /// Whether the registry has confirmed a block of this management cluster.
    pub(crate) is_confirmed: bool,
    /// The other management cluster that uses the block.
    pub(crate) conflict: Option<String>,
}

impl SliceRow {
    /// The network and the block, if a management cluster owns the slice.
    pub(crate) fn shared_block(&self) -> Option<(&str, Block)> {
        match &self.place {
            Ok((Scope::Network(network), block))
                if self.owner.kind == SliceOwnerKind::ManagementCluster =>
            {
                Some((&**network, *block))
            }
            _ => None,
        }
    }
}

impl From<IPSlice> for SliceRow {
    fn from(slice: IPSlice) -> Self {
        Self {
            place: slice.place().map_err(|problem| problem.to_string()),
            created: created(&slice.metadata),
            name: slice.metadata.name.unwrap_or_default(),
            owner: slice.spec.owner,
            is_pinned: slice.spec.assigned_at.is_none(),
            empty_since: slice.spec.empty_since.map(|time| time.0),
            assigned: slice.spec.assigned_at.map(|time| time.0),
            is_confirmed: slice.spec.confirmed_at.is_some(),
            conflict: slice.spec.conflict.map(|conflict| conflict.cluster),
        }
    }
}

/// A registry of blocks that management clusters share.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegistryRow {
    pub(crate) name: String,
    pub(crate) spec: IPRegistrySpec,
    pub(crate) status: IPRegistryStatus,
}

impl From<IPRegistry> for RegistryRow {
    fn from(registry: IPRegistry) -> Self {
        Self {
            name: registry.metadata.name.unwrap_or_default(),
            spec: registry.spec,
            status: registry.status.unwrap_or_default(),
        }
    }
}

impl RegistryRow {
    /// The identity of this management cluster in the registry, once it is known.
    pub(crate) fn cluster_id(&self) -> Option<&String> {
        self.spec
            .cluster_id
            .as_ref()
            .or(self.status.cluster_id.as_ref())
    }

    /// The condition `Ready`.
    pub(crate) fn ready(&self) -> Option<&Condition> {
        conditions::find(&self.status.conditions, conditions::READY)
    }
}

/// A claim.
#[derive(Clone, Debug)]
pub(crate) struct ClaimRow {
    pub(crate) key: NamespacedName,
    /// The pool or the set that it names, or why this provider does not serve it.
    pub(crate) pool: Result<NamedPool, UnservedPool>,
    /// Name of the IPAddress.
    pub(crate) bound: Option<Box<str>>,
    pub(crate) created: Option<Timestamp>,
    pub(crate) paused: bool,
    pub(crate) deletion: Option<Box<Deletion>>,
    /// The place of the finalizer of this provider in the list of finalizers.
    pub(crate) own_finalizer: Option<usize>,
    /// Reason and message of `Ready`, if it is not True.
    pub(crate) reason: Option<Box<str>>,
    pub(crate) message: Option<Box<str>>,
    /// The message of `AddressInUse`, if it is False.
    pub(crate) not_in_use: Option<Box<str>>,
    /// The message of `RestoredWithoutAddress`, if it is True.
    pub(crate) replaced: Option<Box<str>>,
    /// The conflict of its address that it reports.
    pub(crate) conflict: Option<Box<str>>,
    pub(crate) cluster: Option<Box<str>>,
    /// Name of the item of a ClusterAddressing for which the claim was created.
    pub(crate) item: Option<Box<str>>,
    /// Kind and name of the object that uses the address, such as `VSphereVM/web-1`.
    pub(crate) machine: Option<Box<str>>,
}

impl ClaimRow {
    /// `None` if the claim is of no interest: another provider serves it.
    pub(crate) fn of(claim: &IPAddressClaim, served: &ServedKinds) -> Option<Self> {
        let pool = match UnservedPool::of(claim, served) {
            Some(pool) if served.omits_others && pool.cause == Cause::OtherProvider => return None,
            Some(pool) => Err(pool),
            None => Ok(NamedPool::of_claim(claim)?),
        };
        Some(Self::new(claim, pool))
    }

    pub(crate) fn new(claim: &IPAddressClaim, pool: Result<NamedPool, UnservedPool>) -> Self {
        let mut reason = None;
        let mut message = None;
        if let Some(ready) = find_condition(claim, conditions::READY)
            && ready.status != "True"
        {
            reason = nonempty(ready.reason.as_deref());
            message = nonempty(ready.message.as_deref());
        }
        let text_if = |type_: &str, status: &str| {
            let condition = find_condition(claim, type_)?;
            (condition.status == status).then(|| text(condition.message.as_deref()))
        };
        Self {
            key: NamespacedName::of(&claim.metadata),
            pool,
            bound: claim.bound_address().map(Box::from),
            created: created(&claim.metadata),
            paused: is_paused(&claim.metadata),
            deletion: deletion(&claim.metadata),
            own_finalizer: own_finalizer(&claim.metadata),
            reason,
            message,
            not_in_use: text_if(conditions::IN_USE, "False"),
            conflict: claim.conflict().map(|conflict| conflict.reason.into()),
            replaced: text_if(conditions::RESTORED_WITHOUT_ADDRESS, "True"),
            cluster: claim.cluster_name().map(Box::from),
            item: AddressingItem::of_claim(claim).map(Box::from),
            machine: machine(&claim.metadata),
        }
    }

    /// The IPAddress to which the claim is bound.
    pub(crate) fn address_key(&self) -> Option<NamespacedName> {
        Some(NamespacedName::new(
            self.key.namespace(),
            self.bound.as_deref()?,
        ))
    }

    /// The pool that it names; `None` if it names a set, or if this provider does not serve it.
    pub(crate) fn named_pool(&self) -> Option<&PoolKey> {
        self.pool.as_ref().ok()?.pool()
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.deletion.is_some()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.bound.is_none() && !self.is_deleting()
    }
}

/// A text that is not empty.
fn nonempty(text: Option<&str>) -> Option<Box<str>> {
    match text {
        None | Some("") => None,
        Some(text) => Some(text.into()),
    }
}

/// The condition of a type, in any of the lists of the versions of the contract: the first one that
/// is not True, or else the first one.
fn find_condition<'a>(claim: &'a IPAddressClaim, type_: &str) -> Option<&'a Condition> {
    let status = claim.status.as_ref()?;
    let mut lists = vec![&status.conditions];
    if let Some(list) = &status.v1beta2 {
        lists.push(&list.conditions);
    }
    if let Some(deprecated) = &status.deprecated
        && let Some(list) = &deprecated.v1beta1
    {
        lists.push(&list.conditions);
    }
    let mut first = None;
    for condition in lists.into_iter().flatten() {
        if condition.type_ != type_ {
            continue;
        }
        if condition.status != "True" {
            return Some(condition);
        }
        first = first.or(Some(condition));
    }
    first
}

fn text(value: Option<&str>) -> Box<str> {
    value.unwrap_or_default().into()
}
