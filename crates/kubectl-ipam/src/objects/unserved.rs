//! Claims that no provider serves: their pool has a kind or an API group that does not exist.

use std::collections::BTreeSet;

use capi_ipam_api::{InClusterKind, names};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_provider::api::IPAddressClaim;
use jiff::Timestamp;

use super::metadata::{created, machine};
use crate::spelling::distance;

/// Kinds of the API group of the provider that are no pools.
const OTHER_KINDS: [&str; 5] = [
    "IPAddress",
    "IPAddressClaim",
    "IPNetwork",
    "IPReservation",
    "IPSlice",
];

/// How many letters of an API group can be wrong.
const MAX_WRONG_IN_GROUP: usize = 6;
/// How many letters of a kind can be wrong in another API group.
const MAX_WRONG_IN_KIND: usize = 2;

/// What the API server serves.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServedKinds {
    /// All API groups.
    pub(crate) groups: BTreeSet<String>,
    /// The kinds of the group of the provider.
    pub(crate) own: BTreeSet<String>,
}

/// A claim for a pool of a kind that does not exist. No provider reports it.
#[derive(Clone, Debug)]
pub(crate) struct UnservedClaim {
    pub(crate) key: NamespacedName,
    /// The API group, the kind and the name as the claim has them.
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) pool: String,
    /// The kind that was probably meant.
    pub(crate) meant: InClusterKind,
    pub(crate) created: Option<Timestamp>,
    pub(crate) deleting: bool,
    pub(crate) cluster: Option<Box<str>>,
    pub(crate) machine: Option<Box<str>>,
}

impl UnservedClaim {
    /// `None` if the API server serves the kind of the pool, or if the pool is of a provider that
    /// is not installed.
    pub(crate) fn of(claim: &IPAddressClaim, served: &ServedKinds) -> Option<Self> {
        let reference = &claim.spec.pool_ref;
        let (group, kind) = (reference.api_group.as_str(), reference.kind.as_str());
        let meant = nearest(kind, served);
        let is_unserved = if group == names::GROUP {
            OTHER_KINDS.contains(&kind) || !served.own.contains(kind)
        } else {
            !served.groups.contains(group) && is_meant_for_us(group, kind, meant)
        };
        if !is_unserved {
            return None;
        }
        Some(Self {
            key: NamespacedName::of(&claim.metadata),
            group: group.to_owned(),
            kind: kind.to_owned(),
            pool: reference.name.clone(),
            meant,
            created: created(&claim.metadata),
            deleting: claim.metadata.deletion_timestamp.is_some(),
            cluster: claim.cluster_name().map(Box::from),
            machine: machine(&claim.metadata),
        })
    }

    /// Whether the pool has the name `NAME` or `KIND/NAME`, as the claim has them.
    pub(crate) fn has_pool(&self, text: &str) -> bool {
        match text.split_once('/') {
            Some((kind, name)) => self.pool == name && self.kind.eq_ignore_ascii_case(kind),
            None => self.pool == text,
        }
    }

    /// Whether the claim is right, and the definition of its kind is missing.
    pub(crate) fn lacks_definition(&self) -> bool {
        let is_kind = |kind: &InClusterKind| kind.name() == self.kind;
        self.group == names::GROUP && InClusterKind::ALL.iter().any(is_kind)
    }

    /// What is wrong, with the kind that was probably meant.
    pub(crate) fn problem(&self) -> String {
        if self.lacks_definition() {
            return format!(
                "kind {} is not served: its CustomResourceDefinition is not installed",
                self.kind
            );
        }
        if self.group == names::GROUP {
            return format!(
                "kind {} is not served; did you mean {}?",
                self.kind, self.meant
            );
        }
        let group = if self.group.is_empty() {
            "without an API group".to_owned()
        } else {
            format!("of {}", self.group)
        };
        format!(
            "kind {} {group} is not served; did you mean {} of {}?",
            self.kind,
            self.meant,
            names::GROUP
        )
    }
}

/// Whether a claim with a group that is not served is for this provider: its group or its kind is
/// almost right.
fn is_meant_for_us(group: &str, kind: &str, meant: InClusterKind) -> bool {
    let group = group.split('/').next().unwrap_or_default();
    let is_group = group == names::GROUP || distance(group, names::GROUP) <= MAX_WRONG_IN_GROUP;
    is_group || distance(kind, meant.name()) <= MAX_WRONG_IN_KIND
}

/// The kind of pool that is written most similarly, of those that are served.
fn nearest(kind: &str, served: &ServedKinds) -> InClusterKind {
    let wrong = |candidate: &InClusterKind| {
        (
            !served.own.contains(candidate.name()),
            distance(kind, candidate.name()),
        )
    };
    InClusterKind::ALL
        .into_iter()
        .min_by_key(wrong)
        .unwrap_or(InClusterKind::IPPool)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(group: &str, kind: &str) -> Option<String> {
        let own = InClusterKind::ALL
            .map(|kind| kind.name().to_owned())
            .into_iter();
        let own = own
            .chain(OTHER_KINDS.map(str::to_owned))
            .chain(["OtherPool".to_owned()])
            .collect();
        let groups = [names::GROUP, "ipam.metal3.io"].map(str::to_owned).into();
        let claim = json!({
            "metadata": { "namespace": "n4", "name": "m2" },
            "spec": { "poolRef": { "apiGroup": group, "kind": kind, "name": "p" } },
        });
        let claim = serde_json::from_value(claim).unwrap();
        UnservedClaim::of(&claim, &ServedKinds { groups, own }).map(|claim| claim.problem())
    }

    #[test]
    fn misspelt_kinds_and_groups_are_not_served() {
        let meant = |kind| format!("did you mean {kind}?");
        for (kind, expected) in [
            ("InClusterIpPool", "InClusterIPPool"),
            ("inclusterippool", "InClusterIPPool"),
            ("InClusterIPPools", "InClusterIPPool"),
            ("InClusterPool", "InClusterIPPool"),
            ("IPPool", "InClusterIPPool"),
            ("IPNetwork", "InClusterIPPool"),
            ("GlobalInClusterIpPool", "GlobalInClusterIPPool"),
            ("InClusterPrefixPol", "InClusterPrefixPool"),
        ] {
            let text = problem(names::GROUP, kind).unwrap_or_default();
            assert!(
                text.starts_with(&format!("kind {kind} is not served; "))
                    && text.ends_with(&meant(expected)),
                "{text}"
            );
        }
        for group in [
            "",
            "ipam.cluster.x-k8s.io/v1alpha2",
            "cluster.x-k8s.io",
            "ipam.clusters.x-k8s.io",
        ] {
            let text = problem(group, "InClusterIPPool").unwrap_or_default();
            assert!(
                text.ends_with(&meant("InClusterIPPool of ipam.cluster.x-k8s.io")),
                "{group}: {text}"
            );
        }
    }

    #[test]
    fn pools_of_other_providers_are_no_typing_errors() {
        for (group, kind) in [
            (names::GROUP, "InClusterIPPool"),
            (names::GROUP, "OtherPool"),
            ("ipam.metal3.io", "IPPool"),
            ("ipam.example.com", "NsxPool"),
        ] {
            assert_eq!(problem(group, kind), None, "{group} {kind}");
        }
    }
}
