//! Specs of pools, and the state of a cluster.

use std::net::IpAddr;
use std::sync::Mutex;

use capi_ipam::admission::View;
use capi_ipam_api::{IPNetwork, InClusterKind, names};
use capi_ipam_ip::Block;
use capi_ipam_ledger::{Ledger, Observe};
use capi_ipam_provider::api::IPAddress;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use serde_json::{Value, json};

use crate::policy::Policy;

const TEXTS: [&str; 20] = [
    "10.0.0.0/24",
    "10.0.0.1-10.0.0.9",
    "10.0.0.5",
    "10.0.0.128/25",
    "10.0.0.1",
    "10.0.0.255",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "0.0.0.0/0",
    "10.0.0.05",
    "::ffff:10.0.0.1",
    "",
    "fd00::/64",
    "fd00::/48",
    "fd00::1-fd00::ff",
    "fd00::5",
    "fd00::/63",
    "fd00:0:0:1::/64",
    "::/0",
    "fd00::1/64",
];
const NETWORKS: [&str; 6] = [
    "lab",
    "other",
    "",
    "-",
    "a.b",
    "x23456789012345678901234567890123456789012345678901234567890123456",
];

/// The spec of a pool of addresses or of prefixes.
#[derive(Arbitrary, Debug)]
pub struct Spec<'a> {
    entries: Vec<Text<'a>>,
    excluded: Vec<Text<'a>>,
    gateway: Option<Text<'a>>,
    pub length: i16,
    allocate_reserved: bool,
    pub grace_period: Option<i32>,
    network: Option<u8>,
    ranges: Vec<Range<'a>>,
    draining: Vec<Text<'a>>,
    pub policy: Policy,
}

/// A range with its own subnet.
#[derive(Arbitrary, Debug)]
struct Range<'a> {
    entries: Vec<Text<'a>>,
    length: i16,
    gateway: Option<Text<'a>>,
}

/// A text that is often valid, or any text.
#[derive(Arbitrary, Debug)]
enum Text<'a> {
    Common(u8),
    Any(&'a str),
}

impl Text<'_> {
    fn get(&self) -> &str {
        match self {
            Text::Common(index) => TEXTS[usize::from(*index) % TEXTS.len()],
            Text::Any(text) => text,
        }
    }
}

impl Spec<'_> {
    /// Returns the spec as JSON.
    pub fn to_json(&self, prefixes: bool) -> Value {
        let (entries, excluded) = (texts(&self.entries), texts(&self.excluded));
        let gateway = self.gateway.as_ref().map(Text::get);
        let network = self
            .network
            .map(|index| NETWORKS[usize::from(index) % NETWORKS.len()]);
        let mut spec = if prefixes {
            json!({"prefixes": entries, "excludedPrefixes": excluded, "gateway": gateway, "network": network,
                   "allocationPrefixLength": self.length})
        } else {
            json!({"addresses": entries, "excludedAddresses": excluded, "gateway": gateway, "network": network,
                   "prefix": self.length, "allocateReservedIPAddresses": self.allocate_reserved,
                   "addressReuseGracePeriodSeconds": self.grace_period})
        };
        spec["ranges"] = self
            .ranges
            .iter()
            .map(|range| range.to_json(prefixes))
            .collect();
        spec["draining"] = json!(texts(&self.draining));
        self.policy.add_to(&mut spec);
        spec
    }

    /// The same without what is excluded or reserved: slices are divided by what the pool lists.
    pub fn to_listed_json(&self, prefixes: bool) -> Value {
        let mut spec = self.to_json(prefixes);
        if prefixes {
            spec["excludedPrefixes"] = json!([]);
        } else {
            spec["excludedAddresses"] = json!([]);
            spec["gateway"] = Value::Null;
            spec["allocateReservedIPAddresses"] = json!(true);
        }
        spec
    }
}

impl Range<'_> {
    fn to_json(&self, prefixes: bool) -> Value {
        let (entries, gateway) = (texts(&self.entries), self.gateway.as_ref().map(Text::get));
        if prefixes {
            json!({"prefixes": entries, "gateway": gateway})
        } else {
            json!({"addresses": entries, "prefix": self.length, "gateway": gateway})
        }
    }
}

fn texts(entries: &[Text<'_>]) -> Vec<String> {
    entries.iter().map(|text| text.get().to_owned()).collect()
}

/// The state of the cluster that admission reads.
#[derive(Arbitrary, Debug, Clone)]
pub struct Cluster {
    pub complete: bool,
    pub declared_length: Option<u8>,
    in_use: Vec<(u8, u8)>,
}

impl Cluster {
    /// The blocks in use of the pool of a kind.
    pub fn blocks(&self, kind: InClusterKind) -> impl Iterator<Item = Block> {
        self.in_use.iter().filter_map(move |(index, length)| {
            let text = TEXTS[usize::from(*index) % TEXTS.len()];
            let address: IpAddr = text.split(['/', '-']).next()?.parse().ok()?;
            let address = address.to_canonical();
            Some(if kind.has_prefixes() {
                Block::new(address, *length)
            } else {
                Block::address(address)
            })
        })
    }

    /// The cluster as admission of a kind sees it.
    pub fn view(&self, kind: InClusterKind) -> LedgerView {
        if !self.complete {
            return LedgerView(None);
        }
        let mut ledger = Ledger::default();
        if let Some(length) = self.declared_length {
            for name in ["lab", "other"] {
                ledger.apply_network(&network(name, length));
            }
        }
        for (index, block) in self.blocks(kind).enumerate() {
            ledger.apply(&address(kind, index, block));
        }
        LedgerView(Some(Mutex::new(ledger)))
    }
}

fn network(name: &str, length: u8) -> IPNetwork {
    let lengths = json!({"ipv4": length, "ipv6": length});
    let network = json!({
        "metadata": {"name": name, "uid": name}, "spec": {}, "status": {"blockLengths": lengths},
    });
    serde_json::from_value(network).expect("a network")
}

fn address(kind: InClusterKind, index: usize, block: Block) -> IPAddress {
    let name = format!("a-{index}");
    let pool = json!({"apiGroup": names::GROUP, "kind": kind.name(), "name": "p"});
    let address = json!({
        "metadata": {"namespace": "n", "name": name, "uid": name},
        "spec": {
            "claimRef": {"name": name}, "address": block.base().to_string(), "prefix": block.length(),
            "poolRef": pool,
        },
    });
    serde_json::from_value(address).expect("an address")
}

/// The ledger that admission reads; none as long as the objects are being listed.
pub struct LedgerView(Option<Mutex<Ledger>>);

impl View for LedgerView {
    fn with_ledger(&self, read: &mut dyn FnMut(&Ledger)) {
        if let Some(ledger) = &self.0 {
            read(&ledger.lock().expect("it is not poisoned"));
        }
    }
}
