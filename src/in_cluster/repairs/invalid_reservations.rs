//! Whether manually created reservations have an effect. Admission rejects most of those that have
//! none.

use std::collections::HashSet;
use std::sync::Arc;

use capi_ipam_api::{IPReservation, conditions};
use capi_ipam_ledger::{InvalidReservation, Ledger};
use capi_ipam_provider::advanced::{Repair, Repaired};
use tracing::warn;

use super::report_failed;
use crate::in_cluster::context::Context;

/// Reports reservations without effect by an event and in their status, each once. The status of
/// others is written only if a user created them, or if it reports a problem that they no longer
/// have.
pub(super) struct ReportInvalidReservations {
    context: Arc<Context>,
    /// Those that are reported already by an event: uid and problem.
    reported: HashSet<(String, String)>,
    /// Those of which it is known that the status reports their problem: uid and problem.
    written: HashSet<(String, String)>,
}

impl Repair for ReportInvalidReservations {
    const NAME: &'static str = "invalid-reservations";

    async fn pass(&mut self) -> Repaired {
        let ledger = &self.context.ledger;
        let (invalid, valid) = ledger.read(Ledger::invalid_reservations);
        let current: HashSet<_> = invalid.iter().map(key_of).collect();
        self.reported.retain(|known| current.contains(known));
        self.written.retain(|known| current.contains(known));
        for found in invalid {
            let key = key_of(&found);
            if self.reported.insert(key.clone()) {
                self.publish(&found);
            }
            if self.written.contains(&key) {
                continue;
            }
            match self
                .context
                .reservations
                .report(&found.name, found.seen, Some(&found.problem))
                .await
            {
                Ok(true) => {
                    self.written.insert(key);
                }
                Ok(false) => {}
                Err(error) => report_failed(&found.name, &error),
            }
        }
        for (name, seen) in valid {
            if let Err(error) = self.context.reservations.report(&name, seen, None).await {
                report_failed(&name, &error);
            }
        }
        Repaired::default()
    }
}

fn key_of(found: &InvalidReservation) -> (String, String) {
    (found.uid.clone(), found.problem.clone())
}

impl ReportInvalidReservations {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            reported: HashSet::new(),
            written: HashSet::new(),
        }
    }

    fn publish(&self, found: &InvalidReservation) {
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
