use super::*;

#[test]
fn exhausted_pool_gets_only_advice_that_frees_addresses() {
    let advice = |change: fn(&mut AddressCounts)| {
        let mut counts = AddressCounts::default();
        change(&mut counts);
        exhausted(&counts)
    };
    assert_eq!(advice(|_| ()), "add addresses", "a pool without addresses");
    assert_eq!(
        advice(|counts| counts.used = 3),
        "add addresses or release claims"
    );
    assert_eq!(
        advice(|counts| counts.cooling_down = 1),
        "add addresses or wait for the end of the cool-down"
    );
    assert_eq!(
        advice(|counts| counts.drained = 1),
        "add addresses or remove entries of spec.draining"
    );
    let several = advice(|counts| {
        counts.used = 1;
        counts.reserved = 1;
    });
    assert_eq!(
        several,
        "add addresses, release claims or delete reservations that are not needed"
    );
}
