//! Quarantined addresses.

use capi_ipam_api::Quarantine;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::cooldown::cooled_down_slots;
use super::*;

/// The reservation of an address that is quarantined until a second.
pub(super) fn quarantine(last: u8, until: i64) -> IPReservation {
    let mut reservation = reservation(last, json!(null), None);
    reservation.spec.quarantine = Some(Quarantine {
        until: Time(jiff::Timestamp::from_second(until).unwrap()),
        reason: "ARP reply".to_owned(),
    });
    reservation
}

fn quarantined_after(ledger: &Ledger, second: i64) -> usize {
    ledger.quarantined_after(second).len()
}

#[test]
fn quarantine_is_counted_apart_and_ends_without_a_pool() {
    let mut ledger = with_pool();
    ledger.apply(&quarantine(1, 1_000));
    reserve(&mut ledger, 2, "a");
    let found = address_counts(&ledger);
    assert_eq!(
        (
            found.free,
            found.quarantined,
            found.reserved,
            found.cooling_down
        ),
        (6, 1, 1, 0)
    );
    assert_eq!(offered(&mut ledger, "b"), Some(3));
    let next = |ledger: &Ledger| ledger.pools().next_cooldown_end(|_| true, 0);
    assert_eq!(next(&ledger), Some(1_001));
    assert_eq!(ledger.pools().next_cooldown_end(|_| false, 60), Some(1_061));
    ledger.remove_pool(&key());
    assert_eq!(
        cooled_down_slots(&ledger, 1_000),
        [],
        "a deleted pool ends no quarantine"
    );
    assert_eq!(cooled_down_slots(&ledger, 1_001), [value(1)]);
    ledger.apply_pool(&pool(json!({})));
    assert_eq!(address_counts(&ledger).quarantined, 1);
    ledger.delete(&quarantine(1, 1_000));
    assert_eq!((next(&ledger), offered(&mut ledger, "c")), (None, Some(1)));
}

#[test]
fn quarantine_follows_the_range_of_its_pool() {
    let mut ledger = with_pool();
    ledger.apply(&quarantine(8, 1_000));
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.7"]}})));
    assert_eq!(address_counts(&ledger).quarantined, 0);
    ledger.apply_pool(&pool(json!({})));
    assert_eq!(address_counts(&ledger).quarantined, 1);
}

#[test]
fn changed_end_replaces_the_former_one() {
    let mut ledger = with_pool();
    ledger.apply(&quarantine(1, 5_000));
    assert_eq!(
        (
            quarantined_after(&ledger, 4_999),
            quarantined_after(&ledger, 5_000)
        ),
        (1, 0)
    );
    let mut limited = quarantine(1, 1_000);
    limited.metadata.resource_version = Some("2000".to_owned());
    ledger.apply(&limited);
    assert_eq!(quarantined_after(&ledger, 1_000), 0);
    assert_eq!(cooled_down_slots(&ledger, 1_001), [value(1)]);
    assert_eq!(address_counts(&ledger).quarantined, 1);
}

#[test]
fn requested_address_is_unavailable_until_the_end() {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"spec": {"allocation": {"requests": true}}})));
    ledger.apply(&quarantine(4, 1_000));
    let attributes = ClaimAttributes {
        requested: Some(block(4)),
        ..ClaimAttributes::default()
    };
    assert_eq!(
        ledger.propose(&key(), &claim("a"), attributes),
        unavailable(Unavailable::Quarantined(1_001))
    );
}

/// The claim of an address in use keeps it, whatever a user writes.
#[test]
fn quarantine_of_an_address_in_use_ends_after_the_use() {
    let mut ledger = with_pool();
    ledger.apply(&quarantine(1, 1_000));
    ledger.apply(&address("a", 1));
    assert_eq!(cooled_down_slots(&ledger, 2_000), []);
    let found = address_counts(&ledger);
    assert_eq!((found.used, found.quarantined), (1, 0));
    assert!(
        ledger.cooling_down_in_use().is_empty(),
        "no claim takes it over"
    );
    Observe::<IPAddress>::delete(&mut ledger, &address("a", 1));
    assert_eq!(cooled_down_slots(&ledger, 2_000), [value(1)]);
    assert_eq!(address_counts(&ledger).quarantined, 1);
}

#[test]
fn former_claim_of_a_sticky_pool_gets_another_address() {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"spec": {"allocation": {"sticky": true}}})));
    reserve(&mut ledger, 3, "a");
    let mut released = quarantine(3, 4_000_000_000);
    released.metadata.uid = reservation(3, held_by("a"), None).metadata.uid;
    released.metadata.resource_version = Some("2000".to_owned());
    ledger.apply(&released);
    assert!(held_slots(&ledger, "a", "uid-a").is_empty());
    assert_eq!(ledger.released_reservation(&value(3), &claim("a")), None);
    assert_eq!(offered(&mut ledger, "a"), Some(1));
}

/// Without the rules of the definition, such an object exists.
#[test]
fn quarantine_with_a_claim_blocks_its_address() {
    let mut ledger = with_pool();
    let mut found = quarantine(1, 1_000);
    found.spec.claim_ref = serde_json::from_value(held_by("a")).unwrap();
    ledger.apply(&found);
    assert_eq!(offered(&mut ledger, "a"), Some(2));
    assert_eq!(cooled_down_slots(&ledger, 2_000), []);
    let (invalid, _) = ledger.invalid_reservations();
    assert!(invalid[0].problem.starts_with("spec.quarantine: "));
}

#[test]
fn earlier_versions_exclude_the_address() {
    let mut ledger = with_pool();
    let mut as_they_see_it = quarantine(1, 1_000);
    as_they_see_it.spec.quarantine = None;
    ledger.apply(&as_they_see_it);
    assert_eq!(offered(&mut ledger, "a"), Some(2));
    assert_eq!(ledger.pools().next_cooldown_end(|_| true, 0), None);
}
