//! Addresses that are excluded here or in other management clusters.

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
fn recorded_exclusions_stay_until_the_registry_shows_others() {
    let mut ledger = ledger();
    let status = json!({"status": {"blocks": {"held": 0, "spare": 0, "others": 0, "conflicts": 0, "excluded": ["10.0.0.5"]}}});
    ledger.apply_network(&sharing(status));
    let excluded = |ledger: &Ledger| ledger.network("lab").blocks.unwrap().excluded;
    assert_eq!(excluded(&ledger), ["10.0.0.5"]);
    ledger.set_block_supply("lab", &supply(Some(BlockObstacle::Unreachable)));
    assert_eq!(excluded(&ledger), ["10.0.0.5"]);
    let shown = BlockSupply {
        excluded: Some(vec!["10.0.0.6".to_owned()]),
        ..BlockSupply::default()
    };
    ledger.set_block_supply("lab", &shown);
    assert_eq!(excluded(&ledger), ["10.0.0.6"]);
}
