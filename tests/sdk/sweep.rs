//! The sweep of IPAddresses without a claim.

use std::sync::atomic::Ordering;

use capi_ipam_provider::advanced::{ClaimOptions, SweepOptions};
use support::prelude::*;
use tokio::sync::{Mutex, MutexGuard};

use crate::pools::Environment;

const SWEEP: SweepOptions = SweepOptions {
    interval: Duration::from_millis(200),
    grace: Duration::from_secs(1),
    report_only: false,
};

fn pool() -> Value {
    json!({"apiGroup": "example.com", "kind": "MemoryPool", "name": "pool"})
}

/// Held by the test that sweeps: a sweep includes the namespaces of the other tests, whose
/// addresses its provider does not know.
static SWEEPING: Mutex<()> = Mutex::const_new(());

/// A provider with a sweep, and a pool with these addresses.
async fn start(sweep: SweepOptions, addresses: &[&str]) -> (Environment, MutexGuard<'static, ()>) {
    let guard = SWEEPING.lock().await;
    let env = Environment::start_with(ClaimOptions::default(), Some(sweep)).await;
    env.apply_pool("pool", &json!({ "addresses": addresses }));
    (env, guard)
}

/// Creates a claim and removes it without its IPAddress. A paused claim is not released.
async fn abandon(env: &Environment, name: &str) {
    env.create_claim(name, "pool").await;
    env.consumer.wait_for_address(name).await;
    env.consumer
        .set_paused(&env.consumer.claims(), name, true)
        .await;
    env.consumer
        .force_delete(&env.consumer.claims(), name)
        .await;
}

async fn exists(env: &Environment, name: &str) -> bool {
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
    env.consumer
        .create_address_for("manual", pool(), "10.4.0.9")
        .await;
    env.create_claim("bound", "pool").await;
    assert_eq!(env.consumer.wait_for_address("bound").await, "10.4.0.1");
    env.provider.failing_releases.store(2, Ordering::Relaxed);
    abandon(&env, "a").await;
    let text = env.event("a", "OrphanFreed").await;
    assert_eq!(
        text,
        "no IPAddressClaim a exists: deleted the IPAddress and released 10.4.0.2"
    );
    eventually("the IPAddress is deleted", || async {
        (!exists(&env, "a").await).then_some(())
    })
    .await;
    eventually(
        "the backend releases the address, after two failures",
        || async { (env.provider.owners.lock().len() == 1).then_some(()) },
    )
    .await;
    assert!(
        env.event("manual", "NoClaim")
            .await
            .contains("10.4.0.9 counts as in use")
    );
    consistently("other IPAddresses are kept", || async {
        exists(&env, "manual").await && exists(&env, "bound").await
    })
    .await;
    env.create_claim("b", "pool").await;
    assert_eq!(env.consumer.wait_for_address("b").await, "10.4.0.2");
    assert!(env.program.stop());
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_a_paused_cluster_is_not_swept() {
    let (env, _guard) = start(SWEEP, &["10.4.0.1", "10.4.0.2"]).await;
    env.consumer.create_cluster("alpha", true).await;
    let addresses = env.consumer.addresses();
    for name in ["paused", "left"] {
        env.consumer
            .create_leftover_address(name, pool(), "10.4.0.1")
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
    eventually("the other IPAddress is deleted", || async {
        (!exists(&env, "left").await).then_some(())
    })
    .await;
    consistently("it is kept", || exists(&env, "paused")).await;
    let unpause = |cluster: &mut Value| cluster["spec"]["paused"] = json!(false);
    env.consumer
        .modify(&env.consumer.clusters(), "alpha", unpause)
        .await;
    eventually("it is deleted", || async {
        (!exists(&env, "paused").await).then_some(())
    })
    .await;
    assert!(env.program.stop());
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
    let text = env.event("a", "NoClaim").await;
    assert!(
        text.starts_with("no IPAddressClaim a exists: 10.4.0.1 counts as in use"),
        "{text}"
    );
    consistently("the IPAddress is kept", || exists(&env, "a")).await;
    assert_eq!(env.provider.owners.lock().len(), 1);
    assert!(env.program.stop());
}
