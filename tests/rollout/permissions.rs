//! The roles of `config/rbac`: they are sufficient, and each rule is needed. All other tests run
//! the manager with these roles, too.

use std::path::Path;

use capi_ipam_api::PoolSetKind;
use support::{control_plane::AccessRequest, ports::free_port, prelude::*};
use xtask::rbac::{
    CLUSTER_ADDRESSING_RULES, CLUSTER_RULES, NAMESPACE_RULES, Rule,
    SELF_MANAGED_CERTS_CLUSTER_RULES, SELF_MANAGED_CERTS_NAMESPACE_RULES,
};

/// The lease is deleted before the next manager starts, so that no manager waits for its expiry.
const FLAGS: [&str; 7] = [
    "--verify-interval=1s",
    "--leader-elect",
    "--leader-elect-lease-duration=60s",
    "--leader-elect-renew-deadline=40s",
    "--leader-elect-retry-period=200ms",
    "--sweep-interval=1s",
    "--sweep-grace=1s",
];

/// How long an expected denial may take.
const TIMEOUT: Duration = Duration::from_mins(2);

const SELF_MANAGED: [&str; 3] = [
    "--webhook-certs=self-managed",
    "--webhook-cert-interval=500ms",
    "--webhook-cert-hosts=127.0.0.1",
];

/// A manager that uses all features: it is elected, serves metrics, and sweeps continuously.
struct Busy {
    manager: Manager,
    webhooks: Webhooks,
    metrics: u16,
}

impl Busy {
    fn start(plane: &ControlPlane, self_managed: bool) -> Self {
        let (webhooks, metrics) = (Webhooks::new(plane), free_port());
        // Pools may be stored as v1alpha1.
        let old = r#"{"status": {"storedVersions": ["v1alpha1", "v1alpha2"]}}"#;
        let definition = "inclusterippools.ipam.cluster.x-k8s.io";
        plane.kubectl(&[
            "patch",
            "crd",
            definition,
            "--subresource=status",
            "--type=merge",
            "--patch",
            old,
        ]);
        let mut flags = webhooks.flags().to_vec();
        if self_managed {
            webhooks.register_with_ca(plane, "");
            flags.extend(SELF_MANAGED.map(str::to_owned));
        }
        flags.push(format!("--diagnostics-address=127.0.0.1:{metrics}"));
        flags.extend(FLAGS.map(str::to_owned));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let manager = Manager::launch(plane, plane.provider_kubeconfig(), &flags);
        Self {
            manager,
            webhooks,
            metrics,
        }
    }

    /// Uses all features.
    async fn work(&self, plane: &ControlPlane) {
        let consumer = Consumer::new(plane).await;
        let (namespace, pools) = (consumer.namespace.as_str(), consumer.pools());
        let all = format!("all-{namespace}");
        let curious =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "curious"}});
        plane.kubectl_apply(&curious.to_string());
        let token = plane.kubectl(&["create", "token", "curious"]);
        consumer
            .create_pool(
                "web",
                (
                    "10.0.0.10-10.0.0.11",
                    json!({"addressReuseGracePeriodSeconds": 1}),
                ),
            )
            .await;
        let verified =
            json!({"addresses": ["fd00::/64"], "prefix": 64, "reclaim": {"verify": "Report"}});
        consumer.create_global_pool(&all, verified).await;
        // Whether the last address is for a claim depends on its Machine.
        let selector = json!({"matchLabels": {"role": "control-plane"}});
        let headroom = json!({"addresses": 1, "for": selector});
        let last = format!("last-{namespace}");
        consumer
            .create_global_pool(&last, ("10.0.9.1", json!({"headroom": headroom})))
            .await;
        let owner = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ExampleMachine",
                           "name": "worker", "uid": "worker"});
        let metadata = json!({"ownerReferences": [owner]});
        consumer
            .create_claim_with("worker", "GlobalInClusterIPPool", &last, metadata)
            .await;
        let prefixes = json!({"prefixes": ["fd01::/48"]});
        consumer
            .create_pool_of(InClusterKind::PrefixPool, "nets", prefixes.clone())
            .await;
        consumer
            .create_pool_of(InClusterKind::GlobalPrefixPool, &all, prefixes)
            .await;
        consumer.create_cluster("alpha", true).await;
        consumer.create_claim("a", "web").await;
        consumer.create_claim("b", "web").await;
        consumer.create_global_claim("g", &all).await;
        consumer
            .create_claim_with("n", "InClusterPrefixPool", "nets", json!({}))
            .await;
        consumer
            .create_claim_with("m", "GlobalInClusterPrefixPool", &all, json!({}))
            .await;
        consumer
            .create_claim_with_metadata("p", "web", json!({"clusterName": "alpha"}))
            .await;
        // A reservation and an address whose owners do not exist: work for the sweeper.
        let orphaned = format!("p.{namespace}.web.10.0.0.201");
        let reservation = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation", "metadata": {"name": orphaned},
            "spec": {
                "scope": format!("p.{namespace}.web"), "address": "10.0.0.201",
                "poolRef": {"kind": "InClusterIPPool", "namespace": namespace, "name": "web"},
                "claimRef": {"namespace": namespace, "name": "dead", "uid": "dead"},
            },
        });
        consumer
            .reservations()
            .create(&object(reservation))
            .await
            .expect("it can be created");
        consumer.create_cluster("beta", false).await;
        consumer
            .create_address_in_cluster("orphan", "web", "10.0.0.200", "beta")
            .await;
        // Without a permission it may never be ready: the search for a denial runs concurrently.
        eventually("the manager is ready", || async {
            self.manager.is_ready().then_some(())
        })
        .await;
        // The token is reviewed, and access is denied.
        let asker = format!("authorization: Bearer {}\r\n", token.trim());
        self.webhooks.get(self.metrics, "/metrics", &asker).await;
        for name in ["a", "b", "g", "n", "m"] {
            consumer.wait_for_address(name).await;
        }
        until("the addresses of Machines are compared", async || {
            let status = consumer.claims().get("g").await.ok()??.status?;
            Some(
                status
                    .conditions
                    .iter()
                    .any(|condition| condition.type_ == "AddressInUse"),
            )
        })
        .await;
        use_slices(&consumer).await;
        use_registry(&consumer, plane).await;
        use_sets(&consumer, plane, &all).await;
        report_problems(&consumer).await;
        consumer.claim_waits("c", "web", "PoolExhausted").await;
        consumer.wait_for_reason("p", "Paused").await;
        // A repeated event is one object with a count.
        for paused in [true, false] {
            consumer.set_paused(&consumer.claims(), "c", paused).await;
            consumer
                .wait_for_reason("c", if paused { "Paused" } else { "PoolExhausted" })
                .await;
        }
        consumer.release("a").await;
        consumer.wait_for_address("c").await;
        consumer.wait_until_deleted("orphan").await;
        eventually("the orphaned reservation is freed", || async {
            consumer
                .reservations()
                .get(&orphaned)
                .await
                .expect("reservations can be read")
                .is_none()
                .then_some(())
        })
        .await;
        // A network is created, and deleted by its owner.
        let network = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPNetwork",
            "metadata": {"name": all},
            "spec": {"namespaces": {"from": "Names", "names": [namespace]}},
        });
        plane.kubectl_apply(&network.to_string());
        let networks = consumer.networks();
        let is_there = async |there: bool| {
            let found = networks.get(&all).await.expect("networks can be read");
            (found.is_some_and(|network| network.status.is_some()) == there).then_some(())
        };
        eventually("the network is created", async || is_there(true).await).await;
        consumer.delete_object(&networks, &all).await;
        eventually("the network is deleted", async || is_there(false).await).await;
        // A manually deleted address stays until its claim is deleted.
        let by_hand = consumer.the_address("b").await;
        let uid = by_hand.metadata.uid.unwrap_or_default();
        consumer
            .addresses()
            .delete("b", &uid)
            .await
            .expect("an address can be deleted");
        // Pools are deleted with their claims.
        for name in ["b", "c", "g", "n", "m", "p"] {
            consumer.delete(name).await;
        }
        consumer.delete_unused_pool(&pools, "web").await;
        consumer
            .delete_unused_pool(&consumer.pools_of(InClusterKind::PrefixPool), "nets")
            .await;
        consumer
            .delete_unused_pool(&consumer.global_pools(), &all)
            .await;
        consumer
            .delete_unused_pool(&consumer.pools_of(InClusterKind::GlobalPrefixPool), &all)
            .await;
        for name in ["b", "c", "g", "n", "m"] {
            consumer.wait_until_deleted(name).await;
        }
    }
}

/// A reservation and a slice without effect get a status.
async fn report_problems(consumer: &Consumer) {
    let scope = format!("p.{}.odd", consumer.namespace);
    let spec = json!({"addresses": ["10.5.0.1-10.5.0.2"], "prefix": 24});
    consumer.create_pool("odd", spec).await;
    consumer.wait_until_pool_ready("odd").await;
    consumer.reserve_for("odd", "10.5.0.2", "vip").await;
    // A webhook refuses a reservation of an address that the pool does not contain.
    consumer
        .modify_pool("odd", |spec| spec["addresses"] = json!(["10.5.0.1"]))
        .await;
    let owner = json!({"kind": "Label", "name": "r1"});
    let slice = consumer.pin_slice(&scope, "10.5.0.0/30", owner).await;
    let reservation = format!("{scope}.10.5.0.2");
    eventually("both report their problem", || async {
        let reserved = consumer.reservations().get(&reservation).await.ok()??;
        let sliced = consumer
            .slices()
            .get(slice.metadata.name.as_deref()?)
            .await
            .ok()??;
        reserved.status.and(sliced.status).map(|_| ())
    })
    .await;
    consumer
        .delete_object(&consumer.reservations(), &reservation)
        .await;
    let name = slice.metadata.name.as_deref().unwrap_or_default();
    consumer.delete_object(&consumer.slices(), name).await;
    consumer.delete_unused_pool(&consumer.pools(), "odd").await;
}

/// A registry whose identity is that of the cluster, and whose Secret does not exist.
async fn use_registry(consumer: &Consumer, plane: &ControlPlane) {
    let registry = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPRegistry",
        "metadata": {"name": consumer.namespace}, "spec": {"kubernetes": {"secretName": "hub"}},
    });
    plane.kubectl_apply(&registry.to_string());
    let path = "-o=jsonpath={.status.conditions[?(@.type=='Ready')].message}";
    until("the registry has a status", async || {
        let message = plane.kubectl(&["get", "ipregistries", &consumer.namespace, path]);
        Some(message.contains("Secret"))
    })
    .await;
    // Waits until its finalizer is removed.
    plane.kubectl(&["delete", "ipregistries", &consumer.namespace]);
}

/// Claims name a set of each kind, and the sets are deleted.
async fn use_sets(consumer: &Consumer, plane: &ControlPlane, pool: &str) {
    let member = json!({"kind": "GlobalInClusterIPPool", "name": pool});
    for kind in PoolSetKind::ALL {
        let set = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind.name(),
            "metadata": {"name": consumer.namespace, "namespace": (!kind.is_global()).then_some(&consumer.namespace)},
            "spec": {"pools": [member]},
        });
        plane.kubectl_apply(&set.to_string());
        consumer
            .create_claim_with("of-set", kind.name(), &consumer.namespace, json!({}))
            .await;
        consumer.wait_for_address("of-set").await;
        consumer.release("of-set").await;
        // Waits until its finalizer is removed.
        let namespace = format!("--namespace={}", consumer.namespace);
        plane.kubectl(&["delete", kind.plural(), &consumer.namespace, &namespace]);
    }
}

/// A slice is assigned, marked as empty, and returned.
async fn use_slices(consumer: &Consumer) {
    let slices = json!({"size": 4, "per": "Label", "label": "rack"});
    consumer
        .create_pool("sliced", ("10.4.0.0/28", json!({"slices": slices})))
        .await;
    consumer
        .bind_with_metadata("s", "sliced", json!({"labels": {"rack": "r1"}}))
        .await;
    consumer.release("s").await;
    until("the slice is returned", async || {
        // A pinned slice of an interrupted run may be left over.
        let mut blocks = consumer.slice_owners().await.into_keys();
        Some(!blocks.any(|block| block.starts_with("10.4.")))
    })
    .await;
    consumer
        .delete_unused_pool(&consumer.pools(), "sliced")
        .await;
}

/// Adds the permissions for `--webhook-certs=self-managed`.
fn install_self_managed(plane: &ControlPlane) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/self-managed-certs");
    for file in ["role.yaml", "role_binding.yaml"] {
        plane.kubectl(&["apply", "-f", &folder.join(file).display().to_string()]);
    }
}

/// All permissions of the rules, one by one.
fn allowed(rules: &[Rule], namespace: &str) -> BTreeSet<AccessRequest> {
    let mut all = BTreeSet::new();
    for rule in rules {
        for (resource, verb) in rule
            .resources
            .iter()
            .flat_map(|resource| rule.verbs.iter().map(move |v| (resource, v)))
        {
            let [group, resource, verb] = [rule.group, resource, verb].map(ToString::to_string);
            all.insert(AccessRequest {
                group,
                resource,
                verb,
                namespace: namespace.to_owned(),
                forbidden: false,
            });
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_grant_exactly_what_the_manager_requests() {
    // With streaming lists a watch needs no list.
    let plane = ControlPlane::start(Options {
        audit: true,
        in_pages: true,
        ..Options::default()
    });
    install_self_managed(&plane);
    for self_managed in [false, true] {
        let mut busy = Busy::start(&plane, self_managed);
        busy.manager.wait_until_ready();
        busy.work(&plane).await;
        if self_managed {
            wait_until_repaired(&plane).await;
        }
        busy.manager.stop();
        plane.kubectl(&["delete", "lease", "--all", "--namespace", NAMESPACE]);
    }
    let cluster = |request: &AccessRequest| AccessRequest {
        namespace: String::new(),
        ..request.clone()
    };
    let mut asked: BTreeSet<AccessRequest> = plane.requested_access();
    let is_own = |asked: &AccessRequest| ["leases", "secrets"].contains(&asked.resource.as_str());
    let own: BTreeSet<AccessRequest> = asked
        .iter()
        .filter(|asked| is_own(asked))
        .cloned()
        .collect();
    asked.retain(|asked| !is_own(asked));
    let allowed_here = [NAMESPACE_RULES, SELF_MANAGED_CERTS_NAMESPACE_RULES].concat();
    assert_eq!(own, allowed(&allowed_here, NAMESPACE));
    let asked: BTreeSet<AccessRequest> = asked.iter().map(cluster).collect();
    let mut idle = allowed(
        &[CLUSTER_RULES, SELF_MANAGED_CERTS_CLUSTER_RULES].concat(),
        "",
    );
    // Not requested directly, but needed for `blockOwnerDeletion`: see the last test.
    idle.retain(|right| !right.resource.ends_with("/finalizers"));
    let missing: Vec<_> = asked.difference(&idle).collect();
    assert_eq!(
        missing,
        Vec::<&AccessRequest>::new(),
        "the manager needs permissions that the roles do not grant"
    );
    let idle: Vec<_> = idle.difference(&asked).collect();
    assert_eq!(
        idle,
        Vec::<&AccessRequest>::new(),
        "the roles grant permissions that the manager does not need"
    );
}

/// Damages the Secret with the certificate and waits until the manager has regenerated it.
async fn wait_until_repaired(plane: &ControlPlane) {
    let secret = [
        "--namespace",
        NAMESPACE,
        "secret",
        "capi-ipam-in-cluster-webhook-self-managed-cert",
    ];
    let damage = [
        "--type=merge",
        "--patch",
        r#"{"data": {"tls.crt": "eA=="}}"#,
    ];
    plane.kubectl(&[&["patch"], &secret[..], &damage].concat());
    until("the certificate is regenerated", async || {
        let now = plane.kubectl(
            &[
                &["get"],
                &secret[..],
                &["--output=jsonpath={.data.tls\\.crt}"],
            ]
            .concat(),
        );
        Some(now != "eA==")
    })
    .await;
}

/// Each permission is requested, and another rule does not grant it: so each rule is needed.
#[test]
fn no_permission_is_granted_twice() {
    let cluster = [
        CLUSTER_RULES,
        SELF_MANAGED_CERTS_CLUSTER_RULES,
        CLUSTER_ADDRESSING_RULES,
    ]
    .concat();
    let here = [NAMESPACE_RULES, SELF_MANAGED_CERTS_NAMESPACE_RULES].concat();
    for rules in [cluster, here] {
        let counts = rules
            .iter()
            .map(|rule| rule.resources.len() * rule.verbs.len());
        assert_eq!(allowed(&rules, "").len(), counts.sum::<usize>());
    }
}

/// The API server checks this permission without a request for it.
#[tokio::test(flavor = "multi_thread")]
async fn owner_references_need_their_rule() {
    let plane = ControlPlane::start(Options {
        audit: true,
        ..Options::default()
    });
    let role = ["clusterrole", "capi-ipam-in-cluster-manager-role"];
    let index = CLUSTER_RULES
        .iter()
        .position(|rule| rule.resources.contains(&"ipaddressclaims/finalizers"))
        .expect("there is such a rule");
    let removal = json!([{"op": "remove", "path": format!("/rules/{index}")}]).to_string();
    let patch = ["patch", "--type=json", "--patch", &removal];
    plane.kubectl(&[&patch[..], &role].concat());
    let busy = Busy::start(&plane, false);
    let is_denied = async {
        let is_forbidden = |request: &AccessRequest| request.forbidden;
        while !plane.requested_access().iter().any(is_forbidden) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let has_worked = async {
        busy.work(&plane).await;
        // The last writes may be in progress.
        tokio::time::sleep(TIMEOUT).await;
    };
    tokio::select! {
        biased;
        () = is_denied => {}
        () = has_worked => panic!("nothing is denied:\n{}", busy.manager.log()),
    }
    drop(busy.manager.may_lack_permissions());
}
