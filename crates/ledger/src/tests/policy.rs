//! Sticky addresses and requested addresses.

use std::collections::BTreeMap;

use capi_ipam_api::STICKY_SECONDS;

use super::cooldown::cooled_down_slots;
use super::quarantine::quarantine;
use super::*;

fn now() -> i64 {
    capi_ipam_objects::clock::now().0.as_second()
}

fn time(second: i64) -> String {
    jiff::Timestamp::from_second(second).unwrap().to_string()
}

fn with_policy(spec: serde_json::Value) -> Ledger {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"spec": spec})));
    ledger
}

fn sticky(cooldown: i64) -> Ledger {
    with_policy(json!({"allocation": {"sticky": true}, "addressReuseGracePeriodSeconds": cooldown}))
}

fn requests() -> Ledger {
    with_policy(json!({"allocation": {"requests": true}}))
}

fn release(ledger: &mut Ledger, last: u8, name: &str, at: i64) {
    ledger.apply(&reservation(last, held_by(name), Some(&time(at))));
}

fn proposed(ledger: &mut Ledger, name: &str) -> Option<u8> {
    match ledger.propose(&key(), &claim(name), 1) {
        Outcome::Offer(slot) => (1..=SIZE).find(|last| block(*last) == slot.block),
        _ => None,
    }
}

fn request(ledger: &mut Ledger, name: &str, last: u8, priority: i64) -> Outcome<Slot> {
    let attributes = ClaimAttributes {
        priority,
        requested: Some(block(last)),
        ..ClaimAttributes::default()
    };
    ledger.propose(&key(), &claim(name), attributes)
}

#[test]
fn claim_gets_its_former_address_back() {
    for cooldown in [0, 600] {
        let mut ledger = sticky(cooldown);
        release(&mut ledger, 3, "a", now() - 5);
        release(&mut ledger, 5, "a", now());
        release(&mut ledger, 1, "b", now());
        assert_eq!(
            address_counts(&ledger).free,
            if cooldown == 0 { 8 } else { 5 }
        );
        assert_eq!(
            proposed(&mut ledger, "new"),
            Some(2),
            "other claims get addresses that are not kept"
        );
        assert_eq!(
            proposed(&mut ledger, "a"),
            Some(5),
            "the one that was released last"
        );
        assert_eq!(proposed(&mut ledger, "b"), Some(1));
        let released = ledger
            .released_reservation(&value(5), &claim("a"))
            .expect("its reservation is kept");
        ledger.remove_reservation_of(&value(5), &released.uid);
        assert_eq!(ledger.released_reservation(&value(5), &claim("a")), None);
    }
}

#[test]
fn claim_gets_its_former_address_back_although_the_watch_of_ip_addresses_lags_behind() {
    for cooldown in [0, 600] {
        let mut ledger = sticky(cooldown);
        ledger.apply(&address("a", 3));
        release(&mut ledger, 3, "a", now());
        ledger.end_cooldowns(now());
        assert_eq!(proposed(&mut ledger, "new"), Some(1));
        assert_eq!(proposed(&mut ledger, "a"), Some(3));
    }
}

#[test]
fn former_address_that_another_claim_has_is_not_given_back() {
    for cooldown in [0, 600] {
        let mut ledger = sticky(cooldown);
        ledger.apply(&address("other", 3));
        release(&mut ledger, 3, "a", now());
        ledger.end_cooldowns(now());
        assert_eq!(proposed(&mut ledger, "a"), Some(1));
    }
}

#[test]
fn cooling_address_is_taken_over_by_the_claim_of_its_name_only() {
    let mut sticky = sticky(600);
    let mut not_sticky = with_policy(json!({"addressReuseGracePeriodSeconds": 600}));
    for ledger in [&mut sticky, &mut not_sticky] {
        release(ledger, 3, "a", now());
    }
    assert!(
        sticky
            .released_reservation(&value(3), &claim("a"))
            .is_some()
    );
    assert_eq!(
        sticky.released_reservation(&value(3), &claim("b")),
        None,
        "another claim attempted to reserve it before"
    );
    assert_eq!(
        not_sticky.released_reservation(&value(3), &claim("a")),
        None
    );
}

#[test]
fn sticky_pool_is_never_exhausted_by_absent_claims() {
    let mut ledger = sticky(0);
    for last in 1..=8 {
        release(
            &mut ledger,
            last,
            &format!("c{last}"),
            now() - 100 + i64::from(last),
        );
    }
    assert_eq!(address_counts(&ledger).free, 8);
    assert_eq!(proposed(&mut ledger, "c4"), Some(4));
    let others: Vec<_> = (0..7)
        .map(|number| proposed(&mut ledger, &format!("x{number}")))
        .collect();
    assert_eq!(
        others,
        [1, 2, 3, 5, 6, 7, 8].map(Some),
        "those released first are allocated first"
    );
    assert_eq!(proposed(&mut ledger, "y"), None);
    ledger.drop_candidate(&value(6));
    assert_eq!(take(&mut ledger), [claim("y")]);
    assert_eq!(
        proposed(&mut ledger, "c6"),
        None,
        "the address is for the claim that waited"
    );
    assert_eq!(proposed(&mut ledger, "y"), Some(6));
}

#[test]
fn kept_addresses_are_available_after_a_change_of_the_pool() {
    let mut ledger = sticky(0);
    for last in 1..=8 {
        release(
            &mut ledger,
            last,
            &format!("c{last}"),
            now() - 100 + i64::from(last),
        );
    }
    let spec = json!({"allocation": {"sticky": true}, "excludedAddresses": ["10.0.0.2"]});
    ledger.apply_pool(&pool(json!({"spec": spec})));
    assert_eq!(address_counts(&ledger).free, 7);
    let others: Vec<_> = (0..7)
        .map(|number| proposed(&mut ledger, &format!("x{number}")))
        .collect();
    assert_eq!(others, [1, 3, 4, 5, 6, 7, 8].map(Some));
    assert_eq!(proposed(&mut ledger, "y"), None);
}

#[test]
fn kept_address_becomes_available_when_the_cooldown_ends() {
    let mut ledger = sticky(60);
    let since = now() - 10;
    release(&mut ledger, 1, "a", since);
    for last in 2..=8 {
        ledger.apply(&reservation(last, held_by(&format!("c{last}")), None));
    }
    assert_eq!(
        (
            proposed(&mut ledger, "new"),
            address_counts(&ledger).cooling_down
        ),
        (None, 1)
    );
    assert_eq!(
        ledger.pools().next_cooldown_end(|_| true, 0),
        Some(since + 61)
    );
    ledger.end_cooldowns(since + 60);
    assert!(take(&mut ledger).is_empty());
    ledger.end_cooldowns(since + 61);
    assert_eq!(take(&mut ledger), [claim("new")]);
    assert_eq!(
        (
            address_counts(&ledger).cooling_down,
            address_counts(&ledger).free
        ),
        (0, 1)
    );
    assert!(
        ledger.is_remembered(
            &value(1),
            &ledger
                .released_reservation(&value(1), &claim("new"))
                .unwrap()
                .uid
        )
    );
    let end = since + STICKY_SECONDS + 1;
    assert_eq!(ledger.pools().next_cooldown_end(|_| true, 0), Some(end));
    let deleted = |ledger: &Ledger, second| ledger.cooled_down(second, |_| true, 0).len();
    assert_eq!((deleted(&ledger, end - 1), deleted(&ledger, end)), (0, 1));
    // Without the policy, nothing is kept.
    ledger.apply_pool(&pool(
        json!({"spec": {"addressReuseGracePeriodSeconds": 0}, "metadata": {"generation": 2}}),
    ));
    assert_eq!(deleted(&ledger, since), 1);
}

#[test]
fn policy_can_be_switched_on_while_addresses_cool_down() {
    let mut ledger = with_policy(json!({"addressReuseGracePeriodSeconds": 600}));
    release(&mut ledger, 7, "a", now());
    assert_eq!(proposed(&mut ledger, "a"), Some(1));
    let policy = json!({"addressReuseGracePeriodSeconds": 600, "allocation": {"sticky": true}});
    ledger.apply_pool(&pool(json!({"spec": policy})));
    assert_eq!(proposed(&mut ledger, "a"), Some(7));
    let policy = json!({"allocation": {"sticky": true}});
    release(&mut ledger, 8, "b", now());
    ledger.apply_pool(&pool(json!({"spec": policy})));
    assert_eq!(
        (proposed(&mut ledger, "x"), address_counts(&ledger).free),
        (Some(2), 5),
        "the last one is free now"
    );
}

#[test]
fn release_that_is_observed_late_wakes_the_next_claim() {
    let mut ledger = sticky(600);
    for last in 1..=8 {
        ledger.apply(&reservation(last, held_by(&format!("c{last}")), None));
    }
    assert_eq!(proposed(&mut ledger, "c3"), None);
    release(&mut ledger, 3, "c3", now());
    assert_eq!(take(&mut ledger), [claim("c3")]);
    assert_eq!(proposed(&mut ledger, "c3"), Some(3));
}

#[test]
fn released_reservation_without_a_claim_is_not_kept() {
    let mut ledger = sticky(0);
    ledger.apply(&reservation(1, json!(null), Some(&time(now() - 5))));
    ledger.end_cooldowns(now());
    assert_eq!(ledger.cooled_down(now(), |_| true, 0).len(), 1);
}

#[test]
fn requested_address_is_allocated_or_nothing() {
    let mut ledger = requests();
    assert_eq!(request(&mut ledger, "a", 5, 1), Outcome::Offer(value(5)));
    assert_eq!(
        request(&mut ledger, "b", 5, 2),
        unavailable(Unavailable::InUse(None))
    );
    assert_eq!(
        request(&mut ledger, "c", 5, 1),
        unavailable(Unavailable::InUse(None))
    );
    assert_eq!(
        request(&mut ledger, "d", 200, 1),
        unavailable(Unavailable::NotInPool)
    );
    assert_eq!(
        proposed(&mut ledger, "other"),
        Some(1),
        "other claims are not delayed"
    );
    ledger.drop_candidate(&value(5));
    assert_eq!(
        take(&mut ledger),
        [claim("c")],
        "the first one that requested it"
    );
    assert_eq!(
        request(&mut ledger, "b", 5, 2),
        unavailable(Unavailable::RequestedBefore)
    );
    let others: Vec<_> = (0..6)
        .map(|number| proposed(&mut ledger, &format!("x{number}")))
        .collect();
    assert_eq!(
        others,
        [2, 3, 4, 6, 7, 8].map(Some),
        "the requested one is kept during the turn"
    );
    assert_eq!(proposed(&mut ledger, "x"), None);
    assert_eq!(request(&mut ledger, "c", 5, 1), Outcome::Offer(value(5)));
    ledger.apply_pool(&pool(
        json!({"spec": {"addresses": ["10.0.0.1-10.0.0.8", "10.0.0.200"]}}),
    ));
    assert!(take(&mut ledger).contains(&claim("d")));
}

#[test]
fn each_reason_is_distinguished() {
    let mut ledger = with_policy(
        json!({"allocation": {"requests": true}, "addressReuseGracePeriodSeconds": 600}),
    );
    let since = now();
    ledger.apply(&reservation(1, held_by("holder"), None));
    ledger.apply(&address("owner", 2));
    ledger.apply(&reservation(
        3,
        json!({"namespace": "n", "name": "promised"}),
        None,
    ));
    ledger.apply(&reservation(4, json!(null), None));
    release(&mut ledger, 5, "former", since);
    let why = |ledger: &mut Ledger, last: u8| match request(ledger, "a", last, 1) {
        Outcome::NotNow(Reason::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        why(&mut ledger, 1),
        Unavailable::InUse(Some(claim("holder")))
    );
    assert_eq!(
        why(&mut ledger, 2),
        Unavailable::InUse(Some(claim("owner")))
    );
    assert_eq!(
        why(&mut ledger, 3),
        Unavailable::Promised(claim("promised"))
    );
    assert_eq!(why(&mut ledger, 4), Unavailable::Excluded);
    assert_eq!(why(&mut ledger, 5), Unavailable::CoolingDown(since + 601));
    assert_eq!(
        request(&mut ledger, "former", 5, 1),
        unavailable(Unavailable::CoolingDown(since + 601))
    );
    assert_eq!(
        request(&mut ledger, "a", 6, 1),
        Outcome::Offer(value(6)),
        "the request has changed"
    );
}

#[test]
fn request_waits_behind_claims_of_an_exhausted_pool() {
    let mut ledger = requests();
    for last in 1..=8 {
        ledger.apply(&reservation(last, held_by(&format!("c{last}")), None));
    }
    let free = |ledger: &mut Ledger, last: u8| {
        ledger.delete(&reservation(last, held_by(&format!("c{last}")), None));
    };
    assert_eq!(proposed(&mut ledger, "older"), None);
    assert_eq!(
        request(&mut ledger, "younger", 4, 2),
        unavailable(Unavailable::InUse(Some(claim("c4"))))
    );
    free(&mut ledger, 4);
    assert_eq!(take(&mut ledger), [claim("older")]);
    assert_eq!(
        request(&mut ledger, "younger", 4, 2),
        unavailable(Unavailable::NotYet)
    );
    free(&mut ledger, 6);
    assert_eq!(take(&mut ledger), [claim("younger")]);
    assert_eq!(
        proposed(&mut ledger, "older"),
        Some(6),
        "the requested one is for the other claim"
    );
    assert_eq!(
        request(&mut ledger, "younger", 4, 2),
        Outcome::Offer(value(4))
    );
}

#[test]
fn new_user_of_a_requested_address_wakes_the_others() {
    let mut ledger = with_policy(
        json!({"allocation": {"requests": true}, "addressReuseGracePeriodSeconds": 600}),
    );
    let since = now();
    release(&mut ledger, 5, "former", since);
    for (name, priority) in [("a", 1), ("b", 2)] {
        assert_eq!(
            request(&mut ledger, name, 5, priority),
            unavailable(Unavailable::CoolingDown(since + 601))
        );
    }
    ledger.delete(&reservation(5, held_by("former"), None));
    assert_eq!(take(&mut ledger), [claim("a")]);
    assert_eq!(request(&mut ledger, "a", 5, 1), Outcome::Offer(value(5)));
    assert_eq!(take(&mut ledger), [], "the address is about to be reserved");
    ledger.apply(&reservation(5, held_by("a"), None));
    assert_eq!(take(&mut ledger), [claim("b")]);
    let by_a = Unavailable::InUse(Some(claim("a")));
    assert_eq!(
        request(&mut ledger, "b", 5, 2),
        Outcome::NotNow(Reason::Unavailable(by_a))
    );
    ledger.apply(&address("a", 5));
    assert_eq!(take(&mut ledger), [claim("b")]);
    ledger.apply(&address("a", 5));
    assert_eq!(take(&mut ledger), []);
}

#[test]
fn unused_turn_for_a_requested_address_passes_on() {
    let mut ledger = requests();
    ledger.apply(&reservation(4, held_by("c"), None));
    for (name, priority) in [("a", 1), ("b", 2)] {
        assert!(matches!(
            request(&mut ledger, name, 4, priority),
            Outcome::NotNow(Reason::Unavailable(_))
        ));
    }
    ledger.delete(&reservation(4, held_by("c"), None));
    assert_eq!(take(&mut ledger), [claim("a")]);
    ledger.end_unused_turn(&key(), &claim("a"), Uid::of("uid-a"), Instant::now());
    assert_eq!(take(&mut ledger), [claim("b")]);
    ledger.delete(&claim_object("b"));
    assert_eq!(request(&mut ledger, "a", 4, 1), Outcome::Offer(value(4)));
}

fn claim_object(name: &str) -> IPAddressClaim {
    serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": name},
        "spec": {"poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}},
    }))
    .unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    /// A claim asks for any address, or requests one.
    Ask(u8, Option<u8>),
    /// A claim releases its address.
    Release(u8),
    /// A claim that reports a conflict releases its address.
    Quarantine(u8),
    EndQuarantine(u8),
    Forget(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..12_u8, proptest::option::of(1..=10_u8)).prop_map(|(name, last)| Step::Ask(name, last)),
        2 => (0..12_u8).prop_map(Step::Release),
        1 => (0..12_u8).prop_map(Step::Quarantine),
        1 => (1..=SIZE).prop_map(Step::EndQuarantine),
        1 => (1..=SIZE).prop_map(Step::Forget),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    /// Claims with and without requests in a sticky pool: nobody gets an address that is in use,
    /// quarantined or another than it requests, a claim without a request gets an address if one is not in use,
    /// its former one if possible, and the counts are right.
    #[test]
    fn policies_agree_with_a_naive_model(steps in steps()) {
        let mut ledger = with_policy(json!({"allocation": {"sticky": true, "requests": true}}));
        let mut held: BTreeMap<u8, u8> = BTreeMap::new();
        // Who released an address last, and in which order.
        let mut kept: BTreeMap<u8, (usize, u8)> = BTreeMap::new();
        let mut quarantined: BTreeSet<u8> = BTreeSet::new();
        let name = |number: u8| format!("c{number}");
        let uid_of = |ledger: &Ledger, number: u8| {
            let uid = Uid::of(&format!("uid-{}", name(number)));
            ledger.addresses().held_by(&claim(&name(number)), uid)[0].uid.clone()
        };
        for (index, step) in steps.into_iter().enumerate() {
            match step {
                Step::Ask(number, last) if !held.contains_key(&number) => {
                    let got = match last {
                        Some(last) => request(&mut ledger, &name(number), last, 1),
                        None => ledger.propose(&key(), &claim(&name(number)), 1),
                    };
                    let in_use: BTreeSet<u8> = held.values().copied().collect();
                    let is_free = |last: &u8| {
                        (1..=SIZE).contains(last) && !in_use.contains(last) && !quarantined.contains(last)
                    };
                    let is_new = |last: &u8| is_free(last) && !kept.contains_key(last);
                    let former = kept.iter().filter(|(_, (_, by))| *by == number).max_by_key(|(_, (at, _))| *at);
                    let oldest = kept.iter().min_by_key(|(last, (at, _))| (*at, **last));
                    let expected = match last {
                        Some(last) => Some(last).filter(is_free),
                        None => former.map(|(last, _)| *last).or_else(|| (1..=SIZE).find(is_new)).or(oldest.map(|(last, _)| *last)),
                    };
                    let slot = if let Outcome::Offer(slot) = got { Some(slot) } else { None };
                    prop_assert_eq!(slot.clone(), expected.map(value));
                    if let Some(last) = expected {
                        if let Some(released) = ledger.released_reservation(&value(last), &claim(&name(number))) {
                            ledger.remove_reservation_of(&value(last), &released.uid);
                        }
                        let mut reservation = reservation(last, held_by(&name(number)), None);
                        reservation.metadata.uid = Some(format!("r-{index}"));
                        ledger.apply(&reservation);
                        kept.remove(&last);
                        held.insert(number, last);
                    } else {
                        // It waits no longer.
                        ledger.stop_waiting(&key(), &claim(&name(number)));
                    }
                }
                Step::Release(number) => {
                    let Some(last) = held.remove(&number) else { continue };
                    let uid = uid_of(&ledger, number);
                    let at = now() - 1_000 + i64::try_from(index).unwrap();
                    let mut reservation = reservation(last, held_by(&name(number)), Some(&time(at)));
                    reservation.metadata.uid = Some(uid);
                    ledger.apply(&reservation);
                    kept.insert(last, (index, number));
                }
                Step::Quarantine(number) => {
                    let Some(last) = held.remove(&number) else { continue };
                    let mut reservation = quarantine(last, now() + 3_600);
                    reservation.metadata.uid = Some(uid_of(&ledger, number));
                    ledger.apply(&reservation);
                    quarantined.insert(last);
                }
                Step::EndQuarantine(last) => {
                    if quarantined.remove(&last) {
                        prop_assert!(!cooled_down_slots(&ledger, now() + 3_500).contains(&value(last)));
                        let ended = ledger.cooled_down(now() + 3_700, |_| true, 0);
                        let ended = ended.iter().find(|ended| ended.slot == value(last)).expect("it has ended");
                        ledger.remove_reservation_of(&value(last), &ended.uid);
                    }
                }
                Step::Forget(last) => {
                    if kept.remove(&last).is_some() {
                        let released = ledger.released_reservation(&value(last), &claim("any")).expect("it is kept");
                        ledger.remove_reservation_of(&value(last), &released.uid);
                    }
                }
                Step::Ask(..) => {}
            }
            let counts = address_counts(&ledger);
            prop_assert_eq!(counts.free, i64::from(SIZE) - i64::try_from(held.len() + quarantined.len()).unwrap());
            prop_assert_eq!(counts.quarantined, i64::try_from(quarantined.len()).unwrap());
            prop_assert_eq!(counts.cooling_down, 0);
            prop_assert!(take(&mut ledger).is_empty());
        }
    }
}
