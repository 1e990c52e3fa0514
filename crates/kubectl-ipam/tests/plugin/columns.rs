//! The columns of `kubectl get`, and the short names.

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use serde_json::{Value, json};

use super::{create, definitions};

/// The cells of a table of kubectl, by column. Columns begin where their title does.
fn cells(table: &str, row: &str) -> Vec<(String, String)> {
    let mut lines = table.lines();
    let header = lines.next().expect("a header");
    let line = lines
        .find(|line| line.contains(row))
        .unwrap_or_else(|| panic!("{row} is not in {table}"));
    let titles: Vec<&str> = header.split_whitespace().collect();
    let starts: Vec<usize> = titles
        .iter()
        .map(|title| header.find(&format!("{title} ")).or(header.rfind(title)))
        .map(|start| start.expect("a title"))
        .collect();
    let mut cells = Vec::new();
    for (index, title) in titles.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(line.len());
        let cell = line.get(starts[index]..end.min(line.len())).unwrap_or("");
        cells.push(((*title).to_owned(), cell.trim().to_owned()));
    }
    cells
}

fn cell(table: &str, row: &str, column: &str) -> String {
    let cells = cells(table, row);
    let found = cells.iter().find(|(title, _)| title == column);
    found
        .unwrap_or_else(|| panic!("{column} is not in {table}"))
        .1
        .clone()
}

#[tokio::test]
async fn kubectl_shows_who_gets_a_reserved_address() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let reservation = |address: &str, claim: Value| {
        let object = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
            "metadata": { "name": format!("p.lab.web.{address}") },
            "spec": {
                "scope": "p.lab.web", "address": address, "claimRef": claim,
                "poolRef": { "kind": "InClusterIPPool", "namespace": "lab", "name": "web" },
            },
        });
        plane.kubectl_apply(&object.to_string());
    };
    let named = |uid: Option<&str>| json!({ "namespace": "lab", "name": "vm", "uid": uid });
    reservation("10.0.0.10", named(Some("6a0f9a4e")));
    reservation("10.0.0.11", named(None));
    reservation("10.0.0.12", Value::Null);
    let table = plane.kubectl(&["get", "ipres"]);
    let shown = |address: &str| ["CLAIM", "UID", "NAMESPACE"].map(|it| cell(&table, address, it));
    assert_eq!(shown("10.0.0.10"), ["vm", "6a0f9a4e", "lab"], "held");
    assert_eq!(shown("10.0.0.11"), ["vm", "", "lab"], "promised");
    assert_eq!(shown("10.0.0.12"), ["", "", "lab"], "excluded");
}

#[tokio::test]
async fn kubectl_shows_entries_counts_and_readiness_of_pools() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let list = json!({ "addresses": ["10.0.1.0/24"], "prefix": 24, "draining": ["10.0.1.0/25"] });
    let ranges = json!({ "ranges": [{ "addresses": ["10.0.3.0/25"], "prefix": 24 }] });
    for (name, spec) in [("list", list), ("ranges", ranges)] {
        create(&plane, "InClusterIPPool", Some(namespace), name, &spec);
    }
    let status = json!({ "status": {
        "ipAddresses": { "total": 254, "free": 127, "used": 0, "outOfRange": 0, "drained": 127 },
        "conditions": [{ "type": "Ready", "status": "True", "reason": "PoolReady", "message": "",
                         "lastTransitionTime": "2026-01-02T03:04:05Z" }],
    }});
    let patch = format!("--patch={status}");
    let of_namespace = ["--namespace", namespace];
    let patched = [
        "patch",
        "icipp",
        "list",
        "--subresource=status",
        "--type=merge",
        &patch,
    ];
    plane.kubectl(&[&patched[..], &of_namespace].concat());
    let table = plane.kubectl(&[&["get", "icipp"][..], &of_namespace].concat());
    assert_eq!(cell(&table, "list", "ADDRESSES"), "10.0.1.0/24");
    let counts = ["TOTAL", "FREE", "USED", "DRAINED", "READY"].map(|it| cell(&table, "list", it));
    assert_eq!(counts, ["254", "127", "0", "127", "True"]);
    assert!(
        cell(&table, "ranges", "ADDRESSES").contains("10.0.3.0/25"),
        "{table}"
    );
    let header = table.lines().next().expect("a header");
    assert!(header.trim_end().ends_with("READY"), "{header}");
    for short in ["gicipp", "icpp", "gicpp"] {
        let namespaced = [&["get", short, "-o", "name"][..], &of_namespace].concat();
        assert_eq!(plane.kubectl(&namespaced), "", "{short}");
    }
}
