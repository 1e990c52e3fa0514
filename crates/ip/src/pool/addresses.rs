//! Pools of single addresses.

use ipnet::IpNet;

use crate::pool::ranges::{ParsedRange, PoolRange, RangeField};
use crate::pool::{Field, Item, PoolProblem, PoolProblemKind, Problems, ipv4_mapped};
use crate::{Entry, Family, Span, SpanSet, UsableBlocks, UsableRange};

/// The addresses in the spec of a pool.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolAddresses<'a> {
    /// The entries with the addresses of the pool, see [`parse_entry`](crate::parse_entry). They
    /// can be empty if there are ranges.
    pub addresses: &'a [String],
    /// The entries with addresses that are not allocated.
    pub excluded: &'a [String],
    /// The prefix length of the subnet in bits.
    pub prefix: i64,
    /// The gateway of the subnet, which is never allocated. An empty text means no gateway.
    pub gateway: Option<&'a str>,
    /// Whether to allocate the first and the last address of each subnet as well.
    pub allocate_reserved: bool,
    /// Further addresses in other subnets, used after `addresses`.
    pub ranges: &'a [PoolRange<'a>],
    /// The entries with addresses that are no longer allocated, but can be in use.
    pub draining: &'a [String],
}

impl PoolAddresses<'_> {
    /// Validates the pool and returns the addresses that it can allocate, or its problems in the
    /// order of [`Field`], at most [`MAX_PROBLEMS`](crate::MAX_PROBLEMS).
    ///
    /// The usable addresses are those of the entries, except the excluded ones, the gateways and,
    /// unless `allocate_reserved` is set, the reserved addresses of each subnet: its first address
    /// (the network address of IPv4, the Subnet-Router anycast address of IPv6, RFC 4291 section
    /// 2.6.1) and the last address of an IPv4 subnet (the broadcast address). A subnet of one or
    /// two addresses has no reserved ones (RFC 3021, RFC 6164). IPv4-mapped addresses, which
    /// [`parse_address`](crate::parse_address) rejects, are never usable; only a network as large
    /// as `::/0` contains any.
    ///
    /// The subnet has the length `prefix` and contains the first address of the first entry; each
    /// range has a subnet of its own. A gateway, excluded and draining entries can be outside of
    /// it.
    pub fn usable(&self) -> Result<UsableBlocks, Vec<PoolProblem>> {
        let mut problems = Problems::default();
        if self.addresses.is_empty() && self.ranges.is_empty() {
            problems.add(Field::Addresses, "", PoolProblemKind::Required);
        }
        let own = ParsedRange {
            field: Field::Addresses,
            items: problems.parse_all(Field::Address, self.addresses),
            gateway: problems.parse_gateway(Field::Gateway, self.gateway),
        };
        let excluded = problems.parse_all(Field::ExcludedAddress, self.excluded);
        let draining = problems.parse_all(Field::Draining, self.draining);
        let given = problems.limit_ranges(self.ranges);
        let more: Vec<ParsedRange<'_>> = given
            .iter()
            .enumerate()
            .map(|(index, range)| problems.parse_range(index, range))
            .collect();
        let prefixes = std::iter::once((Field::Prefix, self.prefix)).chain(
            given
                .iter()
                .enumerate()
                .map(|(index, range)| (Field::Range(index, RangeField::Prefix), range.prefix)),
        );
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
        let mut subnets = Vec::with_capacity(ranges.len());
        for (range, (field, prefix)) in ranges.iter().zip(prefixes) {
            let first = range.items.first().map(|item| item.entry);
            let subnet = problems.check_prefix(
                field,
                prefix,
                first.map(|entry| (entry.family, entry.span.first())),
            );
            if let Some(subnet) = subnet {
                problems.check_within(subnet, &range.items);
            }
            subnets.push(subnet);
        }
        problems.check_overlaps(&ranges);

        let family = problems.into_result(family)?;
        let spans =
            |items: &[Item<'_>]| items.iter().map(|item| item.entry.span).collect::<Vec<_>>();
        let reserved_addresses = subnets
            .iter()
            .flatten()
            .filter(|_| !self.allocate_reserved)
            .copied()
            .flat_map(reserved);
        let gateways = ranges
            .iter()
            .filter_map(|range| Some(range.gateway.as_ref()?.entry.span));
        let not_usable = spans(&excluded)
            .into_iter()
            .chain(gateways)
            .chain(reserved_addresses)
            .chain(ipv4_mapped(family));
        let usable_range = |(range, subnet): (&ParsedRange<'_>, &Option<IpNet>)| {
            subnet.map(|subnet| UsableRange {
                prefix: subnet.prefix_len(),
                gateway: range.gateway_of(family),
                subnet: Some(subnet),
                set: range.spans().collect(),
            })
        };
        let usable: Vec<UsableRange> = ranges
            .iter()
            .zip(&subnets)
            .filter_map(usable_range)
            .collect();
        let addresses: SpanSet = usable.iter().map(|range| &range.set).collect();
        let set = addresses.subtract(&not_usable.collect());
        let draining = set.intersect(&spans(&draining).into_iter().collect());
        Ok(UsableBlocks {
            family,
            length: family.bits(),
            ranges: usable,
            set,
            draining,
        })
    }
}

/// Returns the reserved addresses of a subnet.
fn reserved(subnet: IpNet) -> impl Iterator<Item = Span> {
    let host_bits = subnet.max_prefix_len().saturating_sub(subnet.prefix_len());
    let span = Span::from(subnet);
    let broadcast = matches!(subnet, IpNet::V4(_)).then_some(span.last());
    std::iter::once(span.first())
        .chain(broadcast)
        .filter(move |_| host_bits > 1)
        .map(Span::single)
}

impl Problems {
    fn parse_range<'a>(&mut self, index: usize, range: &PoolRange<'a>) -> ParsedRange<'a> {
        let field = |field| Field::Range(index, field);
        if range.entries.is_empty() {
            self.add(field(RangeField::Addresses), "", PoolProblemKind::Required);
        }
        ParsedRange {
            field: field(RangeField::Whole),
            items: self.parse_all(|entry| field(RangeField::Address(entry)), range.entries),
            gateway: self.parse_gateway(field(RangeField::Gateway), range.gateway),
        }
    }

    /// Returns the subnet of length `prefix` that contains `first`. Adds a problem for `field` if
    /// the length is out of bounds; without a first address the family is unknown, and the bounds
    /// are those of IPv6.
    fn check_prefix(
        &mut self,
        field: Field,
        prefix: i64,
        first: Option<(Family, u128)>,
    ) -> Option<IpNet> {
        let (family, number) = first.unwrap_or((Family::V6, 0));
        let length = u8::try_from(prefix).ok();
        let subnet = length.and_then(|length| IpNet::new(family.address(number), length).ok());
        if subnet.is_none() {
            let max = family.bits();
            self.add(
                field,
                prefix.to_string(),
                PoolProblemKind::Prefix {
                    prefix,
                    min: 0,
                    max,
                },
            );
        }
        first.and(subnet).map(|subnet| subnet.trunc())
    }

    /// Adds a problem for each item of the family of `subnet` that is not within it.
    fn check_within(&mut self, subnet: IpNet, items: &[Item<'_>]) {
        let (family, whole) = (Family::of(subnet.addr()), Span::from(subnet));
        for item in items {
            let Entry { family: own, span } = item.entry;
            if own == family && !(whole.contains(span.first()) && whole.contains(span.last())) {
                let text = item.text.to_owned();
                self.add(
                    item.field,
                    item.text,
                    PoolProblemKind::OutsideSubnet { text, subnet },
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
