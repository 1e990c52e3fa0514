use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Block, FreeSet, PoolAddresses, PoolPrefixes, PoolProblem, UsableBlocks};

/// Entries, prefix length and gateway of a range.
type Given<'a> = (&'a [&'a str], i64, Option<&'a str>);

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn with_ranges<T>(given: &[Given<'_>], call: impl FnOnce(&[PoolRange<'_>]) -> T) -> T {
    let entries: Vec<Vec<String>> = given.iter().map(|(entries, ..)| strings(entries)).collect();
    let ranges: Vec<PoolRange<'_>> = given
        .iter()
        .zip(&entries)
        .map(|((_, prefix, gateway), entries)| PoolRange {
            entries,
            prefix: *prefix,
            gateway: *gateway,
        })
        .collect();
    call(&ranges)
}

fn addresses(
    addresses: &[&str],
    prefix: i64,
    given: &[Given<'_>],
    draining: &[&str],
) -> Result<UsableBlocks, Vec<PoolProblem>> {
    let (addresses, draining) = (strings(addresses), strings(draining));
    with_ranges(given, |ranges| {
        let gateway = (!addresses.is_empty()).then_some("10.0.0.1");
        let pool = PoolAddresses {
            addresses: &addresses,
            prefix,
            gateway,
            ranges,
            draining: &draining,
            ..PoolAddresses::default()
        };
        pool.usable()
    })
}

fn prefixes(
    prefixes: &[&str],
    given: &[Given<'_>],
    draining: &[&str],
) -> Result<UsableBlocks, Vec<PoolProblem>> {
    let (prefixes, draining) = (strings(prefixes), strings(draining));
    with_ranges(given, |ranges| {
        PoolPrefixes {
            prefixes: &prefixes,
            length: 64,
            ranges,
            draining: &draining,
            ..PoolPrefixes::default()
        }
        .usable()
    })
}

/// All blocks of the pool in the order LowestFirst, with their prefix length and gateway.
fn in_order(usable: &UsableBlocks) -> Vec<String> {
    let mut free = FreeSet::new(&usable.set.subtract(&usable.draining));
    let next = || {
        let number = usable.first_free(&free)?;
        free.take(number);
        let block = usable.block(number);
        let gateway = usable
            .gateway_of(block)
            .map(|gateway| format!(" {gateway}"))
            .unwrap_or_default();
        Some(format!(
            "{}/{}{gateway}",
            block.base(),
            usable.prefix_of(block)
        ))
    };
    std::iter::from_fn(next).collect()
}

fn texts(problems: Result<UsableBlocks, Vec<PoolProblem>>) -> Vec<String> {
    problems
        .expect_err("the pool has problems")
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn ranges_are_used_in_their_order() {
    let first: Given<'_> = (&["10.9.0.4/30"], 30, Some("10.9.0.5"));
    let second: Given<'_> = (&["10.2.0.3", "10.2.0.1"], 24, None);
    let usable = addresses(&["10.0.0.0/30"], 30, &[first, second], &[]).unwrap();
    assert_eq!(
        in_order(&usable),
        [
            "10.0.0.2/30 10.0.0.1",
            "10.9.0.6/30 10.9.0.5",
            "10.2.0.1/24",
            "10.2.0.3/24"
        ]
    );
    let only_ranges = addresses(&[], 0, &[second, first], &[]).unwrap();
    assert_eq!(
        in_order(&only_ranges),
        ["10.2.0.1/24", "10.2.0.3/24", "10.9.0.6/30 10.9.0.5"]
    );
    // Two ranges in one subnet, whose entries alternate.
    let odd: Given<'_> = (&["10.2.0.5", "10.2.0.3", "10.2.0.7"], 24, Some("10.2.0.1"));
    let even: Given<'_> = (&["10.2.0.6", "10.2.0.4"], 24, Some("10.2.0.2"));
    let expected = [3, 5, 7].map(|byte| format!("10.2.0.{byte}/24 10.2.0.1"));
    let expected = expected
        .into_iter()
        .chain([4, 6].map(|byte| format!("10.2.0.{byte}/24 10.2.0.2")));
    assert_eq!(
        in_order(&addresses(&[], 0, &[odd, even], &[]).unwrap()),
        expected.collect::<Vec<_>>()
    );
}

#[test]
fn ranges_of_ipv6_and_of_prefixes() {
    let given: [Given<'_>; 2] = [
        (&["fd00:2::/127"], 127, Some("fd00:9::1")),
        (&["fd00:1::1-fd00:1::2"], 64, Some("fd00:1::1")),
    ];
    let usable = addresses(&[], 0, &given, &[]).unwrap();
    assert_eq!(
        in_order(&usable),
        [
            "fd00:2::/127 fd00:9::1",
            "fd00:2::1/127 fd00:9::1",
            "fd00:1::2/64 fd00:1::1"
        ]
    );
    let given: [Given<'_>; 1] = [(&["fd00:1::/63"], 0, Some("fe80::1"))];
    let usable = prefixes(&["fd00:2::/64"], &given, &[]).unwrap();
    assert_eq!(
        in_order(&usable),
        [
            "fd00:2::/64",
            "fd00:1::/64 fe80::1",
            "fd00:1:0:1::/64 fe80::1"
        ]
    );
    assert_eq!(
        in_order(&prefixes(&[], &given, &["fd00:1::5"]).unwrap()),
        ["fd00:1:0:1::/64 fe80::1"]
    );
}

#[test]
fn draining_addresses_are_in_the_pool() {
    let given: [Given<'_>; 1] = [(&["10.2.0.1-10.2.0.4"], 24, None)];
    let usable = addresses(
        &["10.0.0.2", "10.0.0.3"],
        24,
        &given,
        &["10.0.0.0/24", "10.2.0.2-10.2.0.3"],
    )
    .unwrap();
    assert_eq!(in_order(&usable), ["10.2.0.1/24", "10.2.0.4/24"]);
    let block = |text: &str| Block::address(text.parse().unwrap());
    assert!(usable.contains(block("10.0.0.2")) && usable.is_draining(block("10.0.0.2")));
    assert!(
        !usable.is_draining(block("10.0.0.1")),
        "the gateway is not in the pool"
    );
    assert_eq!((usable.set.len(), usable.draining.len()), (6, 4));
}

#[test]
fn every_problem_of_a_range_names_its_field() {
    let good: Given<'_> = (&["10.1.0.0/24"], 24, Some("10.9.0.1"));
    let cases: [(Given<'_>, &[&str], &[&str]); 8] = [
        (
            (&[], 24, None),
            &[],
            &["spec.ranges[1].addresses: is required"],
        ),
        (
            (
                &["10.2.0.1", "10.0.0.9-10.0.0.12", "10.1.0.255/32"],
                8,
                None,
            ),
            &[],
            &[
                "spec.ranges[1].addresses[1]: 10.0.0.9-10.0.0.12 overlaps with spec.addresses; an address is in one \
                 range only",
                "spec.ranges[1].addresses[2]: 10.1.0.255/32 overlaps with spec.ranges[0]; an address is in one range \
                 only",
            ],
        ),
        (
            (&["10.2.0.1", "10.3.0.1"], 24, None),
            &[],
            &["spec.ranges[1].addresses[1]: 10.3.0.1 is not within the subnet 10.2.0.0/24"],
        ),
        (
            (&["10.2.0.1"], 33, None),
            &[],
            &["spec.ranges[1].prefix: 33 is not between 0 and 32"],
        ),
        (
            (&["10.2.0.1"], -1, None),
            &[],
            &["spec.ranges[1].prefix: -1 is not between 0 and 32"],
        ),
        (
            (&["fd00::1"], 64, Some("fd00::2")),
            &[],
            &[
                "spec.ranges[1].addresses[0]: fd00::1 is IPv6, but the pool's first entry is IPv4",
                "spec.ranges[1].gateway: fd00::2 is IPv6, but the pool's first entry is IPv4",
            ],
        ),
        (
            (&["10.2.0.1"], 24, Some("10.2.0.0/24")),
            &[],
            &["spec.ranges[1].gateway: \"10.2.0.0/24\" is not an IPv4 or IPv6 address"],
        ),
        (
            (&["10.2.0.1"], 24, None),
            &["10.0.0.0/24", "fd00::/64"],
            &["spec.draining[1]: fd00::/64 is IPv6, but the pool's first entry is IPv4"],
        ),
    ];
    for (range, draining, expected) in cases {
        assert_eq!(
            texts(addresses(&["10.0.0.10"], 24, &[good, range], draining)),
            expected,
            "{range:?}"
        );
    }
    let given: [Given<'_>; 2] = [
        (&[], 0, None),
        (&["fd00:2::/64", "fd00::/65", "fd00:3::1/64"], 0, None),
    ];
    let expected = [
        "spec.ranges[0].prefixes: is required",
        "spec.ranges[1].prefixes[1]: fd00::/65 is longer than the allocation prefix length 64",
        "spec.ranges[1].prefixes[1]: fd00::/65 overlaps with spec.prefixes; an address is in one range only",
        "spec.ranges[1].prefixes[2]: fd00:3::1/64 has host bits set; write fd00:3::/64",
    ];
    assert_eq!(texts(prefixes(&["fd00::/64"], &given, &[])), expected);
    let many = vec![good; MAX_RANGES + 1];
    let problems = texts(addresses(&[], 0, &many, &[]));
    assert!(
        problems.contains(&"spec.ranges: has 65 ranges, which is more than 64".to_owned()),
        "{problems:?}"
    );
    assert_eq!(
        texts(addresses(&[], 0, &[], &[])),
        ["spec.addresses: is required"]
    );
}

proptest! {
    #[test]
    fn order_agrees_with_a_list(
        order in vec(0..4_u8, 1..4),
        hosts in vec((0..3_usize, 1..40_u8), 1..40),
        draining in vec(0..40_u8, 0..4),
        free in vec(any::<bool>(), 40 * 4),
    ) {
        let mut order = order;
        order.sort_unstable();
        order.dedup();
        order.reverse();
        let mut lists: Vec<Vec<String>> = vec![Vec::new(); order.len()];
        for (index, host) in hosts {
            let index = index % order.len();
            lists[index].push(format!("10.0.{}.{host}", order[index]));
        }
        let third = |index: usize| order[index];
        let ranges: Vec<PoolRange<'_>> = lists
            .iter()
            .filter(|entries| !entries.is_empty())
            .map(|entries| PoolRange { entries, prefix: 24, gateway: None })
            .collect();
        let draining: Vec<String> =
            draining.iter().map(|host| format!("10.0.{}.{host}", third(usize::from(*host) % order.len()))).collect();
        let usable = PoolAddresses { ranges: &ranges, draining: &draining, ..PoolAddresses::default() }.usable();
        let usable = usable.unwrap();
        let is_free = |text: &str| {
            let [.., third, host] = text.split('.').map(|byte| byte.parse().unwrap()).collect::<Vec<usize>>()[..] else {
                return false;
            };
            free[third * 40 + host] && !draining.iter().any(|entry| entry == text)
        };
        let number = |text: &String| usable.number(Block::address(text.parse().unwrap())).unwrap();
        let mut set = FreeSet::without(
            &usable.set.subtract(&usable.draining),
            lists.iter().flatten().filter(|text| !is_free(text)).map(number),
        );
        let mut expected = Vec::new();
        for list in &lists {
            let mut numbers: Vec<u128> = list.iter().filter(|text| is_free(text)).map(number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            expected.extend(numbers);
        }
        for expected in expected {
            prop_assert_eq!(usable.first_free(&set), Some(expected));
            set.take(expected);
        }
        prop_assert_eq!(usable.first_free(&set), None);
    }
}
