//! etcd is restored from a snapshot.
//!
//! Objects created after the snapshot do not exist: claims, their addresses and reservations.
//! Claims bound after it are unbound again, and get an address, possibly another one. Operators
//! must recreate the machines whose claims were lost; the provider must ensure that no address has
//! two live claims. As with any restore, the API server is restarted, since it does not detect it.

use support::{
    prelude::*,
    snapshot::{restore_snapshot, take_snapshot},
    wait::{MESSAGE_TIMEOUT, eventually_ok_within},
};

use crate::workload::{create_all, delete, wait_until_settled};

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];

/// Takes a snapshot, creates and releases claims, restores the snapshot, and creates more claims.
/// With `restart` the manager is stopped before the restore and started after it.
async fn assert_recovers_from_a_restore(restart: bool) {
    let (mut control_plane, mut manager, consumer) = scene_with_manager(&FLAGS).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.60").await;
    let (old, kept) = (numbered("old", 10), numbered("kept", 10));
    for claims in [&old, &kept] {
        create_all(&consumer, claims, "web").await;
    }
    wait_until_settled(&consumer, &[old.clone(), kept.clone()].concat()).await;
    let before = consumer.allocated_addresses().await;
    take_snapshot(&mut control_plane);

    // These changes are lost: the old claims are released, others get their addresses, and a pool
    // is exhausted.
    for name in &old {
        delete(&consumer, name).await;
    }
    let new = numbered("new", 55);
    create_all(&consumer, &new, "web").await;
    consumer
        .wait_for_reason(&wait_for_exhausted(&consumer, &new).await, "PoolExhausted")
        .await;
    wait_until_full(&consumer).await;
    if restart {
        manager.stop();
    }
    restore_snapshot(&mut control_plane);
    if restart {
        manager = Manager::start(&control_plane, &FLAGS);
    }
    let restored = Instant::now();
    if !restart {
        // One watch sees it, and all list again.
        support::wait::until("the manager notices the restore", async || {
            Some(manager.log().contains("the resourceVersion has decreased"))
        })
        .await;
        println!(
            "the restore is noticed {:?} after the start of the API server",
            restored.elapsed()
        );
    }

    wait_until_only_these_are_allocated(&consumer, &before).await;
    let after = numbered("after", 40);
    create_all(&consumer, &after, "web").await;
    consumer.wait_for_addresses(&after).await;
    println!(
        "restart: {restart}; 40 claims bound {:?} after the restore",
        restored.elapsed()
    );
    let given = consumer.allocated_addresses().await;
    assert!(
        before
            .iter()
            .all(|(name, address)| given.get(name) == Some(address)),
        "{before:?} {given:?}"
    );
    // The pool has exactly as many addresses as claims exist: no address is held for a lost claim.
    wait_until_settled(&consumer, &[old.clone(), kept, after].concat()).await;
    consumer.wait_for_counts("web", (60, 0, 60, 0)).await;
    // Releases are observed.
    delete(&consumer, &old[0]).await;
    wait_until_one_is_free(&consumer).await;
    assert!(manager.is_running(), "{}", manager.log());
}

/// Waits until exactly the addresses of the snapshot are allocated. A manager that has not listed
/// the claims again can create an IPAddress for a lost claim that waited; it deletes the IPAddress
/// when it finds that the claim is gone. The addresses of the snapshot are in use at any time.
async fn wait_until_only_these_are_allocated(
    consumer: &Consumer,
    before: &BTreeMap<String, String>,
) {
    eventually_ok_within(
        MESSAGE_TIMEOUT,
        "only the restored addresses are in use",
        || async {
            let given = consumer.allocated_addresses().await;
            assert!(
                before
                    .iter()
                    .all(|(name, address)| given.get(name) == Some(address)),
                "{before:?} {given:?}"
            );
            let others: Vec<_> = given
                .iter()
                .filter(|(name, _)| !before.contains_key(*name))
                .collect();
            if others.is_empty() {
                Ok(())
            } else {
                Err(format!("also in use: {others:?}"))
            }
        },
    )
    .await;
}

/// Waits until one of these claims reports an exhausted pool, and returns its name.
async fn wait_for_exhausted(consumer: &Consumer, names: &[String]) -> String {
    support::wait::eventually("one waits", || async {
        let given = consumer.allocated_addresses().await;
        (given.len() == 60)
            .then(|| {
                names
                    .iter()
                    .find(|name| !given.contains_key(*name))
                    .cloned()
            })
            .flatten()
    })
    .await
}

/// Waits until one address is free. The watches that the restore has interrupted are started again
/// with growing delays.
async fn wait_until_one_is_free(consumer: &Consumer) {
    eventually_ok_within(
        MESSAGE_TIMEOUT,
        "one address of the pool is free",
        || async {
            let pool = consumer
                .pools()
                .get("web")
                .await
                .map_err(|error| error.to_string())?
                .ok_or("it does not exist")?;
            let counts = pool
                .status
                .and_then(|status| status.ip_addresses)
                .unwrap_or_default();
            if (counts.free, counts.used) == (1, 59) {
                return Ok(());
            }
            let reservations = consumer
                .reservations()
                .list()
                .await
                .map_err(|error| error.to_string())?;
            let given = consumer.allocated_addresses().await;
            let unused = reservations
                .iter()
                .filter(|known| !given.values().any(|value| *value == known.spec.address));
            Err(format!(
                "{counts:?}, reserved without an IPAddress: {:?}",
                unused.collect::<Vec<_>>()
            ))
        },
    )
    .await;
}

async fn wait_until_full(consumer: &Consumer) {
    consumer.wait_for_counts("web", (60, 0, 60, 0)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_manager_recovers_from_an_etcd_restore() {
    assert_recovers_from_a_restore(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_manager_recovers_from_an_etcd_restore() {
    assert_recovers_from_a_restore(false).await;
}
