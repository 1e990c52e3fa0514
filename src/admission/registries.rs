//! Admission of registries: their deletion, which their definition cannot check.

use capi_ipam_webhook::denial;
use capi_ipam_webhook::review::{AdmissionRequest, Decision, Operation};

use super::deletion::{in_use, is_unchecked, metadata};
use super::view::View;

/// Decides on a request for a registry.
pub fn review(request: &AdmissionRequest, view: &dyn View) -> Decision {
    if request.operation != Operation::Delete {
        return Ok(Vec::new());
    }
    let metadata = metadata(request.old_object.as_ref());
    if is_unchecked(&metadata) {
        return Ok(Vec::new());
    }
    let name = metadata.name.as_deref().unwrap_or_default();
    let networks = in_use(view, |ledger| ledger.networks_of_registry(name))?;
    if networks.is_empty() {
        return Ok(Vec::new());
    }
    Err(denial::bad_request(&format!(
        "IPRegistry is in use. Cannot delete IPRegistry until no IPNetwork names it in spec.blocks.registry and all \
         blocks have been returned: without it no block is taken or returned. In use by IPNetwork {}",
        networks.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::names;
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::tests::{Cluster, registry, sharing_network};

    fn delete(metadata: &Value, view: &Cluster) -> Decision {
        let kind =
            json!({"group": names::GROUP, "version": names::POOL_VERSION, "kind": "IPRegistry"});
        // A specification that this version cannot read does not keep the object.
        let old = json!({"metadata": metadata, "spec": 5});
        let request = json!({"uid": "1", "kind": kind, "operation": "DELETE", "oldObject": old});
        review(
            &serde_json::from_value::<AdmissionRequest>(request).unwrap(),
            view,
        )
    }

    #[test]
    fn registry_in_use_is_deleted_only_with_annotation() {
        let mut region = sharing_network();
        region["metadata"]["name"] = json!("region");
        let view = Cluster::with(&[registry(), sharing_network(), region]);
        let status = delete(&json!({"name": "site"}), &view).unwrap_err();
        assert_eq!(status.code, 400);
        let text = &status.message;
        assert!(text.ends_with("In use by IPNetwork lab, region"), "{text}");
        let annotated = json!({"name": "site", "annotations": {names::SKIP_VALIDATE_DELETE: ""}});
        assert_eq!(delete(&annotated, &view), Ok(Vec::new()));
        assert_eq!(delete(&json!({"name": "other"}), &view), Ok(Vec::new()));
        assert_eq!(
            delete(&json!({"name": "site"}), &Cluster::default()),
            Ok(Vec::new())
        );
    }
}
