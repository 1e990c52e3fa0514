//! What a plan grants is what proposals get.

use capi_ipam_api::{SliceOwner, SliceOwnerKind};

use super::*;

/// What claims of a demand get one after the other, at most as many as the demand has.
fn proposed(ledger: &mut Ledger, number: usize, demand: &Demand) -> u64 {
    let mut got = 0;
    for claim in 0..demand.addresses {
        let claim = NamespacedName::new(&demand.namespace, &format!("{number}-{claim}"));
        if !ledger.is_allowed(&demand.pool, claim.namespace()) {
            break;
        }
        let attributes = demand.attributes.clone();
        let mut outcome = ledger.propose(&demand.pool, &claim, attributes.clone());
        if let Outcome::First(Preparation::AssignSlice(block)) = outcome {
            let owner = attributes.slice_owner.as_ref().unwrap();
            ledger.insert_slice(&slices::slice(&block.to_string(), &owner.name));
            outcome = ledger.propose(&demand.pool, &claim, attributes);
        }
        if !matches!(outcome, Outcome::Offer(_)) {
            ledger.stop_waiting(&demand.pool, &claim);
            break;
        }
        got += 1;
    }
    got
}

fn demand(namespace: &str, cluster: &str, is_privileged: bool, addresses: u64) -> Demand {
    Demand {
        pool: key(),
        namespace: namespace.to_owned(),
        attributes: ClaimAttributes {
            priority: 1,
            cluster: Some(cluster.into()),
            uses_headroom: is_privileged,
            slice_owner: Some(Arc::new(SliceOwner {
                kind: SliceOwnerKind::Label,
                namespace: None,
                name: cluster.to_owned(),
            })),
            requested: None,
        },
        addresses,
    }
}

/// Checks a plan, and that proposals agree.
fn check(mut ledger: Ledger, demands: &[Demand], expected: &[(u64, Option<PlanLimit>)]) {
    let grants = plan(&ledger, demands);
    let found: Vec<_> = grants
        .into_iter()
        .map(|grant| (grant.addresses, grant.limit))
        .collect();
    assert_eq!(found, expected);
    for (number, demand) in demands.iter().enumerate() {
        let got = proposed(&mut ledger, number, demand);
        assert_eq!(got, expected[number].0, "proposals of demand {number}");
    }
}

/// A demand of a global pool of nine addresses.
fn shared(namespace: &str, cluster: &str, is_privileged: bool, addresses: u64) -> Demand {
    Demand {
        pool: access::global(),
        ..demand(namespace, cluster, is_privileged, addresses)
    }
}

fn with_access(rules: serde_json::Value) -> Ledger {
    let mut ledger = ledger();
    access::apply(&mut ledger, 1, &rules);
    ledger
}

fn with_spec(spec: serde_json::Value) -> Ledger {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({ "spec": spec })));
    ledger
}

#[test]
fn demands_share_the_free_addresses() {
    let mut ledger = with_pool();
    reserve(&mut ledger, 1, "other");
    let demands = [demand("n", "a", false, 5), demand("n", "b", false, 5)];
    let limit = Some(PlanLimit::Exhausted);
    check(ledger, &demands, &[(5, None), (2, limit)]);
}

#[test]
fn headroom_is_left_to_its_claims() {
    let selector = json!({ "matchLabels": { "a": "b" } });
    let ledger = with_access(json!({ "headroom": { "addresses": 3, "for": selector } }));
    let demands = [shared("n", "a", false, 7), shared("n", "b", true, 4)];
    let limits = [Some(PlanLimit::Headroom), Some(PlanLimit::Exhausted)];
    let [others, privileged] = limits;
    check(ledger, &demands, &[(6, others), (3, privileged)]);
}

#[test]
fn limits_of_namespaces_and_clusters_count() {
    let ledger = with_access(json!({ "limits": { "perNamespace": 4, "perCluster": 3 } }));
    let reached = |limit, cluster: Option<&str>| {
        let cluster = cluster.map(Into::into);
        Some(PlanLimit::LimitReached(LimitReached { limit, cluster }))
    };
    let demands = [
        shared("n", "a", false, 9),
        shared("n", "b", false, 2),
        shared("m", "a", false, 3),
    ];
    let expected = [(3, reached(3, Some("a"))), (1, reached(4, None)), (3, None)];
    check(ledger, &demands, &expected);
}

#[test]
fn namespace_that_is_not_allowed_gets_nothing() {
    let allowed = json!({ "from": "Names", "names": ["n"] });
    let ledger = with_access(json!({ "allowedNamespaces": allowed }));
    let demands = [shared("m", "a", true, 1), shared("n", "a", true, 1)];
    let limit = Some(PlanLimit::NotAllowed);
    check(ledger, &demands, &[(0, limit), (1, None)]);
}

#[test]
fn owners_of_slices_share_what_can_be_assigned() {
    let slices = json!({ "size": 2, "per": "Label", "label": "rack", "mostEach": 3 });
    let addresses = ["10.0.0.2-10.0.0.11"];
    let ledger = with_spec(json!({ "addresses": addresses, "slices": slices }));
    let full = Some(PlanLimit::Slices(slices::owner("a")));
    let demands = [
        demand("n", "a", false, 7),
        demand("n", "b", false, 1),
        demand("n", "c", false, 2),
        demand("n", "b", false, 1),
        demand("n", "c", false, 1),
    ];
    // Five slices: three for a, and one for each of the others.
    let exhausted = Some(PlanLimit::Exhausted);
    let expected = [(6, full), (1, None), (2, None), (1, None), (0, exhausted)];
    check(ledger, &demands, &expected);
    let mut unowned = demand("n", "a", false, 1);
    unowned.attributes.slice_owner = None;
    let ledger = with_spec(json!({ "slices": slices }));
    let grants = plan(&ledger, &[unowned]);
    assert_eq!(grants[0].limit, Some(PlanLimit::NoSliceOwner));
}

#[test]
fn pool_that_allocates_nothing_gives_nothing() {
    let demands = [demand("n", "a", true, 1)];
    check(ledger(), &demands, &[(0, Some(PlanLimit::NoPool))]);
    let mut paused = ledger();
    let annotations = json!({ "cluster.x-k8s.io/paused": "" });
    paused.apply_pool(&pool(json!({ "metadata": { "annotations": annotations } })));
    check(paused, &demands, &[(0, Some(PlanLimit::NotReady))]);
}
