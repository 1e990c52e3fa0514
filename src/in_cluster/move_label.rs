//! Labels reservations so that `clusterctl move` moves them. Reservations of claims are not labelled: they are created
//! again in the target cluster.

use capi_ipam_api::{IPReservation, names};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::patch;
use kube::ResourceExt;
use tracing::{debug, info};

use super::context::Context;

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
    let Some(found) = context.reservations.get(name).await?.filter(IPReservation::needs_move_label) else {
        return Ok(());
    };
    let mut wanted = found.clone();
    wanted.labels_mut().insert(names::MOVE_LABEL.to_owned(), String::new());
    patch::write(&context.reservations, &found, &wanted).await?;
    Ok(())
}
