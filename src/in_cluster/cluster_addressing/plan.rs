//! What is to be done for one Cluster: a pure function of the Cluster, its ClusterAddressing and
//! its IPAddressClaims.
//!
//! Nothing is written before all claims are bound, and the Cluster is written at once. A field that
//! has a value is never changed. An annotation on the Cluster records what was written; a Cluster
//! that has it is only compared with it.

use std::collections::BTreeMap;

use capi_ipam_api::conditions;
use capi_ipam_api::{
    AddressFormat, AddressingItem, ClusterAddressing, Destination, PoolKey, names,
};
use capi_ipam_controller::finalizer;
use capi_ipam_provider::api::names::{
    CLUSTER_GROUP, CLUSTER_NAME_LABEL, CLUSTER_REQUESTED, WATCH_FILTER_LABEL,
};
use capi_ipam_provider::api::{
    AddressableCluster, ContractVersion, IPAddress, IPAddressClaim, IPAddressClaimSpec,
    PoolReference,
};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::fields;
use super::manifests::{Allocated, add_values, allocated, manifest};
use super::record::{
    ITEM_PREFIX, Record, SET_BY_USER, UNFINISHED, annotation, drift, has_record, record,
    recorded_items,
};

/// A value that shows whether a field can be written.
const ANY_VALUE: &str = "0.0.0.0";

/// The IPAddressClaim with the name of an item, and the IPAddress to which it is bound.
#[derive(Clone, Debug, Default)]
pub(super) struct ItemClaim {
    pub(super) claim: IPAddressClaim,
    pub(super) address: Option<IPAddress>,
}

impl ItemClaim {
    pub(super) fn is_bound(&self) -> bool {
        self.claim.bound_address().is_some()
    }

    /// What is allocated; `None` if the address is not known or not valid.
    fn allocated(&self) -> Option<Allocated> {
        let address = self.address.as_ref()?;
        let spec = &address.spec;
        let list = |annotation| {
            let listed = address.annotations().get(annotation)?;
            Some(listed.split(',').map(str::to_owned).collect())
        };
        Some(Allocated {
            dns_servers: list(names::DNS_SERVERS_ANNOTATION).unwrap_or_default(),
            search_domains: list(names::SEARCH_DOMAINS_ANNOTATION).unwrap_or_default(),
            ..allocated(&spec.address, spec.prefix, self.has_prefix()?)?
        })
    }

    /// Whether a Cluster has the address.
    fn is_used_by(&self, cluster: &AddressableCluster) -> bool {
        let allocated = self.allocated();
        allocated.is_some_and(|allocated| is_used_by(&allocated, cluster))
    }

    /// Whether a Cluster can have the address: it has, or the address is not known.
    pub(super) fn may_be_used_by(&self, cluster: &AddressableCluster) -> bool {
        match self.allocated() {
            Some(allocated) => is_used_by(&allocated, cluster),
            None => self.is_bound(),
        }
    }

    /// Whether a prefix is allocated; `None` if the pool is not known.
    fn has_prefix(&self) -> Option<bool> {
        let pool = PoolKey::of_address(self.address.as_ref()?)?;
        Some(pool.kind.has_prefixes())
    }

    /// Why the address cannot be written into the targets of its item.
    fn mismatch(&self, item: &AddressingItem) -> Option<&'static str> {
        let has_prefix = self.has_prefix()?;
        item.destinations()
            .find_map(|destination| destination.mismatch(has_prefix))
    }
}

/// One step. The steps of a plan are performed in their order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Create an IPAddressClaim.
    CreateClaim(Box<IPAddressClaim>),
    /// Write the finalizer or the owner of an IPAddressClaim: its state before and after.
    ProtectClaim(Box<(IPAddressClaim, IPAddressClaim)>),
    /// Release an IPAddressClaim that the Cluster does not use: delete it, or remove its finalizer
    /// if it is being deleted. The Cluster can use it if one of the ConfigMaps exists.
    ReleaseClaim(Box<UnusedClaim>),
    /// Check whether the API server accepts the Cluster that is written last.
    CheckCluster(Box<AddressableCluster>),
    /// Create a ConfigMap.
    CreateConfigMap(Box<ConfigMap>),
    /// Write the Cluster.
    WriteCluster(Box<AddressableCluster>),
    /// Report a problem. The plan has no further step for this item.
    Report(Problem),
}

/// An IPAddressClaim that a Cluster does not use.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UnusedClaim {
    pub(super) claim: IPAddressClaim,
    /// The names of the ConfigMaps that can have its address.
    pub(super) config_maps: Vec<String>,
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

    /// A problem of an IPAddressClaim with this name.
    pub(super) fn of_claim(reason: &str, name: &str, why: &str) -> Self {
        Self::new(reason, format!("IPAddressClaim {name}: {why}"))
    }

    /// An IPAddressClaim with the name of an item is that of somebody else.
    pub(super) fn name_in_use(name: &str) -> Self {
        let why = "it was not created for this Cluster and item; rename one of them";
        Self::of_claim(conditions::CLAIM_NAME_IN_USE, name, why)
    }
}

/// The versions of the contract in which objects are read and written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Versions {
    pub(super) cluster: ContractVersion,
    pub(super) ipam: ContractVersion,
}

/// The steps for a Cluster that is selected. `claims` has the claims that have the name of an item,
/// by the name of the item; the items are those of [`item_names`]. `request` is that to create the
/// Cluster; none if the Cluster exists.
pub(super) fn plan(
    cluster: &AddressableCluster,
    addressing: &ClusterAddressing,
    claims: &BTreeMap<&str, ItemClaim>,
    versions: Versions,
    request: Option<&str>,
) -> Vec<Step> {
    let planner = Planner {
        cluster,
        addressing,
        record: record(cluster, addressing),
        versions,
        request,
    };
    let mut steps = Vec::new();
    let mut owned = Vec::new();
    for (item, known) in claims {
        let Some(write) = planner.protect(item, known) else {
            continue;
        };
        let gets_finalizer = write.finalizers() != known.claim.finalizers();
        let step = Step::ProtectClaim(Box::new((known.claim.clone(), write)));
        if gets_finalizer {
            steps.push(step);
        } else {
            owned.push(step);
        }
    }
    // A claim without owner shows that the ConfigMaps can be missing. No address waits for them.
    if let Record::Written(written) = &planner.record {
        steps.extend(planner.restore_config_maps(written, claims));
    }
    steps.extend(owned);
    match &planner.record {
        Record::Missing => steps.extend(planner.allocate(claims)),
        Record::Invalid => {
            let message = format!(
                "the annotation {} is not a record of addresses; remove it, and it is written again",
                annotation(&addressing.name_any())
            );
            let problem = Problem::new(conditions::DELIVERY_FAILED, message);
            steps.push(Step::Report(problem));
        }
        Record::Unfinished(written) => {
            let problems = planner.differences(written, claims);
            if problems.is_empty() {
                steps.extend(planner.allocate(claims));
            }
            steps.extend(problems.into_iter().map(Step::Report));
        }
        Record::Written(written) => {
            let problems = planner.differences(written, claims);
            steps.extend(problems.into_iter().map(Step::Report));
            if request.is_none() {
                steps.extend(planner.release_late_claims(claims));
            }
        }
    }
    steps
}

/// The name of the ClusterAddressing for which a claim was created.
pub(super) fn addressing_of(claim: &IPAddressClaim) -> Option<&str> {
    let label = claim.labels().get(names::CLUSTER_ADDRESSING_LABEL);
    label.map(String::as_str)
}

/// Whether a claim is that of a Cluster with this metadata: the Cluster owns it, or has its address.
/// A Cluster that was restored or created again with its addresses has another uid than the owner.
pub(super) fn is_claim_of(claim: &IPAddressClaim, cluster: &ObjectMeta) -> bool {
    owner(claim).is_none()
        || is_owned_by(claim, cluster)
        || has_record(cluster, addressing_of(claim).unwrap_or_default())
}

/// Whether a Cluster with this metadata owns a claim.
pub(super) fn is_owned_by(claim: &IPAddressClaim, cluster: &ObjectMeta) -> bool {
    owner(claim).is_some_and(|owner| Some(&owner.uid) == cluster.uid.as_ref())
}

/// Whether a claim has the finalizer, and so its address whoever deletes the claim.
fn is_protected(claim: &IPAddressClaim) -> bool {
    finalizer::is_set(claim, names::PROTECT_CLUSTER_ADDRESS)
}

/// Whether any field of a Cluster has an address.
fn is_used_by(allocated: &Allocated, cluster: &AddressableCluster) -> bool {
    let formats = [
        allocated.address(),
        allocated.cidr(),
        allocated.range(),
        allocated.text(),
    ];
    let spec = json!(cluster.spec);
    has_text(&spec, &formats)
}

/// Whether a value has one of these texts.
fn has_text(value: &Value, texts: &[String]) -> bool {
    match value {
        Value::String(found) => texts.contains(found),
        Value::Array(values) => values.iter().any(|value| has_text(value, texts)),
        Value::Object(fields) => fields.values().any(|value| has_text(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether the user has written the fields of an item, so that it needs no claim: the request to
/// create the Cluster, or the record of the Cluster, has other values than the address of the claim.
/// A Cluster without a record can have the address that a claim had before a restore.
pub(super) fn is_unused(
    cluster: &AddressableCluster,
    addressing: &ClusterAddressing,
    item: &str,
    known: &ItemClaim,
    request: Option<&str>,
) -> bool {
    let is_by_user = match record(cluster, addressing) {
        Record::Missing => request.is_some(),
        Record::Invalid => false,
        Record::Unfinished(written) | Record::Written(written) => {
            let value = written.get(&format!("{ITEM_PREFIX}{item}"));
            value.is_some_and(|value| value == SET_BY_USER)
        }
    };
    let mut items = addressing.spec.items.iter();
    let item = items.find(|known| known.name == item);
    is_by_user && item.is_some_and(|item| is_set_by_user(cluster, item, known.allocated().as_ref()))
}

/// Whether all targets of an item are fields with values, other than its address if that is known.
fn is_set_by_user(
    cluster: &AddressableCluster,
    item: &AddressingItem,
    allocated: Option<&Allocated>,
) -> bool {
    item.destinations().all(|destination| match destination {
        Destination::Field { field, format, .. } => {
            let ours = allocated.and_then(|allocated| fields::text(&value(allocated, format)));
            let found = fields::read(cluster, &field);
            found.is_some() && found != ours
        }
        Destination::Resource(_) => false,
    })
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
    /// It has another address than the one that the Cluster has by its record.
    OtherAddress,
    /// It was created for this Cluster, and claims from another pool than that of the item.
    OtherPool,
    Other,
}

/// What is known of an item.
enum ItemState {
    /// The user has written the fields of the Cluster, and no claim is needed.
    SetByUser,
    Bound(Allocated),
    /// This step is needed first; without a step, another item needs one.
    Missing(Option<Step>),
}

struct Planner<'a> {
    cluster: &'a AddressableCluster,
    addressing: &'a ClusterAddressing,
    record: Record,
    versions: Versions,
    /// The request to create the Cluster; none if it exists.
    request: Option<&'a str>,
}

impl Planner<'_> {
    /// In what a Cluster differs from the record of its addresses.
    fn differences(
        &self,
        written: &BTreeMap<String, String>,
        claims: &BTreeMap<&str, ItemClaim>,
    ) -> Vec<Problem> {
        let lost = self.lost_claims(written, claims);
        let changed = drift(self.cluster, written).map(|changed| {
            let message = format!("{changed}; the field is not changed back");
            Problem::new(conditions::ADDRESS_CHANGED, message)
        });
        lost.into_iter().chain(changed).collect()
    }

    /// The steps for a Cluster that does not have its addresses.
    fn allocate(&self, claims: &BTreeMap<&str, ItemClaim>) -> Vec<Step> {
        if let Some(problem) = self.unwritable() {
            return vec![Step::Report(problem)];
        }
        let all_bound = claims
            .iter()
            .all(|(item, known)| known.is_bound() || self.is_unused(item, known));
        let mut steps = Vec::new();
        let mut settled = Vec::new();
        for item in &self.addressing.spec.items {
            match self.item(item, claims.get(item.name.as_str()), all_bound) {
                ItemState::SetByUser => settled.push((item, None)),
                ItemState::Bound(allocated) => settled.push((item, Some(allocated))),
                ItemState::Missing(step) => steps.extend(step),
            }
        }
        if settled.len() < self.addressing.spec.items.len() {
            return steps;
        }
        let is_unused = |(item, allocated): &(&AddressingItem, Option<Allocated>)| {
            allocated.is_none() && claims.contains_key(item.name.as_str())
        };
        let has_unused = settled.iter().any(is_unused);
        match self.deliver(&settled, has_unused) {
            Ok(delivery) => steps.extend(delivery),
            Err(problem) => steps.push(Step::Report(problem)),
        }
        steps
    }

    /// Why a field cannot be written, whatever the address is: found before claims are created.
    fn unwritable(&self) -> Option<Problem> {
        let mut copy = self.cluster.clone();
        for item in &self.addressing.spec.items {
            for destination in item.destinations() {
                let Destination::Field { field, port, .. } = destination else {
                    continue;
                };
                if fields::read(self.cluster, &field).is_some() {
                    continue;
                }
                if let Err(error) = fields::write(&mut copy, &field, &json!(ANY_VALUE), port) {
                    let message = format!("item {}: {error}", item.name);
                    return Some(Problem::new(conditions::VALUE_PRESENT, message));
                }
            }
        }
        None
    }

    /// `all_bound` is whether all claims of the Cluster are bound: then their addresses are read.
    fn item(&self, item: &AddressingItem, known: Option<&ItemClaim>, all_bound: bool) -> ItemState {
        let Some(known) = known else {
            return self.unclaimed(item);
        };
        let claim = &known.claim;
        let is_terminating = claim.metadata.deletion_timestamp.is_some();
        let may_be_used = self.has_record() || known.may_be_used_by(self.cluster);
        let problem = match self.ownership(&item.name, known) {
            Ownership::Ours | Ownership::Unowned | Ownership::OtherPool
                if is_terminating && !may_be_used =>
            {
                return self.terminating(claim);
            }
            Ownership::Ours | Ownership::Unowned => return self.claimed(item, known, all_bound),
            Ownership::PreviousCluster => {
                let why =
                    "it belongs to an earlier Cluster of this name, and has to be released first";
                Problem::of_claim(conditions::ADDRESSES_PENDING, &claim.name_any(), why)
            }
            Ownership::OtherPool => {
                let why = format!(
                    "it claims from {}, and item {} from {}; delete it, and it is created again",
                    pool_name(&claim.spec.pool_ref),
                    item.name,
                    pool_name(&item.pool_ref)
                );
                Problem::of_claim(conditions::CLAIM_NAME_IN_USE, &claim.name_any(), &why)
            }
            Ownership::OtherAddress => self.lost(&[claim.name_any()]),
            Ownership::Other => Problem::name_in_use(&claim.name_any()),
        };
        ItemState::Missing(Some(Step::Report(problem)))
    }

    /// An item whose claim is being deleted before its address is written. Another claim follows.
    fn terminating(&self, claim: &IPAddressClaim) -> ItemState {
        let is_releasable = self.request.is_none() && is_protected(claim);
        let step = if is_releasable {
            self.release(claim)
        } else {
            let why = "it is being deleted";
            let name = claim.name_any();
            Step::Report(Problem::of_claim(conditions::ADDRESSES_PENDING, &name, why))
        };
        ItemState::Missing(Some(step))
    }

    fn release(&self, claim: &IPAddressClaim) -> Step {
        let items = self.addressing.spec.items.iter();
        let names = items.flat_map(|item| self.config_map_names(item));
        Step::ReleaseClaim(Box::new(UnusedClaim {
            claim: claim.clone(),
            config_maps: names.collect(),
        }))
    }

    /// An item with a claim of the Cluster.
    fn claimed(&self, item: &AddressingItem, known: &ItemClaim, all_bound: bool) -> ItemState {
        let claim = &known.claim;
        if !known.is_bound() && self.is_unused(&item.name, known) {
            return self.unused(claim);
        }
        let name = claim.name_any();
        let waits = |reason: &str, why: &str| {
            let problem = Problem::of_claim(reason, &name, why);
            ItemState::Missing(Some(Step::Report(problem)))
        };
        if known.address.is_none() {
            if all_bound {
                return waits(conditions::DELIVERY_FAILED, "its IPAddress does not exist");
            }
            if known.is_bound() {
                return ItemState::Missing(None);
            }
            let (reason, why) = self.reason_of(claim);
            return waits(&reason, &why);
        }
        let Some(allocated) = known.allocated() else {
            return waits(conditions::DELIVERY_FAILED, "its IPAddress is not valid");
        };
        if is_set_by_user(self.cluster, item, Some(&allocated)) {
            return self.unused(claim);
        }
        match known.mismatch(item) {
            Some(why) => waits(conditions::DELIVERY_FAILED, why),
            None => ItemState::Bound(allocated),
        }
    }

    /// An item whose fields the user has written, and whose claim the Cluster does not use. The
    /// controller releases it when the Cluster exists.
    fn unused(&self, claim: &IPAddressClaim) -> ItemState {
        match self.request {
            Some(_) => ItemState::SetByUser,
            None => ItemState::Missing(Some(self.release(claim))),
        }
    }

    /// Creates the ConfigMaps of a Cluster that was created again with its addresses: those of the
    /// earlier Cluster are gone with it. Its claims show whether it was: they are not owned yet.
    fn restore_config_maps(
        &self,
        written: &BTreeMap<String, String>,
        claims: &BTreeMap<&str, ItemClaim>,
    ) -> Vec<Step> {
        let is_new =
            |(item, known): (&&str, &ItemClaim)| self.ownership(item, known) == Ownership::Unowned;
        if self.request.is_some() || !claims.iter().any(is_new) {
            return Vec::new();
        }
        let mut settled = Vec::new();
        for item in &self.addressing.spec.items {
            let known = claims.get(item.name.as_str());
            match written.get(&format!("{ITEM_PREFIX}{}", item.name)) {
                // It was added after the delivery.
                None => {}
                Some(address) if address == SET_BY_USER => settled.push((item, None)),
                Some(_) => match known.and_then(ItemClaim::allocated) {
                    Some(allocated) => settled.push((item, Some(allocated))),
                    None => return Vec::new(),
                },
            }
        }
        let config_maps = self.config_maps(&settled).into_iter().map(Box::new);
        config_maps.map(Step::CreateConfigMap).collect()
    }

    /// Releases claims that the API server has created late, for items of which the Cluster has values
    /// of the user. What is bound stays: its address is not read.
    fn release_late_claims(&self, claims: &BTreeMap<&str, ItemClaim>) -> Vec<Step> {
        let mut steps = Vec::new();
        for (item, known) in claims {
            if self.is_ours(item, known) && !known.is_bound() && self.is_unused(item, known) {
                steps.push(self.release(&known.claim));
            }
        }
        steps
    }

    fn is_unused(&self, item: &str, known: &ItemClaim) -> bool {
        is_unused(self.cluster, self.addressing, item, known, self.request)
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
            return ItemState::SetByUser;
        }
        if present.is_empty() {
            let claim = Box::new(self.new_claim(item));
            return ItemState::Missing(Some(Step::CreateClaim(claim)));
        }
        let message = format!(
            "item {}: {} already, and other targets have no address; remove the value, or write all of them",
            item.name,
            present.join(", ")
        );
        let problem = Problem::new(conditions::VALUE_PRESENT, message);
        ItemState::Missing(Some(Step::Report(problem)))
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

    /// Whether a claim belongs to the Cluster, as that of an item. Before the delivery it has to
    /// claim from the pool of the item. A later change of the item does not matter to a claim that
    /// was created by this controller.
    fn ownership(&self, item: &str, known: &ItemClaim) -> Ownership {
        let claim = &known.claim;
        let metadata = &self.cluster.metadata;
        let is_for_us = addressing_of(claim) == self.addressing.metadata.name.as_deref()
            && claim.cluster_name() == metadata.name.as_deref();
        if !is_for_us {
            return Ownership::Other;
        }
        if !is_claim_of(claim, metadata) && !known.is_used_by(self.cluster) {
            return Ownership::PreviousCluster;
        }
        if let (Some(recorded), Some(allocated)) = (self.recorded(item), known.allocated())
            && recorded != allocated.text()
        {
            return Ownership::OtherAddress;
        }
        let is_owned = is_owned_by(claim, metadata);
        let is_created_by_us = is_owned || is_protected(claim);
        let is_used = self.has_record() && is_created_by_us;
        let mut items = self.addressing.spec.items.iter();
        let is_of_pool =
            items.any(|known| known.name == item && known.pool_ref == claim.spec.pool_ref);
        if !is_of_pool && !is_used {
            Ownership::OtherPool
        } else if is_owned {
            Ownership::Ours
        } else {
            Ownership::Unowned
        }
    }

    fn is_ours(&self, item: &str, known: &ItemClaim) -> bool {
        let ownership = self.ownership(item, known);
        matches!(ownership, Ownership::Ours | Ownership::Unowned)
    }

    /// The address of an item that the Cluster has by its record.
    fn recorded(&self, item: &str) -> Option<&str> {
        let (Record::Unfinished(written) | Record::Written(written)) = &self.record else {
            return None;
        };
        let address = written.get(&format!("{ITEM_PREFIX}{item}"))?;
        (address != SET_BY_USER).then_some(address)
    }

    fn has_record(&self) -> bool {
        has_record(&self.cluster.metadata, &self.addressing.name_any())
    }

    /// A claim with the finalizer that it lacks, and then with the owner, or with the request to
    /// create its Cluster. The API server accepts no finalizer for a claim that is being deleted.
    fn protect(&self, item: &str, known: &ItemClaim) -> Option<IPAddressClaim> {
        let claim = &known.claim;
        if self.request.is_some() && self.is_unused(item, known) {
            return None;
        }
        let ownership = self.ownership(item, known);
        if !matches!(ownership, Ownership::Ours | Ownership::Unowned) {
            return None;
        }
        // Whether it has the address of the Cluster is not known yet.
        let is_unchecked = ownership == Ownership::Unowned && known.address.is_none();
        if self.request.is_none() && is_unchecked && self.recorded(item).is_some() {
            return None;
        }
        let is_terminating = claim.metadata.deletion_timestamp.is_some();
        if is_terminating && !self.has_record() {
            return None;
        }
        let mut wanted = claim.clone();
        let has_finalizer = is_terminating || is_protected(claim);
        if !has_finalizer {
            let finalizer = names::PROTECT_CLUSTER_ADDRESS.to_owned();
            wanted.finalizers_mut().push(finalizer);
        }
        match self.request {
            // The Cluster has no uid yet. A claim that changes is not released by a decision that
            // was made before.
            Some(request) => {
                let annotations = wanted.annotations_mut();
                annotations.insert(CLUSTER_REQUESTED.to_owned(), request.to_owned());
            }
            // The annotation stays: the request can still succeed if this Cluster is deleted.
            None if has_finalizer && ownership == Ownership::Unowned => {
                let owners = wanted.owner_references_mut();
                owners.retain(|owner| !is_cluster(owner));
                owners.extend(self.owner());
            }
            None => {}
        }
        (wanted != *claim).then_some(wanted)
    }

    /// The items whose addresses the Cluster has although their claims are not those of the
    /// Cluster.
    fn lost_claims(
        &self,
        written: &BTreeMap<String, String>,
        claims: &BTreeMap<&str, ItemClaim>,
    ) -> Option<Problem> {
        let is_lost = |item: &&str| match claims.get(*item) {
            Some(known) => !self.is_ours(item, known),
            None => true,
        };
        let cluster = self.cluster.name_any();
        let lost = recorded_items(written).filter(is_lost);
        let lost: Vec<String> = lost
            .map(|item| AddressingItem::claim_name(&cluster, item))
            .collect();
        (!lost.is_empty()).then(|| self.lost(&lost))
    }

    /// The Cluster has addresses that these claims do not have.
    fn lost(&self, claims: &[String]) -> Problem {
        let message = format!(
            "the Cluster has addresses without its IPAddressClaim {}, and they can be allocated to others; clear the \
             fields, and remove the annotation {}",
            claims.join(", "),
            annotation(&self.addressing.name_any())
        );
        Problem::new(conditions::CLAIM_MISSING, message)
    }

    /// The Cluster as an owner. It does not block the deletion of the Cluster: the claim waits for
    /// it. None if it is being created.
    fn owner(&self) -> Option<OwnerReference> {
        Some(OwnerReference {
            api_version: format!("{CLUSTER_GROUP}/{}", self.versions.cluster.as_str()),
            kind: "Cluster".to_owned(),
            name: self.cluster.name_any(),
            uid: self.cluster.uid()?,
            ..OwnerReference::default()
        })
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
        let requested = |request: &str| (CLUSTER_REQUESTED.to_owned(), request.to_owned());
        let annotations = self
            .request
            .map(|request| BTreeMap::from([requested(request)]));
        IPAddressClaim {
            metadata: ObjectMeta {
                name: Some(AddressingItem::claim_name(&cluster, &item.name)),
                labels: Some(labels),
                annotations,
                // Not that of the provider: it means that the claim has had an address.
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
            owner_references: self.owner().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        }
    }

    /// Writes all addresses. The Cluster is last: its annotation says that everything is written.
    /// A Cluster that is being created cannot own ConfigMaps, and its annotation says so.
    /// `settled` are all items, with what is allocated unless the user has written their fields;
    /// `has_unused` is whether one of these has a claim.
    ///
    /// # Errors
    /// If a field has another value, or cannot be written: then nothing is.
    fn deliver(
        &self,
        settled: &[(&AddressingItem, Option<Allocated>)],
        has_unused: bool,
    ) -> Result<Vec<Step>, Problem> {
        let mut config_maps = self.config_maps(settled);
        let is_unfinished = self.request.is_some() && (!config_maps.is_empty() || has_unused);
        let wanted = self.with_addresses(settled, is_unfinished)?;
        if self.request.is_some() {
            config_maps.clear();
        }
        let mut steps = Vec::new();
        if !config_maps.is_empty() {
            steps.push(Step::CheckCluster(Box::new(wanted.clone())));
        }
        let boxed = config_maps.into_iter().map(Box::new);
        steps.extend(boxed.map(Step::CreateConfigMap));
        steps.push(Step::WriteCluster(Box::new(wanted)));
        Ok(steps)
    }

    /// The Cluster with all addresses and their record, to which the ConfigMaps have to be added if
    /// it is unfinished.
    fn with_addresses(
        &self,
        settled: &[(&AddressingItem, Option<Allocated>)],
        is_unfinished: bool,
    ) -> Result<AddressableCluster, Problem> {
        let mut wanted = self.cluster.clone();
        let mut written = BTreeMap::new();
        for (item, allocated) in settled {
            let key = format!("{ITEM_PREFIX}{}", item.name);
            let Some(allocated) = allocated else {
                written.insert(key, SET_BY_USER.to_owned());
                continue;
            };
            written.insert(key, allocated.text());
            for destination in item.destinations() {
                let Destination::Field {
                    field,
                    format,
                    port,
                } = destination
                else {
                    continue;
                };
                let value = value(allocated, format);
                let text = fields::text(&value).unwrap_or_default();
                fields::write(&mut wanted, &field, &value, port).map_err(|error| {
                    let message = format!("item {} has {text}, and {error}", item.name);
                    Problem::new(conditions::VALUE_PRESENT, message)
                })?;
                written.insert(field.to_string(), text);
            }
        }
        if is_unfinished {
            written.insert(UNFINISHED.to_owned(), "at creation".to_owned());
        }
        let record = json!(written).to_string();
        let annotations = wanted.annotations_mut();
        annotations.insert(annotation(&self.addressing.name_any()), record);
        Ok(wanted)
    }

    fn config_maps(&self, settled: &[(&AddressingItem, Option<Allocated>)]) -> Vec<ConfigMap> {
        let values = self.values(settled);
        let mut config_maps = Vec::new();
        for (item, allocated) in settled {
            let Some(allocated) = allocated else {
                continue;
            };
            let names = self.config_map_names(item);
            for (name, resource) in names.zip(item.resources()) {
                let manifest = manifest(resource, &item.name, allocated, &values);
                config_maps.push(self.config_map(name, &manifest.to_string()));
            }
        }
        config_maps
    }

    /// The names of the ConfigMaps of an item, in the order of its resources.
    fn config_map_names(&self, item: &AddressingItem) -> impl Iterator<Item = String> {
        let claim = AddressingItem::claim_name(&self.cluster.name_any(), &item.name);
        let resources = item.resources();
        resources.map(move |resource| format!("{claim}-{}", resource.name().to_lowercase()))
    }

    /// The addresses of all items, also of those that the user has written.
    fn values(&self, settled: &[(&AddressingItem, Option<Allocated>)]) -> Map<String, Value> {
        let mut values = Map::new();
        for (item, known) in settled {
            if let Some(known) = known {
                add_values(&mut values, &item.name, known);
                continue;
            }
            let found = item
                .destinations()
                .find_map(|destination| match destination {
                    Destination::Field { field, .. } => fields::read(self.cluster, &field),
                    Destination::Resource(_) => None,
                });
            let found = found.unwrap_or_default();
            match prefix_of(&found) {
                Some(prefix) => add_values(&mut values, &item.name, &prefix),
                None => drop(values.insert(format!("{}.address", item.name), found.into())),
            }
        }
        values
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

/// What is allocated, as it is written.
fn value(allocated: &Allocated, format: AddressFormat) -> Value {
    match format {
        AddressFormat::Address => json!(allocated.address()),
        AddressFormat::Cidr => json!(allocated.cidr()),
        AddressFormat::Range => json!(allocated.range()),
        AddressFormat::DnsServers => json!(allocated.dns_servers),
        AddressFormat::SearchDomains => json!(allocated.search_domains),
    }
}

/// The prefix in CIDR notation that a user has written; `None` for any other text.
fn prefix_of(text: &str) -> Option<Allocated> {
    let (address, prefix) = text.split_once('/')?;
    allocated(address, prefix.parse().ok()?, true)
}

fn pool_name(pool: &PoolReference) -> String {
    format!("{} {}", pool.kind, pool.name)
}

#[cfg(test)]
mod tests;
