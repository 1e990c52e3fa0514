//! Sticky addresses with restarts, a change of the leader and several managers.

use support::prelude::*;

const LEADER: [&str; 1] = ["--leader-elect"];

async fn with_pool(plane: &ControlPlane, change: Value) -> Consumer {
    let consumer = Consumer::new(plane).await;
    let mut spec =
        json!({"addresses": ["10.0.0.1-10.0.0.99"], "prefix": 24, "allocation": {"sticky": true}});
    json_patch::merge(&mut spec, &change);
    consumer.create_pool("pool", spec).await;
    consumer
}

#[tokio::test(flavor = "multi_thread")]
async fn sticky_address_survives_a_restart_and_a_change_of_leader() {
    let plane = ControlPlane::new();
    let mut first = Manager::start(&plane, &LEADER);
    let consumer = with_pool(&plane, json!({})).await;
    let names = ["a", "b", "c", "d"].map(str::to_owned);
    for name in &names {
        consumer.bind(name, "pool").await;
    }
    let before = consumer.allocated_addresses().await;
    consumer.release_all(&names).await;
    first.kill();

    let mut first = Manager::start(&plane, &LEADER);
    for name in ["d", "b", "new"] {
        consumer.create_claim(name, "pool").await;
        let address = consumer.wait_for_address(name).await;
        assert_eq!(
            &address,
            before.get(name).map_or("10.0.0.5", String::as_str),
            "after a restart"
        );
    }
    let standby = Manager::start(&plane, &LEADER);
    first.stop();
    for name in ["c", "a"] {
        consumer.create_claim(name, "pool").await;
        assert_eq!(
            consumer.wait_for_address(name).await,
            before[name],
            "after a change of the leader"
        );
    }
    // Without the policy, nothing is kept.
    consumer.release("new").await;
    consumer
        .modify_pool("pool", |spec| spec["allocation"] = json!(null))
        .await;
    until("the reservation is deleted", || async {
        Some(consumer.reservation("pool", "10.0.0.5").await.is_none())
    })
    .await;
    drop(standby);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_never_give_one_former_address_to_two_claims() {
    let plane = ControlPlane::new();
    let _managers = [Manager::start(&plane, &[]), Manager::start(&plane, &[])];
    for cooldown in [0, 600] {
        let consumer = with_pool(&plane, json!({"addressReuseGracePeriodSeconds": cooldown})).await;
        let names: Vec<String> = numbered("c", 27);
        for part in names.chunks(4).rev() {
            consumer.create_claims(part, "pool").await;
            consumer.wait_for_addresses(part).await;
        }
        let before = consumer.allocated_addresses().await;
        for _ in 0..3 {
            consumer.release_all(&names).await;
            consumer.create_claims(&names, "pool").await;
            consumer.wait_for_addresses(&names).await;
            let after = consumer.allocated_addresses().await;
            let distinct: BTreeSet<&String> = after.values().collect();
            assert_eq!(distinct.len(), names.len(), "cool-down {cooldown}");
            // A manager that does not know of the latest writes of the other can choose another
            // address.
            let kept = names
                .iter()
                .filter(|name| after[*name] == before[*name])
                .count();
            println!(
                "cool-down {cooldown}: {kept} of {} claims have their former address",
                names.len()
            );
        }
    }
}
