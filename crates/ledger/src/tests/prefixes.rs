//! Prefix pools.

use super::*;

#[test]
fn prefixes_are_counted_and_proposed_like_addresses() {
    let mut ledger = ledger();
    ledger.apply_pool(&prefix_pool(64));
    ledger.apply(&prefix_address("a", "fd00::", 64));
    let Outcome::Offer(slot) = ledger.propose(&prefix_key(), &claim("b"), 1) else {
        panic!("prefixes are free")
    };
    assert_eq!(
        reservation_name(&slot.scope, slot.block),
        "pp.n.p.fd00-0000-0000-0001-0000-0000-0000-0000-64"
    );
    let counts = ledger.pools().counts(&prefix_key());
    assert_eq!(
        (counts.total, counts.free, counts.used, counts.out_of_range),
        (8, 6, 1, 0)
    );
}

#[test]
fn prefix_of_another_length_blocks_all_overlapping_ones() {
    let mut ledger = ledger();
    ledger.apply_pool(&prefix_pool(64));
    ledger.apply(&prefix_address("wide", "fd00::", 62));
    ledger.apply(&prefix_address("inside", "fd00:0:0:1::", 64));
    ledger.apply(&prefix_address("narrow", "fd00:0:0:5:1::", 80));
    let counts = |ledger: &Ledger| {
        let counts = ledger.pools().counts(&prefix_key());
        (counts.total, counts.free, counts.used, counts.out_of_range)
    };
    assert_eq!(counts(&ledger), (8, 3, 1, 2));
    let inside = Slot {
        scope: Scope::Pool(prefix_key()),
        block: Block::new("fd00:0:0:1::".parse().unwrap(), 64),
    };
    assert_eq!(ledger.addresses().contained_in_use(), [inside]);
    ledger.delete(&prefix_address("inside", "fd00:0:0:1::", 64));
    assert_eq!(ledger.addresses().contained_in_use(), []);
    assert_eq!(counts(&ledger), (8, 3, 0, 2), "it is within the wide one");
    ledger.apply(&prefix_address("inside", "fd00:0:0:1::", 64));
    ledger.delete(&prefix_address("wide", "fd00::", 62));
    assert_eq!(counts(&ledger), (8, 6, 1, 1));
    let wide = Slot {
        scope: Scope::Pool(prefix_key()),
        block: Block::new("fd00::".parse().unwrap(), 62),
    };
    assert!(
        ledger
            .addresses()
            .overlaps_other_claim(&wide, &claim("wide"))
    );
    assert!(
        !ledger
            .addresses()
            .overlaps_other_claim(&wide, &claim("inside"))
    );
}
