//! Slices with two managers that both serve all claims.

use futures::{StreamExt, stream};
use support::prelude::*;

const KIND: &str = "GlobalInClusterIPPool";
/// The number of pools with one slice each, and how many of them are created at a time.
const RACES: usize = 200;
const RACES_AT_ONCE: usize = 10;

fn of(owner: &str) -> Value {
    json!({"labels": {"rack": owner}})
}

/// The owner of a claim, which its name begins with.
fn owner_of(claim: &str) -> &str {
    claim.split('-').next().unwrap_or_default()
}

async fn create_pool(consumer: &Consumer, name: &str, addresses: &str, size: u8) {
    let slices = json!({"size": size, "per": "Label", "label": "rack"});
    consumer
        .create_global_pool(
            name,
            json!({"addresses": [addresses], "prefix": 16, "slices": slices}),
        )
        .await;
}

fn pool_of(race: usize) -> String {
    format!("pool-{race}")
}

/// The claims of four owners for the pool of a race.
fn names_of(race: usize) -> [String; 4] {
    ["a", "b", "c", "d"].map(|owner| format!("{owner}-{race}"))
}

/// Creates a pool with one slice, and then claims of four owners at the same time.
async fn start_race(consumer: &Consumer, race: usize) {
    let (pool, names) = (pool_of(race), names_of(race));
    create_pool(consumer, &pool, &format!("10.0.{race}.4-10.0.{race}.7"), 4).await;
    join_all(
        names
            .iter()
            .map(|name| consumer.create_claim_with(name, KIND, &pool, of(owner_of(name)))),
    )
    .await;
}

/// The owner whose claim is bound, if the claims of all owners are bound or wait. The pool has one
/// slice.
fn winner(claims: &[IPAddressClaim], race: usize) -> Option<String> {
    let pool = pool_of(race);
    let claims: Vec<_> = claims
        .iter()
        .filter(|claim| claim.spec.pool_ref.name == pool)
        .collect();
    let bound: Vec<_> = claims
        .iter()
        .filter(|claim| claim.bound_address().is_some())
        .collect();
    assert!(
        bound.len() <= 1,
        "{} claims of different owners are bound in {pool}",
        bound.len()
    );
    let waits = |reason: &str| reason == "NoFreeSlice" || reason == "AddressAllocated";
    let is_done = claims
        .iter()
        .all(|claim| ready(claim).reason.is_some_and(|reason| waits(&reason)));
    let name = bound.first()?.metadata.name.as_deref()?;
    (is_done && claims.len() == names_of(race).len()).then(|| owner_of(name).to_owned())
}

/// No slice is returned meanwhile: with a short grace period, a manager returns one before it
/// observes that the other manager has allocated an address of it.
#[tokio::test(flavor = "multi_thread")]
async fn two_managers_race_for_the_last_slice() {
    let (plane, consumer) = scene().await;
    let _managers = [Manager::start(&plane, &[]), Manager::start(&plane, &[])];
    let races: Vec<usize> = (0..RACES).collect();
    for races in races.chunks(RACES_AT_ONCE) {
        join_all(races.iter().map(|race| start_race(&consumer, *race))).await;
        let what = "one owner has the slice of each pool, and the others wait";
        let winners = eventually_within(Duration::from_mins(2), what, || async {
            let claims = consumer.claims().list().await.ok()?;
            races
                .iter()
                .map(|race| winner(&claims, *race))
                .collect::<Option<Vec<_>>>()
        })
        .await;
        let slices = consumer
            .slices()
            .list()
            .await
            .expect("slices can be listed");
        for (race, winner) in races.iter().zip(winners) {
            let scope = format!("g.{}", pool_of(*race));
            let owners = slices
                .iter()
                .filter(|slice| slice.spec.scope == scope)
                .map(|slice| &slice.spec.owner.name);
            assert_eq!(owners.collect::<Vec<_>>(), [&winner], "{scope}");
        }
        let names: Vec<String> = races.iter().flat_map(|race| names_of(*race)).collect();
        consumer.delete_all(&names).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_keep_owners_apart() {
    let (plane, consumer) = scene().await;
    let managers = [Manager::start(&plane, &[]), Manager::start(&plane, &[])];
    create_pool(&consumer, "shared", "10.0.0.0-10.0.3.255", 16).await;
    let owners: Vec<String> = numbered("r", 12);
    let names: Vec<String> = owners
        .iter()
        .flat_map(|owner| (0..20).map(move |number| format!("{owner}-{number}")))
        .collect();
    let create = |name| consumer.create_claim_with(name, KIND, "shared", of(owner_of(name)));
    stream::iter(&names)
        .for_each_concurrent(16, |name| async { drop(create(name).await) })
        .await;
    let addresses = consumer.wait_for_addresses(&names).await;
    let mut owners_of = BTreeMap::<String, BTreeSet<&str>>::new();
    for (name, address) in &addresses {
        let (rest, last) = address.rsplit_once('.').expect("an IPv4 address");
        let first = last.parse::<u8>().expect("a number") / 16 * 16;
        owners_of
            .entry(format!("{rest}.{first}/28"))
            .or_default()
            .insert(owner_of(name));
    }
    let slices = consumer
        .slices()
        .list()
        .await
        .expect("slices can be listed");
    for (block, owners) in owners_of {
        let slice = slices
            .iter()
            .find(|slice| slice.spec.block == block)
            .expect("the block is a slice");
        assert_eq!(
            owners,
            BTreeSet::from([slice.spec.owner.name.as_str()]),
            "{block}"
        );
    }
    drop(managers);
}
