//! Pools that are changed or deleted while their addresses are in use.

use support::prelude::*;

use crate::with_claims;

#[tokio::test]
async fn shrunk_pool_frees_nothing_and_still_repairs() {
    let consumer = with_claims(4, &["a", "b", "c"]).await;
    consumer
        .modify_pool("web", |spec| spec["addresses"] = json!(["10.0.0.4"]))
        .await;
    consumer.wait_for_counts("web", (1, 1, 0, 3)).await;
    assert_contains(
        &consumer
            .wait_for_condition(
                &consumer.pools(),
                "web",
                "OutOfRange",
                "True",
                "AddressesOutOfRange",
            )
            .await,
        "3",
    );
    // A lost address outside of the range is recreated, too.
    consumer.delete_reservation("web", "10.0.0.1").await;
    consumer.force_delete(&consumer.addresses(), "b").await;
    consumer
        .wait_for_reservations(
            "web",
            &[("10.0.0.1", "a"), ("10.0.0.2", "b"), ("10.0.0.3", "c")],
        )
        .await;
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        eventually(&format!("{name} has its IPAddress"), || async {
            consumer.addresses().get(name).await.ok()?.map(drop)
        })
        .await;
        consumer.assert_address(name, address).await;
    }
    consumer.bind_to("d", "web", "10.0.0.4").await;
}

/// Another controller created it with the name of our pool, and owns it.
#[tokio::test]
async fn foreign_address_in_a_pool_is_in_use_and_is_reported() {
    let consumer = with_claims(4, &["a"]).await;
    consumer.create_address("foreign", "web", "10.0.0.2").await;
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "else", "uid": "00000000-0000-0000-0000-000000000001"});
    consumer
        .modify(&consumer.addresses(), "foreign", |address| {
            address["metadata"]["finalizers"] = json!(["example.com/in-use"]);
            address["metadata"]["ownerReferences"] = json!([foreign]);
        })
        .await;
    consumer.wait_for_counts("web", (4, 2, 2, 0)).await;
    consumer.bind_to("b", "web", "10.0.0.3").await;
    consistently("it is not changed", || async {
        consumer.allocated_addresses().await.contains_key("foreign")
    })
    .await;
    let claim = consumer.the_claim("a").await;
    assert_eq!(ready(&claim).status, "True");
    consumer
        .force_delete(&consumer.addresses(), "foreign")
        .await;
    until("it is deleted", async || {
        Some(!consumer.allocated_addresses().await.contains_key("foreign"))
    })
    .await;
    consumer.wait_for_counts("web", (4, 2, 2, 0)).await;
}

/// A set in deletion can be in use by a claim that no manager can decode.
#[tokio::test(flavor = "multi_thread")]
async fn undecodable_claim_that_keeps_a_set_is_named() {
    let (plane, consumer) = scene().await;
    let _manager = Manager::start(&plane, &[]);
    let definition = "ipaddressclaims.ipam.cluster.x-k8s.io";
    for version in 0..3 {
        let reference = format!(
            "/spec/versions/{version}/schema/openAPIV3Schema/properties/spec/properties/poolRef"
        );
        let any = json!([{"op": "replace", "path": reference,
                          "value": {"x-kubernetes-preserve-unknown-fields": true}}]);
        let patch = format!("--patch={any}");
        plane.kubectl(&["patch", "crd", definition, "--type=json", &patch]);
    }
    let namespace = format!("--namespace={}", consumer.namespace);
    let object = |version: &str, kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": format!("ipam.cluster.x-k8s.io/{version}"), "kind": kind, "spec": spec,
               "metadata": {"name": name, "namespace": consumer.namespace}})
        .to_string()
    };
    let pools = json!({"pools": [{"kind": "InClusterIPPool", "name": "web"}]});
    plane.kubectl_apply(&object("v1alpha2", "IPPoolSet", "racks", pools));
    let path = "--output=jsonpath={.status.conditions[0].message}{.metadata.finalizers}";
    let read = ["get", "ippoolset", "racks", &namespace, path];
    until("the set has its finalizer", async || {
        Some(plane.try_kubectl(&read).ok()?.contains("ProtectPool"))
    })
    .await;
    until("the claim is stored", async || {
        let broken = object("v1beta2", "IPAddressClaim", "broken", json!({"poolRef": 5}));
        let file = plane.folder().join("broken.json");
        std::fs::write(&file, broken).ok()?;
        let file = format!("--filename={}", file.display());
        Some(plane.try_kubectl(&["create", &file]).is_ok())
    })
    .await;
    plane.kubectl(&["delete", "ippoolset", "racks", &namespace, "--wait=false"]);
    let named = format!(
        "IPAddressClaim {}/broken cannot be decoded",
        consumer.namespace
    );
    until("the set names the claim", async || {
        Some(plane.try_kubectl(&read).ok()?.contains(&named))
    })
    .await;
    plane.kubectl(&["delete", "ipaddressclaim", "broken", &namespace]);
    until("the set is deleted", async || {
        Some(plane.try_kubectl(&read).is_err())
    })
    .await;
}

/// An edit of the definition, or a conversion, can store a pool that no manager can decode.
#[tokio::test(flavor = "multi_thread")]
async fn undecodable_pool_in_deletion_is_released() {
    let (plane, consumer) = scene().await;
    let mut manager = Manager::start(&plane, &[]);
    let network = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/network";
    let any = json!([{"op": "replace", "path": network,
                      "value": {"x-kubernetes-preserve-unknown-fields": true}}]);
    let definition = "inclusterippools.ipam.cluster.x-k8s.io";
    let patch = format!("--patch={any}");
    plane.kubectl(&["patch", "crd", definition, "--type=json", &patch]);
    let pools = consumer.pools();
    // The second one is decoded by no manager: another one starts.
    for (name, is_restarted) in [("known", false), ("unknown", true)] {
        consumer.create_pool(name, "10.0.0.1-10.0.0.9").await;
        consumer.bind("a", name).await;
        if is_restarted {
            manager.stop();
        }
        let namespace = format!("--namespace={}", consumer.namespace);
        eventually("the pool cannot be decoded", || async {
            let broken = r#"--patch={"spec":{"network":5}}"#;
            let (program, file) = (plane.kubectl_program(), plane.kubeconfig());
            let output = std::process::Command::new(program)
                .arg(format!("--kubeconfig={}", file.display()))
                .args([
                    "patch",
                    "inclusterippool",
                    name,
                    &namespace,
                    "--type=merge",
                    broken,
                ])
                .output();
            output.ok()?.status.success().then_some(())
        })
        .await;
        plane.kubectl(&[
            "delete",
            "inclusterippool",
            name,
            &namespace,
            "--wait=false",
        ]);
        if is_restarted {
            manager = Manager::start(&plane, &[]);
        }
        let exists = || async { !matches!(pools.get_metadata(name).await, Ok(None)) };
        consistently("the pool is in use", exists).await;
        consumer.release("a").await;
        until("the pool is gone", async || Some(!exists().await)).await;
    }
    assert!(manager.is_running(), "{}", manager.log());
}
