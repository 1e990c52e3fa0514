//! Who a registry and a management cluster are: plain values, no I/O.
//!
//! The record `registry` has a random id, and the status of the IPRegistry remembers it: other servers,
//! or the same ones without their data, are another registry. The record of a management cluster has the
//! UID of its namespace `kube-system`: another UID is another cluster with the same `clusterID`.

use capi_ipam_api::{IPRegistry, names};
use kube::ResourceExt;

/// The identity that a registry has been known by.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known<'a> {
    /// That of the status.
    id: Option<&'a str>,
    /// The one that another registry replaces, as an operator has confirmed.
    replaced: Option<&'a str>,
}

impl<'a> Known<'a> {
    pub(super) fn of(registry: &'a IPRegistry) -> Self {
        let status = registry.status.as_ref();
        let annotations = registry.annotations();
        Self {
            id: status.and_then(|status| status.registry_id.as_deref()),
            replaced: annotations
                .get(names::REPLACED_REGISTRY_ANNOTATION)
                .map(String::as_str),
        }
    }
}

/// What a comparison of a registry with what was known has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// The registry has no identity yet.
    New,
    /// The registry has this identity, which is to be remembered.
    Found(String),
    /// It is another registry than the known one.
    Replaced,
}

/// Compares the identity of a registry whose records are listed with what was known.
pub(super) fn compare(known: Known<'_>, found: Option<String>) -> Comparison {
    let expected = known.id.filter(|id| known.replaced != Some(*id));
    match (expected, found) {
        (Some(known), found) if found.as_deref() != Some(known) => Comparison::Replaced,
        (_, Some(found)) => Comparison::Found(found),
        (_, None) => Comparison::New,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_confirmed_registry_replaces_another() {
        let known = |id, replaced| Known { id, replaced };
        let found = |id: &str| Some(id.to_owned());
        let table = [
            (known(None, None), None, Comparison::New),
            (
                known(None, None),
                found("a"),
                Comparison::Found("a".to_owned()),
            ),
            (
                known(Some("a"), None),
                found("a"),
                Comparison::Found("a".to_owned()),
            ),
            (known(Some("a"), None), None, Comparison::Replaced),
            (known(Some("a"), None), found("b"), Comparison::Replaced),
            (
                known(Some("a"), Some("x")),
                found("b"),
                Comparison::Replaced,
            ),
            (
                known(Some("a"), Some("a")),
                found("b"),
                Comparison::Found("b".to_owned()),
            ),
            (known(Some("a"), Some("a")), None, Comparison::New),
            // The annotation stays: it is about the former registry.
            (known(Some("b"), Some("a")), None, Comparison::Replaced),
        ];
        for (known, found, expected) in table {
            assert_eq!(compare(known, found), expected);
        }
    }
}
