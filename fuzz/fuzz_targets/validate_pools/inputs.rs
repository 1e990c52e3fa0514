//! Specs of pools, and the state of a cluster.

use std::sync::Arc;

use capi_ipam::admission::View;
use capi_ipam_api::{
    AccessRules, IPNetwork, NetworkRefusal, NetworkView, OverLimit, Pool, PoolKey, Scope,
    ScopeChange, Slot,
};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, Family, UsableBlocks};
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
    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        self.in_use.iter().filter_map(|(index, length)| {
            let address = TEXTS[usize::from(*index) % TEXTS.len()]
                .split(['/', '-'])
                .next()?
                .parse()
                .ok()?;
            Some(Block::new(address, *length))
        })
    }
}

impl View for Cluster {
    fn is_complete(&self) -> bool {
        self.complete
    }
    fn in_use(&self, _: &PoolKey, filter: &dyn Fn(Block) -> bool) -> Vec<Block> {
        self.blocks().filter(|block| filter(*block)).collect()
    }
    fn overlapping(&self, pool: &PoolKey, _: &Scope, _: &UsableBlocks) -> Vec<PoolKey> {
        vec![pool.clone(); self.in_use.len()]
    }
    fn network_length(&self, _: &str, _: Family) -> Option<u8> {
        self.declared_length
    }
    fn scope_change(&self, key: &PoolKey, _: &Pool) -> ScopeChange {
        ScopeChange {
            refusal: Some(NetworkRefusal::NotFound("lab".into())),
            ..ScopeChange::unknown(key)
        }
    }
    fn pool(&self, _: &PoolKey) -> Option<(Scope, Option<Arc<UsableBlocks>>)> {
        None
    }
    fn is_in_other_block(&self, _: &PoolKey, _: Block) -> bool {
        false
    }
    fn scope_changes(&self, _: &IPNetwork) -> Vec<ScopeChange> {
        Vec::new()
    }
    fn network(&self, _: &str) -> NetworkView {
        NetworkView::default()
    }
    fn lacks_registry(&self, _: &str) -> bool {
        false
    }
    fn networks_of_registry(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
    fn blocks_of_other_registry(&self, _: &str, _: &str) -> Option<(String, usize)> {
        None
    }
    fn shared_block_length(&self, _: &str, _: Family) -> Option<u8> {
        None
    }
    fn reservations_without_pool(&self, _: &PoolKey, _: &Scope) -> usize {
        0
    }
    fn over_limit(&self, _: &PoolKey, _: &AccessRules) -> OverLimit {
        OverLimit::default()
    }
    fn owners(&self, _: &Slot) -> Vec<NamespacedName> {
        Vec::new()
    }
}
