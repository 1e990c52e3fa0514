//! Networks that share blocks with other management clusters, and their pools.

use capi_ipam_api::{IPNetwork, Pool, PoolSpec};
use capi_ipam_ip::UsableBlocks;
use capi_ipam_webhook::denial;
use kube::core::response::StatusCause;
use serde_json::json;

use super::view::View;

/// Returns the warnings about a write of a network. `old` is the network before the write.
pub(super) fn of_network(
    network: &IPNetwork,
    old: Option<&IPNetwork>,
    view: &dyn View,
) -> Option<String> {
    let Some(blocks) = &network.spec.blocks else {
        let old = old.filter(|old| old.spec.blocks.is_some());
        return old.map(removal_warning);
    };
    let registry = &blocks.registry;
    let is_missing = view.read(|ledger| ledger.lacks_registry(registry))?;
    // Not denied: manifests and restores create registries and networks in any order.
    is_missing.then(|| {
        format!(
            "spec.blocks.registry: IPRegistry {registry} does not exist; until it is created, no block is taken, and \
             claims wait"
        )
    })
}

/// Why a network must not share blocks through a registry that it did not name before: the blocks
/// that it has taken from another one are not returned yet. The management clusters that use the
/// new one know nothing of them. The definition ensures the same as long as `spec.blocks` is set.
pub(super) fn other_registry(
    network: &IPNetwork,
    old: Option<&IPNetwork>,
    view: &dyn View,
) -> Option<StatusCause> {
    let wanted = registry(network)?;
    if old.and_then(registry) == Some(wanted) {
        return None;
    }
    let name = network.metadata.name.as_deref().unwrap_or_default();
    let (other, count) = view.read(|ledger| ledger.blocks_of_other_registry(name, wanted))??;
    let blocks = match count {
        1 => "1 block of the network is".to_owned(),
        count => format!("{count} blocks of the network are"),
    };
    let text = format!(
        "{blocks} not yet returned to IPRegistry {other}; set the field to {other}, or release the addresses of the \
         network and wait until its IPSlices are deleted"
    );
    Some(denial::invalid_value(
        "spec.blocks.registry",
        &json!(wanted),
        &text,
    ))
}

/// The registry through which a network shares blocks.
fn registry(network: &IPNetwork) -> Option<&str> {
    let blocks = network.spec.blocks.as_ref()?;
    Some(&blocks.registry)
}

/// The warning about a network that shares no blocks any more.
fn removal_warning(old: &IPNetwork) -> String {
    let status = old.status.as_ref();
    let held = match status.and_then(|status| status.blocks.as_ref()) {
        Some(blocks) => blocks.held,
        None => 0,
    };
    let when = match held {
        0 => "from now on".to_owned(),
        1 => "when its block is returned".to_owned(),
        held => format!("when its {held} blocks are returned"),
    };
    format!(
        "spec.blocks: {when}, the pools of the network allocate all their addresses, also those that other management \
         clusters allocate; remove the shared ranges from the pools first"
    )
}

/// Returns the warning about a pool with these addresses in a network that shares blocks of this
/// length.
pub(super) fn of_pool(
    pool: &Pool,
    usable: &UsableBlocks,
    network: &str,
    length: u8,
) -> Option<String> {
    if !is_in_one_block(usable, length) {
        return None;
    }
    let (field, ranges) = match &pool.spec {
        PoolSpec::Addresses(spec) => ("spec.addresses", spec.ranges.len()),
        PoolSpec::Prefixes(spec) => ("spec.prefixes", spec.ranges.len()),
    };
    let field = if ranges == 0 { field } else { "spec.ranges" };
    Some(format!(
        "{field}: all addresses are in one block of IPNetwork {network} (spec.blocks.size), which only one management \
         cluster can have; add addresses, or use a network with smaller blocks"
    ))
}

/// Whether all addresses of a pool are in one block of this length.
fn is_in_one_block(usable: &UsableBlocks, length: u8) -> bool {
    let spans = usable.set.spans();
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
        return false;
    };
    let shift = u32::from(usable.length.saturating_sub(length));
    let block_of = |number: u128| number.checked_shr(shift).unwrap_or_default();
    block_of(first.first()) == block_of(last.last())
}
