//! The allocation log: each change of the holder of an address is one line, of the process that
//! made it. The tests have control planes with one manager each.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capi_ipam_api::AllocationEvent;
use capi_ipam_provider::api::names;
use support::manager::scrape;
use support::ports::free_port;
use support::prelude::*;
use support::proxy::{ApiRequest, Broken, Forward, ProxyServer, Verb};

const SWEEP: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=1s"];

fn flag(file: &Path) -> String {
    format!("--allocation-log={}", file.display())
}

/// A control plane, a manager that writes the log into the file, and a consumer.
async fn logging(name: &str) -> (ControlPlane, Manager, Consumer, PathBuf) {
    let plane = ControlPlane::new();
    let file = plane.folder().join(name);
    let manager = Manager::start(&plane, &[&SWEEP[..], &[&flag(&file)]].concat());
    let consumer = Consumer::new(&plane).await;
    (plane, manager, consumer, file)
}

fn events(file: &Path) -> Vec<AllocationEvent> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).expect("an event"))
        .collect()
}

/// The event, the cause, the claim, the address, and the network.
fn summary(event: &AllocationEvent) -> String {
    let network = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    let (before, now) = (&event.previous_network, &event.network);
    let networks = if before.is_some() || now.is_some() {
        format!(" {}>{}", network(before), network(now))
    } else {
        String::new()
    };
    let claim = event.claim.as_ref().map_or("", |claim| &claim.name);
    let address = &event.address;
    format!(
        "{:?} {:?} {claim} {address}{networks}",
        event.event, event.cause
    )
}

/// Waits until the log has this number of lines, and that it keeps it. Returns the summaries of
/// those after the first `skip`.
async fn summaries(file: &Path, skip: usize, count: usize) -> Vec<String> {
    let what = format!("the log has {count} lines more than {skip}");
    let found = eventually(&what, || async {
        let found = events(file);
        (found.len() >= skip + count).then_some(found)
    })
    .await;
    assert_eq!(found.len(), skip + count, "{found:#?}");
    found.iter().skip(skip).map(summary).collect()
}

#[tokio::test]
async fn quarantine_and_its_end_are_logged() {
    let (_plane, _manager, consumer, file) = logging("quarantines.log").await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.9").await;
    consumer.bind_to("first", "web", "10.0.0.1").await;
    consumer
        .modify(&consumer.claims(), "first", |claim| {
            claim["metadata"]["annotations"] = json!({names::CONFLICT_ANNOTATION: "ARP reply"});
        })
        .await;
    consumer.release("first").await;
    let name = format!("p.{}.web.10.0.0.1", consumer.namespace);
    consumer
        .modify(&consumer.reservations(), &name, |found| {
            found["spec"]["quarantine"]["until"] = json!("2026-01-01T00:00:00Z");
        })
        .await;
    assert_eq!(
        summaries(&file, 1, 2).await,
        [
            "Quarantined ConflictReported first 10.0.0.1",
            "Released QuarantineEnded  10.0.0.1"
        ]
    );
}

#[tokio::test]
async fn each_change_of_an_address_is_one_line() {
    let (plane, mut manager, consumer, file) = logging("allocations.log").await;
    let (namespace, network) = (consumer.namespace.clone(), unique("net"));
    consumer.create_open_network(&network).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.9").await;

    let owners = json!({"ownerReferences": [{
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "ExampleMachine",
        "name": "vm-1", "uid": "6101ef08-5b98-40af-8a1f-bc85701b2e47",
    }], "labels": {"cluster.x-k8s.io/cluster-name": "prod"}});
    consumer.create_cluster("prod", false).await;
    consumer.bind_with_metadata("first", "web", owners).await;
    assert_eq!(
        summaries(&file, 0, 1).await,
        ["Allocated ClaimCreated first 10.0.0.1"]
    );
    let uid = consumer.the_claim("first").await.uid();
    let line: Value = serde_json::to_value(&events(&file)[0]).expect("an event is JSON");
    let time = line["time"].as_str().expect("a time");
    assert_eq!(time.len(), "2026-01-01T00:00:00.000000Z".len());
    let expected = json!({
        "time": time, "target": "allocations", "event": "Allocated", "cause": "ClaimCreated",
        "address": "10.0.0.1", "machine": "vm-1",
        "pool": {"kind": "InClusterIPPool", "namespace": namespace, "name": "web"},
        "claim": {"namespace": namespace, "name": "first", "uid": uid, "cluster": "prod"},
    });
    assert_eq!(line, expected);

    // Release and rebind.
    consumer.release("first").await;
    consumer.bind_to("second", "web", "10.0.0.1").await;
    assert_eq!(
        summaries(&file, 1, 2).await,
        [
            "Released ClaimDeleted first 10.0.0.1",
            "Allocated ClaimCreated second 10.0.0.1"
        ]
    );

    // Adoption, and an IPAddress that somebody deletes.
    consumer.create_address("made", "web", "10.0.0.7").await;
    consumer.create_claim("made", "web").await;
    consumer.wait_for_address("made").await;
    assert_eq!(
        summaries(&file, 3, 1).await,
        ["Adopted AddressExisted made 10.0.0.7"]
    );
    consumer.force_delete(&consumer.addresses(), "made").await;
    assert_eq!(
        summaries(&file, 4, 1).await,
        ["Allocated AddressDeleted made 10.0.0.7"]
    );

    // The sweeper releases.
    let claim = json!({"namespace": namespace, "name": "never", "uid": "dead"});
    consumer.reserve("web", "10.0.0.8", claim).await;
    assert_eq!(
        summaries(&file, 5, 1).await,
        ["Released Abandoned never 10.0.0.8"]
    );

    // A restart repeats nothing. The sweeper finds what happened in between.
    manager.stop();
    drop(manager);
    consumer.force_delete(&consumer.claims(), "made").await;
    let mut manager = Manager::start(&plane, &[&SWEEP[..], &[&flag(&file)]].concat());
    let released = summaries(&file, 6, 1).await;
    assert_eq!(released, ["Released ClaimGone made 10.0.0.7"]);
    consumer.bind_to("third", "web", "10.0.0.2").await;
    let bound = summaries(&file, 7, 1).await;
    assert_eq!(bound, ["Allocated ClaimCreated third 10.0.0.2"]);

    // The pool joins a network.
    consumer
        .modify_pool("web", |spec| spec["network"] = json!(network))
        .await;
    let mut moved = summaries(&file, 8, 2).await;
    moved.sort();
    let scope_change = |claim: &str, address: &str| {
        format!("ScopeChanged PoolMoved {claim} {address} ->{network}")
    };
    assert_eq!(
        moved,
        [
            scope_change("second", "10.0.0.1"),
            scope_change("third", "10.0.0.2")
        ]
    );
    consumer.release("second").await;
    let released = format!("Released ClaimDeleted second 10.0.0.1 ->{network}");
    assert_eq!(summaries(&file, 10, 1).await, [released]);
    manager.stop();
    assert_eq!(events(&file).len(), 11, "none is repeated later");
}

#[tokio::test]
async fn claims_are_bound_while_the_log_cannot_be_written() {
    let metrics = free_port();
    let plane = ControlPlane::new();
    let folder = plane.folder().join("mounted-later");
    let file = folder.join("allocations.log");
    let diagnostics = format!("--diagnostics-address=127.0.0.1:{metrics}");
    let flags = [&*flag(&file), &*diagnostics, "--insecure-diagnostics"];
    let manager = Manager::start(&plane, &flags);
    let consumer = Consumer::new(&plane).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.9").await;
    let names = numbered("c", 3);
    consumer.create_claims(&names, "web").await;
    consumer.wait_for_addresses(&names).await;
    manager.wait_for_log("cannot write the allocation log");
    eventually("errors are counted", || async {
        let text = scrape(metrics)?;
        let mut lines = text.lines();
        let name = "capi_ipam_allocation_log_write_errors_total ";
        let line = lines.find_map(|line| line.strip_prefix(name))?;
        (line != "0").then_some(())
    })
    .await;

    std::fs::create_dir(&folder).expect("a folder can be created");
    assert_eq!(summaries(&file, 0, 3).await.len(), 3, "they have waited");
    // The platform rotates the file.
    std::fs::rename(&file, folder.join("allocations.log.1")).expect("a file can be renamed");
    consumer.release("c0").await;
    assert_eq!(summaries(&file, 0, 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_neither_lose_nor_repeat_lines() {
    let plane = ControlPlane::new();
    let upstream = ProxyServer::upstream(&plane).await;
    let lost: [Arc<AtomicBool>; 3] = Default::default();
    let flags = lost.clone();
    let proxy = ProxyServer::start(&plane, "lost-answers", move || {
        let (upstream, lost) = (upstream.clone(), flags.clone());
        move |request| {
            let (upstream, lost) = (upstream.clone(), lost.clone());
            async move {
                let forward = Forward::receive(upstream, request).await?;
                let request = ApiRequest::of(&forward.method, &forward.path);
                if request.verb == Verb::Watch {
                    return forward.stream().await;
                }
                let response = forward.send().await?;
                let write = (request.verb, &*request.resource, &*request.subresource);
                let first_of = |index: usize| !lost[index].swap(true, Ordering::Relaxed);
                let is_lost = match write {
                    (Verb::Create, "ipaddresses", "") => first_of(0),
                    (Verb::Change, "ipaddressclaims", "status") => first_of(1),
                    (Verb::Delete, "ipreservations", "") => first_of(2),
                    _ => false,
                };
                if is_lost { Err(Broken) } else { Ok(response) }
            }
        }
    })
    .await;
    let flags = ["--allocation-log=-"];
    let mut manager = Manager::launch(&plane, proxy.kubeconfig(), &flags);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer.bind("a", "web").await;
    consumer.release("a").await;
    consumer.bind("b", "web").await;
    // What waits is written before the process ends.
    manager.stop();
    let log = manager.log();
    let lines = log
        .lines()
        .filter(|line| line.contains(r#""target":"allocations""#));
    let events = lines.map(|line| serde_json::from_str(line).expect("an event"));
    let summaries: Vec<String> = events.map(|event| summary(&event)).collect();
    assert_eq!(
        summaries,
        [
            "Allocated ClaimCreated a 10.0.0.1",
            "Released ClaimDeleted a 10.0.0.1",
            "Allocated ClaimCreated b 10.0.0.1"
        ],
        "{log}"
    );
    assert!(lost.iter().all(|lost| lost.load(Ordering::Relaxed)));
}
