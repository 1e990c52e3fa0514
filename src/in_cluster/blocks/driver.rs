//! Takes, confirms and returns the blocks of the networks of one registry.
//!
//! Every pass decides for each block from what is known then, and sends the next writes. So a pass
//! that is interrupted, or a write that fails, is made up for by the next pass.

mod plan;
mod send;
mod sorted;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::clock;
use capi_ipam_ip::Block;
use capi_ipam_ledger::{BlockSlice, Ledger, NetworkBlocks};
use capi_ipam_registry::{Backend, Key};

use super::facts::{Delays, Memory, Shown};
use super::open_registry::OpenRegistry;
use super::problems::Requester;
use super::refusals::Refusals;
use super::reservation_list::ReservationLists;
use super::steps::Writer;
use sorted::SortedNetworks;

/// The time between two passes without a change.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a pass sends writes for unused blocks. A claim that needs a block waits for no more of them.
const MAX_RETURN_TIME: Duration = Duration::from_millis(50);

/// Drives the blocks of one registry.
pub(super) struct Driver {
    writer: Writer,
    drain: Duration,
    memory: HashMap<(Arc<str>, Block), Memory>,
    /// The names of records whose last write has an unknown outcome: they are read first.
    unread: HashSet<Key>,
    /// The records that the registry refuses to write.
    refusals: Refusals,
    /// Whether this pass has not sent everything, because a request could not reach the registry.
    is_held_back: bool,
    /// The blocks whose IPSlice was reported as invalid or as being deleted.
    reported: BTreeSet<(Arc<str>, Block)>,
    /// When the record of a network was written last.
    network_writes: HashMap<Arc<str>, Instant>,
    /// The records of blocks by network, sorted by who has them.
    sorted: SortedNetworks,
    /// The networks with a record that names this management cluster, and the number of changes of the
    /// records when they were found.
    naming: (u64, BTreeSet<Box<str>>),
    /// The lists that decide on returns.
    lists: ReservationLists,
}

/// What a pass has decided on a block.
struct Due {
    network: Arc<str>,
    block: Block,
    is_needed: bool,
    /// Whether an address of it is in use.
    is_used: bool,
    /// Whether the network shares blocks through this registry. If not, it shares none any more.
    is_shared: bool,
    /// Whether a further block may be taken.
    may_take: bool,
    delays: Delays,
}

impl Driver {
    /// A driver that returns a slice when its mark is known for `drain`.
    pub(super) fn new(writer: Writer, drain: Duration) -> Self {
        Self {
            writer,
            drain,
            memory: HashMap::new(),
            unread: HashSet::new(),
            refusals: Refusals::default(),
            is_held_back: false,
            reported: BTreeSet::new(),
            network_writes: HashMap::new(),
            sorted: SortedNetworks::default(),
            naming: (0, BTreeSet::new()),
            lists: ReservationLists::default(),
        }
    }

    /// Forgets what this process has seen: etcd was restored, so nothing of it is certain.
    pub(super) fn forget(&mut self) {
        self.memory.clear();
        self.lists = ReservationLists::default();
    }

    /// Waits until a list is complete that a return waits for.
    pub(super) async fn reservations_listed(&mut self) {
        self.lists.done().await;
    }

    fn registry(&self) -> &OpenRegistry {
        &self.writer.registry
    }

    fn ledger<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        self.writer.context.ledger.read(read)
    }

    /// Sends what is due for all blocks. Returns when the next pass is due without a change.
    pub(super) async fn pass(&mut self) -> Duration {
        if self.ledger(|ledger| ledger.networks().have_definitions_problem()) {
            return INTERVAL;
        }
        self.find_recorded_networks();
        let recorded = self.naming.1.iter();
        let mut networks: BTreeSet<Arc<str>> = recorded.map(|name| (**name).into()).collect();
        networks.extend(self.ledger(Ledger::networks_with_blocks));
        let mut held = 0_usize;
        let mut all = Vec::new();
        self.is_held_back = false;
        for network in &networks {
            // One that shares no blocks and has no slices may have records.
            let found = self.ledger(|ledger| ledger.network_blocks(network));
            let found = found.unwrap_or_default();
            if self.is_of_registry(network, &found) {
                held = held.saturating_add(slices(&found));
                all.extend(self.plan(network, &found).await);
            }
        }
        self.sorted.retain(&networks);
        self.network_writes
            .retain(|network, _| networks.contains(network));
        self.registry().set_held(held);
        let places: HashSet<_> = all.iter().map(Due::place).collect();
        self.memory
            .retain(|place, memory| places.contains(place) && !memory.is_empty());
        self.refusals.expire(Instant::now());
        // No claim waits for a return.
        all.sort_by_key(Due::is_unused);
        let mut next = INTERVAL;
        let mut returning_since = None;
        for due in &all {
            if due.is_unused() {
                let since = *returning_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= MAX_RETURN_TIME {
                    next = Duration::ZERO;
                    break;
                }
            }
            next = next.min(self.drive_block(due).await);
        }
        let registry = self.registry();
        if registry.is_confirmed() && registry.checks_records() {
            registry.checked_records(all.iter().all(|due| self.is_recorded(due)));
        }
        let context = Arc::clone(&self.writer.context);
        self.lists.start(&context, networks.into_iter().collect());
        if !self.is_held_back {
            // What could not be sent is not due any more.
            self.registry().succeeded(Requester::Driver);
        }
        next
    }

    /// Whether the registry shows what this management cluster has of a block. A registry that was restored can
    /// show an earlier record of it.
    fn is_recorded(&self, due: &Due) -> bool {
        let (network, block) = (&due.network, due.block);
        let slice = self.ledger(|ledger| ledger.slice_of_block(network, block));
        let is_elsewhere = match &slice {
            Some(slice) => !due.is_shared && !self.may_be_of_registry(slice),
            None => !due.is_used,
        };
        if is_elsewhere {
            return true;
        }
        let registry = self.registry();
        let entry = registry.records.block(network, block);
        let second = clock::now().0.as_second();
        let record =
            Shown::of(entry.as_deref()).record(&registry.cluster, due.delays.quarantine, second);
        record.shows_use(slice.as_ref().map(BlockSlice::state), due.is_used)
    }

    /// The delays of the blocks of a network.
    fn delays(&self, network: &str, found: &NetworkBlocks) -> Delays {
        let (keep, quarantine) = match &found.rules {
            Some(rules) => (rules.keep_seconds, rules.quarantine_seconds),
            None => (0, 0),
        };
        let record = self.registry().records.network(network).unwrap_or_default();
        Delays {
            settle: self.registry().backend.settle_time(),
            drain: self.drain,
            keep,
            quarantine: record.quarantine().max(quarantine),
        }
    }

    /// Finds the networks with a record that names this management cluster.
    fn find_recorded_networks(&mut self) {
        let registry = Arc::clone(&self.writer.registry);
        let changes = registry.records.all_block_changes();
        if self.naming.0 != changes {
            let naming = registry.records.networks_naming(&registry.cluster);
            self.naming = (changes, naming);
        }
    }

    /// Whether the blocks of a network can be in this registry. Those of a network that no longer
    /// names one are in the registries that their slices name, and in those that have records of them.
    fn is_of_registry(&self, network: &str, found: &NetworkBlocks) -> bool {
        if let Some(rules) = &found.rules {
            return rules.registry == self.registry().name;
        }
        let mut slices = found.blocks.iter().filter_map(|view| view.slice.as_ref());
        self.naming.1.contains(network)
            || slices.any(|slice| self.has_own_id(slice) && self.may_be_of_registry(slice))
    }
}

impl Due {
    /// Whether no claim uses the block or waits for it.
    fn is_unused(&self) -> bool {
        !self.is_needed && !self.is_used
    }

    fn place(&self) -> (Arc<str>, Block) {
        (Arc::clone(&self.network), self.block)
    }
}

/// The name of the record of a network.
fn network_key(network: &str) -> Key {
    Key::Network {
        name: network.into(),
    }
}

/// The number of blocks with a slice.
fn slices(found: &NetworkBlocks) -> usize {
    let views = found.blocks.iter();
    views.filter(|view| view.slice.is_some()).count()
}
