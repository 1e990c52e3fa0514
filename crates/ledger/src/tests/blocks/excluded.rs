//! Excluded addresses of networks that share blocks.

use super::*;

#[test]
fn excluded_addresses_need_no_block() {
    let mut ledger = restricted();
    ledger.apply_network(&sharing(
        json!({"spec": {"excluded": ["10.0.0.0/29", "10.0.0.12/30"]}}),
    ));
    let blocks = ledger.network_blocks("lab").unwrap();
    let wanted: Vec<_> = blocks.members[0].blocks().collect();
    assert_eq!(wanted, [four(8)]);
    assert!(blocks.members[0].uses(four(8)) && !blocks.members[0].uses(four(4)));
    ledger.apply_network(&sharing(json!({"spec": {"excluded": ["10.0.0.0/28"]}})));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Outcome::NO_ADDRESS);
    ledger.apply_network(&sharing(json!({})));
    ledger.apply_pool(&pool(json!({
        "spec": {"addresses": ["10.0.0.1-10.0.0.14"], "draining": ["10.0.0.0/29"], "network": "lab"},
    })));
    let blocks = ledger.network_blocks("lab").unwrap();
    let wanted: Vec<_> = blocks.members[0].blocks().collect();
    assert_eq!(
        wanted,
        [four(8), four(12)],
        "nothing is allocated in draining parts"
    );
}

#[test]
fn number_of_other_blocks_stays_until_the_registry_shows_it() {
    let mut ledger = ledger();
    let status =
        json!({"status": {"blocks": {"held": 0, "spare": 0, "others": 7, "conflicts": 0}}});
    ledger.apply_network(&sharing(status));
    let others = |ledger: &Ledger| ledger.network("lab").blocks.unwrap().others;
    assert_eq!(others(&ledger), 7);
    ledger.set_block_supply("lab", &supply(Some(BlockObstacle::Unreachable)));
    assert_eq!(others(&ledger), 7);
    let shown = BlockSupply {
        others: Some(0),
        ..BlockSupply::default()
    };
    ledger.set_block_supply("lab", &shown);
    assert_eq!(others(&ledger), 0);
}

/// The hash of what a ledger excludes, whose pool has a gateway, and whose network excludes addresses.
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
