use std::net::IpAddr;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{MAX_PROBLEMS, parse_entry};

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A pool that owns its texts.
#[derive(Debug, Clone)]
struct Pool {
    addresses: Vec<String>,
    excluded: Vec<String>,
    prefix: i64,
    gateway: Option<String>,
    allocate_reserved: bool,
}

impl Pool {
    fn new(addresses: &[&str], prefix: i64) -> Pool {
        Pool {
            addresses: strings(addresses),
            excluded: Vec::new(),
            prefix,
            gateway: None,
            allocate_reserved: false,
        }
    }

    fn excluding(mut self, excluded: &[&str]) -> Pool {
        self.excluded = strings(excluded);
        self
    }

    fn gateway(mut self, gateway: &str) -> Pool {
        self.gateway = Some(gateway.to_owned());
        self
    }

    fn with_reserved(mut self) -> Pool {
        self.allocate_reserved = true;
        self
    }

    fn usable(&self) -> Result<UsableBlocks, Vec<PoolProblem>> {
        PoolAddresses {
            addresses: &self.addresses,
            excluded: &self.excluded,
            prefix: self.prefix,
            gateway: self.gateway.as_deref(),
            allocate_reserved: self.allocate_reserved,
            ..PoolAddresses::default()
        }
        .usable()
    }

    /// The spans of the usable set in canonical form.
    fn spans(&self) -> Vec<String> {
        let usable = self
            .usable()
            .unwrap_or_else(|problems| panic!("{problems:?}"));
        let family = usable.family;
        let texts = usable
            .set
            .spans()
            .iter()
            .map(|&span| Entry { family, span }.to_string());
        texts.collect()
    }

    fn problems(&self) -> Vec<String> {
        let problems = self.usable().expect_err("the pool has problems");
        problems.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn reserved_addresses_and_gateway_are_not_usable() {
    let cases: Vec<(Pool, &[&str])> = vec![
        (Pool::new(&["10.0.0.0/24"], 24), &["10.0.0.1-10.0.0.254"]),
        (
            Pool::new(&["10.0.0.0/24"], 24).with_reserved(),
            &["10.0.0.0/24"],
        ),
        (Pool::new(&["10.0.0.0/24"], 16), &["10.0.0.1-10.0.0.255"]),
        (
            Pool::new(&["10.0.255.0/24"], 16),
            &["10.0.255.0-10.0.255.254"],
        ),
        (Pool::new(&["10.0.0.4/30"], 30), &["10.0.0.5-10.0.0.6"]),
        (Pool::new(&["10.0.0.4/31"], 31), &["10.0.0.4/31"]),
        (Pool::new(&["10.0.0.4"], 32), &["10.0.0.4"]),
        (
            Pool::new(&["fd00::/64"], 64),
            &["fd00::1-fd00::ffff:ffff:ffff:ffff"],
        ),
        (
            Pool::new(&["fd00::/64"], 64).with_reserved(),
            &["fd00::/64"],
        ),
        (Pool::new(&["fd00::4/126"], 126), &["fd00::5-fd00::7"]),
        (Pool::new(&["fd00::4/127"], 127), &["fd00::4/127"]),
        (Pool::new(&["fd00::4"], 128), &["fd00::4"]),
        (
            Pool::new(&["10.0.0.0/29"], 24).gateway("10.0.0.1"),
            &["10.0.0.2-10.0.0.7"],
        ),
        (
            Pool::new(&["10.0.0.0/29"], 29)
                .gateway("10.0.0.3")
                .with_reserved(),
            &["10.0.0.0-10.0.0.2", "10.0.0.4/30"],
        ),
        (
            Pool::new(&["10.0.0.8/30"], 24).gateway("192.168.0.1"),
            &["10.0.0.8/30"],
        ),
        (
            Pool::new(&["10.0.0.8/30"], 24).gateway(""),
            &["10.0.0.8/30"],
        ),
        (
            Pool::new(&["10.0.0.4/31"], 31).gateway("10.0.0.4"),
            &["10.0.0.5"],
        ),
    ];
    for (pool, expected) in cases {
        assert_eq!(pool.spans(), expected, "{pool:?}");
    }
}

#[test]
fn exclusions_are_subtracted_and_entries_merged() {
    let cases: Vec<(Pool, &[&str])> = vec![
        (
            Pool::new(
                &["10.0.0.20-10.0.0.29", "10.0.0.10-10.0.0.19", "10.0.0.25"],
                24,
            ),
            &["10.0.0.10-10.0.0.29"],
        ),
        (
            Pool::new(&["10.0.0.10-10.0.0.29"], 24).excluding(&["10.0.0.16/29", "10.0.0.29"]),
            &["10.0.0.10-10.0.0.15", "10.0.0.24-10.0.0.28"],
        ),
        (
            Pool::new(&["10.0.0.8/30"], 24).excluding(&["172.16.0.0/12", "0.0.0.0/24"]),
            &["10.0.0.8/30"],
        ),
        (
            Pool::new(&["10.0.0.8/30"], 24).excluding(&["0.0.0.0/0"]),
            &[],
        ),
        (Pool::new(&["10.0.0.1"], 24).gateway("10.0.0.1"), &[]),
        (Pool::new(&["10.0.0.0", "10.0.0.255"], 24), &[]),
    ];
    for (pool, expected) in cases {
        assert_eq!(pool.spans(), expected, "{pool:?}");
    }
}

#[test]
fn usable_blocks_have_prefix_gateway_and_subnet() {
    let pool = Pool::new(&["10.0.5.9-10.0.6.1", "10.0.0.7"], 16).gateway("10.1.0.1");
    let usable = pool.usable().expect("no problems");
    assert_eq!(usable.family, Family::V4);
    let range = &usable.ranges[0];
    assert_eq!(
        (range.prefix, range.gateway),
        (16, Some(IpAddr::from([10, 1, 0, 1])))
    );
    assert_eq!(range.subnet.expect("a subnet").to_string(), "10.0.0.0/16");
    let none = Pool::new(&["fd00:0:0:1::5"], 48)
        .gateway("")
        .usable()
        .expect("no problems");
    assert_eq!((none.family, none.ranges[0].gateway), (Family::V6, None));
    assert_eq!(
        none.ranges[0].subnet.expect("a subnet").to_string(),
        "fd00::/48"
    );
}

#[test]
fn largest_pools_are_supported() {
    let all = Pool::new(&["0.0.0.0/0"], 0);
    assert_eq!(all.spans(), ["0.0.0.1-255.255.255.254"]);
    assert_eq!(all.with_reserved().spans(), ["0.0.0.0/0"]);
    let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let above = format!("::1:0:0:0-{last}");
    let all = Pool::new(&["::/0"], 0);
    assert_eq!(all.spans(), ["::1-::fffe:ffff:ffff", &above]);
    let all = all.with_reserved();
    assert_eq!(all.spans(), ["::-::fffe:ffff:ffff", &above]);
    assert_eq!(
        all.usable().expect("no problems").set.len(),
        u128::MAX - (1 << 32) + 1
    );
}

#[test]
fn ipv4_mapped_addresses_are_never_usable() {
    let pool = Pool::new(&["::fffe:ffff:ffff-::1:0:0:0"], 64).with_reserved();
    assert_eq!(pool.spans(), ["::fffe:ffff:ffff", "::1:0:0:0"]);
}

#[test]
fn every_problem_names_its_field() {
    let cases: Vec<(Pool, &[&str])> = vec![
        (Pool::new(&[], 24), &["spec.addresses: is required"]),
        (
            Pool::new(&[], 129).excluding(&["a"]).gateway("b"),
            &[
                "spec.addresses: is required",
                "spec.excludedAddresses[0]: \"a\" is not an IPv4 or IPv6 address",
                "spec.gateway: \"b\" is not an IPv4 or IPv6 address",
                "spec.prefix: 129 is not between 0 and 128",
            ],
        ),
        (
            Pool::new(&["10.0.0.0/16", "10.1.0.0/24"], 16),
            &["spec.addresses[1]: 10.1.0.0/24 is not within the subnet 10.0.0.0/16"],
        ),
        (
            Pool::new(&["10.0.0.0/24"], 26),
            &["spec.addresses[0]: 10.0.0.0/24 is not within the subnet 10.0.0.0/26"],
        ),
        (
            Pool::new(&["10.0.0.250-10.0.1.5"], 24),
            &["spec.addresses[0]: 10.0.0.250-10.0.1.5 is not within the subnet 10.0.0.0/24"],
        ),
        (
            Pool::new(&["10.0.1.1", "10.0.0.250-10.0.1.5"], 24),
            &["spec.addresses[1]: 10.0.0.250-10.0.1.5 is not within the subnet 10.0.1.0/24"],
        ),
        (
            Pool::new(&["", "fd00::1", "10.0.0.1"], 24)
                .excluding(&["10.0.0.2"])
                .gateway("10.0.0.3"),
            &[
                "spec.addresses[0]: the text \"\" is empty; write an IPv4 or IPv6 address",
                "spec.addresses[2]: 10.0.0.1 is IPv4, but the pool's first entry is IPv6",
                "spec.excludedAddresses[0]: 10.0.0.2 is IPv4, but the pool's first entry is IPv6",
                "spec.gateway: 10.0.0.3 is IPv4, but the pool's first entry is IPv6",
            ],
        ),
        (
            Pool::new(&["10.0.0.1"], -1),
            &["spec.prefix: -1 is not between 0 and 32"],
        ),
        (
            Pool::new(&["10.0.0.1"], 33),
            &["spec.prefix: 33 is not between 0 and 32"],
        ),
        (
            Pool::new(&["10.0.0.1"], 256 + 24),
            &["spec.prefix: 280 is not between 0 and 32"],
        ),
        (
            Pool::new(&["fd00::1"], 129),
            &["spec.prefix: 129 is not between 0 and 128"],
        ),
        (
            Pool::new(&["10.0.0.1"], 24).gateway("10.0.0.1/24"),
            &["spec.gateway: \"10.0.0.1/24\" is not an IPv4 or IPv6 address"],
        ),
        (
            Pool::new(&["10.0.0.9", "x", "10.1.0.1"], 24),
            &[
                "spec.addresses[1]: \"x\" is not an IPv4 or IPv6 address",
                "spec.addresses[2]: 10.1.0.1 is not within the subnet 10.0.0.0/24",
            ],
        ),
    ];
    for (pool, expected) in cases {
        assert_eq!(pool.problems(), expected, "{pool:?}");
    }
    let extreme = [i64::MIN, i64::MAX].map(|prefix| Pool::new(&["::"], prefix).problems().len());
    assert_eq!(extreme, [1, 1]);
}

#[test]
fn first_problems_are_returned() {
    let mut pool = Pool::new(&["10.0.0.1"], 24);
    pool.addresses
        .extend((0..500).map(|index| format!("10.9.0.{}", index % 256)));
    pool.excluded = vec!["x".to_owned(); 500];
    let problems = pool.usable().expect_err("the pool has problems");
    let fields: Vec<Field> = problems.iter().map(|problem| problem.field).collect();
    let expected: Vec<Field> = (1..=MAX_PROBLEMS).map(Field::Address).collect();
    assert_eq!(fields, expected);
}

#[test]
fn thousands_of_entries_are_fast() {
    let mut pool = Pool::new(&[], 8);
    for index in 0..4_000_u32 {
        let high = index / 200;
        let low = index % 200;
        pool.addresses.push(format!("10.{high}.{low}.0/25"));
        pool.excluded
            .push(format!("10.{high}.{low}.3-10.{high}.{low}.9"));
    }
    let start = Instant::now();
    let usable = pool.usable().expect("no problems");
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(usable.set.len(), 4_000 * (128 - 7) - 1);
    assert_eq!(usable.set.spans().len(), 8_000);
}

/// Texts that sometimes form a valid pool.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "10\\.0\\.[0-3]\\.[0-9]{1,2}(/(2[0-9]|3[0-2]))?",
        "10\\.0\\.0\\.[0-9]{1,2}-10\\.0\\.[0-3]\\.[0-9]{1,2}",
        "fd00::[0-9a-f]{1,3}(/1[0-2][0-9])?",
        "[0-9a-f:./-]{0,20}",
    ]
}

proptest! {
    #[test]
    fn usable_addresses_follow_the_rules(
        addresses in vec(texts(), 0..4),
        excluded in vec(texts(), 0..4),
        prefix in prop_oneof![-2..140_i64, 8..33_i64],
        gateway in prop::option::of(texts()),
        allocate_reserved: bool,
    ) {
        let pool = Pool { addresses, excluded, prefix, gateway, allocate_reserved };
        match pool.usable() {
            Err(problems) => {
                prop_assert!(!problems.is_empty() && problems.len() <= MAX_PROBLEMS);
                prop_assert!(problems.is_sorted_by_key(|problem| problem.field));
            }
            Ok(usable) => {
                let read = |texts: &[String]| -> SpanSet {
                    texts.iter().map(|text| parse_entry(text).expect("no problems").span).collect()
                };
                let (given, excluded) = (read(&pool.addresses), read(&pool.excluded));
                prop_assert_eq!(&usable.set.intersect(&given), &usable.set);
                prop_assert!(usable.set.intersect(&excluded).is_empty());
                let subnet = Span::from(usable.ranges[0].subnet.expect("a subnet"));
                prop_assert!(given.subtract(&SpanSet::from(subnet)).is_empty());
                let may_miss = [subnet.first(), subnet.last()];
                let gateway = usable.ranges[0].gateway.map(Family::to_number);
                for missing in given.subtract(&excluded).subtract(&usable.set).spans() {
                    for number in missing.first()..=missing.last() {
                        let reserved = !allocate_reserved && may_miss.contains(&number);
                        prop_assert!(reserved || gateway == Some(number));
                    }
                }
                prop_assert!(gateway.is_none_or(|number| !usable.set.contains(number)));
            }
        }
    }
}
