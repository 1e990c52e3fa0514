//! Invalid pools and claims, and very large pools.

use support::prelude::*;

use crate::{consumer, environment, lenient_consumer, lenient_environment};

/// How long all steps with a large or invalid pool may take. They take milliseconds on a free
/// machine, and longer than this if the work is linear in the number of addresses or quadratic in
/// the number of ranges.
const BOUNDED: Duration = Duration::from_mins(4);

/// Specs that only the admission webhook denies, and parts of the expected condition message.
fn broken_specs() -> [(Value, &'static str); 3] {
    let range = json!({"addresses": ["10.0.0.9"], "prefix": 24});
    [
        (
            json!({"addresses": ["10.0.0.1", "nonsense"], "prefix": 24}),
            "spec.addresses[1]: ",
        ),
        (
            json!({"addresses": ["10.0.0.1"], "prefix": 24, "gateway": "fd00::1"}),
            "spec.gateway: ",
        ),
        (
            json!({"addresses": ["10.0.0.0/24"], "prefix": 24, "ranges": [range]}),
            "spec.ranges[0].addresses[0]: 10.0.0.9 overlaps with spec.addresses",
        ),
    ]
}

#[tokio::test]
async fn invalid_pool_reports_the_field_and_recovers_when_fixed() {
    let consumer = lenient_consumer().await;
    join_all(broken_specs().into_iter().map(async |(spec, part)| {
        let (pool, claim) = (unique("pool"), unique("claim"));
        consumer.create_pool(&pool, spec.clone()).await;
        consumer.create_claim(&claim, &pool).await;
        let output = [
            consumer
                .wait_for_pool_condition(&pool, "False", "InvalidSpec")
                .await,
            // The manager may have observed the claim before its pool.
            eventually(
                &format!("claim {claim} reports the error in {spec}"),
                || async {
                    let text = consumer.wait_for_reason(&claim, "PoolNotReady").await;
                    text.contains("correct the pool").then_some(text)
                },
            )
            .await,
        ];
        for text in &output {
            assert_contains(text, part);
        }
        consumer.wait_for_counts(&pool, (0, 0, 0, 0)).await;
        let note = consumer
            .wait_for_event(&pool, "Warning", "InvalidSpec", &output[0])
            .await;
        assert_eq!(note, output[0]);

        let correct = json!({"addresses": ["10.0.0.7"], "prefix": 24});
        consumer
            .modify_pool(&pool, |spec| *spec = correct.clone())
            .await;
        consumer.assert_address(&claim, "10.0.0.7").await;
        let ready = consumer.wait_for_pool_condition(&pool, "True", "PoolReady");
        assert_eq!(ready.await, "");
        consumer.wait_for_counts(&pool, (1, 0, 1, 0)).await;
    }))
    .await;
    let manager = &lenient_environment().manager;
    assert!(manager.is_ready());
    assert!(
        !manager.log().contains("panicked"),
        "the manager panicked, see its log"
    );
}

#[tokio::test]
async fn pool_that_becomes_invalid_keeps_allocated_addresses() {
    let consumer = lenient_consumer().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.3").await;
    for name in ["a", "b"] {
        consumer.bind(name, "web").await;
    }
    let before = consumer.wait_for_ip_address("a").await;
    consumer
        .modify_pool("web", |spec| spec["addresses"] = json!(["nonsense"]))
        .await;
    consumer
        .wait_for_pool_condition("web", "False", "InvalidSpec")
        .await;
    consumer.claim_waits("c", "web", "PoolNotReady").await;
    assert_eq!(consumer.wait_for_ip_address("a").await, before);
    consumer.release("b").await;
    consumer.wait_for_counts("web", (0, 0, 0, 1)).await;
    consumer
        .modify_pool("web", |spec| {
            spec["addresses"] = json!(["10.0.0.1-10.0.0.3"])
        })
        .await;
    consumer.assert_address("c", "10.0.0.2").await;
    consumer.wait_for_counts("web", (3, 1, 2, 0)).await;
}

#[tokio::test]
async fn invalid_pool_can_be_deleted() {
    let consumer = lenient_consumer().await;
    consumer.create_pool("web", "nonsense").await;
    consumer
        .wait_for_pool_condition("web", "False", "InvalidSpec")
        .await;
    consumer.delete_pool("web").await;
    consumer.wait_until_pool_gone("web").await;
}

#[tokio::test]
async fn very_large_pools_allocate_in_bounded_time() {
    let consumer = lenient_consumer().await;
    let scattered: Vec<String> = (0..4_000)
        .map(|number| format!("10.0.{}.{}", number / 128, number % 128 * 2))
        .collect();
    let nested: Vec<String> = (0..4_000)
        .map(|number| format!("fd00::{number:x}-fd00::ffff"))
        .collect();
    let max = i64::MAX;
    let excluding =
        json!({"addresses": ["10.0.0.0/16"], "prefix": 16, "excludedAddresses": scattered});
    join_all(
        [
            (
                json!({"addresses": ["::/0"], "prefix": 0}),
                (max, max),
                "::1 ::2",
            ),
            (
                excluding,
                (65_535 - 4_000, 65_533 - 4_000),
                "10.0.0.1 10.0.0.3",
            ),
            (
                json!({"addresses": nested, "prefix": 64}),
                (65_535, 65_533),
                "fd00::1 fd00::2",
            ),
        ]
        .map(async |(spec, (total, free), expected)| {
            let (pool, begin) = (unique("pool"), Patience::new(BOUNDED));
            consumer.create_pool(&pool, spec).await;
            let mut given = Vec::new();
            for _ in 0..2 {
                let name = unique("claim");
                consumer.create_claim(&name, &pool).await;
                given.push(consumer.wait_for_address(&name).await);
            }
            assert_eq!(given.join(" "), expected);
            consumer.wait_for_counts(&pool, (total, free, 2, 0)).await;
            assert!(!begin.is_over(), "{expected}: {:?}", begin.elapsed());
        }),
    )
    .await;
}

#[tokio::test]
async fn pool_with_everything_excluded_is_exhausted() {
    let consumer = consumer().await;
    join_all(
        [
            json!({"addresses": ["10.0.0.0/24"], "prefix": 24, "excludedAddresses": ["10.0.0.0/8"]}),
            json!({"addresses": ["::/0"], "prefix": 0, "excludedAddresses": ["::-ffff::", "8000::/1"]}),
        ]
        .map(async |spec| {
            let (pool, claim, begin) = (unique("pool"), unique("claim"), Patience::new(BOUNDED));
            consumer.create_pool(&pool, spec.clone()).await;
            assert_contains(&consumer.claim_waits(&claim, &pool, "PoolExhausted").await, "0 in total");
            consumer.wait_until_pool_ready(&pool).await;
            consumer.wait_for_counts(&pool, (0, 0, 0, 0)).await;
            assert!(!begin.is_over(), "{spec}: {:?}", begin.elapsed());
        }),
    )
    .await;
}

#[tokio::test]
async fn claim_waits_until_its_pool_exists() {
    let consumer = consumer().await;
    let shared = unique("shared");
    consumer.create_claim("a", "web").await;
    consumer.create_global_claim("b", &shared).await;
    // A pool of the other kind with the same name is another pool.
    consumer.create_global_pool("web", "10.9.9.9").await;
    consumer.create_pool(&shared, "10.9.9.9").await;
    for (claim, pool) in [
        (
            "a",
            format!("InClusterIPPool {}/web does not exist", consumer.namespace),
        ),
        (
            "b",
            format!("GlobalInClusterIPPool {shared} does not exist"),
        ),
    ] {
        let text = consumer.wait_for_reason(claim, "PoolNotReady").await;
        assert!(text.contains(&pool) && text.contains("create it"), "{text}");
        consumer.assert_stays_unbound(claim).await;
    }
    consumer.create_pool("web", "10.0.0.1").await;
    consumer.create_global_pool(&shared, "10.0.0.2").await;
    consumer.assert_address("a", "10.0.0.1").await;
    consumer.assert_address("b", "10.0.0.2").await;
}

#[tokio::test]
async fn claim_for_a_missing_pool_can_be_deleted() {
    let consumer = consumer().await;
    consumer.claim_waits("a", "nowhere", "PoolNotReady").await;
    consumer.release("a").await;
}

#[tokio::test]
async fn claims_of_other_providers_are_ignored() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    let ours = "ipam.cluster.x-k8s.io";
    let made = join_all(
        [
            ("metal", "ipam.metal3.io", "IPPool"),
            (
                "same-kind",
                "ipam.example.com",
                InClusterKind::IPPool.name(),
            ),
            (
                "core-group",
                "cluster.x-k8s.io",
                InClusterKind::IPPool.name(),
            ),
            // Other providers use the same API group.
            ("unknown-kind", ours, "Foo"),
            ("other-case", ours, "InclusterIPPool"),
        ]
        .map(|(name, group, kind)| claim_of(&consumer, name, group, kind)),
    )
    .await;
    // Created later and bound: the manager has observed the others.
    consumer.bind_to("a", "web", "10.0.0.1").await;
    consistently("the claims of other providers are unchanged", || async {
        let now = join_all(
            made.iter()
                .map(async |claim| consumer.claims().get(&claim.name_any()).await),
        )
        .await;
        now.into_iter()
            .zip(&made)
            .all(|(now, made)| now.expect("claims can be read").as_ref() == Some(made))
    })
    .await;
    assert_eq!(
        consumer
            .allocated_addresses()
            .await
            .into_keys()
            .collect::<Vec<_>>(),
        ["a"]
    );
    // They can be deleted without this provider.
    for claim in &made {
        consumer.release(&claim.name_any()).await;
    }
}

/// Creates a claim for a pool `web` of any kind, and reads it back.
async fn claim_of(consumer: &Consumer, name: &str, group: &str, kind: &str) -> IPAddressClaim {
    let pool = json!({"apiGroup": group, "kind": kind, "name": "web"});
    let made = consumer
        .try_create_claim_for(name, pool, json!({}))
        .await
        .expect("the claim can be created");
    assert_eq!((made.finalizers(), &made.status), (&[][..], &None));
    made
}

#[tokio::test]
async fn valid_pools_allocate_beside_invalid_ones() {
    let consumer = lenient_consumer().await;
    for spec in broken_specs().into_iter().map(|(spec, _)| spec) {
        let pool = unique("pool");
        consumer.create_pool(&pool, spec).await;
        consumer.create_claim(&unique("claim"), &pool).await;
    }
    consumer.create_pool("web", "10.0.0.1").await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
    consumer.release("a").await;
    consumer.bind_to("b", "web", "10.0.0.1").await;
}

/// A policy that rejects finalizers on claims of one name.
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
async fn claim_reports_that_its_finalizer_is_rejected() {
    let consumer = consumer().await;
    environment().control_plane.kubectl_apply(NO_FINALIZERS);
    consumer.create_pool("web", "10.0.0.1-10.0.0.9").await;
    consumer.wait_for_counts("web", (9, 9, 0, 0)).await;
    let claim = "refused-by-policy";
    // The API server enforces a new policy after a delay: only claims created after that are
    // rejected.
    eventually(
        "the policy is enforced and the claim reports it",
        || async {
            consumer.create_claim(claim, "web").await;
            let is_denied = eventually("the claim is bound or reports the policy", || async {
                let found = consumer.claims().get(claim).await.ok()??;
                let ready = ready(&found);
                let is_denied = ready
                    .message
                    .as_deref()
                    .is_some_and(|text| text.contains("no finalizers here"));
                (is_denied || ready.status == "True").then_some(is_denied)
            })
            .await;
            if !is_denied {
                consumer.release(claim).await;
            }
            is_denied.then_some(())
        },
    )
    .await;
    assert!(
        consumer.allocated_addresses().await.is_empty(),
        "nothing is allocated that cannot be released"
    );
    environment()
        .control_plane
        .kubectl(&["delete", "validatingadmissionpolicybinding/no-finalizers"]);
    consumer.wait_for_address(claim).await;
}

/// An IPReservation of a pool of the namespace of the consumer, as YAML: under the name of the one
/// of `named`, it reserves `address`.
fn reservation_named(
    consumer: &Consumer,
    pool: &str,
    named: &str,
    address: &str,
    more: &str,
) -> (String, String) {
    let namespace = &consumer.namespace;
    let name = format!("p.{namespace}.{pool}.{named}");
    let text = format!(
        "apiVersion: ipam.cluster.x-k8s.io/v1alpha2\nkind: IPReservation\nmetadata: {{name: {name}}}\nspec:\n  \
         scope: p.{namespace}.{pool}\n  address: {address}\n  poolRef: {{kind: InClusterIPPool, namespace: {namespace}, \
         name: {pool}}}\n{more}"
    );
    (name, text)
}

/// How often the manager has tried to reserve an address that was reserved already.
fn vain_attempts(pool: &str, address: &str) -> usize {
    let (text, slot) = (
        "the proposed address is already reserved",
        format!("{address} of "),
    );
    let log = lenient_environment().manager.log();
    log.lines()
        .filter(|line| line.contains(text) && line.contains(&slot) && line.contains(pool))
        .count()
}

#[tokio::test]
async fn misnamed_reservation_takes_the_address_of_its_name() {
    let consumer = lenient_consumer().await;
    let pool = &unique("web");
    consumer.create_pool(pool, "10.0.0.1-10.0.0.9").await;
    let (name, text) = reservation_named(&consumer, pool, "10.0.0.1", "10.0.0.200", "");
    lenient_environment().control_plane.kubectl_apply(&text);
    let names: Vec<String> = numbered("c", 3);
    consumer.create_claims(&names, pool).await;
    let addresses = consumer.wait_for_addresses(&names).await;
    assert!(
        !addresses.values().any(|address| address == "10.0.0.1"),
        "{addresses:?}"
    );
    // The first claims may be faster than the watch.
    assert!(
        vain_attempts(pool, "10.0.0.1") <= names.len(),
        "the name is tried once"
    );
    consumer.wait_for_counts(pool, (9, 5, 3, 0)).await;
    lenient_environment()
        .control_plane
        .kubectl(&["delete", &format!("ipreservation/{name}")]);
    consumer.wait_for_counts(pool, (9, 6, 3, 0)).await;
    consumer.bind_to("last", pool, "10.0.0.1").await;
}

#[tokio::test]
async fn claim_with_an_impossible_time_is_released() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.9").await;
    consumer.bind("a", "web").await;
    // The API server accepts an offset that is none.
    let odd = json!({"type": "Odd", "status": "True", "reason": "Odd", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00+99:99"});
    let patch = json!([{"op": "add", "path": "/status/conditions/-", "value": odd}]);
    let patch = format!("--patch={patch}");
    let namespace = format!("--namespace={}", consumer.namespace);
    environment().control_plane.kubectl(&[
        "patch",
        "ipaddressclaim",
        "a",
        &namespace,
        "--subresource=status",
        "--type=json",
        &patch,
    ]);
    consumer.release("a").await;
    consumer.wait_for_counts("web", (9, 9, 0, 0)).await;
}

#[tokio::test]
async fn undecodable_reservation_blocks_its_own_pool_only() {
    let consumer = lenient_consumer().await;
    let pool = &unique("web");
    consumer.create_pool(pool, "10.0.0.1-10.0.0.9").await;
    // The API server accepts an offset that is none.
    let date = "  releasedAt: \"2026-01-01T00:00:00+99:99\"\n";
    let (name, text) = reservation_named(&consumer, pool, "10.0.0.1", "10.0.0.1", date);
    let control_plane = &lenient_environment().control_plane;
    control_plane.kubectl_apply(&text);
    consumer.bind_to("a", pool, "10.0.0.2").await;
    assert!(
        vain_attempts(pool, "10.0.0.1") <= 1,
        "the name is tried once"
    );
    let other = unique("other");
    consumer.create_pool(&other, "10.1.0.1").await;
    consumer.wait_until_pool_ready(&other).await;
    consumer.delete_pool(&other).await;
    consumer.wait_until_pool_gone(&other).await;
    consumer.release("a").await;
    consumer.delete_pool(pool).await;
    assert_contains(
        &consumer
            .wait_for_pool_message(pool, "Deleting", &name)
            .await,
        "cannot be decoded",
    );
    control_plane.kubectl(&["delete", &format!("ipreservation/{name}")]);
    consumer.wait_until_pool_gone(pool).await;
}

#[tokio::test]
async fn reservation_behind_a_foreign_finalizer_keeps_its_address() {
    let consumer = lenient_consumer().await;
    let pool = &unique("web");
    consumer.create_pool(pool, "10.0.0.1-10.0.0.9").await;
    consumer.bind_to("a", pool, "10.0.0.1").await;
    let name = &format!("p.{}.{pool}.10.0.0.1", consumer.namespace);
    consumer
        .set_finalizers(&consumer.reservations(), name, &["example.com/audit"])
        .await;
    consumer.release("a").await;
    let names: Vec<String> = numbered("b", 3);
    consumer.create_claims(&names, pool).await;
    let addresses = consumer.wait_for_addresses(&names).await;
    assert!(
        !addresses.values().any(|address| address == "10.0.0.1"),
        "{addresses:?}"
    );
    assert!(vain_attempts(pool, "10.0.0.1") <= 1, "it is known to exist");
    consumer
        .set_finalizers(&consumer.reservations(), name, &[])
        .await;
    consumer
        .wait_until_gone(&consumer.reservations(), name)
        .await;
    consumer.bind_to("last", pool, "10.0.0.1").await;
}
