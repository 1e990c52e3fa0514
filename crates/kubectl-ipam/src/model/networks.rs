use capi_ipam_api::MemberPhase;
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolName;
use super::registry::{ReadyState, number};
use crate::objects::NetworkRow;

/// One network in a list. The counts are those of its status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkLine {
    /// Name of the network.
    pub name: String,
    /// Number of its pools.
    pub pools: u64,
    /// Number of the listed pools whose reservations are being moved into the network.
    pub joining: u64,
    /// Number of the listed pools whose reservations are being moved out of the network.
    pub leaving: u64,
    /// Addresses that its pools contain, each counted once.
    pub total: u64,
    /// Addresses of the pools that are in use.
    pub used: u64,
    /// Addresses that can be allocated.
    pub free: u64,
    /// Length of the IPv4 blocks that its pools allocate; omitted until it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_length: Option<u8>,
    /// Length of the IPv6 blocks that its pools allocate; omitted until it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_length: Option<u8>,
    /// Its pools, at most 50. Those that join or leave it are first.
    pub members: Vec<MemberLine>,
    /// Its state.
    #[serde(flatten)]
    pub state: ReadyState,
}

/// A pool of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberLine {
    /// The pool.
    pub pool: PoolName,
    /// `Joining`, `Member` or `Leaving`.
    pub phase: String,
}

/// Describes a network.
pub(crate) fn network_line(network: &NetworkRow) -> NetworkLine {
    let status = &network.status;
    let lengths = status.block_lengths.unwrap_or_default();
    let members = status.members.iter().map(|member| MemberLine {
        pool: PoolName {
            kind: member.kind.clone(),
            namespace: member.namespace.clone(),
            name: member.name.clone(),
        },
        phase: format!("{:?}", member.phase),
    });
    let in_phase = |phase: MemberPhase| {
        let members = status.members.iter();
        let count = members.filter(|member| member.phase == phase).count();
        u64::try_from(count).unwrap_or(u64::MAX)
    };
    NetworkLine {
        name: network.name.clone(),
        pools: number(status.pools),
        joining: in_phase(MemberPhase::Joining),
        leaving: in_phase(MemberPhase::Leaving),
        total: number(status.total),
        used: number(status.used),
        free: number(status.free),
        ipv4_length: lengths.ipv4,
        ipv6_length: lengths.ipv6,
        members: members.collect(),
        state: ReadyState::of(network.ready()),
    }
}
