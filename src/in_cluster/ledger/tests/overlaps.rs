//! Pools that overlap, many of them and large ones.

use super::*;

fn numbered(number: usize, change: serde_json::Value) -> InClusterIPPool {
    let mut pool = pool(change);
    pool.metadata.name = Some(format!("p{number:03}"));
    pool
}

#[test]
fn search_for_overlaps_ends_after_twenty() {
    let ledger = ledger();
    for number in 0..50 {
        ledger.applied(&numbered(number, json!({})));
    }
    let found = ledger.overlapping(&named("p049"));
    assert_eq!(found.len(), MAX_OVERLAPS);
    let first: Vec<PoolKey> = (0..MAX_OVERLAPS).map(|number| named(&format!("p{number:03}"))).collect();
    assert_eq!(found, first, "always the same ones, so that a status does not change by itself");
}

#[test]
fn specification_is_read_once_a_generation() {
    let ledger = ledger();
    let at = |generation: i64, addresses: &str| {
        let mut pool = pool(json!({"spec": {"addresses": [addresses]}}));
        pool.metadata.generation = Some(generation);
        pool
    };
    ledger.applied(&at(1, "10.0.0.1-10.0.0.8"));
    let read = ledger.facts(&key()).unwrap().usable.unwrap();
    // Never sent by an API server: it shows that the specification of a known generation is not read again.
    ledger.applied(&at(1, "nothing"));
    assert!(ledger.gives(&key(), &read));
    let mut paused = at(1, "nothing");
    paused.metadata.annotations = Some([("cluster.x-k8s.io/paused".to_owned(), String::new())].into());
    ledger.applied(&paused);
    assert!(ledger.gives(&key(), &read) && ledger.facts(&key()).unwrap().paused);
    ledger.applied(&at(2, "10.0.0.1-10.0.0.4"));
    assert_eq!(counts(&ledger), (4, 4, 0, 0));
    let mut another = at(2, "10.0.0.1-10.0.0.2");
    another.metadata.uid = Some("recreated".to_owned());
    ledger.applied(&another);
    assert_eq!(counts(&ledger), (2, 2, 0, 0), "a pool of the same name is another one");
}

#[test]
fn unused_pool_keeps_no_list_of_free_addresses() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    let has_list = || ledger.lock().pools[&key()].has_free_list();
    assert!(!has_list());
    ledger.applied(&address("a", 1));
    assert_eq!((has_list(), counts(&ledger)), (true, (8, 7, 1, 0)));
    ledger.deleted(&address("a", 1));
    assert_eq!(counts(&ledger), (8, 8, 0, 0));
}
