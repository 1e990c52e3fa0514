//! Pools of single addresses.

use ipnet::IpNet;

use crate::pool::{Field, Item, mapped, PoolProblem, PoolProblemKind, Problems};
use crate::{Entry, Family, parse_address, Span, SpanSet, Usable};

/// What the spec of a pool says about its addresses.
#[derive(Debug, Clone, Copy)]
pub struct PoolAddresses<'a> {
    /// The entries that addresses are given from, see [`parse_entry`](crate::parse_entry).
    pub addresses: &'a [String],
    /// The entries that no address is given from.
    pub excluded: &'a [String],
    /// The prefix length of the subnet, in bits.
    pub prefix: i64,
    /// The gateway of the subnet, which is never given out. The text `""` is none.
    pub gateway: Option<&'a str>,
    /// Whether to give out the first and the last address of the subnet as well.
    pub allocate_reserved: bool,
}

impl PoolAddresses<'_> {
    /// Checks the pool and works out which addresses it may give out.
    ///
    /// Usable are the addresses, without the excluded ones, the gateway and, unless
    /// `allocate_reserved`, those that the subnet reserves: its first address (the network
    /// address of IPv4, the Subnet-Router anycast address of IPv6, RFC 4291 section 2.6.1) and
    /// the last address of an IPv4 subnet (its broadcast address). A subnet of one or two
    /// addresses reserves none (RFC 3021, RFC 6164). IPv4-mapped addresses, which
    /// [`parse_address`] refuses, are never usable; only a network as wide as `::/0` has any.
    ///
    /// The subnet is the one of length `prefix` around the first address of the first entry.
    /// The gateway and excluded entries may be outside of it.
    ///
    /// # Errors
    ///
    /// Every problem of the pool, at least one, in the order of [`Field`], of which the first
    /// [`MAX_PROBLEMS`](crate::MAX_PROBLEMS) are given.
    pub fn usable(&self) -> Result<Usable, Vec<PoolProblem>> {
        let mut problems = Problems::default();
        if self.addresses.is_empty() {
            problems.add(Field::Addresses, "", PoolProblemKind::Required);
        }
        let addresses = problems.read(Field::Address, self.addresses);
        let excluded = problems.read(Field::ExcludedAddress, self.excluded);
        let gateway = self
            .gateway
            .filter(|text| !text.is_empty())
            .and_then(|text| problems.keep(Field::Gateway, text, parse_address(text).map(Entry::from)));

        let first = addresses.first().map(|item| item.entry);
        let subnet = problems.check_prefix(self.prefix, first);
        if let Some(first) = first {
            let all = addresses.iter().chain(&excluded).chain(&gateway);
            problems.check_family(first.family, all);
        }
        if let Some(subnet) = subnet {
            problems.check_within(subnet, &addresses);
        }

        let subnet = problems.none_or(subnet)?;
        let family = Family::of(subnet.addr());
        let (gateway_span, addresses, excluded) = (
            gateway.map(|item| item.entry.span),
            addresses.iter().map(|item| item.entry.span),
            excluded.iter().map(|item| item.entry.span),
        );
        let held_back = excluded
            .chain(gateway_span)
            .chain(reserved(subnet).filter(|_| !self.allocate_reserved))
            .chain(mapped(family));
        Ok(Usable {
            family,
            length: family.bits(),
            prefix: subnet.prefix_len(),
            gateway: gateway_span.map(|span| family.address(span.first())),
            subnet: Some(subnet),
            set: addresses.collect::<SpanSet>().subtract(&held_back.collect()),
        })
    }
}

/// The addresses that `subnet` reserves.
fn reserved(subnet: IpNet) -> impl Iterator<Item = Span> {
    let host_bits = subnet.max_prefix_len().saturating_sub(subnet.prefix_len());
    let span = Span::from(subnet);
    let broadcast = matches!(subnet, IpNet::V4(_)).then_some(span.last());
    std::iter::once(span.first()).chain(broadcast).filter(move |_| host_bits > 1).map(Span::single)
}

impl Problems {
    /// The subnet of length `prefix` around the first address of `first`.
    ///
    /// Without a first entry the family is not known: then a length is wrong if no family has it.
    fn check_prefix(&mut self, prefix: i64, first: Option<Entry>) -> Option<IpNet> {
        let family = first.map_or(Family::V6, |entry| entry.family);
        let number = first.map_or(0, |entry| entry.span.first());
        let length = u8::try_from(prefix).ok();
        let subnet = length.and_then(|length| IpNet::new(family.address(number), length).ok());
        if subnet.is_none() {
            let longest = family.bits();
            self.add(Field::Prefix, prefix.to_string(), PoolProblemKind::Prefix { prefix, shortest: 0, longest });
        }
        first.and(subnet).map(|subnet| subnet.trunc())
    }

    /// All items of the family of `subnet` must be within it.
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
