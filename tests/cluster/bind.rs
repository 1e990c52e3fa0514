//! Claims get the expected addresses and release them.

use support::prelude::*;

use crate::{consumer, environment};

/// The addresses of all specifications are tests of `capi_ipam_ip::pool`.
#[tokio::test]
async fn pools_allocate_exactly_the_addresses_of_their_specification() {
    let consumer = consumer().await;
    let v4 = json!({"addresses": ["10.0.0.0/29"], "prefix": 29, "gateway": "10.0.0.6",
                    "excludedAddresses": ["10.0.0.2", "10.0.0.4-10.0.0.5"]});
    let v6 =
        json!({"addresses": ["FD00:0::/126"], "prefix": 126, "allocateReservedIPAddresses": true});
    for (kind, spec, expected) in [
        (InClusterKind::IPPool, v4, "10.0.0.1 10.0.0.3"),
        (
            InClusterKind::GlobalIPPool,
            v6,
            "fd00:: fd00::1 fd00::2 fd00::3",
        ),
    ] {
        let pool = unique("pool");
        consumer.create_pool_of(kind, &pool, spec).await;
        let mut given = Vec::new();
        for _ in expected.split(' ') {
            given.push(consumer.bind_of(kind, &unique("claim"), &pool).await);
        }
        assert_eq!(given.join(" "), expected);
        let one_more = unique("claim");
        consumer.create_claim_of(kind, &one_more, &pool).await;
        consumer.wait_for_reason(&one_more, "PoolExhausted").await;
        let count = i64::try_from(given.len()).expect("a small number");
        consumer
            .wait_for_counts_of(kind, &pool, (count, 0, count, 0))
            .await;
    }
}

#[tokio::test]
async fn lowest_free_address_is_allocated_first() {
    let consumer = consumer().await;
    consumer
        .create_pool(
            "web",
            ("10.0.0.10-10.0.0.12", json!({"gateway": "10.0.0.1"})),
        )
        .await;
    consumer.create_claim("a", "web").await;
    let address = consumer.wait_for_ip_address("a").await;
    assert_eq!(
        (address.spec.address.as_str(), address.spec.prefix),
        ("10.0.0.10", 24)
    );
    assert_eq!(address.spec.gateway.as_deref(), Some("10.0.0.1"));
    consumer.wait_for_counts("web", (3, 2, 1, 0)).await;

    consumer.bind_to("b", "web", "10.0.0.11").await;
    consumer.wait_for_counts("web", (3, 1, 2, 0)).await;
    consumer.release("a").await;
    consumer.wait_for_counts("web", (3, 2, 1, 0)).await;
    consumer.bind_to("c", "web", "10.0.0.10").await;
    consumer.release("b").await;
    consumer.release("c").await;
    consumer.wait_for_counts("web", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn address_has_prefix_and_gateway_of_its_pool() {
    let consumer = consumer().await;
    let specs = [
        (
            json!({"addresses": ["10.0.0.2"], "prefix": 8, "gateway": "10.99.0.1"}),
            (8, Some("10.99.0.1")),
        ),
        (json!({"addresses": ["10.0.0.2"], "prefix": 0}), (0, None)),
        (
            json!({"addresses": ["10.0.0.2"], "prefix": 24, "gateway": ""}),
            (24, None),
        ),
        (
            json!({"addresses": ["fd00::2"], "prefix": 128, "gateway": "FE80:0::1"}),
            (128, Some("fe80::1")),
        ),
    ];
    for (spec, expected) in specs {
        let name = unique("pool");
        consumer.create_pool(&name, spec).await;
        consumer.create_claim(&name, &name).await;
        let given = consumer.wait_for_ip_address(&name).await.spec;
        assert_eq!((given.prefix, given.gateway.as_deref()), expected);
    }
}

#[tokio::test]
async fn namespaces_share_a_global_pool() {
    let (one, two) = (consumer().await, consumer().await);
    let pool = unique("shared");
    one.create_global_pool(&pool, json!({"addresses": ["fd00:1::/64"], "prefix": 64}))
        .await;
    one.create_global_claim("a", &pool).await;
    two.create_global_claim("a", &pool).await;
    let addresses = BTreeSet::from([
        one.wait_for_address("a").await,
        two.wait_for_address("a").await,
    ]);
    assert_eq!(
        addresses,
        BTreeSet::from(["fd00:1::1".to_owned(), "fd00:1::2".to_owned()])
    );
    one.release("a").await;
    two.release("a").await;
}

#[tokio::test]
async fn pools_with_the_same_name_are_independent() {
    let (one, two) = (consumer().await, consumer().await);
    let (pool, spec) = (
        unique("same"),
        json!({"addresses": ["10.0.0.1"], "prefix": 24}),
    );
    one.create_pool(&pool, spec.clone()).await;
    two.create_pool(&pool, spec.clone()).await;
    one.create_global_pool(&pool, spec).await;
    one.create_claim("a", &pool).await;
    two.create_claim("a", &pool).await;
    two.create_global_claim("b", &pool).await;
    for (consumer, claim) in [(&one, "a"), (&two, "a"), (&two, "b")] {
        consumer.assert_address(claim, "10.0.0.1").await;
    }
}

#[tokio::test]
async fn five_hundred_concurrent_claims_get_unique_addresses() {
    let (one, two) = (consumer().await, consumer().await);
    let shared = unique("shared");
    for team in [&one, &two] {
        team.create_pool("own", "10.1.0.1-10.1.0.150").await;
    }
    one.create_global_pool(&shared, "10.2.0.1-10.2.0.200").await;

    let (own, global) = (numbered("own-", 150), numbered("shared-", 100));
    let all = [own.clone(), global.clone()].concat();
    let given = join_all([&one, &two].map(async |team| {
        let of_shared = team.create_global_claims(&global, &shared);
        tokio::join!(team.create_claims(&own, "own"), of_shared);
        team.wait_for_addresses(&all).await
    }))
    .await;
    let distinct = |given: &[BTreeMap<String, String>], prefix: &str| {
        let of_pool = given.iter().flatten();
        let of_pool = of_pool.filter(|(name, _)| name.starts_with(prefix));
        of_pool
            .map(|(_, address)| address)
            .collect::<BTreeSet<_>>()
            .len()
    };
    assert_eq!(distinct(&given[..1], "own"), 150);
    assert_eq!(distinct(&given[1..], "own"), 150);
    assert_eq!(distinct(&given, "shared"), 200);
    // All are in the pools.
    for team in [&one, &two] {
        team.wait_for_counts("own", (150, 0, 150, 0)).await;
    }
    one.wait_for_counts_of(InClusterKind::GlobalIPPool, &shared, (200, 0, 200, 0))
        .await;
}

#[tokio::test]
async fn only_contract_labels_are_copied_to_the_address() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.0/24").await;
    for cluster in ["alpha", "beta"] {
        consumer.create_cluster(cluster, false).await;
    }
    let (cluster, filter) = (
        "cluster.x-k8s.io/cluster-name",
        "cluster.x-k8s.io/watch-filter",
    );
    let cases = [
        (json!({}), json!({})),
        (json!({"labels": {"team": "x"}}), json!({})),
        (
            json!({"labels": {cluster: "alpha"}}),
            json!({cluster: "alpha"}),
        ),
        (json!({"clusterName": "alpha"}), json!({cluster: "alpha"})),
        (
            json!({"labels": {cluster: "alpha"}, "clusterName": "beta"}),
            json!({cluster: "beta"}),
        ),
        (
            json!({"labels": {filter: "blue", "team": "x"}}),
            json!({filter: "blue"}),
        ),
        (
            json!({"labels": {filter: "blue"}, "clusterName": "alpha"}),
            json!({filter: "blue", cluster: "alpha"}),
        ),
    ];
    for (metadata, expected) in cases {
        let name = unique("claim");
        consumer
            .create_claim_with_metadata(&name, "web", metadata.clone())
            .await;
        assert_eq!(
            json!(consumer.wait_for_ip_address(&name).await.labels()),
            expected,
            "{metadata}"
        );
    }
}

#[tokio::test]
async fn conditions_report_the_allocated_address() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.0/24").await;
    consumer.wait_for_counts("web", (254, 254, 0, 0)).await;
    consumer.bind("a", "web").await;
    let claim = consumer.the_claim("a").await;
    let status = json!(claim.status);
    let ready = &status["conditions"];
    assert_eq!(ready.as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(
        [&ready[0]["type"], &ready[0]["status"], &ready[0]["reason"]],
        ["Ready", "True", "AddressAllocated"]
    );
    // Other controllers copy it into the conditions of their objects.
    assert_eq!(ready[0]["message"], "");
    assert_eq!(ready[0]["observedGeneration"], 1);
    let time = &ready[0]["lastTransitionTime"];
    assert!(time.is_string());
    // Controllers that read the older version of the contract find only the required fields.
    let legacy = json!([{"type": "Ready", "status": "True", "lastTransitionTime": time}]);
    assert_eq!(
        status["deprecated"]["v1beta1"]["conditions"], legacy,
        "{status}"
    );
}

#[tokio::test]
async fn event_reports_the_allocated_address() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.0/24").await;
    consumer.wait_for_counts("web", (254, 254, 0, 0)).await;
    // Normal events are rate limited, and other tests produce many: so the test retries until one
    // is published.
    let events = eventually_within(
        Duration::from_mins(2),
        "an event about a bound claim",
        || async {
            let name = unique("claim");
            consumer.bind(&name, "web").await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            // An event can be published long after its claim is bound.
            for (name, address) in consumer.allocated_addresses().await {
                let mut events = consumer.events(&name).await;
                events.retain(|(kind, ..)| kind == "Normal");
                if !events.is_empty() {
                    return Some((events, address));
                }
            }
            None
        },
    );
    let (events, address) = events.await;
    let note = format!(
        "{address}/24 from InClusterIPPool {}/web",
        consumer.namespace
    );
    assert_eq!(
        events,
        [("Normal".to_owned(), "AddressAllocated".to_owned(), note)]
    );
}

#[tokio::test]
async fn reservation_names_the_claim_of_the_address() {
    let consumer = consumer().await;
    let (pool, namespace) = (unique("shared"), consumer.namespace.clone());
    consumer
        .create_global_pool(&pool, json!({"addresses": ["fd00::5"], "prefix": 64}))
        .await;
    consumer.create_pool("own", "10.0.0.5").await;
    consumer.create_global_claim("a", &pool).await;
    consumer.create_claim("b", "own").await;
    let global = (
        format!("g.{pool}"),
        "fd00::5",
        json!({"kind": "GlobalInClusterIPPool", "name": pool}),
    );
    let own = json!({"kind": "InClusterIPPool", "namespace": namespace, "name": "own"});
    let own = (format!("p.{namespace}.own"), "10.0.0.5", own);
    let names = [
        format!("{}.fd00-0000-0000-0000-0000-0000-0000-0005", global.0),
        format!("{}.10.0.0.5", own.0),
    ];
    for ((claim, name), (scope, address, pool)) in
        ["a", "b"].into_iter().zip(names).zip([global, own])
    {
        consumer.wait_for_address(claim).await;
        let uid = consumer
            .claims()
            .get(claim)
            .await
            .expect("claims can be read")
            .and_then(|claim| claim.uid());
        let reservation = consumer
            .reservations()
            .get(&name)
            .await
            .expect("reservations can be read");
        let spec = json!(
            reservation
                .expect("the name of the reservation is derived from the address")
                .spec
        );
        let claim = json!({"namespace": namespace, "name": claim, "uid": uid});
        assert_eq!(
            spec,
            json!({"scope": scope, "address": address, "poolRef": pool, "claimRef": claim})
        );
        consumer
            .release(claim["name"].as_str().expect("a name"))
            .await;
        assert!(
            consumer
                .reservations()
                .get(&name)
                .await
                .expect("reservations can be read")
                .is_none()
        );
    }
}

/// The number of an address of the pool `web`, from 1.
fn number_of(address: &str) -> usize {
    let number = address
        .rsplit('.')
        .next()
        .and_then(|last| last.parse().ok());
    number.unwrap_or_else(|| panic!("{address} is an IPv4 address"))
}

#[tokio::test]
async fn claims_get_addresses_in_the_order_of_their_creation() {
    let consumer = consumer().await;
    let pool = json!({"addresses": ["10.0.0.1-10.0.0.200"], "prefix": 24});
    let mut cases = vec![false, true];
    while let Some(is_pool_first) = cases.pop() {
        let web = &unique("web");
        if is_pool_first {
            consumer.create_pool(web, pool.clone()).await;
            consumer.wait_until_pool_ready(web).await;
        }
        // No alphabetical order.
        let names: Vec<String> = (0..50)
            .map(|number| format!("{web}-c{}", number * 7 % 50))
            .collect();
        for name in &names {
            consumer.create_claim(name, web).await;
        }
        if !is_pool_first {
            for name in &names {
                consumer.wait_for_reason(name, "PoolNotReady").await;
            }
            consumer.create_pool(web, pool.clone()).await;
        }
        let addresses = consumer.wait_for_addresses(&names).await;
        let order: Vec<usize> = names
            .iter()
            .map(|name| number_of(&addresses[name]))
            .collect();
        if order != (1..=50).collect::<Vec<_>>() {
            // A claim is served later if a request for it has failed.
            let log = environment().manager.log();
            let is_retry = |line: &str| {
                line.contains(&format!("{}/{web}-c", consumer.namespace))
                    && line.contains(" attempt=")
                    && !line.ends_with(" attempt=1")
            };
            let has_failed = log.lines().any(is_retry);
            assert!(has_failed, "pool first: {is_pool_first}: {order:?}");
            cases.push(is_pool_first);
        }
    }
}
