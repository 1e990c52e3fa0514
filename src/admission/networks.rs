//! Admission of networks: what their definition cannot check.

use capi_ipam_webhook::denial;
use capi_ipam_webhook::review::{AdmissionRequest, Decision, Operation};
use kube::core::response::StatusCause;
use serde::Deserialize as _;
use serde_json::json;

use crate::api::{IPNetwork, NetworkProblem, SelectorProblem, names};

/// Decides on a request for a network.
pub fn review(request: &AdmissionRequest) -> Decision {
    if !matches!(request.operation, Operation::Create | Operation::Update) || !request.sub_resource.is_empty() {
        return Ok(Vec::new());
    }
    let object = request.object.as_ref().ok_or_else(|| denial::bad_request("the request has no object"))?;
    let network = IPNetwork::deserialize(object)
        .map_err(|error| denial::bad_request(&format!("cannot decode the object as an IPNetwork: {error}")))?;
    if network.metadata.deletion_timestamp.is_some() {
        return Ok(Vec::new());
    }
    match network.spec.rules() {
        Ok(_) => Ok(Vec::new()),
        Err(problems) => {
            let name = network.metadata.name.as_deref().unwrap_or_default();
            Err(denial::invalid(names::GROUP, "IPNetwork", name, problems.iter().map(cause).collect()))
        }
    }
}

fn cause(problem: &NetworkProblem) -> StatusCause {
    match problem {
        NetworkProblem::Excluded { value, source, .. } => {
            denial::invalid_value(&problem.field(), &json!(value), source)
        }
        NetworkProblem::Selector(SelectorProblem { field, source }) => {
            denial::invalid_value(field, &json!(null), source)
        }
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_webhook::review::AdmissionRequest;
    use serde_json::Value;

    use super::*;

    fn review_spec(spec: &Value) -> Decision {
        let object = json!({"metadata": {"name": "lab"}, "spec": spec});
        let kind = json!({"group": names::GROUP, "version": names::POOL_VERSION, "kind": "IPNetwork"});
        let request = json!({"uid": "1", "kind": kind, "operation": "CREATE", "object": object});
        review(&serde_json::from_value::<AdmissionRequest>(request).unwrap())
    }

    #[test]
    fn problems_name_their_fields() {
        let valid = json!({"excluded": ["10.0.0.1", "fd00::/64"], "pools": {}});
        assert_eq!(review_spec(&valid), Ok(Vec::new()));
        let selector = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
        let invalid = json!({
            "excluded": ["10.0.0.1", "10.0.0.300"], "pools": selector,
            "namespaces": {"from": "Selector", "selector": selector},
        });
        let status = review_spec(&invalid).unwrap_err();
        let causes = status.details.unwrap().causes;
        let fields: Vec<_> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, ["spec.excluded[1]", "spec.namespaces.selector", "spec.pools"]);
    }
}
