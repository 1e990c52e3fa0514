//! Admission of registries: their deletion, which their definition cannot check.

use capi_ipam_webhook::denial;
use capi_ipam_webhook::review::{AdmissionRequest, Decision, Operation};

use super::deletion::{is_unchecked, metadata, require_complete};
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
    require_complete(view)?;
    let name = metadata.name.as_deref().unwrap_or_default();
    let networks = view.networks_of_registry(name);
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
    use std::sync::Arc;

    use capi_ipam_api::{Pool, PoolKey, Scope, ScopeChange, Slot, names};
    use capi_ipam_controller::namespaced_name::NamespacedName;
    use capi_ipam_ip::{Block, Family, UsableBlocks};
    use serde_json::{Value, json};

    use super::*;

    /// A cluster whose networks share blocks through the registry `site`.
    struct Cluster(&'static [&'static str]);

    impl View for Cluster {
        fn is_complete(&self) -> bool {
            true
        }
        fn in_use(&self, _: &PoolKey, _: &dyn Fn(Block) -> bool) -> Vec<Block> {
            Vec::new()
        }
        fn overlapping(&self, _: &PoolKey, _: &Scope, _: &UsableBlocks) -> Vec<PoolKey> {
            Vec::new()
        }
        fn network_length(&self, _: &str, _: Family) -> Option<u8> {
            None
        }
        fn scope_change(&self, key: &PoolKey, _: &Pool) -> ScopeChange {
            ScopeChange::unknown(key)
        }
        fn pool(&self, _: &PoolKey) -> Option<(Scope, Option<Arc<UsableBlocks>>)> {
            None
        }
        fn networks_of_registry(&self, name: &str) -> Vec<String> {
            let networks = if name == "site" { self.0 } else { &[] };
            networks.iter().copied().map(str::to_owned).collect()
        }
        fn owners(&self, _: &Slot) -> Vec<NamespacedName> {
            Vec::new()
        }
    }

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
        let view = Cluster(&["lab", "region"]);
        let status = delete(&json!({"name": "site"}), &view).unwrap_err();
        assert_eq!(status.code, 400);
        let text = &status.message;
        assert!(text.ends_with("In use by IPNetwork lab, region"), "{text}");
        let annotated = json!({"name": "site", "annotations": {names::SKIP_VALIDATE_DELETE: ""}});
        assert_eq!(delete(&annotated, &view), Ok(Vec::new()));
        assert_eq!(delete(&json!({"name": "other"}), &view), Ok(Vec::new()));
        assert_eq!(
            delete(&json!({"name": "site"}), &Cluster(&[])),
            Ok(Vec::new())
        );
    }
}
