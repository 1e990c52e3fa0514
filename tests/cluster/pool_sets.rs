//! Sets of pools: which pool a claim gets its address from, and what happens to claims when a set or
//! its pools change.

use capi_ipam_api::{PoolSet, PoolSetKind, conditions, names};
use support::prelude::*;

use crate::{consumer, lenient_consumer, start};

const SET: &str = PoolSetKind::Namespaced.name();
const ZONE: &str = names::ZONE_LABEL;

fn sets(consumer: &Consumer, kind: PoolSetKind) -> ResourceClient<PoolSet> {
    let client = consumer.client.clone();
    let api = if kind.is_global() {
        Api::all_with(client, &kind)
    } else {
        Api::namespaced_with(client, &consumer.namespace, &kind)
    };
    ResourceClient::new(api, &kind)
}

fn own_sets(consumer: &Consumer) -> ResourceClient<PoolSet> {
    sets(consumer, PoolSetKind::Namespaced)
}

fn set(consumer: &Consumer, kind: PoolSetKind, name: &str, spec: &Value) -> PoolSet {
    let namespace = (!kind.is_global()).then_some(&consumer.namespace);
    object(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind.name(),
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    }))
}

/// Creates the set `racks` of the namespace.
async fn create_set(consumer: &Consumer, spec: Value) {
    let set = set(consumer, PoolSetKind::Namespaced, "racks", &spec);
    create(&own_sets(consumer), &set)
        .await
        .expect("the set can be created");
}

async fn change_set(consumer: &Consumer, change: impl Fn(&mut Value)) {
    consumer
        .modify(&own_sets(consumer), "racks", |set| change(&mut set["spec"]))
        .await;
}

fn members(pools: &[&str]) -> Value {
    pools
        .iter()
        .map(|name| json!({"kind": "InClusterIPPool", "name": name}))
        .collect()
}

/// A consumer with pools `rack-1`, `rack-2` and so on of these numbers of addresses.
async fn with_racks(sizes: &[u8]) -> Consumer {
    let consumer = consumer().await;
    create_racks(&consumer, sizes).await;
    consumer
}

async fn create_racks(consumer: &Consumer, sizes: &[u8]) {
    for (number, size) in (1..).zip(sizes) {
        let (name, addresses) = (format!("rack-{number}"), addresses(number, *size));
        consumer.create_pool(&name, addresses).await;
        consumer.wait_until_pool_ready(&name).await;
    }
}

fn addresses(rack: u8, size: u8) -> String {
    format!("10.0.{rack}.1-10.0.{rack}.{size}")
}

async fn create_claim(consumer: &Consumer, name: &str) {
    create_claim_with(consumer, name, json!({})).await;
}

async fn create_claim_with(consumer: &Consumer, name: &str, metadata: Value) {
    consumer
        .create_claim_with(name, SET, "racks", metadata)
        .await;
}

/// Creates a claim for the set, and returns its address.
async fn bind(consumer: &Consumer, name: &str) -> String {
    create_claim(consumer, name).await;
    consumer.wait_for_address(name).await
}

async fn waits(consumer: &Consumer, name: &str, reason: &str) -> String {
    create_claim(consumer, name).await;
    consumer.wait_for_reason(name, reason).await
}

/// Writes the name of a pool into the annotation of an IPAddress.
async fn write_member(consumer: &Consumer, name: &str, pool: &str) {
    consumer
        .modify(&consumer.addresses(), name, |address| {
            let annotations = &mut address["metadata"]["annotations"];
            annotations[names::MEMBER_POOL_ANNOTATION] = json!(format!("InClusterIPPool/{pool}"));
        })
        .await;
}

/// Pauses the set `racks`, and creates a claim that waits for it. Returns its name.
async fn create_paused_claim(consumer: &Consumer) -> String {
    consumer
        .set_paused(&own_sets(consumer), "racks", true)
        .await;
    eventually("a claim reports that its set is paused", || async {
        let name = unique("p");
        create_claim(consumer, &name).await;
        until(&format!("claim {name} is bound or waits"), async || {
            let claim = consumer.claims().get(&name).await.ok().flatten()?;
            Some(claim.bound_address().is_some() || ready(&claim).message.is_some())
        })
        .await;
        let text = ready(&consumer.the_claim(&name).await).message;
        text.is_some_and(|text| text.contains("racks is paused"))
            .then_some(name)
    })
    .await
}

/// Waits until the set `racks` has these numbers of pools, of addresses in use, and of free ones.
async fn wait_for_counts(consumer: &Consumer, expected: (i64, i64, i64)) {
    eventually_ok(&format!("the set counts {expected:?}"), || async {
        let set = answered(own_sets(consumer).get("racks").await).ok_or("no answer")?;
        let status = set.and_then(|set| set.status).ok_or("no status")?;
        let counts = (status.pools, status.used, status.free);
        if counts == expected {
            Ok(())
        } else {
            Err(format!("{counts:?}"))
        }
    })
    .await;
}

/// Waits until `Ready` of the set has a status and a reason, and returns the message.
async fn wait_until_ready_is(consumer: &Consumer, status: &str, reason: &str) -> String {
    eventually(&format!("the set is Ready={status} {reason}"), || async {
        let set = answered(own_sets(consumer).get("racks").await)??;
        let ready = conditions::find(&set.status.as_ref()?.conditions, conditions::READY)?.clone();
        let is_wanted = ready.status == status && ready.reason.as_deref() == Some(reason);
        let is_current = ready.observed_generation == set.metadata.generation;
        (is_wanted && is_current).then(|| ready.message.unwrap_or_default())
    })
    .await
}

#[tokio::test]
async fn next_pool_is_used_when_the_first_is_full() {
    let consumer = with_racks(&[1, 1]).await;
    create_set(&consumer, json!({"pools": members(&["rack-1", "rack-2"])})).await;
    assert_eq!(bind(&consumer, "a").await, "10.0.1.1");
    assert_eq!(bind(&consumer, "b").await, "10.0.2.1");
    let address = consumer.the_address("b").await;
    assert_eq!(
        (&*address.spec.pool_ref.kind, &*address.spec.pool_ref.name),
        (SET, "racks")
    );
    let member = address.annotations().get(names::MEMBER_POOL_ANNOTATION);
    assert_eq!(member.map(String::as_str), Some("InClusterIPPool/rack-2"));
    consumer
        .wait_for_reservations("rack-2", &[("10.0.2.1", "b")])
        .await;
    consumer.wait_for_counts("rack-2", (1, 0, 1, 0)).await;
    let text = waits(&consumer, "c", "PoolExhausted").await;
    let namespace = &consumer.namespace;
    for part in [
        &format!(
            "IPPoolSet {namespace}/racks has no address for the claim: all of its 2 pools are exhausted"
        ),
        &format!("InClusterIPPool {namespace}/rack-1 has no free address"),
        &format!("InClusterIPPool {namespace}/rack-2 has no free address"),
    ] {
        assert_contains(&text, part);
    }
    wait_for_counts(&consumer, (2, 2, 0)).await;
    // Any of the pools wakes it.
    consumer.release("b").await;
    consumer.assert_address("c", "10.0.2.1").await;
    wait_for_counts(&consumer, (2, 2, 0)).await;
    wait_until_ready_is(&consumer, "True", "PoolsReady").await;
}

#[tokio::test]
async fn waiting_claims_are_served_in_order_with_those_of_the_pool() {
    let consumer = with_racks(&[1, 1]).await;
    create_set(&consumer, json!({"pools": members(&["rack-1", "rack-2"])})).await;
    for name in ["a", "b"] {
        bind(&consumer, name).await;
    }
    waits(&consumer, "c", "PoolExhausted").await;
    // Claims of one second are served in the order of their requests in this pool.
    tokio::time::sleep(Duration::from_secs(1)).await;
    consumer.claim_waits("d", "rack-1", "PoolExhausted").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    waits(&consumer, "e", "PoolExhausted").await;
    consumer.release("a").await;
    consumer.assert_address("c", "10.0.1.1").await;
    consumer.release("c").await;
    consumer.assert_address("d", "10.0.1.1").await;
    consumer.release("b").await;
    consumer.assert_address("e", "10.0.2.1").await;
}

#[tokio::test]
async fn pool_with_most_free_addresses_is_chosen() {
    let consumer = with_racks(&[1, 4, 3]).await;
    let pools = members(&["rack-1", "rack-2", "rack-3"]);
    create_set(&consumer, json!({"pools": pools, "choose": "MostFree"})).await;
    for (name, address) in [
        ("a", "10.0.2.1"),
        ("b", "10.0.2.2"),
        ("c", "10.0.3.1"),
        ("d", "10.0.2.3"),
    ] {
        assert_eq!(bind(&consumer, name).await, address);
        // The address is observed before the next claim is created.
        wait_for_counts(
            &consumer,
            (3, i64::from(name.as_bytes()[0] - b'a') + 1, {
                7 - i64::from(name.as_bytes()[0] - b'a')
            }),
        )
        .await;
    }
}

#[tokio::test]
async fn failure_domain_of_the_claim_chooses_the_pool() {
    let consumer = with_racks(&[1, 1]).await;
    for (pool, zone) in [("rack-1", "west"), ("rack-2", "east")] {
        consumer.label_pool(pool, json!({ZONE: zone})).await;
    }
    let pools = members(&["rack-1", "rack-2"]);
    create_set(
        &consumer,
        json!({"pools": pools, "choose": "ByFailureDomain"}),
    )
    .await;
    let in_zone = |zone: &str| json!({"labels": {ZONE: zone}});
    create_claim_with(&consumer, "a", in_zone("east")).await;
    consumer.assert_address("a", "10.0.2.1").await;
    create_claim_with(&consumer, "b", in_zone("east")).await;
    let text = consumer.wait_for_reason("b", "PoolExhausted").await;
    assert_contains(
        &text,
        "all of its 1 pools in failure domain east are exhausted",
    );
    let text = waits(&consumer, "c", "FailureDomainUnknown").await;
    assert_contains(&text, ZONE);
    // The domain of a Machine.
    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": "m", "namespace": consumer.namespace},
        "spec": {"clusterName": "x", "failureDomain": "west", "bootstrap": {"dataSecretName": "x"},
                 "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ExampleMachine", "name": "m"}},
    });
    let machine = create(&consumer.machines(), &object(machine))
        .await
        .expect("the Machine can be created");
    let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": machine.uid()});
    create_claim_with(&consumer, "d", json!({"ownerReferences": [owner]})).await;
    consumer.assert_address("d", "10.0.1.1").await;
    consumer.release("d").await;
    // Without a domain, or if its own is full, a claim gets an address of another one.
    change_set(&consumer, |spec| spec["fallback"] = json!(true)).await;
    consumer.assert_address("b", "10.0.1.1").await;
    consumer.release("a").await;
    consumer.assert_address("c", "10.0.2.1").await;
}

#[tokio::test]
async fn selected_pool_serves_claims_as_soon_as_it_matches() {
    let consumer = with_racks(&[1, 1]).await;
    create_set(
        &consumer,
        json!({"selector": {"matchLabels": {"in": "racks"}}}),
    )
    .await;
    let text = waits(&consumer, "a", "NoPools").await;
    assert_contains(&text, "has no pools");
    wait_until_ready_is(&consumer, "False", "NoPools").await;
    consumer.label_pool("rack-2", json!({"in": "racks"})).await;
    consumer.assert_address("a", "10.0.2.1").await;
    wait_for_counts(&consumer, (1, 1, 0)).await;
    consumer.label_pool("rack-1", json!({"in": "racks"})).await;
    assert_eq!(bind(&consumer, "b").await, "10.0.1.1");
}

#[tokio::test]
async fn pool_that_leaves_the_set_keeps_its_claims() {
    let consumer = with_racks(&[2, 2]).await;
    create_set(&consumer, json!({"pools": members(&["rack-1", "rack-2"])})).await;
    assert_eq!(bind(&consumer, "a").await, "10.0.1.1");
    change_set(&consumer, |spec| spec["pools"] = members(&["rack-2"])).await;
    wait_for_counts(&consumer, (1, 0, 2)).await;
    assert_eq!(bind(&consumer, "b").await, "10.0.2.1");
    consumer.assert_address("a", "10.0.1.1").await;
    // Its address keeps the pool.
    consumer.delete_pool("rack-1").await;
    let text = consumer
        .wait_for_pool_condition("rack-1", "False", "Deleting")
        .await;
    assert_contains(&text, "1 address");
    consumer
        .wait_for_reservations("rack-1", &[("10.0.1.1", "a")])
        .await;
    consumer.release("a").await;
    consumer.wait_until_pool_gone("rack-1").await;
}

#[tokio::test]
async fn deleted_set_is_kept_until_its_claims_are_released() {
    let consumer = with_racks(&[1]).await;
    create_set(&consumer, json!({"pools": members(&["rack-1"])})).await;
    assert_eq!(bind(&consumer, "a").await, "10.0.1.1");
    waits(&consumer, "waiting", "PoolExhausted").await;
    consumer.delete_object(&own_sets(&consumer), "racks").await;
    wait_until_ready_is(&consumer, "False", "Deleting").await;
    let text = waits(&consumer, "b", "PoolNotReady").await;
    assert_contains(&text, "being deleted");
    consumer.assert_address("a", "10.0.1.1").await;
    consumer.release("a").await;
    consumer
        .wait_until_gone(&own_sets(&consumer), "racks")
        .await;
    let text = consumer
        .wait_for_message("b", "PoolNotReady", "does not exist")
        .await;
    assert_contains(&text, &format!("IPPoolSet {}/racks", consumer.namespace));
    // They are served by the next set of the name.
    consumer
        .modify_pool("rack-1", |spec| {
            spec["addresses"] = json!(["10.0.1.1", "10.0.1.2"])
        })
        .await;
    create_set(&consumer, json!({"pools": members(&["rack-1"])})).await;
    let addresses = [
        consumer.wait_for_address("b").await,
        consumer.wait_for_address("waiting").await,
    ];
    assert_eq!(BTreeSet::from(addresses).len(), 2);
}

#[tokio::test]
async fn rules_of_each_pool_apply_to_claims_of_the_set() {
    let consumer = consumer().await;
    let name = |text: &str| format!("{text}-{}", consumer.namespace);
    let nobody = json!({"allowedNamespaces": {"from": "None"}});
    let one = json!({"limits": {"perNamespace": 1}});
    for (pool, range, rules) in [
        ("closed", "10.0.1.1-10.0.1.9", nobody),
        ("limited", "10.0.2.1-10.0.2.9", one),
        ("open", "10.0.3.1", json!({})),
    ] {
        consumer
            .create_global_pool(&name(pool), (range, rules))
            .await;
    }
    let pools: Vec<Value> = ["closed", "limited", "open"]
        .into_iter()
        .map(|pool| json!({"kind": "GlobalInClusterIPPool", "name": name(pool)}))
        .collect();
    let kind = PoolSetKind::Global;
    let all = set(&consumer, kind, &name("all"), &json!({"pools": pools}));
    create(&sets(&consumer, kind), &all)
        .await
        .expect("the set can be created");
    let create_claim = async |claim: &str| {
        consumer
            .create_claim_with(claim, kind.name(), &name("all"), json!({}))
            .await;
    };
    create_claim("a").await;
    consumer.assert_address("a", "10.0.2.1").await;
    create_claim("b").await;
    consumer.assert_address("b", "10.0.3.1").await;
    create_claim("c").await;
    let text = consumer.wait_for_reason("c", "PoolExhausted").await;
    for part in [
        "none of its 3 pools can serve it",
        "does not allow claims of this namespace",
        "has no free address",
    ] {
        assert_contains(&text, part);
    }
    // The namespace may have one more.
    consumer.release("a").await;
    consumer.assert_address("c", "10.0.2.1").await;
}

#[tokio::test]
async fn set_of_prefix_pools_allocates_prefixes() {
    let consumer = consumer().await;
    for (name, prefix) in [("one", "fd00::/64"), ("two", "fd01::/64")] {
        let spec = json!({"prefixes": [prefix]});
        consumer
            .create_pool_of(InClusterKind::PrefixPool, name, spec)
            .await;
    }
    let member = |name: &str| json!({"kind": "InClusterPrefixPool", "name": name});
    create_set(&consumer, json!({"pools": [member("one"), member("two")]})).await;
    assert_eq!(bind(&consumer, "a").await, "fd00::");
    assert_eq!(bind(&consumer, "b").await, "fd01::");
    let address = consumer.the_address("b").await;
    assert_eq!(address.spec.prefix, 64);
    consumer
        .wait_for_counts_of(InClusterKind::PrefixPool, "two", (1, 0, 1, 0))
        .await;
}

#[tokio::test]
async fn address_without_annotation_is_of_the_pool_that_contains_it() {
    let consumer = with_racks(&[2, 2]).await;
    create_set(&consumer, json!({"pools": members(&["rack-1", "rack-2"])})).await;
    let pool = json!({"apiGroup": names::GROUP, "kind": SET, "name": "racks"});
    consumer
        .create_address_for("a", pool.clone(), "10.0.2.2")
        .await;
    assert_eq!(bind(&consumer, "a").await, "10.0.2.2");
    consumer
        .wait_for_reservations("rack-2", &[("10.0.2.2", "a")])
        .await;
    consumer.wait_for_counts("rack-2", (2, 1, 1, 0)).await;
    consumer.create_address_for("b", pool, "10.9.9.9").await;
    let text = waits(&consumer, "b", "AllocationFailed").await;
    assert_contains(&text, "no pool of IPPoolSet");
    // A user who removes the annotation frees nothing.
    consumer
        .modify(&consumer.addresses(), "a", |address| {
            address["metadata"]["annotations"] = Value::Null;
        })
        .await;
    let bound = [bind(&consumer, "c").await, bind(&consumer, "d").await];
    assert_eq!(bound, ["10.0.1.1", "10.0.1.2"]);
    assert_eq!(bind(&consumer, "e").await, "10.0.2.1");
    consumer.release("a").await;
    assert_eq!(bind(&consumer, "f").await, "10.0.2.2");
}

#[tokio::test]
async fn annotation_of_a_user_frees_and_moves_no_address() {
    let consumer = with_racks(&[1, 2]).await;
    create_set(&consumer, json!({"pools": members(&["rack-1", "rack-2"])})).await;
    assert_eq!(bind(&consumer, "a").await, "10.0.1.1");
    for pool in ["missing", "rack-2"] {
        write_member(&consumer, "a", pool).await;
        // Longer than the interval and the grace period of the sweeper.
        tokio::time::sleep(Duration::from_secs(5)).await;
        consumer
            .wait_for_reservations("rack-1", &[("10.0.1.1", "a")])
            .await;
        consumer.wait_for_counts("rack-1", (1, 0, 1, 0)).await;
    }
    assert_eq!(bind(&consumer, "b").await, "10.0.2.1");
}

#[tokio::test]
async fn requested_and_promised_addresses_are_found_in_their_pool() {
    let consumer = consumer().await;
    for rack in [1, 2] {
        let requests = json!({"allocation": {"requests": true}});
        let (name, range) = (format!("rack-{rack}"), addresses(rack, 3));
        consumer.create_pool(&name, (&*range, requests)).await;
        consumer.wait_until_pool_ready(&name).await;
    }
    consumer.reserve_for("rack-2", "10.0.2.3", "vip").await;
    consumer.wait_for_counts("rack-2", (3, 2, 0, 0)).await;
    create_set(&consumer, json!({"pools": members(&["rack-1", "rack-2"])})).await;
    assert_eq!(bind(&consumer, "vip").await, "10.0.2.3");
    let request = json!({"annotations": {names::REQUESTED_ADDRESS: "10.0.2.2"}});
    create_claim_with(&consumer, "a", request.clone()).await;
    consumer.assert_address("a", "10.0.2.2").await;
    create_claim_with(&consumer, "b", request).await;
    consumer
        .wait_for_reason("b", "RequestedAddressUnavailable")
        .await;
    consumer.release("a").await;
    consumer.assert_address("b", "10.0.2.2").await;
}

#[tokio::test]
async fn sets_of_sets_and_pools_of_others_are_refused() {
    let consumer = consumer().await;
    let refusal = async |kind: PoolSetKind, pool: Value| {
        let set = set(&consumer, kind, "wrong", &json!({"pools": [pool]}));
        let error = create(&sets(&consumer, kind), &set)
            .await
            .expect_err("the set is refused");
        capi_ipam_controller::client::error_chain(&error)
    };
    for kind in PoolSetKind::ALL {
        let text = refusal(kind, json!({"kind": SET, "name": "racks"})).await;
        assert_contains(&text, "spec.pools[0].kind");
    }
    let own = json!({"kind": "InClusterIPPool", "name": "rack-1"});
    let text = refusal(PoolSetKind::Global, own).await;
    assert_contains(&text, "spec.pools[0].kind");
}

#[tokio::test]
async fn invalid_set_is_reported_and_serves_no_claim() {
    let consumer = lenient_consumer().await;
    consumer.create_pool("rack-1", "10.0.1.1").await;
    let inner = json!({"kind": SET, "name": "others"});
    let mut pools = members(&["rack-1"]);
    pools.as_array_mut().expect("it is a list").push(inner);
    create_set(&consumer, json!({ "pools": pools })).await;
    let text = wait_until_ready_is(&consumer, "False", "InvalidSpec").await;
    assert_contains(&text, "spec.pools[1].kind");
    let text = waits(&consumer, "a", "PoolNotReady").await;
    assert_contains(&text, "correct the set");
    change_set(&consumer, |spec| {
        spec["pools"] = members(&["rack-1", "lost"])
    })
    .await;
    consumer.assert_address("a", "10.0.1.1").await;
    let text = wait_until_ready_is(&consumer, "True", "PoolsReady").await;
    assert_contains(&text, "InClusterIPPool");
    assert_contains(&text, "/lost");
}

#[tokio::test]
async fn paused_pool_is_passed_over_and_paused_set_waits() {
    let consumer = with_racks(&[2, 2]).await;
    create_set(&consumer, json!({"pools": members(&["rack-1", "rack-2"])})).await;
    consumer.pause_pool("rack-1").await;
    consumer
        .modify_pool("rack-2", |spec| {
            spec["addresses"] = json!(["10.0.2.1-10.0.2.99"])
        })
        .await;
    assert_eq!(bind(&consumer, "a").await, "10.0.2.1");
    let paused = create_paused_claim(&consumer).await;
    consumer
        .set_paused(&own_sets(&consumer), "racks", false)
        .await;
    assert_contains(&consumer.wait_for_address(&paused).await, "10.0.2.");
}

#[tokio::test]
async fn reserved_address_that_left_its_pool_does_not_block_a_claim() {
    let consumer = with_racks(&[1, 99]).await;
    let pools = members(&["rack-1", "gone", "rack-2"]);
    create_set(&consumer, json!({"pools": pools})).await;
    assert_eq!(bind(&consumer, "a").await, "10.0.1.1");
    // What an interrupted attempt has left: the address is not one of the pool any more, or the pool
    // was removed by force.
    for (pool, address) in [("rack-1", "10.0.1.9"), ("gone", "10.0.9.1")] {
        let claim = create_paused_claim(&consumer).await;
        let uid = consumer.the_claim(&claim).await.uid();
        let holder = json!({"namespace": consumer.namespace, "name": claim, "uid": uid});
        consumer.reserve(pool, address, holder).await;
        consumer
            .set_paused(&own_sets(&consumer), "racks", false)
            .await;
        assert_contains(&consumer.wait_for_address(&claim).await, "10.0.2.");
    }
    // The sweeper releases what is not used.
    consumer
        .wait_for_reservations("rack-1", &[("10.0.1.1", "a")])
        .await;
}

#[tokio::test]
async fn restarted_manager_keeps_members_and_queues() {
    let mut world = start(|_| {});
    let consumer = Consumer::new(&world.control_plane).await;
    create_racks(&consumer, &[1, 1, 1]).await;
    create_set(&consumer, json!({"pools": members(&["rack-1", "rack-2"])})).await;
    for (name, address) in [("a", "10.0.1.1"), ("b", "10.0.2.1")] {
        assert_eq!(bind(&consumer, name).await, address);
    }
    waits(&consumer, "c", "PoolExhausted").await;
    world.manager.kill();
    // The member has left the set while no manager ran.
    change_set(&consumer, |spec| spec["pools"] = members(&["rack-1"])).await;
    // A user has written another member into the annotation meanwhile.
    write_member(&consumer, "a", "rack-2").await;
    let before = consumer.allocated_addresses().await;
    // A process has reserved an address for a claim, and ended. The member has left the set since.
    create_claim(&consumer, "crashed").await;
    let uid = consumer.the_claim("crashed").await.uid();
    let namespace = &consumer.namespace;
    let holder = json!({"namespace": namespace, "name": "crashed", "uid": uid});
    consumer.reserve("rack-3", "10.0.3.1", holder).await;
    world.manager = Manager::start(
        &world.control_plane,
        &["--sweep-interval=1s", "--sweep-grace=2s"],
    );
    consumer.assert_address("crashed", "10.0.3.1").await;
    consumer.release("crashed").await;
    // Longer than the interval and the grace period of the sweeper.
    tokio::time::sleep(Duration::from_secs(6)).await;
    consumer
        .wait_for_reservations("rack-1", &[("10.0.1.1", "a")])
        .await;
    consumer.assert_stays_unbound("c").await;
    assert_eq!(consumer.allocated_addresses().await, before);
    consumer.wait_for_counts("rack-2", (1, 0, 1, 0)).await;
    consumer.release("b").await;
    consumer.assert_stays_unbound("c").await;
    consumer.release("a").await;
    consumer.assert_address("c", "10.0.1.1").await;
    consumer
        .wait_for_reservations("rack-1", &[("10.0.1.1", "c")])
        .await;
    consumer.wait_for_reservations("rack-2", &[]).await;
}
