//! Addresses in the request that creates a Cluster: the mutating webhook.

use kube::core::DynamicObject;
use support::policy::{DENIED, Policy};
use support::prelude::*;

use crate::scene::{ANNOTATION, AT_ONCE, NEVER, Scene, endpoint, item, pods};

fn endpoint_of(cluster: &Value) -> &Value {
    &cluster["spec"]["controlPlaneEndpoint"]["host"]
}

/// The record of the addresses of a Cluster.
fn record_of(cluster: &Value) -> Value {
    let record = cluster["metadata"]["annotations"][ANNOTATION].as_str();
    serde_json::from_str(record.unwrap_or("null")).expect("it is JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_there_when_the_cluster_is() {
    let scene = Scene::with_webhooks(&AT_ONCE).await;
    let to = json!([{"resource": "MetalLB"}]);
    let load_balancers = item("lb", "InClusterPrefixPool", "pods", to);
    scene
        .register(json!([endpoint(), pods(), load_balancers]))
        .await;
    assert_eq!(
        scene.allocated_addresses().await,
        BTreeMap::new(),
        "dry runs allocate nothing"
    );
    let created = scene.try_create_cluster("alpha", json!({}));
    let created = created.expect("the Cluster can be created");
    let spec = &created["spec"];
    assert_eq!(
        spec["controlPlaneEndpoint"],
        json!({"host": "10.0.0.10", "port": 6443})
    );
    let allocated = scene.allocated_addresses().await;
    let blocks = &spec["clusterNetwork"]["pods"]["cidrBlocks"];
    assert_eq!(*blocks, json!([format!("{}/20", allocated["alpha-pods"])]));
    assert_eq!(record_of(&created)["item:endpoint"], "10.0.0.10");

    // What the Cluster has to own follows.
    scene.wait_for_config_map("alpha-lb-metallb").await;
    until("the record is complete", async || {
        let cluster = scene.cluster("alpha").await;
        Some(record_of(&cluster)["unfinished"].is_null())
    })
    .await;
    for name in ["alpha-endpoint", "alpha-pods", "alpha-lb"] {
        eventually(&format!("{name} belongs to the Cluster"), async || {
            let claim = scene.the_claim(name).await;
            let owner = claim.owner_references().first()?;
            (json!(owner.uid) == created["metadata"]["uid"]).then_some(())
        })
        .await;
    }
    scene
        .wait_for_status("the Cluster is counted", |status| status.ready == 1)
        .await;
    let cluster = scene.cluster("alpha").await;
    assert_eq!(cluster["spec"], *spec, "the controller changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_the_user_stay() {
    let scene = Scene::with_webhooks(&NEVER).await;
    scene.register(json!([endpoint(), pods()])).await;
    let own = json!({"controlPlaneEndpoint": {"host": "192.0.2.1", "port": 443}});
    let created = scene.try_create_cluster("alpha", own.clone());
    let created = created.expect("the Cluster can be created");
    assert_eq!(
        created["spec"]["controlPlaneEndpoint"],
        own["controlPlaneEndpoint"]
    );
    let allocated = scene.allocated_addresses().await;
    assert_eq!(allocated.keys().collect::<Vec<_>>(), ["alpha-pods"]);
    let found = created["spec"]["clusterNetwork"]["pods"]["cidrBlocks"][0].as_str();
    assert_eq!(found, Some(&*format!("{}/20", allocated["alpha-pods"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_refused_while_a_pool_is_empty() {
    let scene = Scene::with_webhooks(&NEVER).await;
    let services = scene.create_exhausted_item().await;
    scene.register(json!([endpoint(), services])).await;
    let refused = scene.try_create_cluster("alpha", json!({}));
    let message = refused.expect_err("the Cluster is refused");
    assert_contains(
        &message,
        "ClusterAddressing bonn: IPAddressClaim alpha-services: ",
    );
    assert_contains(&message, "few");
    // The pool gets a free prefix, and the same request succeeds with the address it had.
    scene.assert_address("alpha-endpoint", "10.0.0.10").await;
    scene.delete("ipaddressclaim", "taken");
    let created = eventually("the Cluster is created", async || {
        scene.try_create_cluster("alpha", json!({})).ok()
    })
    .await;
    assert_eq!(*endpoint_of(&created), json!("10.0.0.10"));
    let services = &created["spec"]["clusterNetwork"]["services"]["cidrBlocks"];
    assert_eq!(*services, json!(["10.64.0.0/20"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_refused_while_all_pools_of_a_set_are_empty() {
    let scene = Scene::with_webhooks(&NEVER).await;
    for (pool, address) in [("one", "10.1.0.1"), ("two", "10.2.0.1")] {
        scene.create_pool(pool, address).await;
        scene.bind_to(&format!("in-{pool}"), pool, address).await;
    }
    let endpoint = scene.create_set(&["one", "two"]).await;
    scene.register(json!([endpoint])).await;
    let started = Instant::now();
    let refused = scene.try_create_cluster("alpha", json!({}));
    let message = refused.expect_err("the Cluster is refused");
    assert!(started.elapsed() >= Duration::from_secs(1), "{started:?}");
    assert_contains(
        &message,
        "ClusterAddressing bonn: IPAddressClaim alpha-endpoint: IPPoolSet ",
    );
    assert_contains(&message, "all of its 2 pools are exhausted");
    scene.delete("ipaddressclaim", "in-two");
    let created = eventually("the Cluster is created", async || {
        scene.try_create_cluster("alpha", json!({})).ok()
    })
    .await;
    assert_eq!(*endpoint_of(&created), json!("10.2.0.1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn user_sets_the_value_that_a_pool_cannot_give() {
    let scene = Scene::with_webhooks(&NEVER).await;
    let services = scene.create_exhausted_item().await;
    scene.register(json!([endpoint(), services])).await;
    let refused = scene.try_create_cluster("alpha", json!({}));
    refused.expect_err("the pool has no free prefix");
    // The claim of the refused request still waits.
    let own = json!({"clusterNetwork": {"services": {"cidrBlocks": ["192.0.2.0/24"]}}});
    let created = scene.try_create_cluster("alpha", own.clone());
    let created = created.expect("the Cluster can be created");
    assert_eq!(*endpoint_of(&created), json!("10.0.0.10"));
    assert_eq!(created["spec"]["clusterNetwork"], own["clusterNetwork"]);
    until_within(
        Duration::from_mins(3),
        "the claim is released",
        async || {
            let claims = scene.claims();
            Some(answered(claims.get("alpha-services").await)?.is_none())
        },
    )
    .await;
    scene
        .wait_for_status("the Cluster has its addresses", |status| status.ready == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_claim_is_kept_while_its_request_can_succeed() {
    let scene = Scene::with_webhooks(&AT_ONCE).await;
    scene.register(json!([endpoint()])).await;
    let own = json!({"controlPlaneEndpoint": {"host": "192.0.2.1", "port": 443}});
    let _policy = Policy::deny(
        &scene.plane,
        &scene.consumer.namespace,
        ["CREATE", "clusters"],
        "object.metadata.name != 'alpha' || (has(object.spec.controlPlaneEndpoint) && \
         object.spec.controlPlaneEndpoint.host == '192.0.2.1')",
    );
    until("the policy is enforced", async || {
        let message = scene.dry_run_of_cluster("alpha").err().unwrap_or_default();
        Some(message.contains(DENIED))
    })
    .await;
    let refused = scene.try_create_cluster("alpha", json!({}));
    refused.expect_err("the policy refuses the Cluster");
    let created = scene.try_create_cluster("alpha", own);
    created.expect("the Cluster can be created");
    // The request that was refused could have been one that is still in progress.
    let message = scene.wait_for_problem("AddressesPending").await;
    assert_contains(
        &message,
        "no earlier request to create the Cluster can succeed",
    );
    scene.delete("cluster", "alpha");
    consistently("the address is kept", async || {
        let addresses = scene.allocated_addresses().await;
        addresses.get("alpha-endpoint").map(String::as_str) == Some("10.0.0.10")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_a_refused_cluster_are_released_after_a_minute() {
    let scene = Scene::with_webhooks(&AT_ONCE).await;
    scene.register(json!([endpoint()])).await;
    let policy = Policy::deny(
        &scene.plane,
        &scene.consumer.namespace,
        ["CREATE", "clusters"],
        "object.metadata.name != 'alpha' && !(object.metadata.name == 'gamma' && has(object.metadata.labels))",
    );
    until("the policy is enforced", async || {
        let message = scene.dry_run_of_cluster("alpha").err().unwrap_or_default();
        Some(message.contains(DENIED))
    })
    .await;
    let started = Instant::now();
    let refused = scene.try_create_cluster("alpha", json!({}));
    refused.expect_err("the policy refuses the Cluster");
    scene.assert_address("alpha-endpoint", "10.0.0.10").await;
    // Another Cluster, and a machine, do not get the address.
    let created = scene.try_create_cluster("beta", json!({}));
    let created = created.expect("the Cluster can be created");
    assert_eq!(*endpoint_of(&created), json!("10.0.0.11"));
    // A Cluster that is not selected does not have the address of one that was refused.
    let refused = scene.try_create_cluster("gamma", json!({}));
    refused.expect_err("the policy refuses the Cluster");
    scene.assert_address("gamma-endpoint", "10.0.0.12").await;
    let mut unselected: DynamicObject = scene.selected_cluster("gamma", json!({}));
    unselected.metadata.labels = None;
    let created = create(&scene.clusters(), &unselected).await;
    created.expect("the Cluster can be created");
    // A retry keeps the claim, and restarts the time.
    let refused = scene.try_create_cluster("alpha", json!({}));
    refused.expect_err("the policy refuses the Cluster");
    until_within(
        Duration::from_mins(3),
        "the claim is released",
        async || {
            let claims = scene.claims();
            let alpha = answered(claims.get("alpha-endpoint").await)?;
            let gamma = answered(claims.get("gamma-endpoint").await)?;
            Some(alpha.is_none() && gamma.is_none())
        },
    )
    .await;
    assert!(started.elapsed() >= Duration::from_mins(1));
    policy.remove();
    scene.assert_address("beta-endpoint", "10.0.0.11").await;
    // The next Cluster of the name gets an address again.
    let created = eventually("the Cluster is created", async || {
        scene.try_create_cluster("alpha", json!({})).ok()
    })
    .await;
    assert_eq!(*endpoint_of(&created), json!("10.0.0.10"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unwritable_field_does_not_block_its_cluster() {
    let scene = Scene::with_webhooks(&NEVER).await;
    let to = json!([{"variable": {"name": "vip"}}]);
    let variable = item("endpoint", "InClusterIPPool", "vips", to);
    scene.register(json!([variable])).await;
    // It has no ClusterClass.
    let created = scene.try_create_cluster("alpha", json!({}));
    created.expect("the Cluster can be created");
    let message = scene.wait_for_problem("ValuePresent").await;
    assert_contains(&message, "the Cluster has no spec.topology");
    assert_eq!(scene.allocated_addresses().await, BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_created_without_the_webhook() {
    let mut scene = Scene::with_webhooks(&AT_ONCE).await;
    scene.register(json!([endpoint()])).await;
    scene.manager.kill();
    let created = scene.try_create_cluster("alpha", json!({}));
    let created = created.expect("the Cluster can be created");
    assert_eq!(*endpoint_of(&created), Value::Null);
    scene.manager = Manager::start(&scene.plane, &AT_ONCE);
    let cluster = scene.wait_for_cluster("alpha").await;
    assert_eq!(*endpoint_of(&cluster), json!("10.0.0.10"));
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_created_together_have_their_own_endpoints() {
    let scene = Scene::with_webhooks(&NEVER).await;
    scene.create_pool("many", "10.9.0.1-10.9.0.220").await;
    let to = json!([{"controlPlaneEndpoint": {"port": 6443}}]);
    let endpoint = item("endpoint", "InClusterIPPool", "many", to);
    scene.register(json!([endpoint])).await;
    let clusters = scene.clusters();
    let names: Vec<String> = (0..200).map(|number| format!("c-{number}")).collect();
    let created = names
        .iter()
        .map(|name| scene.create_selected_cluster(name, json!({})));
    join_all(created).await;
    let listed = clusters.list().await.expect("Clusters can be listed");
    assert_eq!(listed.len(), 200);
    let mut endpoints = BTreeSet::new();
    for cluster in listed {
        let cluster = scene.wait_for_cluster(&cluster.name_any()).await;
        let host = endpoint_of(&cluster).as_str();
        assert!(endpoints.insert(host.expect("it has an endpoint").to_owned()));
    }
    let allocated = scene.allocated_addresses().await;
    let allocated: BTreeSet<String> = allocated.into_values().collect();
    assert_eq!(endpoints, allocated);
}
