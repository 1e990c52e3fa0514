//! Pools that an older version of the provider stored as v1alpha1.

use support::prelude::*;

const DEFINITION: &str = "inclusterippools.ipam.cluster.x-k8s.io";

/// Changes the versions of a definition, which loses its conversion webhook.
pub(crate) fn change_definition(
    plane: &ControlPlane,
    definition: &str,
    change: impl Fn(&mut Value),
) {
    let text = plane.kubectl(&["get", "crd", definition, "--output=json"]);
    let mut changed: Value = serde_json::from_str(&text).expect("kubectl writes JSON");
    // The API server writes the status at any time, which does not concern these fields.
    changed["metadata"]["resourceVersion"].take();
    changed["spec"]["conversion"] = json!({"strategy": "None"});
    change(&mut changed["spec"]["versions"]);
    plane.kubectl_replace(&changed.to_string());
    plane.wait_until_served(definition);
}

fn store_in(plane: &ControlPlane, version: &str) {
    change_definition(plane, DEFINITION, |versions| {
        for item in versions.as_array_mut().expect("there are versions") {
            item["storage"] = json!(item["name"] == version);
        }
    });
}

fn stored_versions(plane: &ControlPlane) -> String {
    plane.kubectl(&[
        "get",
        "crd",
        DEFINITION,
        "--output=jsonpath={.status.storedVersions}",
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_of_an_old_version_are_stored_again() {
    let plane = ControlPlane::new();
    store_in(&plane, "v1alpha1");
    let consumer = Consumer::new(&plane).await;
    let names: Vec<String> = numbered("pool-", 5);
    for name in &names {
        consumer.create_pool(name, "10.0.0.10-10.0.0.12").await;
    }
    store_in(&plane, "v1alpha2");
    let versions = stored_versions(&plane);
    assert!(
        versions.contains("v1alpha1") && versions.contains("v1alpha2"),
        "{versions}"
    );
    let manager = Manager::start(&plane, &["--leader-elect"]);
    until("the old version is not stored", async || {
        Some(stored_versions(&plane) == r#"["v1alpha2"]"#)
    })
    .await;
    manager.wait_for_log("the upgrade step is done");
    consumer.bind_to("a", "pool-0", "10.0.0.10").await;

    // The API server accepts a definition without the old version, and all pools can be read with
    // it.
    change_definition(&plane, DEFINITION, |versions| {
        versions
            .as_array_mut()
            .expect("there are versions")
            .retain(|version| version["name"] != "v1alpha1");
    });
    for name in &names {
        let pool = consumer.the_pool(name).await;
        let spec = serde_json::to_value(&pool.spec).expect("a spec is JSON");
        assert_eq!(
            (&spec["addresses"], pool.metadata.generation),
            (&json!(["10.0.0.10-10.0.0.12"]), Some(1))
        );
    }
}
