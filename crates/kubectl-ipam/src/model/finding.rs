//! What a check of `doctor` reports.

use std::collections::BTreeSet;
use std::fmt::Debug;

use capi_ipam_api::{PoolKey, PoolSetKey};
use capi_ipam_controller::namespaced_name::NamespacedName;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::MissingRight;

/// Something that is wrong, and how to repair it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How urgent it is.
    pub severity: Severity,
    /// The check that found it.
    pub check: Check,
    /// The object, such as `ipaddress team-a/web-1`.
    pub object: String,
    /// What is wrong.
    pub problem: String,
    /// Since when, or since when the oldest of several objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The finding that causes this one: its repair ends both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// What it is about; empty if it is about the provider.
    #[serde(skip)]
    pub(crate) places: Vec<Place>,
    /// How to repair it, with the command unless `commands` has it.
    pub repair: String,
    /// The commands of the repair for this object, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// The finding that causes others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// Its check.
    pub check: Check,
    /// Its object.
    pub object: String,
}

/// What a finding is about, as far as it can be selected, or has a cause there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Namespace(String),
    Pool(PoolKey),
    Network(String),
    Registry(String),
}

/// The object of a finding, with what it is about.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    name: String,
    places: Vec<Place>,
}

/// An object of the provider.
impl<T: ToString> From<T> for Subject {
    fn from(name: T) -> Self {
        Self {
            name: name.to_string(),
            places: Vec::new(),
        }
    }
}

impl Subject {
    /// A pool.
    pub(super) fn pool(pool: &PoolKey) -> Self {
        Self::from(pool).of_pool(pool)
    }

    /// A set of pools.
    pub(super) fn pool_set(set: &PoolSetKey) -> Self {
        let namespace = set.namespace.as_deref().into_iter();
        namespace.fold(Self::from(set), Self::in_namespace)
    }

    /// A claim.
    pub(super) fn claim(claim: &NamespacedName) -> Self {
        Self::from(format!("ipaddressclaim {claim}")).in_namespace(claim.namespace())
    }

    /// A registry.
    pub(super) fn registry(name: &str) -> Self {
        Self::from(format!("IPRegistry {name}")).of_registry(name)
    }

    pub(super) fn in_namespace(self, name: &str) -> Self {
        self.at(Place::Namespace(name.to_owned()))
    }

    pub(super) fn of_pool(self, pool: &PoolKey) -> Self {
        self.at(Place::Pool(pool.clone()))
    }

    pub(super) fn of_network(self, name: &str) -> Self {
        self.at(Place::Network(name.to_owned()))
    }

    pub(super) fn of_registry(self, name: &str) -> Self {
        self.at(Place::Registry(name.to_owned()))
    }

    pub(super) fn at(mut self, place: Place) -> Self {
        if !self.places.contains(&place) {
            self.places.push(place);
        }
        self
    }
}

impl Finding {
    /// The pools that the finding is about.
    pub(crate) fn pools(&self) -> BTreeSet<&PoolKey> {
        let places = self.places.iter();
        let pools = places.filter_map(|place| match place {
            Place::Pool(pool) => Some(pool),
            _ => None,
        });
        pools.collect()
    }

    /// The same finding with another severity than that of its check.
    pub(super) fn at(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// The same finding with the commands of its repair.
    pub(super) fn with_commands(mut self, commands: impl IntoIterator<Item = String>) -> Self {
        self.commands = commands.into_iter().collect();
        self
    }

    /// The same finding with its time.
    pub(super) fn since(mut self, since: Option<Timestamp>) -> Self {
        self.since = since;
        self
    }
}

/// A part of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum Part {
    /// The CustomResourceDefinitions.
    Definitions,
    /// The lease, and who holds it.
    Lease,
    /// The probes of the replicas.
    Probes,
    /// The permissions of the service account.
    Permissions,
    /// The webhooks, as the API server calls them.
    Webhooks,
    /// The certificate of the webhooks.
    Certificate,
    /// The sweeper, which frees what interruptions leave.
    Sweeper,
    /// Pools and networks.
    Pools,
    /// Registries of blocks that management clusters share; omitted if there are none.
    Registries,
    /// Claims and their addresses.
    Claims,
}

/// The state of a part. The later, the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum PartState {
    /// Nothing is wrong.
    Ok,
    /// A check of the part was not possible, or not for all objects.
    Unknown,
    /// A check of the part has a warning.
    Warning,
    /// A check of the part has an error.
    Error,
}

/// The state of one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartLine {
    /// The part.
    pub part: Part,
    /// Its state.
    pub state: PartState,
    /// What the cluster shows of it; empty if it shows nothing.
    pub detail: String,
}

/// What `doctor` has checked and found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingList {
    /// Whether the provider works, whatever is wrong with single objects; `null` if this is unknown.
    pub healthy: Option<bool>,
    /// The state of each part of the provider.
    pub parts: Vec<PartLine>,
    /// The checks that were made, at least for some objects.
    pub checks: Vec<Check>,
    /// What is wrong, the most urgent first.
    #[serde(rename = "items")]
    pub findings: Vec<Finding>,
    /// The checks that were not possible, or not for all objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<Unchecked>,
    /// Number of claims that wait; `null` if it is unknown.
    pub waiting: Option<u64>,
}

impl FindingList {
    /// Whether a finding is more than a note.
    pub(crate) fn has_problems(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.severity < Severity::Note)
    }

    /// Whether a finding is of a check.
    pub(crate) fn has(&self, check: Check) -> bool {
        self.findings.iter().any(|finding| finding.check == check)
    }
}

/// A check that was not possible, or not for all objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unchecked {
    /// The check.
    pub check: Check,
    /// The permission that is missing, or why the cluster does not show it.
    pub reason: String,
    /// Whether the check was made for the objects that can be read.
    pub partly: bool,
    /// The permissions that the reason names, if any.
    #[serde(skip)]
    pub(crate) missing: Vec<MissingRight>,
}

/// How urgent a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum Severity {
    /// Claims are not served, or two machines can have one address.
    Error,
    /// Addresses are wasted, or something else will fail.
    Warning,
    /// It can be intended, so it does not change the exit code.
    Note,
}

/// A check of `doctor`, the most urgent first: those of the provider, without which no claim is
/// served, and then those of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum Check {
    /// The API server does not serve a kind that the provider needs.
    MissingDefinition,
    /// A definition lacks fields that the provider has.
    OutdatedDefinition,
    /// No process holds the lease of the provider.
    NoLeader,
    /// Replicas of the provider are not ready.
    ReplicasNotReady,
    /// The provider lacks a permission.
    MissingPermission,
    /// No replica answers the webhooks.
    WebhookUnavailable,
    /// The provider serves webhooks, and the API server does not call them.
    WebhookMissing,
    /// The API server has no authority for the certificate of the webhooks.
    WebhookUntrusted,
    /// The API server has no authority for the certificate of the webhook of Clusters.
    ClusterWebhookUntrusted,
    /// The API server cannot call the webhooks.
    WebhookFailing,
    /// The API server cannot convert pools between the versions.
    ConversionFailing,
    /// The certificate of the webhooks is expired, will expire soon, or has another authority than
    /// the API server has.
    CertificateInvalid,
    /// Several managers are active that do not exclude each other.
    SeveralManagers,
    /// Several IPAddresses have one address.
    DuplicateAddress,
    /// A bound claim has no IPAddress.
    LostAddress,
    /// The pool of a claim or of an IPAddress does not exist.
    MissingPool,
    /// The kind of the pool of a claim does not exist, so no provider serves the claim.
    UnknownPoolKind,
    /// The Cluster of a claim does not exist.
    ClusterNotFound,
    /// A pool is not ready.
    PoolNotReady,
    /// A set of pools is not ready, or names pools that it cannot use.
    PoolSetNotReady,
    /// A network is not ready.
    NetworkNotReady,
    /// A registry of blocks is not ready.
    RegistryNotReady,
    /// A ClusterAddressing reports that Clusters do not have their addresses.
    ClusterAddressingNotReady,
    /// Two management clusters use one block.
    BlockConflict,
    /// Blocks of a network have another size in other management clusters.
    BlockSizeDiffers,
    /// Other management clusters exclude other addresses from a network.
    ExclusionsDiffer,
    /// A pool joins or leaves a network without progress.
    MoveStalled,
    /// An object cannot be decoded.
    UnreadableObject,
    /// A pool has no free address.
    PoolExhausted,
    /// No manager has processed a pool or a claim.
    NotReconciled,
    /// Claims wait for another reason.
    ClaimsWait,
    /// A pool in deletion waits for its addresses.
    PoolDeleting,
    /// Finalizers of other controllers keep claims or IPAddresses in deletion.
    ReleaseBlocked,
    /// Pools, or claims that wait, are paused.
    Paused,
    /// An IPAddress has no claim.
    OrphanAddress,
    /// A reservation is held for a claim that does not exist.
    AbandonedReservation,
    /// Pools of different networks contain the same addresses.
    PoolsOverlap,
    /// Machines cannot use the gateway of a pool.
    UnusableGateway,
    /// IPAddresses have another gateway, or another prefix length, than their pool.
    OutdatedGateway,
    /// An IPSlice has no effect.
    SliceWithoutEffect,
    /// A pool does not contain all its addresses in use.
    AddressesOutOfRange,
    /// A pool in use stays in a network that no longer selects it.
    KeptInNetwork,
    /// The Machine of a claim does not report the address of the claim.
    AddressNotInUse,
    /// A claim reports that another host answers at its address.
    AddressConflict,
    /// An address is quarantined, since another host answers at it.
    AddressQuarantined,
    /// The address of a claim was released although other controllers keep the claim.
    ReleasedEarly,
    /// A claim was restored without its IPAddress, or may have been, and has a new address.
    RestoredWithoutAddress,
    /// No claim can ever get the address of a reservation.
    InvalidReservation,
    /// A management cluster of a registry gives no sign of life.
    StaleCluster,
    /// A registry has the record of a block of this management cluster, which has no IPSlice of it.
    RecordWithoutSlice,
    /// An IPAddress has an owner reference in a version that Cluster API will no longer serve.
    OutdatedOwner,
}

impl Check {
    fn severity(self) -> Severity {
        match self {
            Self::WebhookMissing
            | Self::ClusterWebhookUntrusted
            | Self::SeveralManagers
            | Self::PoolDeleting
            | Self::ReleaseBlocked
            | Self::Paused
            | Self::OrphanAddress
            | Self::AbandonedReservation
            | Self::PoolsOverlap
            | Self::UnusableGateway
            | Self::OutdatedGateway
            | Self::SliceWithoutEffect
            | Self::AddressesOutOfRange
            | Self::KeptInNetwork
            | Self::AddressNotInUse
            | Self::AddressConflict
            | Self::AddressQuarantined
            | Self::ReleasedEarly
            | Self::RestoredWithoutAddress
            | Self::InvalidReservation
            | Self::ExclusionsDiffer
            | Self::StaleCluster
            | Self::RecordWithoutSlice
            | Self::OutdatedOwner => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// Whether lists that are read one after the other can show it for a moment.
    pub(crate) fn is_transient(self) -> bool {
        let lasting = [
            Self::MissingDefinition,
            Self::OutdatedDefinition,
            Self::MissingPermission,
            Self::WebhookMissing,
            Self::WebhookUntrusted,
            Self::ClusterWebhookUntrusted,
            Self::CertificateInvalid,
            Self::SeveralManagers,
            Self::UnknownPoolKind,
            Self::UnreadableObject,
            Self::NotReconciled,
            Self::Paused,
            Self::PoolsOverlap,
            Self::UnusableGateway,
            Self::AddressesOutOfRange,
            Self::KeptInNetwork,
            Self::AddressNotInUse,
            Self::AddressConflict,
            Self::AddressQuarantined,
            Self::ReleasedEarly,
            Self::RestoredWithoutAddress,
            Self::InvalidReservation,
            Self::RegistryNotReady,
            Self::BlockConflict,
            Self::BlockSizeDiffers,
            Self::ExclusionsDiffer,
            Self::StaleCluster,
        ];
        !lasting.contains(&self)
    }

    pub(crate) fn finding(
        self,
        object: impl Into<Subject>,
        problem: impl Into<String>,
        repair: impl Into<String>,
    ) -> Finding {
        let Subject { name, places } = object.into();
        Finding {
            severity: self.severity(),
            check: self,
            object: name,
            problem: problem.into(),
            since: None,
            cause: None,
            places,
            repair: repair.into(),
            commands: Vec::new(),
        }
    }
}

/// The command that edits a pool.
pub(super) fn edit(pool: &PoolKey) -> String {
    format!("kubectl edit {}", resource_of(pool))
}

/// A pool as an argument of kubectl: plural, name and namespace.
pub(super) fn resource_of(pool: &PoolKey) -> String {
    resource(pool.kind.plural(), &pool.name, pool.namespace.as_deref())
}

/// A set of pools as an argument of kubectl.
pub(super) fn resource_of_set(set: &PoolSetKey) -> String {
    resource(set.kind.plural(), &set.name, set.namespace.as_deref())
}

fn resource(plural: &str, name: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{plural} {name} --namespace {namespace}"),
        None => format!("{plural} {name}"),
    }
}

/// A state or a severity as the text has it.
pub(crate) fn word(state: impl Debug) -> String {
    format!("{state:?}").to_lowercase()
}
