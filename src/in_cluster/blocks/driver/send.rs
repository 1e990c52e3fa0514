//! Sends what is due for a block, one write after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::clock;
use capi_ipam_ledger::BlockSlice;
use capi_ipam_protocol::block::{Access, Step};
use capi_ipam_registry::{Key, RegistryError, cidr};
use tracing::{debug, warn};

use super::super::backoff::{Backoff, Outcome};
use super::super::needs::slice_name;
use super::super::open_registry::Requester;
use super::super::reservation_list::ReservationList;
use super::super::target::{Memory, Target};
use super::steps::StepError;
use super::{Driver, INTERVAL};

/// The maximum number of writes for a block in one pass.
const MAX_STEPS: usize = 8;

/// What is due for a block now: a step, with the list that shows whether the block is used if the step returns
/// its slice. `Err` is the time for which nothing is due.
type Decision = Result<(Step, Option<Arc<ReservationList>>), Duration>;

impl Driver {
    /// Sends what is due for a block. Returns when it is due again.
    pub(super) async fn drive_block(&mut self, target: &mut Target) -> Duration {
        let place = (Arc::clone(&target.network), target.block);
        let mut memory = self.memory.remove(&place).unwrap_or_default();
        let next = self.send_steps(target, &mut memory).await;
        self.memory.insert(place, memory);
        next
    }

    async fn send_steps(&mut self, target: &mut Target, memory: &mut Memory) -> Duration {
        for _ in 0..MAX_STEPS {
            let is_read = self.read_unread(target, memory).await;
            self.refresh(target);
            target.is_listed &= is_read;
            let (network, block) = (&target.network, cidr(target.block));
            if memory.becomes_unavailable(target.slice.as_ref()) {
                warn!(
                    %network,
                    block,
                    slice = slice_name(network, target.block),
                    "the IPSlice of a block is not valid or is being deleted; no address of the block is allocated; \
                     correct the IPSlice, or delete it and remove its finalizers"
                );
            }
            let (step, list) = match self.decide(target, memory) {
                Ok(due) => due,
                Err(time) => return time,
            };
            debug!(%network, block, ?step, "next step of a block");
            self.sent = self.sent.wrapping_add(1);
            let done = self.perform(step, target, memory, list.as_deref());
            if let Err(error) = done.await {
                debug!(%network, block, ?step, error = error_chain(&error), "cannot change a block, will retry");
                memory.forget_list();
                self.failed(step, target, memory, &error).await;
                let wait = memory.backoff.wait_time(step, Instant::now());
                return wait.unwrap_or_default();
            }
            memory.backoff.sent(step, Outcome::Done, Instant::now());
            if step.is_of_registry() {
                self.registry.succeeded(Requester::Driver);
            }
            self.report(step, target);
        }
        Duration::ZERO
    }

    /// Updates what is known of a block.
    pub(super) fn refresh(&self, target: &mut Target) {
        let registry = &self.registry;
        let (network, block) = (&target.network, target.block);
        self.context.ledger.read(|ledger| {
            target.slice = ledger.slice_of_block(network, block);
            target.is_used = ledger.is_block_used(network, block);
        });
        target.entry = registry.records.block(network, block);
        target.is_listed = registry.is_confirmed();
        target.access = if registry.is_suspended() {
            Access::Suspended
        } else if registry.is_recovering() {
            Access::Recovering
        } else if !registry.shows_life() {
            Access::Unseen
        } else if target.may_take {
            Access::Full
        } else {
            Access::Limited
        };
        target.is_foreign = match &target.slice {
            Some(slice) => !self.has_own_id(slice) || self.is_replaceable(target, slice),
            None => false,
        };
    }

    /// Decides on the next step of a block.
    fn decide(&mut self, target: &Target, memory: &mut Memory) -> Decision {
        let now = Instant::now();
        let slice = target.slice.as_ref();
        if slice.is_some_and(|slice| !target.is_shared && !self.may_be_of_registry(slice)) {
            return Err(INTERVAL);
        }
        let step = if target.is_foreign {
            memory.backoff.forget_old(now);
            // An object that is not a valid slice is left to its author.
            let is_valid = slice.is_some_and(|slice| slice.is_valid);
            is_valid.then_some(Step::DeleteSlice).ok_or(INTERVAL)?
        } else {
            self.next_step(target, memory, now)?
        };
        if let Some(wait) = memory.backoff.wait_time(step, now) {
            return Err(wait);
        }
        let mut list = None;
        if let Some(slice) = slice
            && step == Step::DeleteSlice
            && !target.is_foreign
        {
            let since = memory.list_after(&slice.version, now);
            list = Some(self.lists.after(since).ok_or(INTERVAL)?);
        }
        Ok((step, list))
    }

    /// The next step of a block of this management cluster.
    fn next_step(
        &mut self,
        target: &Target,
        memory: &mut Memory,
        now: Instant,
    ) -> Result<Step, Duration> {
        memory.update(target, now);
        let view = target.view(memory, now, clock::now().0.as_second());
        let step = view.next();
        if step != Step::Wait && self.may_send(step, target) {
            return Ok(step);
        }
        let settles = view.is_settling() && self.may_send(Step::ConfirmRecord, target);
        Err(if settles {
            target.delays.settle
        } else {
            INTERVAL
        })
    }

    /// Whether the request of a step can be sent now.
    fn may_send(&mut self, step: Step, target: &Target) -> bool {
        // When a network shares blocks no longer, only the slice says where the record is. It is
        // deleted when the record can be returned, too.
        let is_last_sign = step == Step::DeleteSlice && !target.is_shared;
        let is_request = step.is_of_registry() || is_last_sign;
        !is_request || target.is_listed && self.may_request()
    }

    /// Whether the registry may be asked now. It is not while it cannot be reached: the sign of life
    /// finds out when it can be reached again.
    pub(super) fn may_request(&mut self) -> bool {
        let is_allowed = self.registry.allows_requests();
        self.is_held_back |= !is_allowed;
        is_allowed
    }

    /// A request for a record has failed. If the registry cannot be reached, nothing else is sent
    /// either. Any other failure concerns this record only, or the sign of life fails as well.
    pub(super) fn request_failed(
        &mut self,
        key: &Key,
        step: Step,
        backoff: &mut Backoff,
        error: &RegistryError,
    ) {
        let registry = &self.registry;
        if error.is_unavailable() {
            registry.failed(Requester::Driver, error);
            self.is_held_back = true;
            backoff.sent(step, Outcome::Failed, Instant::now());
        } else if backoff.sent(step, Outcome::Refused, Instant::now()) {
            registry.request_probe();
            warn!(
                registry = registry.name,
                record = %key,
                error = error_chain(error),
                "the registry refuses a record, will retry"
            );
        }
    }

    /// Whether a slice has the identity of this management cluster in the registry. An object that is
    /// not valid has none.
    pub(super) fn has_own_id(&self, slice: &BlockSlice) -> bool {
        slice.cluster == self.registry.cluster
    }

    /// Whether a slice names another registry.
    pub(super) fn names_other_registry(&self, slice: &BlockSlice) -> bool {
        let named = slice.registry.as_deref();
        named.is_some_and(|named| *named != *self.registry.name)
    }

    /// Whether the record of the block of a slice can be in this registry.
    pub(super) fn may_be_of_registry(&self, slice: &BlockSlice) -> bool {
        let registry = &self.registry.name;
        self.ledger(|ledger| ledger.may_be_of_registry(slice, registry))
    }

    /// Whether this registry has the record of a block with a slice of another registry, which the network does
    /// not name any more. Otherwise the record is written first if an address is in use.
    fn is_replaceable(&self, target: &Target, slice: &BlockSlice) -> bool {
        let registry = &self.registry;
        let is_of_other = target.is_shared && self.names_other_registry(slice);
        if !is_of_other || !registry.is_available() || registry.is_suspended() {
            return false;
        }
        let record = target.record();
        !target.is_used || record.is_some_and(|(_, record)| *record.cluster == *registry.cluster)
    }

    /// Reads a record whose last write has an unknown outcome. Returns whether it is known now. One of
    /// a registry that cannot be reached stays unknown.
    async fn read_unread(&mut self, target: &Target, memory: &mut Memory) -> bool {
        let Some(step) = memory.unread else {
            return true;
        };
        let backoff = &mut memory.backoff;
        let is_refused = backoff.is_refused() && backoff.wait_time(step, Instant::now()).is_some();
        if is_refused || !self.may_request() {
            return false;
        }
        let key = target.key();
        let registry = Arc::clone(&self.registry);
        if let Err(error) = registry.read(&key).await {
            self.request_failed(&key, step, backoff, &error);
            return false;
        }
        memory.unread = None;
        true
    }

    async fn failed(
        &mut self,
        step: Step,
        target: &Target,
        memory: &mut Memory,
        error: &StepError,
    ) {
        match error {
            StepError::Registry(error) if !error.leaves_record_unknown() => {
                self.request_failed(&target.key(), step, &mut memory.backoff, error);
            }
            StepError::Registry(_) => {
                memory.backoff.sent(step, Outcome::Failed, Instant::now());
                memory.unread = Some(step);
                self.read_unread(target, memory).await;
            }
            StepError::Call(_) | StepError::Changed(_) => {
                memory.backoff.sent(step, Outcome::Failed, Instant::now());
            }
        }
    }
}
