use super::*;
use crate::InClusterKind;

#[test]
fn exhausted_pool_gets_only_advice_that_frees_addresses() {
    let advice = |change: fn(&mut AddressCounts)| {
        let mut counts = AddressCounts::default();
        change(&mut counts);
        exhausted(&counts, false)
    };
    assert_eq!(advice(|_| ()), "add addresses", "a pool without addresses");
    assert_eq!(
        advice(|counts| counts.used = 3),
        "add addresses or release claims"
    );
    assert_eq!(
        advice(|counts| counts.cooling_down = 1),
        "add addresses or wait for the end of the cool-down"
    );
    assert_eq!(
        advice(|counts| counts.drained = 1),
        "add addresses or remove entries of spec.draining"
    );
    let several = advice(|counts| {
        counts.used = 1;
        counts.reserved = 1;
    });
    assert_eq!(
        several,
        "add addresses, release claims or delete reservations made by hand that are not needed"
    );
    let counts = AddressCounts {
        reserved: 1,
        ..AddressCounts::default()
    };
    assert_eq!(
        exhausted(&counts, true),
        "add addresses, release claims of other pools of its network or delete reservations made by hand that are not \
         needed",
        "another pool of the network has the address in use"
    );
}

#[test]
fn missing_pool_is_answered_with_the_pools_of_the_namespace() {
    let pool = |namespace: &str, name| PoolKey::new(InClusterKind::IPPool, Some(namespace), name);
    let global = |name| PoolKey::new(InClusterKind::GlobalIPPool, None, name);
    let pools = [pool("n4", "real"), pool("n5", "secret"), global("dc")];
    let existing = |missing: &PoolKey| {
        let text = missing_pool(missing, &pools);
        text.strip_prefix(MISSING_POOL).unwrap().to_owned()
    };
    assert_eq!(
        existing(&pool("n4", "reel")),
        "; pools of the namespace n4: InClusterIPPool n4/real"
    );
    assert_eq!(
        existing(&pool("n6", "reel")),
        "; the namespace n6 has no pools"
    );
    assert_eq!(
        existing(&global("cd")),
        "; global pools: GlobalInClusterIPPool dc"
    );
}

#[test]
fn claims_of_a_pool_are_listed_by_a_command() {
    let own = PoolKey::new(InClusterKind::IPPool, Some("n"), "web");
    let global = PoolKey::new(InClusterKind::GlobalIPPool, None, "dc");
    assert_eq!(
        claims_of(&own),
        "kubectl ipam claims --namespace n --pool InClusterIPPool/web"
    );
    assert_eq!(
        claims_of(&global),
        "kubectl ipam claims --all-namespaces --pool GlobalInClusterIPPool/dc"
    );
}
