//! Warnings about pools that join or leave a network with addresses in use, or that a network does
//! not accept: by a change of the pool, or of the network.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use capi_ipam_api::{Audience, Pool, PoolKey, ScopeChange, advice, names};
use capi_ipam_ip::Block;

/// Networks are cluster-scoped, so messages about them name no namespaced object.
const AUDIENCE: Audience<'static> = Audience::of(None);

/// Returns the warnings about a write of a pool. `old` is the pool before the write.
pub(super) fn of_pool(change: &ScopeChange, new: &Pool, old: Option<&Pool>) -> Vec<String> {
    let names_network = |pool: &Pool| pool.spec.network().is_some();
    let mut warnings = Vec::new();
    let affected = &change.affected;
    if !affected.is_empty() {
        let field = if names_network(new) || old.is_some_and(names_network) {
            "spec.network"
        } else {
            "metadata.labels"
        };
        let in_use = in_use(affected.len());
        let addresses = named(affected);
        if let Some(network) = change.left_network() {
            warnings.push(format!(
                "{field}: the pool leaves IPNetwork {network} with {in_use}, which other pools of the \
                 network can then allocate: {addresses}; release them first, or keep the pool in the network"
            ));
        } else if let Some(network) = change.joined_network() {
            warnings.push(format!(
                "{field}: the pool joins IPNetwork {network} with {in_use} that other pools of the network use \
                 as well: {addresses}; their claims will report DuplicateAddress; recreate one of the \
                 machines that share an address"
            ));
        }
    }
    if let (true, Some(network)) = (change.is_kept, change.after.network()) {
        let field = if old.is_some_and(names_network) {
            "spec.network"
        } else {
            "metadata.labels"
        };
        warnings.push(format!(
            "{field}: the pool stays in IPNetwork {network}, where addresses of it are in use; to leave: {}",
            advice::leave_network(&change.pool, network)
        ));
    }
    if let Some(refusal) = &change.refusal {
        // Not denied: `clusterctl move` and restores create pools and networks in any order.
        let field = if names_network(new) {
            "spec.network"
        } else {
            "metadata.labels"
        };
        warnings.push(format!("{field}: {refusal}"));
    }
    warnings
}

/// Returns the warnings about a write of a network, which changes the scopes of these pools.
pub(super) fn of_network(changes: &[ScopeChange]) -> Vec<String> {
    let mut warnings = Vec::new();
    let is_leaving = |change: &&ScopeChange| change.left_network().is_some();
    if let Some((in_use, pools)) = affected(changes.iter().filter(is_leaving)) {
        warnings.push(format!(
            "spec: pools leave the network with {in_use}, which other pools of the network can then allocate\
             : {pools}; release them first, or keep the pools in the network"
        ));
    }
    let kept = changes.iter().filter(|change| change.is_kept);
    let kept: Vec<&PoolKey> = kept.map(|change| &change.pool).collect();
    if !kept.is_empty() {
        let pools = AUDIENCE.pools(kept);
        warnings.push(format!(
            "spec.pools: the network does not select these pools any more, and they stay in it because addresses of \
             them are in use: {pools}; to let one leave, annotate it with {}",
            names::LEAVE_NETWORK_ANNOTATION
        ));
    }
    let is_joining = |change: &&ScopeChange| {
        change.left_network().is_none() && change.joined_network().is_some()
    };
    if let Some((in_use, pools)) = affected(changes.iter().filter(is_joining)) {
        warnings.push(format!(
            "spec: pools join the network with {in_use} that other pools of the network use as well: \
             {pools}; their claims will report DuplicateAddress; recreate one of the machines that share an address"
        ));
    }
    let mut refused: BTreeMap<String, Vec<&PoolKey>> = BTreeMap::new();
    for change in changes {
        if let Some(refusal) = &change.refusal {
            refused
                .entry(refusal.to_string())
                .or_default()
                .push(&change.pool);
        }
    }
    for (refusal, pools) in refused {
        warnings.push(format!(
            "spec: {} cannot allocate addresses any more: {refusal}",
            AUDIENCE.pools(pools)
        ));
    }
    warnings
}

/// The number of affected addresses, and the pools that have them; `None` without one.
fn affected<'a>(changes: impl Iterator<Item = &'a ScopeChange>) -> Option<(String, String)> {
    let mut count = 0_usize;
    let mut pools = Vec::new();
    for change in changes {
        if !change.affected.is_empty() {
            count = count.saturating_add(change.affected.len());
            pools.push(&change.pool);
        }
    }
    if count == 0 {
        return None;
    }
    Some((in_use(count), AUDIENCE.pools(pools)))
}

fn in_use(count: usize) -> String {
    let noun = if count == 1 { "address" } else { "addresses" };
    format!("{count} {noun} in use")
}

/// The maximum number of blocks that a message names.
const MAX_NAMED: usize = 10;

/// Names some of the blocks, and counts the others.
pub(super) fn named(blocks: &[Block]) -> String {
    let names: Vec<String> = blocks
        .iter()
        .take(MAX_NAMED)
        .map(ToString::to_string)
        .collect();
    let mut text = names.join(", ");
    if blocks.len() > names.len() {
        let _ = write!(text, " and {} more", blocks.len() - names.len());
    }
    text
}
