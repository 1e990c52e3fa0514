//! Manually created reservations that have no effect. Admission rejects most of them.

use std::sync::Arc;

use capi_ipam_api::{IPReservation, conditions};
use capi_ipam_ledger::{InvalidReservation, Ledger};
use capi_ipam_provider::advanced::{Repair, Repaired};
use tracing::warn;

use crate::in_cluster::context::Context;

/// Reports reservations without effect by an event, each once.
pub(super) struct ReportInvalidReservations {
    context: Arc<Context>,
    /// Those that are reported already.
    reported: Vec<InvalidReservation>,
}

impl Repair for ReportInvalidReservations {
    const NAME: &'static str = "invalid-reservations";

    async fn pass(&mut self) -> Repaired {
        let invalid = self.context.ledger.read(Ledger::invalid_reservations);
        self.reported.retain(|known| invalid.contains(known));
        for found in invalid {
            if !self.reported.contains(&found) {
                self.report(&found);
                self.reported.push(found);
            }
        }
        Repaired::default()
    }
}

impl ReportInvalidReservations {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            reported: Vec::new(),
        }
    }

    fn report(&self, found: &InvalidReservation) {
        warn!(
            reservation = found.name,
            problem = found.problem,
            "reservation has no effect"
        );
        let mut object = IPReservation::default();
        object.metadata.name = Some(found.name.clone());
        object.metadata.uid = Some(found.uid.clone());
        self.context.events.warning(
            &object,
            &(),
            conditions::INVALID_RESERVATION,
            "Reserve",
            &found.problem,
        );
    }
}
