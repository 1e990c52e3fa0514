//! Many claims, and managers that are killed, restarted, and assigned to other namespaces. Each of
//! two namespaces has 150 claims, or the number in the variable `CAPI_IPAM_OBJECTS`.

use std::collections::HashSet;

use support::prelude::*;

use crate::{
    GLOBAL, serving, serving_namespace,
    versions::{Versions, assert_same, at_rest, holdings},
};

/// The addresses of the network 10.0.0.0/16 that can be allocated.
const ADDRESSES: usize = 65_534;

/// How many claims each namespace has.
fn claim_count() -> usize {
    std::env::var("CAPI_IPAM_OBJECTS").map_or(150, |count| {
        count.parse().expect("CAPI_IPAM_OBJECTS is a number")
    })
}

/// The counts of a pool with `used` addresses in use: total, free, used and out of range.
fn counts(used: usize) -> (i64, i64, i64, i64) {
    let count = |number| i64::try_from(number).expect("it is a small number");
    (count(ADDRESSES), count(ADDRESSES - used), count(used), 0)
}

/// The address of each claim of both namespaces; none is bound twice.
async fn addresses(teams: [&Consumer; 2], names: &[String]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for team in teams {
        let bound = team.wait_for_addresses(names).await;
        all.extend(
            bound
                .into_iter()
                .map(|(name, address)| (format!("{}/{name}", team.namespace), address)),
        );
    }
    assert_eq!(
        all.values().collect::<HashSet<_>>().len(),
        all.len(),
        "no address is bound twice"
    );
    all
}

/// Waits until writing has ended, and asserts that no claim, IPAddress or reservation has changed.
async fn assert_wrote_nothing(what: &str, consumer: &Consumer, before: &Versions) {
    at_rest(consumer).await;
    assert_same(what, before, &holdings(consumer).await);
}

/// Waits until there is one reservation for each claim of both namespaces, and returns what is
/// held.
async fn with_one_reservation_each(consumer: &Consumer) -> Versions {
    eventually_within(
        Duration::from_mins(3),
        "there is one reservation for each claim",
        || async {
            let held = holdings(consumer).await;
            let reservations = held
                .keys()
                .filter(|key| key.starts_with("reservation"))
                .count();
            (reservations == 2 * claim_count()).then_some(held)
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_with_other_namespaces_writes_nothing() {
    let plane = ControlPlane::new();
    let (one, two) = two_consumers(&plane).await;
    let teams = [&one, &two];
    let mut of_one = serving_namespace(&plane, &one);
    let mut of_two = serving_namespace(&plane, &two);
    one.create_global_pool(
        "shared",
        json!({"addresses": ["10.0.0.0/16"], "prefix": 16}),
    )
    .await;
    let names = numbered("c", claim_count());
    tokio::join!(
        one.create_global_claims(&names, "shared"),
        two.create_global_claims(&names, "shared")
    );
    let bound = addresses(teams, &names).await;
    one.wait_for_counts_of(GLOBAL, "shared", counts(2 * claim_count()))
        .await;
    at_rest(&one).await;
    let before = with_one_reservation_each(&one).await;

    of_one.kill();
    let mut of_one = serving_namespace(&plane, &one);
    assert_wrote_nothing("after a kill and a restart", &one, &before).await;

    // The first manager is restarted for all namespaces, while the other one still serves the
    // second.
    of_one.stop();
    let mut of_all = serving(&plane, &[]);
    of_two.kill();
    assert_wrote_nothing("after a move to an unlimited manager", &one, &before).await;

    // The two managers exchange their namespaces.
    of_all.stop();
    let _of_two = serving_namespace(&plane, &two);
    let _of_one = serving_namespace(&plane, &one);
    assert_wrote_nothing("after a move to other managers", &one, &before).await;
    assert_eq!(addresses(teams, &names).await, bound, "no address changes");
    one.wait_for_counts_of(GLOBAL, "shared", counts(2 * claim_count()))
        .await;

    // New claims are bound and released.
    let more: Vec<String> = numbered("more", 20);
    tokio::join!(
        one.create_global_claims(&more, "shared"),
        two.create_global_claims(&more, "shared")
    );
    let all: Vec<String> = names.iter().chain(&more).cloned().collect();
    let now = addresses(teams, &all).await;
    assert!(
        bound
            .iter()
            .all(|(name, address)| now.get(name) == Some(address)),
        "no address changes"
    );
    for team in teams {
        team.release_all(&more).await;
    }
    one.wait_for_counts_of(GLOBAL, "shared", counts(2 * claim_count()))
        .await;
}

/// Claims are created and released while managers are killed and started for other namespaces.
#[tokio::test(flavor = "multi_thread")]
async fn moving_namespaces_under_load_duplicates_no_address() {
    let plane = ControlPlane::new();
    let (one, two) = two_consumers(&plane).await;
    let teams = [&one, &two];
    one.create_global_pool(
        "shared",
        json!({"addresses": ["10.0.0.0/16"], "prefix": 16}),
    )
    .await;
    let names = numbered("c", claim_count());
    // The start of a manager blocks, so separate tasks create the claims.
    let work = teams.map(|team| {
        let (team, names) = (team.clone(), names.clone());
        tokio::spawn(async move { team.create_global_claims(&names, "shared").await })
    });
    for round in 0..4 {
        let [first, second] = if round % 2 == 0 {
            [&one, &two]
        } else {
            [&two, &one]
        };
        let mut managers = [
            serving_namespace(&plane, first),
            serving_namespace(&plane, second),
        ];
        tokio::time::sleep(Duration::from_millis(300)).await;
        managers.iter_mut().for_each(|manager| manager.kill());
    }
    for done in work {
        done.await.expect("the claims are made");
    }
    let _managers = [
        serving_namespace(&plane, &two),
        serving_namespace(&plane, &one),
    ];
    addresses(teams, &names).await;
    one.wait_for_counts_of(GLOBAL, "shared", counts(2 * claim_count()))
        .await;
    at_rest(&one).await;
    with_one_reservation_each(&one).await;
}
