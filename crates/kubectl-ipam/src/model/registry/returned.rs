//! `registry return`: whether a block of this management cluster can be returned.

use std::collections::BTreeSet;

use capi_ipam_api::BlockRules;
use capi_ipam_ip::Block;
use capi_ipam_registry::cidr;

use super::block_lines::{contains, key_of};
use super::check::in_use;
use super::release::{RecordAction, RecordChange, line};
use crate::error::Error;
use crate::objects::{Objects, PoolRow, SliceRow};

/// What becomes of a block that is returned; an error if the manager keeps it. `slices` are those of
/// this management cluster in the network, and `pools` are the pools of the network.
pub(crate) fn returned_block(
    network: &str,
    block: Block,
    rules: &BlockRules,
    slices: &[&SliceRow],
    pools: &[&PoolRow],
    objects: &Objects,
) -> Result<RecordChange, Error> {
    let used = in_use(pools, objects);
    let is_of = |block: Block| used.iter().filter(move |address| block.overlaps(**address));
    let name = cidr(block);
    let count = is_of(block).count();
    if count > 0 {
        return Err(Error::Failed(format!(
            "a block is returned when none of its addresses is in use, reserved or cooling down: block {name} of network \
             {network} has {count} such"
        )));
    }
    let mut unused = BTreeSet::new();
    for slice in slices {
        if let Some((_, block)) = slice.shared_block()
            && slice.conflict.is_none()
            && is_of(block).next().is_none()
            && pools.iter().any(|pool| contains(pool, block))
        {
            unused.insert(block);
        }
    }
    // The manager keeps the lowest ones.
    let spare = rules.spare;
    if unused.iter().take(spare).any(|kept| *kept == block) {
        return Err(Error::Failed(format!(
            "network {network} holds {spare} free blocks ahead, and block {name} is one of them: lower spec.blocks.spare \
             first"
        )));
    }
    Ok(RecordChange {
        network: Some(network.to_owned()),
        block: Some(name),
        ..line(&key_of(network, block), RecordAction::Returning)
    })
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::{IPReservation, IPSlice, Pool, SharedBlocks};
    use serde_json::json;

    use super::*;
    use crate::objects::{PoolRow, ReservationRow};

    fn block(text: &str) -> Block {
        capi_ipam_ip::parse_block(text, true).unwrap()
    }

    fn slice(block: &str) -> SliceRow {
        let slice: IPSlice = serde_json::from_value(json!({
            "metadata": {"name": format!("n.lab.{}", block.replace('/', "-"))},
            "spec": {"scope": "n.lab", "block": block, "owner": {"kind": "ManagementCluster", "name": "west"}},
        }))
        .unwrap();
        SliceRow::from(slice)
    }

    #[test]
    fn blocks_that_the_manager_keeps_are_not_returned() {
        let slices = [
            "10.0.0.0/26",
            "10.0.0.64/26",
            "10.0.0.128/26",
            "10.9.0.0/26",
        ]
        .map(slice);
        let pool: Pool = serde_json::from_value(json!({
            "kind": "InClusterIPPool", "metadata": {"name": "p", "namespace": "n"},
            "spec": {"addresses": ["10.0.0.0/24"], "prefix": 24, "network": "lab"},
        }))
        .unwrap();
        let reservation: IPReservation = serde_json::from_value(json!({
            "metadata": {"name": "n.lab.10.0.0.7"},
            "spec": {"scope": "n.lab", "address": "10.0.0.7",
                     "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": "p"}},
        }))
        .unwrap();
        let reservation = ReservationRow::of(&reservation).unwrap();
        let rules = |spare| {
            let blocks = SharedBlocks {
                registry: "site".to_owned(),
                size: 64,
                spare: Some(spare),
                ..SharedBlocks::default()
            };
            blocks.rules().unwrap()
        };
        let objects = Objects::of([PoolRow::from(&pool)], [], [reservation], []);
        let check = |text: &str, spare| {
            let slices: Vec<&SliceRow> = slices.iter().collect();
            let (block, rules) = (block(text), rules(spare));
            let returned =
                returned_block("lab", block, &rules, &slices, &objects.pools(), &objects);
            returned.map_err(|error| error.to_string())
        };
        let used = check("10.0.0.0/26", 0).unwrap_err();
        assert!(used.ends_with("has 1 such"), "{used}");
        assert!(check("10.0.0.64/26", 0).is_ok());
        let spare = check("10.0.0.64/26", 1).unwrap_err();
        assert!(spare.contains("free blocks ahead"), "{spare}");
        assert!(check("10.0.0.128/26", 1).is_ok(), "the lowest is kept");
        assert!(check("10.9.0.0/26", 9).is_ok(), "of no pool");
    }
}
