//! Registries of blocks that management clusters share: `registry`, `who` and `doctor`, against a
//! real hub and a real nats-server. The other management clusters are records only.

use std::path::Path;
use std::sync::Arc;

use capi_ipam_api::installed;
use capi_ipam_controller::clock;
use capi_ipam_registry::{
    BlockRecord, BucketOptions, ClusterRecord, Created, Entry, KubernetesRegistry, NatsRegistry,
    NatsSettings, NetworkRecord, Record, Registry,
};
use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options, embedded_kubeconfig};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::nats;
use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use super::{create, definitions, json_of, manager, reference, run};

/// The name of the bucket.
const BUCKET: &str = "ipam";

/// A management cluster was last seen at this time, long ago.
const LONG_AGO: &str = "2026-01-01T12:00:00Z";

/// An API server with the registry of the manifest.
pub(super) fn hub() -> ControlPlane {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/registry.yaml");
    let manifest = std::fs::read_to_string(path).expect("it is committed");
    ControlPlane::start(Options::default(), &Installation::of(manifest))
}

/// The registry at a hub, as an administrator of the hub reads and writes it.
pub(super) async fn registry_of(hub: &ControlPlane) -> Registry {
    let kubeconfig = embedded_kubeconfig(hub.kubeconfig());
    let opened = KubernetesRegistry::open(&kubeconfig, "test/1").await;
    Arc::new(opened.expect("the hub answers"))
}

/// The registry in a bucket, which is created.
async fn registry_in(node: &nats::Node) -> Registry {
    let settings = NatsSettings::new(vec![node.url()]);
    let options = BucketOptions {
        single: true,
        ..BucketOptions::creating()
    };
    let opened = NatsRegistry::open(&settings, BUCKET, &options).await;
    Arc::new(opened.expect("the bucket can be created"))
}

/// Creates an object from JSON.
pub(super) fn apply(plane: &ControlPlane, kind: &str, name: &str, spec: &Value) {
    let object = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind,
        "metadata": {"name": name}, "spec": spec,
    });
    plane.kubectl_apply(&object.to_string());
}

/// Creates a record.
async fn record(registry: &Registry, key: &str, record: &Record) {
    let created = registry.create(key, record).await;
    assert!(
        matches!(created, Ok(Created::Ours(_))),
        "{key}: {created:?}"
    );
}

/// The record of a cluster that was seen now, or long ago.
pub(super) async fn cluster(registry: &Registry, id: &str, is_alive: bool) {
    let long_ago = serde_json::from_value(json!(LONG_AGO)).expect("a time");
    let seen = if is_alive { clock::now() } else { long_ago };
    let new = Record::Cluster(ClusterRecord {
        cluster: id.to_owned(),
        process: "1".to_owned(),
        seen: Some(seen),
        blocks: 1,
        ..ClusterRecord::default()
    });
    record(registry, &format!("cluster.{id}"), &new).await;
}

/// The record of a block of 64 addresses.
pub(super) async fn block(
    registry: &Registry,
    network: &str,
    address: &str,
    id: &str,
    contenders: &[&str],
) {
    let contenders = contenders.iter().map(|id| (*id).to_owned()).collect();
    let new = Record::Block(BlockRecord {
        network: network.to_owned(),
        block: format!("{address}/26"),
        cluster: id.to_owned(),
        contenders,
        ..BlockRecord::default()
    });
    record(registry, &format!("block.{network}.{address}-26"), &new).await;
}

async fn read(registry: &Registry, key: &str) -> Option<Entry> {
    registry.read(key).await.expect("the registry answers")
}

/// The id of the cluster that has a block.
async fn holder(registry: &Registry, key: &str) -> Option<String> {
    match read(registry, key).await?.record() {
        Some(Record::Block(record)) => Some(record.cluster.clone()),
        other => panic!("{other:?}"),
    }
}

/// The checks of `doctor` with a finding.
fn findings(kubeconfig: &Path) -> Vec<(String, String)> {
    let (code, output, errors) = run(kubeconfig, &["doctor", "-o", "json"]);
    assert!([0, 1].contains(&code), "{code} {errors}");
    let report: Value = serde_json::from_str(&output).expect("the output is JSON");
    let list = report["items"].as_array().expect("a list");
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap_or("").to_owned();
    list.iter()
        .map(|it| (text(it, "check"), text(it, "problem")))
        .collect()
}

/// Runs a command that succeeds without a warning, with this text.
fn succeeds(admin: &Path, arguments: &[&str], text: &str) {
    let (code, output, errors) = run(admin, arguments);
    assert_eq!((code, errors.as_str()), (0, ""), "{arguments:?}: {output}");
    assert!(output.contains(text), "{arguments:?}: {output}");
}

/// Runs a command that fails with this code and text.
fn fails(admin: &Path, arguments: &[&str], code: i32, text: &str) {
    let (found, _, errors) = run(admin, arguments);
    let is_expected = found == code && errors.contains(text);
    assert!(is_expected, "{arguments:?}: {found} {errors}");
}

#[tokio::test]
async fn registry_at_a_hub_is_shown_checked_and_released() {
    let program = manager();
    let hub = hub();
    let registry = registry_of(&hub).await;
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let namespace = installed::NAMESPACE;
    plane.kubectl(&["create", "namespace", namespace]);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub", "namespace": namespace},
        "stringData": {"kubeconfig": embedded_kubeconfig(hub.kubeconfig())},
    });
    plane.kubectl_apply(&secret.to_string());
    let own_namespace = format!("--leader-election-namespace={namespace}");
    let flags = [
        "--webhook-port=0",
        own_namespace.as_str(),
        "--sweep-interval=1s",
        "--sweep-grace=2s",
    ];
    let running = Manager::start_program(&plane, &program, admin, &flags);
    running.wait_until_ready();
    apply(
        &plane,
        "IPRegistry",
        "site",
        &json!({"clusterID": "west", "kubernetes": {"secretName": "hub"}}),
    );
    block(&registry, "region", "10.40.0.64", "east", &[]).await;
    cluster(&registry, "east", false).await;
    cluster(&registry, "north", true).await;
    let shared = json!({"registry": "site", "size": 64, "spare": 0});
    let open = json!({"from": "All"});
    apply(
        &plane,
        "IPNetwork",
        "region",
        &json!({"namespaces": open, "blocks": shared}),
    );
    apply(&plane, "IPNetwork", "lan", &json!({"namespaces": open}));
    let consumer = Consumer::new(&plane).await;
    let team = consumer.namespace.as_str();
    for (name, addresses, network) in [
        ("machines", "10.40.0.0/24", "region"),
        ("printers", "10.50.0.0/26", "lan"),
    ] {
        let spec = json!({"addresses": [addresses], "prefix": 24, "network": network});
        create(&plane, "InClusterIPPool", Some(team), name, &spec);
        let pool = reference("InClusterIPPool", name);
        consumer.create_claim_for(name, pool, json!({})).await;
        consumer.wait_for_address(name).await;
    }

    let shown = json_of(admin, &["registry"]);
    let site = &shown["items"][0];
    assert_eq!(
        (&site["clusterID"], &site["unread"]),
        (&json!("west"), &Value::Null)
    );
    let described: Vec<_> = site["clusters"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| json!([it["cluster"], it["blocks"], it["state"], it["this"]]))
        .collect();
    assert_eq!(
        described,
        [
            json!(["east", 1, "Stale", false]),
            json!(["north", 0, "Alive", false]),
            json!(["west", 1, "Alive", true])
        ],
        "{shown}"
    );
    let region = &site["networks"][0];
    assert_eq!(
        json!([
            region["network"],
            region["held"],
            region["others"],
            region["conflicts"]
        ]),
        json!(["region", 1, 1, 0]),
        "{shown}"
    );

    // A network with addresses in use in a block of another management cluster.
    let held = "10.40.0.0/26  1     Held";
    succeeds(admin, &["registry", "check", "region"], held);
    fails(admin, &["registry", "check", "lan"], 2, "--size");
    let check = ["registry", "check", "lan", "--size", "64"];
    succeeds(admin, &check, "Free");
    block(&registry, "lan", "10.50.0.0", "east", &["north"]).await;
    let (code, text, _) = run(admin, &check);
    assert!(code == 1 && text.contains("Conflict  east"), "{text}");
    fails(admin, &["registry", "check", "none"], 6, "");

    for expected in [
        "Block 10.40.0.64/26 of network region: management cluster east",
        "Nothing in this management cluster holds 10.40.0.70. Management cluster east",
    ] {
        succeeds(admin, &["who", "10.40.0.70"], expected);
    }
    let expected = "Block 10.40.0.0/26 of network region: this management cluster (west)";
    succeeds(admin, &["who", "10.40.0.9"], expected);

    let found = findings(admin);
    let stale = |(check, problem): &(String, String)| {
        check == "StaleCluster" && problem.contains("management cluster east")
    };
    assert!(found.iter().any(stale), "{found:?}");
    let others = ["RecordWithoutSlice", "RegistryNotReady", "BlockConflict"];
    assert!(
        !found.iter().any(|(it, _)| others.contains(&it.as_str())),
        "{found:?}"
    );

    release_of_a_hub(admin, &registry).await;
    network_of_a_hub(admin, &registry).await;
    return_to_a_hub(admin, &registry, &consumer).await;
    drop(running);
    plane.kubectl(&["delete", "secret", "hub", "--namespace", namespace]);
    let (code, text, errors) = run(admin, &["registry"]);
    let problem =
        "spec.kubernetes.secretName: Secret capi-ipam-in-cluster-system/hub does not exist";
    assert!(
        code == 0 && text.contains("west") && errors.contains(problem),
        "{errors}"
    );
    let file = plane.folder().join("hub.kubeconfig");
    std::fs::write(&file, embedded_kubeconfig(hub.kubeconfig())).expect("the folder exists");
    let path = file.to_str().expect("a path in UTF-8");
    let list = ["registry", "list", "--hub-kubeconfig", path];
    succeeds(admin, &list, "north");
}

/// The command `registry release`.
async fn release_of_a_hub(admin: &Path, registry: &Registry) {
    let release =
        |id: &'static str, flag: &'static str| ["registry", "release", "--cluster-id", id, flag];
    for (command, code, text) in [
        (release("west", "--yes"), 7, "this management cluster"),
        (release("north", "--yes"), 7, "is alive"),
        (release("south", "--yes"), 6, ""),
        (
            release("east", "--dry-run=none"),
            2,
            "confirm it with --yes",
        ),
    ] {
        fails(admin, &command, code, text);
    }
    let freed = "10.40.0.64/26 of network region freed (dry run)";
    succeeds(admin, &release("east", "--dry-run=client"), freed);
    assert!(read(registry, "cluster.east").await.is_some());
    let handed_over = "block 10.50.0.0/26 of network lan handed over to north";
    succeeds(admin, &release("east", "--yes"), handed_over);
    assert!(read(registry, "cluster.east").await.is_none());
    assert_eq!(holder(registry, "block.region.10.40.0.64-26").await, None);
    let others = [
        ("block.lan.10.50.0.0-26", "north"),
        ("block.region.10.40.0.0-26", "west"),
    ];
    for (key, expected) in others {
        assert_eq!(
            holder(registry, key).await.as_deref(),
            Some(expected),
            "{key}"
        );
    }
    assert!(read(registry, "cluster.north").await.is_some());
}

/// The command `registry create-network`.
async fn network_of_a_hub(admin: &Path, registry: &Registry) {
    let create = |network: &'static str, size: &'static str, flag: &'static str| {
        ["registry", "create-network", network, "--size", size, flag]
    };
    let dry_run = create("fabric", "64", "--dry-run=client");
    succeeds(admin, &dry_run, "record network.fabric created (dry run)\n");
    assert!(read(registry, "network.fabric").await.is_none());
    let wanted = create("fabric", "64", "--quarantine-seconds=60");
    for expected in ["created", "unchanged"] {
        let text = format!("record network.fabric {expected}\n");
        succeeds(admin, &wanted, &text);
    }
    let found = read(registry, "network.fabric").await;
    let expected = Record::Network(NetworkRecord {
        network: "fabric".to_owned(),
        size: 64,
        size_of: "west".to_owned(),
        quarantine_seconds: Some(60),
    });
    assert_eq!(found.expect("it was created").record(), Some(&expected));
    let default = "--quarantine-seconds=604800";
    // The manager has written it.
    succeeds(admin, &create("region", "64", default), "unchanged");
    for (command, code, text) in [
        (
            create("fabric", "32", default),
            7,
            "another record of network fabric",
        ),
        (create("lan", "64", default), 7, "blocks of network lan"),
        (create("none", "3", default), 2, "power of two"),
    ] {
        fails(admin, &command, code, text);
    }
}

/// The command `registry return`.
async fn return_to_a_hub(admin: &Path, registry: &Registry, consumer: &Consumer) {
    let key = "block.region.10.40.0.0-26";
    let is_returned = async || match read(registry, key).await?.record() {
        Some(Record::Block(record)) => Some(record.returned_at.is_some()),
        other => panic!("{other:?}"),
    };
    let own = ["registry", "return", "10.40.0.0/26"];
    fails(admin, &["registry", "return", "10.40.0.64/26"], 6, "");
    fails(admin, &own, 7, "has 1 such");
    consumer.release("machines").await;
    let dry_run = eventually("the block is not in use", async || {
        let dry_run = [&own[..], &["--dry-run=server"]].concat();
        let (code, text, _) = run(admin, &dry_run);
        (code == 0).then_some(text)
    })
    .await;
    let expected = "block 10.40.0.0/26 of network region marked";
    assert!(
        dry_run.starts_with(expected) && dry_run.ends_with("(dry run)\n"),
        "{dry_run}"
    );
    assert_eq!(is_returned().await, Some(false), "it is kept for a week");
    let of_network = [&own[..], &["--network", "region"]].concat();
    succeeds(admin, &of_network, expected);
    eventually("the block is returned", async || {
        (is_returned().await == Some(true)).then_some(())
    })
    .await;
    fails(admin, &own, 6, "");
}

#[tokio::test]
async fn registry_in_nats_that_is_away_is_shown_by_its_status() {
    let mut node = nats::Node::start(nats::Options::default());
    let registry = registry_in(&node).await;
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    // No manager runs: the servers are given on the command line.
    let nats = json!({"servers": ["nats://127.0.0.1:1"], "bucket": BUCKET, "single": true});
    apply(
        &plane,
        "IPRegistry",
        "site",
        &json!({"clusterID": "west", "nats": nats}),
    );
    let shared = json!({"registry": "site", "size": 64});
    apply(
        &plane,
        "IPNetwork",
        "region",
        &json!({"namespaces": {"from": "All"}, "blocks": shared}),
    );
    cluster(&registry, "east", false).await;
    block(&registry, "region", "10.40.0.0", "west", &["east"]).await;
    block(&registry, "region", "10.40.0.64", "east", &[]).await;
    let network = Record::Network(NetworkRecord {
        network: "region".to_owned(),
        size: 64,
        size_of: "east".to_owned(),
        quarantine_seconds: None,
    });
    record(&registry, "network.region", &network).await;
    let url = node.url();
    let server = ["--nats-server", url.as_str()];

    let list = [&["registry", "list", "site"][..], &server].concat();
    succeeds(admin, &list, "region   64    1     ?      1       1");

    let (code, text, errors) = run(admin, &["registry"]);
    assert!(code == 0 && text.contains("west"), "{text}");
    let warning = "warning: the records of IPRegistry site cannot be read (";
    assert!(errors.starts_with(warning), "{errors}");
    let (_, text, _) = run(admin, &["doctor"]);
    assert!(text.contains("RecordWithoutSlice"), "{text}");
    assert!(text.contains("cannot be read from here"), "{text}");

    let command = ["registry", "release", "--cluster-id", "east", "--yes"];
    let away = "cannot read IPRegistry site";
    fails(admin, &command, 7, away);
    let (code, text, errors) = run(admin, &[&command[..], &server].concat());
    assert_eq!((code, errors.as_str()), (0, ""), "{text}");
    assert!(
        text.contains("10.40.0.64/26 of network region freed"),
        "{text}"
    );
    assert!(
        text.contains("10.40.0.0/26 of network region: west is its only user now"),
        "{text}"
    );
    assert_eq!(holder(&registry, "block.region.10.40.0.64-26").await, None);
    assert!(read(&registry, "network.region").await.is_some(), "kept");
    node.kill();
    fails(admin, &[&command[..], &server].concat(), 7, away);
}
