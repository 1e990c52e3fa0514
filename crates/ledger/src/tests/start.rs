//! The initial lists: no pool allocates before all are computed.

use k8s_openapi::api::core::v1::Namespace;

use super::*;

fn with_gateway(name: &str, addresses: &str, gateway: &str) -> Pool {
    let spec = json!({"addresses": [addresses], "network": "lab", "gateway": gateway});
    pool(json!({"metadata": {"name": name, "uid": name}, "spec": spec}))
}

/// A ledger in which the lists of networks and pools have begun, and the claims that it wakes.
fn listing() -> Ledger {
    let mut ledger = ledger();
    Observe::<IPNetwork>::init(&mut ledger);
    ledger.begin_pool_list(InClusterKind::IPPool);
    ledger
}

fn end_network_list(ledger: &mut Ledger) {
    Observe::<IPNetwork>::init_done(ledger);
}

#[test]
fn gateway_of_a_pool_that_is_listed_later_is_not_proposed() {
    let mut ledger = listing();
    ledger.apply_network(&lab(json!({})));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.4"));
    assert_eq!(
        ledger.propose(&key(), &claim("a"), 1),
        Outcome::NO_ADDRESS,
        "the other pool is not listed"
    );
    ledger.apply_pool(&with_gateway("q", "10.0.0.20", "10.0.0.1"));
    end_network_list(&mut ledger);
    assert_eq!(
        ledger.propose(&key(), &claim("a"), 1),
        Outcome::NO_ADDRESS,
        "another pool may follow"
    );
    assert_eq!(take(&mut ledger), []);
    ledger.end_pool_list(InClusterKind::IPPool);
    assert!(take(&mut ledger).contains(&claim("a")));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (3, 1));
    assert_eq!(
        ledger.propose(&key(), &claim("a"), 1),
        Outcome::Offer(in_lab(2))
    );
    // A pool that is created later, and a list that is repeated.
    ledger.apply_pool(&with_gateway("r", "10.0.0.30", "10.0.0.3"));
    assert_eq!(
        ledger.propose(&key(), &claim("b"), 1),
        Outcome::Offer(in_lab(4))
    );
    ledger.begin_pool_list(InClusterKind::IPPool);
    ledger.apply_pool(&with_gateway("r", "10.0.0.30", "10.0.0.5"));
    assert_eq!(
        ledger.propose(&key(), &claim("c"), 1),
        Outcome::Offer(in_lab(3))
    );
}

/// A change is applied to the pools of a network in several steps. A claim can be served between
/// two of them.
#[test]
fn proposal_is_made_by_the_newest_state_of_the_pool() {
    let mut ledger = with_lab();
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.4"));
    let declared = PoolInfo::of(&with_gateway("q", "10.0.0.20", "10.0.0.1"));
    ledger.set_pool(&named("q"), Some(declared));
    assert_eq!(ledger.pools_to_refresh, [key()]);
    assert_eq!(
        ledger.propose(&key(), &claim("a"), 1),
        Outcome::Offer(in_lab(2))
    );
}

#[test]
fn claims_wait_until_all_initial_lists_are_complete() {
    let mut ledger = listing();
    // The list is interrupted and begins again.
    ledger.begin_pool_list(InClusterKind::IPPool);
    ledger.apply_pool(&pool(json!({})));
    ledger.end_pool_list(InClusterKind::IPPool);
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Outcome::NO_ADDRESS);
    ledger.apply_network(&lab(json!({"spec": {"pools": {}}})));
    end_network_list(&mut ledger);
    assert!(take(&mut ledger).contains(&claim("a")));
    assert_eq!(scope_of(&ledger, "p"), Scope::Network("lab".into()));
    assert_eq!(
        ledger.propose(&key(), &claim("a"), 1),
        Outcome::Offer(in_lab(1))
    );
}

#[test]
fn ledger_without_pools_completes_its_start() {
    let mut ledger = listing();
    end_network_list(&mut ledger);
    ledger.end_pool_list(InClusterKind::IPPool);
    ledger.apply_pool(&pool(json!({})));
    assert_eq!(offered(&mut ledger, "a"), Some(1));
}

/// An object of a list.
#[derive(Clone, Debug)]
enum Listed {
    /// With its first address, the number of further ones, and a gateway.
    Pool(&'static str, u8, u8, Option<u8>),
    /// Whether it allows namespaces with a label only, and what it excludes.
    Network(bool, Option<u8>),
    /// Whether it has the label.
    Namespace(bool),
    Address(u8),
}

/// Each object is in its list once.
fn listed() -> impl Strategy<Value = Vec<Listed>> {
    let last = || 1..=12_u8;
    let maybe = || proptest::option::of(last());
    let pool = |name| {
        let pool = (last(), 0..4_u8, maybe());
        pool.prop_map(move |(first, more, gateway)| Listed::Pool(name, first, more, gateway))
            .boxed()
    };
    let network = (any::<bool>(), maybe())
        .prop_map(|(by_label, excluded)| Listed::Network(by_label, excluded));
    let namespace = any::<bool>().prop_map(Listed::Namespace);
    let mut objects: Vec<BoxedStrategy<Listed>> = NAMES.map(pool).into();
    objects.extend([
        network.boxed(),
        namespace.boxed(),
        last().prop_map(Listed::Address).boxed(),
    ]);
    let all = objects
        .into_iter()
        .map(proptest::option::of)
        .collect::<Vec<_>>();
    all.prop_flat_map(|all| Just(all.into_iter().flatten().collect::<Vec<_>>()).prop_shuffle())
}

const NAMES: [&str; 3] = ["p", "q", "r"];

fn apply(ledger: &mut Ledger, object: &Listed) {
    match object {
        Listed::Pool(name, first, more, gateway) => {
            let spec = json!({
                "addresses": [format!("10.0.0.{first}-10.0.0.{}", first + more)],
                "gateway": gateway.map(|gateway| format!("10.0.0.{gateway}")),
            });
            ledger.apply_pool(&pool(
                json!({"metadata": {"name": name, "uid": name}, "spec": spec}),
            ));
        }
        Listed::Network(by_label, excluded) => {
            let by_label = by_label
                .then(|| json!({"from": "Selector", "selector": {"matchLabels": {"tenant": "a"}}}));
            let excluded: Vec<String> = excluded
                .iter()
                .map(|last| format!("10.0.0.{last}"))
                .collect();
            let namespaces = by_label.unwrap_or(json!({"from": "All"}));
            ledger.apply_network(&lab(
                json!({"spec": {"pools": {}, "namespaces": namespaces, "excluded": excluded}}),
            ));
        }
        Listed::Namespace(is_tenant) => {
            let labels = is_tenant.then(|| ("tenant".to_owned(), "a".to_owned()));
            set_namespace(ledger, "n", &labels.into_iter().collect());
        }
        Listed::Address(last) => ledger.apply(&address(&format!("c{last}"), *last)),
    }
}

proptest! {
    /// In whatever order the objects of the initial lists arrive, the pools are as if the namespace
    /// and the network had been known before, and each change had been processed at once.
    #[test]
    fn order_of_the_initial_lists_does_not_matter(objects in listed()) {
        let mut ledger = listing();
        Observe::<Namespace>::init(&mut ledger);
        objects.iter().for_each(|object| apply(&mut ledger, object));
        Observe::<Namespace>::init_done(&mut ledger);
        ledger.end_pool_list(InClusterKind::IPPool);
        end_network_list(&mut ledger);

        let mut expected = super::ledger();
        let mut ordered = objects;
        ordered.sort_by_key(|object| match object {
            Listed::Namespace(_) => 0,
            Listed::Network(..) => 1,
            Listed::Pool(..) | Listed::Address(_) => 2,
        });
        ordered.iter().for_each(|object| apply(&mut expected, object));
        for name in NAMES {
            let state = |ledger: &Ledger| (ledger.pools().pool_info(&named(name)), ledger.pools().counts(&named(name)));
            prop_assert_eq!(state(&ledger), state(&expected));
            prop_assert_eq!(ledger.pools().overlapping(&named(name)), expected.pools().overlapping(&named(name)));
        }
        prop_assert_eq!(ledger.network("lab"), expected.network("lab"));
    }
}
