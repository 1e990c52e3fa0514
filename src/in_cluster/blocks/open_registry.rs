//! A registry that this process is connected to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{ClusterRecord, IPRegistryStatus};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_ledger::BlockObstacle;
use capi_ipam_registry::{IDENTITY_NAMESPACE, OpenError, RecordCache, RegistryError, Version};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::measured::MeasuredRegistry;
use super::recovery::{RECOVERY_TIMEOUT, Recovery, has_lost_writes};
use crate::in_cluster::shared_ledger::SharedLedger;
use crate::in_cluster::signs_of_life::SignsOfLife;

/// How often a registry is asked that cannot be reached.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// How long the first list of the records of a registry may take until it is reported as missing.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// How much later than this one another management cluster may notice that the registry has lost writes:
/// its watch has to end first.
const NOTICE_TIMEOUT: Duration = Duration::from_mins(1);

/// The maximum number of management clusters in the status of the IPRegistry.
pub(super) const MAX_CLUSTERS: usize = 50;

/// The management clusters for which the status of the IPRegistry has no room. No ID is like this, so they are
/// waited for as long as for one that writes nothing.
const UNLISTED: &str = "those that the status does not list";

/// What is known of a registry before it is opened.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// Whether another cluster used the identity of this one when that was last known.
    pub(super) is_disturbed: bool,
    /// The identity of the registry that was open before with other settings, and what was known of its
    /// writes.
    former: Option<Former>,
}

#[derive(Clone, Debug)]
struct Former {
    id: String,
    writes: Option<u64>,
    clusters: BTreeSet<String>,
}

impl Before {
    /// What the status of the IPRegistry says, and the registry that is open with other settings.
    pub(super) fn of(status: Option<&IPRegistryStatus>, open: Option<&OpenRegistry>) -> Self {
        let was_disturbed = status.is_some_and(IPRegistryStatus::shows_identity_in_use);
        Self {
            is_disturbed: open.map_or(was_disturbed, OpenRegistry::is_suspended),
            former: open.and_then(OpenRegistry::former),
        }
    }
}

/// A registry, and what is known of its records.
pub(super) struct OpenRegistry {
    /// The name of the IPRegistry.
    pub(super) name: String,
    /// The identity of this management cluster.
    pub(super) cluster: Arc<str>,
    /// The UID of its namespace `kube-system`; `None` without this namespace.
    pub(super) uid: Option<String>,
    pub(super) backend: MeasuredRegistry,
    pub(super) records: RecordCache,
    pub(super) ledger: Arc<SharedLedger>,
    pub(super) signs_of_life: Arc<SignsOfLife>,
    opened_at: Instant,
    state: Mutex<State>,
    recovered: Notify,
    list_requested: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The last failures of requesters, which have not succeeded since.
    problems: BTreeMap<Requester, (String, Instant)>,
    /// Whether something has failed since the last sign of life.
    needs_probe: bool,
    /// Whether another process writes with the identity of this management cluster.
    is_disturbed: bool,
    /// The UID of another cluster with the identity of this one.
    other_cluster: Option<String>,
    /// What was known of the registry with other settings.
    former: Option<Former>,
    /// The identity of the registry in the status of the IPRegistry.
    confirmed_id: Option<String>,
    /// Whether all records count. If not, those of the blocks of this management cluster can count, which are
    /// read before the list.
    is_in_use: bool,
    /// Whether the registry is another one than that of the status.
    is_replaced: bool,
    /// The largest number of writes of the record of this management cluster that is known.
    writes: Option<u64>,
    /// The management clusters that the status of the IPRegistry has named, and later those that were known
    /// before the last list.
    clusters: BTreeSet<String>,
    /// Since the registry has lost writes, until all management clusters have written again.
    recovery: Option<Recovery>,
    /// When this process last noticed that the registry has lost writes.
    lost_at: Option<Instant>,
    /// Whether the registry had the records of all blocks of this management cluster since it was
    /// opened, or since it has lost writes.
    is_recorded: bool,
    /// Whether the recovery is over from the loss that the sign of life still shows.
    has_recovered: bool,
    /// Whether the records have to be listed again, since a read shows that the registry has lost writes.
    is_outdated: bool,
    /// Whether a sign of life of this management cluster was written since the registry was opened.
    has_shown_life: bool,
    /// The number of blocks of this management cluster.
    held: usize,
    /// The last sign of life that the watch has not shown, and when its write began.
    unseen_heartbeat: Option<(Version, Instant)>,
    /// The management clusters that exclude other addresses than this one, by network of which this one has
    /// written what it excludes.
    differing_clusters: BTreeMap<String, Vec<Box<str>>>,
}

impl State {
    fn failed(&mut self, requester: Requester, text: String, at: Instant) {
        self.problems.insert(requester, (text, at));
        self.needs_probe = true;
    }

    fn succeeded(&mut self, requester: Requester) {
        self.problems.remove(&requester);
        self.needs_probe &= requester != Requester::Heartbeat;
    }

    /// The problem to report.
    fn problem(&self) -> Option<&String> {
        let (text, _) = self.problems.values().next()?;
        Some(text)
    }

    /// Whether the driver may send a request: each could take its whole deadline, so a registry that
    /// cannot be reached is not asked for each block.
    fn allows_requests(&self, now: Instant) -> bool {
        let is_recent = self
            .problems
            .get(&Requester::Driver)
            .is_some_and(|(_, at)| now.saturating_duration_since(*at) < PROBE_INTERVAL);
        !is_recent && !self.problems.contains_key(&Requester::Heartbeat)
    }

    fn is_suspended(&self) -> bool {
        self.is_disturbed || self.other_cluster.is_some()
    }

    /// What the registry that is in use, with these management clusters, has to show when it is used
    /// again; or that which was in use before.
    fn former(&self, mut clusters: BTreeSet<String>) -> Option<Former> {
        if !self.is_in_use {
            return self.former.clone();
        }
        clusters.extend(self.clusters.iter().cloned());
        clusters.extend(self.recovery.iter().flat_map(Recovery::awaited));
        Some(Former {
            id: self.confirmed_id.clone()?,
            writes: self.writes,
            clusters,
        })
    }

    /// Whether the sign of life of this management cluster shows a loss that is not known yet.
    fn notices_loss(&mut self, record: Option<&ClusterRecord>) -> bool {
        let has_lost = has_lost_writes(self.writes, record);
        self.has_recovered &= has_lost;
        has_lost && !self.has_recovered && self.recovery.is_none()
    }
}

/// Who sends requests to a registry, in the order in which their problems are reported. Each of them knows only
/// about its own requests: that one succeeds does not end the problem of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Requester {
    /// The sign of life of this management cluster.
    Heartbeat,
    /// The watch of the records.
    Watch,
    /// The driver of the blocks.
    Driver,
    /// The identity of the registry.
    Identity,
}

/// Why no block is taken from a registry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is another one than that of the status: nothing is written to it.
    Replaced,
    /// Another cluster, with this UID, or another process writes with the identity of this management cluster.
    IdInUse(Option<String>),
    /// It cannot be reached, for this reason.
    Unreachable(String),
    /// It has lost writes, and these management clusters have to write again.
    Restored(Vec<String>),
    /// Its records are being listed.
    Listing,
}

/// Who this management cluster is in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// The `clusterID`.
    pub(super) id: String,
    /// The UID of the namespace `kube-system`.
    pub(super) uid: Option<String>,
}

/// Why this process is not connected to a registry.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// What the specification names cannot be read.
    #[error("cannot read {what}")]
    Read {
        /// What is read.
        what: String,
        /// The error of the request.
        #[source]
        source: CallError,
    },
    /// The namespace whose uid is the identity does not exist.
    #[error(
        "spec.clusterID: there is no namespace {IDENTITY_NAMESPACE}, whose UID is the default; write an ID"
    )]
    NoIdentity,
    /// The registry cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl ConnectError {
    /// Whether the specification or the Secret has to be corrected.
    pub(super) fn is_of_settings(&self) -> bool {
        match self {
            Self::Read { .. } => false,
            Self::NoIdentity => true,
            Self::Open(error) => error.is_of_settings(),
        }
    }
}

impl fmt::Debug for OpenRegistry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl OpenRegistry {
    pub(super) fn new(
        name: String,
        identity: Identity,
        backend: MeasuredRegistry,
        ledger: Arc<SharedLedger>,
        signs_of_life: Arc<SignsOfLife>,
        before: Before,
    ) -> Self {
        let state = State {
            is_disturbed: before.is_disturbed,
            former: before.former,
            ..State::default()
        };
        Self {
            name,
            cluster: identity.id.into(),
            uid: identity.uid,
            backend,
            records: RecordCache::default(),
            ledger,
            signs_of_life,
            opened_at: Instant::now(),
            state: Mutex::new(state),
            recovered: Notify::new(),
            list_requested: Notify::new(),
        }
    }

    /// A request has succeeded, or the requester has nothing to send any more.
    pub(super) fn succeeded(&self, requester: Requester) {
        let mut state = self.state.lock();
        let had_problem = state.problem().is_some();
        state.succeeded(requester);
        if had_problem && state.problem().is_none() {
            self.recovered.notify_one();
        }
    }

    /// A request has failed: until the requester succeeds, the registry cannot be used.
    pub(super) fn failed(&self, requester: Requester, error: &RegistryError) {
        let mut problem = error_chain(error);
        if let Some(advice) = error.advice() {
            problem = format!("{problem}; {advice}");
        }
        self.set_problem(requester, problem);
    }

    /// As [`Self::failed`], for a reason that is a text.
    pub(super) fn set_problem(&self, requester: Requester, problem: String) {
        let mut state = self.state.lock();
        state.failed(requester, problem, Instant::now());
    }

    /// Waits until the registry can be used again. For one listener: each recovery wakes one call.
    pub(super) async fn recovered(&self) {
        self.recovered.notified().await;
    }

    /// Asks for a sign of life soon: it finds out whether a failure concerns the whole registry.
    pub(super) fn request_probe(&self) {
        self.state.lock().needs_probe = true;
    }

    /// Whether something has failed since the last sign of life.
    pub(super) fn needs_probe(&self) -> bool {
        self.state.lock().needs_probe
    }

    /// Whether the driver may send a request to the registry now.
    pub(super) fn allows_requests(&self) -> bool {
        self.state.lock().allows_requests(Instant::now())
    }

    fn has_problem(&self) -> bool {
        self.state.lock().problem().is_some()
    }

    /// Why no block is taken, as the condition of the registry says it.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        let state = self.state.lock();
        if state.is_replaced {
            return Some(Trouble::Replaced);
        }
        if state.is_suspended() {
            return Some(Trouble::IdInUse(state.other_cluster.clone()));
        }
        if let Some(problem) = state.problem() {
            return Some(Trouble::Unreachable(problem.clone()));
        }
        if let Some(recovery) = &state.recovery {
            return Some(Trouble::Restored(recovery.awaited()));
        }
        (!self.records.is_complete()).then_some(Trouble::Listing)
    }

    /// Why no block is taken, as the networks and the claims that wait for one say it.
    pub(super) fn obstacle(&self) -> Option<BlockObstacle> {
        match self.trouble() {
            Some(Trouble::Replaced) => Some(BlockObstacle::Replaced),
            Some(Trouble::IdInUse(_)) => Some(BlockObstacle::Suspended),
            Some(Trouble::Unreachable(_)) => Some(BlockObstacle::Unreachable),
            _ => self.is_recovering().then_some(BlockObstacle::Restored),
        }
    }

    /// Whether the records are listed for the first time, and nothing has failed: the state of the
    /// registry is not known yet.
    pub(super) fn is_starting(&self) -> bool {
        let is_recent = self.opened_at.elapsed() < LIST_TIMEOUT;
        is_recent && !self.records.is_complete() && !self.has_problem()
    }

    /// Whether the records are listed, and are those of the registry that the status names.
    pub(super) fn is_confirmed(&self) -> bool {
        let is_in_use = self.state.lock().is_in_use;
        is_in_use && self.records.is_complete() && self.shows_own_blocks()
    }

    /// Whether the records of the blocks of this management cluster are known, and are those of the registry
    /// that the status names.
    pub(super) fn shows_own_blocks(&self) -> bool {
        let confirmed = self.state.lock().confirmed_id.clone();
        confirmed.is_some() && self.records.registry_id() == confirmed
    }

    /// Records that the status of the IPRegistry names this identity, `None` if the registry has another
    /// one.
    pub(super) fn set_confirmed(&self, id: Option<&str>) {
        let mut state = self.state.lock();
        if id.is_none() {
            // The records are those of the other registry.
            state.former = state.former(BTreeSet::new());
        }
        state.is_replaced = id.is_none();
        state.is_in_use = id.is_some();
        state.confirmed_id = id.map(str::to_owned);
    }

    /// The records of this management cluster count from now on: they are read from the registry with this
    /// identity, which the status of the IPRegistry names.
    pub(super) fn confirm_own_records(&self, id: &str) {
        {
            let mut state = self.state.lock();
            if !state.is_in_use {
                state.confirmed_id = Some(id.to_owned());
            }
        }
        self.check_cluster();
    }

    /// The status of the IPRegistry names the registry with this identity: its records, which are listed, count
    /// from now on.
    pub(super) fn begin_to_use(&self, id: &str, status: &IPRegistryStatus) {
        if self.is_confirmed() {
            return;
        }
        // A registry that was never used has nothing to lose.
        if let Some(known) = status.registry_id.as_deref() {
            let clusters = status.clusters.iter().map(|cluster| cluster.id.clone());
            let record = self.records.cluster(&self.cluster);
            self.begin_recovery(|state| {
                state.clusters = clusters.collect();
                if state.clusters.len() >= MAX_CLUSTERS {
                    state.clusters.insert(UNLISTED.to_owned());
                }
                if known == id {
                    state.writes = state.writes.max(status.writes);
                }
                if let Some(former) = state.former.take_if(|former| former.id == id) {
                    state.writes = state.writes.max(former.writes);
                    state.clusters.extend(former.clusters);
                }
                // A registry that replaces another one lacks the blocks of those that do not use it yet. And nobody
                // has written since a recovery began before.
                known != id || state.recovery.is_some() || state.notices_loss(record.as_ref())
            });
        }
        // No block is taken before a loss is noticed.
        self.set_confirmed(Some(id));
        self.check_cluster();
        self.record_blocks();
        self.recovered.notify_one();
    }

    /// What the same registry with other settings has to show.
    fn former(&self) -> Option<Former> {
        let known = self.records.clusters().into_keys();
        let known = known.map(String::from).collect();
        self.state.lock().former(known)
    }

    /// Whether the registry can be reached, and its records are listed.
    pub(super) fn is_available(&self) -> bool {
        self.is_confirmed() && !self.has_problem()
    }

    /// The number of blocks of this management cluster, as the last pass of the driver has found it.
    pub(super) fn held(&self) -> usize {
        self.state.lock().held
    }

    pub(super) fn set_held(&self, held: usize) {
        self.state.lock().held = held;
    }

    /// Records a sign of life that was written.
    pub(super) fn wrote_heartbeat(&self, version: Version, writes: Option<u64>, began: Instant) {
        let mut state = self.state.lock();
        state.writes = state.writes.max(writes);
        state.unseen_heartbeat = Some((version, began));
        state.has_shown_life = true;
    }

    /// Whether a block may be taken. Before the first sign of life, another management cluster with the
    /// same identity may do the same. And until the watch has shown the last one, the registry may have lost
    /// writes during an interruption of the watch, which the next list shows.
    pub(super) fn shows_life(&self) -> bool {
        let state = self.state.lock();
        state.has_shown_life && state.unseen_heartbeat.is_none()
    }

    /// Whether a sign of life was written since the registry was opened.
    pub(super) fn has_shown_life(&self) -> bool {
        self.state.lock().has_shown_life
    }

    /// Records the last sign of life of this process if the watch has shown it.
    pub(super) fn note_sign_of_life(&self) {
        let mut state = self.state.lock();
        if let Some((version, began)) = &state.unseen_heartbeat
            && self.records.has_watched(version)
        {
            // What others have written before may be among the lost writes.
            if state.recovery.is_none() && !state.is_outdated {
                self.signs_of_life.seen(&self.name, *began);
            }
            state.unseen_heartbeat = None;
            // Blocks can be taken from now on.
            self.recovered.notify_one();
        }
    }

    /// Compares what the management clusters exclude, according to their signs of life.
    pub(super) fn compare_exclusions(&self) {
        if self.is_confirmed() {
            let differing = self.records.differing_exclusions(&self.cluster);
            self.state.lock().differing_clusters = differing;
        }
    }

    /// The management clusters that exclude other addresses from a network than this one; `None` if they were not
    /// compared.
    pub(super) fn differing_clusters(&self, network: &str) -> Option<Vec<Box<str>>> {
        self.state.lock().differing_clusters.get(network).cloned()
    }

    /// Another process writes with the identity of this management cluster, or no longer.
    pub(super) fn set_disturbed(&self, is_disturbed: bool) {
        self.ledger.change(|ledger| {
            self.state.lock().is_disturbed = is_disturbed;
            ledger.suspend_blocks_of(&self.name, self.is_suspended());
        });
    }

    /// Compares the sign of life under the identity of this management cluster with its UID, and with
    /// the number of its writes. If another cluster has the identity, no block is used: it may be the
    /// one that has them. The cache is read while the ledger is locked: the later of two states counts.
    pub(super) fn check_cluster(&self) {
        self.ledger.change(|ledger| {
            // What was known last stays until the registry shows it.
            if !self.shows_own_blocks() {
                return;
            }
            let record = self.records.cluster(&self.cluster);
            self.begin_recovery(|state| state.notices_loss(record.as_ref()));
            let uid = record.and_then(|record| record.uid);
            let is_other = |uid: &String| self.uid.as_ref().is_some_and(|own| own != uid);
            self.state.lock().other_cluster = uid.filter(is_other);
            ledger.suspend_blocks_of(&self.name, self.is_suspended());
        });
    }

    /// A list of the records begins. If it shows a loss, the management clusters are waited for that were known
    /// before.
    pub(super) fn remember_clusters(&self) {
        if self.records.is_complete() {
            let known = self.records.clusters().into_keys();
            self.state.lock().clusters = known.map(String::from).collect();
        }
    }

    /// Begins a recovery if the registry has lost writes.
    fn begin_recovery(&self, has_lost: impl FnOnce(&mut State) -> bool) {
        let signs = self.records.clusters();
        let mut state = self.state.lock();
        if has_lost(&mut state) {
            let now = Instant::now();
            let mut before = state.clusters.clone();
            before.extend(state.recovery.iter().flat_map(Recovery::awaited));
            let before = before.iter().map(String::as_str);
            let recovery = Recovery::begin(&self.cluster, &signs, before, now);
            state.recovery = Some(recovery);
            state.lost_at = Some(now);
            state.is_recorded = false;
            // It can be one of those writes: then the watch never shows it.
            state.unseen_heartbeat = None;
            state.has_shown_life = false;
        }
    }

    /// A read has shown the sign of life of this management cluster. If it is older than the known one, the
    /// cache ignores it, as it ignores all that a restored registry shows: the records are listed again. The
    /// read can also be that of a server that is behind.
    pub(super) fn compare_read(&self, record: Option<&ClusterRecord>) {
        let mut state = self.state.lock();
        if state.notices_loss(record) {
            state.is_outdated = true;
            self.list_requested.notify_one();
        }
    }

    /// The records were listed. If records are missing, or are older than before, the registry has lost
    /// writes, also if the sign of life of this management cluster is none of them.
    pub(super) fn listed(&self) {
        if self.records.has_lost_writes() {
            self.begin_recovery(|_| true);
            self.records.note_loss();
        }
        self.state.lock().is_outdated = false;
    }

    /// The registry lacks the record of a block of this management cluster: it has lost writes, also if its sign of
    /// life shows none.
    pub(super) fn lacks_own_record(&self) {
        self.begin_recovery(|_| true);
    }

    /// The largest number of writes of the record of this management cluster that is known.
    pub(super) fn writes(&self) -> Option<u64> {
        self.state.lock().writes
    }

    /// The number of the next write of the sign of life. It gets no larger before the recovery from a
    /// loss is over: so a process that is started again finds the loss, too.
    pub(super) fn next_writes(&self) -> u64 {
        let record = self.records.cluster(&self.cluster);
        let shown = record.and_then(|record| record.writes).unwrap_or_default();
        let state = self.state.lock();
        if state.recovery.is_some() {
            return shown;
        }
        let known = state.writes.unwrap_or_default();
        known.max(shown).saturating_add(1)
    }

    /// Whether a sign of life may be written now. Others conclude from two of them that the records of all
    /// blocks of this management cluster are written: so there is no second one before the watch has shown
    /// the first, and with it what the registry has lost.
    pub(super) fn may_show_life(&self) -> bool {
        let is_due = {
            let state = self.state.lock();
            let began = state.recovery.as_ref().map(Recovery::began);
            let began = began.or(state.lost_at).unwrap_or(self.opened_at);
            // One whose record is refused is alive all the same.
            let is_late = began.elapsed() >= RECOVERY_TIMEOUT;
            let is_unseen = state
                .unseen_heartbeat
                .as_ref()
                .is_some_and(|(_, began)| began.elapsed() < RECOVERY_TIMEOUT);
            !is_unseen && !state.is_outdated && (state.is_recorded || is_late)
        };
        is_due && self.is_confirmed()
    }

    /// Whether the records of the blocks of this management cluster have to be checked, see
    /// [`Self::checked_records`].
    pub(super) fn checks_records(&self) -> bool {
        let state = self.state.lock();
        !state.is_recorded || state.recovery.is_some()
    }

    /// A pass of the driver has found whether the registry has the records of all blocks of this
    /// management cluster. The check began at `since`.
    pub(super) fn checked_records(&self, is_recorded: bool, since: Instant) {
        let signs = self.records.clusters();
        let mut state = self.state.lock();
        let is_current = !state.is_outdated && state.lost_at.is_none_or(|at| at <= since);
        state.is_recorded |= is_recorded && is_current;
        let has_problem = state.problem().is_some();
        let Some(recovery) = &mut state.recovery else {
            return;
        };
        recovery.update(&signs);
        if has_problem {
            recovery.postpone(Instant::now());
        }
        if recovery.is_over(Instant::now()) {
            state.recovery = None;
            state.has_recovered = true;
        }
    }

    /// Whether no block is taken because the registry has lost writes.
    pub(super) fn is_recovering(&self) -> bool {
        // Read first: the loss is noted when the recovery has begun.
        let has_lost = self.records.has_lost_writes();
        let state = self.state.lock();
        has_lost || state.recovery.is_some() || state.is_outdated
    }

    /// Whether signs of life are written often: other management clusters wait for two of them, and can notice
    /// a loss later than this one, which may have recovered by then. The same while another cluster has the
    /// identity of this one, which may end.
    pub(super) fn is_awaited(&self) -> bool {
        let has_lost = match self.state.lock().lost_at {
            Some(at) => at.elapsed() < NOTICE_TIMEOUT,
            None => false,
        };
        has_lost || self.is_recovering() || self.is_of_other_cluster()
    }

    /// Waits until a list of all records is requested. For one listener.
    pub(super) async fn list_requested(&self) {
        self.list_requested.notified().await;
    }

    /// Whether another cluster has the identity of this one.
    pub(super) fn is_of_other_cluster(&self) -> bool {
        self.state.lock().other_cluster.is_some()
    }

    /// Whether another cluster or process writes with the identity of this management cluster: no block
    /// is taken, returned or used.
    pub(super) fn is_suspended(&self) -> bool {
        self.state.lock().is_suspended()
    }
}

#[cfg(test)]
mod tests;
