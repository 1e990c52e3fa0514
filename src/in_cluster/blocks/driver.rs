//! Takes, confirms and returns the blocks of the networks of one registry.
//!
//! Every pass decides for each block from what is known then, and sends the next writes. So a pass
//! that is interrupted, or a write that fails, is made up for by the next pass.

mod plan;
mod send;
mod sorted;
mod steps;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::clock;
use capi_ipam_ip::Block;
use capi_ipam_ledger::{BlockSlice, Ledger, NetworkBlocks};
use capi_ipam_protocol::block::Record;

use super::open_registry::{OpenRegistry, Requester};
use super::reservation_list::ReservationLists;
use super::target::{Memory, Target};
use crate::in_cluster::context::Context;
use plan::NetworkWrites;
use sorted::SortedNetworks;

/// The time between two passes without a change.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a pass sends writes for unused blocks. A claim that needs a block waits for no more of them.
const MAX_RETURN_TIME: Duration = Duration::from_millis(50);

/// Drives the blocks of one registry.
pub(super) struct Driver {
    context: Arc<Context>,
    registry: Arc<OpenRegistry>,
    drain: Duration,
    memory: HashMap<(Arc<str>, Block), Memory>,
    /// Whether this pass has not sent everything, because a request could not reach the registry.
    is_held_back: bool,
    network_writes: HashMap<Arc<str>, NetworkWrites>,
    /// The number of steps that were sent.
    sent: u64,
    /// Whether the records of the blocks of this management cluster were compared.
    has_compared: bool,
    /// The records of blocks by network, sorted by who has them.
    sorted: SortedNetworks,
    /// The lists that decide on returns.
    lists: ReservationLists,
}

impl Driver {
    /// A driver that returns a slice when its mark is known for `drain`.
    pub(super) fn new(context: Arc<Context>, registry: Arc<OpenRegistry>, drain: Duration) -> Self {
        Self {
            context,
            registry,
            drain,
            memory: HashMap::new(),
            is_held_back: false,
            network_writes: HashMap::new(),
            sent: 0,
            has_compared: false,
            sorted: SortedNetworks::default(),
            lists: ReservationLists::default(),
        }
    }

    /// Forgets what this process has seen: etcd was restored, so nothing of it is certain.
    pub(super) fn forget(&mut self) {
        self.memory.values_mut().for_each(Memory::forget);
        self.lists = ReservationLists::default();
    }

    /// Waits until a list is complete that a return waits for.
    pub(super) async fn reservations_listed(&mut self) {
        self.lists.done().await;
    }

    fn ledger<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        self.context.ledger.read(read)
    }

    /// Sends what is due for all blocks. Returns when the next pass is due without a change.
    pub(super) async fn pass(&mut self) -> Duration {
        if self.ledger(|ledger| ledger.networks().have_definitions_problem()) {
            return INTERVAL;
        }
        let second = clock::now().0.as_second();
        self.sorted.update(&self.registry, second);
        let mut networks: BTreeSet<Arc<str>> = self.sorted.naming().map(Arc::from).collect();
        networks.extend(self.ledger(Ledger::networks_with_blocks));
        let mut held = 0_usize;
        let mut all = Vec::new();
        self.is_held_back = false;
        for network in &networks {
            // One that shares no blocks and has no slices may have records.
            let found = self.ledger(|ledger| ledger.network_blocks(network));
            let found = found.unwrap_or_default();
            if self.is_of_registry(network, &found) {
                let slices = found.blocks.iter().filter(|view| view.slice.is_some());
                held = held.saturating_add(slices.count());
                all.extend(self.plan(network, &found).await);
            }
        }
        self.sorted.retain(&networks);
        self.network_writes
            .retain(|network, _| networks.contains(network));
        self.registry.set_held(held);
        let places: HashSet<_> = all
            .iter()
            .map(|target| (Arc::clone(&target.network), target.block))
            .collect();
        self.memory.retain(|place, memory| {
            let is_target = places.contains(place) && *memory != Memory::default();
            is_target || memory.unread.is_some()
        });
        if self.registry.is_confirmed() && !self.has_compared {
            self.compare_own_records(&all, second).await;
            self.has_compared = true;
        }
        // No claim waits for a return.
        all.sort_by_key(Target::is_unused);
        let mut next = INTERVAL;
        let mut return_time = Duration::ZERO;
        for target in &mut all {
            let (began, sent) = (Instant::now(), self.sent);
            next = next.min(self.drive_block(target).await);
            if target.is_unused() && self.sent != sent {
                return_time = return_time.saturating_add(began.elapsed());
            }
            if return_time >= MAX_RETURN_TIME {
                next = Duration::ZERO;
                break;
            }
        }
        let registry = &self.registry;
        if registry.is_confirmed() && registry.checks_records() {
            let since = Instant::now();
            let is_recorded = all.iter_mut().all(|target| self.is_recorded(target));
            registry.checked_records(is_recorded, since);
        }
        let context = Arc::clone(&self.context);
        self.lists.start(&context, networks.into_iter().collect());
        if !self.is_held_back {
            // What could not be sent is not due any more.
            self.registry.succeeded(Requester::Driver);
        }
        next
    }

    /// Compares the confirmed blocks of this management cluster with their records, before any is written: one that
    /// is missing was lost while no process of this management cluster has watched, and those of others may be lost,
    /// too. Later, somebody has deleted it.
    async fn compare_own_records(&self, all: &[Target], second: i64) {
        for target in all {
            if !self.lacks_record(target, second) {
                continue;
            }
            // The list can be older than the slice.
            let found = self.registry.read(&target.key()).await;
            if !matches!(found, Ok(Some(_))) {
                self.registry.lacks_own_record();
                return;
            }
        }
    }

    /// Whether the listed records lack that of a block that this management cluster has confirmed.
    fn lacks_record(&self, target: &Target, second: i64) -> bool {
        let is_own = |slice: &BlockSlice| {
            slice.state().is_confirmed()
                && self.has_own_id(slice)
                && !self.names_other_registry(slice)
        };
        target.is_shared
            && target.slice.as_ref().is_some_and(is_own)
            && target.shown(second) == Record::Absent
    }

    /// Whether the registry shows what this management cluster has of a block. A registry that was restored can
    /// show an earlier record of it.
    fn is_recorded(&self, target: &mut Target) -> bool {
        self.refresh(target);
        let slice = target.slice.as_ref();
        let is_elsewhere = match slice {
            Some(slice) => !target.is_shared && !self.may_be_of_registry(slice),
            None => !target.is_used,
        };
        let shown = target.shown(clock::now().0.as_second());
        is_elsewhere || shown.shows_use(slice.map(BlockSlice::state), target.is_used)
    }

    /// Whether the blocks of a network can be in this registry. Those of a network that no longer
    /// names one are in the registries that their slices name, and in those that have records of them.
    fn is_of_registry(&self, network: &str, found: &NetworkBlocks) -> bool {
        if let Some(rules) = &found.rules {
            return rules.registry == self.registry.name;
        }
        let mut slices = found.blocks.iter().filter_map(|view| view.slice.as_ref());
        self.sorted.names_this_cluster(network)
            || slices.any(|slice| self.has_own_id(slice) && self.may_be_of_registry(slice))
    }
}
