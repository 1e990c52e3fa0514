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
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({})));
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
