//! etcd is restored from a snapshot, and the watch of one kind stays silent: neither it nor a list
//! of the kind delivers anything, not even an error.
//!
//! By itself such a watch never notices the restore once the server has reached the resourceVersion
//! that it knows. So all watches list again when one of them notices it. For each kind one manager
//! serves a namespace of its own, so that no manager repairs what another one leaves.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use support::{
    prelude::*,
    snapshot::{restore_snapshot, take_snapshot},
};

use crate::{
    proxy::Proxy,
    workload::{begin_deletion, create_with, retry, wait_until_settled},
};

/// The kinds that a manager watches.
const WATCHED: [&str; 14] = [
    "clusters",
    "globalinclusterippools",
    "globalinclusterprefixpools",
    "globalippoolsets",
    "inclusterippools",
    "inclusterprefixpools",
    "ipaddressclaims",
    "ipaddresses",
    "ipnetworks",
    "ippoolsets",
    "ipregistries",
    "ipreservations",
    "ipslices",
    "namespaces",
];

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];
const CLUSTER: &str = "cluster";
/// How long claims are released and bound at most while a watch is silent.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Whether no address of a pool is allocated while the watch of this kind is silent.
fn delays_allocation(resource: &str, pool: InClusterKind) -> bool {
    match resource {
        "ipaddressclaims" | "ipaddresses" | "ipreservations" => true,
        "ipnetworks" | "ipslices" => pool == InClusterKind::IPPool,
        "namespaces" => pool == InClusterKind::GlobalIPPool,
        "clusters" => pool == InClusterKind::PrefixPool,
        pools => pools == pool.plural(),
    }
}

/// Whether no address of a pool is released while the watch of this kind is silent.
fn delays_release(resource: &str, pool: InClusterKind) -> bool {
    resource == "ipaddressclaims" || (resource == "clusters" && pool == InClusterKind::PrefixPool)
}

/// A namespace with a pool of each kind, and the manager that serves it. Each pool has four
/// addresses or prefixes.
struct Team {
    consumer: Consumer,
    number: usize,
    /// The kind whose watch becomes silent.
    resource: &'static str,
    proxy: Proxy,
    manager: Manager,
}

impl Team {
    async fn start(plane: &ControlPlane, number: usize, resource: &'static str) -> Self {
        let consumer = Consumer::new(plane).await;
        let proxy = Proxy::start(plane, resource).await;
        let namespace = format!("--namespace={}", consumer.namespace);
        let flags = [&FLAGS[..], &[&namespace]].concat();
        let manager = Manager::launch(plane, proxy.kubeconfig(), &flags).may_lack_permissions();
        Self {
            consumer,
            number,
            resource,
            proxy,
            manager,
        }
    }

    /// The name of all pools and of the network.
    fn pool(&self) -> &str {
        &self.consumer.namespace
    }

    fn spec(&self, kind: InClusterKind) -> Value {
        let number = self.number;
        match kind {
            InClusterKind::IPPool => json!({
                "addresses": [format!("10.{number}.0.4-10.{number}.0.7")], "prefix": 24, "network": self.pool(),
                "slices": {"size": 2, "per": "Label", "label": "rack", "mostEach": 1},
            }),
            InClusterKind::GlobalIPPool => json!({
                "addresses": [format!("10.{number}.1.4-10.{number}.1.7")], "prefix": 24,
                "allowedNamespaces": {"from": "Selector", "selector": {"matchLabels": {"team": self.pool()}}},
            }),
            InClusterKind::PrefixPool => {
                json!({"prefixes": [format!("10.{number}.4.0/22")], "allocationPrefixLength": 24})
            }
            InClusterKind::GlobalPrefixPool => {
                json!({"prefixes": [format!("10.{number}.8.0/22")], "allocationPrefixLength": 24})
            }
        }
    }

    /// Sets a label of the namespace. The global pool requires the name of the pool.
    async fn label_namespace(&self, label: &str) {
        let namespaces: ResourceClient<Namespace> =
            ResourceClient::new(Api::all(self.consumer.client.clone()), &());
        let set = |namespace: &mut Value| namespace["metadata"]["labels"]["team"] = json!(label);
        self.consumer
            .modify(&namespaces, &self.consumer.namespace, set)
            .await;
    }

    /// Creates pools, and two claims for each.
    async fn set_up(&self) {
        self.label_namespace(self.pool()).await;
        self.consumer.create_open_network(self.pool()).await;
        self.consumer.create_cluster(CLUSTER, false).await;
        for kind in InClusterKind::ALL {
            self.consumer
                .create_pool_of(kind, self.pool(), self.spec(kind))
                .await;
        }
        self.create_claims("old", 2).await;
        self.consumer
            .wait_for_addresses(&claims_of_all_pools("old", 2))
            .await;
    }

    /// Creates claims for each pool. The last of three is for the first slice.
    async fn create_claims(&self, prefix: &str, count: usize) {
        for kind in InClusterKind::ALL {
            let cluster = (kind == InClusterKind::PrefixPool).then_some(CLUSTER);
            for (number, name) in claims_of(kind, prefix, count).iter().enumerate() {
                let rack = if number == 2 { "old" } else { prefix };
                let metadata = json!({"labels": {"rack": rack}, "clusterName": cluster});
                create_with(&self.consumer, name, kind, self.pool(), &metadata).await;
            }
        }
    }

    /// Changes that are lost: all addresses are allocated, and then no pool allocates, each for
    /// another reason.
    async fn make_lost_changes(&self) {
        for kind in InClusterKind::ALL {
            begin_deletion(&self.consumer, &first_claim_of(kind)).await;
        }
        self.create_claims("lost", 3).await;
        self.consumer
            .wait_for_addresses(&claims_of_all_pools("lost", 3))
            .await;
        for kind in InClusterKind::ALL {
            let field = if kind.has_prefixes() {
                "prefixes"
            } else {
                "addresses"
            };
            let other = json!([format!("10.{}.128.0/24", self.number)]);
            let change = |pool: &mut Value| pool["spec"][field] = other.clone();
            self.consumer
                .modify(&self.consumer.pools_of(kind), self.pool(), change)
                .await;
        }
        let refuse = |network: &mut Value| network["spec"]["namespaces"]["from"] = json!("None");
        self.consumer
            .modify(&self.consumer.networks(), self.pool(), refuse)
            .await;
        self.label_namespace("other").await;
        let pause = |cluster: &mut Value| cluster["spec"]["paused"] = json!(true);
        self.consumer
            .modify(&self.consumer.clusters(), CLUSTER, pause)
            .await;
    }

    /// Releases one claim of each pool and creates three, for which its address is needed. Waits
    /// for everything that the silent watch does not delay.
    async fn replace_claims(&self) {
        for kind in InClusterKind::ALL {
            begin_deletion(&self.consumer, &first_claim_of(kind)).await;
        }
        self.create_claims("new", 3).await;
        for kind in InClusterKind::ALL {
            if !delays_release(self.resource, kind) {
                self.wait_until_released(&first_claim_of(kind)).await;
            }
            if !delays_allocation(self.resource, kind) {
                self.wait_until_bound(&claims_of(kind, "new", 3)).await;
            }
        }
    }

    /// Waits until neither the claim nor its IPAddress nor its reservation exists.
    async fn wait_until_released(&self, name: &str) {
        let what = format!(
            "{name} is released while the watch of {} is silent",
            self.resource
        );
        until_within(TIMEOUT, &what, || async {
            let claim = self.consumer.claims().get(name).await.ok()?;
            let address = self.consumer.addresses().get(name).await.ok()?;
            let reservations = self.consumer.reservations().list().await.ok()?;
            let is_reserved = reservations
                .iter()
                .filter_map(|found| found.spec.claim_ref.as_ref())
                .any(|holder| holder.namespace == self.consumer.namespace && holder.name == name);
            Some(claim.is_none() && address.is_none() && !is_reserved)
        })
        .await;
    }

    async fn wait_until_bound(&self, names: &[String]) {
        let what = format!(
            "{names:?} are bound while the watch of {} is silent",
            self.resource
        );
        until_within(TIMEOUT, &what, || async {
            let claims = self.consumer.claims().list().await.ok()?;
            let bound = claims
                .iter()
                .filter(|claim| claim.bound_address().is_some())
                .map(ResourceExt::name_any);
            let bound: Vec<String> = bound.collect();
            Some(names.iter().all(|name| bound.contains(name)))
        })
        .await;
    }

    /// Waits until each pool is used by the claims that exist, and by nothing else. Old claims keep
    /// their addresses.
    async fn wait_until_settled(&mut self, before: &BTreeMap<String, String>) {
        let kept = claims_of_all_pools("old", 2)
            .into_iter()
            .filter(|name| name.ends_with('1'));
        let kept: Vec<String> = kept.collect();
        let took = wait_until_settled(
            &self.consumer,
            &[kept.clone(), claims_of_all_pools("new", 3)].concat(),
        )
        .await;
        println!(
            "{}: settled {took:.1?} after the watch delivers again",
            self.resource
        );
        let given = self.consumer.allocated_addresses().await;
        assert!(
            kept.iter().all(|name| given.get(name) == before.get(name)),
            "{}: {before:?} {given:?}",
            self.resource
        );
        assert!(self.manager.is_running(), "{}", self.manager.log());
    }
}

/// The names of claims of a pool.
fn claims_of(kind: InClusterKind, prefix: &str, count: usize) -> Vec<String> {
    numbered(&format!("{prefix}-{}-", kind.plural()), count)
}

fn claims_of_all_pools(prefix: &str, count: usize) -> Vec<String> {
    InClusterKind::ALL
        .into_iter()
        .flat_map(|kind| claims_of(kind, prefix, count))
        .collect()
}

/// The claim of a pool that is released.
fn first_claim_of(kind: InClusterKind) -> String {
    claims_of(kind, "old", 1).concat()
}

/// Creates an object, and returns its resourceVersion.
async fn next_version(consumer: &Consumer) -> u64 {
    let maps = ResourceClient::new(
        Api::namespaced(consumer.client.clone(), &consumer.namespace),
        &(),
    );
    let map: ConfigMap = object(json!({"metadata": {"generateName": "version-"}}));
    let made = retry("a ConfigMap is created", async || maps.create(&map).await).await;
    made.resource_version()
        .and_then(|version| version.parse().ok())
        .expect("a resourceVersion is a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_is_noticed_while_one_watch_is_silent() {
    let started = Instant::now();
    let mut control_plane = ControlPlane::new();
    let starts = WATCHED
        .iter()
        .enumerate()
        .map(|(number, resource)| Team::start(&control_plane, number, resource));
    let mut teams = join_all(starts).await;
    for team in &teams {
        team.manager.wait_until_ready();
        assert!(
            team.proxy.watched().iter().eq(WATCHED),
            "{:?}",
            team.proxy.watched()
        );
    }
    join_all(teams.iter().map(Team::set_up)).await;
    let before = join_all(teams.iter().map(|team| team.consumer.allocated_addresses())).await;
    take_snapshot(&mut control_plane);
    println!("snapshot after {:.1?}", started.elapsed());

    join_all(teams.iter().map(Team::make_lost_changes)).await;
    let lost_version = next_version(&teams[0].consumer).await;
    // Time for the events of the last changes.
    tokio::time::sleep(Duration::from_secs(2)).await;
    teams.iter().for_each(|team| team.proxy.set_silent(true));
    restore_snapshot(&mut control_plane);
    for team in &teams {
        team.manager
            .wait_for_log("the resourceVersion has decreased");
    }
    println!(
        "all managers have noticed the restore after {:.1?}",
        started.elapsed()
    );

    join_all(teams.iter().map(Team::replace_claims)).await;
    println!("claims are replaced after {:.1?}", started.elapsed());
    // A watch that has not listed again misses everything up to this version.
    while next_version(&teams[0].consumer).await <= lost_version {}
    teams.iter().for_each(|team| team.proxy.set_silent(false));
    join_all(
        teams
            .iter_mut()
            .zip(&before)
            .map(|(team, before)| team.wait_until_settled(before)),
    )
    .await;
    println!("settled after {:.1?}", started.elapsed());
}
