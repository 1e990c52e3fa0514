//! The controller of networks: finalizer, block lengths, counts and members.
//!
//! Which pools belong to a network is computed in the ledger. All managers reconcile all networks:
//! what they write depends only on objects that all of them see.

mod blocks;

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{
    BlockLengths, IPNetwork, IPNetworkStatus, IPReservation, MemberPhase, NetworkMember,
    NetworkView, Scope, block_of_name, counted, names,
};
use capi_ipam_controller::client::{CallError, ResourceClient, error_chain};
use capi_ipam_controller::controller::{
    Action, Attempt, ControllerBuilder, Finalized, Protect, Protection, Reconciler, retry_write,
};
use capi_ipam_controller::expectations::EXPECTATION_TTL;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::retry::Retry;
use capi_ipam_controller::watch::{MaybeInvalid, WatchApi, WatchSpec};
use capi_ipam_controller::{clock, finalizer, trace_span};
use capi_ipam_ip::Family;
use capi_ipam_ledger::{BlockObstacle, NetworkBlocks, NetworkReport};
use capi_ipam_provider::advanced::StatusWriter;
use kube::core::ObjectMeta;
use kube::{Api, Resource, ResourceExt};
use tracing::{Span, field};

use super::context::Context;
use super::definitions;
use super::gates::{Gates, IDENTITY_TIMEOUT};

/// The minimum interval between two status updates of one network. Its counts are computed from all
/// addresses in use.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);
/// The delay before a network that is being deleted and is still in use is reconciled again.
const DELETION_RETRY_DELAY: Duration = Duration::from_secs(5);
/// How often to check whether everything is listed.
const GATE_INTERVAL: Duration = Duration::from_millis(250);
/// The maximum number of members that the status lists.
const MAX_MEMBERS: usize = 50;

/// Starts the controller of networks. It reconciles nothing before everything is listed that the
/// ledger contains. Its own gate does not wait for that, since the controllers of pools wait for
/// it.
pub(super) fn start(
    manager: &mut Manager,
    controller: ControllerBuilder<IPNetwork>,
    context: &Arc<Context>,
    gates: &Gates,
) {
    let api = WatchApi::all(manager.client.clone());
    let handler = Arc::clone(&context.ledger) as _;
    let main = WatchSpec::new(api, (), handler, gates.networks.clone());
    let reconciler = NetworkReconciler {
        networks: ResourceClient::new(Api::all(manager.client.clone()), &()).requiring_fields(),
        context: Arc::clone(context),
        status_writer: StatusWriter::new(
            manager.events.clone(),
            (),
            STATUS_INTERVAL,
            |network: &IPNetwork| conditions_of(network).to_vec(),
            is_warning,
        ),
        gates: gates.of_ledger(),
        registries_listed: gates.registries.clone(),
        started: Instant::now(),
    };
    let controller = controller
        .concurrency(1)
        .undecodable(|metadata| Some(undecodable(metadata)))
        .span(|network, _| span(network));
    let reconciler = Finalized::new(reconciler, names::PROTECT_NETWORK);
    manager.run_controller(controller, main, reconciler);
}

/// A network in deletion of which only this is known. The ledger knows its pools.
fn undecodable(metadata: &ObjectMeta) -> IPNetwork {
    let metadata = metadata.clone();
    IPNetwork {
        metadata,
        ..IPNetwork::default()
    }
}

fn span(network: &IPNetwork) -> Span {
    trace_span!(
        "network.reconcile",
        network = network.name_any(),
        outcome = field::Empty
    )
}

struct NetworkReconciler {
    networks: ResourceClient<IPNetwork>,
    context: Arc<Context>,
    status_writer: StatusWriter<IPNetwork>,
    /// The watches of what the status counts.
    gates: Vec<ReadinessGate>,
    /// Before, it is not known which registries exist.
    registries_listed: ReadinessGate,
    started: Instant,
}

impl Reconciler for NetworkReconciler {
    type Object = IPNetwork;
    type State = ();
    type Error = CallError;

    fn retry(&self, error: &CallError, failures: u32) -> Retry {
        retry_write(error, failures)
    }

    async fn reconcile(
        &self,
        network: Arc<IPNetwork>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let result = self.reconcile_network(&network).await;
        self.status_writer
            .conclude(&network, result, attempt, STATUS_INTERVAL)
    }
}

impl Protect for NetworkReconciler {
    fn objects(&self, _: &IPNetwork) -> ResourceClient<IPNetwork> {
        self.networks.clone()
    }

    fn protection(&self, network: &IPNetwork) -> Protection {
        if self.status_writer.is_stale(network) {
            return Protection::Postponed(Action::Requeue(EXPECTATION_TTL));
        }
        if !self.gates.iter().all(ReadinessGate::is_ready) {
            return Protection::Postponed(Action::Requeue(GATE_INTERVAL));
        }
        if self
            .context
            .ledger
            .read(|ledger| ledger.networks().have_definitions_problem())
        {
            return Protection::Postponed(Action::Requeue(definitions::RETRY_DELAY));
        }
        // Its status is written as long as others keep it.
        if is_released(network) {
            return Protection::Unmanaged;
        }
        Protection::Managed
    }

    fn protected(&self, network: &IPNetwork) {
        self.status_writer.expect(network);
        self.insert(network);
    }

    /// Its status is written while other objects refer to it.
    async fn in_use(
        &self,
        network: Arc<IPNetwork>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let action = self.reconcile(network, attempt).await?;
        Ok(action.earlier(Action::Requeue(DELETION_RETRY_DELAY)))
    }

    async fn rejected(
        &self,
        network: &IPNetwork,
        error: CallError,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let result = self
            .report_rejected_finalizer(network, error, attempt)
            .await;
        attempt.conclude(is_deleting(network), result, STATUS_INTERVAL)
    }
}

fn is_deleting(network: &IPNetwork) -> bool {
    network.metadata.deletion_timestamp.is_some()
}

/// Whether the network is being deleted and no longer has the finalizer.
fn is_released(network: &IPNetwork) -> bool {
    is_deleting(network) && !finalizer::is_set(network, names::PROTECT_NETWORK)
}

impl NetworkReconciler {
    async fn reconcile_network(&self, network: &Arc<IPNetwork>) -> Result<Action, CallError> {
        let name = network.name_any();
        let is_deleting = is_deleting(network);
        let report = self.report(network);
        // Pools wait for the block lengths. Counts can wait.
        let is_urgent = is_deleting || network.status.is_none() || report.lacks_block_length;
        if let Some(wait) = self.status_writer.delay(network).filter(|_| !is_urgent) {
            return Ok(Action::Requeue(wait));
        }
        // The counts of the status stay until it is known which blocks are those of this cluster.
        let is_starting = self.started.elapsed() < IDENTITY_TIMEOUT && network.status.is_some();
        if is_starting && report.awaits_identity {
            return Ok(Action::Requeue(GATE_INTERVAL));
        }
        let view = &report.view;
        let is_protected = is_deleting && !is_released(network);
        if is_protected && !view.is_used() && !self.has_reservations(&name).await? {
            // No pool belongs to the deleted network.
            return Ok(Action::AwaitChange);
        }
        let lengths = block_lengths(network, view);
        let missing_registry = self.missing_registry(network, &report);
        let blocks = report.blocks.as_ref();
        let obstacle = blocks.and_then(|blocks| blocks.supply.obstacle.as_ref());
        let ready = ready(network, view, lengths, obstacle, missing_registry);
        let status = status(network, view, blocks, ready, lengths);
        self.write_status(network, status).await?;
        Ok(if is_deleting {
            Action::Requeue(DELETION_RETRY_DELAY)
        } else {
            Action::AwaitChange
        })
    }

    /// What the ledger knows of a network.
    fn report(&self, network: &IPNetwork) -> NetworkReport {
        let name = network.name_any();
        let blocks = network.spec.blocks.as_ref();
        let registry = blocks.map(|blocks| blocks.registry.as_str());
        let ledger = &self.context.ledger;
        ledger.read(|ledger| ledger.network_report(&name, registry))
    }

    /// The name of the registry of a network if that does not exist. While this is not known, it is
    /// what the status says.
    fn missing_registry<'a>(
        &self,
        network: &'a IPNetwork,
        report: &NetworkReport,
    ) -> Option<&'a str> {
        let registry = &network.spec.blocks.as_ref()?.registry;
        let is_missing = if self.registries_listed.is_ready() {
            report.lacks_registry
        } else {
            let ready = conditions::find(&network.status.as_ref()?.conditions, conditions::READY)?;
            ready.reason() == conditions::REGISTRY_NOT_FOUND
        };
        is_missing.then_some(registry)
    }

    async fn write_status(
        &self,
        network: &IPNetwork,
        status: IPNetworkStatus,
    ) -> Result<(), CallError> {
        let mut wanted = network.clone();
        wanted.status = Some(status);
        let write = self.status_writer.write(&self.networks, network, &wanted);
        let Some(written) = write.await? else {
            return Ok(());
        };
        self.insert(&written);
        let changed = self.status_writer.changed(network, &wanted);
        blocks::publish_ends(
            &self.context.events,
            &written,
            conditions_of(network),
            &changed,
        );
        Ok(())
    }

    /// Reports on the network that the API server rejects its finalizer, if it does so repeatedly.
    /// Without the finalizer the network gets no block lengths, so that no pool joins it.
    async fn report_rejected_finalizer(
        &self,
        network: &IPNetwork,
        error: CallError,
        attempt: &Attempt<()>,
    ) -> Result<Action, CallError> {
        if !error.is_not_found() && attempt.is_rejected_lastingly() {
            let report = self.report(network);
            let message = format!(
                "cannot add the finalizer {}, will retry: {}",
                names::PROTECT_NETWORK,
                error_chain(&error)
            );
            let reason = conditions::INITIALIZATION_FAILED;
            let ready = Condition::new(conditions::READY, false, reason, message);
            let lengths = known_lengths(network);
            let blocks = report.blocks.as_ref();
            let status = status(network, &report.view, blocks, ready, lengths);
            self.write_status(network, status).await?;
        }
        Err(error)
    }

    /// Whether a live list shows a reservation of the network. The ledger knows of none.
    async fn has_reservations(&self, name: &str) -> Result<bool, CallError> {
        let network = Scope::Network(name.into());
        let mut found = false;
        // The name decides: it reserves an address of the network, also if the object is not valid
        // or cannot be decoded.
        let use_object = |object: &MaybeInvalid<IPReservation>| {
            let name = object.meta().name.as_deref().unwrap_or_default();
            found |= block_of_name(&network, name).is_some();
        };
        self.context.reservations.for_each(use_object).await?;
        Ok(found)
    }

    fn insert(&self, network: &IPNetwork) {
        let ledger = &self.context.ledger;
        ledger.change(|ledger| ledger.insert_network(network));
    }
}

fn conditions_of(network: &IPNetwork) -> &[Condition] {
    let status = network.status.as_ref();
    status.map_or(&[], |status| &status.conditions)
}

/// Whether a condition reports a problem: a transition to it is reported by a warning. That pools
/// of a network contain the same addresses is none: each address is allocated once.
fn is_warning(condition: &Condition) -> bool {
    match &*condition.type_ {
        conditions::READY => {
            let is_requested = condition.reason() == conditions::DELETING;
            condition.status == "False" && !is_requested
        }
        conditions::BLOCK_CONFLICT | conditions::EXCLUSIONS_DIFFER => condition.status == "True",
        _ => false,
    }
}

/// The status of a network with the condition `ready`, and these block lengths.
fn status(
    network: &IPNetwork,
    view: &NetworkView,
    blocks: Option<&NetworkBlocks>,
    ready: Condition,
    block_lengths: BlockLengths,
) -> IPNetworkStatus {
    let before = network.status.clone().unwrap_or_default();
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let capped = |count: u128| i64::try_from(count).unwrap_or(i64::MAX);
    let joined = view
        .members
        .iter()
        .filter(|(_, phase)| *phase != MemberPhase::Leaving)
        .count();
    let member = |(pool, phase): &(capi_ipam_api::PoolKey, MemberPhase)| NetworkMember {
        kind: pool.kind.name().to_owned(),
        namespace: pool.namespace.as_deref().map(str::to_owned),
        name: pool.name.to_string(),
        phase: *phase,
    };
    let (settled, moving): (Vec<_>, Vec<_>) = view
        .members
        .iter()
        .partition(|(_, phase)| *phase == MemberPhase::Member);
    let members = moving.into_iter().chain(settled);
    let mut list = before.conditions;
    let ready = ready.with_observed_generation(network.metadata.generation);
    conditions::set_ready(&mut list, ready, clock::now());
    let overlapping = overlapping(view).with_observed_generation(network.metadata.generation);
    conditions::set(&mut list, overlapping, clock::now());
    let mut status = IPNetworkStatus {
        observed_generation: network.metadata.generation,
        pools: count(joined),
        total: capped(view.total),
        used: capped(view.used),
        free: capped(view.free),
        block_lengths: (block_lengths != BlockLengths::default()).then_some(block_lengths),
        blocks: blocks.map(|blocks| blocks::counts(blocks, before.blocks.as_ref())),
        members: members.take(MAX_MEMBERS).map(member).collect(),
        conditions: list,
    };
    blocks::set_conditions(&mut status, blocks);
    status
}

/// The block lengths in the status of a network.
fn known_lengths(network: &IPNetwork) -> BlockLengths {
    let status = network.status.as_ref();
    let lengths = status.and_then(|status| status.block_lengths);
    lengths.unwrap_or_default()
}

/// The block lengths of a network: those that were set before, while the network is in use; else
/// those of the specification, else those that most reservations have, else those of the oldest
/// pool. A length stays while the network is in use: blocks of different lengths could overlap
/// although the names of their reservations differ.
fn block_lengths(network: &IPNetwork, view: &NetworkView) -> BlockLengths {
    let declared = network.spec.block_lengths.unwrap_or_default();
    let before = if view.keeps_lengths {
        known_lengths(network)
    } else {
        BlockLengths::default()
    };
    let lengths = [before, declared, view.reserved_lengths, view.oldest_lengths];
    BlockLengths {
        ipv4: lengths.iter().find_map(|lengths| lengths.ipv4),
        ipv6: lengths.iter().find_map(|lengths| lengths.ipv6),
    }
}

/// Why the declared block lengths cannot be used.
fn length_problem(network: &IPNetwork, current: BlockLengths) -> Option<String> {
    let declared = network.spec.block_lengths.unwrap_or_default();
    let differ = |family: Family| {
        let (declared, current) = declared.of(family).zip(current.of(family))?;
        (declared != current).then(|| {
            format!(
                "spec.blockLengths: {family} blocks have the length {current} while the network has pools or \
                 reservations, not {declared}"
            )
        })
    };
    differ(Family::V4).or_else(|| differ(Family::V6))
}

/// Whether pools of the network contain the same addresses. Each is allocated once, so this is no
/// problem by itself.
fn overlapping(view: &NetworkView) -> Condition {
    if view.shared == 0 {
        return Condition::new(conditions::OVERLAPPING, false, conditions::NO_OVERLAP, "");
    }
    let message = format!(
        "{} part of more than one pool; each is allocated only once",
        counted(view.shared, "address is", "addresses are")
    );
    Condition::new(
        conditions::OVERLAPPING,
        true,
        conditions::MEMBERS_OVERLAP,
        message,
    )
}

fn ready(
    network: &IPNetwork,
    view: &NetworkView,
    lengths: BlockLengths,
    obstacle: Option<&BlockObstacle>,
    missing_registry: Option<&str>,
) -> Condition {
    if network.metadata.deletion_timestamp.is_some() {
        let message = format!(
            "waiting for {} to leave the network, and for {} to be released",
            counted(view.needed_by, "pool", "pools"),
            counted(view.reservations, "reservation", "reservations")
        );
        return Condition::new(conditions::READY, false, conditions::DELETING, message);
    }
    match (network.spec.rules(), length_problem(network, lengths)) {
        (Ok(_), None) => blocks::ready(&network.name_any(), obstacle, missing_registry),
        (Ok(_), Some(problem)) => {
            Condition::new(conditions::READY, false, conditions::INVALID_SPEC, problem)
        }
        (Err(problems), _) => {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Condition::new(
                conditions::READY,
                false,
                conditions::INVALID_SPEC,
                texts.join("; "),
            )
        }
    }
}
