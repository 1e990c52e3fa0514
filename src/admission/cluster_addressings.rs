//! Admission of the addresses of Clusters: what their definition cannot check.

use capi_ipam_api::{ClusterAddressing, FieldProblem, names};
use capi_ipam_webhook::denial;
use capi_ipam_webhook::review::{AdmissionRequest, Decision, Operation};
use serde_json::json;

use super::decode;
use super::pools::same_spec;

/// Decides on a request for a ClusterAddressing.
pub fn review(request: &AdmissionRequest) -> Decision {
    let is_write = matches!(request.operation, Operation::Create | Operation::Update);
    if !is_write || !request.sub_resource.is_empty() || same_spec(request) {
        return Ok(Vec::new());
    }
    let addressing: ClusterAddressing = decode(request.object.as_ref())?;
    let spec = &addressing.spec;
    let cause = |problem: &FieldProblem| {
        denial::invalid_value(&problem.field, &problem.value, &problem.text)
    };
    let mut causes: Vec<_> = addressing.problems().iter().map(cause).collect();
    if let Err(problem) = spec.selector() {
        let selector = json!(spec.cluster_selector);
        causes.push(denial::invalid_value(
            problem.field,
            &selector,
            &problem.source,
        ));
    }
    if causes.is_empty() {
        return Ok(Vec::new());
    }
    let name = addressing.metadata.name.as_deref().unwrap_or_default();
    Err(denial::invalid(
        names::GROUP,
        "ClusterAddressing",
        name,
        causes,
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn review_spec(operation: &str, spec: &Value, old: &Value) -> Decision {
        let kind = json!({"group": names::GROUP, "version": names::POOL_VERSION, "kind": "ClusterAddressing"});
        let object = |spec: &Value| json!({"metadata": {"name": "bonn"}, "spec": spec});
        let request = json!({"uid": "1", "kind": kind, "operation": operation, "object": object(spec),
            "oldObject": object(old)});
        review(&serde_json::from_value(request).unwrap())
    }

    #[test]
    fn problems_name_their_fields() {
        let endpoint = json!([{"controlPlaneEndpoint": {"port": 6443}}]);
        let item = |name: &str, kind: &str| {
            json!({"name": name, "to": endpoint,
                "poolRef": {"apiGroup": names::GROUP, "kind": kind, "name": "vips"}})
        };
        let spec =
            |selector: Value, items: Value| json!({"clusterSelector": selector, "items": items});
        let valid = spec(json!({}), json!([item("a", "InClusterIPPool")]));
        assert_eq!(review_spec("CREATE", &valid, &Value::Null), Ok(Vec::new()));
        let selector =
            json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
        let invalid = spec(
            selector,
            json!([item("a", "InClusterIPPool"), item("a", "MetalPool")]),
        );
        let status = review_spec("UPDATE", &invalid, &valid).unwrap_err();
        let causes = status.details.unwrap().causes;
        let fields: Vec<_> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "spec.items[1].name",
                "spec.items[1].poolRef.kind",
                "spec.items[1].to[0]",
                "spec.clusterSelector"
            ]
        );
        // The finalizer of an object from before a rule is removed.
        assert_eq!(review_spec("UPDATE", &invalid, &invalid), Ok(Vec::new()));
    }
}
