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
}

impl NetworkCounts {
    /// The counts of the status of a network.
    pub(super) fn of(network: &IPNetwork) -> Self {
        let status = network.status.as_ref();
        let number = |field: fn(&IPNetworkStatus) -> i64| status.map(field).unwrap_or_default();
        let in_phase = |phase: MemberPhase| {
            let members = status.into_iter().flat_map(|status| &status.members);
            i64::try_from(members.filter(|member| member.phase == phase).count())
                .unwrap_or(i64::MAX)
        };
        let joining = in_phase(MemberPhase::Joining);
        Self {
            name: network.name_any(),
            addresses: [
                ("total", number(|status| status.total)),
                ("used", number(|status| status.used)),
                ("free", number(|status| status.free)),
            ],
            pools: [
                ("joining", joining),
                (
                    "member",
                    number(|status| status.pools).saturating_sub(joining),
                ),
                ("leaving", in_phase(MemberPhase::Leaving)),
            ],
        }
    }
}
