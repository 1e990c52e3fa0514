//! Labels reservations so that `clusterctl move` moves them. Reservations of claims are not
//! labelled: they are created again in the target cluster.

use capi_ipam_controller::client::error_chain;
use capi_ipam_ledger::Ledger;
use tracing::{debug, info};

use super::context::Context;

/// Adds the missing labels. Failures are retried at the next call.
pub(super) async fn add_missing(context: &Context) {
    for name in context.ledger.read(Ledger::unlabelled) {
        match context.reservations.add_move_label(&name).await {
            Ok(true) => info!(reservation = name, "added the label for clusterctl move"),
            Ok(false) => {}
            Err(error) => debug!(
                reservation = name,
                error = error_chain(&error),
                "cannot add the label for clusterctl move, will retry"
            ),
        }
    }
}
