//! Claims that were moved or restored to this cluster, and already had an address.
//!
//! `clusterctl move` and backup tools create a claim before its IPAddress and without its status. If such a claim were
//! served immediately, it would get a different address than its machine uses. It therefore waits for its IPAddress to
//! be restored, with a timeout.
//!
//! A restored claim is recognized by our finalizer, which a provider adds only to an existing claim. The managed fields
//! show who set the finalizer:
//! - If the managed fields were restored too, the finalizer was set well before the claim was created. `clusterctl
//!   move` and Velero restore them with a second write.
//! - If they were not, the creator of the claim set the finalizer. Most controllers have the field manager `manager`,
//!   which makes an infrastructure provider and the Go provider indistinguishable; this name is therefore not
//!   considered.
//!
//! The second case also matches a claim that was copied, or deployed from a repository, with the finalizer in its
//! manifest. Its IPAddress is never restored. Such a claim waits for the full timeout only if there is further evidence
//! of a move: its creator, a status older than the claim, or a Cluster that is new in this cluster too. Otherwise it
//! waits only as long as the second write may take.
//!
//! A finalizer that an admission policy added when the claim was created is in no managed fields. Such a claim was moved
//! only if its managed fields are older than itself.

use std::time::{Duration, Instant};

use capi_ipam_controller::controller::Action;
use capi_ipam_controller::{clock, finalizer};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::adapter::ProviderAdapter;
use crate::api::{IPAddressClaim, names};
use crate::claim_conditions::{ClaimConditions, waits_for_free_address};
use crate::error::ReconcileError;
use crate::message_debounce::MessageDebounce;
use crate::reconciler::ClaimReconciler;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Returns the action of a claim that waits for its IPAddress to be restored, or `None` if the claim need not wait.
    /// Call it only for a claim without an IPAddress that had our finalizer before this process could set it. Reads the
    /// claim.
    pub(super) async fn wait_for_restore(
        &self,
        claim: &IPAddressClaim,
        debounce: &mut MessageDebounce,
    ) -> Result<Option<Action>, ReconcileError> {
        if !finalizer::is_set(claim, names::RELEASE_ADDRESS) || waits_for_free_address(claim) {
            return Ok(None);
        }
        let timeout = self.options.restored_claim_timeout;
        let Some(left) = remaining(claim, timeout, &clock::now()) else { return Ok(None) };
        let claims = self.contract.claim_metadata(&claim.namespace().unwrap_or_default());
        let Some(found) = claims.get(&claim.name_any()).await? else { return Ok(Some(Action::AwaitChange)) };
        if found.metadata.uid != claim.metadata.uid {
            return Ok(None);
        }
        let has_moved = match origin(&found.metadata) {
            Origin::Here => return Ok(None),
            Origin::Elsewhere => true,
            Origin::Unknown => has_older_status(claim) || self.clusters.may_have_moved_with(claim, Instant::now()),
        };
        if !has_moved {
            let left = remaining(claim, timeout.min(UNCONFIRMED_RESTORE_TIMEOUT), &clock::now());
            return Ok(left.map(Action::Requeue));
        }
        let created = claim.metadata.creation_timestamp.as_ref().map_or(jiff::Timestamp::MAX, |time| time.0);
        let until = created.saturating_add(SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX));
        let status = ClaimConditions::awaiting_address(until.unwrap_or(jiff::Timestamp::MAX));
        let retry = self.update_status(claim, &status, debounce).await?;
        Ok(Some(Action::Requeue(retry.map_or(left, |retry| retry.min(left)))))
    }
}

/// How long a claim waits that was created with our finalizer, without further evidence that it was moved. Tools that
/// restore managed fields do so immediately after they create the object.
const UNCONFIRMED_RESTORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum clock skew between API servers.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(1);
/// Typical clock skew between API servers.
const TYPICAL_SKEW: SignedDuration = SignedDuration::from_secs(3);

/// The field manager of most controllers.
const GENERIC_MANAGER: &str = "manager";

/// The field managers of tools that move or restore objects.
const RESTORE_TOOLS: [&str; 2] = ["clusterctl", "velero-server"];

/// Where a claim with our finalizer was originally created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// In this cluster, and the finalizer was added later.
    Here,
    /// Unknown: the claim was created with the finalizer.
    Unknown,
    /// In another cluster, or in this one before a restore.
    Elsewhere,
}

/// Determines from the managed fields where a claim with our finalizer was originally created.
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
    // The first write of the creator has the creation time of the claim. If the clocks of two API servers differ, a
    // later write may seem older.
    let mut creators = entries.iter().filter(|entry| owns_spec(entry)).peekable();
    let spec_is_older = creators.peek().is_some() && creators.all(|entry| is_older(entry, TYPICAL_SKEW));
    let Some(finalizer_entry) = entries.iter().find(|entry| owns_finalizer(entry)) else {
        return if spec_is_older { Origin::Elsewhere } else { Origin::Here };
    };
    if is_older(finalizer_entry, MAX_SKEW) || (is_older(finalizer_entry, TYPICAL_SKEW) && spec_is_older) {
        return Origin::Elsewhere;
    }
    match finalizer_entry.manager.as_deref() {
        Some(GENERIC_MANAGER) => Origin::Here,
        _ if !owns_spec(finalizer_entry) => Origin::Here,
        Some(name) if RESTORE_TOOLS.contains(&name) => Origin::Elsewhere,
        _ => Origin::Unknown,
    }
}

/// Returns whether the status is that of a bound claim and older than the claim itself.
fn has_older_status(claim: &IPAddressClaim) -> bool {
    let created = claim.metadata.creation_timestamp.as_ref();
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let is_older = |time: &Time| created.is_some_and(|created| created.0.duration_since(time.0) > TYPICAL_SKEW);
    claim.bound_address().is_some()
        && conditions.into_iter().all(|condition| condition.last_transition_time.as_ref().is_none_or(is_older))
}

/// The remaining part of a timeout that starts with the creation of the claim; `None` if it has expired.
fn remaining(claim: &IPAddressClaim, timeout: Duration, now: &Time) -> Option<Duration> {
    let created = &claim.metadata.creation_timestamp.as_ref()?.0;
    let age = Duration::try_from(now.0.duration_since(*created)).unwrap_or_default();
    Some(timeout.saturating_sub(age)).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
    fn claim_created_with_our_finalizer_may_be_moved() {
        let all_fields = json!({"f:spec": spec(), "f:metadata": finalizer()});
        for (creator, expected) in [
            ("kubectl-create", Origin::Unknown),
            ("argocd-controller", Origin::Unknown),
            ("clusterctl", Origin::Elsewhere),
            ("velero-server", Origin::Elsewhere),
            ("manager", Origin::Here),
        ] {
            let entry = at(manager(creator, &all_fields), "2026-01-01T00:00:00Z");
            assert_eq!(origin(&claim(&json!([entry]))), expected, "{creator}");
        }
    }

    #[test]
    fn claim_with_later_finalizer_is_local() {
        let another = json!({"f:finalizers": {".": {}, "v:\"example.com/in-use\"": {}}});
        let creator = manager("capv-manager", &json!({"f:spec": spec(), "f:metadata": another}));
        let served = manager("capi-ipam-in-cluster", &json!({"f:metadata": finalizer()}));
        assert_eq!(origin(&claim(&json!([creator, served]))), Origin::Here);
        assert_eq!(origin(&claim(&json!([]))), Origin::Here);
        assert_eq!(origin(&claim(&json!([{"manager": "x"}]))), Origin::Here);
    }

    #[test]
    fn claim_with_older_managed_fields_is_moved() {
        let of = |created: &str, protected: &str| {
            let creator = at(manager("capv-manager", &json!({"f:spec": spec()})), created);
            let served = at(manager("capi-ipam-in-cluster", &json!({"f:metadata": finalizer()})), protected);
            origin(&claim(&json!([creator, served])))
        };
        assert_eq!(of("2025-12-31T23:59:50Z", "2025-12-31T23:59:52Z"), Origin::Elsewhere);
        // Its creator changed it after the restore.
        assert_eq!(of("2026-01-01T00:00:10Z", "2025-12-31T23:58:52Z"), Origin::Elsewhere);
        let together =
            at(manager("manager", &json!({"f:spec": spec(), "f:metadata": finalizer()})), "2025-12-31T23:59:50Z");
        assert_eq!(origin(&claim(&json!([together]))), Origin::Elsewhere);
    }

    /// An admission policy adds the finalizer after the managed fields of the creator are recorded.
    #[test]
    fn finalizer_of_no_manager_is_local_unless_the_claim_is_older() {
        let of = |time: &str| {
            let creator = at(manager("capv-manager", &json!({"f:spec": spec()})), time);
            let later = at(manager("capi-ipam-in-cluster", &json!({"f:status": {}})), "2025-12-31T23:00:00Z");
            origin(&claim(&json!([creator, later])))
        };
        assert_eq!(of("2026-01-01T00:00:00Z"), Origin::Here);
        assert_eq!(of("2025-12-31T23:59:50Z"), Origin::Elsewhere);
    }

    #[test]
    fn clock_skew_does_not_make_a_claim_moved() {
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
    fn status_older_than_the_claim_is_restored() {
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
    fn timeout_starts_with_the_creation() {
        let at = |time: &str| Time(time.parse().unwrap());
        let claim = IPAddressClaim { metadata: claim(&json!([])), ..IPAddressClaim::default() };
        let left = |now: &str| remaining(&claim, Duration::from_hours(1), &at(now));
        assert_eq!(left("2026-01-01T00:20:00Z"), Some(Duration::from_mins(40)));
        assert_eq!(left("2026-01-02T00:00:00Z"), None);
        // The clock of the API server is ahead.
        assert_eq!(left("2025-12-31T23:59:00Z"), Some(Duration::from_hours(1)));
        assert_eq!(remaining(&IPAddressClaim::default(), Duration::MAX, &at("2026-01-01T00:00:00Z")), None);
    }
}
