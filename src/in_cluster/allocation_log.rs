//! The allocation log: one line for each change of the holder of an address, by the process that
//! made the change. It is written after the API server has recorded the change, so a line can be
//! missing if the process ends in between, and a restart repeats none.
//!
//! A thread writes the lines, so that neither a slow nor a broken destination delays a claim.

mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

use capi_ipam_api::{
    AllocationCause, AllocationEvent, AllocationTarget, PoolKey, ReservationClaim, Slot,
};
use capi_ipam_controller::clock;
use capi_ipam_controller::log_limit::RepetitionLimit;
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_controller::metrics::Description;
use capi_ipam_provider::api::{IPAddressClaim, MachineOwner};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;
use tracing::warn;

use self::writer::{Destination, Message, Writer};
use super::reservation::claim_reference;
use super::shared_ledger::SharedLedger;

/// The maximum number of lines that wait to be written, about 5 MB.
const MAX_WAITING: usize = 10_000;

pub(super) const LOST_LINES: Description = Description {
    name: "capi_ipam_allocation_log_lost_lines_total",
    kind: "counter",
    labels: &[],
    help: "Lines of the allocation log that are lost, since too many wait to be written; only with --allocation-log",
};

pub(super) const WRITE_ERRORS: Description = Description {
    name: "capi_ipam_allocation_log_write_errors_total",
    kind: "counter",
    labels: &[],
    help: "Failed attempts to write a line of the allocation log, each of which is repeated; only with --allocation-log",
};

/// Records who gets and releases addresses. The default records nothing.
#[derive(Default)]
pub(super) struct AllocationLog(Option<Queue>);

/// The lines that wait for the thread.
pub(super) struct Queue {
    lines: SyncSender<Message>,
    ledger: Arc<SharedLedger>,
    lost: Counter,
    limit: RepetitionLimit,
}

impl AllocationLog {
    /// Starts the thread that writes to a file, or to the standard output for `-`. What waits when
    /// the process stops is written before it ends.
    pub(super) fn start(
        manager: &mut Manager,
        file: &Path,
        ledger: Arc<SharedLedger>,
    ) -> Result<Self, BoxError> {
        let (lines, waiting) = sync_channel(MAX_WAITING);
        let (lost, errors) = (Counter::default(), Counter::default());
        manager.metrics.add(&LOST_LINES, lost.clone());
        manager.metrics.add(&WRITE_ERRORS, errors.clone());
        let writer = Writer::new(Destination::of(file), errors);
        std::thread::Builder::new()
            .name("allocation-log".to_owned())
            .spawn(move || writer.run(&waiting))?;
        let queue = lines.clone();
        manager.on_stop("the allocation log", async move {
            let (done, written) = oneshot::channel();
            queue.try_send(Message::Flush(done))?;
            Ok(written.await?)
        });
        Ok(Self(Some(Queue {
            lines,
            ledger,
            lost,
            limit: RepetitionLimit::default(),
        })))
    }

    /// Records an event, if the log is enabled and there is one. Does not block.
    pub(super) fn record(&self, event: impl FnOnce(&Queue) -> Option<AllocationEvent>) {
        let Some(queue) = &self.0 else { return };
        let line = event(queue).and_then(|event| serde_json::to_string(&event).ok());
        if let Some(line) = line {
            queue.add(line);
        }
    }
}

impl Queue {
    fn add(&self, line: String) {
        if self.lines.try_send(Message::Line(line)).is_ok() {
            return;
        }
        self.lost.inc();
        if let Some(suppressed) = self.limit.allow("", Instant::now()) {
            let lost = suppressed.saturating_add(1);
            warn!(
                lost,
                "lines of the allocation log are lost: {MAX_WAITING} wait to be written"
            );
        }
    }

    /// An event of a claim that was read.
    pub(super) fn event_of_claim(
        &self,
        cause: AllocationCause,
        (pool, slot): (&PoolKey, &Slot),
        claim: &IPAddressClaim,
    ) -> AllocationEvent {
        let machine = MachineOwner::of(claim).map(|owner| owner.name.to_owned());
        let event = self.event(cause, (pool, slot), claim_reference(claim));
        AllocationEvent { machine, ..event }
    }

    /// An event that happens now, of a claim that a reservation names, if it names one.
    pub(super) fn event(
        &self,
        cause: AllocationCause,
        (pool, slot): (&PoolKey, &Slot),
        claim: impl Into<Option<ReservationClaim>>,
    ) -> AllocationEvent {
        let cluster = self.ledger.read(|ledger| {
            let registry = ledger.registry_of_address(slot)?;
            ledger.management_cluster(&registry)
        });
        AllocationEvent {
            time: clock::now_micro(),
            target: AllocationTarget::Allocations,
            event: cause.event(),
            cause,
            address: slot.block.to_string(),
            pool: pool.to_reference(),
            network: slot.scope.network().map(str::to_owned),
            previous_network: None,
            claim: claim.into(),
            machine: None,
            management_cluster: cluster.map(|id| id.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_loses_lines_and_counts_them() {
        let (lines, waiting) = sync_channel(1);
        let queue = Queue {
            lines,
            ledger: Arc::new(SharedLedger::read_only()),
            lost: Counter::default(),
            limit: RepetitionLimit::default(),
        };
        for number in 0..3 {
            queue.add(number.to_string());
        }
        assert_eq!(queue.lost.get(), 2);
        assert!(matches!(waiting.try_recv(), Ok(Message::Line(line)) if line == "0"));
    }
}
