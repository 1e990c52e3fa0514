//! The Machine of a claim, and the addresses that it reports.

use std::net::IpAddr;

use capi_ipam_ip::Block;
use capi_ipam_provider::advanced::AddressUse;
use capi_ipam_provider::api::{IPAddressClaim, Machine, MachineIndex, conditions};

/// The maximum number of addresses of a Machine that a message names.
const MAX_NAMED: usize = 5;

/// The addresses of the Machines of one namespace.
#[derive(Debug, Default)]
pub(super) struct MachineAddresses(MachineIndex<Box<[IpAddr]>>);

impl MachineAddresses {
    pub(super) fn insert(&mut self, machine: &Machine) {
        self.0.insert(machine, machine.ip_addresses().into());
    }

    /// Whether the Machine of a claim reports the address, or an address of the prefix, of the
    /// claim.
    pub(super) fn use_of(&self, claim: &IPAddressClaim, block: Block) -> AddressUse {
        let Some((name, addresses)) = self.0.find(claim) else {
            let message = "no Machine is found by the owner references of the claim".to_owned();
            return AddressUse::Unknown(conditions::MACHINE_NOT_FOUND, message);
        };
        if addresses.is_empty() {
            let message = format!("Machine {name} reports no IP address in status.addresses");
            return AddressUse::Unknown(conditions::MACHINE_WITHOUT_ADDRESSES, message);
        }
        if addresses.iter().any(|address| contains(block, *address)) {
            return AddressUse::InUse;
        }
        let named: Vec<String> = addresses
            .iter()
            .take(MAX_NAMED)
            .map(ToString::to_string)
            .collect();
        let more = addresses.len().saturating_sub(named.len());
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let named = named.join(", ");
        AddressUse::NotInUse(format!(
            "Machine {name} reports {named}{more} in status.addresses, but not {block}"
        ))
    }
}

fn contains(block: Block, address: IpAddr) -> bool {
    let (span, other) = (block.span(), Block::address(address));
    let number = other.span().first();
    block.family() == other.family() && span.first() <= number && number <= span.last()
}

#[cfg(test)]
mod tests {
    use capi_ipam_provider::api::names::CLUSTER_GROUP;
    use serde_json::{Value, json};

    use super::*;

    const INFRASTRUCTURE_GROUP: &str = "infrastructure.cluster.x-k8s.io";

    fn machines() -> MachineAddresses {
        let mut machines = MachineAddresses::default();
        let machine = |name: &str, infrastructure: &str, addresses: &[&str]| -> Machine {
            let addresses: Vec<Value> = addresses
                .iter()
                .map(|address| json!({"type": "InternalIP", "address": address}))
                .collect();
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"infrastructureRef": {"kind": "ExampleMachine", "name": infrastructure}},
                "status": {"addresses": addresses},
            }))
            .unwrap()
        };
        machines.insert(&machine(
            "web-1",
            "web-1",
            &["web-1.example.com", "::ffff:10.0.0.5", "fd00::5:1"],
        ));
        machines.insert(&machine("web-2", "other", &["10.0.0.6"]));
        machines.insert(&machine("new", "new", &["new.example.com"]));
        machines
    }

    fn use_of(kind: &str, name: &str, block: Block) -> AddressUse {
        let group = if kind == "Machine" {
            CLUSTER_GROUP
        } else {
            INFRASTRUCTURE_GROUP
        };
        let claim: IPAddressClaim = serde_json::from_value(json!({
            "metadata": {"name": "c", "ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "alpha", "uid": "u"},
                {"apiVersion": format!("{group}/v1beta2"), "kind": kind, "name": name, "uid": "u"},
            ]},
            "spec": {"poolRef": {"kind": "InClusterIPPool", "name": "p"}},
        }))
        .unwrap();
        machines().use_of(&claim, block)
    }

    fn address(text: &str) -> Block {
        Block::address(text.parse().unwrap())
    }

    #[test]
    fn machine_is_found_by_name_or_infrastructure() {
        for (kind, name) in [
            ("Machine", "web-1"),
            ("ExampleMachine", "web-1"),
            ("ExampleVM", "web-1"),
        ] {
            assert_eq!(
                use_of(kind, name, address("10.0.0.5")),
                AddressUse::InUse,
                "{kind}"
            );
        }
        assert_eq!(
            use_of("ExampleMachine", "other", address("10.0.0.6")),
            AddressUse::InUse
        );
        for (kind, name) in [
            ("Machine", "other"),
            ("ExampleVM", "other"),
            ("Machine", "web-3"),
        ] {
            let found = use_of(kind, name, address("10.0.0.6"));
            assert!(
                matches!(found, AddressUse::Unknown(conditions::MACHINE_NOT_FOUND, _)),
                "{kind} {found:?}"
            );
        }
    }

    #[test]
    fn other_address_is_not_in_use() {
        let AddressUse::NotInUse(message) = use_of("Machine", "web-1", address("10.0.0.7")) else {
            panic!()
        };
        assert_eq!(
            message,
            "Machine web-1 reports 10.0.0.5, fd00::5:1 in status.addresses, but not 10.0.0.7"
        );
    }

    #[test]
    fn prefix_is_in_use_by_one_of_its_addresses() {
        let prefix = |text: &str| Block::new(text.parse().unwrap(), 112);
        assert_eq!(
            use_of("Machine", "web-1", prefix("fd00::5:0")),
            AddressUse::InUse
        );
        assert!(matches!(
            use_of("Machine", "web-1", prefix("fd00::6:0")),
            AddressUse::NotInUse(_)
        ));
    }

    #[test]
    fn machine_without_ip_addresses_is_unknown() {
        let found = use_of("Machine", "new", address("10.0.0.5"));
        assert!(
            matches!(
                found,
                AddressUse::Unknown(conditions::MACHINE_WITHOUT_ADDRESSES, _)
            ),
            "{found:?}"
        );
    }
}
