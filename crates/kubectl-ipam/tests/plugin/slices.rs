//! Pools with slices: `show`, `free`, `reserve`, `doctor`, and `export`.

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use super::{create, definitions, json_of, manager, reference, run};

/// Creates a slice by hand.
fn pin(plane: &ControlPlane, scope: &str, block: &str, owner: &str) {
    let slice = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPSlice",
        "metadata": { "name": format!("{scope}.{}", block.replace('/', "-")) },
        "spec": { "scope": scope, "block": block, "owner": { "kind": "Label", "name": owner } },
    });
    plane.kubectl_apply(&slice.to_string());
}

#[tokio::test]
async fn slices_are_shown_and_diagnosed() {
    let program = manager();
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let manager = Manager::start_program(&plane, &program, admin, &["--webhook-port=0"]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let slices = json!({ "size": 16, "per": "Label", "label": "rack" });
    let spec = json!({ "addresses": ["10.0.0.0/26"], "prefix": 24, "slices": slices });
    create(&plane, "InClusterIPPool", Some(namespace), "web", &spec);
    let scope = format!("p.{namespace}.web");
    pin(&plane, &scope, "10.0.0.32/28", "r2");
    eventually("the manager has observed the slice", async || {
        let assigned = "--output=jsonpath={.status.slices.assigned}";
        (plane.kubectl(&[
            "get",
            "inclusterippool",
            "web",
            "--namespace",
            namespace,
            assigned,
        ]) == "1")
            .then_some(())
    })
    .await;
    for (name, rack) in [("one", "r1"), ("two", "r2")] {
        consumer
            .create_claim_for(
                name,
                reference("InClusterIPPool", "web"),
                json!({ "labels": { "rack": rack } }),
            )
            .await;
        consumer.wait_for_address(name).await;
    }

    let shown = json_of(admin, &["show", "web", "-n", namespace]);
    let lines = shown["slices"].as_array().expect("the pool has slices");
    let described: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line["block"].as_str(),
                line["owner"]["name"].as_str(),
                &line["used"],
                &line["pinned"],
            )
        })
        .collect();
    let (first, second) = (
        (Some("10.0.0.0/28"), Some("r1")),
        (Some("10.0.0.32/28"), Some("r2")),
    );
    let (unpinned, pinned) = (json!(false), json!(true));
    let used = json!(1);
    assert_eq!(
        described,
        [
            (first.0, first.1, &used, &unpinned),
            (second.0, second.1, &used, &pinned)
        ],
        "{shown}"
    );
    let (code, text, _) = run(admin, &["show", "web", "-n", namespace]);
    assert!(
        code == 0 && text.contains("10.0.0.32/28") && text.contains("Pinned"),
        "{text}"
    );

    let (code, _, errors) = run(admin, &["reserve", "web", "-n", namespace]);
    assert!(code == 2 && errors.contains("slices"), "{errors}");

    pin(&plane, &scope, "10.0.0.32/29", "r3");
    pin(&plane, &scope, "10.9.0.0/28", "r4");
    pin(&plane, "g.none", "10.0.0.0/28", "r5");
    let report: Value = {
        let (code, output, errors) = run(admin, &["doctor", "-o", "json"]);
        assert_eq!(errors, "", "{output}");
        assert!([0, 1].contains(&code), "{output}");
        serde_json::from_str(&output).expect("the output is JSON")
    };
    let findings = report["items"].as_array().expect("a list");
    let of_slices: Vec<&str> = findings
        .iter()
        .filter(|finding| finding["check"] == "SliceWithoutEffect")
        .filter_map(|finding| finding["object"].as_str())
        .collect();
    for name in [
        format!("{scope}.10.0.0.32-29"),
        format!("{scope}.10.9.0.0-28"),
        "g.none.10.0.0.0-28".to_owned(),
    ] {
        assert!(
            of_slices.iter().any(|object| object.ends_with(&name)),
            "{name} in {of_slices:?}"
        );
    }
    assert_eq!(of_slices.len(), 3, "{of_slices:?}");

    let (code, exported, errors) = run(admin, &["export", "-A", "-o", "yaml"]);
    assert!(
        code == 0 && exported.contains("label: rack"),
        "{errors} {exported}"
    );
}
