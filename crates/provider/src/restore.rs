//! Claims that were moved or restored here, and had an address where they come from.
//!
//! `clusterctl move` and backup tools create a claim before its IPAddress, and without its status. Served at once it
//! would get another address than its machine has. So such a claim waits for its IPAddress, for as long as that may take
//! to arrive.
//!
//! It is recognized by its finalizer, which here a provider adds to a claim that exists. The managed fields say who wrote it:
//! - well before the claim was created, when they came along: `clusterctl move` and Velero restore them with a second write;
//! - the writer that created the claim, when they did not. Most controllers go by the name of `manager` there, so that an
//!   infrastructure provider and the Go provider are one writer: nothing is concluded from that name.
//!
//! The second is also what a claim looks like that was copied or is deployed from a repository with the finalizer in it, and
//! whose IPAddress nobody restores. It waits long only if something else shows that it was moved: its creator, a status that
//! is older than the claim, or a Cluster that is new here too. Otherwise it waits as long as the second write may take.

use std::time::{Duration, Instant};

use capi_ipam_controller::controller::Outcome;
use capi_ipam_controller::{clock, finalizer};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::adapter::ProviderAdapter;
use crate::api::{conditions, IPAddressClaim, names};
use crate::reconciler::{ClaimReconciler, ReconcileError};
use crate::report::Report;
use crate::rewrite::MessageDelay;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Has the claim wait if it arrived from elsewhere and its IPAddress may still follow. Only to be asked about a claim
    /// without IPAddress. Reads the claim if it had the finalizer before this process set it.
    pub(super) async fn wait_for_restore(
        &self,
        claim: &IPAddressClaim,
        delay: &mut MessageDelay,
    ) -> Result<Option<Outcome>, ReconcileError> {
        if !finalizer::is_set(claim, names::RELEASE_ADDRESS) || was_queued(claim) {
            return Ok(None);
        }
        let patience = self.adapter.restored_claim_timeout();
        let Some(left) = time_left(claim, patience, &clock::now()) else { return Ok(None) };
        let claims = self.contract.claim_metadata(&claim.namespace().unwrap_or_default());
        let Some(found) = claims.get(&claim.name_any()).await? else { return Ok(Some(Outcome::Done)) };
        if found.metadata.uid != claim.metadata.uid {
            return Ok(None);
        }
        let has_moved = match origin(&found.metadata) {
            Origin::Here => return Ok(None),
            Origin::Elsewhere => true,
            Origin::Unknown => has_older_status(claim) || self.clusters.may_have_moved_with(claim, Instant::now()),
        };
        if !has_moved {
            let left = time_left(claim, patience.min(UNPROVEN_PATIENCE), &clock::now());
            return Ok(left.map(Outcome::Yield));
        }
        let created = claim.metadata.creation_timestamp.as_ref().map_or(jiff::Timestamp::MAX, |time| time.0);
        let until = created.saturating_add(SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX));
        let report = Report::awaits_address(until.unwrap_or(jiff::Timestamp::MAX));
        let again = self.report(claim, &report, delay).await?;
        Ok(Some(Outcome::Yield(again.map_or(left, |again| again.min(left)))))
    }
}

/// How long a claim waits that was created with our finalizer, and of which nothing else shows that it was moved. Tools that
/// restore managed fields do so in the moment after they have created the object.
const UNPROVEN_PATIENCE: Duration = Duration::from_secs(5);

/// How far the clocks of API servers may be apart, at most.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(1);
/// How far they usually are.
const USUAL_SKEW: SignedDuration = SignedDuration::from_secs(3);

/// The name by which most controllers go.
const GENERIC_MANAGER: &str = "manager";

/// The names of programs that restore objects.
const MOVERS: [&str; 2] = ["clusterctl", "velero-server"];

/// Where a claim with our finalizer was created first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// In this cluster; it got the finalizer here.
    Here,
    /// It was created with the finalizer.
    Unknown,
    /// In another cluster, or in this one before a restore.
    Elsewhere,
}

/// Where a claim with our finalizer was created first, by its managed fields.
fn origin(claim: &ObjectMeta) -> Origin {
    let finalizer = format!("v:\"{}\"", names::RELEASE_ADDRESS);
    let owns_finalizer = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.pointer("/f:metadata/f:finalizers"));
        fields.is_some_and(|all| all.get(&finalizer).is_some())
    };
    let owns_spec = |entry: &ManagedFieldsEntry| {
        entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:poolRef").is_some())
    };
    let is_older = |entry: &ManagedFieldsEntry, skew| {
        let times = entry.time.as_ref().zip(claim.creation_timestamp.as_ref());
        times.is_some_and(|(written, created)| created.0.duration_since(written.0) > skew)
    };
    let entries = claim.managed_fields.as_deref().unwrap_or_default();
    let Some(protector) = entries.iter().find(|entry| owns_finalizer(entry)) else { return Origin::Here };
    // The creator of a claim writes at the time of its creation. Where the clocks of two API servers differ, a write that
    // follows may look older than that.
    let mut creators = entries.iter().filter(|entry| owns_spec(entry)).peekable();
    let spec_is_older = creators.peek().is_some() && creators.all(|entry| is_older(entry, USUAL_SKEW));
    if is_older(protector, MAX_SKEW) || (is_older(protector, USUAL_SKEW) && spec_is_older) {
        return Origin::Elsewhere;
    }
    match protector.manager.as_deref() {
        Some(GENERIC_MANAGER) => Origin::Here,
        _ if !owns_spec(protector) => Origin::Here,
        Some(name) if MOVERS.contains(&name) => Origin::Elsewhere,
        _ => Origin::Unknown,
    }
}

/// Whether the claim says that it is bound, and has said so since before it was created.
fn has_older_status(claim: &IPAddressClaim) -> bool {
    let created = claim.metadata.creation_timestamp.as_ref();
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let is_older = |time: &Time| created.is_some_and(|created| created.0.duration_since(time.0) > USUAL_SKEW);
    claim.bound_address().is_some()
        && conditions.into_iter().all(|condition| condition.last_transition_time.as_ref().is_none_or(is_older))
}

/// Whether the claim was served here before: an arrived one has no status that says so.
fn was_queued(claim: &IPAddressClaim) -> bool {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.reason.as_deref() == Some(conditions::POOL_EXHAUSTED))
}

/// What is left of the patience with a claim, counted from its creation; `None` when nothing is.
fn time_left(claim: &IPAddressClaim, patience: Duration, now: &Time) -> Option<Duration> {
    let created = &claim.metadata.creation_timestamp.as_ref()?.0;
    let age = Duration::try_from(now.0.duration_since(*created)).unwrap_or_default();
    Some(patience.saturating_sub(age)).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::{json, Value};

    use super::*;

    fn claim(managers: &Value) -> ObjectMeta {
        serde_json::from_value(json!({
            "name": "c", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": managers,
            "finalizers": ["ipam.cluster.x-k8s.io/ReleaseAddress"],
        }))
        .unwrap()
    }

    fn manager(name: &str, fields: &Value) -> Value {
        json!({"manager": name, "operation": "Update", "apiVersion": "ipam.cluster.x-k8s.io/v1beta2",
               "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn spec() -> Value {
        json!({"f:poolRef": {"f:kind": {}, "f:name": {}}})
    }

    fn finalizer() -> Value {
        json!({"f:finalizers": {".": {}, "v:\"ipam.cluster.x-k8s.io/ReleaseAddress\"": {}}})
    }

    fn at(mut entry: Value, time: &str) -> Value {
        entry["time"] = json!(time);
        entry
    }

    #[test]
    fn a_claim_created_with_our_finalizer_may_have_been_moved() {
        let whole = json!({"f:spec": spec(), "f:metadata": finalizer()});
        for (creator, expected) in [
            ("kubectl-create", Origin::Unknown),
            ("argocd-controller", Origin::Unknown),
            ("clusterctl", Origin::Elsewhere),
            ("velero-server", Origin::Elsewhere),
            ("manager", Origin::Here),
        ] {
            let entry = at(manager(creator, &whole), "2026-01-01T00:00:00Z");
            assert_eq!(origin(&claim(&json!([entry]))), expected, "{creator}");
        }
    }

    #[test]
    fn a_claim_that_got_our_finalizer_later_was_created_here() {
        let another = json!({"f:finalizers": {".": {}, "v:\"example.com/in-use\"": {}}});
        let creator = manager("capv-manager", &json!({"f:spec": spec(), "f:metadata": another}));
        let served = manager("capi-ipam-in-cluster", &json!({"f:metadata": finalizer()}));
        assert_eq!(origin(&claim(&json!([creator, served]))), Origin::Here);
        assert_eq!(origin(&claim(&json!([]))), Origin::Here);
        assert_eq!(origin(&claim(&json!([{"manager": "x"}]))), Origin::Here);
    }

    #[test]
    fn a_claim_was_moved_when_its_managed_fields_are_older() {
        let of = |created: &str, protected: &str| {
            let creator = at(manager("capv-manager", &json!({"f:spec": spec()})), created);
            let served = at(manager("capi-ipam-in-cluster", &json!({"f:metadata": finalizer()})), protected);
            origin(&claim(&json!([creator, served])))
        };
        assert_eq!(of("2025-12-31T23:59:50Z", "2025-12-31T23:59:52Z"), Origin::Elsewhere);
        // Its creator has changed it since.
        assert_eq!(of("2026-01-01T00:00:10Z", "2025-12-31T23:58:52Z"), Origin::Elsewhere);
        let together =
            at(manager("manager", &json!({"f:spec": spec(), "f:metadata": finalizer()})), "2025-12-31T23:59:50Z");
        assert_eq!(origin(&claim(&json!([together]))), Origin::Elsewhere);
    }

    #[test]
    fn a_claim_was_not_moved_because_clocks_differ() {
        let of = |protected: &str| {
            let creator = at(manager("capv-manager", &json!({"f:spec": spec()})), "2026-01-01T00:00:00Z");
            let served = at(manager("capi-ipam-in-cluster", &json!({"f:metadata": finalizer()})), protected);
            origin(&claim(&json!([creator, served])))
        };
        for protected in ["2025-12-31T23:59:10Z", "2025-12-31T23:59:58Z", "2026-01-01T00:00:01Z"] {
            assert_eq!(of(protected), Origin::Here, "{protected}");
        }
    }

    #[test]
    fn a_status_that_is_older_than_the_claim_was_restored() {
        let bound = |times: &[&str]| {
            let conditions: Vec<_> =
                times.iter().map(|time| json!({"type": "x", "lastTransitionTime": time})).collect();
            let mut claim = IPAddressClaim { metadata: claim(&json!([])), ..IPAddressClaim::default() };
            claim.status =
                serde_json::from_value(json!({"addressRef": {"name": "c"}, "conditions": conditions})).unwrap();
            has_older_status(&claim)
        };
        assert!(bound(&[]) && bound(&["2025-12-01T00:00:00Z"]));
        assert!(!bound(&["2025-12-01T00:00:00Z", "2026-01-01T00:00:02Z"]));
        assert!(!has_older_status(&IPAddressClaim::default()));
    }

    #[test]
    fn patience_is_counted_from_the_creation() {
        let at = |time: &str| Time(time.parse().unwrap());
        let claim = IPAddressClaim { metadata: claim(&json!([])), ..IPAddressClaim::default() };
        let left = |now: &str| time_left(&claim, Duration::from_hours(1), &at(now));
        assert_eq!(left("2026-01-01T00:20:00Z"), Some(Duration::from_mins(40)));
        assert_eq!(left("2026-01-02T00:00:00Z"), None);
        // The clock of the API server is ahead.
        assert_eq!(left("2025-12-31T23:59:00Z"), Some(Duration::from_hours(1)));
        assert_eq!(time_left(&IPAddressClaim::default(), Duration::MAX, &at("2026-01-01T00:00:00Z")), None);
    }
}
