//! The processes of the provider: lease, Deployments with their permissions, and events.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::SubjectRulesReviewStatus;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Container, Event, Namespace, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;

use crate::cluster::{Cluster, PAGE_SIZE, lease_selector, provider_selector};
use crate::error::Error;
use crate::load::{Loader, Readable};
use crate::model::LeaseRow;
use crate::model::doctor::snapshot::{DeploymentRow, EventRow, PodRow, Rule, WebhookMode};

/// The reporter of the events of the provider.
const REPORTER: &str = "reportingComponent=capi-ipam-in-cluster";

/// The flag of a manager that runs with leader election.
const LEADER_ELECTION: [&str; 2] = ["--leader-elect", "--leader-elect=true"];

/// The flag of a manager that serves no webhooks.
const NO_WEBHOOKS: &str = "--webhook-port=0";

/// The flag of a manager that creates the certificate of its webhooks.
const SELF_MANAGED: &str = "--webhook-certs=self-managed";

pub(super) async fn leases(loader: &mut Loader<'_>) -> Result<Readable<Vec<LeaseRow>>, Error> {
    let parameters = lease_selector();
    let found = loader.others::<Lease>(None, &parameters).await?;
    Ok(found.map(|leases| leases.into_iter().map(LeaseRow::from).collect()))
}

pub(super) async fn deployments(
    loader: &mut Loader<'_>,
) -> Result<Readable<Vec<DeploymentRow>>, Error> {
    let parameters = provider_selector();
    let found = loader.others::<Deployment>(None, &parameters).await?;
    let mut rows = Vec::new();
    for deployment in found.seen() {
        rows.push(row(loader, deployment).await?);
    }
    Ok(found.map(|_| rows))
}

/// The running pods of the provider, with what their probes say. They only add to the finding that
/// nobody renews the lease, so nothing is unknown without the permissions.
pub(super) async fn running_pods(cluster: &Cluster) -> Result<Vec<PodRow>, Error> {
    let pods = cluster.list_if_allowed::<Pod>(&provider_selector()).await?;
    let mut rows = Vec::new();
    for pod in pods.iter().filter(|pod| is_running(pod)) {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let mut problem = None;
        if let Some((port, path)) = probe(pod) {
            let named = format!("{name}:{port}");
            let answer = cluster.get_from_pod(&namespace, &named, &path).await;
            problem = answer.ok().and_then(Result::err);
        }
        rows.push(PodRow {
            name: format!("{namespace}/{name}"),
            problem,
        });
    }
    Ok(rows)
}

fn is_running(pod: &Pod) -> bool {
    let status = pod.status.iter();
    let mut containers = status.flat_map(|it| it.container_statuses.iter().flatten());
    containers.any(|it| it.state.as_ref().is_some_and(|it| it.running.is_some()))
}

/// Port and path of the readiness probe.
fn probe(pod: &Pod) -> Option<(i32, String)> {
    let container = pod.spec.as_ref()?.containers.first()?;
    let get = container.readiness_probe.as_ref()?.http_get.as_ref()?;
    let port = match &get.port {
        IntOrString::Int(port) => *port,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            ports
                .find(|it| it.name.as_ref() == Some(name))?
                .container_port
        }
    };
    Some((port, get.path.clone().unwrap_or_default()))
}

/// The namespaces, with those in deletion. They only add to findings, so nothing is unknown without
/// the permission to list them.
pub(super) async fn deleted_namespaces(cluster: &Cluster) -> Result<BTreeSet<String>, Error> {
    let parameters = ListParams::default();
    let mut found = cluster.list_if_allowed::<Namespace>(&parameters).await?;
    found.retain(|namespace| namespace.metadata.deletion_timestamp.is_some());
    let names = found.into_iter();
    Ok(names
        .filter_map(|namespace| namespace.metadata.name)
        .collect())
}

async fn row(loader: &mut Loader<'_>, deployment: &Deployment) -> Result<DeploymentRow, Error> {
    let namespace = deployment.metadata.namespace.clone().unwrap_or_default();
    let status = deployment.status.clone().unwrap_or_default();
    let spec = deployment.spec.clone().unwrap_or_default();
    let pod = spec.template.spec.unwrap_or_default();
    let account = pod
        .service_account_name
        .unwrap_or_else(|| "default".to_owned());
    let rules = rules(loader, &namespace, &account).await?;
    let image = pod.containers.first().and_then(|it| it.image.clone());
    Ok(DeploymentRow {
        namespace,
        name: deployment.metadata.name.clone().unwrap_or_default(),
        // The API server sets the number.
        replicas: spec.replicas.unwrap_or(1),
        ready: status.ready_replicas.unwrap_or_default(),
        image: image.unwrap_or_default(),
        elects: has_argument(&pod.containers, &LEADER_ELECTION),
        webhooks: webhook_mode(&pod.containers),
        account,
        rules,
    })
}

/// Whether a container runs with one of these arguments.
fn has_argument(containers: &[Container], wanted: &[&str]) -> bool {
    let mut arguments = containers
        .iter()
        .flat_map(|container| container.command.iter().chain(&container.args))
        .flatten();
    arguments.any(|argument| wanted.contains(&argument.as_str()))
}

fn webhook_mode(containers: &[Container]) -> WebhookMode {
    if has_argument(containers, &[NO_WEBHOOKS]) {
        WebhookMode::Off
    } else if has_argument(containers, &[SELF_MANAGED]) {
        WebhookMode::SelfManaged
    } else {
        WebhookMode::Files
    }
}

/// The permissions of a service account. A caller who acts as another user cannot review them.
async fn rules(
    loader: &mut Loader<'_>,
    namespace: &str,
    account: &str,
) -> Result<Readable<Option<Vec<Rule>>>, Error> {
    if loader.cluster.impersonates {
        return Ok(Readable::complete(None));
    }
    let found = loader.cluster.rules_of(namespace, account).await;
    loader.readable(found.map(all_rules), None)
}

/// The rules of a review, if it lists all.
fn all_rules(status: SubjectRulesReviewStatus) -> Option<Vec<Rule>> {
    let rules = status.resource_rules.into_iter().map(Rule::from).collect();
    (!status.incomplete).then_some(rules)
}

/// Events of the provider: some of them are enough.
pub(super) async fn events(loader: &mut Loader<'_>) -> Result<Readable<Vec<EventRow>>, Error> {
    let parameters = ListParams::default().fields(REPORTER).limit(PAGE_SIZE);
    let found = loader.others::<Event>(None, &parameters).await?;
    Ok(found.map(|events| events.into_iter().flat_map(occurrences).collect()))
}

/// The first and the last occurrence of an event that was repeated.
fn occurrences(event: Event) -> Vec<EventRow> {
    let repeated = event.series.and_then(|series| series.last_observed_time);
    let mut rows = Vec::new();
    if let Some(instance) = event.reporting_instance {
        for time in [event.event_time, repeated].into_iter().flatten() {
            rows.push(EventRow {
                instance: instance.clone(),
                time: time.0,
            });
        }
    }
    rows
}
