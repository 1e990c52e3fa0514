//! The controller of registries: connects to each, starts what drives its blocks, and reports its
//! state.

mod status;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{IPNetwork, IPRegistry, IPRegistryStatus, names};
use capi_ipam_controller::client::{CallError, ResourceClient, error_chain, own_namespace};
use capi_ipam_controller::controller::{
    Action, Attempt, Cause, ControllerBuilder, Finalized, Protect, Protection, Reconciler,
};
use capi_ipam_controller::expectations::EXPECTATION_TTL;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::watch::{MaybeInvalid, WatchApi, WatchSpec};
use capi_ipam_controller::{clock, finalizer};
use capi_ipam_ledger::{BlockObstacle, Ledger};
use capi_ipam_provider::advanced::StatusWriter;
use capi_ipam_registry::{
    Created, IDENTITY_NAMESPACE, Key, Record, RegistryError, RegistryRecord, open, secret_of,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, ResourceExt};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::status::{clusters_of, conditions_of, deleting, is_problem, is_ready, ready};
use super::measured::{MeasuredRegistry, RequestMetrics};
use super::open_registry::{Before, ConnectError, Identity, OpenRegistry, Requester};
use super::running::{Running, START_DELAY, Start, Tasks};
use super::state_metrics::{Known, RegistryStates};
use crate::in_cluster::context::Context;
use crate::in_cluster::definitions;
use crate::in_cluster::gates::Gates;
use crate::in_cluster::options::InClusterOptions;

/// How often the state of a registry is reported, and its Secret is read again.
const INTERVAL: Duration = Duration::from_secs(10);
/// The interval of reconciles until the first list of the records is complete.
const START_INTERVAL: Duration = Duration::from_millis(250);
/// The time before a registry is opened again that could not be opened.
const OPEN_RETRY_DELAY: Duration = Duration::from_millis(500);
/// The number of registries that are connected to at the same time. One that does not answer takes
/// its deadline.
const WORKERS: u16 = 8;

/// Starts the controller of registries.
pub(in crate::in_cluster) fn start(
    manager: &mut Manager,
    controller: ControllerBuilder<IPRegistry>,
    context: &Arc<Context>,
    gates: &Gates,
    options: &InClusterOptions,
    changed: watch::Receiver<()>,
) {
    let client = &manager.client;
    let namespace = own_namespace(client, &manager.options.leader_election_namespace);
    let reconciler = RegistryReconciler {
        registries: ResourceClient::new(Api::all(client.clone()), &()).requiring_fields(),
        networks: ResourceClient::new(Api::all(client.clone()), &()),
        secrets: ResourceClient::new(Api::namespaced(client.clone(), &namespace), &()),
        namespaces: ResourceClient::new(Api::all(client.clone()), &()),
        namespace,
        context: Arc::clone(context),
        status_writer: StatusWriter::new(
            context.events.clone(),
            (),
            // A registry is reconciled at an interval.
            Duration::ZERO,
            conditions_of,
            is_problem,
        ),
        gates: gates.of_ledger(),
        drain: options.sweep_grace,
        changed,
        requests: RequestMetrics::register(&manager.metrics),
        states: RegistryStates::register(&manager.metrics),
        stop: manager.stop.clone(),
    };
    let api = WatchApi::all(client.clone());
    let main = WatchSpec::new(
        api,
        (),
        Arc::clone(&context.ledger) as _,
        gates.registries.clone(),
    );
    let reconciler = Finalized::new(reconciler, names::PROTECT_REGISTRY);
    manager.run_controller(controller.concurrency(WORKERS), main, reconciler);
}

struct RegistryReconciler {
    registries: ResourceClient<IPRegistry>,
    networks: ResourceClient<IPNetwork>,
    secrets: ResourceClient<Secret>,
    namespaces: ResourceClient<Namespace>,
    /// The namespace of the manager.
    namespace: String,
    context: Arc<Context>,
    status_writer: StatusWriter<IPRegistry>,
    /// The watches of what the ledger contains: before, no block counts as unused.
    gates: Vec<ReadinessGate>,
    /// How long after the mark of an empty slice it is returned.
    drain: Duration,
    /// Changes when a network may need a block, or need one no longer.
    changed: watch::Receiver<()>,
    requests: RequestMetrics,
    states: RegistryStates,
    stop: CancellationToken,
}

impl Reconciler for RegistryReconciler {
    type Object = IPRegistry;
    type State = ();
    type Error = CallError;

    /// The watch of its records and the driver of its blocks end with it.
    fn wants_deleted(&self, _: &IPRegistry) -> bool {
        true
    }

    async fn reconcile(
        &self,
        registry: Arc<IPRegistry>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let name = registry.name_any();
        if attempt.cause == Cause::Deleted {
            let known = self.states.lock().remove(&name);
            if known.is_some_and(|known| known.running.is_some()) {
                info!(
                    registry = name,
                    "the registry is deleted: no further block is taken"
                );
            }
            self.report_obstacle(&name, &BlockObstacle::NoRegistry);
            return Ok(Action::AwaitChange);
        }
        if is_deleting(&registry) && names::allow_deletion_in_use(&registry.metadata) {
            return Ok(Action::AwaitChange);
        }
        if self.with(&name, |known| known.has_lost_fields(&registry)) {
            self.context.ledger.change(Ledger::note_lost_fields);
        }
        if self
            .context
            .ledger
            .read(|ledger| ledger.networks().have_definitions_problem())
        {
            return Ok(Action::Requeue(definitions::RETRY_DELAY));
        }
        let mut deletion = None;
        if is_deleting(&registry) {
            deletion = match self.find_blocker(&registry).await? {
                None => return Ok(Action::AwaitChange),
                blocker => blocker,
            };
        }
        let opened = self.connect(&registry).await;
        let open = opened.as_ref().ok().cloned();
        // A registry that is open reports for itself.
        let is_open = self.with(&name, |known| {
            known.is_open = open.is_some();
            known.running.is_some()
        });
        if open.as_ref().is_some_and(|open| open.is_starting()) {
            // What was reported last stays: a restart of this process is no failure.
            return Ok(Action::Requeue(START_INTERVAL));
        }
        if !is_open {
            self.report_obstacle(&name, &BlockObstacle::Unreachable);
        }
        let id = match &open {
            Some(open) if open.records.is_complete() => self.confirm(&registry, open).await,
            _ => None,
        };
        let known = known_id(&registry);
        let ready = match deletion {
            Some(message) => deleting(&message, &ready(&opened, known)),
            None => ready(&opened, known),
        };
        self.write_status(&registry, opened, id.as_deref(), ready)
            .await?;
        if let (Some(open), Some(id)) = (&open, &id) {
            open.begin_to_use(id, &registry.status.clone().unwrap_or_default());
        }
        Ok(Action::Requeue(if is_open {
            INTERVAL
        } else {
            OPEN_RETRY_DELAY
        }))
    }
}

impl Protect for RegistryReconciler {
    fn objects(&self, _: &IPRegistry) -> ResourceClient<IPRegistry> {
        self.registries.clone()
    }

    fn protection(&self, registry: &IPRegistry) -> Protection {
        if self.status_writer.is_stale(registry) {
            return Protection::Postponed(Action::Requeue(EXPECTATION_TTL));
        }
        // One without the finalizer is used as long as it exists.
        if is_deleting(registry) && !finalizer::is_set(registry, names::PROTECT_REGISTRY) {
            return Protection::Unmanaged;
        }
        Protection::Managed
    }

    fn protected(&self, registry: &IPRegistry) {
        self.status_writer.expect(registry);
    }

    /// It is used while other objects refer to it.
    async fn in_use(
        &self,
        registry: Arc<IPRegistry>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let action = self.reconcile(registry, attempt).await?;
        Ok(action.earlier(Action::Requeue(INTERVAL)))
    }

    /// The finalizer protects no address: the registry is used without it, too.
    async fn rejected(
        &self,
        registry: &IPRegistry,
        error: CallError,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        if attempt.cause > Cause::Requeued && !error.is_conflict() {
            let (name, error) = (registry.name_any(), error_chain(&error));
            warn!(
                registry = name,
                error, "cannot add the finalizer, will retry"
            );
        }
        // The registry is reconciled nevertheless.
        attempt.keeps_cause = false;
        self.reconcile(Arc::new(registry.clone()), attempt).await
    }
}

/// Whether a network shares blocks through a registry.
fn names_registry(network: &IPNetwork, registry: &str) -> bool {
    let blocks = network.spec.blocks.as_ref();
    blocks.is_some_and(|blocks| blocks.registry == registry)
}

fn is_deleting(registry: &IPRegistry) -> bool {
    registry.metadata.deletion_timestamp.is_some()
}

impl RegistryReconciler {
    /// What a registry in deletion waits for: in the ledger, and if it knows of nothing, on the API
    /// server.
    async fn find_blocker(&self, registry: &IPRegistry) -> Result<Option<String>, CallError> {
        if !self.gates.iter().all(ReadinessGate::is_ready) {
            return Ok(Some("waiting for the list of networks".to_owned()));
        }
        let name = registry.name_any();
        let ledger = &self.context.ledger;
        let mut networks = ledger.read(|ledger| ledger.networks_of_registry(&name));
        if networks.is_empty() {
            let use_page = |page: Vec<MaybeInvalid<IPNetwork>>| {
                let valid = page.into_iter().filter_map(|network| network.0.ok());
                let users = valid.filter(|network| names_registry(network, &name));
                networks.extend(users.map(|network| network.name_any()));
            };
            self.networks.for_each_page(use_page).await?;
        }
        let networks = networks.join(", ");
        Ok((!networks.is_empty()).then(|| format!("used by IPNetwork {networks}")))
    }

    /// Changes what is known of a registry.
    fn with<R>(&self, name: &str, change: impl FnOnce(&mut Known) -> R) -> R {
        let mut all = self.states.lock();
        change(all.entry(name.to_owned()).or_default())
    }

    /// Finds out who this management cluster is, and connects to the registry. The driver of the registry
    /// tells the ledger who it is, which then allocates addresses of its blocks. It is done here if the
    /// driver cannot: the registry is not open in time, and was not open before with other settings. And if
    /// the identity is another one than before, whose blocks must not be used any longer.
    async fn connect(&self, registry: &IPRegistry) -> Result<Arc<OpenRegistry>, ConnectError> {
        let identity = self.identity(registry).await?;
        let cluster = identity.id.clone();
        let name = registry.name_any();
        let ledger = &self.context.ledger;
        let was_in_use = registry
            .status
            .as_ref()
            .is_some_and(IPRegistryStatus::shows_identity_in_use);
        let is_first = self.with(&name, |known| known.running.is_none());
        ledger.change(|ledger| {
            if was_in_use && is_first {
                ledger.suspend_blocks_of(&name, true);
            }
            let is_other = ledger
                .management_cluster(&name)
                .is_some_and(|known| *known != *cluster);
            if is_other {
                ledger.set_management_cluster(&name, &cluster);
            }
        });
        let mut opening = pin!(self.ensure_running(registry, identity));
        let (is_running, since) = self.with(&name, |known| (known.running.is_some(), known.since));
        if !is_running {
            let remaining = START_DELAY.saturating_sub(since.elapsed());
            if let Ok(opened) = timeout(remaining, &mut opening).await {
                return opened;
            }
            ledger.change(|ledger| ledger.set_management_cluster(&name, &cluster));
        }
        opening.await
    }

    /// Tells the networks of the registry, and the claims that wait for a block, why there is none.
    fn report_obstacle(&self, registry: &str, obstacle: &BlockObstacle) {
        self.context
            .ledger
            .change(|ledger| ledger.set_registry_obstacle(registry, obstacle));
    }

    /// Connects to the registry, unless this was done with the same settings.
    async fn ensure_running(
        &self,
        registry: &IPRegistry,
        identity: Identity,
    ) -> Result<Arc<OpenRegistry>, ConnectError> {
        let name = registry.name_any();
        let secret = self.secret(registry).await?;
        let start = Start {
            spec: registry.spec.clone(),
            secret: secret.as_ref().and_then(|secret| secret.data.clone()),
        };
        let known = self.with(&name, |known| {
            let running = known
                .running
                .as_ref()
                .filter(|running| running.start == start);
            running.map(|running| Arc::clone(&running.registry))
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let user_agent = format!("capi-ipam ({})", identity.id);
        let backend = open(&registry.spec, secret.as_ref(), &user_agent).await?;
        let backend = MeasuredRegistry::new(backend, &name, self.requests.clone());
        let context = &self.context;
        let before = self.with(&name, |known| {
            let open = known.running.as_ref().map(|running| &*running.registry);
            Before::of(registry.status.as_ref(), open)
        });
        let opened = Arc::new(OpenRegistry::new(
            name.clone(),
            identity,
            backend,
            Arc::clone(&context.ledger),
            Arc::clone(&context.signs_of_life),
            before,
        ));
        // What was written before can be in another registry.
        context.signs_of_life.forget(&name);
        let tasks = Tasks {
            context: Arc::clone(context),
            registry: Arc::clone(&opened),
            known_id: known_id(registry).map(str::to_owned),
            gates: self.gates.clone(),
            drain: self.drain,
            changed: self.changed.clone(),
            stop: self.stop.child_token(),
        };
        // The one with the earlier settings ends when it is dropped.
        self.with(&name, |known| {
            known.running = Some(Running::start(tasks, start))
        });
        info!(
            registry = name,
            cluster = &*opened.cluster,
            "connected to the registry"
        );
        Ok(opened)
    }

    async fn secret(&self, registry: &IPRegistry) -> Result<Option<Secret>, ConnectError> {
        let Some(secret) = secret_of(&registry.spec) else {
            return Ok(None);
        };
        let read = self.secrets.get(secret.name).await;
        let found = read.map_err(|source| ConnectError::Read {
            what: format!("the Secret {}", secret.name),
            source,
        })?;
        if found.is_some() {
            return Ok(found);
        }
        Err(secret.missing_in(&self.namespace).into())
    }

    /// The identity of this management cluster.
    async fn identity(&self, registry: &IPRegistry) -> Result<Identity, ConnectError> {
        let read = self.namespaces.get(IDENTITY_NAMESPACE).await;
        let found = read.map_err(|source| ConnectError::Read {
            what: format!(
                "the namespace {IDENTITY_NAMESPACE}, whose UID is the default of spec.clusterID"
            ),
            source,
        })?;
        let uid = found.and_then(|namespace| namespace.metadata.uid);
        let id = registry.spec.cluster_id.clone().or_else(|| uid.clone());
        match id {
            Some(id) => Ok(Identity { id, uid }),
            None => Err(ConnectError::NoIdentity),
        }
    }

    /// Compares the identity of a registry with the one in the status. Returns the one to remember.
    ///
    /// A new registry gets one. Nothing is taken from a registry before the status names it.
    async fn confirm(&self, registry: &IPRegistry, opened: &OpenRegistry) -> Option<String> {
        let mut found = opened.records.registry_id();
        if is_replaced(registry, found.as_deref()) {
            opened.set_confirmed(None);
            return None;
        }
        if found.is_none() {
            match create_identity(opened).await {
                Ok(created) => found = Some(created),
                Err(error) => opened.failed(Requester::Identity, &error),
            }
        }
        if found.is_some() {
            opened.succeeded(Requester::Identity);
        }
        found
    }

    async fn write_status(
        &self,
        registry: &IPRegistry,
        opened: Result<Arc<OpenRegistry>, ConnectError>,
        id: Option<&str>,
        ready: Condition,
    ) -> Result<(), CallError> {
        let before = registry.status.clone().unwrap_or_default();
        let mut list = before.conditions.clone();
        let known = before.registry_id.as_deref();
        let ready = ready.with_observed_generation(registry.metadata.generation);
        conditions::set_ready(&mut list, ready, clock::now());
        // A registry that replaces another one is named when all other management clusters use it, too: until then,
        // those of the former one are waited for, also by a process that starts.
        let is_in_use = match &opened {
            Ok(opened) => known.is_none() || opened.is_confirmed() && !opened.is_recovering(),
            Err(_) => false,
        };
        // What was known last stays.
        let (mut cluster_id, mut clusters) = (before.cluster_id.clone(), before.clusters.clone());
        let mut identity_in_use = before.shows_identity_in_use();
        if let Ok(opened) = &opened {
            cluster_id = Some(opened.cluster.to_string());
            identity_in_use = opened.is_suspended();
            if is_in_use {
                clusters = clusters_of(opened);
            }
        }
        let mut status = IPRegistryStatus {
            observed_generation: registry.metadata.generation,
            cluster_id,
            registry_id: id.filter(|_| is_in_use).or(known).map(str::to_owned),
            // That of another registry says nothing.
            writes: before.writes.filter(|_| !is_in_use || id == known),
            identity_in_use,
            clusters,
            conditions: list.clone(),
        };
        // It grows with each sign of life, which is no reason for a write.
        if let Ok(opened) = &opened
            && is_in_use
            && (status != before || status.writes.is_none())
        {
            status.writes = opened.writes().or(status.writes);
        }
        let mut wanted = registry.clone();
        wanted.status = Some(status);
        let write = self
            .status_writer
            .write(&self.registries, registry, &wanted);
        let Some(written) = write.await? else {
            return Ok(());
        };
        let was_problem = before.conditions.iter().any(is_problem);
        if was_problem && is_ready(&list) {
            let note = "the registry can be used again: blocks are taken and returned";
            let events = &self.context.events;
            events.normal(&written, &(), conditions::REGISTRY_READY, "Inspect", note);
        }
        Ok(())
    }
}

/// The identity of a registry in the status.
fn known_id(registry: &IPRegistry) -> Option<&str> {
    let status = registry.status.as_ref()?;
    status.registry_id.as_deref()
}

/// Whether a registry whose records are listed is another one than that of the status. An operator can confirm that
/// another one replaces it.
fn is_replaced(registry: &IPRegistry, found: Option<&str>) -> bool {
    let known = known_id(registry);
    let replaced = registry
        .annotations()
        .get(names::REPLACED_REGISTRY_ANNOTATION);
    known.is_some() && known != found && known != replaced.map(String::as_str)
}

/// Writes the identity of a new registry. Returns the one that it has.
async fn create_identity(opened: &OpenRegistry) -> Result<String, RegistryError> {
    let id = format!("{:032x}", rand::random::<u128>());
    let record = Record::Registry(RegistryRecord { id });
    let (Created::Ours(entry) | Created::Theirs(entry)) =
        opened.create(&Key::Registry, &record).await?;
    match entry.record() {
        Some(Record::Registry(found)) => Ok(found.id.clone()),
        _ => Err(RegistryError::Invalid {
            registry: opened.name.clone(),
            source: format!("the record {} cannot be decoded", Key::Registry).into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_confirmed_registry_replaces_another() {
        let table = [
            (None, None, None, false),
            (None, None, Some("a"), false),
            (Some("a"), None, Some("a"), false),
            (Some("a"), None, None, true),
            (Some("a"), None, Some("b"), true),
            (Some("a"), Some("x"), Some("b"), true),
            (Some("a"), Some("a"), Some("b"), false),
            (Some("a"), Some("a"), None, false),
            // The annotation stays: it is about the former registry.
            (Some("b"), Some("a"), None, true),
        ];
        for (known, replaced, found, expected) in table {
            let status = IPRegistryStatus {
                registry_id: known.map(str::to_owned),
                ..IPRegistryStatus::default()
            };
            let mut registry = IPRegistry {
                status: Some(status),
                ..IPRegistry::default()
            };
            if let Some(id) = replaced {
                let name = names::REPLACED_REGISTRY_ANNOTATION.to_owned();
                registry.annotations_mut().insert(name, String::from(id));
            }
            let is_replaced = is_replaced(&registry, found);
            assert_eq!(is_replaced, expected, "{known:?} {replaced:?} {found:?}");
        }
    }
}
