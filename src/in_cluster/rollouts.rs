//! What pools need for the Machines that can exist at the same time, as a metric. It is what
//! `kubectl ipam plan` reports.
//!
//! Everything is read from the API server once a minute, and planned with a copy of the ledger.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::names::CLUSTER_GROUP;
use capi_ipam_controller::client::{
    ApiObject, CallError, ResourceClient, error_chain, with_timeout,
};
use capi_ipam_controller::log_limit::RepetitionLimit;
use capi_ipam_controller::manager::{BackgroundTask, Manager, NextRun};
use capi_ipam_controller::metrics::Description;
use capi_ipam_rollout::{PlanLine, PlanPool, Uses, WORKLOADS, control_plane, plan};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tracing::warn;

use super::context::Context;
use super::gauges::encode;

/// The time between two plans.
const INTERVAL: Duration = Duration::from_mins(1);

pub(super) const PLANNED: Description = Description {
    name: "capi_ipam_pool_planned_addresses",
    kind: "gauge",
    labels: &["kind", "namespace", "pool", "state: needed, missing"],
    help: "Further addresses that a pool or a set of pools needs at the peak of all rollouts, and those of them for which no address is free; as of the last minute; only with --rollout-metrics",
};

/// The last plan.
#[derive(Clone, Debug, Default)]
struct Planned(Arc<Mutex<Vec<PlanPool>>>);

impl Collector for Planned {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let pools = self.0.lock().clone();
        let mut rows = Vec::new();
        for line in &pools {
            for (state, count) in [("needed", line.needed), ("missing", line.missing)] {
                let labels = vec![
                    ("kind", &*line.pool.kind),
                    ("namespace", line.pool.namespace.as_deref().unwrap_or("")),
                    ("pool", &*line.pool.name),
                    ("state", state),
                ];
                rows.push((labels, i64::try_from(count).unwrap_or(i64::MAX)));
            }
        }
        encode(&mut encoder, &PLANNED, rows.into_iter())
    }
}

/// Plans all rollouts from time to time.
pub(super) struct PlanRollouts {
    context: Arc<Context>,
    client: Client,
    namespace: String,
    planned: Planned,
    errors: RepetitionLimit,
}

impl BackgroundTask for PlanRollouts {
    async fn run_once(&mut self) -> NextRun {
        match self.plan().await {
            Ok(planned) => *self.planned.0.lock() = planned,
            Err(error) => self.report(&error),
        }
        NextRun::After(INTERVAL)
    }
}

impl PlanRollouts {
    pub(super) fn new(manager: &Manager, context: &Arc<Context>) -> Self {
        let planned = Planned::default();
        manager.metrics.register_collector(planned.clone());
        Self {
            context: Arc::clone(context),
            client: manager.client.clone(),
            namespace: manager.options.watched_namespace().to_owned(),
            planned,
            errors: RepetitionLimit::default(),
        }
    }

    fn report(&self, error: &CallError) {
        let error = error_chain(error);
        if self.errors.allow(&error, Instant::now()).is_some() {
            warn!(error, "cannot plan the addresses of rollouts");
        }
    }

    async fn plan(&self) -> Result<Vec<PlanPool>, CallError> {
        let workloads = self.workloads().await?;
        let contract = &self.context.contract;
        let machines = list(&contract.machines(&self.namespace)).await?;
        let claims = list(&contract.claims(&self.namespace)).await?;
        let mut ledger = self.context.ledger.read(Clone::clone);
        let planning = tokio::task::spawn_blocking(move || {
            let uses = Uses::of(&workloads, &machines, &claims);
            let (_, pools) = plan(workloads, &uses, &mut ledger);
            pools
        });
        // A panic is logged, and the process is stopping if the task was cancelled.
        Ok(planning.await.unwrap_or_default())
    }

    /// The objects that create Machines, control planes first.
    async fn workloads(&self) -> Result<Vec<PlanLine>, CallError> {
        let kinds = self.kinds_of(CLUSTER_GROUP).await?;
        let mut names = BTreeSet::new();
        for kind in kinds.iter().filter(|kind| kind.kind == "Cluster") {
            for cluster in self.objects(kind).await? {
                let name = control_plane(&cluster);
                names.extend(name.map(|(group, kind)| (group.to_owned(), kind.to_owned())));
            }
        }
        let mut creators = Vec::new();
        for (group, name) in names {
            let served = self.kinds_of(&group).await?;
            creators.extend(served.into_iter().find(|kind| kind.kind == name));
        }
        for plural in WORKLOADS {
            creators.extend(kinds.iter().find(|kind| kind.plural == plural).cloned());
        }
        let mut lines = Vec::new();
        for kind in creators {
            let objects = match self.objects(&kind).await {
                // Control planes can be of groups that the role does not have.
                Err(error) if error.is_forbidden() || error.is_not_found() => {
                    self.report(&error);
                    continue;
                }
                objects => objects?,
            };
            lines.extend(
                objects
                    .iter()
                    .filter_map(|it| PlanLine::of(&kind, it, None)),
            );
        }
        Ok(lines)
    }

    async fn objects(&self, kind: &ApiResource) -> Result<Vec<DynamicObject>, CallError> {
        let api = if self.namespace.is_empty() {
            Api::all_with(self.client.clone(), kind)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, kind)
        };
        list(&ResourceClient::new(api, kind)).await
    }

    /// The kinds of an API group, in the version that the API server prefers.
    async fn kinds_of(&self, group: &str) -> Result<Vec<ApiResource>, CallError> {
        let list = self.client.list_api_groups();
        let groups = with_timeout(|| "list the API groups".to_owned(), list).await?;
        let found = groups.groups.into_iter().find(|it| it.name == group);
        let Some(version) = found.and_then(|it| it.preferred_version) else {
            return Ok(Vec::new());
        };
        let list = self.client.list_api_group_resources(&version.group_version);
        let operation = || format!("list the resources of {}", version.group_version);
        let resources = with_timeout(operation, list).await?.resources.into_iter();
        let kind =
            |resource: k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource| ApiResource {
                group: group.to_owned(),
                version: version.version.clone(),
                api_version: version.group_version.clone(),
                kind: resource.kind,
                plural: resource.name,
            };
        let whole = resources.filter(|resource| !resource.name.contains('/'));
        Ok(whole.map(kind).collect())
    }
}

/// All objects of a kind that can be decoded.
async fn list<K: ApiObject>(client: &ResourceClient<K>) -> Result<Vec<K>, CallError> {
    let mut found = Vec::new();
    let use_page = |page: Vec<capi_ipam_controller::watch::MaybeInvalid<K>>| {
        found.extend(page.into_iter().filter_map(|object| object.0.ok()));
    };
    client.for_each_page(use_page).await?;
    Ok(found)
}
