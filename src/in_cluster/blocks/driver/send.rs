//! Sends what is due for a block, one write after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::clock;
use capi_ipam_ip::Block;
use capi_ipam_ledger::BlockSlice;
use capi_ipam_protocol::block::{Access, Step, View};
use capi_ipam_registry::{Backend, Entry, Key, Record, RegistryError, cidr};
use tracing::{debug, info, warn};

use super::super::facts::{Facts, Memory, Shown};
use super::super::needs::Needs;
use super::super::problems::Requester;
use super::super::record_watch::record_shown;
use super::super::reservation_list::ReservationList;
use super::super::steps::{BlockEvent, StepError, Target};
use super::{Driver, Due, INTERVAL, network_key};

/// The maximum number of writes for a block in one pass.
const MAX_STEPS: usize = 8;

/// What is to be done for a block now.
enum Decision {
    /// This step, with the list that shows whether the block is used if the step deletes its slice.
    Send(Step, Option<Arc<ReservationList>>),
    /// Nothing for this long.
    Wait(Duration),
}

impl Driver {
    /// Sends what is due for a block. Returns when it is due again.
    pub(super) async fn drive_block(&mut self, due: &Due) -> Duration {
        let mut memory = self.memory.remove(&due.place()).unwrap_or_default();
        let next = self.send_steps(due, &mut memory).await;
        self.memory.insert(due.place(), memory);
        next
    }

    async fn send_steps(&mut self, due: &Due, memory: &mut Memory) -> Duration {
        let (network, block) = (&due.network, due.block);
        for _ in 0..MAX_STEPS {
            let target = self.target(network, block);
            if let Some(slice) = &target.slice
                && !self.serves(slice, due.is_shared)
            {
                if !due.is_shared && !self.may_be_of_registry(slice) {
                    return INTERVAL;
                }
                if !self.has_own_id(slice) || self.is_replaceable(&target) {
                    return self.remove_foreign(&target, slice, memory).await;
                }
            }
            let is_read = self.read_unread(&target.key()).await;
            let target = self.target(network, block);
            let (step, list) = match self.decide(due, &target, is_read, memory) {
                Decision::Send(step, list) => (step, list),
                Decision::Wait(time) => return time,
            };
            debug!(%network, block = %cidr(block), ?step, "next step of a block");
            let list = list.as_deref();
            let done = self.writer.perform(step, &target, memory, due.delays, list);
            let done = done.await;
            memory.backoff.sent(step, done.is_ok(), Instant::now());
            if let Err(error) = done {
                memory.forget_list();
                self.failed(&target, &error).await;
                let wait = memory.backoff.wait_time(step, Instant::now());
                return wait.unwrap_or_default();
            }
            self.succeeded(&target, step);
        }
        Duration::ZERO
    }

    /// Decides on the next step of a block of this management cluster. `is_read` is false if the
    /// outcome of the last write of its record is not known.
    fn decide(
        &mut self,
        due: &Due,
        target: &Target,
        is_read: bool,
        memory: &mut Memory,
    ) -> Decision {
        let view = self.view(due, target, is_read, memory);
        let step = view.next();
        if step == Step::Wait || !self.may_send(step, view.is_shared, target) {
            let settles =
                view.is_settling() && self.may_send(Step::ConfirmRecord, view.is_shared, target);
            return Decision::Wait(if settles { due.delays.settle } else { INTERVAL });
        }
        if let Some(wait) = memory.backoff.wait_time(step, Instant::now()) {
            return Decision::Wait(wait);
        }
        let Some(deleted) = deleted(step, target) else {
            return Decision::Send(step, None);
        };
        let since = memory.list_after(deleted, Instant::now());
        match self.lists.after(since) {
            Some(list) => Decision::Send(step, Some(list)),
            None => Decision::Wait(INTERVAL),
        }
    }

    /// A block of this management cluster, as the protocol sees it.
    fn view(&self, due: &Due, target: &Target, is_read: bool, memory: &mut Memory) -> View {
        let shown = if is_read {
            self.shown(target)
        } else {
            Shown::Unknown
        };
        let facts = Facts {
            cluster: &self.registry().cluster,
            has_peers: !self.writer.context.selection.is_everything(),
            is_shared: due.is_shared,
            shown,
            slice: target.slice.as_ref(),
            is_used: self.ledger(|ledger| ledger.is_block_used(&due.network, due.block)),
            is_needed: due.is_needed,
            access: self.access(due),
        };
        let second = clock::now().0.as_second();
        let now = Instant::now();
        memory.update(&facts, now);
        facts.view(memory, due.delays, now, second)
    }

    /// What this management cluster may do with the blocks of a network now.
    fn access(&self, due: &Due) -> Access {
        let registry = self.registry();
        if registry.is_suspended() {
            Access::Suspended
        } else if registry.is_recovering() {
            Access::Recovering
        } else if !registry.shows_life() {
            Access::Unseen
        } else if due.may_take {
            Access::Full
        } else {
            Access::Limited
        }
    }

    /// Whether the request of a step can be sent now.
    fn may_send(&mut self, step: Step, is_shared: bool, target: &Target) -> bool {
        // When a network shares blocks no longer, only the slice says where the record is. It is
        // deleted when the record can be returned, too.
        let is_last_sign = step == Step::DeleteSlice && !is_shared;
        if !step.is_of_registry() && !is_last_sign {
            return true;
        }
        let is_due = self.refusals.is_due(&target.key(), Instant::now());
        is_due && self.registry().is_confirmed() && self.may_request()
    }

    /// Whether the registry may be asked now. It is not while it cannot be reached: the sign of life
    /// finds out when it can be reached again.
    pub(super) fn may_request(&mut self) -> bool {
        let is_allowed = self.registry().allows_requests();
        self.is_held_back |= !is_allowed;
        is_allowed
    }

    /// Whether the registry refuses the record of a network, or that of a block that it needs.
    pub(super) fn is_refused(&self, network: &str, needs: &Needs) -> bool {
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
    pub(super) fn request_failed(&mut self, key: &Key, error: &RegistryError) {
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

    /// Whether a slice has the identity of this management cluster in the registry. An object that is
    /// not valid has none.
    pub(super) fn has_own_id(&self, slice: &BlockSlice) -> bool {
        *slice.cluster == *self.registry().cluster
    }

    /// Whether a slice is one of this management cluster, and one of this registry if the network shares
    /// blocks (`is_shared`).
    pub(super) fn is_own(&self, slice: &BlockSlice, is_shared: bool) -> bool {
        let is_of_other_registry = match &slice.registry {
            Some(named) => is_shared && **named != *self.registry().name,
            None => false,
        };
        self.has_own_id(slice) && !is_of_other_registry
    }

    /// Whether the block of a slice is one of this management cluster, and its record can be in this
    /// registry.
    fn serves(&self, slice: &BlockSlice, is_shared: bool) -> bool {
        self.is_own(slice, is_shared) && (is_shared || self.may_be_of_registry(slice))
    }

    /// Whether the record of the block of a slice can be in this registry.
    pub(super) fn may_be_of_registry(&self, slice: &BlockSlice) -> bool {
        let named = slice.registry.as_deref();
        let registry = &self.registry().name;
        self.ledger(|ledger| ledger.may_be_of_registry(named, registry))
    }

    /// Whether this registry has the record of a block with a slice of this management cluster and of
    /// another registry, which the network does not name any more. Otherwise the record is written
    /// first if an address is in use.
    fn is_replaceable(&self, target: &Target) -> bool {
        let registry = self.registry();
        if !registry.is_available() || registry.is_suspended() {
            return false;
        }
        let is_used = self.ledger(|ledger| ledger.is_block_used(&target.network, target.block));
        let entry = target.entry.as_deref();
        match entry.and_then(Entry::record) {
            Some(Record::Block(record)) => record.cluster == registry.cluster || !is_used,
            _ => !is_used,
        }
    }

    /// Deletes the slice of another management cluster, which `clusterctl move` has brought, or of a
    /// registry that the network does not name any more: it is never usable here. What is in use in its
    /// block gets a slice of this cluster. An object that is not a valid slice is left to its author.
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
            "cannot delete the IPSlice of another management cluster or registry, will retry"
        );
        let wait = backoff.wait_time(Step::DeleteSlice, Instant::now());
        wait.unwrap_or_default()
    }

    /// A block with what is known of it.
    fn target(&self, network: &Arc<str>, block: Block) -> Target {
        Target {
            network: Arc::clone(network),
            block,
            slice: self.ledger(|ledger| ledger.slice_of_block(network, block)),
            entry: self.registry().records.block(network, block),
        }
    }

    /// What the registry shows of a block.
    fn shown<'a>(&self, target: &'a Target) -> Shown<'a> {
        if !self.registry().is_confirmed() {
            return Shown::Unknown;
        }
        Shown::of(target.entry.as_deref())
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
        let read = self.writer.registry.backend.read(&key.to_string()).await;
        self.record_read(key, read)
    }

    /// Records what a read has shown under the name of a record. Returns whether it is known now.
    fn record_read(&mut self, key: &Key, read: Result<Option<Entry>, RegistryError>) -> bool {
        let records = &self.writer.registry.records;
        match read {
            Ok(Some(found)) => records.apply(&found),
            Ok(None) => {
                if let Some(known) = records.get(key) {
                    records.forget(&known);
                }
            }
            Err(error) => {
                self.request_failed(key, &error);
                return false;
            }
        }
        record_shown(&self.writer.context, &self.writer.registry, key);
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

/// The version of a slice that a step deletes after a list of the reservations.
fn deleted(step: Step, target: &Target) -> Option<&str> {
    match &target.slice {
        Some(slice) if step == Step::DeleteSlice => Some(&slice.version),
        _ => None,
    }
}
