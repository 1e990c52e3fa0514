//! The sweep of IPAddresses without a claim.

use std::sync::atomic::Ordering;

use capi_ipam_provider::advanced::SweepOptions;
use support::prelude::*;
use tokio::sync::{Mutex, MutexGuard};

use crate::{
    environment::{Environment, Setup},
    pools::Memory,
};

type Env = Environment<Memory>;

const SWEEP: SweepOptions = SweepOptions {
    interval: Duration::from_millis(200),
    grace: Duration::from_secs(1),
    report_only: false,
};

/// Held by the test that sweeps: a sweep includes the namespaces of the other tests, whose
/// addresses its provider does not know.
static SWEEPING: Mutex<()> = Mutex::const_new(());

/// A provider with a sweep, and a pool with these addresses.
async fn start(sweep: SweepOptions, addresses: &[&str]) -> (Env, MutexGuard<'static, ()>) {
    let guard = SWEEPING.lock().await;
    let env = Env::start(Setup {
        sweep: Some(sweep),
        ..Setup::default()
    })
    .await;
    env.apply_pool("pool", &json!({ "addresses": addresses }));
    (env, guard)
}

/// Creates a claim and removes it without its IPAddress. A paused claim is not released.
async fn abandon(env: &Env, name: &str) {
    env.bind(name, "pool").await;
    env.consumer
        .set_paused(&env.consumer.claims(), name, true)
        .await;
    env.consumer
        .force_delete(&env.consumer.claims(), name)
        .await;
}

async fn exists(env: &Env, name: &str) -> bool {
    env.consumer
        .addresses()
        .get(name)
        .await
        .expect("addresses can be read")
        .is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn address_without_a_claim_is_deleted_and_released() {
    let (env, _guard) = start(SWEEP, &["10.4.0.1", "10.4.0.2"]).await;
    let addresses = env.consumer.addresses();
    env.consumer
        .create_address_for("manual", Env::reference("pool"), "10.4.0.9")
        .await;
    assert_eq!(env.bind("bound", "pool").await, "10.4.0.1");
    env.provider.failing_releases.store(2, Ordering::Relaxed);
    abandon(&env, "a").await;
    let text = "no IPAddressClaim a exists: deleted the IPAddress that held 10.4.0.2";
    env.consumer
        .wait_for_event("a", "Normal", "OrphanFreed", text)
        .await;
    env.consumer.wait_until_gone(&addresses, "a").await;
    eventually(
        "the backend releases the address, after two failures",
        || async { (env.provider.owners.0.lock().len() == 1).then_some(()) },
    )
    .await;
    env.consumer
        .wait_for_event("manual", "Warning", "NoClaim", "10.4.0.9 counts as in use")
        .await;
    consistently("other IPAddresses are kept", || async {
        exists(&env, "manual").await && exists(&env, "bound").await
    })
    .await;
    assert_eq!(env.bind("b", "pool").await, "10.4.0.2");
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_a_paused_cluster_is_not_swept() {
    let (env, _guard) = start(SWEEP, &["10.4.0.1", "10.4.0.2"]).await;
    env.consumer.create_cluster("alpha", true).await;
    let addresses = env.consumer.addresses();
    for name in ["paused", "left"] {
        env.consumer
            .create_leftover_address(name, Env::reference("pool"), "10.4.0.1")
            .await;
        if name == "paused" {
            let label = json!({"cluster.x-k8s.io/cluster-name": "alpha"});
            env.consumer
                .modify(&addresses, name, |address| {
                    address["metadata"]["labels"] = label.clone()
                })
                .await;
        }
    }
    env.consumer.wait_until_gone(&addresses, "left").await;
    consistently("it is kept", || exists(&env, "paused")).await;
    let unpause = |cluster: &mut Value| cluster["spec"]["paused"] = json!(false);
    env.consumer
        .modify(&env.consumer.clusters(), "alpha", unpause)
        .await;
    env.consumer.wait_until_gone(&addresses, "paused").await;
    env.program.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn report_only_sweep_deletes_nothing() {
    let (env, _guard) = start(
        SweepOptions {
            report_only: true,
            ..SWEEP
        },
        &["10.4.0.1"],
    )
    .await;
    abandon(&env, "a").await;
    let text = "no IPAddressClaim a exists: 10.4.0.1 counts as in use";
    env.consumer
        .wait_for_event("a", "Warning", "NoClaim", text)
        .await;
    consistently("the IPAddress is kept", || exists(&env, "a")).await;
    assert_eq!(env.provider.owners.0.lock().len(), 1);
    env.program.stop();
}
