//! What is kept in memory of claims for which nothing has to be done: most of them, for most of their life.

use std::sync::Arc;

use capi_ipam_controller::controller::{Kept, Store};
use capi_ipam_controller::finalizer;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{IPAddressClaim, names, PoolReference, Uid};
use crate::selection::Selection;

/// A claim that is bound, carries our finalizer and is not being deleted; or one that others serve.
#[derive(Clone, Debug)]
pub struct CompactClaim {
    pub(super) uid: Uid,
    pub(super) pool: Arc<PoolReference>,
    /// This process serves the claim.
    pub(super) served: bool,
    created: i64,
    bound: bool,
}

impl CompactClaim {
    /// What to keep of a claim. `None` when something may have to be done for it, or its uid is an odd one.
    pub(super) fn of(claim: &IPAddressClaim, pool: Arc<PoolReference>, served: bool) -> Option<Self> {
        let bound = is_bound(claim);
        let at_rest = bound && finalizer::is_set(claim, names::RELEASE_ADDRESS);
        let settled = claim.metadata.deletion_timestamp.is_none() && (at_rest || !served);
        let uid = Uid::exactly(claim.metadata.uid.as_deref()?)?;
        settled.then_some(Self { uid, pool, served, created: created(claim), bound })
    }
}

fn is_bound(claim: &IPAddressClaim) -> bool {
    claim.bound_address().is_some() && claim.bound_address() == claim.metadata.name.as_deref()
}

fn created(claim: &IPAddressClaim) -> i64 {
    claim.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

/// The claims of all namespaces as their watch last saw them, whether this process serves them or not. Cheap to clone.
#[derive(Clone)]
pub struct Claims {
    pub(super) store: Store<IPAddressClaim, CompactClaim>,
    pub(super) selection: Selection,
}

/// What the watch last saw of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimSnapshot {
    /// Its unique id.
    pub uid: Uid,
    /// This process serves it.
    pub served: bool,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// Its status names the IPAddress of its own name.
    pub bound: bool,
    /// Since when it is being deleted.
    pub deleted: Option<Time>,
}

impl Claims {
    /// What the watch last saw of the claim of that name. Nothing is told of one whose uid is no UUID, which no API server
    /// makes.
    pub fn get(&self, namespace: &str, name: &str) -> Option<ClaimSnapshot> {
        Some(match self.store.get(Some(namespace), name)? {
            Kept::Settled(claim) => ClaimSnapshot {
                uid: claim.uid,
                served: claim.served,
                created: claim.created,
                bound: claim.bound,
                deleted: None,
            },
            Kept::Whole(claim) => ClaimSnapshot {
                uid: Uid::exactly(claim.metadata.uid.as_deref()?)?,
                served: self.selection.includes(claim.as_ref()),
                created: created(&claim),
                bound: is_bound(&claim),
                deleted: claim.metadata.deletion_timestamp.clone(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, Value};

    use super::*;

    fn settled(change: &Value, is_served: bool) -> bool {
        let mut claim = json!({
            "metadata": {"name": "c", "uid": "6101ef08-5b98-40af-8a1f-bc85701b2e47",
                         "finalizers": ["ipam.cluster.x-k8s.io/ReleaseAddress"]},
            "spec": {"poolRef": {"kind": "InClusterIPPool", "name": "p"}}, "status": {"addressRef": {"name": "c"}},
        });
        json_patch::merge(&mut claim, change);
        let claim: IPAddressClaim = serde_json::from_value(claim).unwrap();
        CompactClaim::of(&claim, Arc::new(claim.spec.pool_ref.clone()), is_served).is_some()
    }

    #[test]
    fn claims_to_be_served_are_kept_whole() {
        assert!(settled(&json!({}), true));
        for change in [
            json!({"status": null}),
            json!({"status": {"addressRef": {"name": "other"}}}),
            json!({"metadata": {"finalizers": null}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            json!({"metadata": {"uid": "odd"}}),
        ] {
            assert!(!settled(&change, true), "{change}");
        }
    }

    #[test]
    fn little_is_kept_of_what_others_serve() {
        assert!(settled(&json!({"status": null, "metadata": {"finalizers": null}}), false));
    }
}
