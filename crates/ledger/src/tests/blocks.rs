//! Networks that share blocks with other management clusters.

mod excluded;
mod model;
mod notifications;
mod recorded;
mod returns;
mod undecodable;
mod usable;
mod waiting;

use capi_ipam_api::IPSlice;
use serde_json::Value;

use super::*;

/// The network `lab` with blocks of four addresses from the registry `site`.
fn sharing(change: Value) -> IPNetwork {
    let mut network = json!({"spec": {"blocks": {"registry": "site", "size": 4}}});
    json_patch::merge(&mut network, &change);
    lab(network)
}

/// A usable slice of the block of four addresses that begins with this one.
fn slice(first: u8, change: Value) -> IPSlice {
    let mut object = json!({
        "metadata": {"name": format!("n.lab.10.0.0.{first}-30"), "uid": format!("s-{first}"), "resourceVersion": "5"},
        "spec": {"scope": "n.lab", "block": format!("10.0.0.{first}/30"),
                 "owner": {"kind": "ManagementCluster", "name": "west"},
                 "assignedAt": "2026-01-01T00:00:00Z", "confirmedAt": "2026-01-01T00:00:00Z"},
    });
    json_patch::merge(&mut object, &change);
    serde_json::from_value(object).unwrap()
}

fn four(first: u8) -> Block {
    Block::new([10, 0, 0, first].into(), 30)
}

fn scope() -> Scope {
    Scope::Network("lab".into())
}

fn begin_return(ledger: &mut Ledger, first: u8, uid: &str) -> bool {
    ledger.begin_slice_return(&scope(), four(first), uid)
}

/// Whether the pool of the network would allocate an address of each of four blocks if this
/// management cluster had them all.
fn allowed(ledger: &Ledger) -> [bool; 4] {
    let blocks = ledger.network_blocks("lab").unwrap();
    let addresses = &blocks.members[0].ranges;
    [0, 4, 8, 12].map(|first| addresses.overlaps(four(first).span()))
}

/// A ledger with the network, and the pool `p` with .1 to .14.
fn restricted() -> Ledger {
    let mut ledger = ledger();
    ledger.set_management_cluster("site", "west");
    ledger.apply_network(&sharing(json!({})));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.14"));
    take(&mut ledger);
    ledger
}

fn propose(ledger: &mut Ledger, name: &str) -> Option<u8> {
    match ledger.propose(&key(), &claim(name), 1) {
        Outcome::Offer(slot) => (0..=255).find(|last| block(*last) == slot.block),
        _ => None,
    }
}

fn is_usable(ledger: &Ledger, first: u8) -> bool {
    let is_usable = ledger.is_block_usable("lab", four(first));
    let total = address_counts(ledger).total;
    assert_eq!(is_usable, total > 0, "the pool has the usable addresses");
    is_usable
}

fn supply(obstacle: Option<BlockObstacle>) -> BlockSupply {
    BlockSupply {
        obstacle,
        ..BlockSupply::default()
    }
}
