//! `clusterctl move` from one cluster to another.

use capi_ipam_api::{IPRegistry, names};
use capi_ipam_registry::{Entry, Record};
use futures::future::FutureExt as _;
use support::{
    clusterctl::{CORE, Releases, install_infrastructure_stub, start_core},
    prelude::*,
    registry::{Hub, REGISTRY},
};

use crate::installed;

/// A cluster with Cluster API and this provider, both installed by clusterctl.
struct Side {
    plane: ControlPlane,
    consumer: Consumer,
    manager: Manager,
    _webhooks: Webhooks,
    _core: Option<(Manager, Webhooks)>,
}

impl Side {
    async fn start(releases: &Releases, with_core: bool) -> Self {
        Self::start_with(releases, with_core, &[]).await
    }

    /// Like [`Self::start`], with further flags.
    async fn start_with(releases: &Releases, with_core: bool, more: &[&str]) -> Self {
        let plane = ControlPlane::start(Options {
            bare: true,
            controller_manager: true,
            ..Options::default()
        });
        releases.init(&plane);
        install_infrastructure_stub(&plane);
        let core = with_core.then(|| start_core(&plane));
        if !with_core {
            // No server listens there.
            let selector = format!("--selector=cluster.x-k8s.io/provider={CORE}");
            for kind in [
                "validatingwebhookconfiguration",
                "mutatingwebhookconfiguration",
            ] {
                plane.kubectl(&["delete", kind, &selector]);
            }
        }
        if more.contains(&"--cluster-addressing") {
            installed::apply_cluster_addressing(&plane);
        }
        let flags = [&["--sweep-interval=1s", "--sweep-grace=1s"], more].concat();
        let (manager, webhooks) = installed::start(&plane, &flags);
        let consumer = Consumer::new(&plane).await;
        Self {
            plane,
            consumer,
            manager,
            _webhooks: webhooks,
            _core: core,
        }
    }

    /// Name and address of all IPAddresses.
    async fn allocated_addresses(&self) -> BTreeMap<String, String> {
        self.consumer.allocated_addresses().await
    }
}

/// Creates a Cluster that counts as provisioned: others are not moved.
pub(crate) async fn provisioned(plane: &ControlPlane, consumer: &Consumer, name: &str) -> Value {
    consumer.create_cluster(name, false).await;
    let status = json!({"status": {
        "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
        "conditions": [{"type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }});
    let namespace = format!("--namespace={}", consumer.namespace);
    let patch = status.to_string();
    plane.kubectl(&[
        "patch",
        "cluster",
        name,
        &namespace,
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ]);
    let found = read(&consumer.clusters(), name).await;
    json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": name, "uid": found.uid()}])
}

/// Creates claims for pools of three kinds: plain ones, and claims of a Cluster with and without
/// its label. Returns their names.
async fn allocate_in_each_kind(consumer: &Consumer, owners: &Value) -> Vec<String> {
    // Later claims precede earlier ones in alphabetical order: a new allocation would yield other
    // addresses.
    let kinds = [
        (InClusterKind::IPPool.name(), "web"),
        (InClusterKind::GlobalIPPool.name(), "all"),
        (InClusterKind::PrefixPool.name(), "nets"),
    ];
    let mut names = Vec::new();
    for (kind, pool) in kinds {
        for number in (0..12).rev() {
            let (how, metadata) = match number % 3 {
                0 => ("plain", json!({})),
                1 => ("owned", json!({"ownerReferences": owners})),
                _ => (
                    "labelled",
                    json!({"ownerReferences": owners, "labels": {"cluster.x-k8s.io/cluster-name": "alpha"}}),
                ),
            };
            let name = format!("{pool}-{how}-{number:02}");
            consumer
                .create_claim_with(&name, kind, pool, metadata)
                .await;
            consumer.wait_for_address(&name).await;
            names.push(name);
        }
    }
    names
}

/// Allocates addresses in a pool with the order RoundRobin. Returns the names of the claims that
/// are left.
async fn allocate_round_robin(consumer: &Consumer) -> [String; 2] {
    consumer
        .create_pool(
            "ring",
            (
                "10.2.0.0/24",
                json!({"allocation": {"order": "RoundRobin"}}),
            ),
        )
        .await;
    // Moved in the order of their names, which is another one than that of their allocation.
    for (name, address) in [
        ("ring-c", "10.2.0.1"),
        ("ring-b", "10.2.0.2"),
        ("ring-a", "10.2.0.3"),
    ] {
        consumer.bind_to(name, "ring", address).await;
    }
    consumer.release("ring-b").await;
    ["ring-a", "ring-c"].map(str::to_owned)
}

/// Allocates an address in a slice of the Cluster, which is after one of another owner. Returns the
/// name of the claim.
async fn allocate_in_a_slice(consumer: &Consumer, owners: &Value) -> String {
    let slices = json!({"size": 16, "per": "Cluster"});
    let spec = json!({"addresses": ["10.3.0.0/24"], "prefix": 24, "slices": slices});
    let kind = InClusterKind::GlobalIPPool;
    consumer.create_pool_of(kind, "sliced", spec).await;
    let other = json!({"kind": "Cluster", "namespace": consumer.namespace, "name": "beta"});
    consumer.pin_slice("g.sliced", "10.3.0.0/28", other).await;
    let owned = json!({"ownerReferences": owners, "clusterName": "alpha"});
    consumer
        .create_claim_with("sliced-a", kind.name(), "sliced", owned)
        .await;
    consumer.assert_address("sliced-a", "10.3.0.16").await;
    "sliced-a".to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn clusterctl_move_keeps_all_addresses() {
    let releases = Releases::write();
    let source = Side::start(&releases, false).await;
    let target = Side::start(&releases, true).await;
    let consumer = &source.consumer;
    let owners = provisioned(&source.plane, &source.consumer, "alpha").await;
    let spec = json!({"addresses": ["10.0.0.0/24"], "prefix": 24, "gateway": "10.0.0.1"});
    consumer.create_pool("web", spec.clone()).await;
    consumer
        .create_pool_of(InClusterKind::GlobalIPPool, "all", "10.1.0.0/24")
        .await;
    consumer
        .create_pool_of(
            InClusterKind::PrefixPool,
            "nets",
            json!({"prefixes": ["fd00::/48"]}),
        )
        .await;
    let mut names = allocate_in_each_kind(consumer, &owners).await;
    names.extend(allocate_round_robin(consumer).await);
    names.push(allocate_in_a_slice(consumer, &owners).await);
    let slices = consumer.slice_owners().await;
    assert_eq!(slices.len(), 2);
    let kept = consumer.reserve("web", "10.0.0.200", Value::Null).await;
    let promised = consumer.reserve_for("web", "10.0.0.201", "later").await;
    eventually("the reservations are labelled", || async {
        for name in [kept.name_any(), promised.name_any()] {
            let found = consumer.reservations().get(&name).await.ok()??;
            found
                .labels()
                .contains_key("clusterctl.cluster.x-k8s.io/move")
                .then_some(())?;
        }
        Some(())
    })
    .await;
    let before = source.allocated_addresses().await;
    assert_eq!(before.len(), names.len());

    // The age of a restored claim is detected only beyond the tolerated clock skew.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let to = format!("--to-kubeconfig={}", target.plane.kubeconfig().display());
    let arguments = ["move", "--namespace", &consumer.namespace, &to];
    let arrived = target.consumer.in_namespace(&consumer.namespace);
    // Killed when claims have been restored, before their addresses.
    let mut killed = releases
        .command(&arguments)
        .env("KUBECONFIG", source.plane.kubeconfig())
        .spawn()
        .expect("it starts");
    until("claims and their pools are restored", async || {
        let (claims, pools) = (arrived.claims(), arrived.pools());
        let (global, prefixes) = (
            arrived.global_pools(),
            arrived.pools_of(InClusterKind::PrefixPool),
        );
        // All at once: the move continues meanwhile.
        let restored = join_all([
            pools.get("web").boxed(),
            pools.get("ring").boxed(),
            global.get("all").boxed(),
            prefixes.get("nets").boxed(),
        ]);
        let (claims, pools) = tokio::join!(claims.list().boxed(), restored);
        let are_there = pools.iter().all(|pool| matches!(pool, Ok(Some(_))));
        Some(claims.ok()?.len() >= 5 && are_there)
    })
    .await;
    killed
        .kill()
        .and_then(|()| killed.wait())
        .expect("it can be killed");
    assert!(
        arrived.allocated_addresses().await.len() < names.len(),
        "the move was interrupted too late"
    );
    let waiting = arrived.claims().list().await.expect("claims can be read");
    let waiting: Vec<_> = waiting
        .iter()
        .filter(|claim| claim.cluster_name().is_none())
        .map(ResourceExt::name_any)
        .collect();
    eventually(
        "claims that are not paused wait for their address",
        || async {
            for name in &waiting {
                let claim = arrived.claims().get(name).await.ok()??;
                (claim.bound_address().is_some()
                    || ready(&claim).reason.as_deref() == Some("AwaitingAddress"))
                .then_some(())?;
            }
            Some(())
        },
    )
    .await;
    // clusterctl refuses to move paused objects, which the interrupted move has left.
    let patch = r#"{"spec": {"paused": false}}"#;
    let namespace = format!("--namespace={}", consumer.namespace);
    source.plane.kubectl(&[
        "patch",
        "cluster",
        "alpha",
        &namespace,
        "--type=merge",
        "--patch",
        patch,
    ]);
    releases
        .clusterctl(&source.plane, &arguments)
        .unwrap_or_else(|error| panic!("{error}"));
    for name in &names {
        arrived.wait_for_address(name).await;
    }
    assert_eq!(arrived.allocated_addresses().await, before);
    for reservation in [&kept, &promised] {
        let found = arrived
            .reservations()
            .get(&reservation.name_any())
            .await
            .expect("reservations can be read");
        assert_eq!(
            found.map(|found| found.spec),
            Some(reservation.spec.clone())
        );
    }
    arrived.bind_to("later", "web", "10.0.0.201").await;
    arrived.create_claim("ring-d", "ring").await;
    assert_eq!(
        arrived.wait_for_address("ring-d").await,
        "10.2.0.4",
        "the order continues where it was"
    );
    assert_eq!(arrived.slice_owners().await, slices);
    arrived
        .create_claim_with(
            "sliced-b",
            InClusterKind::GlobalIPPool.name(),
            "sliced",
            json!({"clusterName": "alpha"}),
        )
        .await;
    assert_eq!(
        arrived.wait_for_address("sliced-b").await,
        "10.3.0.17",
        "the Cluster has the same slice"
    );
    // Only cluster-scoped objects remain.
    until("the source is empty", async || {
        let (claims, addresses) = (
            consumer.claims().list().await.ok()?,
            consumer.addresses().list().await.ok()?,
        );
        let pools = consumer.pools().list().await.ok()?;
        Some(claims.is_empty() && addresses.is_empty() && pools.is_empty())
    })
    .await;
    assert!(!source.manager.was_forbidden() && !target.manager.was_forbidden());
}

#[tokio::test(flavor = "multi_thread")]
async fn clusterctl_move_keeps_the_addresses_of_a_cluster() {
    let releases = Releases::write();
    let flags = ["--cluster-addressing"];
    let source = Side::start_with(&releases, false, &flags).await;
    let target = Side::start_with(&releases, true, &flags).await;
    let consumer = &source.consumer;
    consumer.create_pool("vips", "10.0.0.0/24").await;
    // The first free address, and so that of an allocation at the target, is another one.
    consumer.bind_to("first", "vips", "10.0.0.1").await;
    // The set chooses the second pool, and the first one at the target.
    consumer.create_pool("rack", "10.0.1.1").await;
    consumer.bind_to("other", "rack", "10.0.1.1").await;
    let member = |name: &str| json!({"kind": "InClusterIPPool", "name": name});
    let set = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPPoolSet",
        "metadata": {"name": "racks", "namespace": consumer.namespace},
        "spec": {"pools": [member("rack"), member("vips")]},
    });
    source.plane.kubectl_apply(&set.to_string());
    let to = json!([{"controlPlaneEndpoint": {"port": 6443}}]);
    let pool = json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "IPPoolSet", "name": "racks"});
    let items = json!([{"name": "endpoint", "poolRef": pool, "to": to}]);
    let addressing = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "ClusterAddressing",
        "metadata": {"name": "bonn", "namespace": consumer.namespace},
        "spec": {"clusterSelector": {}, "items": items},
    });
    source.plane.kubectl_apply(&addressing.to_string());
    provisioned(&source.plane, consumer, "alpha").await;
    consumer.assert_address("alpha-endpoint", "10.0.0.2").await;
    let namespace = format!("--namespace={}", consumer.namespace);
    let field = |plane: &ControlPlane, object: &str, path: &str| {
        let output = format!("--output=jsonpath={path}");
        plane.try_kubectl(&["get", object, &namespace, &output])
    };
    let host = "{.spec.controlPlaneEndpoint.host}";
    eventually_ok("the Cluster has its endpoint", async || {
        let found = field(&source.plane, "cluster/alpha", host)?;
        (found == "10.0.0.2").then_some(()).ok_or(found)
    })
    .await;
    consumer.release("first").await;
    consumer.release("other").await;

    let to = format!("--to-kubeconfig={}", target.plane.kubeconfig().display());
    let arguments = ["move", "--namespace", &consumer.namespace, &to];
    let moved = releases.clusterctl(&source.plane, &arguments);
    moved.unwrap_or_else(|error| panic!("{error}"));
    let arrived = target.consumer.in_namespace(&consumer.namespace);
    arrived.assert_address("alpha-endpoint", "10.0.0.2").await;
    let address = arrived.wait_for_ip_address("alpha-endpoint").await;
    let pool = &address.annotations()[names::MEMBER_POOL_ANNOTATION];
    assert_eq!(pool, "InClusterIPPool/vips");
    eventually_ok("the set counts the address", async || {
        let path = "{.status.pools} {.status.used}";
        let found = field(&target.plane, "ippoolset/racks", path)?;
        (found == "2 1").then_some(()).ok_or(found)
    })
    .await;
    eventually_ok("the Cluster has its addresses", async || {
        let found = field(&target.plane, "clusteraddressing/bonn", "{.status.ready}")?;
        (found == "1").then_some(()).ok_or(found)
    })
    .await;
    assert_eq!(
        field(&target.plane, "cluster/alpha", host).as_deref(),
        Ok("10.0.0.2")
    );
    let uid = field(&target.plane, "cluster/alpha", "{.metadata.uid}");
    let owner = "{.metadata.ownerReferences[*].uid}";
    assert_eq!(
        field(&target.plane, "ipaddressclaim/alpha-endpoint", owner),
        uid
    );
    eventually_ok("the source is empty", async || {
        let kinds = "clusters,ipaddressclaims,ipaddresses.ipam.cluster.x-k8s.io,ipreservations,clusteraddressings,\
                     ippoolsets";
        let left = field(
            &source.plane,
            kinds,
            "{range .items[*]}{.kind}/{.metadata.name} {end}",
        )?;
        left.is_empty().then_some(()).ok_or(left)
    })
    .await;
    // The target releases the address when the Cluster is gone.
    let later = format!("{namespace} --wait=false");
    let deletion: Vec<&str> = later.split(' ').collect();
    target
        .plane
        .kubectl(&[&["delete", "cluster/alpha"], &*deletion].concat());
    until("the address is released", async || {
        Some(arrived.allocated_addresses().await.is_empty())
    })
    .await;
    assert!(!source.manager.was_forbidden() && !target.manager.was_forbidden());
}

/// Creates the registry and the network, which are the same in all management clusters.
async fn share_blocks(side: &Side, hub: &Hub, id: &str) {
    let registry = object(hub.registry(id));
    let registries: ResourceClient<IPRegistry> =
        ResourceClient::new(Api::all(side.consumer.client.clone()), &());
    create(&registries, &registry)
        .await
        .expect("the registry is valid");
    // The target takes the blocks of the source as soon as they are returned.
    let blocks = json!({"registry": REGISTRY, "size": 4, "spare": 0, "quarantineSeconds": 0});
    let spec = json!({"namespaces": {"from": "All"}, "blocks": blocks});
    side.consumer.create_network("backbone", spec).await;
}

/// The addresses of claims that are created in a pool of the network.
async fn bind(consumer: &Consumer, names: &[&str]) -> BTreeMap<String, String> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    consumer.create_claims(&names, "shared").await;
    consumer.wait_for_addresses(&names).await
}

/// Waits until the registry says that a management cluster has a block.
async fn wait_for_holder(hub: &Hub, block: &str, cluster: &str) {
    let registry = hub.open().await;
    eventually(&format!("{cluster} has {block}"), || async {
        let found = registry
            .read(&format!("block.backbone.{block}"))
            .await
            .ok()?;
        match found.as_ref().and_then(Entry::record) {
            Some(Record::Block(record)) if record.cluster == cluster => Some(()),
            _ => None,
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clusterctl_move_hands_over_shared_blocks() {
    let releases = Releases::write();
    let hub = Hub::nats();
    hub.create_bucket().await;
    let source = Side::start(&releases, false).await;
    let target = Side::start(&releases, true).await;
    share_blocks(&source, &hub, "source").await;
    share_blocks(&target, &hub, "target").await;
    let spec = json!({"addresses": ["10.4.0.0-10.4.0.15"], "prefix": 16, "network": "backbone"});
    source.consumer.create_pool("shared", spec.clone()).await;
    let moved = bind(&source.consumer, &["a", "b", "c", "d", "e"]).await;

    // The age of a restored claim is detected only beyond the tolerated clock skew.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let to = format!("--to-kubeconfig={}", target.plane.kubeconfig().display());
    let arguments = ["move", "--namespace", &source.consumer.namespace, &to];
    releases
        .clusterctl(&source.plane, &arguments)
        .unwrap_or_else(|error| panic!("{error}"));
    let arrived = target.consumer.in_namespace(&source.consumer.namespace);
    for (name, address) in &moved {
        assert_eq!(&arrived.wait_for_address(name).await, address);
    }

    // Both allocate from the range. No address that was moved is allocated again.
    let left = source.consumer.in_namespace("default");
    left.create_pool("shared", spec).await;
    let names = ["f", "g", "h", "i"];
    let (in_source, in_target) = futures::join!(bind(&left, &names), bind(&arrived, &names));
    let mut all = BTreeSet::new();
    for address in moved
        .values()
        .chain(in_source.values())
        .chain(in_target.values())
    {
        assert!(all.insert(address), "{address} is in use twice");
    }
    // The blocks belong to the target, which has the addresses.
    for block in ["10.4.0.0-30", "10.4.0.4-30"] {
        wait_for_holder(&hub, block, "target").await;
    }

    // The way back.
    let of_target: BTreeMap<String, String> = moved.into_iter().chain(in_target).collect();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let to = format!("--to-kubeconfig={}", source.plane.kubeconfig().display());
    let arguments = ["move", "--namespace", &arrived.namespace, &to];
    releases
        .clusterctl(&target.plane, &arguments)
        .unwrap_or_else(|error| panic!("{error}"));
    for (name, address) in &of_target {
        assert_eq!(&source.consumer.wait_for_address(name).await, address);
    }
    for block in ["10.4.0.0-30", "10.4.0.4-30"] {
        wait_for_holder(&hub, block, "source").await;
    }
    let last = bind(&source.consumer, &["k"]).await;
    for address in last.values() {
        let is_in_use = of_target
            .values()
            .chain(in_source.values())
            .any(|other| other == address);
        assert!(!is_in_use, "{address} is in use twice");
    }
    assert!(!source.manager.was_forbidden() && !target.manager.was_forbidden());
}
