//! Pools with slices for Clusters, namespaces and values of a label.

use capi_ipam_api::{IPSlice, ProblemStatus};
use support::{prelude::*, wait::EVENT_TIMEOUT};

use crate::{consumer, environment, kstatus::kstatus};

const KIND: &str = "GlobalInClusterIPPool";

/// Creates a global pool of 64 addresses. Returns its name.
async fn create_pool(consumer: &Consumer, slices: Value) -> String {
    let pool = unique("sliced");
    consumer
        .create_global_pool(&pool, ("10.8.0.0/26", json!({"slices": slices})))
        .await;
    pool
}

/// The slices of a pool, and the name of the owner of each.
async fn slices_of(consumer: &Consumer, pool: &str) -> BTreeMap<String, String> {
    let slices = consumer.slices();
    let all = retry_unanswered(|| slices.list())
        .await
        .expect("slices can be listed");
    let mine = all
        .into_iter()
        .filter(|slice| slice.spec.scope.ends_with(&format!(".{pool}")));
    mine.map(|slice| (slice.spec.block, slice.spec.owner.name))
        .collect()
}

async fn wait_for_slices(consumer: &Consumer, pool: &str, expected: &[(&str, &str)]) {
    let expected: BTreeMap<_, _> = expected
        .iter()
        .map(|(block, owner)| ((*block).into(), (*owner).into()))
        .collect();
    until(&format!("the slices are {expected:?}"), async || {
        Some(slices_of(consumer, pool).await == expected)
    })
    .await;
}

/// Creates claims with a label, and returns the last parts of their addresses.
async fn bind(consumer: &Consumer, pool: &str, owner: &str, names: &[String]) -> BTreeSet<u8> {
    let metadata = json!({"labels": {"topology/rack": owner}});
    join_all(
        names
            .iter()
            .map(|name| consumer.create_claim_with(name, KIND, pool, metadata.clone())),
    )
    .await;
    let addresses = consumer.wait_for_addresses(names).await;
    addresses
        .values()
        .filter_map(|address| address.rsplit('.').next()?.parse().ok())
        .collect()
}

fn delete_cluster(consumer: &Consumer, name: &str) {
    let namespace = format!("--namespace={}", consumer.namespace);
    environment()
        .control_plane
        .kubectl(&["delete", "cluster", name, &namespace]);
}

#[tokio::test]
async fn each_owner_has_contiguous_addresses() {
    let consumer = consumer().await;
    let rules = json!({"size": 16, "per": "Label", "label": "topology/rack", "mostEach": 2});
    let pool = create_pool(&consumer, rules).await;
    let (r1, r2) = (numbered("r1-", 16), numbered("r2-", 20));
    let (one, two) = tokio::join!(
        bind(&consumer, &pool, "r1", &r1),
        bind(&consumer, &pool, "r2", &r2)
    );
    let in_slices = |addresses: &BTreeSet<u8>| {
        addresses
            .iter()
            .map(|last| last / 16)
            .collect::<BTreeSet<u8>>()
    };
    assert!(
        in_slices(&one).is_disjoint(&in_slices(&two)),
        "{one:?} {two:?}"
    );
    assert_eq!((one.len(), two.len()), (16, 20));
    // The first slice has 15 addresses, since the first address of the subnet is reserved.
    let (owned, status) = eventually("the pool counts its slices", || async {
        let status = consumer
            .global_pools()
            .get(&pool)
            .await
            .ok()??
            .status?
            .slices?;
        let owned = slices_of(&consumer, &pool).await;
        (status.assigned == i64::try_from(owned.len()).unwrap_or_default())
            .then_some((owned, status))
    })
    .await;
    assert!(
        owned.len() <= 4 && owned.values().filter(|owner| *owner == "r2").count() == 2,
        "{owned:?}"
    );
    assert_eq!((status.total, status.free), (4, 4 - status.assigned));
    let extra = json!({"labels": {"topology/rack": "r2"}});
    for number in 0..30 {
        consumer
            .create_claim_with(&format!("more-{number}"), KIND, &pool, extra.clone())
            .await;
    }
    // Some of them are bound, in any order.
    assert_contains(
        &eventually("a claim reports the limit", || async {
            let claims = consumer.claims().list().await.ok()?;
            let mut reported = claims
                .iter()
                .filter(|claim| claim.name_any().starts_with("more-"))
                .map(ready);
            reported
                .find(|ready| ready.reason.as_deref() == Some("SliceLimit"))?
                .message
        })
        .await,
        "label value r2 has 2 of 2 slices that the pool allows each owner",
    );
}

#[tokio::test]
async fn full_owner_does_not_delay_others() {
    let consumer = consumer().await;
    let pool = create_pool(
        &consumer,
        json!({"size": 32, "per": "Label", "label": "topology/rack"}),
    )
    .await;
    bind(&consumer, &pool, "a", &numbered("a-", 31)).await;
    bind(&consumer, &pool, "b", &numbered("b-", 1)).await;
    for name in ["a-31", "a-32"] {
        consumer
            .create_claim_with(name, KIND, &pool, json!({"labels": {"topology/rack": "a"}}))
            .await;
        assert_contains(
            &consumer.wait_for_reason(name, "NoFreeSlice").await,
            "the slices of label value a (1) have no free address",
        );
    }
    let pools = consumer.global_pools();
    assert_contains(
        &consumer
            .wait_for_condition(&pools, &pool, "SlicesExhausted", "True", "NoFreeSlice")
            .await,
        "2 of 2 slices are assigned",
    );
    bind(&consumer, &pool, "b", &numbered("b-more-", 20)).await;
    consumer
        .create_claim_with(
            "other",
            KIND,
            &pool,
            json!({"labels": {"topology/rack": "c"}}),
        )
        .await;
    assert_contains(
        &consumer.wait_for_reason("other", "NoFreeSlice").await,
        "no slice is free for label value c",
    );
    consumer.release("a-5").await;
    consumer.wait_for_address("a-31").await;
    consumer.wait_for_reason("a-32", "NoFreeSlice").await;
}

#[tokio::test]
async fn claim_without_an_owner_waits_for_its_label() {
    let consumer = consumer().await;
    let pool = create_pool(
        &consumer,
        json!({"size": 16, "per": "Label", "label": "topology/rack"}),
    )
    .await;
    consumer
        .create_claim_with("a", KIND, &pool, json!({}))
        .await;
    assert_contains(
        &consumer.wait_for_reason("a", "SliceOwnerMissing").await,
        "has no label topology/rack",
    );
    let namespace = format!("--namespace={}", consumer.namespace);
    environment().control_plane.kubectl(&[
        "label",
        "ipaddressclaim",
        "a",
        &namespace,
        "topology/rack=r1",
    ]);
    consumer.wait_for_address("a").await;
    wait_for_slices(&consumer, &pool, &[("10.8.0.0/28", "r1")]).await;
}

#[tokio::test]
async fn slice_is_returned_after_its_last_address() {
    let consumer = consumer().await;
    let rules = json!({"size": 16, "per": "Label", "label": "topology/rack"});
    let pool = create_pool(&consumer, rules).await;
    bind(&consumer, &pool, "a", &numbered("a-", 2)).await;
    consumer.release("a-0").await;
    // Normal events are rate limited, and other tests produce many: so the test retries until both
    // are published.
    until_within(EVENT_TIMEOUT, "events report the slice", || async {
        bind(&consumer, &pool, "b", &numbered("b-", 1)).await;
        wait_for_slices(
            &consumer,
            &pool,
            &[("10.8.0.0/28", "a"), ("10.8.0.16/28", "b")],
        )
        .await;
        consumer.release("b-0").await;
        wait_for_slices(&consumer, &pool, &[("10.8.0.0/28", "a")]).await;
        let events = environment().control_plane.kubectl(&[
            "get",
            "events.events.k8s.io",
            "-A",
            "-o",
            "json",
        ]);
        Some(events.contains("SliceReturned") && events.contains("SliceAssigned"))
    })
    .await;
    bind(&consumer, &pool, "c", &numbered("c-", 1)).await;
    wait_for_slices(
        &consumer,
        &pool,
        &[("10.8.0.0/28", "a"), ("10.8.0.16/28", "c")],
    )
    .await;
}

#[tokio::test]
async fn slices_of_a_cluster_stay_until_it_is_deleted() {
    let consumer = consumer().await;
    let pool = create_pool(&consumer, json!({"size": 16, "per": "Cluster"})).await;
    for cluster in ["alpha", "beta"] {
        consumer.create_cluster(cluster, false).await;
        consumer
            .create_claim_with(cluster, KIND, &pool, json!({"clusterName": cluster}))
            .await;
        consumer.wait_for_address(cluster).await;
    }
    consumer
        .create_claim_with("none", KIND, &pool, json!({}))
        .await;
    assert_contains(
        &consumer.wait_for_reason("none", "SliceOwnerMissing").await,
        "has no cluster name",
    );
    let owned = slices_of(&consumer, &pool).await;
    consumer.release("alpha").await;
    delete_cluster(&consumer, "beta");
    until("the empty slice is marked", async || {
        let all = consumer.slices().list().await.ok()?;
        let mut mine = all
            .iter()
            .filter(|slice| slice.spec.scope == format!("g.{pool}"));
        Some(mine.any(|slice| slice.spec.owner.name == "alpha" && slice.spec.empty_since.is_some()))
    })
    .await;
    // Neither the Cluster without an address, nor the deleted one with an address, loses its slice.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(slices_of(&consumer, &pool).await, owned);
    // The mark is removed before an address is allocated.
    consumer
        .create_claim_with("again", KIND, &pool, json!({"clusterName": "alpha"}))
        .await;
    consumer.wait_for_address("again").await;
    let all = consumer
        .slices()
        .list()
        .await
        .expect("slices can be listed");
    let mut mine = all
        .iter()
        .filter(|slice| slice.spec.scope == format!("g.{pool}"));
    assert!(mine.all(|slice| slice.spec.empty_since.is_none()));
    consumer.release("again").await;
    delete_cluster(&consumer, "alpha");
    let rest: Vec<_> = owned
        .iter()
        .filter(|(_, owner)| *owner == "beta")
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    wait_for_slices(&consumer, &pool, &rest).await;
}

#[tokio::test]
async fn pinned_slice_is_for_its_owner() {
    let consumer = consumer().await;
    let pool = create_pool(&consumer, json!({"size": 16, "per": "Namespace"})).await;
    let owner = json!({"kind": "Namespace", "name": consumer.namespace});
    let slice: IPSlice = object(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPSlice",
        "metadata": {"name": format!("g.{pool}.10.8.0.32-28")},
        "spec": {"scope": format!("g.{pool}"), "block": "10.8.0.32/28", "owner": owner},
    }));
    create(&consumer.slices(), &slice)
        .await
        .expect("the slice can be created");
    wait_for_slices(&consumer, &pool, &[("10.8.0.32/28", &consumer.namespace)]).await;
    eventually("the pool counts its slice", || async {
        let pool = consumer.global_pools().get(&pool).await.ok()??;
        pool.status?
            .slices
            .filter(|slices| slices.assigned == 1)
            .map(drop)
    })
    .await;
    consumer.bind_global_to("a", &pool, "10.8.0.32").await;
    consumer.release("a").await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    wait_for_slices(&consumer, &pool, &[("10.8.0.32/28", &consumer.namespace)]).await;
    for (name, change, text) in [
        (
            "x",
            json!({"spec": {"block": "10.8.0.33/28"}}),
            "spec.block",
        ),
        ("y", json!({"spec": {"scope": "n.lab"}}), "spec.scope"),
        ("z", json!({"metadata": {"name": "z"}}), "the name must be"),
        (
            "n",
            json!({"spec": {"owner": {"namespace": "a"}}}),
            "spec.owner",
        ),
    ] {
        let mut wrong = serde_json::to_value(&slice).expect("slices can be serialized");
        wrong["metadata"]["name"] = json!(format!("g.{pool}.{name}"));
        json_patch::merge(&mut wrong, &change);
        let error = create(&consumer.slices(), &object(wrong))
            .await
            .expect_err("the slice is rejected");
        let message = capi_ipam_controller::client::error_chain(&error);
        assert!(message.contains(text), "{message}");
    }
}

#[tokio::test]
async fn slices_follow_the_specification_of_the_pool() {
    let consumer = consumer().await;
    let pool = create_pool(
        &consumer,
        json!({"size": 16, "per": "Label", "label": "topology/rack"}),
    )
    .await;
    bind(&consumer, &pool, "a", &numbered("a-", 1)).await;
    let pools = consumer.global_pools();
    let modify = |change: Value| {
        consumer.modify(&pools, &pool, move |pool| json_patch::merge(pool, &change))
    };
    // The pool grows, and the slice in use stays as it is.
    modify(json!({"spec": {"addresses": ["10.8.0.0/25"]}})).await;
    eventually("the pool has more slices", || async {
        let pool = consumer.global_pools().get(&pool).await.ok()??;
        pool.status?
            .slices
            .filter(|slices| (slices.total, slices.assigned) == (8, 1))
            .map(drop)
    })
    .await;
    // Without slices in the specification, a slice without addresses in use is deleted.
    modify(json!({"spec": {"slices": null}})).await;
    consumer.bind_global_to("free", &pool, "10.8.0.2").await;
    consumer.release("a-0").await;
    consumer.release("free").await;
    wait_for_slices(&consumer, &pool, &[]).await;
}

#[tokio::test]
async fn prefixes_are_sliced() {
    let consumer = consumer().await;
    let pool = unique("nets");
    let slices = json!({"size": 4, "per": "Namespace"});
    let spec = json!({"prefixes": ["fd00:8::/48"], "allocationPrefixLength": 64, "slices": slices});
    consumer
        .create_pool_of(InClusterKind::PrefixPool, &pool, spec)
        .await;
    for number in 0..5 {
        consumer
            .bind_of(InClusterKind::PrefixPool, &format!("c{number}"), &pool)
            .await;
    }
    let namespace = consumer.namespace.as_str();
    wait_for_slices(
        &consumer,
        &pool,
        &[("fd00:8::/62", namespace), ("fd00:8:0:4::/62", namespace)],
    )
    .await;
    let all = consumer
        .slices()
        .list()
        .await
        .expect("slices can be listed");
    let first = format!("pp.{namespace}.{pool}.fd00-0008-0000-0000-0000-0000-0000-0000-62");
    assert!(all.iter().any(|slice| slice.name_any() == first), "{first}");
}

/// Waits until the condition `Ready` of a slice has a reason, and its kstatus is as expected.
async fn wait_for_reason(consumer: &Consumer, name: &str, reason: &str, expected: &str) -> IPSlice {
    eventually(&format!("slice {name} reports {reason}"), || async {
        let found = consumer.slices().get(name).await.ok()??;
        let ready = found.status.as_ref()?.conditions.first()?;
        let is_reported = ready.reason.as_deref() == Some(reason);
        (is_reported && kstatus(&found) == expected).then_some(found)
    })
    .await
}

#[tokio::test]
async fn slice_without_effect_is_reported_until_it_is_corrected() {
    let (consumer, pool) = (consumer().await, unique("unsliced"));
    let spec = json!({"addresses": ["10.8.0.0/26"], "prefix": 24});
    consumer.create_global_pool(&pool, spec.clone()).await;
    let owner = json!({"kind": "Label", "name": "r1"});
    let scope = format!("g.{pool}");
    let slice = consumer
        .pin_slice(&scope, "10.8.0.0/28", owner.clone())
        .await;
    let name = slice.name_any();
    let failed = wait_for_reason(&consumer, &name, "Error", "Failed").await;
    let problem = failed.status.as_ref().and_then(ProblemStatus::problem);
    assert!(
        problem.is_some_and(|text| text.contains("has no slices")),
        "{problem:?}"
    );
    let pools = consumer.pools_of(InClusterKind::GlobalIPPool);
    consumer
        .modify(&pools, &pool, |pool| {
            pool["spec"]["slices"] = json!({"size": 16, "per": "Label", "label": "topology/rack"});
        })
        .await;
    wait_for_reason(&consumer, &name, "Validated", "Current").await;

    // A block that does not match the name cannot be corrected, only deleted.
    let misnamed = object(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPSlice",
        "metadata": {"name": format!("{scope}.other")},
        "spec": {"scope": scope, "block": "10.8.0.16/28", "owner": owner},
    }));
    let created: IPSlice = create(&consumer.slices(), &misnamed)
        .await
        .expect("it can be created");
    let failed = wait_for_reason(&consumer, &created.name_any(), "Error", "Failed").await;
    let problem = failed.status.as_ref().and_then(ProblemStatus::problem);
    assert!(
        problem.is_some_and(|text| text.starts_with("metadata.name")),
        "{problem:?}"
    );

    // The provider's own slices have no status.
    let named = ["a".to_owned()];
    bind(&consumer, &pool, "r2", &named).await;
    let of_owner = consumer
        .slices()
        .list()
        .await
        .expect("slices can be listed");
    let own = of_owner
        .iter()
        .find(|it| it.spec.scope == scope && it.spec.owner.name == "r2");
    assert!(own.is_some_and(|own| own.status.is_none()), "{own:?}");
}
