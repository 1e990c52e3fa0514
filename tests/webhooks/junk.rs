//! Bodies that become far larger when they are read, from many clients at once: they are turned down, the memory of the
//! manager stays within the limit of its container, good reviews are answered meanwhile, and the log is not filled.

use capi_ipam::Wired;
use capi_ipam::admission::routes::CONVERT;
use capi_ipam::support::webhooks::junk::Junk;

/// The limit in `config/manager/deployment.yaml`.
const CONTAINER_MIB: u64 = 512;

const CLIENTS: usize = 20;

/// The most memory that a process had at any time, in MiB.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("it is a number") / 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn junk_from_many_clients_stays_within_the_memory_limit() {
    let wired = Wired::start(&[]);
    for junk in Junk::all() {
        let outcome = junk.send(&wired.webhooks, CLIENTS, 1).await;
        let peak = peak_memory(wired.manager.pid());
        println!("{}: peak memory {peak} MiB, {outcome:?}", junk.what);
        let answered: usize = outcome.statuses.values().sum();
        assert_eq!(answered, CLIENTS, "{}: {outcome:?}", junk.what);
        let refusals = [0, 400, 413, 422, 429, 504];
        assert!(outcome.statuses.keys().all(|status| refusals.contains(status)), "{}: {outcome:?}", junk.what);
        assert!(outcome.good.answered > 0 && outcome.good.failed == 0, "{}: {:?}", junk.what, outcome.good);
        assert!(peak < CONTAINER_MIB * 3 / 4, "{}: {peak} MiB", junk.what);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_reviews_do_not_fill_the_log() {
    let wired = Wired::start(&[]);
    let mut connection = wired.webhooks.connect_http2().await.expect("a connection can be made");
    for _ in 0..200 {
        let answer = connection.post(CONVERT, "nonsense").await.expect("there is an answer");
        assert_eq!(answer.status, 400);
    }
    let objects = [serde_json::json!({"kind": "Pod"})];
    let body = crate::support::webhooks::direct::conversion("v1alpha1", &objects).to_string();
    for _ in 0..200 {
        assert_eq!(connection.post(CONVERT, body.clone()).await.expect("there is an answer").status, 200);
    }
    let log = wired.manager.log();
    for text in ["cannot be understood", "cannot be converted"] {
        let lines = log.lines().filter(|line| line.contains(text)).count();
        assert!((1..20).contains(&lines), "{lines} lines: {text}");
    }
}
