//! Excluded addresses of networks that share blocks.

use super::*;

#[test]
fn excluded_addresses_need_no_block() {
    let mut ledger = restricted();
    ledger.apply_network(&sharing(
        json!({"spec": {"excluded": ["10.0.0.0/29", "10.0.0.12/30"]}}),
    ));
    assert_eq!(allowed(&ledger), [false, false, true, false]);
    ledger.apply_network(&sharing(json!({"spec": {"excluded": ["10.0.0.0/28"]}})));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Outcome::NO_ADDRESS);
    ledger.apply_network(&sharing(json!({})));
    ledger.apply_pool(&pool(json!({
        "spec": {"addresses": ["10.0.0.1-10.0.0.14"], "draining": ["10.0.0.0/29"], "network": "lab"},
    })));
    let expected = [false, false, true, true];
    assert_eq!(allowed(&ledger), expected, "without draining parts");
}

/// The hash of what a ledger excludes, whose pool has a gateway, and whose network excludes
/// addresses.
fn hash(gateway: &str, excluded: &str) -> String {
    let mut ledger = ledger();
    ledger.apply_network(&sharing(json!({"spec": {"excluded": [excluded]}})));
    assert!(ledger.exclusion_hashes("site").is_empty(), "no pool");
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.14"], "gateway": gateway, "network": "lab"});
    ledger.apply_pool(&pool(json!({ "spec": spec })));
    assert!(ledger.exclusion_hashes("other").is_empty());
    ledger.exclusion_hashes("site").remove("lab").unwrap()
}

#[test]
fn hash_depends_on_the_excluded_addresses_only() {
    let expected = hash("10.0.0.1", "10.0.0.2-10.0.0.3");
    assert_eq!(
        hash("10.0.0.2", "10.0.0.0/30"),
        hash("10.0.0.3", "10.0.0.0/30")
    );
    assert_eq!(hash("10.0.0.3", "10.0.0.1-10.0.0.2"), expected);
    assert_ne!(hash("10.0.0.4", "10.0.0.2-10.0.0.3"), expected);
    assert_ne!(hash("10.0.0.1", "10.0.0.2"), expected);
}
