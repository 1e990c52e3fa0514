//! The addresses of each Cluster.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::{SliceOwner, SliceOwnerKind};
use schemars::JsonSchema;
use serde::Serialize;

use super::claims::{ClaimLine, ClaimState};
use super::fact::{Fact, list};
use crate::objects::{Kind, Objects};

/// The addresses of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAddresses {
    /// Namespace of the Cluster.
    pub namespace: String,
    /// Name of the Cluster.
    pub name: String,
    /// What a ClusterAddressing has allocated for the Cluster, by the name of the item; `null` if it
    /// may not be read, and empty if it has no address yet.
    pub items: BTreeMap<String, Fact<String>>,
    /// Number of the other addresses, which its machines have.
    pub machines: u64,
    /// Number of its claims that wait for an address.
    pub waiting: u64,
    /// Why they wait: reasons with messages, each once.
    pub problems: BTreeSet<String>,
    /// Its slices of pools, in CIDR notation; `null` if they may not be read.
    pub slices: Option<Vec<String>>,
}

/// The Clusters of claims, which are sorted by namespace. `names` are those that are listed; none for
/// all.
pub(crate) fn clusters(
    claims: &[ClaimLine],
    objects: &Objects,
    names: &[String],
) -> Vec<ClusterAddresses> {
    let mut found: BTreeMap<(&str, &str), ClusterAddresses> = BTreeMap::new();
    for claim in claims {
        let Some(cluster) = claim.cluster.as_deref() else {
            continue;
        };
        if !names.is_empty() && !names.iter().any(|name| name == cluster) {
            continue;
        }
        let line = found
            .entry((&claim.namespace, cluster))
            .or_insert_with(|| empty(&claim.namespace, cluster, objects));
        if claim.state == ClaimState::Waiting {
            line.waiting = line.waiting.saturating_add(1);
        }
        if matches!(claim.state, ClaimState::Waiting | ClaimState::Unserved)
            && let Some(reason) = &claim.reason
        {
            let message = claim.message.as_deref().unwrap_or_default();
            line.problems.insert(format!("{reason}: {message}"));
        }
        match &claim.item {
            Some(item) => {
                let address = match &claim.address {
                    Fact::Absent => Fact::Known(String::new()),
                    address => address.clone(),
                };
                line.items.insert(item.clone(), address);
            }
            None if claim.address != Fact::Absent => {
                line.machines = line.machines.saturating_add(1);
            }
            None => {}
        }
    }
    found.into_values().collect()
}

fn empty(namespace: &str, name: &str, objects: &Objects) -> ClusterAddresses {
    let owner = SliceOwner {
        kind: SliceOwnerKind::Cluster,
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
    };
    let mut slices = Vec::new();
    for row in objects.slices.iter() {
        if let Ok((_, block)) = &row.place
            && row.owner == owner
        {
            slices.push(*block);
        }
    }
    slices.sort_unstable_by_key(|block| (block.family(), block.span().first()));
    let slices = slices.iter().map(ToString::to_string).collect();
    ClusterAddresses {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        items: BTreeMap::new(),
        machines: 0,
        waiting: 0,
        problems: BTreeSet::new(),
        slices: list(slices, objects.has(&[Kind::Slice])),
    }
}
