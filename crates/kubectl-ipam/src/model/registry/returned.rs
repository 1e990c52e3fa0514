//! `registry return`: whether a block of this management cluster can be returned.

use std::collections::BTreeSet;

use capi_ipam_api::BlockRules;
use capi_ipam_ip::Block;
use capi_ipam_registry::cidr;

use super::check::in_use;
use super::holder::{contains, key_of};
use super::release::{RecordAction, RecordChange, Refusal};
use crate::objects::{Objects, PoolRow, SliceRow};

/// A block that is to be returned.
pub(crate) struct Returned<'a> {
    pub(crate) network: &'a str,
    pub(crate) block: Block,
    pub(crate) rules: &'a BlockRules,
    /// The slices of this management cluster in the network.
    pub(crate) slices: &'a [&'a SliceRow],
    /// The pools of the network.
    pub(crate) pools: &'a [&'a PoolRow],
    pub(crate) objects: &'a Objects,
}

impl Returned<'_> {
    /// Why the manager keeps the block, if it does.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let network = self.network.to_owned();
        let block = cidr(self.block);
        let used = in_use(self.pools, self.objects);
        let is_of = |block: Block| used.iter().filter(move |address| block.overlaps(**address));
        let count = is_of(self.block).count();
        if count > 0 {
            return Err(Refusal::Used {
                block,
                network,
                count,
            });
        }
        let mut unused = BTreeSet::new();
        for slice in self.slices {
            if let Some((_, block)) = slice.shared_block()
                && slice.conflict.is_none()
                && is_of(block).next().is_none()
                && self.pools.iter().any(|pool| contains(pool, block))
            {
                unused.insert(block);
            }
        }
        // The manager keeps the lowest ones.
        let spare = self.rules.spare;
        if unused.iter().take(spare).any(|kept| *kept == self.block) {
            return Err(Refusal::Spare {
                block,
                network,
                spare,
            });
        }
        Ok(())
    }

    /// What becomes of the block.
    pub(crate) fn line(&self) -> RecordChange {
        RecordChange {
            record: key_of(self.network, self.block),
            action: RecordAction::Returning,
            network: Some(self.network.to_owned()),
            block: Some(cidr(self.block)),
            holder: None,
            used: None,
        }
    }
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
            let returned = Returned {
                network: "lab",
                block: block(text),
                rules: &rules(spare),
                slices: &slices.iter().collect::<Vec<_>>(),
                pools: &objects.pools(),
                objects: &objects,
            };
            returned.check()
        };
        let used = check("10.0.0.0/26", 0).unwrap_err();
        assert!(matches!(used, Refusal::Used { count: 1, .. }), "{used}");
        assert_eq!(check("10.0.0.64/26", 0), Ok(()));
        let spare = check("10.0.0.64/26", 1).unwrap_err();
        assert!(matches!(spare, Refusal::Spare { .. }), "{spare}");
        assert_eq!(check("10.0.0.128/26", 1), Ok(()), "the lowest is kept");
        assert_eq!(check("10.9.0.0/26", 9), Ok(()), "of no pool");
    }
}
