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
fn recorded_state_of_others_stays_until_the_registry_shows_it() {
    let mut ledger = ledger();
    let status = json!({"status": {"blocks": {"held": 0, "spare": 0, "others": 7, "conflicts": 0, "excluded": ["10.0.0.5"]}}});
    ledger.apply_network(&sharing(status));
    let others = |ledger: &Ledger| {
        let blocks = ledger.network("lab").blocks.unwrap();
        (blocks.others, blocks.excluded.join(" "))
    };
    let recorded = (7, "10.0.0.5".to_owned());
    assert_eq!(others(&ledger), recorded);
    ledger.set_block_supply("lab", &supply(Some(BlockObstacle::Unreachable)));
    assert_eq!(others(&ledger), recorded);
    let shown = BlockSupply {
        others: Some(0),
        excluded: Some(vec!["10.0.0.6".to_owned()]),
        ..BlockSupply::default()
    };
    ledger.set_block_supply("lab", &shown);
    assert_eq!(others(&ledger), (0, "10.0.0.6".to_owned()));
}
