//! Who last changed an object, according to its managed fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::core::ObjectMeta;

/// The field manager of the last write of an object that was not one of its status or finalizers.
pub fn last_writer(metadata: &ObjectMeta) -> Option<&str> {
    let entries = metadata.managed_fields.iter().flatten();
    let writes = entries.filter(|entry| owns_spec_or_labels(entry));
    let last = writes.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    last.manager.as_deref()
}

fn owns_spec_or_labels(entry: &ManagedFieldsEntry) -> bool {
    let Some(fields) = &entry.fields_v1 else {
        return false;
    };
    let owns = |path: &str| fields.0.pointer(path).is_some();
    entry.subresource.is_none() && (owns("/f:spec") || owns("/f:metadata/f:labels"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn newest_write_of_spec_or_labels_counts() {
        let entry = |manager: &str, minute: u8, fields: serde_json::Value, of: Option<&str>| {
            json!({"manager": manager, "time": format!("2026-01-01T00:{minute:02}:00Z"), "operation": "Update",
                   "fieldsV1": fields, "subresource": of})
        };
        let metadata = json!({"managedFields": [
            entry("kubectl", 1, json!({"f:spec": {"f:network": {}}}), None),
            entry("capmox", 2, json!({"f:spec": {"f:addresses": {}}}), None),
            entry("ipam", 3, json!({"f:metadata": {"f:finalizers": {}}}), None),
            entry("ipam", 4, json!({"f:status": {}}), Some("status")),
        ]});
        let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
        assert_eq!(last_writer(&metadata), Some("capmox"));
        assert_eq!(last_writer(&ObjectMeta::default()), None);
    }
}
