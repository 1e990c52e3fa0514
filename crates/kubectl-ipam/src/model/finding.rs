//! What a check of `doctor` reports.

use capi_ipam_api::PoolKey;
use schemars::JsonSchema;
use serde::Serialize;

use super::pool_name::PoolName;

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
    /// How to repair it, with the command.
    pub repair: String,
}

/// A check that was not possible, or not for all objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unchecked {
    /// The check.
    pub check: Check,
    /// The permission that is missing.
    pub reason: String,
    /// Whether the check was made for the objects that can be read.
    pub partly: bool,
}

/// How urgent a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum Severity {
    /// Claims are not served, or two machines can have one address.
    Error,
    /// Addresses are wasted, or something else will fail.
    Warning,
}

/// A check of `doctor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum Check {
    /// Several IPAddresses of a pool or network have one address.
    DuplicateAddress,
    /// A bound claim has no IPAddress.
    LostAddress,
    /// The pool of a claim or of an IPAddress does not exist.
    MissingPool,
    /// The kind of the pool of a claim does not exist, so no provider serves the claim.
    UnknownPoolKind,
    /// A pool is not ready.
    PoolNotReady,
    /// A network is not ready.
    NetworkNotReady,
    /// A pool joins or leaves a network without progress.
    MoveStalled,
    /// An object cannot be decoded.
    UnreadableObject,
    /// No process holds the lease of the provider.
    NoLeader,
    /// No replica answers the webhooks.
    WebhookUnavailable,
    /// The API server has no authority for the certificate of the webhooks.
    WebhookUntrusted,
    /// An IPAddress has no claim.
    OrphanAddress,
    /// A reservation is held for a claim that does not exist.
    AbandonedReservation,
    /// Pools of different networks contain the same addresses.
    PoolsOverlap,
    /// An IPSlice has no effect.
    SliceWithoutEffect,
    /// A pool does not contain all its addresses in use.
    AddressesOutOfRange,
    /// The Machine of a claim does not report the address of the claim.
    AddressNotInUse,
    /// The address of a claim was released although other controllers keep the claim.
    ReleasedEarly,
    /// A claim was restored without its IPAddress, or may have been, and has a new address.
    RestoredWithoutAddress,
    /// No claim can ever get the address of a reservation.
    InvalidReservation,
    /// An IPAddress has an owner reference in a version that Cluster API will no longer serve.
    OutdatedOwner,
}

impl Check {
    /// All checks.
    pub(crate) const ALL: [Self; 18] = [
        Self::DuplicateAddress,
        Self::LostAddress,
        Self::MissingPool,
        Self::UnknownPoolKind,
        Self::PoolNotReady,
        Self::NetworkNotReady,
        Self::MoveStalled,
        Self::UnreadableObject,
        Self::NoLeader,
        Self::WebhookUnavailable,
        Self::WebhookUntrusted,
        Self::OrphanAddress,
        Self::AbandonedReservation,
        Self::PoolsOverlap,
        Self::SliceWithoutEffect,
        Self::AddressesOutOfRange,
        Self::AddressNotInUse,
        Self::ReleasedEarly,
    ];

    fn severity(self) -> Severity {
        match self {
            Self::OrphanAddress
            | Self::AbandonedReservation
            | Self::PoolsOverlap
            | Self::SliceWithoutEffect
            | Self::AddressesOutOfRange
            | Self::AddressNotInUse
            | Self::ReleasedEarly
            | Self::RestoredWithoutAddress
            | Self::InvalidReservation
            | Self::OutdatedOwner => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// Whether lists that are read one after the other can show it for a moment.
    pub(crate) fn is_transient(self) -> bool {
        let lasting = [
            Self::UnknownPoolKind,
            Self::UnreadableObject,
            Self::WebhookUntrusted,
            Self::PoolsOverlap,
            Self::AddressesOutOfRange,
            Self::AddressNotInUse,
            Self::ReleasedEarly,
            Self::RestoredWithoutAddress,
            Self::InvalidReservation,
        ];
        !lasting.contains(&self)
    }

    pub(super) fn finding(self, object: String, problem: String, repair: String) -> Finding {
        Finding {
            severity: self.severity(),
            check: self,
            object,
            problem,
            repair,
        }
    }
}

/// The command that edits a pool.
pub(super) fn edit(pool: &PoolKey) -> String {
    let namespace = pool
        .namespace
        .as_deref()
        .map(|name| format!(" --namespace {name}"))
        .unwrap_or_default();
    format!(
        "kubectl edit {} {}{namespace}",
        pool.kind.plural(),
        pool.name
    )
}

/// Kind, namespace and name of a pool.
pub(super) fn full(key: &PoolKey) -> String {
    let PoolName {
        kind,
        namespace,
        name,
    } = key.into();
    namespace.map_or_else(
        || format!("{kind} {name}"),
        |namespace| format!("{kind} {namespace}/{name}"),
    )
}
