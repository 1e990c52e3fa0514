//! Reservations made by hand get the label with which `clusterctl move` takes them along. Those of claims need none: they
//! are made anew where the addresses arrive.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use capi_ipam_controller::client::{CallError, ResourceClient, chain};
use capi_ipam_controller::patch;
use capi_ipam_controller::watch::Observer;
use kube::ResourceExt;
use tracing::{debug, info};

use crate::api::{IPReservation, names};
use super::ledger::Ledger;

/// Tells the ledger of reservations, and keeps the names of those that lack the label.
pub(super) struct MoveLabeler {
    ledger: Arc<Ledger>,
    names: Mutex<BTreeSet<String>>,
}

impl MoveLabeler {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, names: Mutex::default() }
    }

    /// Labels what lacks the label. What cannot be labelled now is tried again the next time.
    pub(super) async fn label(&self, reservations: &ResourceClient<IPReservation>) {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for name in names {
            match label(reservations, &name).await {
                Ok(()) => info!(reservation = name, "labelled, so that clusterctl moves it"),
                Err(error) => debug!(reservation = name, error = chain(&error), "cannot be labelled now"),
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

/// Whether the reservation belongs to no claim that lives, and would be left behind.
fn lacks_label(reservation: &IPReservation) -> bool {
    let of_a_claim = reservation.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid.is_some());
    !of_a_claim
        && reservation.metadata.deletion_timestamp.is_none()
        && !reservation.labels().contains_key(names::MOVE_LABEL)
}

impl Observer<IPReservation> for MoveLabeler {
    fn listing(&self) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Observer::<IPReservation>::listing(self.ledger.as_ref());
    }

    fn listed(&self) {
        Observer::<IPReservation>::listed(self.ledger.as_ref());
    }

    fn applied(&self, reservation: &IPReservation) {
        let name = reservation.name_any();
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if lacks_label(reservation) {
            names.insert(name);
        } else if !names.is_empty() {
            names.remove(&name);
        }
        drop(names);
        self.ledger.applied(reservation);
    }

    fn deleted(&self, reservation: &IPReservation) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(&reservation.name_any());
        self.ledger.deleted(reservation);
    }
}
