//! The provider against a real API server and a real etcd.

#![allow(clippy::expect_used, clippy::panic, reason = "test code: a failure ends the test with a message")]

mod relay;

use std::time::Duration;

use capi_ipam_testing::conformance::{self, Pool, Provider};
use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;
use etcd_client::Client;
use relay::{Mode, Relay};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_etcd-provider");
const CRD: &str = include_str!("../config/crd.yaml");
const LEADER_ELECTION: [&str; 4] = [
    "--leader-elect",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
];
/// The label with the revision of etcd.
const REVISION: &str = "etcd-provider.example.com/revision";

fn pool(subnet: &str) -> String {
    format!(
        "{{apiVersion: example.com/v1, kind: EtcdPool, metadata: {{name: pool}}, \
         spec: {{subnet: {subnet}, gateway: 10.7.0.1}}}}"
    )
}

/// Conformance, with an etcd that is not that of the API server.
#[test]
fn provider_conforms() {
    let backend = ControlPlane::start(Options { bare: true, ..Options::default() }, &Installation::default());
    let provider = Provider::new(PROGRAM, Pool::new(&pool("10.7.0.0/29"), 5))
        .installation(Installation::of(CRD))
        .arguments([format!("--etcd-endpoint={}", backend.etcd_url())])
        .leader_election(LEADER_ELECTION);
    conformance::run(&provider).assert_passed();
}

/// A provider that reaches its backend through a relay.
struct Environment {
    plane: ControlPlane,
    manager: Manager,
    consumer: Consumer,
    etcd: Client,
    relay: Relay,
}

impl Environment {
    async fn start() -> Self {
        let plane = ControlPlane::start(Options::default(), &Installation::of(CRD));
        let relay = Relay::start(&plane.etcd_url()).await;
        let flags = [format!("--etcd-endpoint={}", relay.url()), "--verify-interval=500ms".to_owned()];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let manager = Manager::start_program(&plane, PROGRAM.as_ref(), plane.kubeconfig(), &flags);
        manager.wait_until_ready();
        let consumer = Consumer::new(&plane).await;
        let etcd = Client::connect([plane.etcd_url()], None).await.expect("etcd answers");
        let environment = Self { plane, manager, consumer, etcd, relay };
        let mut pool = pool("10.7.0.0/29");
        pool = pool.replace("{name: pool}", &format!("{{name: pool, namespace: {}}}", environment.consumer.namespace));
        environment.plane.kubectl_apply(&pool);
        environment
    }

    async fn create_claim(&self, name: &str) {
        let pool = json!({"apiGroup": "example.com", "kind": "EtcdPool", "name": "pool"});
        self.consumer.create_claim_for(name, pool, json!({})).await;
    }

    /// The key of an address.
    fn key(&self, address: &str) -> String {
        format!("/capi-ipam/{}/pool/addresses/{address}", self.consumer.namespace)
    }

    /// The owner of an address in etcd.
    async fn owner(&mut self, address: &str) -> Option<String> {
        let found = self.etcd.get(self.key(address), None).await.expect("etcd answers");
        found.kvs().first().map(|found| found.value_str().expect("it is text").to_owned())
    }

    async fn wait_for_event(&self, claim: &str, reason: &str) {
        eventually(&format!("an event on {claim} has the reason {reason}"), || async {
            self.consumer.events(claim).await.into_iter().find(|(_, why, _)| why == reason)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_detected() {
    let mut env = Environment::start().await;
    env.create_claim("a").await;
    let address = env.consumer.wait_for_ip_address("a").await;
    let text = address.spec.address.clone();
    assert_eq!((text.as_str(), address.spec.gateway.as_deref()), ("10.7.0.2", Some("10.7.0.1")));
    let found = env.etcd.get(env.key(&text), None).await.expect("etcd answers");
    let revision = found.kvs().first().expect("the address is recorded").create_revision().to_string();
    assert_eq!(address.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION)), Some(&revision));
    let owner = env.owner(&text).await.expect("the address has an owner");

    // Somebody deletes the key: the address is allocated again.
    env.etcd.delete(env.key(&text), None).await.expect("etcd answers");
    env.wait_for_event("a", "AddressLost").await;
    while env.owner(&text).await.as_ref() != Some(&owner) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // Somebody takes the address: it is reported, and neither is changed.
    env.etcd.put(env.key(&text), "somebody", None).await.expect("etcd answers");
    let message = env.consumer.wait_until_unready("a", "DuplicateAddress").await;
    assert_eq!(message, format!("{text} is allocated to somebody in etcd"));
    assert_eq!(env.owner(&text).await.as_deref(), Some("somebody"));
    env.etcd.put(env.key(&text), owner, None).await.expect("etcd answers");
    eventually("the claim is ready again", || async {
        let claim = env.consumer.claims().get("a").await.ok().flatten()?;
        (capi_ipam_testing::consumer::ready(&claim).status == "True").then_some(())
    })
    .await;
    assert!(!env.manager.was_forbidden());
}

#[tokio::test(flavor = "multi_thread")]
async fn backend_that_is_down_is_reported() {
    let env = Environment::start().await;
    env.create_claim("a").await;
    env.consumer.wait_for_address("a").await;
    env.relay.set(Mode::Closed);
    env.create_claim("b").await;
    let message = env.consumer.wait_for_reason("b", "AllocationFailed").await;
    assert!(message.contains(" in etcd: "), "{message}");
    // A bound claim stays ready: nothing shows that its address is lost.
    let claim = env.consumer.claims().get("a").await.expect("claims can be read").expect("it exists");
    assert_eq!(capi_ipam_testing::consumer::ready(&claim).status, "True");
    env.consumer.claims().delete("a", &claim.metadata.uid.expect("it has a uid")).await.expect("it can be deleted");
    env.consumer.wait_until_unready("a", "ReleaseFailed").await;
    env.relay.set(Mode::Open);
    env.consumer.wait_until_deleted("a").await;
    env.consumer.wait_for_address("b").await;
}

/// The transaction is applied, and its answer arrives after the deadline of the request.
#[tokio::test(flavor = "multi_thread")]
async fn late_answer_does_not_allocate_twice() {
    let mut env = Environment::start().await;
    env.create_claim("a").await;
    env.consumer.wait_for_address("a").await;
    env.relay.set(Mode::Mute);
    env.create_claim("b").await;
    // The requests reach etcd, and no answer arrives.
    tokio::time::sleep(Duration::from_secs(7)).await;
    env.relay.set(Mode::Open);
    let address = env.consumer.wait_for_address("b").await;
    assert_eq!(address, "10.7.0.3");
    let folder = env.key("");
    let options = etcd_client::GetOptions::new().with_prefix();
    let found = env.etcd.get(folder, Some(options)).await.expect("etcd answers");
    assert_eq!(found.kvs().len(), 2, "one address for each claim");
}

/// The cost of verifying many claims, with the interval reduced to a minute:
/// `cargo test -- --ignored --nocapture verification`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn verification_of_many_claims() {
    const CLAIMS: usize = 2_000;
    const INTERVAL: Duration = Duration::from_mins(1);
    let plane = ControlPlane::start(Options::default(), &Installation::of(CRD));
    let endpoint = format!("--etcd-endpoint={}", plane.etcd_url());
    let flags = [endpoint.as_str(), "--verify-interval=1m", "--log-level=warn"];
    let manager = Manager::start_program(&plane, PROGRAM.as_ref(), plane.kubeconfig(), &flags);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let metadata = format!("{{name: pool, namespace: {}}}", consumer.namespace);
    plane.kubectl_apply(&pool("10.7.0.0/16").replace("{name: pool}", &metadata));
    let pool = json!({"apiGroup": "example.com", "kind": "EtcdPool", "name": "pool"});
    let names: Vec<String> = (0..CLAIMS).map(|number| format!("claim-{number}")).collect();
    for name in &names {
        consumer.create_claim_for(name, pool.clone(), json!({})).await;
    }
    while consumer.addresses().list().await.expect("addresses can be read").len() < CLAIMS {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // Until the first interval with all claims begins.
    tokio::time::sleep(INTERVAL + Duration::from_secs(5)).await;
    let cpu = || {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", manager.pid())).expect("the program runs");
        let fields = text.rsplit(')').next().unwrap_or_default();
        let fields: Vec<i64> = fields.split(' ').filter_map(|field| field.parse().ok()).collect();
        // In hundredths of a second: the fields utime and stime follow ten numbers.
        fields.get(10).copied().unwrap_or_default() + fields.get(11).copied().unwrap_or_default()
    };
    let requests = || plane.request_count().values().sum::<u64>();
    let (cpu_before, requests_before) = (cpu(), requests());
    tokio::time::sleep(INTERVAL).await;
    println!(
        "{CLAIMS} claims verified: {} requests to the API server, {} ms of CPU",
        requests() - requests_before,
        (cpu() - cpu_before) * 10
    );
}
