//! Whether an address that was just reserved is in a block of this management cluster.
//!
//! A block is returned after a list that begins some time after the mark of its IPSlice shows no
//! reservation in it. So an address may be bound if its reservation was created at most half of this
//! time after the IPSlices were listed and showed no mark: the list before the return shows the
//! reservation then. Where the last list is older, the IPSlice is read.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{IPSlice, Scope, Slot, reservation_name};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_ip::Block;
use capi_ipam_ledger::Ledger;
use kube::Resource;
use tracing::debug;

use crate::in_cluster::context::Context;
use crate::in_cluster::slices_listed::Moment;

/// How many lists of the IPSlices there are in the time for which one counts.
const LISTS_PER_PERIOD: u32 = 3;

/// The minimum time between two lists of the IPSlices: `--sweep-grace` can be 0.
const MIN_LIST_INTERVAL: Duration = Duration::from_secs(1);

/// Whether the block of an address belongs to this management cluster, so that the address, which
/// was just reserved, may be bound. Reads its IPSlice only if the last list is too old.
///
/// # Errors
/// If the read fails.
pub(in crate::in_cluster) async fn is_in_own_block(
    context: &Context,
    slot: &Slot,
) -> Result<bool, CallError> {
    let Scope::Network(network) = &slot.scope else {
        return Ok(true);
    };
    let is_usable = |ledger: &Ledger| ledger.is_block_usable(network, slot.block);
    if context.slices_listed.is_fresh(Moment::now()) || !context.ledger.read(is_usable) {
        return Ok(context.ledger.read(is_usable));
    }
    // There is none if the network shares no blocks, and several after a change of the size.
    let slices = context
        .ledger
        .read(|ledger| ledger.slices_containing(network, slot.block));
    for block in slices {
        read_slice(context, network, block).await?;
    }
    Ok(context.ledger.read(is_usable))
}

/// Reads the IPSlice of a block, and records what the response shows.
pub(super) async fn read_slice(
    context: &Context,
    network: &Arc<str>,
    block: Block,
) -> Result<Option<MaybeInvalid<IPSlice>>, CallError> {
    let scope = Scope::Network(Arc::clone(network));
    let name = reservation_name(&scope, block);
    // Another one may be created after the read.
    let known = context
        .ledger
        .read(|ledger| ledger.slice_of_block(network, block));
    let found = context.slices.get_maybe_invalid(&name).await?;
    context.ledger.change(|ledger| match (&found, known) {
        (Some(found), _) => ledger.insert_found_slice(&scope, block, found),
        (None, Some(known)) => ledger.remove_slice_of(&scope, block, &known.uid),
        (None, None) => {}
    });
    Ok(found)
}

/// Lists the IPSlices as long as a network shares blocks.
pub(in crate::in_cluster) struct ListSlices(pub(in crate::in_cluster) Arc<Context>);

impl BackgroundTask for ListSlices {
    async fn run_once(&mut self) -> NextRun {
        let networks = self.0.ledger.read(Ledger::networks_with_blocks);
        if !networks.is_empty()
            && let Err(error) = self.list(&networks).await
        {
            debug!(
                error = error_chain(&error),
                "cannot list the IPSlices, will retry"
            );
        }
        NextRun::After(list_interval(self.0.slices_listed.fresh_for()))
    }
}

/// The time between two lists, if one counts for `fresh_for`.
fn list_interval(fresh_for: Duration) -> Duration {
    let interval = fresh_for.checked_div(LISTS_PER_PERIOD);
    interval.unwrap_or_default().max(MIN_LIST_INTERVAL)
}

impl ListSlices {
    async fn list(&self, networks: &[Arc<str>]) -> Result<(), CallError> {
        let context = &self.0;
        let started = Moment::now();
        let mut listed = HashSet::new();
        let page = |page: Vec<MaybeInvalid<IPSlice>>| {
            for slice in &page {
                listed.extend(slice.meta().uid.clone());
                // One that cannot be decoded is not usable: the watch reports it.
                if let Ok(slice) = &slice.0 {
                    context.ledger.change(|ledger| ledger.insert_slice(slice));
                }
            }
        };
        context.slices.for_each_page(page).await?;
        for network in networks {
            self.forget_unlisted(network, &listed).await?;
        }
        context.slices_listed.listed(started);
        Ok(())
    }

    /// Reads the IPSlices that the list does not show: they may be newer than it.
    async fn forget_unlisted(
        &self,
        network: &Arc<str>,
        listed: &HashSet<String>,
    ) -> Result<(), CallError> {
        let context = &self.0;
        let found = context.ledger.read(|ledger| ledger.network_blocks(network));
        for view in found.into_iter().flat_map(|found| found.blocks) {
            if let Some(slice) = &view.slice
                && !listed.contains(&slice.uid)
            {
                read_slice(context, network, view.block).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_without_a_grace_period_pause() {
        assert_eq!(list_interval(Duration::ZERO), MIN_LIST_INTERVAL);
        assert_eq!(
            list_interval(Duration::from_mins(3)),
            Duration::from_mins(1)
        );
    }
}
