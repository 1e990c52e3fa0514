//! Labels reservations so that `clusterctl move` moves them. Reservations of claims are not labelled: they are created
//! again in the target cluster.

use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::patch;
use kube::ResourceExt;
use tracing::{debug, info};

use super::context::Context;
use crate::api::{IPReservation, names};

/// Adds the missing labels. Failures are retried at the next call.
pub(super) async fn add_missing(context: &Context) {
    for name in context.ledger.unlabelled() {
        match label(context, &name).await {
            Ok(()) => info!(reservation = name, "added the label for clusterctl move"),
            Err(error) => debug!(
                reservation = name,
                error = error_chain(&error),
                "cannot add the label for clusterctl move, will retry"
            ),
        }
    }
}

async fn label(context: &Context, name: &str) -> Result<(), CallError> {
    let Some(found) = context.reservations.get(name).await?.filter(lacks_label) else { return Ok(()) };
    let mut wanted = found.clone();
    wanted.labels_mut().insert(names::MOVE_LABEL.to_owned(), String::new());
    patch::write(&context.reservations, &found, &wanted).await?;
    Ok(())
}

/// Whether the label is missing on a reservation that no claim holds: `clusterctl move` would not move it.
pub(super) fn lacks_label(reservation: &IPReservation) -> bool {
    let of_a_claim = reservation.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid.is_some());
    !of_a_claim
        && reservation.metadata.deletion_timestamp.is_none()
        && !reservation.labels().contains_key(names::MOVE_LABEL)
}
