//! Claims that look up their pool, and wait for it.

use super::*;

#[test]
fn pool_is_missing_at_the_second_lookup() {
    let mut ledger = ledger();
    assert_eq!(
        ledger.pool_or_wait(&key(), &claim("a"), 1),
        PoolLookup::NotSeenYet
    );
    assert_eq!(
        ledger.pool_or_wait(&key(), &claim("a"), 1),
        PoolLookup::Missing
    );
    assert_eq!(
        ledger.pool_or_wait(&key(), &claim("b"), 1),
        PoolLookup::NotSeenYet
    );
    ledger.apply_pool(&pool(json!({})));
    assert!(matches!(
        ledger.pool_or_wait(&key(), &claim("a"), 1),
        PoolLookup::Found(_)
    ));
}

#[test]
fn pool_that_is_created_again_wakes_claims_of_its_deletion() {
    let mut ledger = with_pool();
    assert!(matches!(
        ledger.pool_or_wait(&key(), &claim("a"), 1),
        PoolLookup::Found(_)
    ));
    let found = |ledger: &mut Ledger, serves: fn(&PoolInfo) -> bool| {
        ledger
            .serving_or_wait(&key(), &claim("a"), 1, serves)
            .is_some()
    };
    assert!(found(&mut ledger, PoolInfo::can_bind) && found(&mut ledger, PoolInfo::can_allocate));
    let deleting = pool(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    ledger.apply_pool(&deleting);
    assert!(found(&mut ledger, PoolInfo::can_bind) && !found(&mut ledger, PoolInfo::can_allocate));
    ledger.remove_pool(&key());
    assert_eq!(take(&mut ledger), [claim("a")]);
    assert!(!found(&mut ledger, PoolInfo::can_bind));
    ledger.apply_pool(&pool(json!({})));
    assert!(take(&mut ledger).contains(&claim("a")));
}

#[test]
fn place_of_a_slot_is_the_scope_and_the_length_of_its_pool() {
    let mut ledger = ledger();
    assert!(
        !ledger.pools().has_place(&key(), &value(1)),
        "the pool does not exist"
    );
    ledger.apply_pool(&pool(json!({})));
    assert!(ledger.pools().has_place(&key(), &value(1)));
    ledger.apply_network(&lab(json!({})));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.8"));
    assert!(!ledger.pools().has_place(&key(), &value(1)));
    assert!(ledger.pools().has_place(&key(), &in_lab(1)));
    let with_length = |length| Slot {
        scope: Scope::Pool(prefix_key()),
        block: Block::new("fd00::".parse().unwrap(), length),
    };
    ledger.apply_pool(&prefix_pool(64));
    assert!(ledger.pools().has_place(&prefix_key(), &with_length(64)));
    assert!(!ledger.pools().has_place(&prefix_key(), &with_length(63)));
}
