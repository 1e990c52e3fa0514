//! The cost of verifying many bound claims, each once a minute: the requests to the API server and
//! the CPU time of the provider in one minute. The number of requests includes those that the API
//! server sends to itself.
//!
//! In the folder `examples/etcd-provider`, with 500 claims instead of 2,000:
//!
//! `PROTOC=$(../../hack/ensure-tool.sh protoc) cargo bench --target-dir ../../target --bench
//! verification -- 500`

#![allow(clippy::expect_used, reason = "it prints its results")]

use std::time::Duration;

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_etcd-provider");
const CRD: &str = include_str!("../config/crd.yaml");
const INTERVAL: Duration = Duration::from_mins(1);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let count = std::env::args()
        .find_map(|word| word.parse().ok())
        .unwrap_or(2_000);
    let plane = ControlPlane::start(Options::default(), &Installation::of(CRD));
    let endpoint = format!("--etcd-endpoint={}", plane.etcd_url());
    let flags = [
        endpoint.as_str(),
        "--verify-interval=1m",
        "--log-level=warn",
    ];
    let manager = Manager::start_program(&plane, PROGRAM.as_ref(), plane.kubeconfig(), &flags);
    manager.wait_until_ready();
    bind_claims(&plane, count).await;

    // Until the first interval with all claims begins.
    tokio::time::sleep(INTERVAL + Duration::from_secs(5)).await;
    let requests = || plane.request_count().values().sum::<u64>();
    let (cpu_before, requests_before) = (cpu(&manager), requests());
    tokio::time::sleep(INTERVAL).await;
    println!(
        "{count} claims verified: {} requests to the API server, {} ms of CPU",
        requests() - requests_before,
        (cpu(&manager) - cpu_before) * 10
    );
}

/// Creates a pool and claims for it, and waits until all are bound.
async fn bind_claims(plane: &ControlPlane, count: usize) {
    let consumer = Consumer::new(plane).await;
    plane.kubectl_apply(&format!(
        "{{apiVersion: example.com/v1, kind: EtcdPool, metadata: {{name: pool, namespace: {}}}, \
         spec: {{subnet: 10.7.0.0/16}}}}",
        consumer.namespace
    ));
    let pool = json!({"apiGroup": "example.com", "kind": "EtcdPool", "name": "pool"});
    let names: Vec<String> = (0..count).map(|number| format!("claim-{number}")).collect();
    for name in &names {
        consumer
            .create_claim_for(name, pool.clone(), json!({}))
            .await;
    }
    while consumer
        .addresses()
        .list()
        .await
        .expect("addresses can be read")
        .len()
        < count
    {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The CPU time of the provider so far, in hundredths of a second.
fn cpu(manager: &Manager) -> i64 {
    let text =
        std::fs::read_to_string(format!("/proc/{}/stat", manager.pid())).expect("the program runs");
    let fields = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<i64> = fields
        .split(' ')
        .filter_map(|field| field.parse().ok())
        .collect();
    // The fields utime and stime follow ten numbers.
    fields.get(10).copied().unwrap_or_default() + fields.get(11).copied().unwrap_or_default()
}
