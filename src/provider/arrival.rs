//! Claims that were moved or restored here, and had an address where they come from.
//!
//! `clusterctl move` and backup tools create a claim before its IPAddress, and without its status. Served at once it
//! would get another address than its machine has. So such a claim waits for its IPAddress, for as long as that may take
//! to arrive.
//!
//! It is told by its finalizer, which here a provider adds to a claim that exists. The managed fields say who wrote it:
//! - well before the claim was created, when they came along (`clusterctl move`, most backups);
//! - the writer that created the claim, when they were made anew. Most controllers go by the name of `manager` there, so
//!   that an infrastructure provider and the Go provider are one writer: nothing is concluded from that name.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::adapter::ProviderAdapter;
use super::reconciler::{ClaimReconciler, ReconcileError};
use super::report::Report;
use crate::api::{IPAddressClaim, conditions, names};
use crate::runtime::clock;
use crate::runtime::controller::Outcome;
use crate::runtime::finalizer;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Has the claim wait if it arrived from elsewhere and its IPAddress may still follow. Only to be asked about a claim
    /// without IPAddress. Reads the claim if it had the finalizer before this process set it.
    pub(super) async fn await_address(&self, claim: &IPAddressClaim) -> Result<Option<Outcome>, ReconcileError> {
        if !finalizer::is_set(claim, names::RELEASE_ADDRESS) || has_waited_in_line(claim) {
            return Ok(None);
        }
        let left = time_left(claim, self.adapter.arrival_patience(), &clock::now());
        let Some(left) = left.filter(|left| !left.is_zero()) else { return Ok(None) };
        let claims = self.contract.claim_metadata(&claim.namespace().unwrap_or_default());
        let Some(found) = claims.get(&claim.name_any()).await? else { return Ok(Some(Outcome::Done)) };
        if found.metadata.uid != claim.metadata.uid || !has_arrived(&found.metadata) {
            return Ok(None);
        }
        let until = clock::now().0.saturating_add(SignedDuration::try_from(left).unwrap_or_default());
        self.report(claim, &Report::awaits_address(until.unwrap_or(jiff::Timestamp::MAX))).await?;
        Ok(Some(Outcome::Yield(left)))
    }
}

/// How far the clocks of API servers may be apart: what was written so much before the claim was written elsewhere.
const SKEW: SignedDuration = SignedDuration::from_secs(3);

/// The name by which most controllers go.
const ANYBODY: &str = "manager";

/// Whether the claim had our finalizer when it was created here.
fn has_arrived(claim: &ObjectMeta) -> bool {
    let finalizer = format!("v:\"{}\"", names::RELEASE_ADDRESS);
    let with_the_claim = |entry: &ManagedFieldsEntry| {
        let Some(fields) = entry.fields_v1.as_ref().map(|fields| &fields.0) else { return false };
        let owns_finalizer =
            fields.pointer("/f:metadata/f:finalizers").is_some_and(|all| all.get(&finalizer).is_some());
        let created = entry.manager.as_deref() != Some(ANYBODY) && fields.pointer("/f:spec/f:poolRef").is_some();
        let times = entry.time.as_ref().zip(claim.creation_timestamp.as_ref());
        let before = times.is_some_and(|(written, made)| made.0.duration_since(written.0) > SKEW);
        owns_finalizer && (created || before)
    };
    claim.managed_fields.iter().flatten().any(with_the_claim)
}

/// Whether the claim was served here before: an arrived one has no status that says so.
fn has_waited_in_line(claim: &IPAddressClaim) -> bool {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.reason.as_deref() == Some(conditions::POOL_EXHAUSTED))
}

/// What is left of the patience with a claim, counted from its creation.
fn time_left(claim: &IPAddressClaim, patience: Duration, now: &Time) -> Option<Duration> {
    let created = &claim.metadata.creation_timestamp.as_ref()?.0;
    let age = Duration::try_from(now.0.duration_since(*created)).unwrap_or_default();
    Some(patience.saturating_sub(age))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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

    #[test]
    fn a_claim_has_arrived_when_its_creator_set_our_finalizer() {
        let spec = json!({"f:poolRef": {"f:kind": {}, "f:name": {}}});
        let finalizer = json!({"f:finalizers": {".": {}, "v:\"ipam.cluster.x-k8s.io/ReleaseAddress\"": {}}});
        let another = json!({"f:finalizers": {".": {}, "v:\"example.com/in-use\"": {}}});
        let moved = manager("clusterctl", &json!({"f:spec": spec, "f:metadata": finalizer}));
        assert!(has_arrived(&claim(&json!([moved]))));

        let made = manager("capv-manager", &json!({"f:spec": spec, "f:metadata": another}));
        let served = manager("manager", &json!({"f:metadata": finalizer}));
        assert!(!has_arrived(&claim(&json!([made, served]))));
        let both = manager("manager", &json!({"f:spec": spec, "f:metadata": finalizer}));
        assert!(!has_arrived(&claim(&json!([both]))));
        assert!(!has_arrived(&claim(&json!([]))));
        assert!(!has_arrived(&claim(&json!([{"manager": "x"}]))));
    }

    #[test]
    fn a_claim_has_arrived_when_our_finalizer_is_older_than_it() {
        let finalizer = json!({"f:metadata": {"f:finalizers": {"v:\"ipam.cluster.x-k8s.io/ReleaseAddress\"": {}}}});
        let at = |time: &str| {
            let mut entry = manager("manager", &finalizer);
            entry["time"] = json!(time);
            has_arrived(&claim(&json!([entry])))
        };
        assert!(at("2025-12-31T23:59:50Z"));
        assert!(!at("2025-12-31T23:59:58Z") && !at("2026-01-01T00:00:00Z") && !at("2026-01-01T00:00:01Z"));
    }

    #[test]
    fn patience_is_counted_from_the_creation() {
        let at = |time: &str| Time(time.parse().unwrap());
        let claim = IPAddressClaim { metadata: claim(&json!([])), ..IPAddressClaim::default() };
        let left = |now: &str| time_left(&claim, Duration::from_hours(1), &at(now));
        assert_eq!(left("2026-01-01T00:20:00Z"), Some(Duration::from_mins(40)));
        assert_eq!(left("2026-01-02T00:00:00Z"), Some(Duration::ZERO));
        // The clock of the API server is ahead.
        assert_eq!(left("2025-12-31T23:59:00Z"), Some(Duration::from_hours(1)));
        assert_eq!(time_left(&IPAddressClaim::default(), Duration::MAX, &at("2026-01-01T00:00:00Z")), None);
    }
}
