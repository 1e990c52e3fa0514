//! The controller of ClusterAddressings: creates the IPAddressClaims of the selected Clusters, and
//! writes their addresses into the Clusters when all of them are bound.
//!
//! What is done for a Cluster is decided by `plan`, a pure function. A Cluster that has its
//! addresses causes no request. The claims of a Cluster have a finalizer until the Cluster is gone,
//! so that no address is reused while machines of the Cluster can exist.

mod fields;
mod manifests;
mod plan;
mod release;
mod seen;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{ClusterAddressing, conditions, names};
use capi_ipam_controller::client::{CallError, Creation, ResourceClient, error_chain};
use capi_ipam_controller::controller::{
    Action, Attempt, Conflicts, ControllerBuilder, Finalized, Protect, Protection, Reconciler,
    Trigger,
};
use capi_ipam_controller::discovery::is_served;
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::EXPECTATION_TTL;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::patch;
use capi_ipam_controller::watch::{WatchApi, WatchSpec};
use capi_ipam_provider::advanced::{ContractClient, ProviderSetup, Selection, StatusWriter};
use capi_ipam_provider::api::{AddressableCluster, IPAddressClaim};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{Selector, SelectorExt};
use kube::{Api, Client, Resource, ResourceExt};
use tracing::{info, warn};

use self::plan::{ItemClaim, Problem, Step, Versions, plan, written};
use self::seen::Seen;

/// The minimum interval between two writes of the counts of a status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// The number of Clusters of one ClusterAddressing that are processed at the same time.
const WORKERS: usize = 8;
/// The delay before a Cluster is processed again after a failed request.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// The delay after a conflict with another write, whose event comes soon.
const CONFLICT_DELAY: Duration = Duration::from_millis(250);
/// How often it is checked whether the kind is served.
const SERVED_INTERVAL: Duration = Duration::from_secs(10);
/// The index of ClusterAddressings by namespace.
const BY_NAMESPACE: &str = "namespace";

/// Adds the controller. It starts when the API server serves the kind, and its absence disturbs
/// nothing else.
pub(super) fn start(setup: &mut ProviderSetup<'_>) {
    let manager = &mut *setup.manager;
    let controller: ControllerBuilder<ClusterAddressing> = manager.controller("ClusterAddressing");
    let reconciler = Arc::new(AddressingReconciler::new(
        manager,
        &setup.contract,
        &controller,
    ));
    let (client, stop) = (manager.client.clone(), manager.stop.clone());
    let (health, options) = (manager.health.clone(), manager.options.clone());
    let run = async move {
        let served = wait_until_served(&client);
        if stop.run_until_cancelled(served).await.is_none() {
            return;
        }
        let namespace = options.watched_namespace();
        let versions = reconciler.versions;
        let mut controller = controller;
        let clusters = WatchSpec::<AddressableCluster>::new(
            WatchApi::all_with(client.clone(), &versions.cluster).constrain(namespace),
            versions.cluster,
            Arc::clone(&reconciler.clusters) as _,
            health.register_watch("Cluster"),
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
            health.register_watch("IPAddressClaim"),
        );
        controller.watch(claims.labels(names::CLUSTER_ADDRESSING_LABEL));
        let main = WatchSpec::new(
            WatchApi::all_with(client, &()).constrain(namespace),
            (),
            Arc::new(()),
            health.register_watch("ClusterAddressing"),
        );
        let protect = names::PROTECT_CLUSTER_ADDRESSING;
        let reconciler = Arc::new(Finalized::new(SharedReconciler(reconciler), protect));
        controller.run(main, stop, reconciler).await;
    };
    manager.add("the controller of ClusterAddressings", run);
}

/// Waits until the API server serves the kind.
async fn wait_until_served(client: &Client) {
    let mut is_reported = false;
    loop {
        match is_served(client, names::GROUP, "ClusterAddressing").await {
            Ok(true) => return,
            Ok(false) if !is_reported => {
                is_reported = true;
                warn!(
                    "the API server does not serve ClusterAddressings: no Cluster gets addresses; install the \
                     CustomResourceDefinition clusteraddressings.ipam.cluster.x-k8s.io"
                );
            }
            Ok(false) => {}
            Err(error) => warn!(
                error = error_chain(&error),
                "cannot find out whether ClusterAddressings are served, will retry"
            ),
        }
        tokio::time::sleep(SERVED_INTERVAL).await;
    }
}

struct AddressingReconciler {
    client: Client,
    contract: ContractClient,
    versions: Versions,
    selection: Selection,
    clusters: Arc<Seen<AddressableCluster>>,
    claims: Arc<Seen<IPAddressClaim>>,
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
            clusters: Arc::new(Seen::new(is_relevant, enqueue_all)),
            claims: Arc::new(Seen::new(|_, _| true, enqueue_one)),
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

    async fn reconcile_addressing(
        &self,
        addressing: &ClusterAddressing,
    ) -> Result<Action, CallError> {
        let selected = status::validated(addressing);
        let mut outcomes = Vec::new();
        if let Ok(selector) = &selected
            && !is_deleting(addressing)
        {
            let clusters = self.selected(addressing, selector);
            let work = clusters
                .into_iter()
                .map(|cluster| async move { self.reconcile_cluster(addressing, &cluster).await });
            outcomes = futures::stream::iter(work)
                .buffered(WORKERS)
                .collect()
                .await;
        }
        let released = self.release_claims(addressing).await?;
        let is_in_use = released.kept > 0 || released.retry.is_some();
        if is_deleting(addressing) && !is_in_use && !self.has_claims(addressing).await? {
            return Ok(Action::AwaitChange);
        }
        let known = selected.map(|_| &*outcomes);
        let wanted = status::status(addressing, &known, released.kept);
        let delay = self.write_status(addressing, wanted).await?;
        let retries = outcomes.iter().filter_map(|outcome| outcome.retry);
        let next = retries.chain(released.retry).chain(delay).min();
        Ok(match next {
            Some(delay) => Action::Requeue(delay),
            // It is being deleted, and waits for the Clusters.
            None if is_deleting(addressing) => Action::Requeue(RETRY_DELAY),
            None => Action::AwaitChange,
        })
    }

    /// The selected Clusters, apart from those that are being deleted.
    fn selected(
        &self,
        addressing: &ClusterAddressing,
        selector: &Selector,
    ) -> Vec<Arc<AddressableCluster>> {
        let namespace = addressing.namespace().unwrap_or_default();
        self.clusters.select(&namespace, |cluster| {
            selector.matches(cluster.labels()) && cluster.metadata.deletion_timestamp.is_none()
        })
    }

    async fn reconcile_cluster(
        &self,
        addressing: &ClusterAddressing,
        cluster: &AddressableCluster,
    ) -> Outcome {
        let name = cluster.name_any();
        let is_ready = written(cluster, addressing).is_some();
        let mut outcome = Outcome {
            cluster: name,
            is_ready,
            problem: None,
            retry: None,
        };
        if cluster.is_paused() {
            outcome.problem = (!is_ready)
                .then(|| Problem::new(conditions::PAUSED_REASON, "the Cluster is paused"));
            return outcome;
        }
        match self.give_addresses(addressing, cluster).await {
            Ok((is_ready, problem)) => {
                outcome.is_ready = is_ready;
                outcome.problem = problem;
            }
            Err(error) if error.is_conflict() => {
                let why = "the Cluster or an IPAddressClaim has changed meanwhile";
                outcome.problem = Some(Problem::new(conditions::ADDRESSES_PENDING, why));
                outcome.retry = Some(CONFLICT_DELAY);
            }
            Err(error) => {
                let why = error_chain(&error);
                outcome.problem = Some(Problem::new(conditions::DELIVERY_FAILED, why));
                outcome.retry = Some(RETRY_DELAY);
            }
        }
        outcome
    }

    /// Performs the steps for a Cluster. Returns whether it has its addresses, and the first
    /// problem.
    async fn give_addresses(
        &self,
        addressing: &ClusterAddressing,
        cluster: &AddressableCluster,
    ) -> Result<(bool, Option<Problem>), CallError> {
        let claims = self.item_claims(addressing, cluster).await?;
        let mut is_ready = written(cluster, addressing).is_some();
        let mut problem = None;
        for step in plan(cluster, addressing, &claims, self.versions) {
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
                Step::CreateConfigMap(config_map) => {
                    let conflict = self.create_config_map(&config_map).await?;
                    if conflict.is_some() {
                        // The Cluster is written only when everything else is.
                        return Ok((false, conflict));
                    }
                    None
                }
                Step::WriteCluster(wanted) => {
                    self.write_cluster(cluster, &wanted).await?;
                    is_ready = true;
                    None
                }
            };
            problem = problem.or(found);
        }
        Ok((is_ready, problem))
    }

    /// The claims with the names of the items. The addresses are read as long as the Cluster does
    /// not have them.
    async fn item_claims<'a>(
        &self,
        addressing: &'a ClusterAddressing,
        cluster: &AddressableCluster,
    ) -> Result<BTreeMap<&'a str, ItemClaim>, CallError> {
        let namespace = cluster.namespace().unwrap_or_default();
        let needs_addresses = written(cluster, addressing).is_none();
        let mut claims = BTreeMap::new();
        for item in &addressing.spec.items {
            let name = item.claim_name(&cluster.name_any());
            let Some(claim) = self.claims.get(&namespace, &name) else {
                continue;
            };
            let mut known = ItemClaim {
                claim: claim.as_ref().clone(),
                address: None,
            };
            if let Some(address) = claim.bound_address()
                && needs_addresses
            {
                let addresses = self.contract.addresses(&namespace);
                let found = addresses.get(address).await?;
                known.address = found.map(|found| found.spec);
            }
            claims.insert(item.name.as_str(), known);
        }
        Ok(claims)
    }

    /// Creates a claim. Returns why the Cluster does not have its addresses yet.
    async fn create_claim(&self, claim: &IPAddressClaim) -> Result<Problem, CallError> {
        let namespace = claim.namespace().unwrap_or_default();
        let name = claim.name_any();
        let claims = self.contract.claims(&namespace);
        let found = match claims.create_or_find(claim).await? {
            Creation::Created(created) => created,
            Creation::Found(found) => claims.decoded(found)?,
        };
        let label = found.labels().get(names::CLUSTER_ADDRESSING_LABEL);
        if label == claim.labels().get(names::CLUSTER_ADDRESSING_LABEL) {
            self.claims.record(&found);
            let why = format!("IPAddressClaim {name}: it is not bound yet");
            return Ok(Problem::new(conditions::ADDRESSES_PENDING, why));
        }
        let why = format!(
            "IPAddressClaim {name} exists, and was not created for this Cluster; rename one of them"
        );
        Ok(Problem::new(conditions::CLAIM_NAME_IN_USE, why))
    }

    /// Creates a ConfigMap. Returns why one with this name cannot be used.
    async fn create_config_map(&self, wanted: &ConfigMap) -> Result<Option<Problem>, CallError> {
        let namespace = wanted.namespace().unwrap_or_default();
        let api = Api::namespaced(self.client.clone(), &namespace);
        let config_maps = ResourceClient::<ConfigMap>::new(api, &());
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

/// Enqueues the ClusterAddressing of a claim.
fn enqueue_addressing(trigger: &Trigger<ClusterAddressing>, claim: &IPAddressClaim) {
    if let Some(addressing) = claim.labels().get(names::CLUSTER_ADDRESSING_LABEL) {
        let namespace = claim.namespace().unwrap_or_default();
        trigger.enqueue(NamespacedName::new(&namespace, addressing));
    }
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
    type State = Conflicts;
    type Error = CallError;

    async fn reconcile(
        &self,
        addressing: Arc<ClusterAddressing>,
        attempt: &mut Attempt<Conflicts>,
    ) -> Result<Action, CallError> {
        let result = self.0.reconcile_addressing(&addressing).await;
        if let Err(error) = &result {
            self.0.status_writer.failed(&addressing, error, attempt);
        }
        attempt.conclude(is_deleting(&addressing), result, CONFLICT_DELAY)
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
        let expectations = self.0.status_writer.expectations();
        if expectations.is_stale(addressing, Instant::now()) {
            return Protection::Postponed(Action::Requeue(EXPECTATION_TTL));
        }
        Protection::Managed
    }

    fn protected(&self, addressing: &ClusterAddressing) {
        let expectations = self.0.status_writer.expectations();
        expectations.expect(addressing, Instant::now());
    }
}
