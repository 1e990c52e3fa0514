//! The watch and the cache of claims: which claims this process reconciles, what it keeps of each,
//! and what it passes on. Claims that need no action, which is most of them most of the time, are
//! cached in a compact form.

use std::collections::BTreeMap;
use std::sync::Arc;

use capi_ipam_controller::controller::{Cached, Store};
use capi_ipam_controller::finalizer;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::traces;
use capi_ipam_controller::watch::{EventHandler, FanOut, Invalid, Keyed, trim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use tokio::sync::mpsc;

use crate::adapter::PoolKind;
use crate::api::{
    ContractVersion, IPAddressClaim, MAX_REASON_LENGTH, MAX_REQUEST_LENGTH, PoolReference, Uid,
    conditions, names,
};
use crate::claim_conditions::condition;
use crate::selection::Selection;
use crate::waiting_claims::created;

/// The compact form of a claim that needs no action: it is bound, has our finalizer and is not
/// being deleted, or this process does not reconcile it.
#[derive(Clone, Debug)]
pub struct CompactClaim {
    pub(super) uid: Uid,
    pub(super) pool: Arc<PoolReference>,
    /// Whether this process reconciles the claim.
    pub(super) is_managed: bool,
    created: i64,
    bound: bool,
    shows_use: bool,
}

impl CompactClaim {
    /// Creates the compact form of a claim. `None` if the claim may need an action, or if its uid
    /// is not a UUID.
    pub(super) fn of(
        claim: &IPAddressClaim,
        pool: Arc<PoolReference>,
        is_managed: bool,
    ) -> Option<Self> {
        let bound = is_bound(claim);
        let is_complete = bound && finalizer::is_set(claim, names::RELEASE_ADDRESS);
        let compact = !claim.is_deleting() && (is_complete || !is_managed);
        let uid = Uid::parse(claim.metadata.uid.as_deref()?)?;
        let (created, shows_use) = (created(&claim.metadata), shows_use(claim));
        compact.then_some(Self {
            uid,
            pool,
            is_managed,
            created,
            bound,
            shows_use,
        })
    }

    /// Creates a claim with the properties that identify it and its pool.
    pub(super) fn expand(&self, name: &NamespacedName) -> IPAddressClaim {
        let mut claim = IPAddressClaim::default();
        claim.metadata.namespace = Some(name.namespace().to_owned());
        claim.metadata.name = Some(name.name().to_owned());
        claim.metadata.uid = Some(self.uid.to_string());
        claim.spec.pool_ref = PoolReference::clone(&self.pool);
        claim
    }
}

fn is_bound(claim: &IPAddressClaim) -> bool {
    claim.bound_address().is_some() && claim.bound_address() == claim.metadata.name.as_deref()
}

/// Whether the claim has the condition `AddressInUse`.
fn shows_use(claim: &IPAddressClaim) -> bool {
    let mut versions = ContractVersion::ALL.into_iter();
    versions.any(|version| condition(version, claim, conditions::IN_USE).is_some())
}

/// A cache of the claims of all namespaces, including those that this process does not reconcile.
/// Cheap to clone.
#[derive(Clone)]
pub struct ClaimCache {
    pub(super) store: Store<IPAddressClaim, CompactClaim>,
    pub(super) selection: Selection,
}

/// The last seen state of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimSnapshot {
    /// The uid of the claim.
    pub uid: Uid,
    /// Whether this process reconciles the claim.
    pub is_managed: bool,
    /// Creation time, in seconds since 1970.
    pub created: i64,
    /// Whether the claim is bound to the IPAddress with its own name.
    pub bound: bool,
    /// Deletion timestamp, if the claim is being deleted.
    pub deleted: Option<Time>,
}

impl ClaimCache {
    /// Returns the last seen state of a claim. `None` if the claim is not known or its uid is not a
    /// UUID. Absence does not prove that a claim is deleted: confirm it with a live read before
    /// releasing anything.
    pub fn get(&self, namespace: &str, name: &str) -> Option<ClaimSnapshot> {
        self.snapshot(&self.store.get(Some(namespace), name)?)
    }

    fn snapshot(&self, cached: &Cached<IPAddressClaim, CompactClaim>) -> Option<ClaimSnapshot> {
        Some(match cached {
            Cached::Compact(claim) => ClaimSnapshot {
                uid: claim.uid,
                is_managed: claim.is_managed,
                created: claim.created,
                bound: claim.bound,
                deleted: None,
            },
            Cached::Full(claim) => ClaimSnapshot {
                uid: Uid::parse(claim.metadata.uid.as_deref()?)?,
                is_managed: self.selection.includes(claim.as_ref()),
                created: created(&claim.metadata),
                bound: is_bound(claim),
                deleted: claim.metadata.deletion_timestamp.clone(),
            },
        })
    }

    /// The claims with the condition `AddressInUse` that this process reconciles, and their pools.
    pub fn with_reported_use(&self) -> Vec<(NamespacedName, PoolReference)> {
        self.store.filter_map(|namespace, name, cached| {
            let pool = match cached {
                Cached::Compact(claim) if claim.shows_use && claim.is_managed => &*claim.pool,
                Cached::Full(claim)
                    if shows_use(claim) && self.selection.includes(claim.as_ref()) =>
                {
                    &claim.spec.pool_ref
                }
                _ => return None,
            };
            Some((NamespacedName::new(namespace, name), pool.clone()))
        })
    }

    /// The API groups and kinds of the pools of claims that are not bound and that this process
    /// does not reconcile because of their kind, with the number of these claims.
    pub(super) fn waiting_for_other_kinds(
        &self,
        own: &[PoolKind],
    ) -> BTreeMap<(String, String), i64> {
        let waiting = self.store.filter_map(|namespace, _, cached| match cached {
            Cached::Compact(claim) if !claim.is_managed && !claim.bound => {
                let is_selected = self.selection.includes_namespace(Some(namespace));
                let is_own = own.iter().any(|kind| kind.matches(&claim.pool));
                (is_selected && !is_own).then(|| Arc::clone(&claim.pool))
            }
            _ => None,
        });
        let mut counts = BTreeMap::new();
        for pool in waiting {
            let kind = (pool.api_group.clone(), pool.kind.clone());
            let count: &mut i64 = counts.entry(kind).or_default();
            *count = count.saturating_add(1);
        }
        counts
    }

    /// The uids and names of the bound claims that this process reconciles.
    pub(super) fn bound(&self) -> Vec<(Uid, NamespacedName)> {
        self.store.filter_map(|namespace, name, cached| {
            let claim = self.snapshot(cached)?;
            let is_ours = claim.is_managed && claim.bound;
            is_ours.then(|| (claim.uid, NamespacedName::new(namespace, name)))
        })
    }
}

/// Drops the fields of a claim that this crate does not read. Annotations can be a hundred times as
/// large as the rest.
pub(super) fn trim_claim(claim: &mut IPAddressClaim) {
    trim(&mut claim.metadata);
    (claim.api_version, claim.kind) = (None, None);
    if let Some(annotations) = &mut claim.metadata.annotations {
        let count = annotations.len();
        let mut is_truncated = false;
        annotations.retain(|name, value| match name.as_str() {
            names::PAUSED_ANNOTATION => true,
            names::REQUESTED_ADDRESS
            | names::METAL3_REQUESTED_ADDRESS
            | names::CLUSTER_REQUESTED
            | names::QUARANTINE_FOR_ANNOTATION
            | names::RELEASE_NOW_ANNOTATION => {
                // A longer text is neither an address nor a uid, and is reported.
                is_truncated |= truncate(value, MAX_REQUEST_LENGTH);
                true
            }
            names::CONFLICT_ANNOTATION => {
                is_truncated |= truncate(value, MAX_REASON_LENGTH);
                true
            }
            // A value of any other length is not valid.
            traces::PARENT_ANNOTATION => value.len() == traces::PARENT_LENGTH,
            _ => false,
        });
        claim.is_trimmed = is_truncated || annotations.len() < count;
    }
}

/// Shortens a text to a number of bytes. Returns whether it was longer.
fn truncate(text: &mut String, length: usize) -> bool {
    let is_longer = text.len() > length;
    text.truncate(text.floor_char_boundary(length));
    is_longer
}

/// Selects the claims that this process reconciles: those that the flags select and whose pool is
/// of a kind of the provider.
pub(super) struct ClaimFilter {
    pub(super) selection: Selection,
    pub(super) pools: Vec<PoolKind>,
}

impl ClaimFilter {
    pub(super) fn matches(&self, claim: &IPAddressClaim) -> bool {
        self.selection.includes(claim)
            && self
                .pools
                .iter()
                .any(|kind| kind.matches(&claim.spec.pool_ref))
    }

    /// The [name](pool_name) of the pool of a claim.
    pub(super) fn pool_name(&self, claim: &IPAddressClaim) -> String {
        let mut cluster_scoped = self.pools.iter().filter(|pools| pools.is_cluster_scoped);
        pool_name(
            claim,
            cluster_scoped.any(|pools| pools.matches(&claim.spec.pool_ref)),
        )
    }
}

/// The pool of a claim as all messages name it: `ExternalPool team-a/web`, or `GlobalPool web` if it
/// has no namespace.
pub(super) fn pool_name(claim: &IPAddressClaim, is_cluster_scoped: bool) -> String {
    let PoolReference { kind, name, .. } = &claim.spec.pool_ref;
    match claim.metadata.namespace.as_deref() {
        Some(namespace) if !is_cluster_scoped => format!("{kind} {namespace}/{name}"),
        _ => format!("{kind} {name}"),
    }
}

/// A handler that calls a function with each claim that is deleted.
pub(super) fn on_deleted(
    function: impl Fn(&IPAddressClaim) + Send + Sync + 'static,
) -> Arc<dyn EventHandler<IPAddressClaim>> {
    Arc::new(OnDeleted(function))
}

struct OnDeleted<F>(F);

impl<F: Fn(&IPAddressClaim) + Send + Sync + 'static> EventHandler<IPAddressClaim> for OnDeleted<F> {
    fn apply(&self, _: &IPAddressClaim) {}

    fn delete(&self, claim: &IPAddressClaim) {
        (self.0)(claim);
    }

    fn apply_invalid(&self, _: &Invalid) {}

    /// The controller reports the last known state as deleted.
    fn delete_invalid(&self, _: &Invalid) {}
}

/// Passes on the watch events of the claims that this process reconciles. A claim that no longer
/// matches the filter, because a label changed, is passed as deleted: it must not wait in a queue
/// of this process.
///
/// Claims that were removed with our finalizer and without a deletion timestamp are sent to
/// `deleted`. The API server can remove a claim this way if it is deleted at the moment at which
/// its first finalizer is added.
pub(super) struct FilteringHandler {
    pub(super) filter: Arc<ClaimFilter>,
    pub(super) deleted: mpsc::UnboundedSender<IPAddressClaim>,
    pub(super) handlers: FanOut<IPAddressClaim>,
}

impl EventHandler<IPAddressClaim> for FilteringHandler {
    fn restored(&self) {
        self.handlers.restored();
    }

    fn apply(&self, claim: &IPAddressClaim) {
        if self.filter.matches(claim) {
            self.handlers.apply(claim);
        } else {
            self.handlers.delete(claim);
        }
    }

    fn delete(&self, claim: &IPAddressClaim) {
        self.handlers.delete(claim);
        let is_marked = claim.is_deleting();
        if self.filter.matches(claim)
            && !is_marked
            && finalizer::is_set(claim, names::RELEASE_ADDRESS)
        {
            // The receiver is dropped when the program ends.
            let _ = self.deleted.send(claim.clone());
        }
    }

    fn apply_invalid(&self, claim: &Invalid) {
        let metadata = ObjectMeta::clone(&claim.metadata);
        let selection = &self.filter.selection;
        if selection.includes(&IPAddressClaim {
            metadata,
            ..IPAddressClaim::default()
        }) {
            self.handlers.apply_invalid(claim);
        }
    }

    fn delete_invalid(&self, claim: &Invalid) {
        self.handlers.delete_invalid(claim);
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::*;

    fn compact(change: &Value, is_managed: bool) -> bool {
        let mut claim = json!({
            "metadata": {"name": "c", "uid": "6101ef08-5b98-40af-8a1f-bc85701b2e47",
                         "finalizers": ["ipam.cluster.x-k8s.io/ReleaseAddress"]},
            "spec": {"poolRef": {"kind": "InClusterIPPool", "name": "p"}}, "status": {"addressRef": {"name": "c"}},
        });
        json_patch::merge(&mut claim, change);
        let claim: IPAddressClaim = serde_json::from_value(claim).unwrap();
        CompactClaim::of(&claim, Arc::new(claim.spec.pool_ref.clone()), is_managed).is_some()
    }

    #[test]
    fn claims_that_need_action_are_cached_in_full() {
        assert!(compact(&json!({}), true));
        for change in [
            json!({"status": null}),
            json!({"status": {"addressRef": {"name": "other"}}}),
            json!({"metadata": {"finalizers": null}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            json!({"metadata": {"uid": "not-a-uuid"}}),
        ] {
            assert!(!compact(&change, true), "{change}");
        }
    }

    #[test]
    fn expanded_claim_identifies_claim_and_pool() {
        let claim: IPAddressClaim = serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "c", "uid": "6101ef08-5b98-40af-8a1f-bc85701b2e47"},
            "spec": {"poolRef": {"apiGroup": "example.com", "kind": "Pool", "name": "p"}},
        }))
        .unwrap();
        let compact =
            CompactClaim::of(&claim, Arc::new(claim.spec.pool_ref.clone()), false).unwrap();
        assert_eq!(compact.expand(&NamespacedName::new("n", "c")), claim);
    }

    #[test]
    fn unmanaged_claims_are_cached_in_compact_form() {
        assert!(compact(
            &json!({"status": null, "metadata": {"finalizers": null}}),
            false
        ));
    }

    #[test]
    fn pool_is_named_with_its_namespace() {
        let filter = ClaimFilter {
            selection: Selection::default(),
            pools: vec![
                PoolKind::new("example.com", "Pool"),
                PoolKind::new("example.com", "GlobalPool").cluster_scoped(),
            ],
        };
        let name = |kind: &str| {
            let mut claim = IPAddressClaim::default();
            claim.metadata.namespace = Some("team-a".to_owned());
            claim.spec.pool_ref = PoolReference {
                api_group: "example.com".to_owned(),
                kind: kind.to_owned(),
                name: "web".to_owned(),
            };
            filter.pool_name(&claim)
        };
        assert_eq!(name("Pool"), "Pool team-a/web");
        assert_eq!(name("GlobalPool"), "GlobalPool web");
    }

    #[test]
    fn unread_annotations_are_dropped() {
        let mut claim = IPAddressClaim::default();
        trim_claim(&mut claim);
        assert_eq!(claim, IPAddressClaim::default());
        claim
            .annotations_mut()
            .insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
        claim
            .annotations_mut()
            .insert(names::CLUSTER_REQUESTED.to_owned(), "1".to_owned());
        let paused = claim.clone();
        trim_claim(&mut claim);
        assert_eq!(claim, paused);
        claim.annotations_mut().insert(
            names::RELEASE_NOW_ANNOTATION.to_owned(),
            "x".repeat(MAX_REQUEST_LENGTH),
        );
        let requested = claim.clone();
        trim_claim(&mut claim);
        assert_eq!(claim, requested);
        claim
            .annotations_mut()
            .insert(names::RELEASE_NOW_ANNOTATION.to_owned(), "x".repeat(1000));
        trim_claim(&mut claim);
        assert_eq!(
            claim,
            IPAddressClaim {
                is_trimmed: true,
                ..requested
            }
        );
        claim
            .annotations_mut()
            .remove(names::RELEASE_NOW_ANNOTATION);
        claim
            .annotations_mut()
            .insert("example.com/large".to_owned(), "x".repeat(1000));
        trim_claim(&mut claim);
        assert_eq!(
            claim,
            IPAddressClaim {
                is_trimmed: true,
                ..paused
            }
        );
    }

    #[test]
    fn requested_address_is_kept() {
        let mut claim = IPAddressClaim::default();
        assert_eq!(claim.requested_address(), None);
        claim.annotations_mut().insert(
            names::METAL3_REQUESTED_ADDRESS.to_owned(),
            "10.0.0.5".to_owned(),
        );
        claim
            .annotations_mut()
            .insert(names::REQUESTED_ADDRESS.to_owned(), String::new());
        trim_claim(&mut claim);
        assert_eq!(
            (claim.requested_address(), claim.is_trimmed),
            (Some("10.0.0.5"), false)
        );
        claim
            .annotations_mut()
            .insert(names::REQUESTED_ADDRESS.to_owned(), "10.0.0.6".to_owned());
        assert_eq!(claim.requested_address(), Some("10.0.0.6"));
        let long = format!("10.0.0.7{}", "é".repeat(100));
        claim
            .annotations_mut()
            .insert(names::REQUESTED_ADDRESS.to_owned(), long);
        trim_claim(&mut claim);
        assert_eq!(
            (claim.requested_address().map(str::len), claim.is_trimmed),
            (Some(64), true)
        );
    }
}
