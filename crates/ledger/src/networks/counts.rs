//! The counts of a network, for metrics.

use capi_ipam_api::{IPNetwork, IPNetworkStatus, MemberPhase};
use kube::ResourceExt;

/// The counts of a network, as its status shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// The name of the network.
    pub name: String,
    /// Its addresses in total, in use and free.
    pub addresses: [(&'static str, i64); 3],
    /// Its pools by phase.
    pub pools: [(&'static str, i64); 3],
    /// The blocks that it shares with other management clusters; empty if it shares none.
    pub blocks: Vec<(&'static str, i64)>,
}

impl NetworkCounts {
    /// The counts of the status of a network.
    pub(crate) fn of(network: &IPNetwork) -> Self {
        let empty = IPNetworkStatus::default();
        let status = network.status.as_ref().unwrap_or(&empty);
        let mut joining = 0_i64;
        let mut leaving = 0_i64;
        for member in &status.members {
            match member.phase {
                MemberPhase::Joining => joining = joining.saturating_add(1),
                MemberPhase::Leaving => leaving = leaving.saturating_add(1),
                MemberPhase::Member => {}
            }
        }
        Self {
            name: network.name_any(),
            addresses: [
                ("total", status.total),
                ("used", status.used),
                ("free", status.free),
            ],
            // The list of members can be shortened, so those that only belong to the network are
            // what remains.
            pools: [
                ("joining", joining),
                ("member", status.pools.saturating_sub(joining)),
                ("leaving", leaving),
            ],
            blocks: match &status.blocks {
                Some(blocks) => vec![
                    ("held", blocks.held),
                    ("spare", blocks.spare),
                    ("others", blocks.others),
                    ("conflicts", blocks.conflicts),
                ],
                None => Vec::new(),
            },
        }
    }
}
