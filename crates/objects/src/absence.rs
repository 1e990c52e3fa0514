//! Why the counterpart of an object is missing, such as the owner of an address.
//!
//! What is missing is not always deleted. Code that releases something because its counterpart is
//! missing asks here for how long it may still appear:
//!
//! | why it is missing | how long it may be missing |
//! |---|---|
//! | the object was restored from a backup or moved from another cluster, and its counterpart was not yet | until the timeout of restores is over, counted from the creation of the object ([`Absence::Restore`]) |
//! | a cache or a watch lags behind, or does not contain it | for the grace period, and a live read decides afterwards ([`Absence::Deleted`]) |
//!
//! The evidence for a restore is in the metadata: the API server sets the creation time, and
//! nothing else in an object is older than the object itself, unless it was restored.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use kube::core::ObjectMeta;
use serde_json::Value;

/// Maximum clock skew between API servers.
pub const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);
/// Typical clock skew between API servers.
pub const TYPICAL_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(3);

/// The field managers of tools that move or restore objects.
pub const RESTORE_TOOLS: [&str; 2] = ["clusterctl", "velero-server"];

/// The field managers of kubectl when it creates objects.
const KUBECTL: [&str; 3] = ["kubectl-create", "kubectl-client-side-apply", "kubectl"];

/// The label of each object that Velero has restored.
const RESTORE_LABEL: &str = "velero.io/restore-name";

/// The annotation in which `kubectl apply` records what was applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Why the counterpart of an object is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The object was restored or moved to this cluster at this time. Its counterpart may be
    /// restored later.
    Restore(Timestamp),
    /// It was deleted, or a cache lags behind.
    Deleted,
}

impl Absence {
    /// Why the counterpart of an object is missing that only controllers create. `written` is a
    /// time that the controller has written to the object when it created it, if there is one.
    /// Evidence for a restore:
    ///
    /// - a managed field or `written` is older than the object;
    /// - a restore tool or kubectl has created it;
    /// - it was applied from a backup by `kubectl apply`.
    ///
    /// Without `managedFields` only the rest of it is found.
    pub fn of(metadata: &ObjectMeta, written: Option<&Time>) -> Self {
        let Some(created) = &metadata.creation_timestamp else {
            return Self::Deleted;
        };
        let entries = metadata.managed_fields.as_deref().unwrap_or_default();
        let is_restored = is_older(metadata, written, TYPICAL_CLOCK_SKEW)
            || entries.iter().any(|entry| is_of_restore(metadata, entry))
            || metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(RESTORE_LABEL))
            || applied_backup(metadata).is_some();
        if is_restored {
            Self::Restore(created.0)
        } else {
            Self::Deleted
        }
    }

    /// How long the counterpart may still be restored; `None` if it is not awaited, or no longer.
    pub fn remaining(self, timeout: Duration, now: Timestamp) -> Option<Duration> {
        match self {
            Self::Restore(at) => {
                // The clock of the API server can be ahead.
                let age = Duration::try_from(now.duration_since(at)).unwrap_or_default();
                Some(timeout.saturating_sub(age)).filter(|left| !left.is_zero())
            }
            Self::Deleted => None,
        }
    }
}

/// Whether an entry shows that an object was created from a backup.
fn is_of_restore(metadata: &ObjectMeta, entry: &ManagedFieldsEntry) -> bool {
    let manager = entry.manager.as_deref().unwrap_or_default();
    let owns_spec = entry
        .fields_v1
        .as_ref()
        .is_some_and(|fields| fields.0.get("f:spec").is_some());
    is_older(metadata, entry.time.as_ref(), TYPICAL_CLOCK_SKEW)
        || RESTORE_TOOLS.contains(&manager)
        || (owns_spec && KUBECTL.contains(&manager))
}

/// Whether an object was created more than `skew` after a time.
pub fn is_older(metadata: &ObjectMeta, time: Option<&Time>, skew: SignedDuration) -> bool {
    let times = time.zip(metadata.creation_timestamp.as_ref());
    times.is_some_and(|(time, created)| created.0.duration_since(time.0) > skew)
}

/// What `kubectl apply` created an object from, if that was what `kubectl get` wrote of an earlier
/// object.
pub fn applied_backup(metadata: &ObjectMeta) -> Option<Value> {
    let text = metadata.annotations.as_ref()?.get(LAST_APPLIED)?;
    let applied: Value = serde_json::from_str(text).ok()?;
    let uid = applied.pointer("/metadata/uid").and_then(Value::as_str)?;
    let is_earlier = Some(uid) != metadata.uid.as_deref();
    is_earlier.then_some(applied)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The metadata of an object that was created at midnight, with these fields.
    fn created_with(fields: Value) -> ObjectMeta {
        let mut metadata: ObjectMeta = serde_json::from_value(fields).unwrap();
        metadata.creation_timestamp = Some(Time(at("2026-01-01T00:00:00Z")));
        metadata
    }

    fn written_by(manager: &str, time: &str, field: &str) -> ObjectMeta {
        created_with(json!({"managedFields": [
            {"manager": manager, "operation": "Update", "time": time, "fieldsV1": {field: {}}}]}))
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    #[test]
    fn older_fields_and_tools_show_a_restore() {
        let is_restored = |metadata: &ObjectMeta, written: Option<&str>| {
            let written = written.map(|time| Time(at(time)));
            Absence::of(metadata, written.as_ref()) != Absence::Deleted
        };
        let now = "2026-01-01T00:00:00Z";
        for (manager, time, field, expected) in [
            ("capi-ipam-in-cluster", now, "f:spec", false),
            ("manager", "2025-12-31T23:59:58Z", "f:spec", false),
            ("manager", "2025-12-31T23:59:56Z", "f:spec", true),
            (
                "capi-ipam-in-cluster",
                "2026-01-01T09:00:00Z",
                "f:spec",
                false,
            ),
            ("velero-server", now, "f:metadata", true),
            ("kubectl-create", now, "f:spec", true),
            ("kubectl-create", now, "f:metadata", false),
            ("kubectl-edit", now, "f:spec", false),
        ] {
            let metadata = written_by(manager, time, field);
            assert_eq!(
                is_restored(&metadata, None),
                expected,
                "{manager} {time} {field}"
            );
        }
        let plain = created_with(json!({}));
        assert!(!is_restored(&plain, None));
        assert!(!is_restored(&plain, Some("2025-12-31T23:59:57Z")));
        assert!(is_restored(&plain, Some("2025-12-31T23:59:56Z")));
        assert!(is_restored(
            &created_with(json!({"labels": {"velero.io/restore-name": "r"}})),
            None
        ));
        for (uid, expected) in [("now", false), ("before", true)] {
            let applied = json!({"metadata": {"uid": uid}}).to_string();
            let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
            let metadata = created_with(json!({"uid": "now", "annotations": annotations}));
            assert_eq!(is_restored(&metadata, None), expected, "{uid}");
        }
    }

    #[test]
    fn counterpart_of_a_restored_object_is_awaited() {
        let restored = Absence::Restore(at("2026-01-01T00:00:00Z"));
        let hour = Duration::from_hours(1);
        let left = |absence: Absence, now: &str| absence.remaining(hour, at(now));
        assert_eq!(
            left(restored, "2026-01-01T00:20:00Z"),
            Some(Duration::from_mins(40))
        );
        assert_eq!(left(restored, "2026-01-01T01:00:00Z"), None);
        // The clock of the API server is ahead.
        assert_eq!(left(restored, "2025-12-31T23:59:00Z"), Some(hour));
        assert_eq!(left(Absence::Deleted, "2026-01-01T00:20:00Z"), None);
    }
}
