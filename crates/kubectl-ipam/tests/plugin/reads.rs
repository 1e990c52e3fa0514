//! Commands that read.

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use super::web::Page;
use super::{create, definitions, json_of, manager, reference, run};

#[tokio::test]
async fn missing_rights_of_commands_are_named() {
    let manager = manager();
    let control_plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = control_plane.kubeconfig();
    let manager = Manager::start_program(&control_plane, &manager, admin, &["--webhook-port=0"]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&control_plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24, "gateway": "10.0.0.1",
                       "addressReuseGracePeriodSeconds": 600 });
    create(
        &control_plane,
        "InClusterIPPool",
        Some(namespace),
        "web",
        &spec,
    );
    let prefixes =
        json!({ "prefixes": ["fd00::/62"], "allocationPrefixLength": 64, "network": "backbone" });
    create(&control_plane, "IPNetwork", None, "backbone", &json!({}));
    create(
        &control_plane,
        "GlobalInClusterPrefixPool",
        None,
        "pods",
        &prefixes,
    );
    let web = || reference("InClusterIPPool", "web");
    let labels = json!({ "labels": { "cluster.x-k8s.io/cluster-name": "prod" } });
    consumer.create_cluster("prod", false).await;
    consumer.create_claim_for("one", web(), labels).await;
    assert_eq!(consumer.wait_for_address("one").await, "10.0.0.10");
    consumer.create_claim_for("two", web(), json!({})).await;
    assert_eq!(consumer.wait_for_address("two").await, "10.0.0.11");
    consumer
        .create_claim_for(
            "net",
            reference("GlobalInClusterPrefixPool", "pods"),
            json!({}),
        )
        .await;
    assert_eq!(consumer.wait_for_address("net").await, "fd00::");
    control_plane.kubectl(&["delete", "ipaddressclaim", "two", "--namespace", namespace]);
    consumer.wait_until_deleted("two").await;
    consumer.create_claim_for("three", web(), json!({})).await;
    consumer.wait_for_address("three").await;
    consumer.create_claim_for("four", web(), json!({})).await;
    consumer.wait_for_reason("four", "PoolExhausted").await;
    // The status of a network is written every 2 seconds. The first one is without the pool.
    eventually("the statuses are written", async || {
        let pools = json_of(admin, &["pools", "-A"])["items"].take();
        let is_ready = |pool: &Value| pool["ready"] == "True";
        let network = json_of(admin, &["networks"])["items"][0].take();
        let are_ready = pools.as_array()?.iter().all(is_ready);
        (are_ready && network["pools"] == 1).then_some(())
    })
    .await;
    let (code, output, errors) = run(admin, &["who"]);
    assert_eq!((code, output.as_str()), (2, ""), "{errors}");

    missing_rights_are_named(&control_plane, namespace).await;
}

async fn missing_rights_are_named(control_plane: &ControlPlane, namespace: &str) {
    control_plane.kubectl(&[
        "create",
        "serviceaccount",
        "nobody",
        "--namespace",
        namespace,
    ]);
    let nobody = control_plane.kubeconfig_of_account(namespace, "nobody");
    let (code, _, errors) = run(&nobody, &["pools"]);
    assert_eq!(code, 4, "{errors}");
    let right = format!("in the namespace {namespace}: ask for a Role that allows it");
    assert!(errors.contains(&right), "{errors}");
    // A tenant sees the pools and claims of the namespace.
    // With the group: networking.k8s.io has IPAddresses too.
    let resources = ["inclusterippools", "ipaddressclaims", "ipaddresses"]
        .map(|it| format!("{it}.ipam.cluster.x-k8s.io"));
    let resources = format!("--resource={}", resources.join(","));
    let role = [
        "create",
        "role",
        "reader",
        "--verb=list",
        &resources,
        "--namespace",
        namespace,
    ];
    control_plane.kubectl(&role);
    let binding = format!("--serviceaccount={namespace}:nobody");
    control_plane.kubectl(&[
        "create",
        "rolebinding",
        "reader",
        "--role=reader",
        &binding,
        "--namespace",
        namespace,
    ]);
    // The API server uses a new role with a delay.
    eventually("the claims are listed", async || {
        let (code, _, errors) = run(&nobody, &["claims"]);
        (code == 0 && errors.is_empty()).then_some(())
    })
    .await;
    let (code, output, errors) = run(&nobody, &["pools"]);
    assert_eq!(code, 4, "{errors}");
    assert!(
        output.contains("web") && errors.contains("globalinclusterippools"),
        "{output}{errors}"
    );
    let (code, _, errors) = run(&nobody, &["reserve", "web", "--dry-run=client"]);
    assert_eq!(code, 4, "{errors}");
    assert!(errors.contains("ipreservations"), "{errors}");
}

#[tokio::test]
async fn cluster_without_definitions_and_go_provider_are_supported() {
    let bare = ControlPlane::start(
        Options {
            bare: true,
            ..Options::default()
        },
        &Installation::default(),
    );
    let (code, output, errors) = run(bare.kubeconfig(), &["pools"]);
    assert_eq!((code, output.as_str()), (5, ""), "{errors}");
    assert!(
        errors.contains("inclusterippools.ipam.cluster.x-k8s.io is not installed"),
        "{errors}"
    );
    drop(bare);

    // The Go provider has only pools of addresses, and writes no conditions.
    let own = [
        "inclusterprefixpools",
        "globalinclusterprefixpools",
        "ippoolsets",
        "globalippoolsets",
        "ipnetworks",
        "ipregistries",
        "ipreservations",
        "ipslices",
    ];
    let is_go = |document: &&str| {
        let definition: Value = serde_json::from_str(document).expect("a definition is JSON");
        !own.contains(
            &definition["spec"]["names"]["plural"]
                .as_str()
                .expect("a plural"),
        )
    };
    let all = definitions();
    let documents: Vec<&str> = all.split("\n---\n").filter(is_go).collect();
    let control_plane = ControlPlane::start(
        Options::default(),
        &Installation::of(documents.join("\n---\n")),
    );
    let consumer = Consumer::new(&control_plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10"], "prefix": 24 });
    create(
        &control_plane,
        "InClusterIPPool",
        Some(namespace),
        "web",
        &spec,
    );
    consumer
        .create_address_for("vm", reference("InClusterIPPool", "web"), "10.0.0.10")
        .await;
    let admin = control_plane.kubeconfig();
    let pools = json_of(admin, &["pools", "-n", namespace]);
    assert_eq!(
        (&pools["items"][0]["ready"], &pools["items"][0]["counts"]),
        (&json!("Unknown"), &Value::Null)
    );
    let shown = json_of(admin, &["show", "web", "-n", namespace]);
    assert_eq!(
        (&shown["counts"]["used"], &shown["counts"]["free"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(
        json_of(admin, &["who", "10.0.0.10"])["items"][0]["claim"],
        json!(format!("{namespace}/vm"))
    );
    // The page does not wait for kinds that are not served.
    let page = Page::start_with(admin, &[]).await;
    eventually("the page finds the IPAddress without a claim", async || {
        let findings = page.json("/api/findings").to_string();
        findings.contains("OrphanAddress").then_some(())
    })
    .await;
}

#[test]
fn unreachable_cluster_has_its_own_exit_code() {
    let folder = std::env::temp_dir().join(format!("kubectl-ipam-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder can be created");
    let path = folder.join("kubeconfig");
    let (code, _, errors) = run(&path, &["pools"]);
    assert_eq!(code, 3, "{errors}");
    let expected = format!(
        "error: the kubeconfig {} cannot be read: No such file or directory\n",
        path.display()
    );
    assert_eq!(errors, expected);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": { "server": "https://127.0.0.1:1" } }],
        "users": [{ "name": "a", "user": {} }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
    });
    std::fs::write(&path, config.to_string()).expect("the kubeconfig can be written");
    let (code, _, errors) = run(&path, &["pools"]);
    assert_eq!(code, 3, "{errors}");
    assert_eq!(
        errors,
        "error: cannot reach the API server https://127.0.0.1:1: the connection was refused; check the cluster and the \
         context (--context)\n"
    );
    let (code, _, errors) = run(&path, &["pools", "--context", "none"]);
    let expected =
        "error: context \"none\" does not exist in the kubeconfig; see kubectl config view\n";
    assert_eq!((code, errors.as_str()), (3, expected));
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}
