//! `import` and `export`.

use std::fmt::Write as _;
use std::time::Instant;

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use serde_json::{Value, json};

use super::{definitions, json_of, manager, reference, run};

const HEADER: &str = "kind,namespace,name,addresses,excludedAddresses,prefix,network,pool,claim\n";

/// Number of rows; CAPI_IPAM_OBJECTS changes it.
fn rows() -> u32 {
    std::env::var("CAPI_IPAM_OBJECTS").map_or(1_000, |text| text.parse().expect("a number of rows"))
}

#[tokio::test]
async fn import_is_repeatable_and_deletes_only_what_it_created() {
    let program = manager();
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let manager = Manager::start_program(&plane, &program, admin, &["--webhook-port=0"]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let folder = tempfile::tempdir().expect("a folder can be created");
    let path = folder.path().join("racks.csv");
    let file = path.to_str().expect("the path is UTF-8");
    let import = |text: &str, flags: &[&str]| -> (i32, Value) {
        std::fs::write(&path, text).expect("the file can be written");
        let arguments = [&["import", file, "-n", namespace, "-o", "json", "--name", "racks"][..], flags].concat();
        let (code, output, errors) = run(admin, &arguments);
        (code, serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}{errors}")))
    };
    let counts = |summary: &Value| {
        ["created", "updated", "deleted", "unchanged"].map(|name| summary[name].as_u64().expect("a count"))
    };

    let count = rows();
    let mut table = HEADER.to_owned();
    table.push_str("InClusterIPPool,,web,10.0.0.10-10.0.255.250,10.0.1.1,16,,,\nPrefix,,pods,fd00::/56,,64,lab,,\n");
    for number in 2..count {
        let number = number + 1024;
        let claim = if number % 2 == 0 { format!("vm-{number}") } else { String::new() };
        let _ = writeln!(table, "IPReservation,,,10.0.{}.{},,,,web,{claim}", number / 250, number % 250);
    }
    let all = u64::from(count);
    let (code, summary) = import(&table, &["--dry-run=server"]);
    // The namespace of the file exists, but the API server stores nothing.
    assert_eq!((code, counts(&summary)), (0, [all, 0, 0, 0]), "{summary}");
    let start = Instant::now();
    let (code, summary) = import(&table, &[]);
    println!("{count} rows in {:.1} s", start.elapsed().as_secs_f64());
    assert_eq!((code, counts(&summary)), (0, [all, 0, 0, 0]), "{summary}");
    let start = Instant::now();
    let (code, summary) = import(&table, &["--prune"]);
    println!("again in {:.1} s", start.elapsed().as_secs_f64());
    assert_eq!((code, counts(&summary)), (0, [0, 0, 0, all]), "{summary}");

    // What an export writes, an import reads.
    for format in ["csv", "json", "yaml"] {
        let (code, output, errors) = run(admin, &["export", "-n", namespace, "-o", format]);
        assert_eq!((code, errors.as_str()), (0, ""));
        let (code, summary) = import(&output, &["--prune"]);
        assert_eq!((code, counts(&summary)), (0, [0, 0, 0, all]), "{format}: {summary}");
    }

    // A claim gets its address, and the reservation of somebody else stays.
    consumer.create_claim_for("vm-1026", reference("InClusterIPPool", "web"), json!({})).await;
    assert_eq!(consumer.wait_for_address("vm-1026").await, "10.0.4.26");
    assert_eq!(run(admin, &["reserve", "web", "10.0.99.99", "-n", namespace]).0, 0);
    let short = table.lines().take(3).fold(String::new(), |text, line| text + line + "\n");
    let (code, summary) = import(&short.replace(",10.0.1.1,", ",10.0.1.2,"), &["--prune"]);
    assert_eq!((code, counts(&summary)), (0, [0, 1, all - 2, 1]), "{summary}");
    let shown = json_of(admin, &["show", "web", "-n", namespace]);
    assert_eq!(shown["excluded"], json!(["10.0.1.2"]));
    let held: Vec<&str> =
        shown["holders"].as_array().expect("a list").iter().filter_map(|it| it["address"].as_str()).collect();
    assert_eq!(held, ["10.0.4.26", "10.0.99.99"], "the claim keeps its address");
    let (code, summary) = import(HEADER, &["--prune"]);
    let problem = format!("InClusterIPPool {namespace}/web is not in the file, but has IPAddresses or claims");
    assert_eq!((code, counts(&summary)), (1, [0; 4]), "{summary}");
    assert!(summary["problems"][0]["problem"].as_str().expect("text").starts_with(&problem), "{summary}");

    // What the API server refuses is a problem of its line, and the other lines are imported.
    let table = format!("{HEADER}IP,,Bad_Name,10.3.0.1,,24,,,\nIP,,good,10.3.0.2,,24,,,\nIP,none,db,10.3.0.2,,24,,,\n");
    let (code, summary) = import(&table, &[]);
    assert_eq!((code, counts(&summary)), (1, [1, 0, 0, 0]), "{summary}");
    let lines: Vec<_> = summary["problems"].as_array().expect("a list").iter().map(|it| it["line"].clone()).collect();
    assert_eq!(lines, [2, 4], "{summary}");
}
