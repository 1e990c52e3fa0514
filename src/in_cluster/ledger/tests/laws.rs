//! Laws of the ledger where several pools share addresses, and where lengths differ, against naive models.

use super::*;

/// The pools of the network: names and address ranges, first and last.
const MEMBERS: [(&str, u8, u8); 3] = [("p", 1, 6), ("q", 4, 9), ("r", 2, 3)];

#[derive(Clone, Debug)]
enum Step {
    Propose(usize),
    Withdraw(u8),
    Reserve(usize, u8),
    Unreserve(u8),
    Hold(usize, u8),
    LetGo(usize, u8),
    Appear(usize),
    Vanish(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (pool, last) = (0..MEMBERS.len(), 1..=10_u8);
    let step = prop_oneof![
        pool.clone().prop_map(Step::Propose),
        last.clone().prop_map(Step::Withdraw),
        (pool.clone(), last.clone()).prop_map(|(pool, last)| Step::Reserve(pool, last)),
        last.clone().prop_map(Step::Unreserve),
        (pool.clone(), last.clone()).prop_map(|(pool, last)| Step::Hold(pool, last)),
        (pool.clone(), last).prop_map(|(pool, last)| Step::LetGo(pool, last)),
        pool.clone().prop_map(Step::Appear),
        pool.prop_map(Step::Vanish),
    ];
    proptest::collection::vec(step, 0..100)
}

fn object(pool: usize) -> InClusterIPPool {
    let (name, first, last) = MEMBERS[pool];
    member(name, &format!("10.0.0.{first}-10.0.0.{last}"))
}

fn reserved_in_lab(pool: usize, last: u8) -> IPReservation {
    serde_json::from_value(json!({
        "metadata": {"name": in_lab(last).reservation_name(), "uid": format!("r-{last}")},
        "spec": {"scope": "n.lab", "address": block(last).to_string(), "claimRef": held_by("x"),
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": MEMBERS[pool].0}},
    }))
    .unwrap()
}

fn held(pool: usize, last: u8) -> IPAddress {
    let mut held = address(&format!("{}-{last}", MEMBERS[pool].0), last);
    held.spec.pool_ref.name = MEMBERS[pool].0.to_owned();
    held
}

proptest! {
    /// Whatever happens in whatever order, what is taken in one pool of a network is taken in all.
    #[test]
    fn a_network_agrees_with_a_naive_model(steps in steps()) {
        let ledger = ledger();
        ledger.applied(&unit(Family::V4, 32));
        let (mut proposed, mut reserved, mut holders) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        // Once seen, a pool that is gone is still known to have been in the network, as long as it has addresses.
        let mut there = [true; MEMBERS.len()];
        (0..MEMBERS.len()).for_each(|pool| ledger.applied(&object(pool)));
        for step in steps {
            match step {
                Step::Propose(pool) => {
                    let (name, first, last) = MEMBERS[pool];
                    let taken = |last: &u8| {
                        proposed.contains(last) || reserved.contains(last) || holders.iter().any(|(_, held)| held == last)
                    };
                    let lowest = (first..=last).find(|last| !taken(last)).filter(|_| there[pool]);
                    let claim = claim("c");
                    let got = ledger.propose(&named(name), &claim, 1);
                    prop_assert_eq!(got, lowest.map_or(Proposal::Wait, |last| Proposal::Slot(in_lab(last))));
                    proposed.extend(lowest);
                    ledger.leave_line(&named(name), &claim);
                }
                Step::Withdraw(last) => {
                    ledger.withdraw(&in_lab(last));
                    proposed.remove(&last);
                }
                Step::Reserve(pool, last) => {
                    ledger.applied(&reserved_in_lab(pool, last));
                    reserved.insert(last);
                    proposed.remove(&last);
                }
                Step::Unreserve(last) => {
                    ledger.remove_reservation(&reserved_in_lab(0, last));
                    reserved.remove(&last);
                }
                Step::Hold(pool, last) if there[pool] => {
                    ledger.applied(&held(pool, last));
                    holders.insert((pool, last));
                }
                Step::LetGo(pool, last) => {
                    ledger.deleted(&held(pool, last));
                    holders.remove(&(pool, last));
                }
                Step::Appear(pool) => {
                    ledger.applied(&object(pool));
                    there[pool] = true;
                }
                Step::Vanish(pool) => {
                    Observer::<InClusterIPPool>::deleted(&ledger, &object(pool));
                    there[pool] = false;
                }
                Step::Hold(..) => {}
            }
            let taken: BTreeSet<u8> =
                proposed.iter().chain(&reserved).copied().chain(holders.iter().map(|(_, last)| *last)).collect();
            for (pool, (name, first, last)) in MEMBERS.into_iter().enumerate() {
                let mine = |inside: bool| {
                    let inside = |held: &u8| (there[pool] && (first..=last).contains(held)) == inside;
                    holders.iter().filter(|(owner, held)| *owner == pool && inside(held)).count()
                };
                let size = if there[pool] { usize::from(last - first) + 1 } else { 0 };
                let free = if there[pool] { size - taken.range(first..=last).count() } else { 0 };
                let counts = ledger.counts(&named(name));
                let expected = [size, free, mine(true), mine(false)].map(|count| i64::try_from(count).unwrap());
                prop_assert_eq!([counts.total, counts.free, counts.used, counts.out_of_range], expected);
            }
        }
    }

    /// Prefixes of any lengths come and go; free is what none of them touches.
    #[test]
    fn lengths_that_differ_agree_with_a_naive_model(
        steps in proptest::collection::vec((60..=67_u8, 0..64_u128, proptest::bool::ANY), 0..60),
    ) {
        let ledger = ledger();
        ledger.applied(&prefix_pool(64));
        let whole = capi_ipam_ip::parse_entry("fd00::/61").unwrap().span;
        let mut present = BTreeSet::new();
        for (length, number, comes) in steps {
            let base = Family::V6.address(whole.first() | (number << 61));
            let block = Block::new(base, length);
            let object = prefix_address(&block.to_string(), &block.base().to_string(), length);
            if comes {
                ledger.applied(&object);
                present.insert(block);
            } else {
                ledger.deleted(&object);
                present.remove(&block);
            }
            let units = (0..8_u128).map(|unit| Block::new(Family::V6.address(whole.first() | (unit << 64)), 64));
            let touched = |unit: &Block| {
                let span = unit.span();
                present.iter().any(|block| block.span().first() <= span.last() && span.first() <= block.span().last())
            };
            let free = units.filter(|unit| !touched(unit)).count();
            let is_unit = |block: &&Block| block.length() == 64 && whole.contains(block.span().first());
            let used = present.iter().filter(is_unit).count();
            let counts = ledger.counts(&prefix_key());
            let expected = [8, free, used, present.len() - used].map(|count| i64::try_from(count).unwrap());
            prop_assert_eq!([counts.total, counts.free, counts.used, counts.out_of_range], expected);
        }
    }
}
