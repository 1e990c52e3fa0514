//! Labels reservations so that `clusterctl move` moves them. Reservations of claims are not
//! labelled: they are created again in the target cluster.

use std::sync::Arc;

use capi_ipam_controller::client::error_chain;
use capi_ipam_provider::advanced::{Repair, Repaired};
use tracing::{debug, info};

use crate::in_cluster::context::Context;

/// Adds the missing labels.
pub(super) struct AddMoveLabels {
    context: Arc<Context>,
}

impl Repair for AddMoveLabels {
    const NAME: &'static str = "move-labels";

    async fn pass(&mut self) -> Repaired {
        let mut repaired = Repaired::default();
        for name in self
            .context
            .ledger
            .read(|ledger| ledger.addresses().unlabelled())
        {
            match self.context.reservations.add_move_label(&name).await {
                Ok(true) => {
                    repaired.count += 1;
                    info!(reservation = name, "added the label for clusterctl move");
                }
                Ok(false) => {}
                Err(error) => debug!(
                    reservation = name,
                    error = error_chain(&error),
                    "cannot add the label for clusterctl move, will retry"
                ),
            }
        }
        repaired
    }
}

impl AddMoveLabels {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }
}
