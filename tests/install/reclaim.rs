//! Abandoned addresses beside the manager of Cluster API, which copies the addresses of
//! infrastructure machines to Machines and waits for their deletion.

use capi_ipam_provider::api::conditions;
use support::{
    clusterctl::{Releases, install_infrastructure_stub, start_core},
    prelude::*,
};

use crate::{installed, moving::provisioned};

const IN_USE: &str = "example.com/in-use";
const GROUP: &str = "infrastructure.cluster.x-k8s.io";

async fn wait_for_use(consumer: &Consumer, name: &str, status: &str, reason: &str) {
    until(&format!("{name} reports {status} {reason}"), async || {
        let found = consumer.claims().get(name).await.ok()??.status?;
        let in_use = conditions::find(&found.conditions, conditions::IN_USE)?;
        Some(in_use.status == status && in_use.reason.as_deref() == Some(reason))
    })
    .await;
}

/// Creates the infrastructure machine, as a provider whose machine cannot be deleted, and returns
/// its owner reference.
fn create_infrastructure_machine(plane: &ControlPlane, namespace: &str) -> Value {
    let machine = json!({
        "apiVersion": format!("{GROUP}/v1beta2"), "kind": "Any",
        "metadata": {"name": "m", "namespace": namespace, "finalizers": ["example.com/stuck"]},
        "spec": {"providerID": "example://m"}, "status": {"initialization": {"provisioned": true}},
    });
    plane.kubectl_apply(&machine.to_string());
    let flags = [
        "get",
        &format!("anies.{GROUP}"),
        "m",
        "--namespace",
        namespace,
        "--output=jsonpath={.metadata.uid}",
    ];
    json!({"apiVersion": format!("{GROUP}/v1beta2"), "kind": "Any", "name": "m", "uid": plane.kubectl(&flags).trim()})
}

fn set_addresses(plane: &ControlPlane, namespace: &str, address: &str) {
    let status =
        json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}}).to_string();
    let resource = format!("anies.{GROUP}");
    plane.kubectl(&[
        "patch",
        &resource,
        "m",
        "--namespace",
        namespace,
        "--type=merge",
        "--patch",
        &status,
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_a_machine_stuck_in_deletion_is_released() {
    let releases = Releases::write();
    let plane = ControlPlane::start(Options {
        bare: true,
        controller_manager: true,
        ..Options::default()
    });
    releases.init(&plane);
    install_infrastructure_stub(&plane);
    let _core = start_core(&plane);
    let _provider = installed::start(&plane, &["--verify-interval=1s"]);
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    provisioned(&plane, &consumer, "alpha").await;
    consumer
        .create_pool(
            "web",
            ("10.0.0.1", json!({"reclaim": {"verify": "Report"}})),
        )
        .await;
    let owner = create_infrastructure_machine(&plane, namespace);
    let metadata =
        json!({"ownerReferences": [owner], "finalizers": [IN_USE], "clusterName": "alpha"});
    consumer
        .create_claim_with_metadata("m-0", "web", metadata)
        .await;
    let address = consumer.wait_for_address("m-0").await;
    wait_for_use(&consumer, "m-0", "Unknown", "MachineNotFound").await;

    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": "web-1", "namespace": namespace},
        "spec": {"clusterName": "alpha", "bootstrap": {"dataSecretName": "web-1"},
                 "infrastructureRef": {"apiGroup": GROUP, "kind": "Any", "name": "m"}},
    });
    consumer
        .machines()
        .create(&object(machine))
        .await
        .expect("the Machine can be created");
    wait_for_use(&consumer, "m-0", "Unknown", "MachineWithoutAddresses").await;
    set_addresses(&plane, namespace, "10.9.9.9");
    wait_for_use(&consumer, "m-0", "False", "MachineLacksAddress").await;
    set_addresses(&plane, namespace, &address);
    wait_for_use(&consumer, "m-0", "True", "MachineHasAddress").await;

    consumer.delete_object(&consumer.machines(), "web-1").await;
    consumer.delete("m-0").await;
    consumer.claim_waits("next", "web", "PoolExhausted").await;
    consumer.wait_until_unready("m-0", "Deleting").await;
    let claim = consumer.the_claim("m-0").await;
    let uid = claim.uid().expect("objects have a uid");
    let annotation = format!("ipam.cluster.x-k8s.io/release-now={uid}");
    let resource = "ipaddressclaims.ipam.cluster.x-k8s.io";
    plane.kubectl(&[
        "annotate",
        resource,
        "m-0",
        "--namespace",
        namespace,
        &annotation,
    ]);
    consumer.assert_address("next", address).await;
    let left = eventually("our finalizer is removed", || async {
        let claim = consumer.claims().get("m-0").await.ok()??;
        (claim.finalizers() == [IN_USE]).then(|| claim.finalizers().to_vec())
    })
    .await;
    assert_eq!(left, [IN_USE]);
    let machine = consumer
        .machines()
        .get("web-1")
        .await
        .expect("Machines can be read");
    assert!(
        machine.is_some_and(|machine| machine.metadata.deletion_timestamp.is_some()),
        "it waits for its deletion"
    );
}
