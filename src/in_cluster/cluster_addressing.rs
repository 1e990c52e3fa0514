//! The controller of ClusterAddressings: creates the IPAddressClaims of the selected Clusters, and
//! writes their addresses into the Clusters when all of them are bound.
//!
//! What is done for a Cluster is decided by `plan`, a pure function, also for one that is being
//! created (`requested`). A Cluster that has its
//! addresses causes no request. The claims of a Cluster have a finalizer until the Cluster is gone,
//! so that no address is reused while machines of the Cluster can exist.

mod failures;
mod fields;
mod manifests;
mod plan;
mod record;
mod release;
mod requested;
mod seen;
mod status;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{AddressingItem, ClusterAddressing, conditions, names};
use capi_ipam_controller::client::{CallError, Creation, ResourceClient, error_chain};
use capi_ipam_controller::controller::{
    Action, Attempt, ControllerBuilder, Finalized, Protect, Protection, Reconciler, Store, Trigger,
    retry_write,
};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::EXPECTATION_TTL;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::patch;
use capi_ipam_controller::retry::Retry;
use capi_ipam_controller::watch::{WatchApi, WatchSpec};
use capi_ipam_provider::advanced::{ContractClient, ProviderSetup, Selection, StatusWriter};
use capi_ipam_provider::api::{AddressableCluster, IPAddressClaim};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, Selector, SelectorExt};
use kube::{Api, Client, Resource, ResourceExt};
use tracing::info;

use self::failures::{Failures, States};
use self::plan::{ItemClaim, Problem, Step, Versions, addressing_of, is_owned_by, is_unused, plan};
use self::record::{has_record, is_delivered, is_unfinished, item_names, recorded_names};
use self::release::Absences;
pub use self::requested::{Requested, RequestedClusters};
use self::seen::Seen;
use super::kinds::wait_for_optional_kind;
use super::options::InClusterOptions;
use super::readiness::Readiness;

/// The minimum interval between two writes of the counts of a status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// The number of Clusters of one ClusterAddressing that are processed at the same time.
const WORKERS: usize = 8;
/// How often it is checked, without a request, what no event may announce.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The delay after a conflict with another write, whose event comes soon.
const CONFLICT_DELAY: Duration = Duration::from_millis(250);
/// The index of ClusterAddressings by namespace.
const BY_NAMESPACE: &str = "namespace";

/// Adds the controller. It starts when the API server serves the kind. A kind that is not served, or
/// a missing permission, disturbs nothing else.
pub(super) fn start(
    setup: &mut ProviderSetup<'_>,
    options: &InClusterOptions,
    readiness: &Readiness,
) {
    let manager = &mut *setup.manager;
    let controller: ControllerBuilder<ClusterAddressing> = manager.controller("ClusterAddressing");
    readiness.add("ClusterAddressing", controller.store(), |addressing| {
        addressing
            .status
            .as_ref()
            .map_or(&[], |status| &status.conditions)
    });
    let reconciler = Arc::new(AddressingReconciler::new(
        manager,
        &setup.contract,
        &controller,
        options.sweep_grace,
    ));
    let interval = options.sweep_interval;
    let (client, stop) = (manager.client.clone(), manager.stop.clone());
    let (health, options) = (manager.health.optional(), manager.options.clone());
    let run = async move {
        let kind = ApiResource::erase::<ClusterAddressing>(&());
        let served = wait_for_optional_kind(&client, &kind);
        if stop.run_until_cancelled(served).await.is_none() {
            return;
        }
        let namespace = options.watched_namespace();
        let versions = reconciler.versions;
        let mut controller = controller;
        let gates = ["Cluster", "IPAddressClaim", "ClusterAddressing"]
            .map(|kind| health.register_watch(kind));
        let [clusters_listed, claims_listed, listed] = gates.clone();
        let clusters = WatchSpec::<AddressableCluster>::new(
            WatchApi::all_with(client.clone(), &versions.cluster).constrain(namespace),
            versions.cluster,
            Arc::clone(&reconciler.clusters) as _,
            clusters_listed,
        );
        // An annotation that is left out of the cache would be removed by a write.
        controller.watch(WatchSpec {
            trim: |_| {},
            ..clusters
        });
        let claims = WatchSpec::<IPAddressClaim>::new(
            WatchApi::all_with(client.clone(), &versions.ipam).constrain(namespace),
            versions.ipam,
            Arc::clone(&reconciler.claims) as _,
            claims_listed,
        );
        controller.watch(claims.labels(names::CLUSTER_ADDRESSING_LABEL));
        let main = WatchSpec::new(
            WatchApi::all_with(client, &()).constrain(namespace),
            (),
            Arc::new(()),
            listed,
        );
        let orphans = Arc::clone(&reconciler);
        let protect = names::PROTECT_CLUSTER_ADDRESSING;
        let reconciler = Arc::new(Finalized::new(SharedReconciler(reconciler), protect));
        tokio::select! {
            () = controller.run(main, stop, reconciler) => {}
            () = orphans.run_release_of_orphans(&gates, interval) => {}
        }
    };
    manager.add("the controller of ClusterAddressings", run);
}

struct AddressingReconciler {
    client: Client,
    contract: ContractClient,
    versions: Versions,
    selection: Selection,
    store: Store<ClusterAddressing>,
    clusters: Arc<Seen<AddressableCluster>>,
    claims: Arc<Seen<IPAddressClaim>>,
    absences: Absences,
    failures: Failures,
    status_writer: StatusWriter<ClusterAddressing>,
    events: EventPublisher,
}

/// What was done for one Cluster.
#[derive(Debug)]
struct Outcome {
    cluster: String,
    /// Whether the Cluster has its addresses.
    is_ready: bool,
    problem: Option<Problem>,
    /// When the Cluster is processed again, without a change.
    retry: Option<Duration>,
}

impl Outcome {
    /// Whether the Cluster has a problem with this reason.
    fn has_reason(&self, reason: &str) -> bool {
        let problem = self.problem.as_ref();
        problem.is_some_and(|problem| problem.reason == reason)
    }
}

impl AddressingReconciler {
    fn new(
        manager: &Manager,
        contract: &ContractClient,
        controller: &ControllerBuilder<ClusterAddressing>,
        grace: Duration,
    ) -> Self {
        let store = controller.store();
        store.index(BY_NAMESPACE, |addressing| {
            addressing.namespace().into_iter().collect()
        });
        let trigger = controller.trigger();
        let enqueue_all = move |cluster: &AddressableCluster| {
            let namespace = cluster.namespace().unwrap_or_default();
            for addressing in store.by(BY_NAMESPACE, &namespace) {
                trigger.enqueue(NamespacedName::of(&addressing.metadata));
            }
        };
        let trigger = controller.trigger();
        let enqueue_one = move |claim: &IPAddressClaim| enqueue_addressing(&trigger, claim);
        Self {
            client: manager.client.clone(),
            contract: contract.clone(),
            versions: Versions {
                cluster: contract.cluster,
                ipam: contract.ipam,
            },
            selection: Selection::of(&manager.options),
            store: controller.store(),
            clusters: Arc::new(Seen::new(is_relevant, enqueue_all)),
            claims: Arc::new(Seen::new(|_, _| true, enqueue_one)),
            absences: Absences::new(grace),
            failures: Failures::default(),
            status_writer: StatusWriter::new(
                manager.events.clone(),
                (),
                STATUS_INTERVAL,
                status::conditions_of,
                status::is_warning,
            ),
            events: manager.events.clone(),
        }
    }

    fn addressings(&self, namespace: &str) -> ResourceClient<ClusterAddressing> {
        let api = Api::namespaced(self.client.clone(), namespace);
        ResourceClient::new(api, &()).requiring_fields()
    }

    fn addressable_clusters(&self, namespace: &str) -> ResourceClient<AddressableCluster> {
        let version = &self.versions.cluster;
        let api = Api::all_with(self.client.clone(), version).constrain(namespace);
        ResourceClient::new(api, version)
    }

    fn config_maps(&self, namespace: &str) -> ResourceClient<ConfigMap> {
        let api = Api::namespaced(self.client.clone(), namespace);
        ResourceClient::new(api, &())
    }

    async fn reconcile_addressing(
        &self,
        addressing: &ClusterAddressing,
    ) -> Result<Action, CallError> {
        let key = NamespacedName::of(&addressing.metadata);
        let selected = status::validated(addressing);
        let mut outcomes: Vec<Outcome> = Vec::new();
        if let Ok(selector) = &selected {
            let clusters = self.selected(addressing, selector);
            let work = clusters
                .into_iter()
                .map(|cluster| async move { self.reconcile_cluster(addressing, &cluster).await });
            outcomes = futures::stream::iter(work)
                .buffered(WORKERS)
                .collect()
                .await;
        }
        let processed = outcomes.iter().map(|outcome| outcome.cluster.clone());
        self.failures.retain(&key, &processed.collect());
        let released = self.release_claims(&key, selected.as_ref().ok()).await;
        let is_in_use = released.kept > 0 || released.retry.is_some();
        if is_deleting(addressing) && !is_in_use && !self.has_claims(&key).await? {
            return Ok(Action::AwaitChange);
        }
        let known = selected.map(|_| &*outcomes);
        let wanted = status::status(addressing, &known, released.kept);
        let delay = self.write_status(addressing, wanted).await?;
        if let Some(error) = released.failure {
            return Err(error);
        }
        let retries = outcomes.iter().filter_map(|outcome| outcome.retry);
        let next = retries.chain(released.retry).chain(delay).min();
        Ok(match next {
            Some(delay) => Action::Requeue(delay),
            // It is being deleted, and waits for the Clusters.
            None if is_deleting(addressing) => Action::Requeue(CHECK_INTERVAL),
            None => Action::AwaitChange,
        })
    }

    /// The selected Clusters, and those that have a part of their addresses. None that is being
    /// deleted.
    fn selected(
        &self,
        addressing: &ClusterAddressing,
        selector: &Selector,
    ) -> Vec<Arc<AddressableCluster>> {
        let namespace = addressing.namespace().unwrap_or_default();
        self.clusters.select(&namespace, |cluster| {
            let is_selected = selector.matches(cluster.labels()) && !is_deleting(addressing);
            (is_selected || is_unfinished(cluster, addressing))
                && cluster.metadata.deletion_timestamp.is_none()
        })
    }

    async fn reconcile_cluster(
        &self,
        addressing: &ClusterAddressing,
        cluster: &AddressableCluster,
    ) -> Outcome {
        let name = cluster.name_any();
        let is_ready = is_delivered(cluster, addressing);
        let mut outcome = Outcome {
            cluster: name.clone(),
            is_ready,
            problem: None,
            retry: None,
        };
        let namespace = cluster.namespace().unwrap_or_default();
        if !self.clusters.is_current(&namespace, &name) {
            let why = "the Cluster cannot be decoded, and is not changed; correct it";
            outcome.problem = Some(Problem::new(conditions::UNDECODABLE, why));
            outcome.retry = Some(CHECK_INTERVAL);
            return outcome;
        }
        if cluster.is_paused() {
            outcome.problem = (!is_ready)
                .then(|| Problem::new(conditions::PAUSED_REASON, "the Cluster is paused"));
            return outcome;
        }
        let key = NamespacedName::of(&addressing.metadata);
        let states = States::of(addressing, cluster);
        if let Some((problem, left)) = self.failures.pending(&key, &name, &states, Instant::now()) {
            outcome.problem = Some(problem);
            outcome.retry = Some(left);
            return outcome;
        }
        let result = self.perform_steps(addressing, cluster, &mut outcome).await;
        if let Err(error) = &result {
            outcome.problem = Some(problem_of(error));
        }
        // No event announces that what was refused is accepted.
        let is_failed = result.is_err() || outcome.has_reason(conditions::DELIVERY_FAILED);
        match &outcome.problem {
            Some(problem) if is_failed => {
                let (problem, now) = (problem.clone(), Instant::now());
                let delay = self.failures.record(&key, &name, states, problem, now);
                outcome.retry = Some(delay);
            }
            _ => self.failures.end(&key, &name),
        }
        if outcome.has_reason(conditions::CLAIM_NAME_IN_USE) {
            // The claim can be one that is not watched.
            outcome.retry = outcome.retry.into_iter().chain([CHECK_INTERVAL]).min();
        }
        outcome
    }

    /// Performs the steps for a Cluster, and records whether it has its addresses, and the first
    /// problem.
    async fn perform_steps(
        &self,
        addressing: &ClusterAddressing,
        cluster: &AddressableCluster,
        outcome: &mut Outcome,
    ) -> Result<(), CallError> {
        let items = item_names(cluster, addressing);
        let claims = self.item_claims(addressing, cluster, &items).await?;
        for step in plan(cluster, addressing, &claims, self.versions, None) {
            let found = match step {
                Step::Report(problem) => Some(problem),
                Step::CreateClaim(claim) => Some(self.create_claim(&claim).await?),
                Step::ProtectClaim(change) => {
                    let (before, after) = &*change;
                    let namespace = before.namespace().unwrap_or_default();
                    let claims = self.contract.claims(&namespace);
                    if let Some(written) = patch::write(&claims, before, after).await? {
                        self.claims.record(&written);
                    }
                    None
                }
                Step::ReleaseClaim(unused) => {
                    let (problem, retry) = self.release_unused(cluster, &unused).await?;
                    outcome.retry = outcome.retry.into_iter().chain(retry).min();
                    Some(problem)
                }
                Step::CheckCluster(wanted) => {
                    let namespace = cluster.namespace().unwrap_or_default();
                    let clusters = self.addressable_clusters(&namespace).with_dry_run_patches();
                    patch::write(&clusters, cluster, wanted.as_ref()).await?;
                    None
                }
                Step::CreateConfigMap(config_map) => {
                    let conflict = self.create_config_map(&config_map).await?;
                    if conflict.is_some() {
                        // The Cluster is written only when everything else is.
                        outcome.problem = conflict;
                        return Ok(());
                    }
                    None
                }
                Step::WriteCluster(wanted) => {
                    self.write_cluster(cluster, &wanted).await?;
                    outcome.is_ready = true;
                    None
                }
            };
            let is_lost = |it: &Problem| it.reason == conditions::CLAIM_MISSING;
            outcome.is_ready &= !found.as_ref().is_some_and(is_lost);
            outcome.problem = outcome.problem.take().or(found);
        }
        Ok(())
    }

    /// The claims with the names of the items. The addresses are read when all claims are bound, as
    /// long as the Cluster does not have them.
    async fn item_claims<'a>(
        &self,
        addressing: &ClusterAddressing,
        cluster: &AddressableCluster,
        items: &'a BTreeSet<String>,
    ) -> Result<BTreeMap<&'a str, ItemClaim>, CallError> {
        let namespace = cluster.namespace().unwrap_or_default();
        let recorded = recorded_names(cluster, addressing);
        let is_delivered = is_delivered(cluster, addressing);
        let has_part = !is_delivered && has_record(&cluster.metadata, &addressing.name_any());
        let mut found = Vec::new();
        for item in items {
            let name = AddressingItem::claim_name(&cluster.name_any(), item);
            let known = self.claims.get(&namespace, &name);
            let mut claim = known.map(|claim| claim.as_ref().clone());
            // The webhook, in another process, can have created the claim of a new Cluster.
            if claim.is_none() && (has_part || recorded.contains(item)) {
                claim = self.contract.claims(&namespace).get(&name).await?;
            }
            found.push((item, claim));
        }
        let claims = claims_of_items(found.into_iter());
        let is_unused =
            |item: &str, known: &ItemClaim| is_unused(cluster, addressing, item, known, None);
        with_addresses(&self.contract, claims, is_unused, cluster, is_delivered).await
    }

    /// Creates a claim. Returns why the Cluster does not have its addresses yet.
    async fn create_claim(&self, claim: &IPAddressClaim) -> Result<Problem, CallError> {
        let (created, problem) = create_claim(&self.contract, claim).await?;
        if let Some(created) = created {
            // The watch has it, too, and the next plan decides whose it is.
            self.claims.record(&created);
        }
        Ok(problem)
    }

    /// Creates a ConfigMap. Returns why one with this name cannot be used.
    async fn create_config_map(&self, wanted: &ConfigMap) -> Result<Option<Problem>, CallError> {
        let namespace = wanted.namespace().unwrap_or_default();
        let config_maps = self.config_maps(&namespace);
        let found = match config_maps.create_or_find(wanted).await? {
            Creation::Created(_) => return Ok(None),
            Creation::Found(found) => config_maps.decoded(found)?,
        };
        let owner_of = |it: &ConfigMap| it.owner_references().first().map(|it| it.uid.clone());
        if owner_of(&found) == owner_of(wanted) && found.data == wanted.data {
            return Ok(None);
        }
        let why = format!(
            "ConfigMap {} exists with other content, or belongs to another Cluster; delete it",
            wanted.name_any()
        );
        Ok(Some(Problem::new(conditions::DELIVERY_FAILED, why)))
    }

    async fn write_cluster(
        &self,
        cluster: &AddressableCluster,
        wanted: &AddressableCluster,
    ) -> Result<(), CallError> {
        let namespace = cluster.namespace().unwrap_or_default();
        let clusters = self.addressable_clusters(&namespace);
        let Some(done) = patch::write(&clusters, cluster, wanted).await? else {
            return Ok(());
        };
        self.clusters.record(&done);
        info!(cluster = %NamespacedName::of(&done.metadata), "wrote the addresses of the Cluster");
        let reason = conditions::ADDRESSES_DELIVERED;
        let note = "wrote the addresses of the Cluster, see its annotations";
        self.events
            .normal(&done, &self.versions.cluster, reason, "Write", note);
        Ok(())
    }
}

/// The claims that exist, by the name of their item, without their addresses.
fn claims_of_items<'a>(
    found: impl Iterator<Item = (&'a String, Option<IPAddressClaim>)>,
) -> BTreeMap<&'a str, ItemClaim> {
    let mut claims = BTreeMap::new();
    for (item, claim) in found {
        if let Some(claim) = claim {
            let address = None;
            claims.insert(item.as_str(), ItemClaim { claim, address });
        }
    }
    claims
}

/// Reads the addresses that decide what is done. For a Cluster that has its addresses these are all
/// if a claim is not certain: its ConfigMaps can be missing. For others they are all if all claims
/// that are used are bound, and before those of the claims that are not certain.
async fn with_addresses<'a>(
    contract: &ContractClient,
    mut claims: BTreeMap<&'a str, ItemClaim>,
    is_unused: impl Fn(&str, &ItemClaim) -> bool,
    cluster: &AddressableCluster,
    is_delivered: bool,
) -> Result<BTreeMap<&'a str, ItemClaim>, CallError> {
    let needs_all = if is_delivered {
        !claims
            .values()
            .all(|known| is_certain(&known.claim, cluster))
    } else {
        let mut known = claims.iter();
        known.all(|(item, known)| known.is_bound() || is_unused(item, known))
    };
    for known in claims.values_mut() {
        let claim = &known.claim;
        if !needs_all && is_certain(claim, cluster) {
            continue;
        }
        if let Some(address) = claim.bound_address() {
            let addresses = contract.addresses(&claim.namespace().unwrap_or_default());
            let found = addresses.get(address).await?;
            known.address = found;
        }
    }
    Ok(claims)
}

/// Whether a claim is that of a Cluster, whatever its address is.
fn is_certain(claim: &IPAddressClaim, cluster: &AddressableCluster) -> bool {
    is_owned_by(claim, &cluster.metadata) && claim.metadata.deletion_timestamp.is_none()
}

/// Creates a claim. Returns it, unless another object has its name, and why the Cluster does not have
/// its addresses yet.
async fn create_claim(
    contract: &ContractClient,
    claim: &IPAddressClaim,
) -> Result<(Option<IPAddressClaim>, Problem), CallError> {
    let name = claim.name_any();
    let claims = contract.claims(&claim.namespace().unwrap_or_default());
    let found = match claims.create_or_find(claim).await? {
        Creation::Created(created) => created,
        Creation::Found(found) => claims.decoded(found)?,
    };
    if addressing_of(&found) != addressing_of(claim) {
        return Ok((None, Problem::name_in_use(&name)));
    }
    let why = "it is not bound yet";
    let problem = Problem::of_claim(conditions::ADDRESSES_PENDING, &name, why);
    Ok((Some(found), problem))
}

/// Enqueues the ClusterAddressing of a claim.
fn enqueue_addressing(trigger: &Trigger<ClusterAddressing>, claim: &IPAddressClaim) {
    if let Some(addressing) = addressing_of(claim) {
        let namespace = claim.namespace().unwrap_or_default();
        trigger.enqueue(NamespacedName::new(&namespace, addressing));
    }
}

/// The problem of a Cluster after a failed request.
fn problem_of(error: &CallError) -> Problem {
    if error.is_conflict() {
        let why = "the Cluster or an IPAddressClaim has changed meanwhile";
        return Problem::new(conditions::ADDRESSES_PENDING, why);
    }
    Problem::new(conditions::DELIVERY_FAILED, error_chain(error))
}

/// Whether a change of a Cluster is more than one of its status.
fn is_relevant(before: &AddressableCluster, after: &AddressableCluster) -> bool {
    let metadata = |cluster: &AddressableCluster| {
        let metadata = &cluster.metadata;
        (
            metadata.uid.clone(),
            metadata.labels.clone(),
            metadata.annotations.clone(),
            metadata.deletion_timestamp.clone(),
        )
    };
    before.spec != after.spec || metadata(before) != metadata(after)
}

fn is_deleting(addressing: &ClusterAddressing) -> bool {
    addressing.meta().deletion_timestamp.is_some()
}

/// The reconciler, which the watches of the controller share.
struct SharedReconciler(Arc<AddressingReconciler>);

impl Reconciler for SharedReconciler {
    type Object = ClusterAddressing;
    type State = ();
    type Error = CallError;

    fn retry(&self, error: &CallError, failures: u32) -> Retry {
        retry_write(error, failures)
    }

    async fn reconcile(
        &self,
        addressing: Arc<ClusterAddressing>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let result = self.0.reconcile_addressing(&addressing).await;
        self.0
            .status_writer
            .conclude(&addressing, result, attempt, CONFLICT_DELAY)
    }
}

impl Protect for SharedReconciler {
    fn objects(&self, addressing: &ClusterAddressing) -> ResourceClient<ClusterAddressing> {
        self.0
            .addressings(&addressing.namespace().unwrap_or_default())
    }

    fn protection(&self, addressing: &ClusterAddressing) -> Protection {
        if !self.0.selection.includes(addressing) {
            return Protection::Postponed(Action::AwaitChange);
        }
        if self.0.status_writer.is_stale(addressing) {
            return Protection::Postponed(Action::Requeue(EXPECTATION_TTL));
        }
        Protection::Managed
    }

    fn protected(&self, addressing: &ClusterAddressing) {
        self.0.status_writer.expect(addressing);
    }
}
