//! The controller of networks: finalizer, block lengths, counts and members.
//!
//! Which pools belong to a network is computed in the ledger. All managers reconcile all networks:
//! what they write depends only on objects that all of them see.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{
    BlockLengths, IPNetwork, IPNetworkStatus, IPReservation, MemberPhase, NetworkMember,
    NetworkView, Scope, block_of_name, names,
};
use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::controller::{Action, Attempt, ControllerBuilder, Reconciler};
use capi_ipam_controller::expectations::{EXPECTATION_TTL, Expectations};
use capi_ipam_controller::expiring_map::ExpiringMap;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::retry::{Retry, RetryPolicy};
use capi_ipam_controller::watch::{MaybeInvalid, WatchApi, WatchSpec};
use capi_ipam_controller::{clock, finalizer, patch, trace_span, traces};
use capi_ipam_ip::Family;
use capi_ipam_provider::api::Uid;
use kube::{Api, Resource, ResourceExt};
use parking_lot::Mutex;
use tracing::{debug, field, info};

use super::context::Context;
use super::gates::Gates;
use super::transitions::log_transitions;

/// The minimum interval between two status updates of one network. Its counts are computed from all
/// addresses in use.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);
/// The delay before a network that is being deleted and is still in use is reconciled again.
const DELETION_RETRY_DELAY: Duration = Duration::from_secs(5);
/// How often to check whether everything is listed.
const GATE_INTERVAL: Duration = Duration::from_millis(250);
/// The delays before a network is reconciled again after a failure.
const RETRY: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(50),
    max: Duration::from_secs(10),
};
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
        networks: ResourceClient::new(Api::all(manager.client.clone()), &()),
        context: Arc::clone(context),
        expectations: Expectations::default(),
        written: Mutex::default(),
        gates: gates.of_ledger(),
    };
    let task = controller.run(main, 1, manager.stop.clone(), Arc::new(reconciler));
    manager.add("IPNetwork controller", task);
}

struct NetworkReconciler {
    networks: ResourceClient<IPNetwork>,
    context: Arc<Context>,
    expectations: Expectations,
    /// The networks whose status was written in the last [`STATUS_INTERVAL`].
    written: Mutex<ExpiringMap<Uid, Instant>>,
    /// The watches of what the status counts.
    gates: Vec<ReadinessGate>,
}

impl Reconciler for NetworkReconciler {
    type Object = IPNetwork;
    type State = ();
    type Error = CallError;

    fn retry(&self, error: &CallError, failures: u32) -> Retry {
        if error.is_unserializable() {
            Retry::GiveUp
        } else {
            Retry::After(RETRY.delay(failures))
        }
    }

    async fn reconcile(
        &self,
        network: Arc<IPNetwork>,
        _: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        if self.expectations.is_stale(network.as_ref(), Instant::now()) {
            return Ok(Action::Requeue(EXPECTATION_TTL));
        }
        if !self.gates.iter().all(ReadinessGate::is_ready) {
            return Ok(Action::Requeue(GATE_INTERVAL));
        }
        let span = trace_span!(
            "network.reconcile",
            network = network.name_any(),
            outcome = field::Empty
        );
        let result = traces::in_span(span.clone(), self.reconcile_network(&network)).await;
        span.record("outcome", traces::outcome(&result));
        match result {
            Err(error) if error.is_not_found() => Ok(Action::AwaitChange),
            Err(error) if error.is_conflict() => {
                debug!(network = network.name_any(), "conflict, will retry");
                Ok(Action::Requeue(STATUS_INTERVAL))
            }
            result => result,
        }
    }
}

impl NetworkReconciler {
    async fn reconcile_network(&self, network: &Arc<IPNetwork>) -> Result<Action, CallError> {
        let name = network.name_any();
        let mut network = Arc::clone(network);
        let is_deleting = network.metadata.deletion_timestamp.is_some();
        let has_finalizer = finalizer::is_set(network.as_ref(), names::PROTECT_NETWORK);
        if !is_deleting && !has_finalizer {
            let written =
                finalizer::add(&self.networks, network.as_ref(), names::PROTECT_NETWORK).await?;
            network = Arc::new(self.record_write(written));
        }
        // Pools wait for the block lengths. Counts can wait.
        let is_urgent = is_deleting
            || network.status.is_none()
            || self
                .context
                .ledger
                .read(|ledger| ledger.lacks_block_length(&name));
        if let Some(wait) = self.wait_time(&network).filter(|_| !is_urgent) {
            return Ok(Action::Requeue(wait));
        }
        let view = self.context.ledger.read(|ledger| ledger.network(&name));
        if is_deleting && has_finalizer && !view.is_used() && !self.has_reservations(&name).await? {
            finalizer::remove(&self.networks, network.as_ref(), names::PROTECT_NETWORK).await?;
            info!(
                network = name,
                "removed the finalizer: no pool belongs to the deleted network"
            );
            return Ok(Action::AwaitChange);
        }
        let status = status(&network, &view);
        let mut wanted = IPNetwork::clone(&network);
        let after = status.conditions.clone();
        wanted.status = Some(status);
        if let Some(written) = patch::write(&self.networks, network.as_ref(), &wanted).await? {
            let before = network.status.as_ref().map(|status| &*status.conditions);
            let object = format!("IPNetwork {name}");
            log_transitions(&object, before.unwrap_or_default(), &after, is_problem);
            self.record_write(written);
        }
        Ok(if is_deleting {
            Action::Requeue(DELETION_RETRY_DELAY)
        } else {
            Action::AwaitChange
        })
    }

    /// The time until the status can be written; `None` if it can be written now.
    fn wait_time(&self, network: &IPNetwork) -> Option<Duration> {
        let (uid, now) = (
            Uid::of(network.metadata.uid.as_deref().unwrap_or_default()),
            Instant::now(),
        );
        let mut written = self.written.lock();
        if let Some(at) = written.get(&uid, now) {
            let wait = STATUS_INTERVAL.saturating_sub(now.saturating_duration_since(*at));
            return Some(wait).filter(|wait| !wait.is_zero());
        }
        written.insert(uid, now, STATUS_INTERVAL, now);
        None
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

    fn record_write(&self, written: IPNetwork) -> IPNetwork {
        self.expectations.expect(&written, Instant::now());
        self.context
            .ledger
            .change(|ledger| ledger.insert_network(&written));
        written
    }
}

/// Whether a condition reports a problem. That pools of a network contain the same addresses is
/// none: each address is allocated once.
fn is_problem(condition: &Condition) -> bool {
    condition.type_ == conditions::READY && condition.status == "False"
}

/// The status of a network.
fn status(network: &IPNetwork, view: &NetworkView) -> IPNetworkStatus {
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
    let block_lengths = block_lengths(network, before.block_lengths.unwrap_or_default(), view);
    let ready =
        ready(network, view, block_lengths).with_observed_generation(network.metadata.generation);
    conditions::set(&mut list, ready, clock::now());
    let overlapping = overlapping(view).with_observed_generation(network.metadata.generation);
    conditions::set(&mut list, overlapping, clock::now());
    IPNetworkStatus {
        observed_generation: network.metadata.generation,
        pools: count(joined),
        total: capped(view.total),
        used: capped(view.used),
        free: capped(view.free),
        block_lengths: (block_lengths != BlockLengths::default()).then_some(block_lengths),
        members: members.take(MAX_MEMBERS).map(member).collect(),
        conditions: list,
    }
}

/// The block lengths of a network: those that were set before, while the network is in use; else
/// those of the specification, else those that most reservations have, else those of the oldest
/// pool. A length stays while the network is in use: blocks of different lengths could overlap
/// although the names of their reservations differ.
fn block_lengths(network: &IPNetwork, before: BlockLengths, view: &NetworkView) -> BlockLengths {
    let declared = network.spec.block_lengths.unwrap_or_default();
    let before = if view.keeps_lengths {
        before
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
        "{} addresses are part of more than one pool; each is allocated only once",
        view.shared
    );
    Condition::new(
        conditions::OVERLAPPING,
        true,
        conditions::MEMBERS_OVERLAP,
        message,
    )
}

fn ready(network: &IPNetwork, view: &NetworkView, lengths: BlockLengths) -> Condition {
    if network.metadata.deletion_timestamp.is_some() {
        let message = format!(
            "waiting for {} pools that belong to the network, and for {} reservations",
            view.needed_by, view.reservations
        );
        return Condition::new(conditions::READY, false, conditions::DELETING, message);
    }
    match (network.spec.rules(), length_problem(network, lengths)) {
        (Ok(_), None) => Condition::new(conditions::READY, true, conditions::NETWORK_READY, ""),
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
