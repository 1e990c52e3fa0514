//! The provider against a real API server and a real etcd.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

mod relay;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use capi_ipam_provider::api::names;
use capi_ipam_testing::conformance::{self, Pool, Provider};
use capi_ipam_testing::consumer::{Consumer, ready};
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::ports::free_port;
use capi_ipam_testing::wait::eventually;
use etcd_client::{Client, GetOptions};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use relay::{Mode, Relay};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_etcd-provider");
const CRD: &str = include_str!("../config/crd.yaml");
const LEADER_ELECTION: [&str; 4] = [
    "--leader-elect",
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=7s",
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
    let backend = ControlPlane::start(
        Options {
            bare: true,
            ..Options::default()
        },
        &Installation::default(),
    );
    let provider = Provider::new(PROGRAM, Pool::new(&pool("10.7.0.0/29"), 5))
        .installation(Installation::of(CRD))
        .arguments([format!("--etcd-endpoint={}", backend.etcd_url())])
        .leader_election(LEADER_ELECTION);
    conformance::run(&provider).assert_passed();
}

fn start_manager(plane: &ControlPlane, etcd: &str) -> Manager {
    let endpoint = format!("--etcd-endpoint={etcd}");
    Manager::start_program(
        plane,
        PROGRAM.as_ref(),
        plane.kubeconfig(),
        &[&endpoint, "--verify-interval=500ms"],
    )
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
        let manager = start_manager(&plane, &relay.url());
        manager.wait_until_ready();
        let consumer = Consumer::new(&plane).await;
        let etcd = Client::connect([plane.etcd_url()], None)
            .await
            .expect("etcd answers");
        let environment = Self {
            plane,
            manager,
            consumer,
            etcd,
            relay,
        };
        let mut pool = pool("10.7.0.0/29");
        pool = pool.replace(
            "{name: pool}",
            &format!(
                "{{name: pool, namespace: {}}}",
                environment.consumer.namespace
            ),
        );
        environment.plane.kubectl_apply(&pool);
        environment
    }

    async fn create_claim(&self, name: &str) {
        let pool = json!({"apiGroup": "example.com", "kind": "EtcdPool", "name": "pool"});
        self.consumer.create_claim_for(name, pool, json!({})).await;
    }

    /// The key of an address.
    fn key(&self, address: &str) -> String {
        format!(
            "/capi-ipam/{}/pool/addresses/{address}",
            self.consumer.namespace
        )
    }

    /// The key of a claim.
    fn claim_key(&self, uid: &str) -> String {
        format!("/capi-ipam/{}/pool/claims/{uid}", self.consumer.namespace)
    }

    /// The owner of an address in etcd.
    async fn owner(&mut self, address: &str) -> Option<String> {
        let found = self
            .etcd
            .get(self.key(address), None)
            .await
            .expect("etcd answers");
        found
            .kvs()
            .first()
            .map(|found| found.value_str().expect("it is text").to_owned())
    }

    /// The owners of all allocated addresses in etcd.
    async fn owners(&mut self) -> Vec<String> {
        let options = GetOptions::new().with_prefix();
        let found = self
            .etcd
            .get(self.key(""), Some(options))
            .await
            .expect("etcd answers");
        found
            .kvs()
            .iter()
            .map(|found| found.value_str().expect("it is text").to_owned())
            .collect()
    }

    async fn uid(&self, claim: &str) -> String {
        let claim = self
            .consumer
            .claims()
            .get(claim)
            .await
            .expect("claims can be read")
            .expect("it exists");
        claim.uid().expect("it has a uid")
    }

    /// Waits until a claim reports a message that contains a text.
    async fn wait_for_message(&self, claim: &str, text: &str) {
        eventually(&format!("{claim} reports {text:?}"), || async {
            let claim = self.consumer.claims().get(claim).await.ok().flatten()?;
            ready(&claim)
                .message
                .filter(|message| message.contains(text))
        })
        .await;
    }

    async fn wait_for_event(&self, claim: &str, reason: &str) {
        eventually(
            &format!("an event on {claim} has the reason {reason}"),
            || async {
                self.consumer
                    .events(claim)
                    .await
                    .into_iter()
                    .find(|(_, why, _)| why == reason)
            },
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_detected() {
    let mut env = Environment::start().await;
    env.create_claim("a").await;
    let address = env.consumer.wait_for_ip_address("a").await;
    let text = address.spec.address.clone();
    assert_eq!(
        (text.as_str(), address.spec.gateway.as_deref()),
        ("10.7.0.2", Some("10.7.0.1"))
    );
    let found = env
        .etcd
        .get(env.key(&text), None)
        .await
        .expect("etcd answers");
    let revision = found
        .kvs()
        .first()
        .expect("the address is recorded")
        .create_revision()
        .to_string();
    assert_eq!(
        address
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(REVISION)),
        Some(&revision)
    );
    let owner = env.owner(&text).await.expect("the address has an owner");

    // Somebody deletes the key: the address is allocated again.
    env.etcd
        .delete(env.key(&text), None)
        .await
        .expect("etcd answers");
    env.wait_for_event("a", "AddressLost").await;
    while env.owner(&text).await.as_ref() != Some(&owner) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // Somebody takes the address: it is reported, and neither is changed.
    env.etcd
        .put(env.key(&text), "somebody", None)
        .await
        .expect("etcd answers");
    let message = env
        .consumer
        .wait_until_unready("a", "DuplicateAddress")
        .await;
    assert_eq!(message, format!("{text} is allocated to somebody in etcd"));
    assert_eq!(env.owner(&text).await.as_deref(), Some("somebody"));
    env.etcd
        .put(env.key(&text), owner, None)
        .await
        .expect("etcd answers");
    eventually("the claim is ready again", || async {
        let claim = env.consumer.claims().get("a").await.ok().flatten()?;
        (ready(&claim).status == "True").then_some(())
    })
    .await;
    assert!(!env.manager.was_forbidden());
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_backend_ends_the_program_at_its_start() {
    let mut env = Environment::start().await;
    env.create_claim("a").await;
    env.consumer.wait_for_address("a").await;
    // With SIGTERM.
    env.manager.stop();
    let status = env.manager.exit_status().expect("it has exited");
    assert!(status.success(), "{}", env.manager.log());

    env.relay.set(Mode::Closed);
    let mut manager = start_manager(&env.plane, &env.relay.url());
    let exited = "the program ends";
    let status = eventually(exited, || std::future::ready(manager.exit_status())).await;
    assert!(!status.success());
    let log = manager.log();
    let last = log.lines().last().unwrap_or_default();
    let expected = "error: cannot set up the program: cannot initialize the connection to etcd: ";
    assert!(last.starts_with(expected), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_prefix_and_buckets_of_the_program() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(CRD));
    let port = free_port();
    let endpoint = format!("--etcd-endpoint={}", plane.etcd_url());
    let diagnostics = format!("--diagnostics-address=127.0.0.1:{port}");
    let flags = [&endpoint, &diagnostics, "--insecure-diagnostics"];
    let manager = Manager::start_program(&plane, PROGRAM.as_ref(), plane.kubeconfig(), &flags);
    manager.wait_until_ready();
    let response = get(port, "/metrics");
    let series = "\netcd_provider_controller_reconcile_seconds_bucket{le=\"10.0\",\
                  controller=\"claims\",outcome=\"success\"} ";
    assert!(response.contains(series), "{response}");
}

/// The response to a request.
fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it is served");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .expect("it can be sent");
    let mut response = String::new();
    stream
        .read_to_string(&mut response)
        .expect("it is answered");
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn vlan_of_a_pool_is_kept_and_must_be_ready() {
    let env = Environment::start().await;
    let metadata = |name: &str| json!({"name": name, "namespace": env.consumer.namespace});
    let spec = json!({"subnet": "10.7.0.0/29", "vlan": "v10"});
    let pool = json!({"apiVersion": "example.com/v1", "kind": "EtcdPool",
        "metadata": metadata("pool"), "spec": spec});
    env.plane.kubectl_apply(&pool.to_string());
    env.create_claim("a").await;
    env.wait_for_message("a", "Vlan v10 does not exist").await;

    let vlan = json!({"apiVersion": "example.com/v1", "kind": "Vlan",
        "metadata": metadata("v10"), "spec": {"id": 10}});
    env.plane.kubectl_apply(&vlan.to_string());
    env.wait_for_message("a", "is not ready: it has no condition Ready")
        .await;
    let kind =
        |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", kind));
    let api = |name| -> Api<DynamicObject> {
        Api::namespaced_with(
            env.consumer.client.clone(),
            &env.consumer.namespace,
            &kind(name),
        )
    };
    let vlans = api("Vlan");
    let ready = json!({"type": "Ready", "status": "True", "reason": "Configured", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
    let status = Patch::Merge(json!({"status": {"conditions": [ready]}}));
    let parameters = PatchParams::default();
    let written = vlans.patch_status("v10", &parameters, &status).await;
    written.expect("the status can be written");
    env.consumer.wait_for_address("a").await;

    let larger = pool.to_string().replace("10.7.0.0/29", "10.7.0.0/28");
    env.plane.kubectl_apply(&larger);
    env.manager.wait_for_log("the subnet has changed");

    let deletion = DeleteParams::default();
    vlans
        .delete("v10", &deletion)
        .await
        .expect("it can be deleted");
    env.create_claim("b").await;
    env.wait_for_message("b", "being deleted; it is used by EtcdPool pool")
        .await;
    api("EtcdPool")
        .delete("pool", &deletion)
        .await
        .expect("it can be deleted");
    eventually("the VLAN is gone", || async {
        let found = vlans.get_opt("v10").await.expect("it can be read");
        found.is_none().then_some(())
    })
    .await;
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
    let claim = env
        .consumer
        .claims()
        .get("a")
        .await
        .expect("claims can be read")
        .expect("it exists");
    assert_eq!(ready(&claim).status, "True");
    env.consumer
        .claims()
        .delete("a", &claim.metadata.uid.expect("it has a uid"))
        .await
        .expect("it can be deleted");
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
    assert_eq!(env.owners().await.len(), 2, "one address for each claim");
}

/// A deleted claim `b`, whose allocation is still on its way to etcd: the provider was killed. The
/// claim `a` is bound.
async fn with_held_allocation() -> Environment {
    let mut env = Environment::start().await;
    env.create_claim("a").await;
    assert_eq!(env.consumer.wait_for_address("a").await, "10.7.0.2");
    env.relay.set(Mode::Held("addresses/10.7.0.3"));
    env.create_claim("b").await;
    env.relay.wait_until_holding().await;
    env.manager.kill();
    let claim = env
        .consumer
        .claims()
        .get("b")
        .await
        .expect("claims can be read")
        .expect("it exists");
    assert!(
        claim
            .finalizers()
            .iter()
            .any(|all| all == names::RELEASE_ADDRESS),
        "{claim:?}"
    );
    env.consumer.delete("b").await;
    env
}

/// The allocation is applied after another replica has released the claim.
#[tokio::test(flavor = "multi_thread")]
async fn late_allocation_after_release_is_rejected() {
    let mut env = with_held_allocation().await;
    let uid = env.uid("a").await;
    let _manager = start_manager(&env.plane, &env.plane.etcd_url());
    env.consumer.wait_until_deleted("b").await;
    env.relay.set(Mode::Open);
    // Until the allocation is applied, or rejected.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(env.owners().await, [uid], "only a has an address");
}

/// The allocation is applied after the release has read that the claim has no address.
#[tokio::test(flavor = "multi_thread")]
async fn allocation_during_release_is_released() {
    let mut env = with_held_allocation().await;
    let (a, b) = (env.uid("a").await, env.uid("b").await);
    let relay = Relay::start(&env.plane.etcd_url()).await;
    relay.set(Mode::Held("released"));
    let _manager = start_manager(&env.plane, &relay.url());
    relay.wait_until_holding().await;
    env.relay.set(Mode::Open);
    while env.owner("10.7.0.3").await.as_ref() != Some(&b) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    relay.set(Mode::Open);
    env.consumer.wait_until_deleted("b").await;
    assert_eq!(env.owners().await, [a], "only a has an address");
    let found = env
        .etcd
        .get(env.claim_key(&b), None)
        .await
        .expect("etcd answers");
    let tombstone = found.kvs().first().expect("the release is recorded");
    assert_eq!(tombstone.value(), b"released");
    let lease = env
        .etcd
        .lease_client()
        .time_to_live(tombstone.lease(), None)
        .await
        .expect("the lease exists");
    assert_eq!(lease.granted_ttl(), 60 * 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_with_a_tombstone_gets_no_address() {
    let mut env = Environment::start().await;
    env.relay.set(Mode::Closed);
    env.create_claim("a").await;
    let key = env.claim_key(&env.uid("a").await);
    env.etcd
        .put(key.as_str(), "released", None)
        .await
        .expect("etcd answers");
    env.relay.set(Mode::Open);
    env.wait_for_message("a", "the claim was released in etcd")
        .await;
    env.etcd.delete(key, None).await.expect("etcd answers");
    env.consumer.wait_for_address("a").await;
}
