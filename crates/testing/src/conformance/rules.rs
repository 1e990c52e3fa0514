//! The rules of the contract, and pure functions that check them.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::net::IpAddr;

use capi_ipam_provider::api::conditions::{self, Condition};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, IPAddressSpec, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

/// A rule of the IPAM provider contract of Cluster API, or of its de facto clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The program runs and becomes ready.
    Program,
    /// Claims are served.
    Served,
    /// Names and references.
    Names,
    /// Finalizers.
    Finalizers,
    /// Owner references.
    Owners,
    /// The specification of the IPAddress.
    Specification,
    /// Uniqueness of addresses.
    Unique,
    /// `status.addressRef` and the condition `Ready` of a bound claim.
    Status,
    /// The order of the writes that bind a claim.
    Order,
    /// The conditions of `v1beta1`.
    OldConditions,
    /// The label with the name of the Cluster.
    ClusterLabel,
    /// Release.
    Released,
    /// No leaks.
    NoLeak,
    /// Pausing.
    Paused,
    /// Foreign finalizers.
    InUse,
    /// Adoption.
    Adopted,
    /// The condition `Ready` of a claim that cannot be bound.
    Reason,
    /// Restarts without writes.
    Quiet,
    /// Addresses of bound claims last.
    Lasting,
}

impl Rule {
    /// The rule as a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::Program => "the program starts, serves /readyz and does not exit",
            Self::Served => "a claim is bound as soon as its pool exists and has a free address",
            Self::Names => {
                "the IPAddress has the name and the namespace of its claim, and refers to the claim and to its pool"
            }
            Self::Finalizers => {
                "the provider protects the claim with the finalizer ReleaseAddress, and the IPAddress with ProtectAddress"
            }
            Self::Owners => {
                "the IPAddress is owned by its claim (controller: true, blockOwnerDeletion: true) and by its pool \
                 (controller: false, blockOwnerDeletion: true)"
            }
            Self::Specification => {
                "the IPAddress has a valid address and a prefix length that fits its family"
            }
            Self::Unique => "an address is allocated to at most one claim of a pool at a time",
            Self::Status => {
                "a bound claim has status.addressRef, and the condition Ready is True with a reason"
            }
            Self::Order => {
                "a claim is bound after its IPAddress exists, because clients read the IPAddress at once"
            }
            Self::OldConditions => {
                "status.deprecated.v1beta1.conditions has the condition Ready too, for clients of v1beta1"
            }
            Self::ClusterLabel => {
                "the IPAddress has the label cluster.x-k8s.io/cluster-name of its claim"
            }
            Self::Released => "a deleted claim is removed with its IPAddress",
            Self::NoLeak => "the address of a deleted claim can be allocated again",
            Self::Paused => {
                "nothing is allocated or released while the claim, its pool or its Cluster is paused, the condition \
                 Paused reports it, and the provider continues afterwards"
            }
            Self::InUse => {
                "a claim with finalizers of other controllers keeps its address, also while it is deleted"
            }
            Self::Adopted => {
                "an existing IPAddress with the name of a claim is adopted with its address"
            }
            Self::Reason => {
                "a claim that cannot be bound has the condition Ready=False with a reason and a message"
            }
            Self::Quiet => "a restart causes no write if all claims are bound",
            Self::Lasting => "the address of a claim does not change until the claim is deleted",
        }
    }
}

impl Display for Rule {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.text())
    }
}

/// A rule does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// What was expected, for which object.
    pub expected: String,
    /// What was seen instead.
    pub seen: String,
}

impl Violation {
    pub(super) fn new(rule: Rule, expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self {
            rule,
            expected: expected.into(),
            seen: seen.into(),
        }
    }
}

impl Display for Violation {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        let Self {
            rule,
            expected,
            seen,
        } = self;
        write!(
            formatter,
            "expected: {expected}\nrule:     {rule}\nseen:     {seen}"
        )
    }
}

/// Checks a bound claim and its IPAddress, which is `None` if it does not exist.
pub(super) fn check_bound(
    claim: &IPAddressClaim,
    address: Option<&IPAddress>,
) -> Result<(), Violation> {
    check_claim(claim)?;
    let Some(address) = address else {
        let expected = format!("claim {}: its IPAddress exists", claim.name_any());
        return Err(Violation::new(Rule::Served, expected, describe(claim)));
    };
    let check = |rule, holds: bool, expected: &str| {
        if holds {
            return Ok(());
        }
        let expected = format!("claim {}: its IPAddress {expected}", claim.name_any());
        Err(Violation::new(rule, expected, describe_address(address)))
    };
    check(
        Rule::Names,
        refers_to(address, claim),
        "refers to the claim and to its pool",
    )?;
    check(
        Rule::Finalizers,
        has_finalizer(address, names::PROTECT_ADDRESS),
        "has the finalizer ProtectAddress",
    )?;
    let owners = address.owner_references();
    check(
        Rule::Owners,
        owners.iter().any(|owner| is_controller(owner, claim)),
        "is controlled by the claim",
    )?;
    check(
        Rule::Owners,
        owners.iter().any(|owner| is_pool_of(owner, claim)),
        "is owned by the pool",
    )?;
    check(
        Rule::Specification,
        is_valid(&address.spec),
        "has a valid address, prefix length and gateway",
    )?;
    check_label(claim, address)
}

/// Checks what a bound claim says of itself.
fn check_claim(claim: &IPAddressClaim) -> Result<(), Violation> {
    let name = claim.name_any();
    let check = |rule, holds: bool, expected: &str| {
        if holds {
            return Ok(());
        }
        let expected = format!("claim {name}: {expected}");
        Err(Violation::new(rule, expected, describe(claim)))
    };
    check(Rule::Served, claim.bound_address().is_some(), "it is bound")?;
    check(
        Rule::Names,
        claim.bound_address() == Some(&name),
        "status.addressRef names the IPAddress of its name",
    )?;
    check(
        Rule::Finalizers,
        has_finalizer(claim, names::RELEASE_ADDRESS),
        "it has the finalizer ReleaseAddress",
    )?;
    let status = claim.status.clone().unwrap_or_default();
    let ready = conditions::find(&status.conditions, conditions::READY);
    check(
        Rule::Status,
        is_true(ready) && reason_of(ready).is_some(),
        "Ready is True with a reason",
    )?;
    let v1beta1 = status.deprecated.and_then(|deprecated| deprecated.v1beta1);
    let old = v1beta1.unwrap_or_default().conditions;
    if !is_true(conditions::find(&old, conditions::READY)) {
        let expected = format!("claim {name}: Ready is True in status.deprecated.v1beta1");
        let seen = format!("{old:?}");
        return Err(Violation::new(Rule::OldConditions, expected, seen));
    }
    Ok(())
}

/// Checks that an IPAddress has the label of the Cluster of its claim.
fn check_label(claim: &IPAddressClaim, address: &IPAddress) -> Result<(), Violation> {
    let Some(cluster) = claim.cluster_name() else {
        return Ok(());
    };
    let label = address.labels().get(names::CLUSTER_NAME_LABEL);
    if label.is_some_and(|label| label == cluster) {
        return Ok(());
    }
    let name = claim.name_any();
    let expected = format!("claim {name}: its IPAddress has the label of its Cluster");
    let seen = format!("{label:?}");
    Err(Violation::new(Rule::ClusterLabel, expected, seen))
}

fn has_finalizer(object: &impl ResourceExt, name: &str) -> bool {
    object.finalizers().iter().any(|found| found == name)
}

fn is_true(condition: Option<&Condition>) -> bool {
    condition.is_some_and(|condition| condition.status == "True")
}

fn refers_to(address: &IPAddress, claim: &IPAddressClaim) -> bool {
    address.spec.claim_ref.name == claim.name_any() && address.spec.pool_ref == claim.spec.pool_ref
}

/// Whether an owner is the claim, as its controller.
fn is_controller(owner: &OwnerReference, claim: &IPAddressClaim) -> bool {
    Some(&owner.uid) == claim.metadata.uid.as_ref()
        && owner.kind == "IPAddressClaim"
        && owner.controller == Some(true)
        && owner.block_owner_deletion == Some(true)
}

/// Whether an owner is the pool of a claim, which controls nothing.
fn is_pool_of(owner: &OwnerReference, claim: &IPAddressClaim) -> bool {
    let pool = &claim.spec.pool_ref;
    owner.name == pool.name
        && owner.kind == pool.kind
        && owner.controller != Some(true)
        && owner.block_owner_deletion == Some(true)
}

/// Whether address, prefix length and gateway are valid.
fn is_valid(spec: &IPAddressSpec) -> bool {
    let longest = match spec.address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    let has_valid_gateway = spec.gateway.as_deref().is_none_or(is_address);
    (0..=longest).contains(&spec.prefix) && has_valid_gateway
}

/// Checks that no two IPAddresses of a pool have the same address.
pub(super) fn check_unique<'a>(
    addresses: impl IntoIterator<Item = &'a IPAddress>,
) -> Result<(), Violation> {
    let mut known = BTreeMap::new();
    for address in addresses {
        let name = address.name_any();
        let slot = (&address.spec.pool_ref, canonical(&address.spec.address));
        if let Some(other) = known.insert(slot, name.clone()) {
            let expected = format!("the IPAddresses {other} and {name} have different addresses");
            return Err(Violation::new(
                Rule::Unique,
                expected,
                describe_address(address),
            ));
        }
    }
    Ok(())
}

/// Checks that each IPAddress belongs to an existing claim of its name.
pub(super) fn check_owned(
    claims: &[IPAddressClaim],
    addresses: &[IPAddress],
) -> Result<(), Violation> {
    let is_owned = |address: &&IPAddress| {
        let claim = claims
            .iter()
            .find(|claim| claim.metadata.name == address.metadata.name);
        let uid = claim
            .and_then(|claim| claim.metadata.uid.clone())
            .unwrap_or_default();
        address
            .owner_references()
            .iter()
            .any(|owner| owner.uid == uid)
    };
    let Some(leaked) = addresses.iter().find(|address| !is_owned(address)) else {
        return Ok(());
    };
    let expected = format!("IPAddress {} is removed with its claim", leaked.name_any());
    Err(Violation::new(
        Rule::NoLeak,
        expected,
        describe_address(leaked),
    ))
}

/// Checks the condition `Ready` of a claim that cannot be bound.
pub(super) fn check_reason(claim: &IPAddressClaim) -> Result<(), Violation> {
    let status = claim.status.clone().unwrap_or_default();
    let ready = conditions::find(&status.conditions, conditions::READY);
    let has_message = ready
        .and_then(|ready| ready.message.as_deref())
        .is_some_and(|message| !message.is_empty());
    let is_false = ready.is_some_and(|ready| ready.status == "False");
    if is_false && has_message && reason_of(ready).is_some() && claim.bound_address().is_none() {
        return Ok(());
    }
    let expected = format!(
        "claim {} is not bound, and Ready=False has a reason and a message",
        claim.name_any()
    );
    Err(Violation::new(Rule::Reason, expected, describe(claim)))
}

/// Whether the condition `Paused` of a claim is True.
pub(super) fn reports_paused(claim: &IPAddressClaim) -> bool {
    let paused = claim
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, conditions::PAUSED));
    paused.is_some_and(|paused| paused.status == "True")
}

/// A claim in one line, for messages.
pub(super) fn describe(claim: &IPAddressClaim) -> String {
    let status = claim.status.clone().unwrap_or_default();
    let conditions = status.conditions.iter().map(|condition| {
        let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let (reason, message) = (
            text(condition.reason.as_deref()),
            text(condition.message.as_deref()),
        );
        format!(
            "{}={} ({reason}: {message})",
            condition.type_, condition.status
        )
    });
    let conditions: Vec<_> = conditions.collect();
    let deleting = if claim.metadata.deletion_timestamp.is_some() {
        ", being deleted"
    } else {
        ""
    };
    format!(
        "claim {}{deleting}, finalizers {:?}, addressRef {:?}, conditions {conditions:?}",
        claim.name_any(),
        claim.finalizers(),
        claim.bound_address().unwrap_or_default(),
    )
}

/// An IPAddress in one line, for messages.
pub(super) fn describe_address(address: &IPAddress) -> String {
    let owners = address.owner_references().iter().map(|owner| {
        let (controller, block) = (owner.controller, owner.block_owner_deletion);
        format!(
            "{} {} (controller: {controller:?}, blockOwnerDeletion: {block:?})",
            owner.kind, owner.name
        )
    });
    let owners: Vec<_> = owners.collect();
    let deleting = if address.metadata.deletion_timestamp.is_some() {
        ", being deleted"
    } else {
        ""
    };
    let (name, finalizers, spec) = (address.name_any(), address.finalizers(), &address.spec);
    format!(
        "IPAddress {name}{deleting}: {}/{} of {} {}, gateway {:?}, claimRef {:?}, finalizers {finalizers:?}, owners \
         {owners:?}",
        spec.address,
        spec.prefix,
        spec.pool_ref.kind,
        spec.pool_ref.name,
        spec.gateway,
        spec.claim_ref.name,
    )
}

fn reason_of(condition: Option<&Condition>) -> Option<&str> {
    condition
        .and_then(|condition| condition.reason.as_deref())
        .filter(|reason| !reason.is_empty())
}

/// The canonical form of an address, so that two forms of one address are equal.
fn canonical(address: &str) -> String {
    address
        .parse::<IpAddr>()
        .map_or_else(|_| address.to_owned(), |address| address.to_string())
}

#[cfg(test)]
mod tests;
