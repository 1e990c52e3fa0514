//! `--namespace`: managers that serve one namespace each share global pools, networks and
//! cool-downs with the others.

use capi_ipam_api::conditions::{self, NO_OVERLAP, OVERLAPPING, POOLS_OVERLAP};
use support::{consumer::counts_of, prelude::*};

use crate::{
    GLOBAL, serving, serving_namespace, two_tenants, unchanged,
    versions::{at_rest, version},
};

#[tokio::test(flavor = "multi_thread")]
async fn cooldown_of_another_namespace_is_not_ended() {
    let (_plane, _managers, one, two) = two_tenants().await;
    for team in [&one, &two] {
        team.create_pool(
            "web",
            ("10.0.0.1", json!({"addressReuseGracePeriodSeconds": 3600})),
        )
        .await;
        team.bind("first", "web").await;
        team.release("first").await;
        team.wait_for_counts("web", (1, 0, 0, 0)).await;
    }
    let cooling = async || {
        let both = [
            one.reservation("web", "10.0.0.1").await,
            two.reservation("web", "10.0.0.1").await,
        ];
        both.map(|found| {
            found
                .filter(|found| found.spec.released_at.is_some())
                .as_ref()
                .map(version)
        })
    };
    let before = cooling().await;
    assert!(
        before.iter().all(Option::is_some),
        "both addresses cool down: {before:?}"
    );
    unchanged("the cool-downs", Duration::from_secs(8), &before, cooling).await;
    for team in [&one, &two] {
        team.claim_waits("second", "web", "PoolExhausted").await;
        team.assert_stays_unbound("second").await;
    }
    assert_eq!(cooling().await, before);
}

/// One manager serves all pools, the other serves a namespace without pools.
#[tokio::test(flavor = "multi_thread")]
async fn cooldown_is_kept_beside_an_unrestricted_manager() {
    let plane = ControlPlane::new();
    let (one, two) = two_consumers(&plane).await;
    let _managers = [serving_namespace(&plane, &one), serving(&plane, &[])];
    two.create_pool(
        "web",
        ("10.0.0.1", json!({"addressReuseGracePeriodSeconds": 3600})),
    )
    .await;
    two.bind("first", "web").await;
    two.release("first").await;
    two.wait_for_counts("web", (1, 0, 0, 0)).await;
    let cooling = async || {
        two.reservation("web", "10.0.0.1")
            .await
            .as_ref()
            .map(version)
    };
    let before = cooling().await;
    assert!(before.is_some(), "the address cools down");
    unchanged("the cool-down", Duration::from_secs(8), &before, cooling).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn global_pool_counts_claims_of_all_namespaces() {
    let (_plane, _managers, one, two) = two_tenants().await;
    one.create_global_pool("shared", "10.0.0.1-10.0.0.9").await;
    for (team, name) in [(&one, "a"), (&one, "b"), (&two, "c")] {
        team.bind_global(name, "shared").await;
    }
    one.wait_for_counts_of(GLOBAL, "shared", (9, 6, 3, 0)).await;
    // Managers that count differently would write the pool again and again.
    at_rest(&one).await;
    one.wait_for_counts_of(GLOBAL, "shared", (9, 6, 3, 0)).await;
    let pools = one.global_pools();
    let counts = async || {
        let found = retry_unanswered(|| pools.get("shared"))
            .await
            .expect("pools can be read");
        found.as_ref().and_then(counts_of)
    };
    unchanged(
        "the counts of the global pool",
        Duration::from_secs(5),
        &Some((9, 6, 3, 0)),
        counts,
    )
    .await;
    two.release("c").await;
    one.wait_for_counts_of(GLOBAL, "shared", (9, 7, 2, 0)).await;
    at_rest(&one).await;
}

/// Creates claims of a pool, as `<prefix>0`, `<prefix>1` and so on.
async fn create_claims(
    team: &Consumer,
    kind: InClusterKind,
    pool: &str,
    prefix: &str,
    count: usize,
) -> Vec<String> {
    let names = numbered(prefix, count);
    team.create_claims_with(&names, kind, pool, json!({})).await;
    names
}

/// Waits until `bound` of these claims are bound and all others report an exhausted pool.
async fn wait_until_settled(teams: [(&Consumer, &[String]); 2], bound: usize) {
    until_within(
        Duration::from_mins(3),
        &format!("{bound} claims are bound, the others wait"),
        || async {
            let mut reasons = Vec::new();
            for (team, names) in teams {
                for name in names {
                    let claim = team.claims().get(name).await.ok()??;
                    reasons.push(ready(&claim).reason.unwrap_or_default());
                }
            }
            let have = |reason: &str| reasons.iter().filter(|found| *found == reason).count();
            let waiting = reasons.len().saturating_sub(bound);
            Some(
                have(conditions::ADDRESS_ALLOCATED) == bound
                    && have(conditions::POOL_EXHAUSTED) == waiting,
            )
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_managers_with_different_views_write_nothing_at_rest() {
    let plane = ControlPlane::new();
    let (one, two) = two_consumers(&plane).await;
    let _managers = [
        serving_namespace(&plane, &one),
        serving_namespace(&plane, &two),
        serving(&plane, &[]),
    ];
    one.create_global_pool("small", "10.1.0.1-10.1.0.6").await;
    let in_network = json!({"addresses": ["10.2.0.1-10.2.0.14"], "prefix": 24, "network": "lab"});
    one.create_open_network("lab").await;
    one.create_global_pool("large", in_network.clone()).await;
    one.create_pool("local", in_network).await;
    let small = [
        create_claims(&one, GLOBAL, "small", "s", 4).await,
        create_claims(&two, GLOBAL, "small", "s", 4).await,
    ];
    let large = [
        create_claims(&one, GLOBAL, "large", "l", 3).await,
        create_claims(&two, GLOBAL, "large", "l", 3).await,
    ];
    let local = create_claims(&one, InClusterKind::IPPool, "local", "n", 4).await;
    wait_until_settled([(&one, &small[0]), (&two, &small[1])], 6).await;
    wait_until_settled([(&one, &large[0]), (&two, &large[1])], 6).await;
    wait_until_settled([(&one, &local), (&two, &[])], 4).await;

    let counts = async || {
        one.wait_for_counts_of(GLOBAL, "small", (6, 0, 6, 0)).await;
        one.wait_for_counts_of(GLOBAL, "large", (14, 4, 6, 0)).await;
        one.wait_for_counts("local", (14, 4, 4, 0)).await;
    };
    counts().await;
    at_rest(&one).await;
    counts().await;
    until(
        "there is one reservation for each bound claim",
        async || {
            let reserved = one.reservations().list().await.ok()?;
            Some(
                reserved
                    .iter()
                    .filter(|reservation| reservation.spec.claim_ref.is_some())
                    .count()
                    == 16,
            )
        },
    )
    .await;
}

/// Waits until a pool reports whether it overlaps with another one.
async fn wait_for_overlap(team: &Consumer, kind: InClusterKind, pool: &str, overlaps: bool) {
    let (status, reason) = if overlaps {
        ("True", POOLS_OVERLAP)
    } else {
        ("False", NO_OVERLAP)
    };
    let pools = team.pools_of(kind);
    team.wait_for_condition(&pools, pool, OVERLAPPING, status, reason)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overlap_is_reported_the_same_by_all_managers() {
    let (_plane, _managers, one, two) = two_tenants().await;
    let spec = |range: &str| json!({"addresses": [range], "prefix": 16});
    one.create_pool("web", spec("10.0.0.1-10.0.0.100")).await;
    two.create_pool("web", spec("10.0.0.50-10.0.0.200")).await;
    one.create_global_pool("shared", spec("10.0.0.150-10.0.1.50"))
        .await;

    wait_for_overlap(&one, InClusterKind::IPPool, "web", true).await;
    wait_for_overlap(&two, InClusterKind::IPPool, "web", true).await;
    wait_for_overlap(&one, GLOBAL, "shared", true).await;
    at_rest(&one).await;
    wait_for_overlap(&one, InClusterKind::IPPool, "web", true).await;
    wait_for_overlap(&one, GLOBAL, "shared", true).await;

    // The pool that overlapped with both gets other addresses.
    two.modify_pool("web", |spec: &mut Value| {
        spec["addresses"] = json!(["10.9.0.1-10.9.0.9"])
    })
    .await;
    wait_for_overlap(&one, InClusterKind::IPPool, "web", false).await;
    wait_for_overlap(&two, InClusterKind::IPPool, "web", false).await;
    wait_for_overlap(&one, GLOBAL, "shared", false).await;
    at_rest(&one).await;
    wait_for_overlap(&one, GLOBAL, "shared", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overlap_events_are_published_once() {
    let (_plane, _managers, one, _two) = two_tenants().await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.100"], "prefix": 24});
    one.create_pool("web", spec.clone()).await;
    one.create_global_pool("shared", spec).await;
    wait_for_overlap(&one, GLOBAL, "shared", true).await;
    at_rest(&one).await;
    // Events about global objects are in the namespace `default`.
    let default = one.in_namespace("default");
    default
        .wait_for_event("shared", "Warning", POOLS_OVERLAP, "")
        .await;
    let events = default.events("shared").await;
    let overlaps = events
        .iter()
        .filter(|(_, reason, _)| reason == POOLS_OVERLAP)
        .count();
    assert!(
        overlaps <= 2,
        "at most one event from each manager: {overlaps}"
    );
}
