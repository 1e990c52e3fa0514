//! Claims that name no pool and no set of this provider: the kind or the API group does not exist,
//! or is of another provider.

use std::collections::BTreeSet;

use capi_ipam_api::{InClusterKind, PoolSetKind, names};
use capi_ipam_provider::api::{IPAddressClaim, PoolReference};

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
    /// Whether the claims of other providers, of which there can be many, are of no interest.
    pub(crate) omits_others: bool,
}

/// Why a claim names no pool of this provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// The claim is right, and the definition of its kind is missing.
    MissingDefinition,
    /// Kind or API group are wrong, and this kind was probably meant. No provider reports it.
    Misspelt(InClusterKind),
    /// The API server does not serve the API group: its provider is not installed.
    UnknownGroup,
    /// Another provider serves the kind, if it runs.
    OtherProvider,
}

/// The pool of a claim that this provider does not serve, so it does not report it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnservedPool {
    /// The API group, the kind and the name as the claim has them.
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) cause: Cause,
}

impl UnservedPool {
    /// `None` if the claim names a pool or a set of this provider.
    pub(crate) fn of(claim: &IPAddressClaim, served: &ServedKinds) -> Option<Self> {
        let PoolReference {
            api_group: group,
            kind,
            name,
        } = claim.spec.pool_ref.clone();
        let cause = cause(&group, &kind, served)?;
        Some(Self {
            group,
            kind,
            name,
            cause,
        })
    }

    /// Whether the pool has the name `NAME` or `KIND/NAME`, as the claim has them.
    pub(crate) fn is_named(&self, text: &str) -> bool {
        match text.split_once('/') {
            Some((kind, name)) => self.name == name && self.kind.eq_ignore_ascii_case(kind),
            None => self.name == text,
        }
    }

    /// The kind and the API group of the pool.
    pub(crate) fn full_kind(&self) -> String {
        if self.group.is_empty() {
            format!("kind {} without an API group", self.kind)
        } else {
            format!("kind {} of {}", self.kind, self.group)
        }
    }

    /// What is wrong, with the kind that was probably meant.
    pub(crate) fn problem(&self) -> String {
        let Self { group, kind, .. } = self;
        let own = names::GROUP;
        match self.cause {
            Cause::MissingDefinition => {
                format!("kind {kind} is not served: its CustomResourceDefinition is not installed")
            }
            Cause::Misspelt(meant) if group == own => {
                format!("kind {kind} is not served; did you mean {meant}?")
            }
            Cause::Misspelt(meant) => {
                format!(
                    "{} is not served; did you mean {meant} of {own}?",
                    self.full_kind()
                )
            }
            Cause::UnknownGroup => {
                format!(
                    "{} is not served: the API server has no such API group; this provider serves pools of {own}",
                    self.full_kind()
                )
            }
            Cause::OtherProvider => {
                format!(
                    "{} is of another provider; this one serves {} of {own}",
                    self.full_kind(),
                    own_kinds()
                )
            }
        }
    }
}

/// The kinds of pools of this provider, as a text.
fn own_kinds() -> String {
    InClusterKind::ALL.map(InClusterKind::name).join(", ")
}

/// Why this provider does not serve the claims for pools of a kind; `None` if it does.
fn cause(group: &str, kind: &str, served: &ServedKinds) -> Option<Cause> {
    let is_pool = InClusterKind::ALL.iter().any(|own| own.name() == kind);
    let is_own = is_pool || PoolSetKind::of(kind).is_some();
    let is_served = served.own.contains(kind);
    let meant = nearest(kind, served);
    if group == names::GROUP {
        return match (is_own, is_served) {
            (true, true) => None,
            (true, false) => Some(Cause::MissingDefinition),
            (false, true) if !OTHER_KINDS.contains(&kind) => Some(Cause::OtherProvider),
            (false, _) => Some(Cause::Misspelt(meant)),
        };
    }
    let has_group = served.groups.contains(group);
    // No other provider has kinds with the names of ours.
    let is_near = distance(kind, meant.name()) <= MAX_WRONG_IN_KIND;
    Some(if is_near || !has_group && is_almost_ours(group) {
        Cause::Misspelt(meant)
    } else if has_group {
        Cause::OtherProvider
    } else {
        Cause::UnknownGroup
    })
}

/// Whether an API group is that of this provider, with a version or a typing error.
fn is_almost_ours(group: &str) -> bool {
    let group = group.split('/').next().unwrap_or_default();
    group == names::GROUP || distance(group, names::GROUP) <= MAX_WRONG_IN_GROUP
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
        let groups = [names::GROUP, "cluster.x-k8s.io", "ipam.metal3.io"];
        let groups = groups.map(str::to_owned).into();
        let claim = json!({
            "metadata": { "namespace": "n4", "name": "m2" },
            "spec": { "poolRef": { "apiGroup": group, "kind": kind, "name": "p" } },
        });
        let claim = serde_json::from_value(claim).unwrap();
        let served = ServedKinds {
            groups,
            own,
            ..ServedKinds::default()
        };
        UnservedPool::of(&claim, &served).map(|pool| pool.problem())
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
        assert_eq!(problem(names::GROUP, "InClusterIPPool"), None);
        let ours = "this one serves InClusterIPPool, GlobalInClusterIPPool, InClusterPrefixPool, \
                    GlobalInClusterPrefixPool of ipam.cluster.x-k8s.io";
        for (group, kind) in [(names::GROUP, "OtherPool"), ("ipam.metal3.io", "IPPool")] {
            let expected = format!("kind {kind} of {group} is of another provider; {ours}");
            assert_eq!(problem(group, kind), Some(expected));
        }
        let expected = "kind NsxPool of ipam.example.com is not served: the API server has no such API group; this \
                        provider serves pools of ipam.cluster.x-k8s.io";
        let found = problem("ipam.example.com", "NsxPool");
        assert_eq!(found.as_deref(), Some(expected));
    }
}
