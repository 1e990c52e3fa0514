//! Limits of a global pool with two managers that both serve all claims.

use support::prelude::*;

use crate::lagging::{ADDRESSES_IN_USE, Lagging};

const LIMIT: usize = 20;

async fn reasons(consumer: &Consumer) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::<String, usize>::new();
    let claims = consumer.claims();
    for claim in retry_unanswered(|| claims.list())
        .await
        .expect("claims can be read")
    {
        *reasons
            .entry(ready(&claim).reason.unwrap_or_default().into_owned())
            .or_default() += 1;
    }
    reasons
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_never_exceed_a_limit() {
    let (plane, consumer) = scene().await;
    let _managers = [Manager::start(&plane, &[]), Manager::start(&plane, &[])];
    consumer
        .create_global_pool(
            "shared",
            ("10.0.0.0/24", json!({"limits": {"perNamespace": LIMIT}})),
        )
        .await;
    let mut most = 0;
    for round in 0..5 {
        let names: Vec<_> = (0..32).map(|number| format!("c{round}-{number}")).collect();
        consumer.create_global_claims(&names, "shared").await;
        let expected = BTreeMap::from([
            ("AddressAllocated".to_owned(), LIMIT),
            ("QuotaExceeded".to_owned(), names.len() - LIMIT),
        ]);
        until_within(
            Duration::from_mins(3),
            "all claims are bound or wait",
            || async {
                let bound = consumer.allocated_addresses().await.len();
                assert!(bound <= LIMIT, "{bound} addresses in use, {LIMIT} allowed");
                Some(reasons(&consumer).await == expected)
            },
        )
        .await;
        most = most.max(
            consumer
                .reservations()
                .list()
                .await
                .expect("reservations can be read")
                .len(),
        );
        // Each address that is released is for a claim that waits.
        let bound: Vec<_> = consumer
            .allocated_addresses()
            .await
            .into_keys()
            .take(12)
            .collect();
        consumer.delete_all(&bound).await;
        until_within(Duration::from_mins(3), "the others are bound", || async {
            let reasons = reasons(&consumer).await;
            let expected = BTreeMap::from([("AddressAllocated".to_owned(), LIMIT)]);
            assert!(consumer.allocated_addresses().await.len() <= LIMIT + bound.len());
            Some(reasons == expected)
        })
        .await;
        assert_eq!(consumer.allocated_addresses().await.len(), LIMIT);
        let rest: Vec<_> = consumer.allocated_addresses().await.into_keys().collect();
        consumer.release_all(&rest).await;
    }
    println!("at most {most} reservations for {LIMIT} addresses");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_leave_the_headroom() {
    let (plane, consumer) = scene().await;
    // Each claim that both serve at once may have two reservations, until the sweeper deletes one
    // of them.
    let flags = ["--sweep-interval=1s", "--sweep-grace=2s"];
    let _managers = [
        Manager::start(&plane, &flags),
        Manager::start(&plane, &flags),
    ];
    let headroom = json!({"addresses": 5, "for": {"matchLabels": {"role": "control-plane"}}});
    consumer
        .create_global_pool(
            "shared",
            ("10.0.0.1-10.0.0.20", json!({"headroom": headroom})),
        )
        .await;
    let names: Vec<_> = numbered("worker-", 32);
    consumer.create_global_claims(&names, "shared").await;
    let bound = || async { consumer.allocated_addresses().await.len() };
    until_within(
        Duration::from_mins(3),
        "the other addresses are in use",
        || async { Some(bound().await == 15) },
    )
    .await;
    let selected: Vec<_> = numbered("control-plane-", 5);
    let labels = json!({"labels": {"role": "control-plane"}});
    let create =
        |name| consumer.create_claim_with(name, "GlobalInClusterIPPool", "shared", labels.clone());
    join_all(selected.iter().map(|name| create(name))).await;
    consumer.wait_for_addresses(&selected).await;
    assert_eq!(bound().await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_wait_for_the_watch_occupy_no_worker() {
    let plane = ControlPlane::new();
    let lagging = Lagging::start(&plane).await;
    let manager = Manager::launch(&plane, lagging.kubeconfig(), &["--concurrency=1"]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    consumer
        .create_global_pool(
            "limited",
            ("10.0.0.0/24", json!({"limits": {"perNamespace": 100}})),
        )
        .await;
    consumer.create_pool("web", "10.0.1.0/24").await;
    // Without the reservations of others, no claim of the pool with limits is bound.
    lagging.hold_watches(ADDRESSES_IN_USE);
    let names: Vec<_> = numbered("limited-", 40);
    let create = |name| consumer.create_global_claim(name, "limited");
    join_all(names.iter().map(|name| create(name))).await;
    consumer.bind("other", "web").await;
    until_within(Duration::from_mins(1), "each has a reservation", || async {
        let reservations = consumer.reservations().list().await.ok()?;
        Some(reservations.len() == names.len() + 1)
    })
    .await;
    assert_eq!(consumer.allocated_addresses().await.len(), 1);
    lagging.hold_watches(&[]);
    consumer.wait_for_addresses(&names).await;
}
