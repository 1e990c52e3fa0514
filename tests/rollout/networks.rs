//! Pools that join a network while they are in use, while the manager is killed, and while another
//! controller overwrites them.

use std::collections::HashMap;

use capi_ipam_api::{IPReservation, MemberPhase, conditions};
use support::prelude::*;

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=1s"];

/// Waits until claims are bound to different addresses, none of which is the one in use.
pub(crate) async fn wait_for_other_addresses(consumer: &Consumer, claims: &[&str], in_use: &str) {
    let claims: Vec<String> = claims.iter().map(ToString::to_string).collect();
    let bound = consumer.wait_for_addresses(&claims).await;
    let addresses: BTreeSet<&str> = bound.values().map(String::as_str).collect();
    assert_eq!(addresses.len(), claims.len(), "{addresses:?}");
    assert!(!addresses.contains(in_use), "{addresses:?}");
}

/// The reservations of a scope: address, and the claim that holds it.
async fn reserved(consumer: &Consumer, scope: &str) -> BTreeMap<String, String> {
    let all = consumer
        .reservations()
        .list()
        .await
        .expect("reservations can be listed");
    let of_scope = all.into_iter().filter(|found| found.spec.scope == scope);
    let holder = |found: IPReservation| Some((found.spec.address, found.spec.claim_ref?.name));
    of_scope.filter_map(holder).collect()
}

/// Waits until a pool belongs to a network with all its addresses.
async fn wait_until_joined(consumer: &Consumer, pool: &str) {
    until_within(
        Duration::from_mins(2),
        "the pool has joined the network",
        async || {
            let status = consumer
                .pools()
                .get(pool)
                .await
                .expect("pools can be read")?
                .status?;
            Some(status.network?.phase == MemberPhase::Member)
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_joins_a_network_while_the_manager_is_killed() {
    let (control_plane, mut manager, consumer) = scene_with_manager(&FLAGS).await;
    consumer
        .create_pool("web", json!({"addresses": ["10.0.0.0/22"], "prefix": 22}))
        .await;
    let first = numbered("a", 150);
    consumer.create_claims(&first, "web").await;
    let before = consumer.wait_for_addresses(&first).await;

    consumer
        .create_network("lab", json!({"namespaces": {"from": "All"}, "pools": {}}))
        .await;
    let (kept, released) = first.split_at(100);
    let second = numbered("b", 50);
    let churn = async {
        for (claim, gone) in second.iter().zip(released) {
            consumer.create_claim(claim, "web").await;
            consumer.delete(gone).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let kills = async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(900)).await;
            manager.kill();
            manager = Manager::start(&control_plane, &FLAGS);
        }
    };
    tokio::join!(churn, kills);
    for name in released {
        consumer.wait_until_deleted(name).await;
    }
    let after = consumer.wait_for_addresses(&[kept, &second].concat()).await;
    wait_until_joined(&consumer, "web").await;
    assert!(
        kept.iter().all(|name| before[name] == after[name]),
        "bound claims keep their addresses"
    );
    let by_address: HashMap<_, _> = after
        .iter()
        .map(|(claim, address)| (address.clone(), claim.clone()))
        .collect();
    assert_eq!(by_address.len(), 150, "each address is allocated once");
    eventually(
        "each address is reserved in the network, and nowhere else",
        async || {
            let inside = reserved(&consumer, "n.lab").await;
            let is_complete = inside.len() == 150
                && inside
                    .iter()
                    .all(|(address, claim)| by_address.get(address) == Some(claim));
            let outside = reserved(&consumer, &format!("p.{}.web", consumer.namespace)).await;
            (is_complete && outside.is_empty()).then_some(())
        },
    )
    .await;
}

/// Writes the whole specification of a pool, as controllers do that own it.
async fn overwrite(consumer: &Consumer, pool: &str, spec: &Value) {
    consumer
        .modify(&consumer.pools(), pool, |object| {
            object["spec"] = spec.clone()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn network_of_all_pools_holds_for_pools_that_others_overwrite() {
    let (control_plane, _manager, one) = scene_with_manager(&FLAGS).await;
    let two = Consumer::new(&control_plane).await;
    // Each cluster has a pool with the same addresses.
    let spec = json!({"addresses": ["10.0.0.10-10.0.0.99"], "prefix": 24, "gateway": "10.0.0.1"});
    let other = json!({"addresses": ["10.0.0.1-10.0.0.99"], "prefix": 24, "gateway": "10.0.0.10"});
    one.create_pool("v4", spec.clone()).await;
    two.create_pool("v4", other.clone()).await;
    let (own, twice) = (numbered("own", 20), numbered("twice", 1));
    one.create_claims(&own, "v4").await;
    let own = one.wait_for_addresses(&own).await;
    two.create_claims(&twice, "v4").await;
    assert_eq!(
        two.wait_for_addresses(&twice).await["twice0"],
        "10.0.0.1",
        "the gateway of the other pool"
    );

    one.create_network(
        "everything",
        json!({"namespaces": {"from": "All"}, "pools": {}}),
    )
    .await;
    let writes = async {
        for round in 0..20_u32 {
            for (consumer, spec) in [(&one, &spec), (&two, &other)] {
                let mut spec = spec.clone();
                // Another generation each time.
                spec["addressReuseGracePeriodSeconds"] = json!(round % 2);
                overwrite(consumer, "v4", &spec).await;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let late = numbered("late", 20);
    let claims = async {
        wait_until_joined(&one, "v4").await;
        wait_until_joined(&two, "v4").await;
        tokio::join!(
            one.create_claims(&late, "v4"),
            two.create_claims(&late, "v4")
        );
        (
            one.wait_for_addresses(&late).await,
            two.wait_for_addresses(&late).await,
        )
    };
    let ((), (in_one, in_two)) = tokio::join!(writes, claims);
    let mut all: Vec<String> = own
        .values()
        .chain(in_one.values())
        .chain(in_two.values())
        .cloned()
        .collect();
    assert!(
        !in_one
            .values()
            .chain(in_two.values())
            .any(|address| address == "10.0.0.1" || address == "10.0.0.10")
    );
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 60, "one address space");
    for consumer in [&one, &two] {
        let pool = consumer.the_pool("v4").await;
        assert_eq!(
            pool.spec.network(),
            None,
            "nothing is written into the specification"
        );
    }
}

/// A controller with the types of the Go provider removes the fields that it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn pool_in_use_that_loses_its_network_stays_in_it() {
    let (control_plane, mut manager, consumer) = scene_with_manager(&FLAGS).await;
    consumer.create_open_network("lab").await;
    let known = json!({"addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24});
    for pool in ["a", "b"] {
        let mut spec = known.clone();
        spec["network"] = json!("lab");
        spec["excludedAddresses"] = json!(["10.0.0.12"]);
        consumer.create_pool(pool, spec).await;
    }
    consumer.bind_to("a0", "a", "10.0.0.10").await;
    overwrite(&consumer, "a", &known).await;
    let text = consumer
        .wait_for_condition(
            &consumer.pools(),
            "a",
            conditions::KEPT_IN_NETWORK,
            "True",
            "AddressesInUse",
        )
        .await;
    assert!(
        text.starts_with("spec.network was removed (last recorded writer of the pool: "),
        "{text}"
    );
    let removed = "spec.network, spec.excludedAddresses was removed";
    consumer
        .wait_for_event("a", "Warning", conditions::FIELDS_REMOVED, removed)
        .await;
    // Also after a restart.
    for (claim, pool) in [("b0", "b"), ("a1", "a")] {
        manager.kill();
        manager = Manager::start(&control_plane, &FLAGS);
        consumer.create_claim(claim, pool).await;
    }
    wait_for_other_addresses(&consumer, &["b0", "a1"], "10.0.0.10").await;
    // It leaves when nothing of it is in use.
    for claim in ["a0", "a1"] {
        consumer.release(claim).await;
    }
    eventually("the pool is in no network", async || {
        let pool = consumer.pools().get("a").await.ok()??;
        let status = pool.status?;
        let is_kept = conditions::find(&status.conditions, conditions::KEPT_IN_NETWORK).is_some();
        (status.network.is_none() && !is_kept).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_in_use_twice_are_reported_when_pools_join() {
    let (_plane, _manager, consumer) = scene_with_manager(&FLAGS).await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24});
    for pool in ["p", "q"] {
        consumer.create_pool(pool, spec.clone()).await;
        consumer.create_claims(&numbered(pool, 2), pool).await;
        let bound = consumer.wait_for_addresses(&numbered(pool, 2)).await;
        assert_eq!(
            bound
                .values()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>(),
            ["10.0.0.1", "10.0.0.2"]
        );
    }
    consumer
        .create_network("lab", json!({"namespaces": {"from": "All"}, "pools": {}}))
        .await;
    // For each address, one of the two claims holds the reservation in the network.
    let holders = eventually("both addresses are reserved in the network", async || {
        let holders = reserved(&consumer, "n.lab").await;
        (holders.len() == 2).then_some(holders)
    })
    .await;
    let all = [numbered("p", 2), numbered("q", 2)].concat();
    let others: Vec<_> = all
        .iter()
        .filter(|claim| !holders.values().any(|holder| holder == *claim))
        .collect();
    assert_eq!(others.len(), 2);
    for claim in &others {
        eventually("the claim reports the duplicate", async || {
            let claim = consumer
                .claims()
                .get(claim)
                .await
                .expect("claims can be read")?;
            (ready(&claim).reason.as_deref() == Some("DuplicateAddress")).then_some(())
        })
        .await;
    }
    // Nothing is freed. New claims get other addresses.
    assert_eq!(consumer.allocated_addresses().await.len(), 4);
    consumer.bind_to("new", "p", "10.0.0.3").await;
    // The machines of the others are replaced.
    for claim in others {
        consumer.release(claim).await;
    }
    wait_until_joined(&consumer, "p").await;
    wait_until_joined(&consumer, "q").await;
}
