//! Property tests against naive models: pools that share addresses, and prefixes of different
//! lengths.

use super::*;

/// The pools of the network: names and address ranges, first and last.
const MEMBERS: [(&str, u8, u8); 3] = [("p", 1, 6), ("q", 4, 9), ("r", 2, 3)];

#[derive(Clone, Debug)]
enum Step {
    Propose(usize),
    Drop(u8),
    Reserve(usize, u8),
    Unreserve(u8),
    InsertAddress(usize, u8),
    RemoveAddress(usize, u8),
    CreatePool(usize),
    DeletePool(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (pool, last) = (0..MEMBERS.len(), 1..=10_u8);
    let step = prop_oneof![
        pool.clone().prop_map(Step::Propose),
        last.clone().prop_map(Step::Drop),
        (pool.clone(), last.clone()).prop_map(|(pool, last)| Step::Reserve(pool, last)),
        last.clone().prop_map(Step::Unreserve),
        (pool.clone(), last.clone()).prop_map(|(pool, last)| Step::InsertAddress(pool, last)),
        (pool.clone(), last).prop_map(|(pool, last)| Step::RemoveAddress(pool, last)),
        pool.clone().prop_map(Step::CreatePool),
        pool.prop_map(Step::DeletePool),
    ];
    proptest::collection::vec(step, 0..100)
}

fn object(pool: usize) -> Pool {
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
    /// An address that is used in one pool of a network is used in all.
    #[test]
    fn network_agrees_with_a_naive_model(steps in steps()) {
        let mut ledger = with_lab();
        let (mut proposed, mut reserved, mut holders) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        // The network of a deleted pool is known as long as the pool has addresses.
        let mut exists = [true; MEMBERS.len()];
        (0..MEMBERS.len()).for_each(|pool| ledger.apply_pool(&object(pool)));
        for step in steps {
            match step {
                Step::Propose(pool) => {
                    let (name, first, last) = MEMBERS[pool];
                    let taken = |last: &u8| {
                        proposed.contains(last) || reserved.contains(last) || holders.iter().any(|(_, held)| held == last)
                    };
                    let lowest = (first..=last).find(|last| !taken(last)).filter(|_| exists[pool]);
                    let claim = claim("c");
                    let got = ledger.propose(&named(name), &claim, 1);
                    prop_assert_eq!(got, lowest.map_or(Outcome::NO_ADDRESS, |last| Outcome::Offer(in_lab(last))));
                    proposed.extend(lowest);
                    ledger.stop_waiting(&named(name), &claim);
                }
                Step::Drop(last) => {
                    ledger.drop_candidate(&in_lab(last));
                    proposed.remove(&last);
                }
                Step::Reserve(pool, last) => {
                    ledger.apply(&reserved_in_lab(pool, last));
                    reserved.insert(last);
                    proposed.remove(&last);
                }
                Step::Unreserve(last) => {
                    ledger.delete(&reserved_in_lab(0, last));
                    reserved.remove(&last);
                }
                Step::InsertAddress(pool, last) if exists[pool] => {
                    ledger.apply(&held(pool, last));
                    holders.insert((pool, last));
                }
                Step::RemoveAddress(pool, last) => {
                    ledger.delete(&held(pool, last));
                    holders.remove(&(pool, last));
                }
                Step::CreatePool(pool) => {
                    ledger.apply_pool(&object(pool));
                    exists[pool] = true;
                }
                Step::DeletePool(pool) => {
                    ledger.remove_pool(&PoolKey::of(&object(pool)));
                    exists[pool] = false;
                }
                Step::InsertAddress(..) => {}
            }
            let taken: BTreeSet<u8> =
                proposed.iter().chain(&reserved).copied().chain(holders.iter().map(|(_, last)| *last)).collect();
            for (pool, (name, first, last)) in MEMBERS.into_iter().enumerate() {
                let mine = |inside: bool| {
                    let inside = |held: &u8| (exists[pool] && (first..=last).contains(held)) == inside;
                    holders.iter().filter(|(owner, held)| *owner == pool && inside(held)).count()
                };
                let size = if exists[pool] { usize::from(last - first) + 1 } else { 0 };
                let free = if exists[pool] { size - taken.range(first..=last).count() } else { 0 };
                let counts = ledger.pools().counts(&named(name));
                let expected = [size, free, mine(true), mine(false)].map(|count| i64::try_from(count).unwrap());
                prop_assert_eq!([counts.total, counts.free, counts.used, counts.out_of_range], expected);
            }
        }
    }

    /// Prefixes of any length are added and removed. Those blocks are free that overlap with none
    /// of them.
    #[test]
    fn prefixes_of_any_length_agree_with_a_naive_model(
        steps in proptest::collection::vec((60..=67_u8, 0..64_u128, proptest::bool::ANY), 0..60),
    ) {
        let mut ledger = ledger();
        ledger.apply_pool(&prefix_pool(64));
        let whole = capi_ipam_ip::parse_entry("fd00::/61").unwrap().span;
        let mut present = BTreeSet::new();
        for (length, number, is_added) in steps {
            let base = Family::V6.address(whole.first() | (number << 61));
            let block = Block::new(base, length);
            let object = prefix_address(&block.to_string(), &block.base().to_string(), length);
            if is_added {
                ledger.apply(&object);
                present.insert(block);
            } else {
                ledger.delete(&object);
                present.remove(&block);
            }
            let blocks = (0..8_u128).map(|index| Block::new(Family::V6.address(whole.first() | (index << 64)), 64));
            let overlaps = |candidate: &Block| {
                let span = candidate.span();
                present.iter().any(|block| block.span().first() <= span.last() && span.first() <= block.span().last())
            };
            let free = blocks.filter(|block| !overlaps(block)).count();
            let is_in_pool = |block: &&Block| block.length() == 64 && whole.contains(block.span().first());
            let used = present.iter().filter(is_in_pool).count();
            let counts = ledger.pools().counts(&prefix_key());
            let expected = [8, free, used, present.len() - used].map(|count| i64::try_from(count).unwrap());
            prop_assert_eq!([counts.total, counts.free, counts.used, counts.out_of_range], expected);
        }
    }
}
