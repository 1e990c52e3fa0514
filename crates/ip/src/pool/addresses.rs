//! Pools of single addresses.

use ipnet::IpNet;

use crate::pool::{Field, Item, PoolProblem, PoolProblemKind, Problems, ipv4_mapped};
use crate::{Entry, Family, Span, SpanSet, UsableBlocks, parse_address};

/// The addresses in the spec of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolAddresses<'a> {
    /// The entries with the addresses of the pool, see [`parse_entry`](crate::parse_entry).
    pub addresses: &'a [String],
    /// The entries with addresses that are not allocated.
    pub excluded: &'a [String],
    /// The prefix length of the subnet in bits.
    pub prefix: i64,
    /// The gateway of the subnet, which is never allocated. An empty text means no gateway.
    pub gateway: Option<&'a str>,
    /// Whether to allocate the first and the last address of the subnet as well.
    pub allocate_reserved: bool,
}

impl PoolAddresses<'_> {
    /// Validates the pool and returns the addresses that it can allocate, or its problems in the order of [`Field`], at
    /// most [`MAX_PROBLEMS`](crate::MAX_PROBLEMS).
    ///
    /// The usable addresses are those of the entries, except the excluded ones, the gateway and, unless
    /// `allocate_reserved` is set, the reserved addresses of the subnet: its first address (the network address of
    /// IPv4, the Subnet-Router anycast address of IPv6, RFC 4291 section 2.6.1) and the last address of an IPv4 subnet
    /// (the broadcast address). A subnet of one or two addresses has no reserved ones (RFC 3021, RFC 6164). IPv4-mapped
    /// addresses, which [`parse_address`] rejects, are never usable; only a network as large as `::/0` contains any.
    ///
    /// The subnet has the length `prefix` and contains the first address of the first entry. The gateway and excluded
    /// entries can be outside of it.
    pub fn usable(&self) -> Result<UsableBlocks, Vec<PoolProblem>> {
        let mut problems = Problems::default();
        if self.addresses.is_empty() {
            problems.add(Field::Addresses, "", PoolProblemKind::Required);
        }
        let addresses = problems.parse_all(Field::Address, self.addresses);
        let excluded = problems.parse_all(Field::ExcludedAddress, self.excluded);
        let gateway = self
            .gateway
            .filter(|text| !text.is_empty())
            .and_then(|text| problems.accept(Field::Gateway, text, parse_address(text).map(Entry::from)));

        let first = addresses.first().map(|item| item.entry);
        let subnet = problems.check_prefix(self.prefix, first);
        if let Some(first) = first {
            let all = addresses.iter().chain(&excluded).chain(&gateway);
            problems.check_family(first.family, all);
        }
        if let Some(subnet) = subnet {
            problems.check_within(subnet, &addresses);
        }

        let subnet = problems.into_result(subnet)?;
        let family = Family::of(subnet.addr());
        let (gateway_span, addresses, excluded) = (
            gateway.map(|item| item.entry.span),
            addresses.iter().map(|item| item.entry.span),
            excluded.iter().map(|item| item.entry.span),
        );
        let not_usable = excluded
            .chain(gateway_span)
            .chain(reserved(subnet).filter(|_| !self.allocate_reserved))
            .chain(ipv4_mapped(family));
        Ok(UsableBlocks {
            family,
            length: family.bits(),
            prefix: subnet.prefix_len(),
            gateway: gateway_span.map(|span| family.address(span.first())),
            subnet: Some(subnet),
            set: addresses.collect::<SpanSet>().subtract(&not_usable.collect()),
        })
    }
}

/// Returns the reserved addresses of a subnet.
fn reserved(subnet: IpNet) -> impl Iterator<Item = Span> {
    let host_bits = subnet.max_prefix_len().saturating_sub(subnet.prefix_len());
    let span = Span::from(subnet);
    let broadcast = matches!(subnet, IpNet::V4(_)).then_some(span.last());
    std::iter::once(span.first()).chain(broadcast).filter(move |_| host_bits > 1).map(Span::single)
}

impl Problems {
    /// Returns the subnet of length `prefix` that contains the first address of `first`. Adds a problem if the length
    /// is out of range; without a first entry the family is unknown, and the range is that of IPv6.
    fn check_prefix(&mut self, prefix: i64, first: Option<Entry>) -> Option<IpNet> {
        let family = first.map_or(Family::V6, |entry| entry.family);
        let number = first.map_or(0, |entry| entry.span.first());
        let length = u8::try_from(prefix).ok();
        let subnet = length.and_then(|length| IpNet::new(family.address(number), length).ok());
        if subnet.is_none() {
            let max = family.bits();
            self.add(Field::Prefix, prefix.to_string(), PoolProblemKind::Prefix { prefix, min: 0, max });
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
                self.add(item.field, item.text, PoolProblemKind::OutsideSubnet { text, subnet });
            }
        }
    }
}

#[cfg(test)]
mod tests;
