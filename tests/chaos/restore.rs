//! etcd goes back to what it was some time ago, as after a restore from a snapshot.
//!
//! What was made after the snapshot is gone: claims, their addresses and the reservations of these. Claims bound after it
//! are unbound again, and get an address as if nothing had happened, perhaps another one. Whoever runs into this has to
//! make the machines anew whose claims are gone; what the provider has to see to is that no address has two live claims.
//! As with any restore, the API server is restarted, since it does not notice either.

use std::path::Path;
use std::time::{Duration, Instant};

use capi_ipam::support::consumer::Consumer;
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::workload::{make_all, names, settles, unmake};
use serde_json::json;

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder can be made");
    for entry in std::fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// Stops etcd and the API server, does something with the data, and starts them again.
fn with_data(control_plane: &mut ControlPlane, change: impl FnOnce(&Path, &Path)) {
    control_plane.stop_api_server();
    control_plane.stop_etcd();
    change(&control_plane.etcd_data(), &control_plane.folder().join("snapshot"));
    control_plane.start_etcd();
    control_plane.start_api_server();
}

/// Takes a snapshot, has much happen, goes back to the snapshot, and has more happen. With `restart` the manager is
/// stopped before the restore and started after it.
async fn goes_on_after_a_restore(restart: bool) {
    let mut control_plane = ControlPlane::start(Options::default());
    let mut manager = Manager::start(&control_plane, &FLAGS).may_lack_permissions();
    let consumer = Consumer::new(&control_plane).await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.60"], "prefix": 24})).await;
    let (old, kept) = (names("old", 10), names("kept", 10));
    for claims in [&old, &kept] {
        make_all(&consumer, claims, "web").await;
    }
    settles(&consumer, "web", &[old.clone(), kept.clone()].concat()).await;
    let before = consumer.given().await;
    with_data(&mut control_plane, copy);

    // What will not have happened: the old ones go, others get their addresses, and a pool is used up.
    for name in &old {
        unmake(&consumer, name).await;
    }
    let new = names("new", 55);
    make_all(&consumer, &new, "web").await;
    consumer.waits_for(&exhausted(&consumer, &new).await, "PoolExhausted").await;
    settles_full(&consumer).await;
    if restart {
        manager.stop();
    }
    with_data(&mut control_plane, |data, snapshot| {
        std::fs::remove_dir_all(data).expect("the data can be removed");
        copy(snapshot, data);
    });
    if restart {
        manager = Manager::start(&control_plane, &FLAGS).may_lack_permissions();
    }
    let restored = Instant::now();

    assert_eq!(consumer.given().await, before, "the restored addresses are in use again");
    let after = names("after", 40);
    make_all(&consumer, &after, "web").await;
    consumer.all_bound(&after).await;
    println!("restart: {restart}; 40 claims bound {:?} after the restore", restored.elapsed());
    let given = consumer.given().await;
    assert!(before.iter().all(|(name, address)| given.get(name) == Some(address)), "{before:?} {given:?}");
    // The pool has exactly as many as there are claims: nothing is held for what is gone.
    settles(&consumer, "web", &[old.clone(), kept, after].concat()).await;
    consumer.counts("web", (60, 0, 60, 0)).await;
    // And what is released is seen.
    unmake(&consumer, &old[0]).await;
    consumer.counts("web", (60, 1, 59, 0)).await;
    assert!(manager.is_running(), "{}", manager.log());
}

/// One of these claims that has no address.
async fn exhausted(consumer: &Consumer, names: &[String]) -> String {
    crate::support::consumer::eventually("one waits", || async {
        let given = consumer.given().await;
        (given.len() == 60).then(|| names.iter().find(|name| !given.contains_key(*name)).cloned()).flatten()
    })
    .await
}

async fn settles_full(consumer: &Consumer) {
    consumer.counts("web", (60, 0, 60, 0)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_restarted_goes_on_after_a_restore() {
    goes_on_after_a_restore(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_runs_notices_a_restore() {
    goes_on_after_a_restore(false).await;
}
