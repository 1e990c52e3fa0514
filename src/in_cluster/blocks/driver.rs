//! Takes, confirms and returns the blocks of the networks of one registry.
//!
//! Every pass decides for each block from what is known then, and sends the next writes. So a pass
//! that is interrupted, or a write that fails, is made up for by the next pass.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{Scope, reservation_name};
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::clock;
use capi_ipam_ip::{Block, Span};
use capi_ipam_ledger::{
    BlockMember, BlockObstacle, BlockSlice, BlockSupply, BlockView, Ledger, NetworkBlocks,
};
use capi_ipam_protocol::block::Step;
use capi_ipam_registry::{Backend, Entry, Key, Record, RegistryError, cidr};
use tracing::{debug, info, warn};

use super::agreement::{Agreement, ForeignEntries, Proposal};
use super::facts::{Delays, Facts, Memory, Shown};
use super::needs::{Member, Needs, OwnBlock, Shortage, Situation};
use super::open_registry::OpenRegistry;
use super::other_blocks::OtherBlocks;
use super::problems::Requester;
use super::refusals::Refusals;
use super::steps::{BlockEvent, StepError, Target, UNKNOWN_CLUSTER, Writer};

/// The maximum number of writes for a block in one pass.
const MAX_STEPS: usize = 8;
/// The time between two passes without a change.
const INTERVAL: Duration = Duration::from_secs(1);

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
    /// What other management clusters exclude, by network.
    foreign: HashMap<Arc<str>, ForeignEntries>,
    /// The blocks whose IPSlice was reported as invalid or as being deleted.
    reported: BTreeSet<(Arc<str>, Block)>,
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
    /// The holder of a block of another size that overlaps with this one.
    overlaps: Option<Arc<str>>,
    delays: Delays,
}

/// What a pass found of a network.
struct Pass {
    blocks: BTreeMap<Block, BlockView>,
    own: BTreeMap<Block, OwnBlock>,
    others: OtherBlocks,
    /// The blocks that this cluster contends for.
    contended: BTreeSet<Block>,
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
            foreign: HashMap::new(),
            reported: BTreeSet::new(),
        }
    }

    fn registry(&self) -> &OpenRegistry {
        &self.writer.registry
    }

    fn ledger<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        self.writer.context.ledger.read(read)
    }

    /// Sends what is due for all blocks. Returns when the next pass is due without a change.
    pub(super) async fn pass(&mut self) -> Duration {
        let recorded = self.recorded_networks();
        let mut networks: BTreeSet<Arc<str>> =
            recorded.iter().map(|name| (**name).into()).collect();
        networks.extend(self.ledger(Ledger::networks_with_blocks));
        let mut held = 0_usize;
        let mut all = Vec::new();
        self.is_held_back = false;
        for network in &networks {
            // One that shares no blocks and has no slices may have records.
            let found = self.ledger(|ledger| ledger.network_blocks(network));
            let found = found.unwrap_or_default();
            if self.is_of_registry(network, &found, &recorded) {
                held = held.saturating_add(slices(&found));
                all.extend(self.plan(network, &found).await);
            }
        }
        self.foreign.retain(|network, _| networks.contains(network));
        self.registry().set_held(held);
        let places: HashSet<_> = all.iter().map(Due::place).collect();
        self.memory
            .retain(|place, memory| places.contains(place) && !memory.is_empty());
        self.refusals.expire(Instant::now());
        // A return takes the time of its lists: no claim waits for it.
        all.sort_by_key(|due| !due.is_needed && !due.is_used);
        let mut next = INTERVAL;
        for due in &all {
            next = next.min(self.drive_block(due).await);
        }
        if !self.is_held_back {
            // What could not be sent is not due any more.
            self.registry().succeeded(Requester::Driver);
        }
        next
    }

    /// Marks the conflict of each block of this management cluster that the records show as one of
    /// another management cluster, as the IPSlices do not say yet.
    pub(super) async fn find_conflicts(&mut self) {
        let recorded = self.recorded_networks();
        for network in self.ledger(Ledger::networks_with_blocks) {
            let Some(found) = self.ledger(|ledger| ledger.network_blocks(&network)) else {
                continue;
            };
            if !self.is_of_registry(&network, &found, &recorded) {
                continue;
            }
            let pass = self.classify(&network, &found);
            for view in &found.blocks {
                let Some(slice) = &view.slice else {
                    continue;
                };
                if slice.conflict.is_some() || !pass.others.overlaps(view.block) {
                    continue;
                }
                let due = Due {
                    network: Arc::clone(&network),
                    block: view.block,
                    is_needed: false,
                    is_used: view.is_used,
                    is_shared: found.rules.is_some(),
                    may_take: false,
                    overlaps: pass.overlapping_holder(view.block),
                    delays: self.delays(&found),
                };
                self.drive_block(&due).await;
            }
        }
    }

    /// The delays of the blocks of a network.
    fn delays(&self, found: &NetworkBlocks) -> Delays {
        let keep = match &found.rules {
            Some(rules) => rules.keep_seconds,
            None => 0,
        };
        Delays {
            settle: self.registry().backend.settle_time(),
            drain: self.drain,
            keep,
        }
    }

    /// The networks with a record that names this management cluster.
    fn recorded_networks(&self) -> BTreeSet<Box<str>> {
        let registry = self.registry();
        registry.records.networks_naming(&registry.cluster)
    }

    /// Whether the blocks of a network can be in this registry. Those of a network that no longer
    /// names one are in the registries that have records of them. Without a record, an unused slice is
    /// returned by any registry whose cluster has it.
    fn is_of_registry(
        &self,
        network: &str,
        found: &NetworkBlocks,
        recorded: &BTreeSet<Box<str>>,
    ) -> bool {
        if let Some(rules) = &found.rules {
            return rules.registry == self.registry().name;
        }
        let mut slices = found.blocks.iter().filter_map(|view| view.slice.as_ref());
        recorded.contains(network) || slices.any(|slice| self.is_own(slice))
    }

    /// Decides on the blocks of a network.
    async fn plan(&mut self, network: &Arc<str>, found: &NetworkBlocks) -> Vec<Due> {
        let agreed = self.agree(network, found).await;
        let agreed = agreed.map(|agreed| self.keep_foreign(network, agreed));
        let pass = self.classify(network, found);
        self.warn_of_unavailable(network, &pass);
        let needs = match &found.rules {
            Some(rules) => Situation::new(rules, &pass.own, &pass.others, &members(found)).needs(),
            None => Needs::default(),
        };
        self.report_supply(network, found, &pass, &needs, agreed.as_ref());
        // No block is taken before the pools respect what other management clusters exclude.
        let may_take = match &agreed {
            Some(Agreement::Agreed { excluded }) => {
                self.ledger(|ledger| ledger.respects(network, excluded))
            }
            _ => false,
        };
        let mut delays = self.delays(found);
        if needs.is_limited {
            // A claim waits for the room that they take.
            delays.keep = 0;
        }
        let mut targets: BTreeSet<Block> = pass.own.keys().copied().collect();
        targets.extend(pass.blocks.keys());
        targets.extend(&needs.blocks);
        targets.extend(&pass.contended);
        let due = |block| Due {
            network: Arc::clone(network),
            block,
            is_needed: needs.blocks.contains(&block),
            is_used: pass.is_used(block),
            is_shared: found.rules.is_some(),
            may_take,
            overlaps: pass.overlapping_holder(block),
            delays,
        };
        targets.into_iter().map(due).collect()
    }

    /// Compares the record of a network with what this management cluster does, and writes it if
    /// it has to. `None` if the record is not known, or cannot be written now.
    async fn agree(&mut self, network: &Arc<str>, found: &NetworkBlocks) -> Option<Agreement> {
        let registry = Arc::clone(&self.writer.registry);
        let rules = found.rules.as_ref()?;
        if !registry.records.is_complete() || registry.is_suspended() || !self.may_request() {
            return None;
        }
        let key = network_key(network);
        let excluded = self.ledger(|ledger| ledger.own_exclusions(network));
        let proposal = Proposal {
            cluster: &registry.cluster,
            network,
            size: 1_u64.checked_shl(rules.shift)?,
            excluded: &excluded,
        };
        for _ in 0..MAX_STEPS {
            let entry = registry.records.get(&key);
            let record = match entry.as_deref() {
                None => None,
                Some(entry) => match entry.record() {
                    Some(Record::Network(record)) => Some(record),
                    // It cannot be decoded: another version of this program may have written it.
                    _ => return Some(Agreement::Undecodable),
                },
            };
            let wanted = match proposal.agree(record) {
                Agreement::Write(wanted) => wanted,
                agreed => {
                    self.refusals.ended(&key);
                    return Some(agreed);
                }
            };
            if !self.refusals.is_due(&key, Instant::now()) {
                return None;
            }
            let written = self
                .writer
                .write_network(&key, entry.as_deref(), wanted)
                .await;
            if let Err(error) = written {
                debug!(%network, error = error_chain(&error), "cannot write the record of a network, will retry");
                self.request_failed(&key, &error);
                return None;
            }
        }
        None
    }

    /// Adds to what other management clusters exclude what the record has contained until recently.
    fn keep_foreign(&mut self, network: &Arc<str>, agreed: Agreement) -> Agreement {
        let Agreement::Agreed { excluded } = agreed else {
            return agreed;
        };
        let now = Instant::now();
        if !self.foreign.contains_key(network) {
            let respected = self.ledger(|ledger| ledger.foreign_exclusions(network));
            let known = ForeignEntries::new(respected, now);
            self.foreign.insert(Arc::clone(network), known);
        }
        let excluded = match self.foreign.get_mut(network) {
            Some(known) => known.update(excluded, now),
            None => excluded,
        };
        Agreement::Agreed { excluded }
    }

    /// Reports each block once of which no address is allocated, since its IPSlice is not valid or is
    /// being deleted: an operator has to correct it.
    fn warn_of_unavailable(&mut self, network: &Arc<str>, pass: &Pass) {
        for (block, view) in &pass.blocks {
            let place = (Arc::clone(network), *block);
            let is_unavailable = match &view.slice {
                Some(slice) => !slice.is_valid || slice.is_deleting,
                None => false,
            };
            if !is_unavailable {
                self.reported.remove(&place);
            } else if self.reported.insert(place) {
                warn!(
                    %network,
                    block = %cidr(*block),
                    slice = slice_name(network, *block),
                    "the IPSlice of a block is not valid or is being deleted; no address of the block is allocated; \
                     correct the IPSlice, or delete it and remove its finalizers"
                );
            }
        }
    }

    /// Sorts the blocks of a network by who has them.
    fn classify(&self, network: &Arc<str>, found: &NetworkBlocks) -> Pass {
        let mut pass = Pass {
            blocks: found
                .blocks
                .iter()
                .map(|view| (view.block, view.clone()))
                .collect(),
            own: BTreeMap::new(),
            others: OtherBlocks::default(),
            contended: BTreeSet::new(),
        };
        let mut others = Vec::new();
        let cluster = &self.registry().cluster;
        for (block, entry) in self.registry().records.blocks(network) {
            match entry.record() {
                Some(Record::Block(record)) if record.cluster == *cluster => {
                    let own = pass.own_block(block);
                    own.is_conflicting |= !record.contenders.is_empty();
                }
                Some(Record::Block(record)) => {
                    if record.contenders.contains(cluster) {
                        pass.contended.insert(block);
                    }
                    others.push((block, Some(Arc::from(record.cluster.as_str()))));
                }
                _ => others.push((block, None)),
            }
        }
        pass.others = others.into_iter().collect();
        for view in &found.blocks {
            let Some(slice) = &view.slice else {
                continue;
            };
            pass.own_block(view.block).set_slice(slice, cluster);
        }
        for (block, own) in &mut pass.own {
            own.is_conflicting |= pass.others.overlaps(*block);
            own.is_usable &= !own.is_conflicting;
        }
        pass
    }

    /// Tells the network, and the claims that wait for a block, what the registry has for them.
    fn report_supply(
        &self,
        network: &str,
        found: &NetworkBlocks,
        pass: &Pass,
        needs: &Needs,
        agreed: Option<&Agreement>,
    ) {
        let most = found.rules.as_ref().and_then(|rules| rules.most);
        let obstacle_of = |shortage: &Shortage| match shortage {
            Shortage::AllTaken => BlockObstacle::AllTaken,
            Shortage::Limit => BlockObstacle::Limit(most.unwrap_or_default()),
            Shortage::Unavailable(block) => {
                BlockObstacle::SliceUnavailable(slice_name(network, *block))
            }
        };
        let mut pools = BTreeMap::new();
        for (pool, shortage) in &needs.pools {
            pools.insert(pool.clone(), obstacle_of(shortage));
        }
        let mut requested = BTreeMap::new();
        for (address, shortage) in &needs.requested {
            requested.insert(*address, obstacle_of(shortage));
        }
        let known = self.ledger(|ledger| ledger.block_supply(network));
        let excluded = match agreed {
            Some(Agreement::Agreed { excluded }) => Some(excluded.clone()),
            // What was known last stays excluded.
            _ => known.excluded,
        };
        let supply = BlockSupply {
            others: match &found.rules {
                Some(_) => pass.others.len(),
                None => 0,
            },
            // A network that shares no blocks any more needs no further block. The drivers of several
            // registries report the same.
            obstacle: match &found.rules {
                Some(_) => self.obstacle(network, needs, agreed),
                None => None,
            },
            pools,
            requested,
            excluded,
        };
        self.writer
            .context
            .ledger
            .change(|ledger| ledger.set_block_supply(network, &supply));
    }

    /// Why no pool of a network gets a further block now.
    fn obstacle(
        &self,
        network: &str,
        needs: &Needs,
        agreed: Option<&Agreement>,
    ) -> Option<BlockObstacle> {
        match agreed {
            Some(Agreement::SizeDiffers { size, cluster }) => Some(BlockObstacle::SizeDiffers {
                size: *size,
                cluster: cluster.clone(),
            }),
            Some(Agreement::Undecodable) => Some(BlockObstacle::RecordUndecodable),
            _ if self.registry().is_suspended() => Some(BlockObstacle::Suspended),
            _ if self.registry().unreachable().is_some() => Some(BlockObstacle::Unreachable),
            _ if self.is_refused(network, needs) => Some(BlockObstacle::Refused),
            _ => None,
        }
    }

    /// Sends what is due for a block. Returns when it is due again.
    async fn drive_block(&mut self, due: &Due) -> Duration {
        let mut memory = self.memory.remove(&due.place()).unwrap_or_default();
        let next = self.send_steps(due, &mut memory).await;
        self.memory.insert(due.place(), memory);
        next
    }

    async fn send_steps(&mut self, due: &Due, memory: &mut Memory) -> Duration {
        let (network, block) = (&due.network, due.block);
        let mut overlaps = due.overlaps.clone();
        for _ in 0..MAX_STEPS {
            let target = self.target(network, block, overlaps.clone());
            if let Some(slice) = &target.slice
                && !self.is_own(slice)
            {
                return self.remove_foreign(&target, slice, memory).await;
            }
            let is_read = self.read_unread(&target.key()).await;
            let target = self.target(network, block, overlaps.clone());
            let facts = Facts {
                cluster: &self.registry().cluster,
                has_peers: !self.writer.context.selection.is_everything(),
                is_shared: due.is_shared,
                shown: if is_read {
                    self.shown(&target)
                } else {
                    Shown::Unknown
                },
                is_overlapped: target.overlaps.is_some(),
                is_watched: self.is_watched(&target),
                slice: target.slice.as_ref(),
                is_used: self.ledger(|ledger| ledger.is_block_used(network, block)),
                is_needed: due.is_needed,
            };
            let second = clock::now().0.as_second();
            memory.update(&facts, Instant::now(), second);
            let view = facts.view(memory, due.delays, Instant::now(), second);
            let step = view.next();
            // A record that was lost is written again in any case.
            let is_taken = step == Step::CreateRecord && target.slice.is_none();
            if step == Step::Wait || !self.may_send(step, &target) || is_taken && !due.may_take {
                let settles = view.is_settling() && self.may_send(Step::ConfirmRecord, &target);
                return if settles { due.delays.settle } else { INTERVAL };
            }
            if let Some(wait) = memory.backoff.wait_time(step, Instant::now()) {
                return wait;
            }
            // The writes of a pass take time: the watch has shown more records since it began. They are
            // read after `is_watched`, so none is missing that was written before that of the block.
            let overlaps_now = self.overlapping_holder(network, block);
            if overlaps_now != overlaps {
                overlaps = overlaps_now;
                continue;
            }
            debug!(%network, block = %cidr(block), ?step, "next step of a block");
            let done = self.writer.perform(step, &target, memory).await;
            memory.backoff.sent(step, done.is_ok(), Instant::now());
            if let Err(error) = done {
                self.failed(&target, &error).await;
                let wait = memory.backoff.wait_time(step, Instant::now());
                return wait.unwrap_or_default();
            }
            self.succeeded(&target, step);
        }
        Duration::ZERO
    }

    /// Whether a step can be done now. While another process has the identity of this cluster, no
    /// block is taken and none is returned.
    fn may_send(&mut self, step: Step, target: &Target) -> bool {
        if self.registry().is_suspended() {
            return step == Step::MarkConflict;
        }
        if !step.is_of_registry() {
            return true;
        }
        self.refusals.is_due(&target.key(), Instant::now()) && self.may_request()
    }

    /// Whether the registry may be asked now. It is not while it cannot be reached: the sign of life
    /// finds out when it can be reached again.
    fn may_request(&mut self) -> bool {
        let is_allowed = self.registry().allows_requests();
        self.is_held_back |= !is_allowed;
        is_allowed
    }

    /// Whether the registry refuses the record of a network, or that of a block that it needs.
    fn is_refused(&self, network: &str, needs: &Needs) -> bool {
        let block_key = |block: &Block| Key::Block {
            network: network.into(),
            block: *block,
        };
        let mut blocks = needs.blocks.iter();
        self.refusals.contains(&network_key(network))
            || blocks.any(|block| self.refusals.contains(&block_key(block)))
    }

    /// A request for a record has failed. If the registry cannot be reached, nothing else is sent
    /// either. Any other failure concerns this record only, or the sign of life fails as well.
    fn request_failed(&mut self, key: &Key, error: &RegistryError) {
        if error.is_unavailable() {
            self.is_held_back = true;
            self.registry().failed(Requester::Driver, error);
            return;
        }
        if self.refusals.refused(key, Instant::now()) {
            self.registry().request_probe();
            warn!(
                registry = self.registry().name,
                record = %key,
                error = error_chain(error),
                "the registry refuses a record, will retry"
            );
        }
    }

    /// Whether a slice is one of this management cluster.
    fn is_own(&self, slice: &BlockSlice) -> bool {
        *slice.cluster == *self.registry().cluster
    }

    /// Deletes the slice of another management cluster, which `clusterctl move` has brought: it is
    /// never usable here. What is in use in its block gets a slice of this cluster. An object that is
    /// not a valid slice is left to its author.
    async fn remove_foreign(
        &self,
        target: &Target,
        slice: &BlockSlice,
        memory: &mut Memory,
    ) -> Duration {
        if !slice.is_valid {
            return INTERVAL;
        }
        let backoff = &mut memory.backoff;
        backoff.forget_old(Instant::now());
        if let Some(wait) = backoff.wait_time(Step::DeleteSlice, Instant::now()) {
            return wait;
        }
        let deleted = self.writer.delete_foreign_slice(target, slice).await;
        backoff.sent(Step::DeleteSlice, deleted.is_ok(), Instant::now());
        let Err(error) = deleted else {
            return Duration::ZERO;
        };
        debug!(
            block = %cidr(target.block),
            error = error_chain(&error),
            "cannot delete the IPSlice of another management cluster, will retry"
        );
        let wait = backoff.wait_time(Step::DeleteSlice, Instant::now());
        wait.unwrap_or_default()
    }

    /// A block with what is known of it.
    fn target(&self, network: &Arc<str>, block: Block, overlaps: Option<Arc<str>>) -> Target {
        Target {
            network: Arc::clone(network),
            block,
            slice: self.ledger(|ledger| ledger.slice_of_block(network, block)),
            entry: self.registry().records.block(network, block),
            overlaps,
        }
    }

    /// The holder of a block of another size that overlaps with this one, from the records of this
    /// moment. Takes linear time.
    fn overlapping_holder(&self, network: &str, block: Block) -> Option<Arc<str>> {
        let registry = self.registry();
        for (other, entry) in registry.records.blocks(network) {
            if other == block || !other.overlaps(block) {
                continue;
            }
            match entry.record() {
                Some(Record::Block(record)) if record.cluster == registry.cluster => {}
                Some(Record::Block(record)) => return Some(record.cluster.as_str().into()),
                _ => return Some(UNKNOWN_CLUSTER.into()),
            }
        }
        None
    }

    /// Whether the watch has shown the record of a block, and all that was written before.
    fn is_watched(&self, target: &Target) -> bool {
        match &target.entry {
            Some(entry) => self.registry().records.has_watched(&entry.version),
            None => false,
        }
    }

    /// What the registry shows of a block.
    fn shown<'a>(&self, target: &'a Target) -> Shown<'a> {
        if !self.registry().records.is_complete() {
            return Shown::Unknown;
        }
        match target.entry.as_deref() {
            None => Shown::Absent,
            Some(Entry {
                value: Ok(Record::Block(record)),
                version,
                ..
            }) => Shown::Record(record, version),
            Some(_) => Shown::Unreadable,
        }
    }

    /// Reads a record whose last write has an unknown outcome. Returns whether it is known now. One of
    /// a registry that cannot be reached stays unknown.
    async fn read_unread(&mut self, key: &Key) -> bool {
        if !self.unread.contains(key) {
            return true;
        }
        if !self.refusals.is_due(key, Instant::now()) || !self.may_request() {
            return false;
        }
        let registry = &self.writer.registry;
        match registry.backend.read(&key.to_string()).await {
            Ok(Some(found)) => registry.records.apply(&found),
            Ok(None) => {
                if let Some(known) = registry.records.get(key) {
                    registry.records.remove(&known);
                }
            }
            Err(error) => {
                self.request_failed(key, &error);
                return false;
            }
        }
        self.unread.remove(key);
        true
    }

    fn succeeded(&mut self, target: &Target, step: Step) {
        if step.is_of_registry() {
            self.registry().succeeded(Requester::Driver);
            self.refusals.ended(&target.key());
        }
        // One that was confirmed before is confirmed again after a conflict.
        let was_confirmed = match &target.slice {
            Some(slice) => slice.confirmed_at.is_some(),
            None => false,
        };
        if step == Step::ConfirmSlice && !was_confirmed {
            info!(network = %target.network, block = %cidr(target.block), "took a block");
            self.writer.publish(target, BlockEvent::Taken);
        }
    }

    async fn failed(&mut self, target: &Target, error: &StepError) {
        debug!(
            network = %target.network,
            block = %cidr(target.block),
            error = error_chain(error),
            "cannot change a block, will retry"
        );
        let StepError::Registry { source, .. } = error else {
            return;
        };
        match source {
            RegistryError::Conflict { .. } | RegistryError::Unknown { .. } => {
                let key = target.key();
                self.unread.insert(key.clone());
                self.read_unread(&key).await;
            }
            _ => self.request_failed(&target.key(), source),
        }
    }
}

impl Due {
    fn place(&self) -> (Arc<str>, Block) {
        (Arc::clone(&self.network), self.block)
    }
}

impl Pass {
    /// Whether an address of a block is in use.
    fn is_used(&self, block: Block) -> bool {
        match self.blocks.get(&block) {
            Some(view) => view.is_used,
            None => false,
        }
    }

    /// The holder of a block of another size that overlaps with this one.
    fn overlapping_holder(&self, block: Block) -> Option<Arc<str>> {
        let other = self.others.of_other_size(block)?;
        match other.holder {
            Some(holder) => Some(Arc::clone(holder)),
            None => Some(UNKNOWN_CLUSTER.into()),
        }
    }

    /// A block that this cluster has, or is taking or returning.
    fn own_block(&mut self, block: Block) -> &mut OwnBlock {
        let is_used = self.is_used(block);
        self.own.entry(block).or_insert(OwnBlock {
            is_used,
            is_conflicting: false,
            is_usable: false,
            is_marked: false,
            is_unavailable: false,
        })
    }
}

/// The name of the record of a network.
fn network_key(network: &str) -> Key {
    Key::Network {
        name: network.into(),
    }
}

/// The name of the IPSlice of a block.
fn slice_name(network: &str, block: Block) -> String {
    reservation_name(&Scope::Network(network.into()), block)
}

/// The number of blocks with a slice.
fn slices(found: &NetworkBlocks) -> usize {
    let views = found.blocks.iter();
    views.filter(|view| view.slice.is_some()).count()
}

/// The pools of a network, as the choice of blocks needs them.
fn members(found: &NetworkBlocks) -> Vec<Member> {
    let mut members = Vec::new();
    for member in &found.members {
        if member.can_allocate {
            members.extend(self::member(member));
        }
    }
    members
}

/// A pool of a network; `None` if the length of its blocks is not known.
fn member(member: &BlockMember) -> Option<Member> {
    let allowed = member.allowed.as_ref()?;
    let mut ranges = Vec::new();
    for span in allowed.allocatable().spans() {
        let first = allowed.block(span.first()).span().first();
        let last = allowed.block(span.last()).span().last();
        ranges.extend(Span::new(first, last));
    }
    Some(Member {
        pool: member.pool.clone(),
        family: allowed.family,
        length: member.length?,
        ranges: ranges.into_iter().collect(),
        waits: member.waits,
        needs_further_block: member.needs_further_block,
        is_full: member.is_full,
        requested: member.requested.clone(),
    })
}
