//! The leader is suspended, and resumed when another manager leads.

use support::prelude::*;

use crate::workload::{create_all, delete, wait_until_settled};

const FLAGS: [&str; 6] = [
    "--leader-elect",
    "--leader-elect-lease-duration=15s",
    "--leader-elect-renew-deadline=12s",
    "--leader-elect-retry-period=500ms",
    "--sweep-interval=1s",
    "--sweep-grace=2s",
];
const SUSPENDED: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn suspended_leader_exits_and_changes_nothing_on_resume() {
    let control_plane = ControlPlane::new();
    let mut first = Manager::start(&control_plane, &FLAGS);
    first.wait_for_log("acquired leadership lease");
    let mut second = Manager::start(&control_plane, &FLAGS);
    let consumer = Consumer::new(&control_plane).await;
    consumer.create_pool("web", "10.0.0.0/24").await;
    let (early, late) = (numbered("early", 100), numbered("late", 50));
    let stop = async {
        // During its work.
        tokio::time::sleep(Duration::from_millis(400)).await;
        first.signal("STOP");
        Instant::now()
    };
    let ((), stopped) = tokio::join!(create_all(&consumer, &early, "web"), stop);
    consumer.wait_for_addresses(&early).await;
    println!(
        "all bound {:?} after the leader was suspended",
        stopped.elapsed()
    );
    second.wait_for_log("acquired leadership lease");
    // The caches of the first one are wrong now: claims of the same names have other addresses.
    for name in early.iter().step_by(4) {
        delete(&consumer, name).await;
    }
    create_all(&consumer, &late, "web").await;
    consumer.wait_for_addresses(&late).await;
    let again: Vec<String> = early.iter().step_by(4).cloned().collect();
    create_all(&consumer, &again, "web").await;
    tokio::time::sleep(SUSPENDED.saturating_sub(stopped.elapsed())).await;
    let before = consumer.allocated_addresses().await;

    first.signal("CONT");
    let (woken, patience) = (Instant::now(), Patience::new(Duration::from_secs(90)));
    while first.is_running() {
        assert!(
            !patience.is_over(),
            "the manager keeps running without the lease:\n{}",
            first.log()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!(
        "the manager exited {:?} after it was resumed",
        woken.elapsed()
    );
    assert_eq!(
        first.exit_status().and_then(|status| status.code()),
        Some(1)
    );
    assert!(
        first.log().contains("error: the lease was lost"),
        "{}",
        first.log()
    );
    let all: Vec<String> = early.into_iter().chain(late).collect();
    wait_until_settled(&consumer, &all).await;
    for (name, address) in consumer.allocated_addresses().await {
        assert!(
            before.get(&name).is_none_or(|known| *known == address),
            "{name} had {before:?} and has {address}"
        );
    }
    assert!(second.is_running());
}
