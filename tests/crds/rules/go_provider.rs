//! Pools that the Go provider has stored.

use crate::{ControlPlane, data, with_file};
use support::prelude::*;

pub(super) fn pools_of_the_go_provider_are_accepted(plane: &ControlPlane) {
    let mut seen = 0;
    let stored = data("takeover/objects.json");
    let is_pool = |object: &&Value| {
        object["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("Pool"))
    };
    for stored in stored["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter(is_pool)
    {
        let metadata = &stored["metadata"];
        if let Some(namespace) = metadata["namespace"].as_str() {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            plane.kubectl_apply(&namespace.to_string());
        }
        let mut pool = stored.clone();
        pool["metadata"] = json!({
            "name": metadata["name"], "namespace": metadata["namespace"],
            "annotations": metadata["annotations"], "finalizers": metadata["finalizers"],
        });
        with_file(plane, &["create"], &pool).unwrap_or_else(|error| panic!("{error}\n{pool}"));
        let answer = with_file(plane, &["replace", "--subresource=status"], &pool);
        answer.unwrap_or_else(|error| panic!("{error}\n{pool}"));
        seen += 1;
    }
    assert_eq!(seen, 8);
    let pools =
        "inclusterippools,globalinclusterippools,inclusterprefixpools,globalinclusterprefixpools";
    let pools = plane.kubectl(&["get", pools, "--all-namespaces", "--output=json"]);
    let pools: Value = serde_json::from_str(&pools).expect("a list");
    let has_counts = |pool: &&Value| pool["status"]["ipAddresses"]["total"].is_u64();
    assert_eq!(
        pools["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter(has_counts)
            .count(),
        seen
    );
}
