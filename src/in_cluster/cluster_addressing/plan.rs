//! What is to be done for one Cluster: a pure function of the Cluster, its ClusterAddressing and
//! its IPAddressClaims.
//!
//! All items are written or none: nothing is written before all claims are bound. A field that has
//! a value is never changed. An annotation on the Cluster records what was written; a Cluster that
//! has it is only compared with it.

use std::collections::BTreeMap;

use capi_ipam_api::conditions;
use capi_ipam_api::{
    AddressFormat, AddressingItem, ClusterAddressing, ClusterField, Destination, names,
};
use capi_ipam_controller::finalizer;
use capi_ipam_provider::api::names::{CLUSTER_GROUP, CLUSTER_NAME_LABEL, WATCH_FILTER_LABEL};
use capi_ipam_provider::api::{
    AddressableCluster, ContractVersion, IPAddressClaim, IPAddressClaimSpec, IPAddressSpec,
};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

use super::fields;
use super::manifests::{Allocated, allocated, manifest};

/// The IPAddressClaim with the name of an item, and the IPAddress to which it is bound.
#[derive(Clone, Debug, Default)]
pub(super) struct ItemClaim {
    pub(super) claim: IPAddressClaim,
    pub(super) address: Option<IPAddressSpec>,
}

/// One step. The steps of a plan are performed in their order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Create an IPAddressClaim.
    CreateClaim(Box<IPAddressClaim>),
    /// Write the owner and the finalizer of an IPAddressClaim: its state before and after.
    ProtectClaim(Box<(IPAddressClaim, IPAddressClaim)>),
    /// Create a ConfigMap.
    CreateConfigMap(Box<ConfigMap>),
    /// Write the Cluster.
    WriteCluster(Box<AddressableCluster>),
    /// Report a problem. The plan has no further step for this item.
    Report(Problem),
}

/// Why a Cluster does not have its addresses, or not those that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: String,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(reason: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// The versions of the contract in which objects are read and written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Versions {
    pub(super) cluster: ContractVersion,
    pub(super) ipam: ContractVersion,
}

/// The steps for a Cluster that is selected. `claims` has the claims that have the name of an item,
/// by the name of the item.
pub(super) fn plan(
    cluster: &AddressableCluster,
    addressing: &ClusterAddressing,
    claims: &BTreeMap<&str, ItemClaim>,
    versions: Versions,
) -> Vec<Step> {
    let planner = Planner {
        cluster,
        addressing,
        versions,
    };
    let items = &addressing.spec.items;
    let known = items
        .iter()
        .filter_map(|item| claims.get(item.name.as_str()));
    let mut steps: Vec<Step> = known
        .filter_map(|known| planner.protect(&known.claim))
        .collect();
    if let Some(written) = written(cluster, addressing) {
        steps.extend(drift(cluster, &written).map(Step::Report));
        steps.extend(planner.lost_claims(&written, claims).map(Step::Report));
        return steps;
    }
    let mut bound: Vec<(&AddressingItem, Allocated)> = Vec::new();
    let mut is_complete = true;
    for item in items {
        match planner.item(item, claims.get(item.name.as_str())) {
            ItemState::Given => {}
            ItemState::Bound(allocated) => bound.push((item, allocated)),
            ItemState::Missing(step) => {
                is_complete = false;
                steps.push(step);
            }
        }
    }
    if is_complete {
        match planner.deliver(&bound) {
            Ok(delivery) => steps.extend(delivery),
            Err(problem) => steps.push(Step::Report(problem)),
        }
    }
    steps
}

/// What was written into a Cluster, by field; `None` before that.
pub(super) fn written(
    cluster: &AddressableCluster,
    addressing: &ClusterAddressing,
) -> Option<BTreeMap<String, String>> {
    let text = cluster.annotations().get(&annotation(addressing))?;
    // A text that is not valid still says that the addresses were written.
    Some(serde_json::from_str(text).unwrap_or_default())
}

/// The name of the annotation that records what was written.
fn annotation(addressing: &ClusterAddressing) -> String {
    format!(
        "{}{}",
        names::DELIVERED_ANNOTATION_PREFIX,
        addressing.name_any()
    )
}

/// The fields of a Cluster that do not have the value that was written.
fn drift(cluster: &AddressableCluster, written: &BTreeMap<String, String>) -> Option<Problem> {
    let mut changed = Vec::new();
    for (text, expected) in written {
        let Some(field) = ClusterField::parse(text) else {
            continue;
        };
        let found = fields::read(cluster, &field);
        if found.as_ref() != Some(expected) {
            let found = found.unwrap_or_else(|| "empty".to_owned());
            changed.push(format!("{field} is {found}, not {expected}"));
        }
    }
    if changed.is_empty() {
        return None;
    }
    let message = format!("{}; the field is not changed back", changed.join("; "));
    Some(Problem::new(conditions::ADDRESS_CHANGED, message))
}

/// Whether a claim is that of a Cluster with this metadata: the Cluster owns it, or has its address.
/// A Cluster that was restored or created again with its addresses has another uid than the owner.
pub(super) fn is_claim_of(
    claim: &IPAddressClaim,
    cluster: &ObjectMeta,
    addressing: &ClusterAddressing,
) -> bool {
    let is_owner = owner(claim).is_none_or(|owner| Some(&owner.uid) == cluster.uid.as_ref());
    let annotations = cluster.annotations.as_ref();
    is_owner || annotations.is_some_and(|all| all.contains_key(&annotation(addressing)))
}

/// Whether an IPAddressClaim belongs to a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    Ours,
    /// It was created for this Cluster, and no Cluster owns it, or a former one whose addresses
    /// this Cluster has.
    Unowned,
    /// An earlier Cluster of the same name owns it.
    PreviousCluster,
    Other,
}

/// What is known of an item.
enum ItemState {
    /// The user has written the fields of the Cluster, and no claim is needed.
    Given,
    Bound(Allocated),
    Missing(Step),
}

struct Planner<'a> {
    cluster: &'a AddressableCluster,
    addressing: &'a ClusterAddressing,
    versions: Versions,
}

impl Planner<'_> {
    fn item(&self, item: &AddressingItem, known: Option<&ItemClaim>) -> ItemState {
        let Some(known) = known else {
            return self.unclaimed(item);
        };
        let name = known.claim.name_any();
        let waits = |reason: &str, why: &str| {
            let message = format!("IPAddressClaim {name}: {why}");
            ItemState::Missing(Step::Report(Problem::new(reason, message)))
        };
        match self.ownership(&known.claim) {
            Ownership::Ours | Ownership::Unowned => {}
            Ownership::PreviousCluster => {
                let why =
                    "it belongs to an earlier Cluster of this name, and has to be released first";
                return waits(conditions::ADDRESSES_PENDING, why);
            }
            Ownership::Other => {
                let why = "it was not created for this Cluster and item; rename one of them";
                return waits(conditions::CLAIM_NAME_IN_USE, why);
            }
        }
        if known.claim.metadata.deletion_timestamp.is_some() {
            return waits(conditions::ADDRESSES_PENDING, "it is being deleted");
        }
        let Some(address) = &known.address else {
            let (reason, why) = self.reason_of(&known.claim);
            return waits(&reason, &why);
        };
        match allocated(&address.address, address.prefix, item.has_prefix()) {
            Some(allocated) => ItemState::Bound(allocated),
            None => waits(conditions::DELIVERY_FAILED, "its IPAddress is not valid"),
        }
    }

    /// An item without a claim. It needs one if a field is empty. If only some fields are, the
    /// address could not be written into the others.
    fn unclaimed(&self, item: &AddressingItem) -> ItemState {
        let mut empty = 0_usize;
        let mut present = Vec::new();
        for destination in item.destinations() {
            match destination {
                Destination::Field { field, .. } => match fields::read(self.cluster, &field) {
                    Some(value) => present.push(format!("{field} is {value}")),
                    None => empty = empty.saturating_add(1),
                },
                Destination::Resource(_) => empty = empty.saturating_add(1),
            }
        }
        if empty == 0 {
            return ItemState::Given;
        }
        if present.is_empty() {
            return ItemState::Missing(Step::CreateClaim(Box::new(self.new_claim(item))));
        }
        let message = format!(
            "item {}: {} already, and other targets have no address; remove the value, or write all of them",
            item.name,
            present.join(", ")
        );
        ItemState::Missing(Step::Report(Problem::new(
            conditions::VALUE_PRESENT,
            message,
        )))
    }

    /// Why a claim is not bound.
    fn reason_of(&self, claim: &IPAddressClaim) -> (String, String) {
        let status = claim.status.as_ref();
        let list = status.map(|status| status.conditions(self.versions.ipam));
        let ready = list.and_then(|list| conditions::find(list, conditions::READY));
        let ready = ready.filter(|ready| ready.status != "True");
        let reason = ready.and_then(|ready| ready.reason.as_deref());
        let message = ready.and_then(|ready| ready.message.as_deref());
        (
            reason.unwrap_or(conditions::ADDRESSES_PENDING).to_owned(),
            message.unwrap_or("it is not bound yet").to_owned(),
        )
    }

    fn ownership(&self, claim: &IPAddressClaim) -> Ownership {
        let label = claim.labels().get(names::CLUSTER_ADDRESSING_LABEL);
        let is_for_us = label.map(String::as_str) == self.addressing.metadata.name.as_deref()
            && claim.cluster_name() == self.cluster.metadata.name.as_deref();
        if !is_for_us {
            return Ownership::Other;
        }
        match owner(claim) {
            Some(owner) if Some(&owner.uid) == self.cluster.metadata.uid.as_ref() => {
                Ownership::Ours
            }
            Some(_) if !is_claim_of(claim, &self.cluster.metadata, self.addressing) => {
                Ownership::PreviousCluster
            }
            Some(_) | None => Ownership::Unowned,
        }
    }

    /// Writes the owner and the finalizer of a claim that lacks one of them.
    fn protect(&self, claim: &IPAddressClaim) -> Option<Step> {
        let ownership = self.ownership(claim);
        let is_ours = matches!(ownership, Ownership::Ours | Ownership::Unowned);
        let has_finalizer = finalizer::is_set(claim, names::PROTECT_CLUSTER_ADDRESS);
        let is_complete = ownership == Ownership::Ours && has_finalizer;
        if !is_ours || is_complete || claim.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let mut wanted = claim.clone();
        if ownership == Ownership::Unowned {
            let owners = wanted.owner_references_mut();
            owners.retain(|owner| !is_cluster(owner));
            owners.push(self.owner());
        }
        if !has_finalizer {
            let finalizer = names::PROTECT_CLUSTER_ADDRESS.to_owned();
            wanted.finalizers_mut().push(finalizer);
        }
        Some(Step::ProtectClaim(Box::new((claim.clone(), wanted))))
    }

    /// The items whose addresses the Cluster has although their claims are not those of the
    /// Cluster.
    fn lost_claims(
        &self,
        written: &BTreeMap<String, String>,
        claims: &BTreeMap<&str, ItemClaim>,
    ) -> Option<Problem> {
        let mut lost = Vec::new();
        for item in &self.addressing.spec.items {
            let known = claims.get(item.name.as_str());
            let ownership = known.map(|known| self.ownership(&known.claim));
            if matches!(ownership, Some(Ownership::Ours | Ownership::Unowned)) {
                continue;
            }
            let is_written = item.destinations().any(|destination| match destination {
                Destination::Field { field, .. } => written.contains_key(&field.to_string()),
                Destination::Resource(_) => false,
            });
            if is_written {
                lost.push(item.claim_name(&self.cluster.name_any()));
            }
        }
        if lost.is_empty() {
            return None;
        }
        let message = format!(
            "the Cluster has addresses without its IPAddressClaim {}, and they can be allocated to others; clear the              fields, and remove the annotation {}",
            lost.join(", "),
            annotation(self.addressing)
        );
        Some(Problem::new(conditions::CLAIM_MISSING, message))
    }

    /// The Cluster as an owner. It does not block the deletion of the Cluster: the claim waits for
    /// it.
    fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: format!("{CLUSTER_GROUP}/{}", self.versions.cluster.as_str()),
            kind: "Cluster".to_owned(),
            name: self.cluster.name_any(),
            uid: self.cluster.uid().unwrap_or_default(),
            ..OwnerReference::default()
        }
    }

    fn new_claim(&self, item: &AddressingItem) -> IPAddressClaim {
        let cluster = self.cluster.name_any();
        let addressing = self.addressing.name_any();
        let mut labels = BTreeMap::from([
            (CLUSTER_NAME_LABEL.to_owned(), cluster.clone()),
            (names::CLUSTER_ADDRESSING_LABEL.to_owned(), addressing),
        ]);
        // The manager that creates the claim reconciles it.
        if let Some(filter) = self.addressing.labels().get(WATCH_FILTER_LABEL) {
            labels.insert(WATCH_FILTER_LABEL.to_owned(), filter.clone());
        }
        IPAddressClaim {
            metadata: ObjectMeta {
                name: Some(item.claim_name(&cluster)),
                labels: Some(labels),
                finalizers: Some(vec![names::PROTECT_CLUSTER_ADDRESS.to_owned()]),
                ..self.owned()
            },
            spec: IPAddressClaimSpec {
                cluster_name: Some(cluster),
                pool_ref: item.pool_ref.clone(),
            },
            ..IPAddressClaim::default()
        }
    }

    /// The metadata of an object of the Cluster.
    fn owned(&self) -> ObjectMeta {
        ObjectMeta {
            namespace: self.cluster.namespace(),
            owner_references: Some(vec![self.owner()]),
            ..ObjectMeta::default()
        }
    }

    /// Writes all addresses. The Cluster is last: its annotation says that everything is written.
    ///
    /// # Errors
    /// If a field has another value, or cannot be written: then nothing is.
    fn deliver(&self, bound: &[(&AddressingItem, Allocated)]) -> Result<Vec<Step>, Problem> {
        let mut wanted = self.cluster.clone();
        let mut written = BTreeMap::new();
        let mut steps = Vec::new();
        let named = bound
            .iter()
            .map(|(item, it)| (item.name.as_str(), it.clone()));
        let all: Vec<(&str, Allocated)> = named.collect();
        for (item, allocated) in bound {
            for destination in item.destinations() {
                match destination {
                    Destination::Resource(resource) => {
                        let name = format!(
                            "{}-{}",
                            item.claim_name(&self.cluster.name_any()),
                            resource.name().to_lowercase()
                        );
                        let manifest = manifest(resource, &item.name, allocated, &all);
                        let config_map = self.config_map(name, &manifest.to_string());
                        steps.push(Step::CreateConfigMap(Box::new(config_map)));
                    }
                    Destination::Field {
                        field,
                        format,
                        port,
                    } => {
                        let value = match format {
                            AddressFormat::Address => allocated.address(),
                            AddressFormat::Cidr => allocated.cidr(),
                            AddressFormat::Range => allocated.range(),
                        };
                        fields::write(&mut wanted, &field, &value, port).map_err(|error| {
                            let message = format!("item {} has {value}, and {error}", item.name);
                            Problem::new(conditions::VALUE_PRESENT, message)
                        })?;
                        written.insert(field.to_string(), value);
                    }
                }
            }
        }
        let record = serde_json::json!(written).to_string();
        let annotations = wanted.annotations_mut();
        annotations.insert(annotation(self.addressing), record);
        steps.push(Step::WriteCluster(Box::new(wanted)));
        Ok(steps)
    }

    fn config_map(&self, name: String, manifest: &str) -> ConfigMap {
        let labels = BTreeMap::from([
            (CLUSTER_NAME_LABEL.to_owned(), self.cluster.name_any()),
            (
                names::CLUSTER_ADDRESSING_LABEL.to_owned(),
                self.addressing.name_any(),
            ),
        ]);
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name),
                labels: Some(labels),
                ..self.owned()
            },
            data: Some(BTreeMap::from([(
                "manifest.yaml".to_owned(),
                manifest.to_owned(),
            )])),
            ..ConfigMap::default()
        }
    }
}

/// The Cluster that owns a claim.
pub(super) fn owner(claim: &IPAddressClaim) -> Option<&OwnerReference> {
    let owners = claim.owner_references();
    owners.iter().find(|owner| is_cluster(owner))
}

fn is_cluster(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split('/').next();
    owner.kind == "Cluster" && group == Some(CLUSTER_GROUP)
}

#[cfg(test)]
mod tests;
