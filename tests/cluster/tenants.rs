//! Attacks by a user who may edit one namespace and write its pools and claims. Each test acts with
//! the token of such a user.

use std::fmt::Debug;

use capi_ipam_controller::client::{CallError, connect};
use capi_ipam_provider::api::names::GROUP;
use support::prelude::*;

use crate::{consumer, environment};

/// A namespace, its administrator, and its user.
struct Tenant {
    admin: Consumer,
    user: Consumer,
}

impl Tenant {
    async fn new() -> Self {
        let (admin, plane) = (consumer().await, &environment().control_plane);
        let namespace = admin.namespace.as_str();
        let in_namespace = format!("--namespace={namespace}");
        let user = format!("--serviceaccount={namespace}:tenant");
        plane.kubectl(&["create", "serviceaccount", "tenant", &in_namespace]);
        // Cluster API has no roles for claims and addresses.
        let roles = [
            (
                "claims",
                "get,list,watch,create,update,patch,delete",
                "ipaddressclaims",
            ),
            ("addresses", "get,list,watch", "ipaddresses"),
        ];
        for (name, verbs, kind) in roles {
            let (verbs, kind) = (
                format!("--verb={verbs}"),
                format!("--resource={kind}.{GROUP}"),
            );
            plane.kubectl(&["create", "role", name, &verbs, &kind, &in_namespace]);
            plane.kubectl(&[
                "create",
                "rolebinding",
                name,
                &format!("--role={name}"),
                &user,
                &in_namespace,
            ]);
        }
        for role in ["edit", "capi-ipam-in-cluster-editor-role"] {
            plane.kubectl(&[
                "create",
                "rolebinding",
                role,
                &format!("--clusterrole={role}"),
                &user,
                &in_namespace,
            ]);
        }
        let kubeconfig = plane.kubeconfig_of_account(namespace, "tenant");
        let client = connect(Some(&kubeconfig), "tenant")
            .await
            .expect("the kubeconfig is valid");
        let user = admin.with_client_of(client);
        until("the roles are aggregated and observed", async || {
            Some(user.pools().list().await.is_ok() && user.claims().list().await.is_ok())
        })
        .await;
        Self { admin, user }
    }

    /// Everything that the user can read in the namespace, as text.
    fn readable(&self) -> String {
        let plane = &environment().control_plane;
        let user = format!("--as=system:serviceaccount:{}:tenant", self.admin.namespace);
        let namespace = format!("--namespace={}", self.admin.namespace);
        let kinds = "inclusterippools,inclusterprefixpools,ipaddressclaims.ipam.cluster.x-k8s.io,events,configmaps";
        plane.kubectl(&["get", kinds, "--output=json", &user, &namespace])
    }
}

/// A network for the namespace of its owner only, and a pool of it.
async fn network_with_pool(owner: &Consumer, addresses: &str) -> String {
    let network = unique("net");
    let namespaces = json!({"from": "Names", "names": [owner.namespace]});
    owner
        .create_network(
            &network,
            json!({"namespaces": namespaces, "pools": {"matchLabels": {"net": network}}}),
        )
        .await;
    owner
        .create_pool(
            "secret-pool",
            json!({"addresses": [addresses], "prefix": 24, "network": network}),
        )
        .await;
    network
}

fn assert_forbidden<T: Debug>(result: Result<T, CallError>) {
    let error = result.expect_err("the user has no permission");
    assert!(
        error.to_string().contains("forbidden") || format!("{error:?}").contains("403"),
        "{error:?}"
    );
}

/// The number of reservations in a scope.
async fn reserved(consumer: &Consumer, scope: &str) -> usize {
    let all = consumer
        .reservations()
        .list()
        .await
        .expect("reservations can be listed");
    all.iter()
        .filter(|reservation| reservation.spec.scope == scope)
        .count()
}

#[tokio::test]
async fn foreign_network_cannot_be_joined_or_exhausted() {
    let (owner, tenant) = (consumer().await, Tenant::new().await);
    let network = network_with_pool(&owner, "10.0.0.1-10.0.0.5").await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.5"], "prefix": 24});
    let mut with_network = spec.clone();
    with_network["network"] = json!(network);
    tenant.user.create_pool("named", with_network).await;
    tenant
        .user
        .wait_for_pool_condition("named", "False", "NetworkNotAllowed")
        .await;
    // Labels that the selector of the network matches.
    tenant.user.create_pool("labelled", spec).await;
    let label = json!({"net": network});
    tenant
        .user
        .modify(&tenant.user.pools(), "labelled", |pool| {
            pool["metadata"]["labels"] = label.clone()
        })
        .await;
    let names: Vec<String> = numbered("c", 20);
    tenant.user.create_claims(&names, "named").await;
    tenant.user.bind("own", "labelled").await;
    let text = tenant.user.wait_for_reason("c0", "PoolNotReady").await;
    assert!(!text.contains(&owner.namespace), "{text}");
    assert_eq!(
        reserved(&owner, &format!("n.{network}")).await,
        0,
        "the pools are no members"
    );
    let names: Vec<String> = numbered("o", 5);
    owner.create_claims(&names, "secret-pool").await;
    owner.wait_for_addresses(&names).await;
    // What would give access.
    let (user, plane) = (&tenant.user, &environment().control_plane);
    assert_forbidden(user.networks().list().await);
    assert_forbidden(user.networks().get(&network).await);
    assert_forbidden(user.reservations().list().await);
    assert_forbidden(user.global_pools().list().await);
    let reservation = json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "IPReservation",
        "metadata": {"name": format!("n.{network}.10.0.0.9")},
        "spec": {"scope": format!("n.{network}"), "address": "10.0.0.9",
                 "poolRef": {"kind": "InClusterIPPool", "namespace": user.namespace, "name": "named"}},
    });
    assert_forbidden(user.reservations().create(&object(reservation)).await);
    let account = format!("--as=system:serviceaccount:{}:tenant", user.namespace);
    let label = [
        "label",
        "namespace",
        &user.namespace,
        "tenant=platform",
        &account,
    ];
    assert!(
        plane
            .try_kubectl(&label)
            .is_err_and(|text| text.contains("orbidden"))
    );
}

#[tokio::test]
async fn block_length_of_a_foreign_network_cannot_be_set() {
    let (owner, tenant) = (consumer().await, Tenant::new().await);
    let network = unique("net");
    let namespaces = json!({"from": "Names", "names": [owner.namespace]});
    owner
        .create_network(&network, json!({"namespaces": namespaces}))
        .await;
    let prefixes =
        json!({"prefixes": ["fd00::/48"], "allocationPrefixLength": 64, "network": network});
    tenant
        .user
        .create_pool_of(InClusterKind::PrefixPool, "odd", prefixes)
        .await;
    let pools = tenant.user.pools_of(InClusterKind::PrefixPool);
    tenant
        .user
        .wait_for_condition(&pools, "odd", "Ready", "False", "NetworkNotAllowed")
        .await;
    let status = owner
        .networks()
        .get(&network)
        .await
        .expect("networks can be read")
        .and_then(|found| found.status);
    assert_eq!(
        status
            .and_then(|status| status.block_lengths)
            .and_then(|lengths| lengths.ipv6),
        None
    );
    owner
        .create_pool(
            "web",
            json!({"addresses": ["fd00::1-fd00::9"], "prefix": 64, "network": network}),
        )
        .await;
    owner.bind("a", "web").await;
}

#[tokio::test]
async fn names_of_other_namespaces_are_not_readable() {
    let (owner, tenant) = (consumer().await, Tenant::new().await);
    // A network of both, and pools with the same addresses outside of it.
    let network = unique("net");
    let namespaces = json!({"from": "Names", "names": [owner.namespace, tenant.admin.namespace]});
    owner
        .create_network(&network, json!({"namespaces": namespaces}))
        .await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24, "network": network});
    owner.create_pool("secret-pool", spec.clone()).await;
    owner.create_pool("secret-other", "10.0.0.0/24").await;
    for name in ["secret-1", "secret-2"] {
        owner.bind(name, "secret-pool").await;
    }
    let user = &tenant.user;
    user.create_pool("shared", spec.clone()).await;
    user.create_pool("overlapping", "10.0.0.0/24").await;
    user.claim_waits("waits", "shared", "PoolExhausted").await;
    user.wait_for_condition(
        &user.pools(),
        "overlapping",
        "Overlapping",
        "True",
        "PoolsOverlap",
    )
    .await;
    // Addresses in use in both pools when they join one network.
    user.bind("twice", "overlapping").await;
    user.modify_pool("overlapping", |spec| spec["network"] = json!(network))
        .await;
    user.wait_until_unready("twice", "DuplicateAddress").await;
    // The messages name objects of this namespace and the network; objects of other namespaces are
    // only counted.
    let text = tenant.readable();
    assert!(
        text.contains("another namespace") || text.contains("other namespaces"),
        "{text}"
    );
    for secret in [owner.namespace.as_str(), "secret-"] {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(secret)).collect();
        assert!(lines.is_empty(), "{secret} in {lines:?}");
    }
}

#[tokio::test]
async fn deletions_of_others_are_not_blocked() {
    let (owner, tenant) = (consumer().await, Tenant::new().await);
    let network = network_with_pool(&owner, "10.0.0.1-10.0.0.5").await;
    let user = &tenant.user;
    user.create_pool("named", ("10.0.0.1-10.0.0.5", json!({"network": network})))
        .await;
    user.wait_for_pool_condition("named", "False", "NetworkNotAllowed")
        .await;
    user.modify(&user.pools(), "named", |pool| {
        pool["metadata"]["annotations"] = json!({"cluster.x-k8s.io/paused": ""});
        pool["metadata"]["finalizers"]
            .as_array_mut()
            .expect("a list")
            .push(json!("example.com/keep"));
    })
    .await;
    user.create_claim("a", "named").await;
    owner
        .delete_unused_pool(&owner.pools(), "secret-pool")
        .await;
    owner.delete_object(&owner.networks(), &network).await;
    owner.wait_until_gone(&owner.networks(), &network).await;
}

#[tokio::test]
async fn namespace_is_deleted_with_everything_in_it() {
    let (owner, tenant) = (consumer().await, Tenant::new().await);
    let foreign = network_with_pool(&owner, "10.0.0.1-10.0.0.5").await;
    let (own, user) = (unique("net"), &tenant.user);
    let namespaces = json!({"from": "Names", "names": [user.namespace]});
    owner
        .create_network(&own, json!({"namespaces": namespaces}))
        .await;
    let in_network = |network: &str| json!({"addresses": ["10.0.0.1-10.0.0.3"], "prefix": 24, "network": network});
    user.create_pool("refused", in_network(&foreign)).await;
    user.create_pool("member", in_network(&own)).await;
    user.create_pool("plain", "10.0.0.1").await;
    for (claim, pool) in [("a", "member"), ("b", "plain")] {
        user.bind(claim, pool).await;
    }
    for (claim, pool) in [("c", "plain"), ("d", "refused"), ("e", "missing")] {
        user.create_claim(claim, pool).await;
    }
    user.wait_for_reason("c", "PoolExhausted").await;
    user.wait_for_reason("d", "PoolNotReady").await;
    environment()
        .control_plane
        .kubectl(&["delete", "namespace", &user.namespace, "--wait=false"]);
    tenant.admin.wait_until_namespace_deleted().await;
    until("its reservations are deleted", async || {
        let all = owner.reservations().list().await.ok()?;
        let of_tenant = all
            .iter()
            .filter(|it| it.spec.pool_ref.namespace.as_deref() == Some(&user.namespace));
        Some(of_tenant.count() == 0)
    })
    .await;
    owner.delete_object(&owner.networks(), &own).await;
    owner.wait_until_gone(&owner.networks(), &own).await;
}

#[tokio::test]
async fn limit_of_a_global_pool_cannot_be_evaded() {
    let (other, tenant) = (consumer().await, Tenant::new().await);
    let pool = unique("shared");
    let limits = json!({"perNamespace": 3, "perCluster": 3});
    other
        .create_global_pool(&pool, ("10.0.0.1-10.0.0.9", json!({"limits": limits})))
        .await;
    let user = &tenant.user;
    let attributes = [
        json!({}),
        json!({"labels": {"cluster.x-k8s.io/cluster-name": "invented"}}),
        json!({"labels": {"cluster.x-k8s.io/control-plane": ""}}),
        json!({"annotations": {"ipam.cluster.x-k8s.io/limit": "0"}}),
    ];
    let kind = InClusterKind::GlobalIPPool.name();
    join_all((0..24).map(|number: usize| {
        let (metadata, pool) = (attributes[number % attributes.len()].clone(), &pool);
        async move {
            drop(
                user.create_claim_with(&format!("c{number}"), kind, pool, metadata)
                    .await,
            )
        }
    }))
    .await;
    until_within(
        Duration::from_mins(3),
        "three claims are bound, and the others wait",
        || async {
            let claims = user.claims().list().await.ok()?;
            let with = |reason: &str| {
                claims
                    .iter()
                    .filter(|claim| ready(claim).reason.as_deref() == Some(reason))
                    .count()
            };
            // A claim of a Cluster that does not exist waits for it.
            let waiting = with("QuotaExceeded") + with("ClusterNotFound");
            Some(with("AddressAllocated") == 3 && waiting == 21)
        },
    )
    .await;
    for name in ["a", "b", "c"] {
        other.bind_global(name, &pool).await;
    }
    // A claim that is released and created again does not add an address.
    let admin = &tenant.admin;
    let first = admin
        .allocated_addresses()
        .await
        .into_keys()
        .next()
        .expect("three claims are bound");
    user.release(&first).await;
    user.create_global_claim(&first, &pool).await;
    until("another claim gets the address", async || {
        Some(admin.allocated_addresses().await.len() == 3)
    })
    .await;
}
