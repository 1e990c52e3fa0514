//! Overlapping pools, also many and large ones.

use super::*;

fn numbered(number: usize, change: serde_json::Value) -> Pool {
    let mut pool = pool(change);
    pool.metadata.name = Some(format!("p{number:03}"));
    pool
}

#[test]
fn search_for_overlaps_ends_after_twenty() {
    let ledger = ledger();
    for number in 0..50 {
        ledger.apply_pool(&numbered(number, json!({})));
    }
    let found = ledger.overlapping(&named("p049"));
    assert_eq!(found.len(), MAX_OVERLAPS);
    let first: Vec<PoolKey> = (0..MAX_OVERLAPS).map(|number| named(&format!("p{number:03}"))).collect();
    assert_eq!(found, first, "the order is stable, so that a status does not change without a cause");
}

#[test]
fn spec_is_parsed_once_per_generation() {
    let ledger = ledger();
    let at = |generation: i64, addresses: &str| {
        let mut pool = pool(json!({"spec": {"addresses": [addresses]}}));
        pool.metadata.generation = Some(generation);
        pool
    };
    ledger.apply_pool(&at(1, "10.0.0.1-10.0.0.8"));
    let read = ledger.pool_info(&key()).unwrap().usable.unwrap();
    // An API server never sends this: it shows that the spec of a known generation is not parsed again.
    ledger.apply_pool(&at(1, "nothing"));
    assert!(ledger.is_current(&key(), &read));
    let mut paused = at(1, "nothing");
    paused.metadata.annotations = Some([("cluster.x-k8s.io/paused".to_owned(), String::new())].into());
    ledger.apply_pool(&paused);
    assert!(ledger.is_current(&key(), &read) && ledger.pool_info(&key()).unwrap().paused);
    ledger.apply_pool(&at(2, "10.0.0.1-10.0.0.4"));
    assert_eq!(counts(&ledger), (4, 4, 0, 0));
    let mut another = at(2, "10.0.0.1-10.0.0.2");
    another.metadata.uid = Some("recreated".to_owned());
    ledger.apply_pool(&another);
    assert_eq!(counts(&ledger), (2, 2, 0, 0), "a recreated pool has another spec");
}

#[test]
fn unused_pool_has_no_free_set() {
    let ledger = ledger();
    ledger.apply_pool(&pool(json!({})));
    let has_list = || ledger.state.lock().pools[&key()].has_free_list();
    assert!(!has_list());
    ledger.apply(&address("a", 1));
    assert_eq!((has_list(), counts(&ledger)), (true, (8, 7, 1, 0)));
    ledger.delete(&address("a", 1));
    assert_eq!(counts(&ledger), (8, 8, 0, 0));
}
