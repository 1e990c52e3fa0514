//! The findings that a user asks for.

use super::*;

/// The objects of the selected findings, and the number of waiting claims.
fn selected(snapshot: &Snapshot, selection: &Selection) -> (Vec<String>, Option<u64>) {
    let mut list = diagnosis(snapshot);
    selection.apply(&mut list, snapshot);
    let objects = list.findings.into_iter().map(|it| it.object);
    (objects.collect(), list.waiting)
}

fn snapshot() -> Snapshot {
    let mut other = claim("b", 60, "QuotaExceeded");
    other["spec"]["poolRef"]["name"] = json!("q");
    let pools = [
        exhausted(pool("p", &range("10.0.0.1"))),
        pool("q", &range("10.1.0.1")),
        exhausted(pool("m/p", &range("10.2.0.1"))),
    ];
    let mut snapshot = with(&pools, &[], &[claim("a", 60, "PoolExhausted"), other]);
    snapshot.leases = Readable::complete(vec![lease("system", 600)]);
    snapshot
}

const LEASE: &str = "lease system/7bb7acb4.ipam.cluster.x-k8s.io";

#[test]
fn findings_of_other_namespaces_are_left_out() {
    let namespace = |name: &str| Selection {
        namespace: Some(name.to_owned()),
        ..Selection::default()
    };
    let of_n = [LEASE, "InClusterIPPool n/p", "InClusterIPPool n/q"];
    assert_eq!(
        selected(&snapshot(), &namespace("n")),
        (of_n.map(str::to_owned).to_vec(), Some(2))
    );
    let of_m = [LEASE, "InClusterIPPool m/p"];
    assert_eq!(
        selected(&snapshot(), &namespace("m")),
        (of_m.map(str::to_owned).to_vec(), Some(0))
    );
    let all = selected(&snapshot(), &Selection::default());
    assert_eq!((all.0.len(), all.1), (4, Some(2)));
}

#[test]
fn pool_of_another_namespace_in_a_network_is_left_out() {
    let mut invalid = pool("m/q", &json!({"addresses": ["10.0.0.300"], "prefix": 24}));
    invalid["spec"]["network"] = json!("lab");
    let snapshot = with(&[invalid], &[], &[]);
    let of = |namespace: &str| {
        let selection = Selection {
            namespace: Some(namespace.to_owned()),
            ..Selection::default()
        };
        selected(&snapshot, &selection).0.len()
    };
    assert_eq!((of("m"), of("n")), (1, 0));
}

#[test]
fn findings_of_other_pools_are_left_out() {
    let snapshot = snapshot();
    let pools = snapshot.objects.pools();
    let key = pools.iter().find(|it| &*it.key.name == "q");
    let selection = Selection {
        pool: key.map(|it| it.key.clone()),
        ..Selection::default()
    };
    let expected = [LEASE, "InClusterIPPool n/q"].map(str::to_owned).to_vec();
    assert_eq!(selected(&snapshot, &selection), (expected, Some(1)));
}

#[test]
fn only_errors_are_selected() {
    let selection = Selection {
        only_errors: true,
        ..Selection::default()
    };
    let expected = [LEASE, "InClusterIPPool n/p", "InClusterIPPool n/q"];
    let (objects, _) = selected(&snapshot(), &selection);
    assert_eq!(
        objects, expected,
        "the pool of m is full, and no claim waits"
    );
}
