//! Pools and claims that nobody should have made, and pools of extreme size.

use std::time::{Duration, Instant};

use capi_ipam::api::{InClusterIPPool, Pool};
use capi_ipam::support::consumer::{Consumer, eventually, ready, stays, unique};
use capi_ipam::{consumer, lenient_consumer, world};
use capi_ipam_provider::api::IPAddressClaim;
use futures::future::join_all;
use kube::ResourceExt;
use serde_json::{json, Value};

/// What a large or broken pool may take until its claim is served. It takes milliseconds on a free machine, and minutes
/// where the work grows with the number of addresses, or with the square of that of ranges.
const BOUNDED: Duration = Duration::from_mins(1);

/// Specifications that only an admission webhook would refuse, and what the condition must say of each.
fn broken_specs() -> Vec<(Value, &'static [&'static str])> {
    let pool = |addresses: Value| json!({"addresses": addresses, "prefix": 24});
    vec![
        (pool(json!([])), &["spec.addresses: is required"]),
        (pool(json!(["10.0.0.1", "nonsense"])), &["spec.addresses[1]: ", "\"nonsense\""]),
        (pool(json!(["10.0.0.1", ""])), &["spec.addresses[1]: "]),
        (pool(json!(["10.0.0.1", "10.0.0.010"])), &["spec.addresses[1]: ", "10.0.0.010"]),
        (pool(json!(["10.0.0.9-10.0.0.1"])), &["spec.addresses[0]: ", "10.0.0.9-10.0.0.1"]),
        (pool(json!(["10.0.0.0/33"])), &["spec.addresses[0]: ", "10.0.0.0/33"]),
        (pool(json!(["::ffff:10.0.0.1"])), &["spec.addresses[0]: ", "10.0.0.1"]),
        (pool(json!(["fe80::1%eth0"])), &["spec.addresses[0]: "]),
        (pool(json!(["10.0.0.1", "fd00::1"])), &["spec.addresses[1]: ", "fd00::1", "IPv4", "IPv6"]),
        (pool(json!(["10.0.0.1", "10.0.0.2", "10.0.1.3"])), &["spec.addresses[2]: ", "10.0.1.3", "10.0.0.0/24"]),
        (pool(json!(["x", "10.0.0.1", "y"])), &["spec.addresses[0]: ", "spec.addresses[2]: "]),
        (json!({"addresses": ["10.0.0.1"], "prefix": 64}), &["spec.prefix: 64"]),
        (json!({"addresses": ["10.0.0.1"], "prefix": 24, "gateway": "fd00::1"}), &["spec.gateway: ", "fd00::1"]),
        (json!({"addresses": ["10.0.0.1"], "prefix": 24, "gateway": "10.0.0.0/24"}), &["spec.gateway: "]),
        (
            json!({"addresses": ["10.0.0.1"], "prefix": 24, "excludedAddresses": ["10.0.0.9", "x"]}),
            &["spec.excludedAddresses[1]: "],
        ),
    ]
}

#[tokio::test]
async fn a_broken_pool_says_where_and_serves_once_it_is_corrected() {
    let consumer = lenient_consumer().await;
    join_all(broken_specs().into_iter().map(async |(spec, texts)| {
        let (pool, claim) = (unique("pool"), unique("claim"));
        consumer.pool(&pool, spec.clone()).await;
        consumer.claim(&claim, &pool).await;
        let said = [
            consumer.pool_says(&pool, "False", "InvalidSpec").await,
            // The claim may have been seen before its pool.
            eventually(&format!("claim {claim} says what is wrong with {spec}"), || async {
                let text = consumer.waits_for(&claim, "PoolNotReady").await;
                text.contains("correct the pool").then_some(text)
            })
            .await,
        ];
        for text in &said {
            assert!(texts.iter().all(|part| text.contains(part)), "{spec}: {texts:?} are missing: {text}");
        }
        consumer.counts(&pool, (0, 0, 0, 0)).await;
        let events = eventually("an event", || async { consumer.events(&pool).await.pop() }).await;
        assert_eq!((events.0.as_str(), events.1.as_str(), &events.2), ("Warning", "InvalidSpec", &said[0]));

        let correct = json!({"addresses": ["10.0.0.7"], "prefix": 24});
        consumer.change(&consumer.pools(), &pool, |pool| pool["spec"] = correct.clone()).await;
        assert_eq!(consumer.bound(&claim).await, "10.0.0.7");
        assert_eq!(consumer.pool_says(&pool, "True", "PoolReady").await, "");
        consumer.counts(&pool, (1, 0, 1, 0)).await;
    }))
    .await;
    assert!(world().manager.is_ready());
    assert!(!world().manager.log().contains("panicked"), "see the log of the manager");
}

#[tokio::test]
async fn a_pool_that_breaks_while_in_use_keeps_what_it_gave() {
    let consumer = lenient_consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.3"], "prefix": 24})).await;
    for name in ["a", "b"] {
        consumer.claim(name, "web").await;
        consumer.bound(name).await;
    }
    let before = consumer.bound_address("a").await;
    consumer.change_pool("web", |spec| spec["addresses"] = json!(["nonsense"])).await;
    consumer.pool_says("web", "False", "InvalidSpec").await;
    consumer.claim("c", "web").await;
    consumer.waits_for("c", "PoolNotReady").await;
    assert_eq!(consumer.bound_address("a").await, before);
    consumer.release("b").await;
    consumer.counts("web", (0, 0, 0, 1)).await;
    consumer.change_pool("web", |spec| spec["addresses"] = json!(["10.0.0.1-10.0.0.3"])).await;
    assert_eq!(consumer.bound("c").await, "10.0.0.2");
    consumer.counts("web", (3, 1, 2, 0)).await;
}

#[tokio::test]
async fn a_broken_pool_can_be_deleted() {
    let consumer = lenient_consumer().await;
    consumer.pool("web", json!({"addresses": ["nonsense"], "prefix": 24})).await;
    consumer.pool_says("web", "False", "InvalidSpec").await;
    consumer.remove(&consumer.pools(), "web").await;
    eventually("the pool is gone", || async {
        consumer.pools().get("web").await.expect("pools can be read").is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn pools_of_extreme_size_serve_in_bounded_time() {
    let consumer = lenient_consumer().await;
    let scattered: Vec<String> =
        (0..4_000).map(|number| format!("10.0.{}.{}", number / 128, number % 128 * 2)).collect();
    let nested: Vec<String> = (0..4_000).map(|number| format!("fd00::{number:x}-fd00::ffff")).collect();
    let max = i64::MAX;
    join_all(
        [
            (json!({"addresses": ["::/0"], "prefix": 0}), (max, max), "::1 ::2"),
            (json!({"addresses": ["::/0"], "prefix": 0, "allocateReservedIPAddresses": true}), (max, max), ":: ::1"),
            (json!({"addresses": ["0.0.0.0/0"], "prefix": 0}), (4_294_967_294, 4_294_967_292), "0.0.0.1 0.0.0.2"),
            (
                json!({"addresses": ["fd00::/66"], "prefix": 64, "gateway": "fd00::1"}),
                ((1 << 62) - 2, (1 << 62) - 4),
                "fd00::2 fd00::3",
            ),
            (json!({"addresses": ["fd00::/65"], "prefix": 64}), (max, max - 2), "fd00::1 fd00::2"),
            (json!({"addresses": scattered, "prefix": 16}), (3_999, 3_997), "10.0.0.2 10.0.0.4"),
            (
                json!({"addresses": ["10.0.0.0/16"], "prefix": 16, "excludedAddresses": scattered}),
                (65_535 - 4_000, 65_533 - 4_000),
                "10.0.0.1 10.0.0.3",
            ),
            (json!({"addresses": nested, "prefix": 64}), (65_535, 65_533), "fd00::1 fd00::2"),
        ]
        .map(async |(spec, (total, free), expected)| {
            let (pool, begin) = (unique("pool"), Instant::now());
            consumer.pool(&pool, spec).await;
            let mut given = Vec::new();
            for _ in 0..2 {
                let name = unique("claim");
                consumer.claim(&name, &pool).await;
                given.push(consumer.bound(&name).await);
            }
            assert_eq!(given.join(" "), expected);
            consumer.counts(&pool, (total, free, 2, 0)).await;
            assert!(begin.elapsed() < BOUNDED, "{expected}: {:?}", begin.elapsed());
        }),
    )
    .await;
}

#[tokio::test]
async fn exclusions_that_cover_everything_leave_nothing() {
    let consumer = consumer().await;
    join_all(
        [
            json!({"addresses": ["10.0.0.0/24"], "prefix": 24, "excludedAddresses": ["10.0.0.0/8"]}),
            json!({"addresses": ["::/0"], "prefix": 0, "excludedAddresses": ["::-ffff::", "8000::/1"]}),
            json!({"addresses": ["10.0.0.1"], "prefix": 24, "gateway": "10.0.0.1"}),
            json!({"addresses": ["10.0.0.0"], "prefix": 24}),
        ]
        .map(async |spec| {
            let (pool, claim, begin) = (unique("pool"), unique("claim"), Instant::now());
            consumer.pool(&pool, spec.clone()).await;
            consumer.claim(&claim, &pool).await;
            let text = consumer.waits_for(&claim, "PoolExhausted").await;
            assert!(text.contains("0 in total"), "{text}");
            consumer.pool_says(&pool, "True", "PoolReady").await;
            consumer.counts(&pool, (0, 0, 0, 0)).await;
            assert!(begin.elapsed() < BOUNDED, "{spec}: {:?}", begin.elapsed());
        }),
    )
    .await;
}

#[tokio::test]
async fn a_claim_waits_for_its_pool_to_be_made() {
    let consumer = consumer().await;
    let shared = unique("shared");
    consumer.claim("a", "web").await;
    consumer.global_claim("b", &shared).await;
    // A pool of that name of the other kind is another pool.
    consumer.global_pool("web", json!({"addresses": ["10.9.9.9"], "prefix": 24})).await;
    consumer.pool(&shared, json!({"addresses": ["10.9.9.9"], "prefix": 24})).await;
    for (claim, pool) in [
        ("a", format!("InClusterIPPool {}/web does not exist", consumer.namespace)),
        ("b", format!("GlobalInClusterIPPool {shared} does not exist")),
    ] {
        let text = consumer.waits_for(claim, "PoolNotReady").await;
        assert!(text.contains(&pool) && text.contains("create it"), "{text}");
        consumer.stays_unbound(claim).await;
    }
    consumer.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    consumer.global_pool(&shared, json!({"addresses": ["10.0.0.2"], "prefix": 24})).await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    assert_eq!(consumer.bound("b").await, "10.0.0.2");
}

#[tokio::test]
async fn a_claim_for_a_missing_pool_can_be_deleted() {
    let consumer = consumer().await;
    consumer.claim("a", "nowhere").await;
    consumer.waits_for("a", "PoolNotReady").await;
    consumer.release("a").await;
}

#[tokio::test]
async fn claims_of_other_providers_are_not_touched() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    let ours = "ipam.cluster.x-k8s.io";
    let made = join_all(
        [
            ("metal", "ipam.metal3.io", "IPPool"),
            ("same-kind", "ipam.example.com", InClusterIPPool::KIND.name()),
            ("core-group", "cluster.x-k8s.io", InClusterIPPool::KIND.name()),
            // Other providers have pools in our group, too.
            ("unknown-kind", ours, "Foo"),
            ("other-case", ours, "InclusterIPPool"),
        ]
        .map(|(name, group, kind)| claim_of(&consumer, name, group, kind)),
    )
    .await;
    // Made later and bound: the manager has seen the others.
    consumer.claim("a", "web").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    stays("the claims of others", || async {
        let now = join_all(made.iter().map(async |claim| consumer.claims().get(&claim.name_any()).await)).await;
        now.into_iter().zip(&made).all(|(now, made)| now.expect("claims can be read").as_ref() == Some(made))
    })
    .await;
    assert_eq!(consumer.given().await.into_keys().collect::<Vec<_>>(), ["a"]);
    // And they go without our help.
    for claim in &made {
        consumer.release(&claim.name_any()).await;
    }
}

/// Makes a claim for a pool `web` of any kind; reads it back as the server keeps it.
async fn claim_of(consumer: &Consumer, name: &str, group: &str, kind: &str) -> IPAddressClaim {
    let pool = json!({"apiGroup": group, "kind": kind, "name": "web"});
    let made = consumer.try_claim_for(name, pool, json!({})).await.expect("the claim can be made");
    assert_eq!((made.finalizers(), &made.status), (&[][..], &None));
    made
}

#[tokio::test]
async fn other_pools_go_on_beside_broken_ones() {
    let consumer = lenient_consumer().await;
    for spec in broken_specs().into_iter().map(|(spec, _)| spec) {
        let pool = unique("pool");
        consumer.pool(&pool, spec).await;
        consumer.claim(&unique("claim"), &pool).await;
    }
    consumer.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    consumer.claim("a", "web").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    consumer.release("a").await;
    consumer.claim("b", "web").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.1");
}

/// Refuses finalizers on claims of one name, as an operator's policy may.
const NO_FINALIZERS: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: no-finalizers
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [ipam.cluster.x-k8s.io]
        apiVersions: ["*"]
        operations: [UPDATE]
        resources: [ipaddressclaims]
  matchConditions:
    - name: one-name
      expression: object.metadata.name == 'refused-by-policy'
  validations:
    - expression: "!has(object.metadata.finalizers)"
      message: no finalizers here
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: no-finalizers
spec:
  policyName: no-finalizers
  validationActions: [Deny]
"#;

#[tokio::test]
async fn a_claim_that_takes_no_finalizer_is_told_so() {
    let consumer = consumer().await;
    world().control_plane.kubectl_apply(NO_FINALIZERS);
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24})).await;
    consumer.counts("web", (9, 9, 0, 0)).await;
    let claim = "refused-by-policy";
    // The API server takes a moment to heed a new policy: only claims made after that are refused.
    let text = eventually("the policy is heeded and the claim says so", || async {
        consumer.claim(claim, "web").await;
        let says = eventually("the claim says something", || async {
            let found = consumer.claims().get(claim).await.ok()??;
            let ready = ready(&found);
            (!ready.status.is_empty()).then_some(ready)
        })
        .await;
        if says.status == "True" {
            consumer.release(claim).await;
            return None;
        }
        says.message
    })
    .await;
    assert!(text.contains("finalizer") && text.contains("no finalizers here"), "{text}");
    assert!(consumer.given().await.is_empty(), "nothing is given out that could not be taken back");
    world().control_plane.kubectl(&["delete", "validatingadmissionpolicybinding/no-finalizers"]);
    consumer.bound(claim).await;
}
