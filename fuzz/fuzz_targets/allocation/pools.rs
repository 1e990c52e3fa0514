//! Pools in one subnet, and addresses in use.

use capi_ipam_api::{PoolKey, Slot, names};
use capi_ipam_ip::{Family, Span, parse_entry};
use capi_ipam_ledger::{Ledger, Observe};
use capi_ipam_provider::api::IPAddress;
use ipnet::IpNet;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use serde_json::json;

/// An entry of a pool.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub enum Entry {
    One(Number),
    Range(Number, Number),
    Network(Number, u8),
}

/// An address of the subnet, counted from its start or its end.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub struct Number {
    from_end: bool,
    number: u8,
    shift: u8,
}

impl Number {
    /// The number of the address.
    pub fn within(self, subnet: Span) -> u128 {
        let distance =
            (u128::from(self.number) << (self.shift % 121)).min(subnet.last() - subnet.first());
        if self.from_end {
            subnet.last() - distance
        } else {
            subnet.first() + distance
        }
    }
}

/// The text of an entry.
pub fn text(entry: Entry, subnet: IpNet, only_networks: bool) -> String {
    let (family, whole) = (Family::of(subnet.addr()), Span::from(subnet));
    let shortest = subnet.prefix_len();
    let network = |number: Number, length: u8| {
        let length = shortest + length % (subnet.max_prefix_len() - shortest + 1);
        let network = IpNet::new(family.address(number.within(whole)), length)
            .expect("a length of the family");
        network.trunc().to_string()
    };
    match entry {
        Entry::Network(number, length) => network(number, length),
        Entry::One(number) | Entry::Range(number, _) if only_networks => {
            network(number, number.shift)
        }
        Entry::One(number) => family.address(number.within(whole)).to_string(),
        Entry::Range(from, to) => {
            let (from, to) = (from.within(whole), to.within(whole));
            format!(
                "{}-{}",
                family.address(from.min(to)),
                family.address(from.max(to))
            )
        }
    }
}

/// The numbers of entries.
pub fn spans(texts: &[String]) -> Vec<Span> {
    texts
        .iter()
        .map(|text| parse_entry(text).expect("an entry").span)
        .collect()
}

/// Adds an address in use to the ledger.
pub fn add_used(ledger: &mut Ledger, key: &PoolKey, (index, reserved, slot): &(usize, bool, Slot)) {
    let (address, length) = (slot.block.base().to_string(), slot.block.length());
    if *reserved {
        let prefix = (!slot.block.is_address()).then_some(length);
        let reservation = json!({
            "metadata": {"name": slot.reservation_name(), "uid": format!("r{index}")},
            "spec": {"scope": slot.scope.name(), "address": address, "prefixLength": prefix, "poolRef": key.to_reference()},
        });
        ledger.insert_reservation(&serde_json::from_value(reservation).expect("a reservation"));
    } else {
        let held = json!({
            "metadata": {"namespace": "n", "name": format!("held{index}")},
            "spec": {"address": address, "prefix": length,
                     "poolRef": {"apiGroup": names::GROUP, "kind": key.kind.name(), "name": key.name.as_ref()}},
        });
        ledger.apply(&serde_json::from_value::<IPAddress>(held).expect("an IPAddress"));
    }
}
