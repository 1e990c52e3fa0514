//! Writes the addresses of a Cluster into the request that creates it, so that they are there when
//! Cluster API validates the Cluster.
//!
//! The steps are those of `plan`. The claims have no owner before the Cluster exists: the controller
//! adds it, or releases them if the API server refuses the Cluster. What cannot be done in time is
//! left to the controller, so an error here never prevents the creation of a Cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{ClusterAddressing, conditions, names};
use capi_ipam_controller::client::{CallError, ResourceClient, error_chain};
use capi_ipam_controller::health::Health;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::options::Options;
use capi_ipam_controller::patch;
use capi_ipam_controller::watch::{WatchApi, WatchSpec, watch_into};
use capi_ipam_provider::advanced::{ContractClient, Selection};
use capi_ipam_provider::api::{AddressableCluster, IPAddressClaim};
use futures::StreamExt as _;
use futures::future::try_join_all;
use kube::core::SelectorExt;
use kube::{Api, Client, ResourceExt};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::plan::{ItemClaim, Problem, Step, Versions, is_unused, plan};
use super::record::{is_delivered, item_names};
use super::waiting::WaitingRequests;
use super::{AddressingItem, claims_of_items, create_claim, is_deleting, with_addresses};

/// How long a request waits for its addresses, after it has waited for its memory. The API server
/// waits for 5 s.
const MAX_WAIT: Duration = Duration::from_millis(3500);
/// How long a request waits for an address that a pool does not have: another Cluster may return one.
const EXHAUSTED_WAIT: Duration = Duration::from_secs(1);
/// The reasons of claims for which a Cluster is refused. What another reason asks for can be done when
/// the Cluster exists.
const NO_FREE_ADDRESS: [&str; 4] = [
    conditions::POOL_EXHAUSTED,
    conditions::QUOTA_EXCEEDED,
    conditions::NO_FREE_SLICE,
    conditions::SLICE_LIMIT,
];
/// The reasons for which it is of no use to wait.
const LASTING: [&str; 3] = [
    conditions::VALUE_PRESENT,
    conditions::CLAIM_NAME_IN_USE,
    conditions::FAILURE_DOMAIN_UNKNOWN,
];
const NO_RESPONSE: &str = "the API server does not respond";
/// How often the claims are read that no event announces, such as while the watch is interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The delay after a conflict with another write.
const CONFLICT_DELAY: Duration = Duration::from_millis(20);

/// Decides on requests to create Clusters. It runs on all replicas.
pub struct RequestedClusters {
    client: Client,
    health: Health,
    selection: Selection,
    /// The namespace of the Clusters; empty for all.
    namespace: String,
    contract: OnceCell<ContractClient>,
    waiting: Arc<WaitingRequests>,
}

/// A Cluster as the API server is to store it.
#[derive(Debug)]
pub struct Requested {
    /// The Cluster, with its addresses unless they are delivered later.
    pub cluster: AddressableCluster,
    /// The warnings that the client shows.
    pub warnings: Vec<String>,
}

/// Why a Cluster cannot be created.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("ClusterAddressing {addressing}: {message}")]
pub struct Refusal {
    addressing: String,
    message: String,
}

/// What is known after the steps that are possible at present.
enum Progress {
    /// The Cluster has all addresses.
    Delivered(Box<AddressableCluster>),
    /// These problems are left.
    Waiting(Vec<Problem>),
}

/// What became of the addresses of a Cluster.
enum Delivery {
    /// The Cluster has all of them.
    Done(Box<AddressableCluster>),
    /// The controller delivers them, for this reason.
    Later(String),
}

impl RequestedClusters {
    /// Creates it, without a request.
    pub fn new(client: Client, health: Health, options: &Options) -> Self {
        Self {
            client,
            health,
            selection: Selection::of(options),
            namespace: options.watched_namespace().to_owned(),
            contract: OnceCell::new(),
            waiting: Arc::default(),
        }
    }

    /// Watches the claims of Clusters until `stop`, so that [`Self::deliver`] responds as soon as
    /// they are bound.
    pub async fn watch_claims(self: Arc<Self>, stop: CancellationToken) {
        let watch = async {
            let version = self.contract().await.ipam;
            let claims = WatchSpec::<IPAddressClaim>::new(
                WatchApi::all_with(self.client.clone(), &version).constrain(&self.namespace),
                version,
                Arc::clone(&self.waiting) as _,
                self.health.register_watch("IPAddressClaim"),
            );
            let claims = claims.labels(names::CLUSTER_ADDRESSING_LABEL);
            watch_into(claims).for_each(|()| ready(())).await;
        };
        let _ = stop.run_until_cancelled(Box::pin(watch)).await;
        stop.cancelled().await;
    }

    /// Returns a Cluster with the addresses of the ClusterAddressings that select it. `cluster` has
    /// a namespace. `request` is unique for each request; none for a dry run, which writes nothing.
    ///
    /// # Errors
    /// If the Cluster cannot have its addresses before somebody changes something.
    pub async fn deliver(
        &self,
        cluster: AddressableCluster,
        request: Option<&str>,
    ) -> Result<Requested, Refusal> {
        let mut requested = Requested {
            cluster,
            warnings: Vec::new(),
        };
        let name = requested.cluster.metadata.name.as_deref();
        if name.is_none_or(str::is_empty) || requested.cluster.is_paused() {
            return Ok(requested);
        }
        let deadline = Instant::now() + MAX_WAIT;
        let addressings = match timeout_at(deadline, self.addressings(&requested.cluster)).await {
            Ok(Ok(addressings)) => addressings,
            Ok(Err(error)) => {
                requested.leave_to_controller("ClusterAddressings", &error_chain(&error));
                return Ok(requested);
            }
            Err(_) => {
                requested.leave_to_controller("ClusterAddressings", NO_RESPONSE);
                return Ok(requested);
            }
        };
        for addressing in addressings {
            if is_delivered(&requested.cluster, &addressing) {
                self.keep_claims(deadline, &addressing, &requested.cluster, request)
                    .await;
                continue;
            }
            let name = addressing.name_any();
            let Some(request) = request else {
                let text = format!("ClusterAddressing {name}: a dry run allocates no addresses");
                requested.warnings.push(text);
                continue;
            };
            let attempt = self.deliver_before(deadline, &addressing, &requested.cluster, request);
            match attempt.await? {
                Delivery::Done(delivered) => requested.cluster = *delivered,
                Delivery::Later(why) => {
                    let addressing = format!("ClusterAddressing {name}");
                    requested.leave_to_controller(&addressing, &why);
                }
            }
        }
        Ok(requested)
    }

    /// The valid ClusterAddressings that select a Cluster, by name.
    async fn addressings(
        &self,
        cluster: &AddressableCluster,
    ) -> Result<Vec<ClusterAddressing>, CallError> {
        let namespace = cluster.namespace().unwrap_or_default();
        let api = Api::namespaced(self.client.clone(), &namespace);
        let mut found = ResourceClient::<ClusterAddressing>::new(api, &())
            .list()
            .await?;
        found.retain(|addressing| {
            let selector = super::status::validated(addressing);
            let is_selected = selector.is_ok_and(|selector| selector.matches(cluster.labels()));
            is_selected && !is_deleting(addressing) && self.selection.includes(addressing)
        });
        found.sort_unstable_by_key(ResourceExt::name_any);
        Ok(found)
    }

    /// Adds the addresses of a ClusterAddressing to a Cluster.
    async fn deliver_before(
        &self,
        deadline: Instant,
        addressing: &ClusterAddressing,
        cluster: &AddressableCluster,
        request: &str,
    ) -> Result<Delivery, Refusal> {
        let cluster_name = NamespacedName::of(&cluster.metadata);
        let changed = self.waiting.add(cluster_name);
        let mut exhausted_since = None;
        let mut why = NO_RESPONSE.to_owned();
        loop {
            let attempt = self.perform_steps(addressing, cluster, request);
            let problems = match timeout_at(deadline, attempt).await {
                Ok(Ok(Progress::Delivered(delivered))) => return Ok(Delivery::Done(delivered)),
                Ok(Ok(Progress::Waiting(problems))) => problems,
                Ok(Err(error)) if error.is_conflict() => {
                    sleep(CONFLICT_DELAY).await;
                    continue;
                }
                Ok(Err(error)) => return Ok(Delivery::Later(error_chain(&error))),
                Err(_) => return Ok(Delivery::Later(why)),
            };
            let is_exhausted = |it: &&Problem| NO_FREE_ADDRESS.contains(&it.reason.as_str());
            let now = Instant::now();
            let exhausted = problems.iter().find(is_exhausted);
            exhausted_since = exhausted.and(exhausted_since.or(Some(now)));
            let waited = exhausted_since.map_or(Duration::ZERO, |since| now.duration_since(since));
            if let Some(problem) = exhausted
                && waited >= EXHAUSTED_WAIT
            {
                return Err(Refusal {
                    addressing: addressing.name_any(),
                    message: problem.message.clone(),
                });
            }
            let is_lasting = |it: &&Problem| LASTING.contains(&it.reason.as_str());
            if let Some(problem) = problems.iter().find(is_lasting) {
                return Ok(Delivery::Later(problem.message.clone()));
            }
            if let Some(problem) = problems.into_iter().next() {
                why = problem.message;
            }
            let next = now + POLL_INTERVAL;
            if next >= deadline {
                return Ok(Delivery::Later(why));
            }
            let _ = timeout_at(next, changed.notified()).await;
        }
    }

    /// Marks the claims of a Cluster that is created again with its addresses, so that a release that
    /// was decided before fails.
    async fn keep_claims(
        &self,
        deadline: Instant,
        addressing: &ClusterAddressing,
        cluster: &AddressableCluster,
        request: Option<&str>,
    ) {
        let Some(request) = request else {
            return;
        };
        let keep = async {
            while let Err(error) = self.perform_steps(addressing, cluster, request).await {
                if !error.is_conflict() {
                    return Err(error);
                }
                sleep(CONFLICT_DELAY).await;
            }
            Ok(())
        };
        if let Ok(Err(error)) = timeout_at(deadline, keep).await {
            let (cluster, error) = (cluster.name_any(), error_chain(&error));
            warn!(
                cluster,
                error, "cannot mark the claims of a Cluster that is created again"
            );
        }
    }

    async fn perform_steps(
        &self,
        addressing: &ClusterAddressing,
        cluster: &AddressableCluster,
        request: &str,
    ) -> Result<Progress, CallError> {
        let contract = self.contract().await;
        let versions = Versions {
            cluster: contract.cluster,
            ipam: contract.ipam,
        };
        let items = item_names(cluster, addressing);
        let claims = read_claims(contract, cluster, &items).await?;
        let is_unused = |item: &str, known: &ItemClaim| {
            is_unused(cluster, addressing, item, known, Some(request))
        };
        let is_delivered = is_delivered(cluster, addressing);
        let claims = with_addresses(contract, claims, is_unused, cluster, is_delivered).await?;
        let mut problems = Vec::new();
        for step in plan(cluster, addressing, &claims, versions, Some(request)) {
            match step {
                Step::Report(problem) => problems.push(problem),
                Step::CreateClaim(claim) => {
                    let (_, problem) = create_claim(contract, &claim).await?;
                    problems.push(problem);
                }
                Step::ProtectClaim(change) => {
                    let (before, after) = &*change;
                    let namespace = before.namespace().unwrap_or_default();
                    patch::write(&contract.claims(&namespace), before, after).await?;
                }
                Step::WriteCluster(wanted) => return Ok(Progress::Delivered(wanted)),
                // The plan for a request has none of them.
                Step::ReleaseClaim(_) | Step::CheckCluster(_) | Step::CreateConfigMap(_) => {}
            }
        }
        Ok(Progress::Waiting(problems))
    }

    async fn contract(&self) -> &ContractClient {
        let discover = || ContractClient::discover(&self.client, &self.health);
        self.contract.get_or_init(discover).await
    }
}

impl Requested {
    /// The controller delivers the addresses of a ClusterAddressing when the Cluster exists.
    fn leave_to_controller(&mut self, of: &str, why: &str) {
        let cluster = self.cluster.name_any();
        warn!(
            cluster,
            of, why, "a Cluster is created without its addresses, which are written later"
        );
        let text = format!("{of}: the addresses are written later: {why}");
        self.warnings.push(text);
    }
}

/// The claims with the names of the items, by live reads, without their addresses.
async fn read_claims<'a>(
    contract: &ContractClient,
    cluster: &AddressableCluster,
    items: &'a BTreeSet<String>,
) -> Result<BTreeMap<&'a str, ItemClaim>, CallError> {
    let client = contract.claims(&cluster.namespace().unwrap_or_default());
    let names = items
        .iter()
        .map(|item| AddressingItem::claim_name(&cluster.name_any(), item));
    let names: Vec<String> = names.collect();
    let found = try_join_all(names.iter().map(|name| client.get(name))).await?;
    Ok(claims_of_items(items.iter().zip(found)))
}
