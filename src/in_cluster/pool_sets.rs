//! The controllers of sets of pools: finalizer, counts and conditions.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{
    Audience, MAX_SET_POOLS, PoolSet, PoolSetKey, PoolSetKind, PoolSetStatus, counted, first_texts,
    names,
};
use capi_ipam_controller::client::{ApiObject, CallError, ResourceClient};
use capi_ipam_controller::controller::{Action, ControllerBuilder, Protection};
use capi_ipam_controller::expiring_map::ExpiringMap;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::{EventHandler, Invalid, WatchApi, WatchSpec};
use capi_ipam_controller::{clock, finalizer, trace_span};
use capi_ipam_ledger::{SetInfo, SetReport};
use capi_ipam_provider::advanced::{PoolControl, PoolPlan, STATUS_INTERVAL, run_pools};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, Uid, is_paused};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use parking_lot::Mutex;
use tracing::{Span, field};

use super::context::Context;
use super::definitions;
use super::gates::Gates;
use super::shared_ledger::SharedLedger;

/// The delay before it is checked again whether a set that is being deleted is in use. Nothing
/// announces the release of its last address.
const DELETION_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Starts the controller of the sets of one kind, whose watch has the gate `gate`.
pub(super) fn start(
    manager: &mut Manager,
    kind: PoolSetKind,
    mut controller: ControllerBuilder<PoolSet, Infallible>,
    context: &Arc<Context>,
    gate: &ReadinessGate,
    gates: &Gates,
) {
    for other in gates.of_pool() {
        controller.wait_for(other);
    }
    let handler = Arc::new(SetEventHandler {
        ledger: Arc::clone(&context.ledger),
        kind,
    });
    let api = WatchApi::all_with(manager.client.clone(), &kind);
    let main = WatchSpec::new(api, kind, handler, gate.clone());
    let control = SetControl {
        kind,
        client: manager.client.clone(),
        context: Arc::clone(context),
        pools_synced: gates.pools.to_vec(),
        usages: Mutex::default(),
    };
    let controller = controller
        .undecodable(|metadata| Some(undecodable(metadata)))
        .span(move |set, _| span(kind, set));
    run_pools(manager, controller, main, kind, control);
}

/// A set in deletion of which only this is known.
fn undecodable(metadata: &ObjectMeta) -> PoolSet {
    PoolSet {
        metadata: metadata.clone(),
        ..PoolSet::default()
    }
}

fn span(kind: PoolSetKind, set: &PoolSet) -> Span {
    trace_span!(
        "pool_set.reconcile",
        set = %PoolSetKey::new(kind, &set.metadata),
        outcome = field::Empty,
    )
}

/// Records the sets of one kind in the ledger.
struct SetEventHandler {
    ledger: Arc<SharedLedger>,
    kind: PoolSetKind,
}

impl EventHandler<PoolSet> for SetEventHandler {
    fn init(&self) {
        self.ledger.note(|ledger| ledger.begin_set_list(self.kind));
    }

    fn init_done(&self) {
        self.ledger.note(|ledger| ledger.end_set_list(self.kind));
    }

    fn apply(&self, set: &PoolSet) {
        let key = PoolSetKey::new(self.kind, &set.metadata);
        let info = SetInfo::of(&key, set);
        self.ledger
            .note(|ledger| ledger.apply_set(&key, Some(info)));
    }

    fn delete(&self, set: &PoolSet) {
        let key = PoolSetKey::new(self.kind, &set.metadata);
        self.ledger.note(|ledger| ledger.remove_set(&key));
    }

    fn apply_invalid(&self, object: &Invalid) {
        let key = PoolSetKey::new(self.kind, &object.metadata);
        self.ledger.note(|ledger| ledger.apply_set(&key, None));
    }

    fn delete_invalid(&self, object: &Invalid) {
        let key = PoolSetKey::new(self.kind, &object.metadata);
        self.ledger.note(|ledger| ledger.remove_set(&key));
    }
}

/// The sets of one kind.
struct SetControl {
    kind: PoolSetKind,
    client: Client,
    context: Arc<Context>,
    /// The gates of all kinds of pools.
    pools_synced: Vec<ReadinessGate>,
    /// The last result of lists for each set that is being deleted and is in use.
    usages: Mutex<ExpiringMap<Uid, Usage>>,
}

/// Whether a set is in use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Usage {
    Unused,
    /// This object cannot be decoded, and may use the set.
    Undecodable(String),
    Used,
}

impl PoolControl for SetControl {
    type Pool = PoolSet;

    fn finalizer(&self) -> Option<&'static str> {
        Some(names::PROTECT_POOL)
    }

    fn client(&self, set: &PoolSet) -> ResourceClient<PoolSet> {
        let client = self.client.clone();
        let api = match set.metadata.namespace.as_deref() {
            Some(namespace) if !self.kind.is_global() => {
                Api::namespaced_with(client, namespace, &self.kind)
            }
            _ => Api::all_with(client, &self.kind),
        };
        ResourceClient::new(api, &self.kind).requiring_fields()
    }

    fn protection(&self, set: &PoolSet) -> Protection {
        if !self.pools_synced.iter().all(ReadinessGate::is_ready) {
            return Protection::Postponed(Action::Requeue(STATUS_INTERVAL));
        }
        let ledger = &self.context.ledger;
        if ledger.read(|ledger| ledger.networks().have_definitions_problem()) {
            return Protection::Postponed(Action::Requeue(definitions::RETRY_DELAY));
        }
        if is_paused(&set.metadata) {
            return Protection::Unmanaged;
        }
        Protection::Managed
    }

    /// The watch shows all states in order, and a response may be older than what it has shown.
    fn seen(&self, _: &PoolSet) {}

    fn conditions(set: &PoolSet) -> Vec<Condition> {
        let status = set.status.as_ref();
        status.map_or_else(Vec::new, |status| status.conditions.clone())
    }

    fn is_warning(condition: &Condition) -> bool {
        let problems = [conditions::INVALID_SPEC, conditions::INITIALIZATION_FAILED];
        let reason = condition.reason();
        condition.type_ == conditions::READY && problems.contains(&reason)
    }

    async fn plan(
        &self,
        set: &PoolSet,
        finalizer_error: Option<&str>,
    ) -> Result<PoolPlan<PoolSet>, CallError> {
        let key = PoolSetKey::new(self.kind, &set.metadata);
        let report = self.context.ledger.note(|ledger| ledger.set_report(&key));
        let is_deleting = set.metadata.deletion_timestamp.is_some();
        let is_protected = finalizer::is_set(set, names::PROTECT_POOL);
        let mut usage = Usage::Unused;
        if is_deleting && is_protected && !is_paused(&set.metadata) {
            let uid = Uid::of(set.metadata.uid.as_deref().unwrap_or_default());
            usage = self.usage(&key, uid).await?;
            if usage == Usage::Unused {
                return Ok(PoolPlan::Released);
            }
        }
        let Some(report) = report else {
            return Ok(PoolPlan::Later(STATUS_INTERVAL));
        };
        let status = status(set, &report, finalizer_error, &usage);
        let mut wanted = None;
        if set.status.as_ref() != Some(&status) {
            let mut changed = set.clone();
            changed.status = Some(status);
            wanted = Some(Box::new(changed));
        }
        let next = if is_deleting {
            Action::Requeue(DELETION_CHECK_INTERVAL)
        } else {
            Action::AwaitChange
        };
        Ok(PoolPlan::Report(wanted, next))
    }
}

impl SetControl {
    /// Whether live lists show a claim with an address, or an IPAddress, that names the set. The set is
    /// reconciled at each change of its pools: a set in use is not checked again for a while.
    async fn usage(&self, key: &PoolSetKey, uid: Uid) -> Result<Usage, CallError> {
        if let Some(found) = self.usages.lock().get(&uid, Instant::now()) {
            return Ok(found.clone());
        }
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let Context {
            contract, ledger, ..
        } = &*self.context;
        // One that only waits has the finalizer, too.
        let has_address = |claim: &IPAddressClaim| {
            let uid = Uid::of(claim.metadata.uid.as_deref().unwrap_or_default());
            let name = NamespacedName::of(&claim.metadata);
            let recorded = || ledger.read(|ledger| ledger.recorded_pool(&name, uid));
            claim.bound_address().is_some() || recorded().is_some()
        };
        let is_user = |claim: &IPAddressClaim| {
            PoolSetKey::of_claim(claim).as_ref() == Some(key) && has_address(claim)
        };
        let is_of_set = |address: &IPAddress| PoolSetKey::of_address(address).as_ref() == Some(key);
        let claims = contract.claims(namespace);
        let audience = Audience::of(key.namespace.as_deref());
        let mut usage = usage_by(&claims, audience, "IPAddressClaim", is_user).await?;
        if usage != Usage::Used {
            let addresses = contract.addresses(namespace);
            let by_addresses = usage_by(&addresses, audience, "IPAddress", is_of_set).await?;
            usage = usage.max(by_addresses);
        }
        if usage != Usage::Unused {
            let mut usages = self.usages.lock();
            let now = Instant::now();
            usages.insert(uid, usage.clone(), DELETION_CHECK_INTERVAL, now);
        }
        Ok(usage)
    }
}

/// Whether an object matches, or cannot be decoded and may match.
async fn usage_by<K: ApiObject>(
    client: &ResourceClient<K>,
    audience: Audience<'_>,
    kind: &str,
    matches: impl Fn(&K) -> bool,
) -> Result<Usage, CallError> {
    let mut is_used = false;
    let mut undecodable = None;
    client
        .for_each_page(|page| {
            for object in page {
                match &object.0 {
                    Ok(valid) => is_used |= matches(valid),
                    Err(invalid) => undecodable = Some(NamespacedName::of(&invalid.metadata)),
                }
            }
        })
        .await?;
    if is_used {
        return Ok(Usage::Used);
    }
    Ok(match undecodable {
        Some(name) => Usage::Undecodable(audience.object(kind, name.namespace(), name.name())),
        None => Usage::Unused,
    })
}

fn status(
    set: &PoolSet,
    report: &SetReport,
    finalizer_error: Option<&str>,
    usage: &Usage,
) -> PoolSetStatus {
    let generation = set.metadata.generation;
    let before = set.status.as_ref();
    let mut list = before.map_or_else(Vec::new, |status| status.conditions.clone());
    let ready = ready(report, finalizer_error, usage).with_observed_generation(generation);
    conditions::set_ready(&mut list, ready, clock::now());
    PoolSetStatus {
        observed_generation: generation,
        conditions: list,
        ..report.counts.clone()
    }
}

fn ready(report: &SetReport, finalizer_error: Option<&str>, usage: &Usage) -> Condition {
    let not_ready = |reason, message| Condition::new(conditions::READY, false, reason, message);
    if report.info.deleting {
        let mut message =
            "waiting until no IPAddressClaim with an address names the set".to_owned();
        if let Usage::Undecodable(object) = usage {
            let hint =
                format!("; {object} cannot be decoded and may name it: correct or delete it");
            message.push_str(&hint);
        }
        return not_ready(conditions::DELETING, message);
    }
    if let Some(error) = finalizer_error {
        let finalizer = names::PROTECT_POOL;
        let message = format!("cannot add the finalizer {finalizer}, will retry: {error}");
        return not_ready(conditions::INITIALIZATION_FAILED, message);
    }
    if let Err(problems) = &report.info.members {
        return not_ready(conditions::INVALID_SPEC, problems.to_string());
    }
    let mut missing = missing(report);
    if report.excess > 0 {
        let excess = counted(report.excess, "pool", "pools");
        let text = format!(
            "; the selector matches {excess} more than the {MAX_SET_POOLS} of a set, which are not used"
        );
        missing.push_str(&text);
    }
    if report.ready == 0 {
        let message = format!("no pool of the set can allocate addresses{missing}");
        return not_ready(conditions::NO_POOLS, message);
    }
    let message = missing.trim_start_matches("; ").to_owned();
    Condition::new(conditions::READY, true, conditions::POOLS_READY, message)
}

/// The listed pools that do not exist, after a semicolon.
fn missing(report: &SetReport) -> String {
    if report.missing.is_empty() {
        return String::new();
    }
    let names = first_texts(&report.missing, ", ");
    format!("; these do not exist: {names}")
}
