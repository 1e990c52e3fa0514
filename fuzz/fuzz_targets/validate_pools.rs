//! Feeds arbitrary pools, as they were and as they are to be, to admission.
//!
//! What must hold: admission decides by exactly these rules. A pool may be made if it can be understood and its network
//! gives out blocks of its length. A change is refused only for what it changes: it may leave everything as it is, however
//! wrong that is; otherwise the new pool has to be one that may be made, with the same network and length, and with all
//! that is in use and was in it before. A pool that is used cannot be deleted, unless that is asked for.
//!
//! Run with `cargo +nightly fuzz run validate_pools`.

#![no_main]

use std::sync::Arc;

use capi_ipam::addr::{Block, Family, Usable};
use capi_ipam::api::{InClusterIPPool, InClusterPrefixPool, Pool, PoolKey, Scope, Slot, names};
use capi_ipam::runtime::webhooks::review::{AdmissionRequest, Operation, Verdict};
use capi_ipam::webhooks::{View, pools};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

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
const NETWORKS: [&str; 6] =
    ["lab", "other", "", "-", "a.b", "x23456789012345678901234567890123456789012345678901234567890123456"];

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    prefixes: bool,
    old: Spec<'a>,
    new: Spec<'a>,
    cluster: Cluster,
    deleting: bool,
    annotation: Option<bool>,
}

#[derive(Arbitrary, Debug)]
struct Spec<'a> {
    entries: Vec<Text<'a>>,
    excluded: Vec<Text<'a>>,
    gateway: Option<Text<'a>>,
    length: i16,
    allocate_reserved: bool,
    rest: Option<i32>,
    network: Option<u8>,
}

#[derive(Arbitrary, Debug)]
enum Text<'a> {
    Of(u8),
    Free(&'a str),
}

impl Text<'_> {
    fn get(&self) -> &str {
        match self {
            Text::Of(index) => TEXTS[usize::from(*index) % TEXTS.len()],
            Text::Free(text) => text,
        }
    }
}

impl Spec<'_> {
    fn written(&self, prefixes: bool) -> Value {
        let texts =
            |entries: &[Text<'_>]| -> Vec<String> { entries.iter().map(|text| text.get().to_owned()).collect() };
        let (entries, excluded) = (texts(&self.entries), texts(&self.excluded));
        let gateway = self.gateway.as_ref().map(Text::get);
        let network = self.network.map(|index| NETWORKS[usize::from(index) % NETWORKS.len()]);
        if prefixes {
            json!({"prefixes": entries, "excludedPrefixes": excluded, "gateway": gateway, "network": network,
                   "allocationPrefixLength": self.length})
        } else {
            json!({"addresses": entries, "excludedAddresses": excluded, "gateway": gateway, "network": network,
                   "prefix": self.length, "allocateReservedIPAddresses": self.allocate_reserved,
                   "addressReuseGracePeriodSeconds": self.rest})
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    if input.prefixes { check::<InClusterPrefixPool>(&input) } else { check::<InClusterIPPool>(&input) }
});

fn check<P: Pool>(input: &Input<'_>) {
    let cluster = &input.cluster;
    let object =
        |spec: &Spec<'_>| json!({"metadata": {"namespace": "n", "name": "p"}, "spec": spec.written(input.prefixes)});
    let (old, mut new) = (object(&input.old), object(&input.new));
    let [before, after]: [P; 2] = [&old, &new].map(|object| serde_json::from_value(object.clone()).expect("a pool"));
    let (usable_before, usable) = (before.spec().usable().ok(), after.spec().usable().ok());

    let may_be_made = usable.as_ref().is_some_and(|usable| {
        let network = after.spec().network();
        let agrees = network.is_none() || cluster.agreed.is_none_or(|length| length == usable.length);
        let rests = input.prefixes || input.new.rest.is_none_or(|seconds| seconds >= 0);
        agrees && rests && network.is_none_or(|network| ["lab", "other"].contains(&network))
    });
    assert_eq!(ask::<P>(Operation::Create, None, Some(&new), cluster), may_be_made, "{new}");

    let same_length = !input.prefixes || input.old.length == input.new.length;
    let keeps = usable_before.zip(usable).is_none_or(|(before, after)| {
        let dropped = cluster.blocks().any(|block| before.contains(block) && !after.contains(block));
        before.set.subtract(&after.set).is_empty() || (cluster.complete && !dropped)
    });
    let fits = may_be_made && same_length && before.spec().network() == after.spec().network() && keeps;
    let update = |old: &Value, new: &Value| ask::<P>(Operation::Update, Some(old), Some(new), cluster);
    assert_eq!(update(&old, &new), fits || old["spec"] == new["spec"], "{old} -> {new}");
    assert!(update(&old, &old) && update(&new, &new));

    if let Some(skip) = input.annotation {
        let name = if skip { names::SKIP_VALIDATE_DELETE } else { names::DELETE_FOR_MOVE };
        new["metadata"]["annotations"] = json!({name: ""});
    }
    if input.deleting {
        new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(update(&old, &new));
    }
    let unused = cluster.complete && cluster.blocks().next().is_none();
    let may_go = input.deleting || input.annotation.is_some() || unused;
    assert_eq!(ask::<P>(Operation::Delete, Some(&new), None, cluster), may_go);
}

/// Whether it may be written. A refusal says why.
fn ask<P: Pool>(operation: Operation, old: Option<&Value>, new: Option<&Value>, cluster: &Cluster) -> bool {
    let (object, old_object, namespace) = (new.cloned(), old.cloned(), "n".to_owned());
    let request = AdmissionRequest { operation, object, old_object, namespace, ..AdmissionRequest::default() };
    match pools::review::<P>(&request, cluster) {
        Verdict::Allowed { warnings, .. } => assert!(warnings.iter().all(|text| !text.is_empty())),
        Verdict::Denied(refusal) => {
            assert!((400..600).contains(&refusal.code) && !refusal.message.is_empty());
            assert!(refusal.causes.iter().all(|cause| cause.field.starts_with("spec.") && !cause.message.is_empty()));
            return false;
        }
    }
    true
}

#[derive(Arbitrary, Debug, Clone)]
struct Cluster {
    complete: bool,
    agreed: Option<u8>,
    in_use: Vec<(u8, u8)>,
}

impl Cluster {
    fn blocks(&self) -> impl Iterator<Item = Block> {
        self.in_use.iter().filter_map(|(index, length)| {
            let address = TEXTS[usize::from(*index) % TEXTS.len()].split(['/', '-']).next()?.parse().ok()?;
            Some(Block::new(address, *length))
        })
    }
}

impl View for Cluster {
    fn is_complete(&self) -> bool {
        self.complete
    }
    fn in_use(&self, _: &PoolKey, of_interest: &dyn Fn(Block) -> bool) -> Vec<Block> {
        self.blocks().filter(|block| of_interest(*block)).collect()
    }
    fn overlapping(&self, pool: &PoolKey, _: &Scope, _: &Usable) -> Vec<PoolKey> {
        vec![pool.clone(); self.in_use.len()]
    }
    fn network_length(&self, _: &str, _: Family) -> Option<u8> {
        self.agreed
    }
    fn members(&self, _: &str) -> Vec<PoolKey> {
        Vec::new()
    }
    fn pool(&self, _: &PoolKey) -> Option<(Scope, Option<Arc<Usable>>)> {
        None
    }
    fn holders(&self, _: &Slot) -> Vec<(String, String)> {
        Vec::new()
    }
}
