//! Pools of prefixes, which allocate prefixes of one length.

use ipnet::IpNet;

use crate::pool::ranges::{ParsedRange, PoolRange, RangeField};
use crate::pool::{Field, Item, PoolProblemKind, Problems, ipv4_mapped};
use crate::{Family, PoolProblem, Span, SpanSet, UsableBlocks, UsableRange, parse_entry};

/// The prefixes in the spec of a pool.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolPrefixes<'a> {
    /// The prefixes of the pool in CIDR notation, which are divided into the prefixes to allocate.
    /// They can be empty if there are ranges.
    pub prefixes: &'a [String],
    /// The entries, see [`parse_entry`], with addresses that no allocated prefix may contain.
    pub excluded: &'a [String],
    /// The length of the allocated prefixes in bits.
    pub length: i64,
    /// The gateway of each allocated prefix. It can be within an allocated prefix. An empty text
    /// means no gateway.
    pub gateway: Option<&'a str>,
    /// Further prefixes with other gateways, used after `prefixes`.
    pub ranges: &'a [PoolRange<'a>],
    /// The entries whose prefixes are no longer allocated, but can be in use.
    pub draining: &'a [String],
}

impl PoolPrefixes<'_> {
    /// Validates the pool and returns the prefixes that it can allocate, or its problems in the
    /// order of [`Field`], at most [`MAX_PROBLEMS`](crate::MAX_PROBLEMS).
    ///
    /// The usable prefixes are those of the allocation length within the prefixes of the pool,
    /// except those that overlap with an excluded entry or with the IPv4-mapped addresses.
    pub fn usable(&self) -> Result<UsableBlocks, Vec<PoolProblem>> {
        let mut problems = Problems::default();
        if self.prefixes.is_empty() && self.ranges.is_empty() {
            problems.add(Field::Prefixes, "", PoolProblemKind::Required);
        }
        let own = ParsedRange {
            field: Field::Prefixes,
            items: problems.parse_prefixes(Field::PrefixEntry, self.prefixes),
            gateway: problems.parse_gateway(Field::Gateway, self.gateway),
        };
        let excluded = problems.parse_all(Field::ExcludedPrefix, self.excluded);
        let draining = problems.parse_all(Field::Draining, self.draining);
        let given = problems.limit_ranges(self.ranges).iter().enumerate();
        let more: Vec<ParsedRange<'_>> = given
            .map(|(index, range)| problems.parse_prefix_range(index, range))
            .collect();
        let ranges: Vec<ParsedRange<'_>> = std::iter::once(own).chain(more).collect();

        let family = ranges
            .iter()
            .flat_map(|range| &range.items)
            .next()
            .map(|item| item.entry.family);
        let all = ranges
            .iter()
            .flat_map(|range| range.items.iter().chain(&range.gateway));
        if let Some(family) = family {
            problems.check_family(family, all.chain(&excluded).chain(&draining));
        }
        let length = problems.check_length(self.length, family.unwrap_or(Family::V6));
        if let Some(length) = length {
            ranges
                .iter()
                .for_each(|range| problems.check_fits(length, &range.items));
        }
        problems.check_overlaps(&ranges);

        let (family, length) = problems.into_result(family.zip(length))?;
        let (set, draining_set) = (SpanSet::default(), SpanSet::default());
        let empty = UsableBlocks {
            family,
            length,
            ranges: Vec::new(),
            set,
            draining: draining_set,
        };
        let numbers = |span: Span| empty.numbers_of(span);
        let usable_range = |range: &ParsedRange<'_>| UsableRange {
            prefix: length,
            gateway: range.gateway_of(family),
            subnet: None,
            set: range.spans().filter_map(numbers).collect(),
        };
        let ranges: Vec<UsableRange> = ranges
            .iter()
            .filter(|range| !range.items.is_empty())
            .map(usable_range)
            .collect();
        let span = |item: &Item<'_>| numbers(item.entry.span);
        let excluded = excluded
            .iter()
            .filter_map(span)
            .chain(ipv4_mapped(family).and_then(numbers));
        let prefixes: SpanSet = ranges.iter().map(|range| &range.set).collect();
        let set = prefixes.subtract(&excluded.collect());
        let draining = set.intersect(&draining.iter().filter_map(span).collect());
        Ok(UsableBlocks {
            ranges,
            set,
            draining,
            ..empty
        })
    }
}

impl Problems {
    fn parse_prefix_range<'a>(&mut self, index: usize, range: &PoolRange<'a>) -> ParsedRange<'a> {
        let field = |field| Field::Range(index, field);
        if range.entries.is_empty() {
            self.add(field(RangeField::Prefixes), "", PoolProblemKind::Required);
        }
        ParsedRange {
            field: field(RangeField::Whole),
            items: self
                .parse_prefixes(|entry| field(RangeField::PrefixEntry(entry)), range.entries),
            gateway: self.parse_gateway(field(RangeField::Gateway), range.gateway),
        }
    }

    /// Returns the items of all texts that are prefixes, and adds problems for the others.
    fn parse_prefixes<'a>(
        &mut self,
        field: impl Fn(usize) -> Field,
        texts: &'a [String],
    ) -> Vec<Item<'a>> {
        let numbered = texts.iter().enumerate();
        numbered
            .filter_map(|(index, text)| self.parse_prefix(field(index), text))
            .collect()
    }

    fn parse_prefix<'a>(&mut self, field: Field, text: &'a str) -> Option<Item<'a>> {
        let item = self.accept(field, text, parse_entry(text))?;
        // A valid entry is a network if it has a slash.
        let Some(network) = text.parse::<IpNet>().ok() else {
            self.add(
                field,
                text,
                PoolProblemKind::NotAPrefix {
                    text: text.to_owned(),
                },
            );
            return None;
        };
        if network.trunc() != network {
            let (text, aligned) = (text.to_owned(), network.trunc());
            self.add(
                field,
                item.text,
                PoolProblemKind::NotAligned { text, aligned },
            );
            return None;
        }
        Some(item)
    }

    fn check_length(&mut self, length: i64, family: Family) -> Option<u8> {
        let max = family.bits();
        let fits = u8::try_from(length)
            .ok()
            .filter(|length| (1..=max).contains(length));
        if fits.is_none() {
            let kind = PoolProblemKind::Prefix {
                prefix: length,
                min: 1,
                max,
            };
            self.add(Field::AllocationPrefixLength, length.to_string(), kind);
        }
        fits
    }

    /// Adds a problem for each prefix that is longer than the allocation length.
    fn check_fits(&mut self, length: u8, prefixes: &[Item<'_>]) {
        for item in prefixes {
            let network = item.text.parse::<IpNet>().ok();
            if network.is_some_and(|network| network.prefix_len() > length) {
                let text = item.text.to_owned();
                self.add(
                    item.field,
                    item.text,
                    PoolProblemKind::LongerThanAllocation { text, length },
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn usable(
        prefixes: &[&str],
        excluded: &[&str],
        length: i64,
    ) -> Result<UsableBlocks, Vec<String>> {
        let (prefixes, excluded) = (strings(prefixes), strings(excluded));
        let pool = PoolPrefixes {
            prefixes: &prefixes,
            excluded: &excluded,
            length,
            ..PoolPrefixes::default()
        };
        pool.usable()
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    fn blocks(usable: &UsableBlocks) -> Vec<String> {
        let numbers = usable
            .set
            .spans()
            .iter()
            .flat_map(|span| span.first()..=span.last());
        numbers
            .map(|number| usable.block(number).to_string())
            .collect()
    }

    #[test]
    fn excluded_prefixes_are_not_usable() {
        let pool = usable(
            &["fd00::/62"],
            &["fd00:0:0:1::5", "fd00:0:0:2:8000::/65"],
            64,
        )
        .unwrap();
        assert_eq!(blocks(&pool), ["fd00::/64", "fd00:0:0:3::/64"]);
        assert_eq!(
            (pool.ranges[0].prefix, pool.length, pool.ranges[0].subnet),
            (64, 64, None)
        );
        let pool = usable(&["10.0.0.0/24", "10.0.2.0/25"], &["10.0.0.64/26"], 26).unwrap();
        assert_eq!(
            blocks(&pool),
            [
                "10.0.0.0/26",
                "10.0.0.128/26",
                "10.0.0.192/26",
                "10.0.2.0/26",
                "10.0.2.64/26"
            ]
        );
        assert_eq!(
            blocks(&usable(&["fd00::4/127"], &[], 128).unwrap()),
            ["fd00::4", "fd00::5"]
        );
        assert_eq!(
            blocks(&usable(&["fd00::/64"], &[], 64).unwrap()),
            ["fd00::/64"]
        );
        assert_eq!(
            blocks(&usable(&["::/0"], &["8000::"], 1).unwrap()),
            Vec::<String>::new()
        );
    }

    #[test]
    fn largest_pools_are_counted() {
        let pool = usable(&["::/0"], &[], 128).unwrap();
        assert_eq!(
            pool.set.len(),
            u128::MAX - (1 << 32) + 1,
            "all but the IPv4-mapped addresses"
        );
        assert_eq!(usable(&["::/0"], &[], 64).unwrap().set.len(), (1 << 64) - 1);
        assert_eq!(usable(&["0.0.0.0/0"], &[], 32).unwrap().set.len(), 1 << 32);
    }

    #[test]
    fn addresses_of_blocks_include_host_bits() {
        let pool = usable(&["fd00::/63"], &[], 64).unwrap();
        let whole = parse_entry("fd00::/63").unwrap().span;
        assert_eq!(pool.addresses(), SpanSet::from(whole));
    }

    #[test]
    fn every_problem_names_its_field() {
        type Case<'a> = (&'a [&'a str], &'a [&'a str], i64, &'a [&'a str]);
        let cases: [Case<'_>; 7] = [
            (&[], &[], 64, &["spec.prefixes: is required"]),
            (
                &["fd00::1"],
                &[],
                64,
                &[
                    "spec.prefixes[0]: fd00::1 is not a prefix in CIDR notation, such as fd00:1::/48",
                ],
            ),
            (
                &["fd00::1/64"],
                &[],
                64,
                &["spec.prefixes[0]: fd00::1/64 has host bits set; write fd00::/64"],
            ),
            (
                &["fd00::/48", "fd01::/72"],
                &[],
                64,
                &["spec.prefixes[1]: fd01::/72 is longer than the allocation prefix length 64"],
            ),
            (
                &["fd00::/48"],
                &[],
                129,
                &["spec.allocationPrefixLength: 129 is not between 1 and 128"],
            ),
            (
                &["10.0.0.0/8"],
                &[],
                64,
                &["spec.allocationPrefixLength: 64 is not between 1 and 32"],
            ),
            (
                &["fd00::/48", "10.0.0.0/8"],
                &["10.0.0.1"],
                0,
                &[
                    "spec.prefixes[1]: 10.0.0.0/8 is IPv4, but the pool's first entry is IPv6",
                    "spec.excludedPrefixes[0]: 10.0.0.1 is IPv4, but the pool's first entry is IPv6",
                    "spec.allocationPrefixLength: 0 is not between 1 and 128",
                ],
            ),
        ];
        for (prefixes, excluded, length, expected) in cases {
            assert_eq!(
                usable(prefixes, excluded, length).unwrap_err(),
                expected,
                "{prefixes:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn usable_prefixes_are_in_the_pool_and_not_excluded(
            third in 0_u8..=255, length in 16..=24_u8, more in 0..=8_i64, excluded in 0_u32..=0xffff,
        ) {
            let network = IpNet::new([10, 0, third, 0].into(), length).unwrap().trunc();
            let excluded = std::net::Ipv4Addr::from(0x0a00_0000 | excluded);
            let pool = usable(&[&network.to_string()], &[&excluded.to_string()], i64::from(length) + more).unwrap();
            let candidates = 1_u128 << more;
            let hit = network.contains(&std::net::IpAddr::V4(excluded));
            prop_assert_eq!(pool.set.len(), candidates - u128::from(hit));
            for number in pool.set.spans().iter().flat_map(|span| [span.first(), span.last()]) {
                let block = pool.block(number);
                prop_assert_eq!(pool.number(block), Some(number));
                prop_assert!(network.contains(&block.base()));
                prop_assert!(!block.span().contains(u128::from(excluded.to_bits())));
            }
        }
    }
}
