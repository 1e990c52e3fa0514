//! The guide docs/from-metal3.md, with the definitions of Metal3.

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use serde_json::{Value, json};

use super::{commands, create, definitions, manager, reference, run, shell};

const GUIDE: &str = include_str!("../../../../docs/from-metal3.md");
const METAL3: &str = include_str!("data/metal3-definitions.yaml");

/// Runs a block of the guide, and returns its output.
fn succeed(plane: &ControlPlane, script: &str) -> String {
    let (code, output) = shell(plane, script);
    assert_eq!(code, Some(0), "{script}\n{output}");
    output
}

fn metal3(kind: &str, name: &str, spec: &Value) -> String {
    json!({ "apiVersion": "ipam.metal3.io/v1alpha1", "kind": kind, "metadata": { "name": name, "namespace": "metal3" },
            "spec": spec })
    .to_string()
}

fn address(claim: &str, address: &str) -> String {
    let spec = json!({ "address": address, "prefix": 24, "claim": { "name": claim }, "pool": { "name": "provisioning" } });
    metal3(
        "IPAddress",
        &format!("prov-{}", address.replace('.', "-")),
        &spec,
    )
}

#[tokio::test]
async fn guide_from_metal3_keeps_addresses() {
    let program = manager();
    let objects = [&definitions(), METAL3].join("\n---\n");
    let plane = ControlPlane::start(Options::default(), &Installation::of(objects));
    let admin = plane.kubeconfig();
    let manager = Manager::start_program(&plane, &program, admin, &["--webhook-port=0"]);
    manager.wait_until_ready();
    plane.kubectl(&["create", "namespace", "metal3"]);
    let spec = json!({
        "namePrefix": "prov", "prefix": 24, "gateway": "10.0.0.1", "preAllocations": { "node-2-provisioning": "10.0.0.12" },
        "pools": [{ "start": "10.0.0.10", "end": "10.0.0.19" }, { "subnet": "10.0.1.0/29", "gateway": "10.0.1.1" }],
    });
    let pool = json!({ "pool": { "name": "provisioning" } });
    for object in [
        metal3("IPPool", "provisioning", &spec),
        metal3("IPClaim", "node-0-provisioning", &pool),
        metal3("IPClaim", "node-1-provisioning", &pool),
        address("node-0-provisioning", "10.0.0.10"),
        address("node-1-provisioning", "10.0.0.11"),
    ] {
        plane.kubectl_apply(&object);
    }

    let [convert, apply, again] =
        <[String; 3]>::try_from(commands(GUIDE, "")).expect("three blocks");
    let output = succeed(&plane, &convert);
    assert!(output.contains("clusterName are not converted"), "{output}");
    let output = succeed(&plane, &apply);
    assert_eq!(output.matches(" created\n").count(), 4, "{output}");
    // A new claim gets an address that no claim of Metal3 has, and one of such a name its address.
    let consumer = Consumer::new(&plane).await.in_namespace("metal3");
    for (claim, expected) in [
        ("new-0-provisioning", "10.0.0.13"),
        ("node-1-provisioning", "10.0.0.11"),
        ("node-2-provisioning", "10.0.0.12"),
    ] {
        let pool = reference("InClusterIPPool", "provisioning");
        consumer.create_claim_for(claim, pool, json!({})).await;
        assert_eq!(consumer.wait_for_address(claim).await, expected);
    }
    // The Machines of Metal3 are gone one after the other, with what they had.
    plane.kubectl(&["delete", "ipclaims.ipam.metal3.io", "--all", "-n", "metal3"]);
    plane.kubectl(&[
        "delete",
        "ipaddresses.ipam.metal3.io",
        "prov-10-0-0-10",
        "-n",
        "metal3",
    ]);
    let output = succeed(&plane, &again);
    assert!(
        output.contains("p.metal3.provisioning.10.0.0.10 pruned"),
        "{output}"
    );
    assert_eq!(output.matches("pruned").count(), 1, "{output}");

    // Nothing is written if a pool cannot be converted.
    let unbounded = json!({ "namePrefix": "x", "prefix": 24, "pools": [{ "start": "10.0.3.1" }] });
    plane.kubectl_apply(&metal3("IPPool", "unbounded", &unbounded));
    let (code, output, errors) = run(admin, &["convert", "--from", "metal3", "-n", "metal3"]);
    assert_eq!((code, output.as_str()), (1, ""), "{errors}");
    assert!(
        errors.ends_with("1 problem\n") && errors.contains("metal3/unbounded"),
        "{errors}"
    );
    // In another namespace there is nothing, and the API server serves the kinds.
    create(
        &plane,
        "InClusterIPPool",
        Some("default"),
        "other",
        &json!({ "addresses": ["10.9.0.1"], "prefix": 24 }),
    );
    let (code, output, errors) = run(admin, &["convert", "--from", "metal3", "-n", "default"]);
    assert_eq!((code, output.as_str(), errors.as_str()), (0, "", ""));
    let (code, _, errors) = run(admin, &["convert", "--from", "metal3", "-n", "metal"]);
    assert!(
        code == 6 && errors.contains("did you mean metal3?"),
        "{errors}"
    );
    let (code, _, errors) = run(admin, &["convert", "--from", "metal3", "table.csv"]);
    assert_eq!(code, 2, "{errors}");
}
