//! The roles of `config/rbac`: they are enough, nothing in them is idle, and each rule of them is needed. All other tests
//! run the manager with these roles, too.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use capi_ipam::app::rbac::{CLUSTER_RULES, NAMESPACE_RULES, Rule, SELF_MANAGED_CERTS_CLUSTER_RULES, SELF_MANAGED_CERTS_NAMESPACE_RULES};
use capi_ipam::support::consumer::{Consumer, eventually, object};
use capi_ipam::support::control_plane::{Asked, ControlPlane, NAMESPACE, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::support::ports::free_port;
use capi_ipam::support::webhooks::Webhooks;
use serde_json::{json, Value};

/// A lease is removed before the next manager starts, so nobody waits for it to end.
const FLAGS: [&str; 6] = [
    "--leader-elect",
    "--leader-elect-lease-duration=60s",
    "--leader-elect-renew-deadline=40s",
    "--leader-elect-retry-period=200ms",
    "--sweep-interval=1s",
    "--sweep-grace=1s",
];

/// How long a refusal may take that has to come.
const PATIENCE: Duration = Duration::from_secs(30);

const SELF_MANAGED: [&str; 3] =
    ["--webhook-certs=self-managed", "--webhook-cert-interval=500ms", "--webhook-cert-hosts=127.0.0.1"];

/// A manager that does everything there is to do: it is elected, serves metrics, and sweeps all the time.
struct Busy {
    manager: Manager,
    webhooks: Webhooks,
    metrics: u16,
}

impl Busy {
    fn start(plane: &ControlPlane, self_managed: bool) -> Self {
        let (webhooks, metrics) = (Webhooks::new(plane), free_port());
        let mut flags = webhooks.flags().to_vec();
        if self_managed {
            webhooks.wire_with(plane, "");
            flags.extend(SELF_MANAGED.map(str::to_owned));
        }
        flags.push(format!("--diagnostics-address=127.0.0.1:{metrics}"));
        flags.extend(FLAGS.map(str::to_owned));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let manager = Manager::launch(plane, plane.provider_kubeconfig(), &flags);
        Self { manager, webhooks, metrics }
    }

    /// Has it do everything, to the end.
    async fn work(&self, plane: &ControlPlane) {
        let consumer = Consumer::new(plane).await;
        let (namespace, pools) = (consumer.namespace.as_str(), consumer.pools());
        let all = format!("all-{namespace}");
        let curious = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "curious"}});
        plane.kubectl_apply(&curious.to_string());
        let token = plane.kubectl(&["create", "token", "curious"]);
        let rest = json!({"addresses": ["10.0.0.10-10.0.0.11"], "prefix": 24, "addressReuseGracePeriodSeconds": 1});
        consumer.pool("web", rest).await;
        consumer.global_pool(&all, json!({"addresses": ["fd00::/64"], "prefix": 64})).await;
        let prefixes = json!({"prefixes": ["fd01::/48"]});
        consumer.make(&consumer.prefix_pools(), "nets", prefixes.clone()).await;
        consumer.make(&consumer.global_prefix_pools(), &all, prefixes).await;
        consumer.cluster("alpha", true).await;
        consumer.claim("a", "web").await;
        consumer.claim("b", "web").await;
        consumer.global_claim("g", &all).await;
        consumer.claim_with("n", "InClusterPrefixPool", "nets", json!({})).await;
        consumer.claim_with("m", "GlobalInClusterPrefixPool", &all, json!({})).await;
        consumer.claim_with("p", "InClusterIPPool", "web", json!({"clusterName": "alpha"})).await;
        // A reservation of nobody, and an address whose owner is gone: work for the sweeper.
        let of_nobody = format!("p.{namespace}.web.10.0.0.201");
        let reservation = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation", "metadata": {"name": of_nobody},
            "spec": {
                "scope": format!("p.{namespace}.web"), "address": "10.0.0.201",
                "poolRef": {"kind": "InClusterIPPool", "namespace": namespace, "name": "web"},
                "claimRef": {"namespace": namespace, "name": "dead", "uid": "dead"},
            },
        });
        consumer.reservations().create(&object(reservation)).await.expect("it can be made");
        consumer.cluster("beta", false).await;
        consumer.address_in_cluster("orphan", "web", "10.0.0.200", "beta").await;
        // It may never be, without a permission: whoever looks for a refusal has to get a turn meanwhile.
        eventually("the manager is ready", || async { self.manager.is_ready().then_some(()) }).await;
        // Not let in, but asked about.
        let asker = format!("authorization: Bearer {}\r\n", token.trim());
        self.webhooks.get(self.metrics, "/metrics", &asker).await;
        for name in ["a", "b", "g", "n", "m"] {
            consumer.bound(name).await;
        }
        consumer.claim("c", "web").await;
        consumer.waits_for("c", "PoolExhausted").await;
        consumer.waits_for("p", "Paused").await;
        // What is told twice is one event with a number.
        for paused in [true, false] {
            consumer.pause(&consumer.claims(), "c", paused).await;
            consumer.waits_for("c", if paused { "Paused" } else { "PoolExhausted" }).await;
        }
        consumer.release("a").await;
        consumer.bound("c").await;
        consumer.gone("orphan").await;
        eventually("the reservation of nobody is freed", || async {
            consumer.reservations().get(&of_nobody).await.expect("reservations can be read").is_none().then_some(())
        })
        .await;
        // Deleted by hand, an address stays until its claim goes.
        let by_hand = consumer.addresses().get("b").await.expect("addresses can be read").expect("it is there");
        let uid = by_hand.metadata.uid.unwrap_or_default();
        consumer.addresses().delete("b", &uid).await.expect("an address can be deleted");
        // Pools go, with what is in them.
        for name in ["b", "c", "g", "n", "m", "p"] {
            consumer.delete(name).await;
        }
        consumer.remove_unused(&pools, "web").await;
        consumer.remove_unused(&consumer.prefix_pools(), "nets").await;
        consumer.remove_unused(&consumer.global_pools(), &all).await;
        consumer.remove_unused(&consumer.global_prefix_pools(), &all).await;
        for name in ["b", "c", "g", "n", "m"] {
            consumer.gone(name).await;
        }
    }
}

/// Adds the permissions for `--webhook-certs=self-managed`.
fn install_self_managed(plane: &ControlPlane) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/self-managed-certs");
    for file in ["role.yaml", "role_binding.yaml"] {
        plane.kubectl(&["apply", "-f", &folder.join(file).display().to_string()]);
    }
}

/// Everything that the rules allow, one by one.
fn allowed(rules: &[Rule], namespace: &str) -> BTreeSet<Asked> {
    let mut all = BTreeSet::new();
    for rule in rules {
        for (resource, verb) in rule.resources.iter().flat_map(|resource| rule.verbs.iter().map(move |v| (resource, v)))
        {
            let [group, resource, verb] = [rule.group, resource, verb].map(ToString::to_string);
            all.insert(Asked { group, resource, verb, namespace: namespace.to_owned(), refused: false });
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn the_roles_are_enough_and_nothing_in_them_is_idle() {
    // Where the API server streams, a watch needs no list. (That of the next test streams.)
    let plane = ControlPlane::start(Options { audit: true, in_pages: true, ..Options::default() });
    install_self_managed(&plane);
    for self_managed in [false, true] {
        let mut busy = Busy::start(&plane, self_managed);
        busy.manager.wait_until_ready();
        busy.work(&plane).await;
        if self_managed {
            is_mended(&plane).await;
        }
        busy.manager.stop();
        plane.kubectl(&["delete", "lease", "--all", "--namespace", NAMESPACE]);
    }
    let cluster = |asked: &Asked| Asked { namespace: String::new(), ..asked.clone() };
    let mut asked: BTreeSet<Asked> = plane.asked();
    let is_own = |asked: &Asked| ["leases", "secrets"].contains(&asked.resource.as_str());
    let own: BTreeSet<Asked> = asked.iter().filter(|asked| is_own(asked)).cloned().collect();
    asked.retain(|asked| !is_own(asked));
    let allowed_here = [NAMESPACE_RULES, SELF_MANAGED_CERTS_NAMESPACE_RULES].concat();
    assert_eq!(own, allowed(&allowed_here, NAMESPACE));
    let asked: BTreeSet<Asked> = asked.iter().map(cluster).collect();
    let mut idle = allowed(&[CLUSTER_RULES, SELF_MANAGED_CERTS_CLUSTER_RULES].concat(), "");
    // Not asked for by itself, but needed to name an owner whose deletion waits: see the next test.
    idle.retain(|right| !right.resource.ends_with("/finalizers"));
    let missing: Vec<_> = asked.difference(&idle).collect();
    assert_eq!(missing, Vec::<&Asked>::new(), "it asks for what the roles do not have");
    let idle: Vec<_> = idle.difference(&asked).collect();
    assert_eq!(idle, Vec::<&Asked>::new(), "the roles have what it does not ask for");
}

/// Damages the Secret with the certificate and waits until the manager has written it anew.
async fn is_mended(plane: &ControlPlane) {
    let secret = ["--namespace", NAMESPACE, "secret", "capi-ipam-in-cluster-webhook-self-managed-cert"];
    let damage = ["--type=merge", "--patch", r#"{"data": {"tls.crt": "eA=="}}"#];
    plane.kubectl(&[&["patch"], &secret[..], &damage].concat());
    eventually("the certificate is made anew", || async {
        let now = plane.kubectl(&[&["get"], &secret[..], &["--output=jsonpath={.data.tls\\.crt}"]].concat());
        (now != "eA==").then_some(())
    })
    .await;
}

/// How many different things the provider asked for and may not do.
fn refusals(plane: &ControlPlane) -> usize {
    plane.asked().iter().filter(|asked| asked.refused).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_one_rule_something_is_refused() {
    let plane = ControlPlane::start(Options { audit: true, ..Options::default() });
    install_self_managed(&plane);
    let of_certificates = "capi-ipam-in-cluster-self-managed-certs-role";
    let here = ["--namespace", NAMESPACE];
    let roles: [(&[&str], &[Rule], bool); 4] = [
        (&["clusterrole", "capi-ipam-in-cluster-manager-role"], CLUSTER_RULES, false),
        (&["role", "capi-ipam-in-cluster-leader-election-role", here[0], here[1]], NAMESPACE_RULES, false),
        (&["clusterrole", of_certificates], SELF_MANAGED_CERTS_CLUSTER_RULES, true),
        (&["role", of_certificates, here[0], here[1]], SELF_MANAGED_CERTS_NAMESPACE_RULES, true),
    ];
    for (role, rules, self_managed) in roles {
        let get: Vec<&str> = ["get", "--output=json"].iter().chain(role).copied().collect();
        let whole: Value = serde_json::from_str(&plane.kubectl(&get)).expect("kubectl writes JSON");
        let change = |rules: &Value| {
            let patch = json!({ "rules": rules }).to_string();
            let change: Vec<&str> = ["patch", "--type=merge", "--patch", &patch].iter().chain(role).copied().collect();
            plane.kubectl(&change);
        };
        for (index, rule) in rules.iter().enumerate() {
            let mut fewer = whole["rules"].clone();
            fewer.as_array_mut().expect("a role has rules").remove(index);
            change(&fewer);
            // What is there already is not made again.
            plane.kubectl(&["delete", "lease,secret", "--all", "--namespace", NAMESPACE]);
            is_missed(&plane, rule, self_managed).await;
            change(&whole["rules"]);
        }
    }
}

/// Has a manager work until the API server refuses it something.
async fn is_missed(plane: &ControlPlane, rule: &Rule, self_managed: bool) {
    let before = refusals(plane);
    let busy = Busy::start(plane, self_managed);
    let started = Instant::now();
    let seen = async {
        while refusals(plane) == before {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let worked = async {
        // Without its certificate nothing can be written that it is asked about; there is no more to do.
        if !self_managed {
            busy.work(plane).await;
        }
        // It may only just have started, and the last writes may be under way.
        tokio::time::sleep(PATIENCE).await;
    };
    tokio::select! {
        biased;
        () = seen => println!("missed after {:?}: {:?} on {:?}", started.elapsed(), rule.verbs, rule.resources),
        () = worked => panic!("nothing is refused without {rule:?}:\n{}", busy.manager.log()),
    }
    drop(busy.manager.may_lack_permissions());
}
