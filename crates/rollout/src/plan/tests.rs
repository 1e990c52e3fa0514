#![allow(
    clippy::needless_pass_by_value,
    reason = "the values are written where they are passed"
)]

use capi_ipam_api::{IPReservation, Pool, PoolSet, PoolSetKey, PoolSetKind};
use capi_ipam_contract::IPAddress;
use capi_ipam_ledger::Observe;
use serde_json::json;

use super::*;

fn kind(name: &str) -> ApiResource {
    ApiResource {
        group: "cluster.x-k8s.io".to_owned(),
        version: "v1beta2".to_owned(),
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        kind: name.to_owned(),
        plural: String::new(),
    }
}

fn object(spec: Value, annotations: Value) -> DynamicObject {
    serde_json::from_value(json!({
        "metadata": { "namespace": "n", "name": "w", "annotations": annotations },
        "spec": spec,
    }))
    .unwrap()
}

/// The replicas and the further Machines of an object.
fn peak(of: &str, spec: Value, max: Option<&str>) -> (u64, u64) {
    let object = object(spec, json!(max.map(|max| json!({ MAX_SIZE: max }))));
    let workload = PlanLine::of(&kind(of), &object, None).unwrap();
    (workload.replicas, workload.max_surge)
}

#[test]
fn peak_has_the_maximum_of_the_autoscaler_and_the_surge() {
    let surge = |surge: Value| json!({ "rollingUpdate": { "maxSurge": surge } });
    let v1beta1 = |it: Value| json!({ "replicas": 10, "strategy": surge(it) });
    let v1beta2 = |it: Value| json!({ "replicas": 10, "rollout": { "strategy": surge(it) } });
    let kubeadm = |it: Value| json!({ "replicas": 3, "rolloutStrategy": surge(it) });
    let manual = json!({ "replicas": 4, "strategy": { "type": "OnDelete" } });
    let (deployment, control_plane) = (MACHINE_DEPLOYMENT, "KubeadmControlPlane");
    for (of, spec, max, expected) in [
        (deployment, json!({}), None, (1, 1)),
        (deployment, json!({ "replicas": 0 }), None, (0, 0)),
        (deployment, v1beta1(json!(2)), None, (10, 2)),
        (deployment, v1beta2(json!("25%")), None, (10, 3)),
        (deployment, v1beta2(json!("25%")), Some("21"), (21, 6)),
        (deployment, v1beta2(json!(0)), Some("5"), (10, 0)),
        (deployment, manual, Some("many"), (4, 0)),
        (control_plane, kubeadm(json!(0)), None, (3, 0)),
        (control_plane, json!({ "replicas": 3 }), None, (3, 1)),
        ("MachineSet", json!({ "replicas": 2 }), None, (2, 0)),
        ("MachinePool", v1beta1(json!(4)), Some("12"), (12, 0)),
    ] {
        assert_eq!(peak(of, spec.clone(), max), expected, "{of} {spec} {max:?}");
    }
}

#[test]
fn parts_of_a_deployment_and_deleted_objects_are_no_workloads() {
    let mut of_deployment = object(json!({}), json!({}));
    let owner = json!([{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "d",
                         "uid": "u", "controller": true }]);
    of_deployment.metadata.owner_references = serde_json::from_value(owner).unwrap();
    assert_eq!(
        PlanLine::of(&kind("MachineSet"), &of_deployment, None),
        None
    );
    let mut deleted = object(json!({}), json!({}));
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(PlanLine::of(&kind("MachineSet"), &deleted, None), None);
}

/// The label of a failure domain.
fn zone(name: &str) -> Value {
    json!({ "topology.kubernetes.io/zone": name })
}

/// Machines, their claims, and a ledger with the bound ones.
#[derive(Default)]
struct Site {
    machines: Vec<Machine>,
    claims: Vec<IPAddressClaim>,
    ledger: Ledger,
}

impl Site {
    fn with_pool(spec: &Value) -> Self {
        Self::default().pool("p", spec)
    }

    fn pool(mut self, name: &str, spec: &Value) -> Self {
        let pool = json!({
            "kind": "GlobalInClusterIPPool", "spec": spec,
            "metadata": { "name": name, "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"],
                          "labels": zone(name) },
        });
        let pool: Pool = serde_json::from_value(pool).unwrap();
        self.ledger.apply_pool(&pool);
        self
    }

    fn machine(mut self, name: &str, metadata: Value) -> Self {
        let mut machine = json!({ "metadata": { "namespace": "n", "name": name } });
        json_patch::merge(&mut machine["metadata"], &metadata);
        self.machines.push(serde_json::from_value(machine).unwrap());
        self
    }

    /// A claim of an infrastructure machine, with an address.
    fn claim(self, name: &str, machine: &str, address: Option<&str>) -> Self {
        self.claim_in("p", name, machine, address)
    }

    fn claim_in(mut self, pool: &str, name: &str, machine: &str, address: Option<&str>) -> Self {
        let pool = json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": "GlobalInClusterIPPool", "name": pool });
        let metadata = json!({ "namespace": "n", "name": name });
        if let Some(address) = address {
            let spec = json!({ "address": address, "prefix": 24, "claimRef": { "name": name }, "poolRef": pool });
            let address = json!({ "metadata": metadata, "spec": spec });
            let address: IPAddress = serde_json::from_value(address).unwrap();
            self.ledger.apply(&address);
        }
        let mut claim = json!({
            "metadata": metadata, "spec": { "poolRef": pool },
            "status": address.map(|_| json!({ "addressRef": { "name": name } })).unwrap_or(json!({})),
        });
        claim["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereVM", "name": machine, "uid": "u",
        }]);
        self.claims.push(serde_json::from_value(claim).unwrap());
        self
    }

    /// The set `s` of global pools.
    fn set(mut self, pools: &[&str], fields: &Value) -> Self {
        let pool = |name: &&str| json!({ "kind": "GlobalInClusterIPPool", "name": name });
        let mut spec = json!({ "pools": pools.iter().map(pool).collect::<Vec<_>>() });
        json_patch::merge(&mut spec, fields);
        let metadata = json!({ "name": "s", "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"] });
        let set: PoolSet =
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
        let key = PoolSetKey::new(PoolSetKind::Global, &set.metadata);
        self.ledger.apply_set(&key, Some(SetInfo::of(&key, &set)));
        self
    }

    /// A claim for the set, without an address.
    fn claim_of_set(self, name: &str, machine: &str) -> Self {
        let mut site = self.claim_in("s", name, machine, None);
        let claim = site.claims.last_mut().unwrap();
        claim.spec.pool_ref.kind = "GlobalIPPoolSet".to_owned();
        site
    }

    /// An address of the pool `p` that is promised to a claim.
    fn promise(mut self, claim: &str, address: &str) -> Self {
        let reservation: IPReservation = serde_json::from_value(json!({
            "metadata": { "name": format!("g.p.{address}"), "uid": format!("uid-{address}") },
            "spec": { "scope": "g.p", "address": address, "claimRef": { "namespace": "n", "name": claim },
                      "poolRef": { "kind": "GlobalInClusterIPPool", "name": "p" } },
        }))
        .unwrap();
        self.ledger.apply(&reservation);
        self
    }

    fn plan(mut self, workloads: &[PlanLine]) -> (Vec<PlanLine>, Vec<PlanPool>) {
        let uses = Uses::of(workloads, &self.machines, &self.claims);
        plan(workloads.to_vec(), &uses, &mut self.ledger)
    }
}

fn workload(of: &str, replicas: u64) -> PlanLine {
    let object = object(json!({ "replicas": replicas }), json!({}));
    PlanLine::of(&kind(of), &object, None).unwrap()
}

fn of_deployment() -> Value {
    json!({ "labels": { DEPLOYMENT_NAME: "w" } })
}

#[test]
fn missing_addresses_of_a_rollout_are_counted() {
    let addresses = json!({ "addresses": ["10.0.0.1-10.0.0.6"], "prefix": 24 });
    let site = || {
        Site::with_pool(&addresses)
            .machine("m-1", of_deployment())
            .machine("m-2", of_deployment())
            .claim("a", "m-1", Some("10.0.0.1"))
            .claim("b", "m-1", Some("10.0.0.2"))
            .claim("c", "m-2", None)
            .claim("other", "none", None)
    };
    let (lines, pools) = site().plan(&[workload(MACHINE_DEPLOYMENT, 2)]);
    // Three Machines with two addresses each; two addresses are held, and another claim waits.
    let found = lines[0].addresses.as_ref().unwrap();
    assert_eq!(
        (found.per_machine, found.needed, found.held, found.short),
        (2, 6, 2, 1)
    );
    assert_eq!(
        found.reason.as_deref(),
        Some("no further address is free for it")
    );
    assert_eq!((pools[0].free, pools[0].needed, pools[0].short), (4, 5, 1));
    let (lines, pools) = site().plan(&[workload(MACHINE_DEPLOYMENT, 1)]);
    let found = lines[0].addresses.as_ref().unwrap();
    assert_eq!((found.short, &found.reason, pools[0].short), (0, &None, 0));
}

#[test]
fn what_is_in_deletion_is_not_held() {
    let deleted =
        json!({ "labels": { DEPLOYMENT_NAME: "w" }, "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let spec = json!({ "addresses": ["10.0.0.1-10.0.0.3"], "prefix": 24 });
    let mut site = Site::with_pool(&spec)
        .machine("m-1", deleted)
        .machine("m-2", of_deployment())
        .machine("m-3", of_deployment())
        .claim("a", "m-1", Some("10.0.0.1"))
        .claim("b", "m-2", Some("10.0.0.2"))
        .claim("c", "m-3", Some("10.0.0.3"));
    site.claims[2].metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let (lines, _) = site.plan(&[workload(MACHINE_DEPLOYMENT, 1)]);
    let found = lines[0].addresses.as_ref().unwrap();
    assert_eq!((found.held, found.needed, found.short), (1, 2, 1));
}

#[test]
fn object_without_claims_is_listed_last() {
    let control_plane = json!({ "ownerReferences": [{
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "name": "w", "uid": "u",
        "controller": true,
    }] });
    let spec = json!({ "addresses": ["10.0.0.1-10.0.0.3"], "prefix": 24 });
    let site = Site::with_pool(&spec)
        .machine("m-1", control_plane)
        .machine("m-2", json!({}))
        .claim("a", "m-1", Some("10.0.0.1"))
        .claim("b", "m-2", Some("10.0.0.2"));
    let workloads = [
        workload("MachineSet", 1),
        workload("KubeadmControlPlane", 1),
    ];
    let (lines, pools) = site.plan(&workloads);
    let kinds: Vec<(&str, bool)> = lines
        .iter()
        .map(|line| (line.kind.as_str(), line.addresses.is_some()))
        .collect();
    assert_eq!(
        kinds,
        [("KubeadmControlPlane", true), ("MachineSet", false)]
    );
    assert_eq!((pools[0].needed, pools[0].short), (1, 0));
}

/// What claims of two objects lack of a pool, and why.
fn short_of(spec: &Value, workloads: &[PlanLine]) -> Vec<(u64, Option<String>)> {
    let control_plane = json!({ "labels": { "a": "b" }, "ownerReferences": [{
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "name": "w", "uid": "u",
        "controller": true,
    }] });
    let mut site = Site::with_pool(spec)
        .machine("m-1", of_deployment())
        .machine("m-2", control_plane)
        .claim("a", "m-1", None)
        .claim("b", "m-2", None);
    for claim in &mut site.claims {
        let name = claim.metadata.name.clone();
        claim.spec.cluster_name = name;
    }
    let (lines, _) = site.plan(workloads);
    let short = |line: PlanLine| {
        let addresses = line.addresses.unwrap();
        (addresses.short, addresses.reason)
    };
    lines.into_iter().map(short).collect()
}

#[test]
fn limits_headroom_and_slices_of_the_pool_count() {
    let workloads = [
        workload(MACHINE_DEPLOYMENT, 5),
        workload("KubeadmControlPlane", 3),
    ];
    let reason = |text: &str| Some(text.to_owned());
    let free = || reason("no further address is free for it");
    let pool = |last: u8, rules: Value| {
        let mut spec = json!({ "addresses": [format!("10.0.0.1-10.0.0.{last}")], "prefix": 24 });
        json_patch::merge(&mut spec, &rules);
        spec
    };
    let headroom =
        json!({ "headroom": { "addresses": 3, "for": { "matchLabels": { "a": "b" } } } });
    let limits = json!({ "limits": { "perCluster": 4, "perNamespace": 7 } });
    let slices = json!({ "slices": { "size": 4, "per": "Cluster", "mostEach": 1 } });
    let cluster = "Cluster a uses 4 of 4 addresses that the pool allows each Cluster (spec.limits.perCluster)";
    let namespace = "the namespace uses 7 of 7 addresses that the pool allows each namespace (spec.limits.perNamespace)";
    let full = "Cluster n/a has 1 of 1 slices that the pool allows each owner (spec.slices.mostEach), without a free address";
    for (spec, expected) in [
        (pool(20, json!({})), [(0, None), (0, None)]),
        (pool(8, headroom), [(1, free()), (1, free())]),
        (
            pool(20, limits),
            [(2, reason(cluster)), (1, reason(namespace))],
        ),
        (pool(20, slices), [(3, reason(full)), (0, None)]),
    ] {
        assert_eq!(short_of(&spec, &workloads), expected, "{spec}");
    }
}

/// What a pool gives a workload: needed, held and short.
fn counts(line: &PlanLine) -> (u64, u64, u64) {
    let found = line.addresses.as_ref().unwrap();
    (found.needed, found.held, found.short)
}

#[test]
fn promised_address_of_a_waiting_claim_counts_once() {
    let spec = json!({ "addresses": ["10.0.0.1-10.0.0.4"], "prefix": 24 });
    let site = Site::with_pool(&spec)
        .machine("m-1", of_deployment())
        .machine("m-2", of_deployment())
        .claim("a", "m-1", Some("10.0.0.1"))
        .claim("b", "m-2", None)
        .claim("other", "none", None)
        .promise("b", "10.0.0.2")
        .promise("other", "10.0.0.3");
    let (lines, pools) = site.plan(&[workload(MACHINE_DEPLOYMENT, 2)]);
    assert_eq!(counts(&lines[0]), (3, 2, 0));
    assert_eq!((pools[0].free, pools[0].needed, pools[0].short), (1, 1, 0));
}

#[test]
fn claim_without_a_slice_owner_waits_for_no_address() {
    let spec = json!({ "addresses": ["10.0.0.1-10.0.0.8"], "prefix": 24,
                       "slices": { "size": 4, "per": "Cluster", "mostEach": 1 } });
    let mut site = Site::with_pool(&spec)
        .machine("m-1", of_deployment())
        .machine("m-2", of_deployment())
        .claim("without", "m-1", None)
        .claim("a", "m-2", None)
        .claim("other", "none", None);
    site.claims[1].spec.cluster_name = Some("a".to_owned());
    let (lines, pools) = site.plan(&[workload(MACHINE_DEPLOYMENT, 2)]);
    assert_eq!(counts(&lines[0]), (3, 0, 0));
    assert_eq!((pools[0].needed, pools[0].short), (3, 0));

    // Without any owner, the Machines get no address.
    let site = Site::with_pool(&spec)
        .machine("m-1", of_deployment())
        .claim("without", "m-1", None);
    let (lines, _) = site.plan(&[workload(MACHINE_DEPLOYMENT, 1)]);
    let found = lines[0].addresses.as_ref().unwrap();
    let reason = "its claims have no owner of slices of the pool (spec.slices)";
    assert_eq!((found.short, found.reason.as_deref()), (2, Some(reason)));
}

#[test]
fn claims_of_others_are_no_findings() {
    let one = json!({ "addresses": ["10.0.0.1"], "prefix": 24 });
    let site = Site::with_pool(&one)
        .pool("full", &json!({ "addresses": ["10.0.1.1"], "prefix": 24 }))
        .machine("m-1", of_deployment())
        .claim("a", "m-1", Some("10.0.0.1"))
        .claim_in("full", "b", "none", None)
        .claim_in("full", "c", "none", None)
        .claim("other", "none", None);
    let planned = PlanLine {
        max_surge: 0,
        ..workload(MACHINE_DEPLOYMENT, 1)
    };
    let (lines, pools) = site.plan(&[planned]);
    assert_eq!(counts(&lines[0]), (1, 1, 0));
    let short: Vec<(&str, u64)> = pools
        .iter()
        .map(|it| (it.pool.name.as_str(), it.short))
        .collect();
    assert_eq!(short, [("p", 0)]);
}

#[test]
fn former_pool_of_a_template_gives_no_further_address() {
    let one = json!({ "addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24 });
    let created = |day: u8| json!({ "labels": { DEPLOYMENT_NAME: "w" }, "creationTimestamp": format!("2026-01-0{day}T00:00:00Z") });
    let site = Site::with_pool(&one)
        .pool(
            "new",
            &json!({ "addresses": ["10.0.1.1-10.0.1.3"], "prefix": 24 }),
        )
        .machine("m-1", created(1))
        .machine("m-2", created(2))
        .machine("m-3", created(3))
        .claim("a", "m-1", Some("10.0.0.1"))
        .claim("b", "m-2", Some("10.0.0.2"))
        .claim_in("new", "c", "m-3", Some("10.0.1.1"));
    let (lines, pools) = site.plan(&[workload(MACHINE_DEPLOYMENT, 3)]);
    // The pools are sorted by name.
    let found: Vec<_> = lines.iter().map(counts).collect();
    assert_eq!(found, [(4, 1, 1), (2, 2, 0)]);
    assert_eq!((pools[0].needed, pools[1].needed), (3, 0));
}

/// A site with a set of the pools `a` and `b`, which have three addresses.
fn with_set(fields: &Value) -> Site {
    let two = json!({ "addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24 });
    let one = json!({ "addresses": ["10.0.1.1"], "prefix": 24 });
    Site::default()
        .pool("a", &two)
        .pool("b", &one)
        .set(&["a", "b"], fields)
}

/// The plan of four Machines with a claim for the set.
fn plan_of_set(site: Site) -> (PlanAddresses, PlanPool) {
    let (lines, pools) = site.plan(&[workload(MACHINE_DEPLOYMENT, 3)]);
    let pool = pools.into_iter().next().unwrap();
    (lines[0].addresses.clone().unwrap(), pool)
}

#[test]
fn claims_of_a_set_get_addresses_of_all_its_pools() {
    let machine = |site: Site| {
        site.machine("m-1", of_deployment())
            .claim_of_set("c", "m-1")
    };
    let (found, pool) = plan_of_set(machine(with_set(&json!({}))));
    assert_eq!((found.needed, found.held, found.short), (4, 0, 1));
    let reason = Refusal::NoAddress.to_string();
    assert_eq!(found.reason, Some(reason));
    assert_eq!(found.assumption, None);
    assert_eq!(
        (&*pool.pool.kind, &*pool.pool.name),
        ("GlobalIPPoolSet", "s")
    );
    assert_eq!((pool.free, pool.needed, pool.short), (3, 4, 1));
    // A claim that waits for one of its pools gets an address first.
    let site = machine(with_set(&json!({}))).claim_in("b", "other", "none", None);
    assert_eq!(plan_of_set(site).0.short, 2);
    // A pool that refuses the claims leaves the others.
    let limited = json!({ "addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24, "limits": { "perNamespace": 1 } });
    let site = machine(with_set(&json!({})).pool("a", &limited));
    let (found, _) = plan_of_set(site);
    assert_eq!(found.short, 2);
    assert!(found.reason.unwrap().contains("spec.limits.perNamespace"));
    // What is reserved in a pool of the set is held.
    let mut site = machine(
        with_set(&json!({})).pool("p", &json!({ "addresses": ["10.0.2.1"], "prefix": 24 })),
    );
    site = site.set(&["a", "p"], &json!({})).promise("c", "10.0.2.1");
    assert_eq!(plan_of_set(site).0.held, 1);
    let site = machine(with_set(&json!({})).set(&[], &json!({})));
    let reason = plan_of_set(site).0.reason;
    assert_eq!(
        reason.as_deref(),
        Some("the set does not exist, or allocates no address now")
    );
}

#[test]
fn failure_domain_of_the_machines_selects_pools_of_a_set() {
    let machine = |site: Site, name: &str, of: &str| {
        let mut metadata = of_deployment();
        json_patch::merge(&mut metadata, &json!({ "labels": zone(of) }));
        site.machine(name, metadata).claim_of_set(name, name)
    };
    let by_domain = json!({ "choose": "ByFailureDomain" });
    let (found, _) = plan_of_set(machine(with_set(&by_domain), "m-1", "a"));
    let assumption = "further Machines are assumed to be in failure domain a";
    assert_eq!(
        (found.short, found.assumption.as_deref()),
        (2, Some(assumption))
    );
    let fallback = json!({ "choose": "ByFailureDomain", "fallback": true });
    let (found, _) = plan_of_set(machine(with_set(&fallback), "m-1", "a"));
    assert_eq!(found.short, 1);
    let site = machine(machine(with_set(&by_domain), "m-1", "a"), "m-2", "b");
    let (found, _) = plan_of_set(site);
    let unknown = "the failure domain of further Machines is unknown: all pools of the set count";
    assert_eq!(found.assumption.as_deref(), Some(unknown));
    assert_eq!(found.short, 1);
    // The template precedes what exists.
    let site = machine(with_set(&by_domain), "m-1", "a");
    let template = json!({ "spec": { "failureDomain": "b" } });
    let object = object(json!({ "replicas": 3, "template": template }), json!({}));
    let planned = PlanLine::of(&kind(MACHINE_DEPLOYMENT), &object, None).unwrap();
    let (lines, _) = site.plan(&[planned]);
    let found = lines[0].addresses.as_ref().unwrap();
    let assumption = "further Machines are assumed to be in failure domain b";
    assert_eq!(
        (found.short, found.assumption.as_deref()),
        (3, Some(assumption))
    );
}
