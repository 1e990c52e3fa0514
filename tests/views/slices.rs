//! Slices with two managers that both serve all claims.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::consumer::{Consumer, ready};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::manager::Manager;
use crate::support::wait::eventually_within;

const KIND: &str = "GlobalInClusterIPPool";
/// The number of races.
const ROUNDS: usize = 200;

fn of(owner: &str) -> Value {
    json!({"labels": {"rack": owner}})
}

/// The owner of a claim, which its name begins with.
fn owner_of(claim: &str) -> &str {
    claim.split('-').next().unwrap_or_default()
}

async fn create_pool(consumer: &Consumer, addresses: &str, size: u8) {
    let slices = json!({"size": size, "per": "Label", "label": "rack"});
    consumer.create_global_pool("shared", json!({"addresses": [addresses], "prefix": 16, "slices": slices})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_race_for_the_last_slice() {
    let plane = ControlPlane::start(Options::default());
    let consumer = Consumer::new(&plane).await;
    let flags = ["--sweep-interval=100ms", "--sweep-grace=0s"];
    let _managers = [Manager::start(&plane, &flags), Manager::start(&plane, &flags)];
    create_pool(&consumer, "10.0.0.4-10.0.0.7", 4).await;
    for round in 0..ROUNDS {
        let names = ["a", "b", "c", "d"].map(|owner| format!("{owner}-{round}"));
        join_all(names.iter().map(|name| consumer.create_claim_with(name, KIND, "shared", of(owner_of(name))))).await;
        let bound =
            eventually_within(Duration::from_mins(1), "one owner has the slice, and the others wait", || async {
                let claims = consumer.claims().list().await.expect("claims can be read");
                let bound: Vec<_> = claims.iter().filter(|claim| claim.bound_address().is_some()).collect();
                assert!(bound.len() <= 1, "{} claims of different owners are bound", bound.len());
                let waits = |reason: &str| reason == "NoFreeSlice" || reason == "AddressAllocated";
                let is_done = claims.iter().all(|claim| ready(claim).reason.is_some_and(|reason| waits(&reason)));
                (is_done && bound.len() == 1).then(|| bound[0].metadata.name.clone().expect("claims have names"))
            })
            .await;
        let slices = consumer.slices().list().await.expect("slices can be listed");
        assert_eq!(slices.len(), 1, "round {round}");
        assert_eq!(slices[0].spec.owner.name, owner_of(&bound), "round {round}");
        join_all(names.iter().map(|name| consumer.delete(name))).await;
        join_all(names.iter().map(|name| consumer.wait_until_deleted(name))).await;
        eventually_within(Duration::from_mins(1), "the slice is returned", || async {
            consumer.slices().list().await.expect("slices can be listed").is_empty().then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_keep_owners_apart() {
    let plane = ControlPlane::start(Options::default());
    let consumer = Consumer::new(&plane).await;
    let managers = [Manager::start(&plane, &[]), Manager::start(&plane, &[])];
    create_pool(&consumer, "10.0.0.0-10.0.3.255", 16).await;
    let owners: Vec<String> = (0..12).map(|number| format!("r{number}")).collect();
    let names: Vec<String> =
        owners.iter().flat_map(|owner| (0..20).map(move |number| format!("{owner}-{number}"))).collect();
    let create = |name: &String| {
        let owner = owner_of(name).to_owned();
        let (name, consumer) = (name.clone(), consumer.clone());
        async move { consumer.create_claim_with(&name, KIND, "shared", of(&owner)).await }
    };
    join_all(names.iter().map(create)).await;
    let addresses = consumer.wait_for_addresses(&names).await;
    let mut owners_of = BTreeMap::<String, BTreeSet<&str>>::new();
    for (name, address) in &addresses {
        let (rest, last) = address.rsplit_once('.').expect("an IPv4 address");
        let first = last.parse::<u8>().expect("a number") / 16 * 16;
        owners_of.entry(format!("{rest}.{first}/28")).or_default().insert(owner_of(name));
    }
    let slices = consumer.slices().list().await.expect("slices can be listed");
    for (block, owners) in owners_of {
        let slice = slices.iter().find(|slice| slice.spec.block == block).expect("the block is a slice");
        assert_eq!(owners, BTreeSet::from([slice.spec.owner.name.as_str()]), "{block}");
    }
    drop(managers);
}
