//! The order of allocation, with restarts and several managers.

use support::prelude::*;

const LEADER: [&str; 1] = ["--leader-elect"];

/// Creates a claim and waits for its address. Returns the last part of the address.
async fn allocate(consumer: &Consumer, claim: &str) -> String {
    consumer.create_claim(claim, "ring").await;
    let address = consumer.wait_for_address(claim).await;
    address.rsplit('.').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn round_robin_continues_after_a_restart_and_a_change_of_leader() {
    let (control_plane, mut first, consumer) = scene_with_manager(&LEADER).await;
    consumer
        .create_pool(
            "ring",
            (
                "10.0.0.1-10.0.0.9",
                json!({"allocation": {"order": "RoundRobin"}}),
            ),
        )
        .await;
    for (claim, address) in [("a", "1"), ("b", "2"), ("c", "3")] {
        assert_eq!(allocate(&consumer, claim).await, address);
    }
    consumer.release("a").await;
    assert_eq!(
        allocate(&consumer, "d").await,
        "4",
        "the released address is not the next one"
    );

    first.kill();
    let mut first = Manager::start(&control_plane, &LEADER);
    assert_eq!(allocate(&consumer, "e").await, "5", "after a restart");

    let mut standby = Manager::start(&control_plane, &LEADER);
    first.stop();
    assert_eq!(
        allocate(&consumer, "f").await,
        "6",
        "after a change of the leader"
    );
    for (claim, address) in [("g", "7"), ("h", "8"), ("i", "9"), ("j", "1")] {
        assert_eq!(
            allocate(&consumer, claim).await,
            address,
            "after the highest address follows the lowest one"
        );
    }
    assert_eq!(
        consumer
            .reservations()
            .list()
            .await
            .expect("they can be listed")
            .len(),
        9
    );
    standby.stop();

    // The order can be changed at any time.
    let _manager = Manager::start(&control_plane, &LEADER);
    consumer.release("c").await;
    consumer.release("i").await;
    let lowest = json!({"spec": {"allocation": null}}).to_string();
    let namespace = consumer.namespace.as_str();
    control_plane.kubectl(&[
        "patch",
        "inclusterippool",
        "ring",
        "-n",
        namespace,
        "--type=merge",
        "-p",
        &lowest,
    ]);
    assert_eq!(allocate(&consumer, "k").await, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn round_robin_continues_in_a_slice_after_a_restart() {
    let (control_plane, mut manager, consumer) = scene_with_manager(&[]).await;
    let slices = json!({"size": 8, "per": "Namespace", "mostEach": 1});
    let order = json!({"order": "RoundRobin"});
    let spec =
        json!({"addresses": ["10.0.0.0/27"], "prefix": 27, "slices": slices, "allocation": order});
    consumer.create_pool("ring", spec).await;
    for (claim, address) in [("a", "1"), ("b", "2"), ("c", "3")] {
        assert_eq!(allocate(&consumer, claim).await, address);
    }
    consumer.release("a").await;
    manager.kill();
    let _manager = Manager::start(&control_plane, &[]);
    for (claim, address) in [("d", "4"), ("e", "5"), ("f", "6"), ("g", "7"), ("h", "1")] {
        assert_eq!(allocate(&consumer, claim).await, address, "after a restart");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_order_allocates_each_address_once_with_two_managers() {
    let control_plane = ControlPlane::new();
    // Each claim that both serve at once may have two reservations, until the sweeper deletes one
    // of them.
    let flags = ["--sweep-interval=1s", "--sweep-grace=2s"];
    let managers = [
        Manager::start(&control_plane, &flags),
        Manager::start(&control_plane, &flags),
    ];
    let consumer = Consumer::new(&control_plane).await;
    consumer
        .create_pool(
            "ring",
            (
                "10.0.0.1-10.0.0.60",
                json!({"allocation": {"order": "Random"}}),
            ),
        )
        .await;
    let names: Vec<String> = numbered("c", 60);
    consumer.create_claims(&names, "ring").await;
    let addresses = consumer.wait_for_addresses(&names).await;
    let mut allocated: Vec<_> = names.iter().map(|name| addresses[name].clone()).collect();
    let in_order_of_claims = allocated.clone();
    allocated.sort();
    assert!(allocated != in_order_of_claims, "the addresses are random");
    allocated.dedup();
    assert_eq!(allocated.len(), 60);
    drop(managers);
}
