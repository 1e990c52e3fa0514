//! Labels reservations so that `clusterctl move` moves them. Reservations of claims are not labelled: they are created
//! again in the target cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use capi_ipam_controller::client::{CallError, ResourceClient, error_chain};
use capi_ipam_controller::patch;
use capi_ipam_controller::watch::EventHandler;
use kube::ResourceExt;
use parking_lot::Mutex;
use tracing::{debug, info};

use super::ledger::Ledger;
use crate::api::{IPReservation, names};

/// The event handler of reservations: passes events on to the ledger, and collects the reservations to label.
pub(super) struct MoveLabeler {
    ledger: Arc<Ledger>,
    names: Mutex<BTreeSet<String>>,
}

impl MoveLabeler {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, names: Mutex::default() }
    }

    /// Labels the collected reservations. Failures are retried at the next call.
    pub(super) async fn label(&self, reservations: &ResourceClient<IPReservation>) {
        let names = self.names.lock().clone();
        for name in names {
            match label(reservations, &name).await {
                Ok(()) => info!(reservation = name, "added the label for clusterctl move"),
                Err(error) => debug!(
                    reservation = name,
                    error = error_chain(&error),
                    "cannot add the label for clusterctl move, will retry"
                ),
            }
        }
    }
}

async fn label(reservations: &ResourceClient<IPReservation>, name: &str) -> Result<(), CallError> {
    let Some(found) = reservations.get(name).await?.filter(lacks_label) else { return Ok(()) };
    let mut wanted = found.clone();
    wanted.labels_mut().insert(names::MOVE_LABEL.to_owned(), String::new());
    patch::write(reservations, &found, &wanted).await?;
    Ok(())
}

/// Whether the label is missing on a reservation that no claim holds: `clusterctl move` would not move it.
fn lacks_label(reservation: &IPReservation) -> bool {
    let of_a_claim = reservation.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid.is_some());
    !of_a_claim
        && reservation.metadata.deletion_timestamp.is_none()
        && !reservation.labels().contains_key(names::MOVE_LABEL)
}

impl EventHandler<IPReservation> for MoveLabeler {
    fn init(&self) {
        self.names.lock().clear();
        EventHandler::<IPReservation>::init(self.ledger.as_ref());
    }

    fn init_done(&self) {
        EventHandler::<IPReservation>::init_done(self.ledger.as_ref());
    }

    fn apply(&self, reservation: &IPReservation) {
        let name = reservation.name_any();
        let mut names = self.names.lock();
        if lacks_label(reservation) {
            names.insert(name);
        } else if !names.is_empty() {
            names.remove(&name);
        }
        drop(names);
        self.ledger.apply(reservation);
    }

    fn delete(&self, reservation: &IPReservation) {
        self.names.lock().remove(&reservation.name_any());
        self.ledger.delete(reservation);
    }
}
