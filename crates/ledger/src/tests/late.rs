//! Responses that are older than what the watch has reported, and manually created IPAddress
//! objects.

use capi_ipam_api::IPNetwork;

use super::cooldown::cooled_down_slots;
use super::*;

/// A reservation of 10.0.0.1 with that resource version.
pub(super) fn at_version(version: u32, holder: &str, released_at: Option<&str>) -> IPReservation {
    let mut reservation = reservation(1, held_by(holder), released_at);
    reservation.metadata.resource_version = Some(version.to_string());
    reservation
}

pub(super) fn with_cooldown() -> Ledger {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(
        json!({"spec": {"addressReuseGracePeriodSeconds": 60}}),
    ));
    ledger
}

#[test]
fn late_response_does_not_restore_a_deleted_reservation() {
    let mut ledger = with_cooldown();
    ledger.apply(&at_version(5, "a", None));
    Observe::<IPReservation>::delete(&mut ledger, &at_version(6, "a", None));
    ledger.insert_reservation(&at_version(5, "a", None));
    assert_eq!(
        (
            ledger.addresses().known_reservation(&value(1)).is_some(),
            counts(&ledger)
        ),
        (false, (8, 8, 0, 0))
    );
    ledger.insert_reservation(&at_version(7, "b", None));
    assert!(
        ledger.addresses().known_reservation(&value(1)).is_some(),
        "another reservation of the address is accepted"
    );
}

/// Otherwise an address stays reserved after a restore: every live read of its reservation is
/// refused as older.
#[test]
fn restored_reservations_replace_what_was_known() {
    let of_the_past = at_version(5, "a", None);
    let restored = |ledger: &mut Ledger| {
        ledger.insert_reservation(&of_the_past);
        let before = held_slots(ledger, "a", "uid-a");
        Observe::<IPReservation>::restored(ledger);
        ledger.insert_reservation(&of_the_past);
        (before, held_slots(ledger, "a", "uid-a"))
    };
    // The claim had released the address after the snapshot, or another claim had got it.
    let mut released = with_cooldown();
    Observe::<IPReservation>::delete(&mut released, &at_version(600, "a", None));
    assert_eq!(restored(&mut released), (vec![], vec![(value(1), key())]));
    let mut allocated_again = with_cooldown();
    allocated_again.apply(&at_version(700, "b", None));
    assert_eq!(
        restored(&mut allocated_again),
        (vec![], vec![(value(1), key())])
    );
    // Until the next list shows the truth, the precondition of a write fails.
    assert_eq!(
        allocated_again
            .addresses()
            .held_by(&claim("a"), Uid::of("uid-a"))[0]
            .version,
        "5"
    );
    Observe::<IPReservation>::restored(&mut allocated_again);
    assert_eq!(
        allocated_again
            .addresses()
            .held_by(&claim("a"), Uid::of("uid-a"))[0]
            .version,
        "1"
    );
}

#[test]
fn own_deletion_is_effective_before_the_watch_event() {
    let mut ledger = with_cooldown();
    let held = at_version(5, "a", None);
    ledger.insert_reservation(&held);
    ledger.remove_reservation_of(&value(1), held.metadata.uid.as_deref().unwrap());
    ledger.insert_reservation(&held);
    assert!(ledger.addresses().known_reservation(&value(1)).is_none());
}

#[test]
fn late_response_does_not_undo_a_release() {
    let mut ledger = with_cooldown();
    ledger.apply(&at_version(6, "a", Some("1970-01-01T00:16:40Z")));
    ledger.insert_reservation(&at_version(5, "a", None));
    assert_eq!(
        cooled_down_slots(&ledger, 1061),
        [value(1)],
        "it is still cooling down"
    );
}

#[test]
fn late_response_restores_no_deleted_or_older_pool() {
    let at = |version: u32, uid: &str, addresses: &str| {
        let metadata = json!({"uid": uid, "resourceVersion": version.to_string()});
        pool(json!({"metadata": metadata, "spec": {"addresses": [addresses]}}))
    };
    let mut ledger = ledger();
    ledger.apply_pool(&at(7, "one", "10.0.0.1-10.0.0.2"));
    insert_pool(&mut ledger, &at(6, "one", "10.0.0.1-10.0.0.8"));
    assert_eq!(
        address_counts(&ledger).total,
        2,
        "the response is older than what the watch has shown"
    );
    insert_pool(&mut ledger, &at(8, "one", "10.0.0.1-10.0.0.3"));
    assert_eq!(address_counts(&ledger).total, 3);
    ledger.delete_pool(&key(), &at(9, "one", "10.0.0.1-10.0.0.3").metadata);
    insert_pool(&mut ledger, &at(8, "one", "10.0.0.1-10.0.0.3"));
    assert_eq!(info_of(&ledger), None, "the pool is deleted");

    ledger.apply_pool(&at(11, "two", "10.0.0.1-10.0.0.4"));
    insert_pool(&mut ledger, &at(8, "one", "10.0.0.1-10.0.0.3"));
    assert_eq!(
        address_counts(&ledger).total,
        4,
        "the response is of an earlier pool"
    );
    ledger.begin_pool_list(InClusterKind::IPPool);
    ledger.end_pool_list(InClusterKind::IPPool);
    insert_pool(&mut ledger, &at(11, "two", "10.0.0.1-10.0.0.4"));
    assert_eq!(info_of(&ledger), None, "a list does not show the pool");
    // A restore of etcd has lowered the versions.
    ledger.begin_pool_list(InClusterKind::IPPool);
    ledger.apply_pool(&at(5, "two", "10.0.0.1-10.0.0.5"));
    ledger.end_pool_list(InClusterKind::IPPool);
    insert_pool(&mut ledger, &at(6, "two", "10.0.0.1-10.0.0.6"));
    assert_eq!(address_counts(&ledger).total, 6);
    // A restore that the watch has not seen yet, but another one has.
    ledger.pools_mut().restored(InClusterKind::IPPool);
    insert_pool(&mut ledger, &at(3, "two", "10.0.0.1-10.0.0.7"));
    assert_eq!(address_counts(&ledger).total, 7);
}

#[test]
fn late_response_restores_no_deleted_or_older_network() {
    let at = |version: u32, length: u8| -> IPNetwork {
        let network = json!({
            "metadata": {"name": "lab", "uid": "lab", "resourceVersion": version.to_string(), "generation": 1,
                         "finalizers": ["ipam.cluster.x-k8s.io/ProtectNetwork"]},
            "spec": {"namespaces": {"from": "All"}}, "status": {"blockLengths": {"ipv4": length}},
        });
        serde_json::from_value(network).unwrap()
    };
    let (mut ledger, version_4) = (ledger(), Family::V4);
    ledger.apply(&at(7, 28));
    ledger.insert_network(&at(6, 24));
    assert_eq!(ledger.networks().block_length("lab", version_4), Some(28));
    ledger.insert_network(&at(8, 30));
    assert_eq!(ledger.networks().block_length("lab", version_4), Some(30));
    Observe::<IPNetwork>::delete(&mut ledger, &at(9, 30));
    ledger.insert_network(&at(8, 30));
    assert_eq!(ledger.networks().block_length("lab", version_4), None);
    Observe::<IPNetwork>::restored(&mut ledger);
    ledger.insert_network(&at(8, 30));
    assert_eq!(
        ledger.networks().block_length("lab", version_4),
        Some(30),
        "it exists again"
    );
}

#[test]
fn generation_from_before_a_restore_proves_nothing() {
    let pool_with = |addresses: &str| {
        pool(
            json!({"metadata": {"generation": 2}, "spec": {"addresses": [addresses], "network": "lab"}}),
        )
    };
    let network_without = |excluded: &str| -> IPNetwork {
        let network = json!({
            "metadata": {"name": "lab", "uid": "lab", "generation": 2,
                         "finalizers": ["ipam.cluster.x-k8s.io/ProtectNetwork"]},
            "spec": {"namespaces": {"from": "All"}, "excluded": [excluded]},
            "status": {"blockLengths": {"ipv4": 32}},
        });
        serde_json::from_value(network).unwrap()
    };
    let mut ledger = ledger();
    ledger.apply_network(&network_without("10.0.0.1"));
    ledger.apply_pool(&pool_with("10.0.0.1-10.0.0.4"));
    assert_eq!(address_counts(&ledger).free, 3);
    // The second edit is lost with the restore, and another one gets its generation.
    Observe::<IPNetwork>::restored(&mut ledger);
    ledger.apply_network(&network_without("10.0.0.1-10.0.0.2"));
    assert_eq!(address_counts(&ledger).free, 2, "the network");
    ledger.pools_mut().restored(InClusterKind::IPPool);
    ledger.apply_pool(&pool_with("10.0.0.1-10.0.0.8"));
    assert_eq!(address_counts(&ledger).free, 6, "the pool");
}

#[test]
fn late_watch_does_not_undo_a_takeover() {
    let mut ledger = with_cooldown();
    ledger.apply(&at_version(5, "a", Some("1970-01-01T00:16:40Z")));
    let uid = at_version(5, "a", None).metadata.uid;
    let state_of = |version, name: &str, released: Option<&str>| {
        let mut reservation = at_version(version, name, released);
        reservation.metadata.uid.clone_from(&uid);
        reservation
    };
    // The response to the takeover is earlier than the watch.
    ledger.insert_reservation(&state_of(9, "b", None));
    assert_eq!(held_slots(&ledger, "b", "uid-b"), [(value(1), key())]);
    ledger.apply(&state_of(7, "a", Some("1970-01-01T00:16:40Z")));
    assert_eq!(held_slots(&ledger, "b", "uid-b"), [(value(1), key())]);
    ledger.apply(&state_of(9, "b", None));
    assert_eq!(
        (
            held_slots(&ledger, "b", "uid-b").len(),
            cooled_down_slots(&ledger, 5_000)
        ),
        (1, Vec::new())
    );

    // A new list is believed: a restore of etcd has lowered the versions.
    Observe::<IPReservation>::init(&mut ledger);
    ledger.apply(&state_of(4, "a", None));
    Observe::<IPReservation>::init_done(&mut ledger);
    assert_eq!(held_slots(&ledger, "a", "uid-a"), [(value(1), key())]);
    assert_eq!(held_slots(&ledger, "b", "uid-b"), []);
}

#[test]
fn list_after_a_restore_shows_a_deleted_reservation() {
    let mut ledger = with_cooldown();
    ledger.apply(&at_version(50, "a", None));
    Observe::<IPReservation>::delete(&mut ledger, &at_version(51, "a", None));
    ledger.apply(&at_version(49, "a", None));
    assert_eq!(held_slots(&ledger, "a", "uid-a"), [], "the watch is late");
    Observe::<IPReservation>::init(&mut ledger);
    ledger.apply(&at_version(5, "a", None));
    Observe::<IPReservation>::init_done(&mut ledger);
    assert_eq!(held_slots(&ledger, "a", "uid-a"), [(value(1), key())]);
    ledger.insert_reservation(&at_version(6, "a", Some("1970-01-01T00:16:40Z")));
    assert_eq!(cooled_down_slots(&ledger, 1061), [value(1)]);
}

#[test]
fn manual_ipaddress_is_in_use() {
    let mut ledger = with_cooldown();
    let mut by_hand = address("hand", 1);
    by_hand.metadata.finalizers = None;
    ledger.apply(&by_hand);
    ledger.apply(&address("left", 2));
    assert_eq!(counts(&ledger), (8, 6, 2, 0));
}

#[test]
fn ipv4_mapped_address_counts_as_in_use() {
    let mut ledger = with_cooldown();
    let mut mapped = address("mapped", 1);
    mapped.spec.address = "::ffff:10.0.0.1".to_owned();
    ledger.apply(&mapped);
    assert_eq!(offered(&mut ledger, "a"), Some(2));
    ledger.delete(&mapped);
    assert_eq!(counts(&ledger).1, 7);
}

#[test]
fn filtered_addresses_do_not_count_towards_the_limit() {
    let mut ledger = with_cooldown();
    for (name, last) in [("a", 1), ("b", 2), ("c", 3)] {
        ledger.apply(&address(name, last));
    }
    let found = ledger.unreserved(1, |name| *name == claim("b"));
    assert_eq!(
        found.iter().map(|found| &found.slot).collect::<Vec<_>>(),
        [&value(2)]
    );
}

#[test]
fn attempt_with_unknown_outcome_is_returned_once() {
    let mut ledger = with_cooldown();
    let uid = Uid::of("uid-a");
    ledger
        .addresses_mut()
        .remember_attempt(uid, &key(), &value(1));
    assert_eq!(ledger.attempt(Uid::of("uid-b"), &key()), None);
    assert_eq!(ledger.attempt(uid, &key()), Some(value(1)));
    assert_eq!(
        ledger.attempt(uid, &key()),
        Some(value(1)),
        "a retry without an outcome does not forget the attempt"
    );
    ledger.addresses_mut().forget_attempt(uid);
    assert_eq!(ledger.attempt(uid, &key()), None);
    ledger
        .addresses_mut()
        .remember_attempt(uid, &key(), &value(1));
    assert_eq!(
        ledger.attempt(uid, &named("other")),
        None,
        "the attempt was for another pool"
    );
}

#[test]
fn claim_that_waits_is_woken_by_its_late_reservation() {
    // The reply to the creation was lost, and the pool is deleted before the watch reports the
    // reservation.
    let mut ledger = ledger();
    ledger.apply_pool(&pool(
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    ));
    assert!(matches!(
        ledger.pool_or_wait(&key(), &claim("a"), 1),
        PoolLookup::Found(_)
    ));
    take(&mut ledger);
    ledger.apply(&at_version(5, "a", None));
    assert_eq!(take(&mut ledger), [claim("a")]);
    ledger.apply(&at_version(6, "a", None));
    assert_eq!(take(&mut ledger), [], "the reservation is known");

    // The pool is exhausted, and a request of a manager that has stopped arrives.
    let mut ledger = Ledger::default();
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.2"]}})));
    ledger.apply(&address("b", 2));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Outcome::NO_ADDRESS);
    take(&mut ledger);
    ledger.apply(&at_version(5, "a", None));
    assert_eq!(take(&mut ledger), [claim("a")]);
}
