//! `convert --from metal3`: pools and addresses of the IP address manager of Metal3 as manifests.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::{
    AddressRange, AllocationOrder, AllocationPolicy, IPPoolSpec, InClusterKind, Pool, PoolKey,
    PoolSpec, Scope, Slot,
};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, Span, UsableBlocks, parse_address, parse_entry};
use capi_ipam_provider::api::IPAddress;
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Converted, set_source};
use crate::manifests::plain_pool;
use crate::user_reservation::{promised_to, reservation};

/// The API group of its kinds.
pub(crate) const GROUP: &str = "ipam.metal3.io";

/// An IPPool, reduced to what is converted.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct IPPool {
    metadata: ObjectMeta,
    spec: IPPoolParts,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IPPoolParts {
    pools: Vec<Part>,
    prefix: Option<i64>,
    gateway: Option<String>,
    dns_servers: Vec<String>,
    pre_allocations: BTreeMap<String, String>,
    allocation_strategy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Part {
    start: Option<String>,
    end: Option<String>,
    subnet: Option<String>,
    prefix: Option<i64>,
    gateway: Option<String>,
    dns_servers: Vec<String>,
}

/// An IPAddress or an IPClaim, reduced to what is converted.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Allocated {
    metadata: ObjectMeta,
    spec: AllocatedSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AllocatedSpec {
    address: String,
    claim: Name,
    pool: Name,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Name {
    name: String,
}

/// What the cluster contains.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) pools: Vec<IPPool>,
    pub(crate) addresses: Vec<Allocated>,
    pub(crate) claims: Vec<Allocated>,
    /// The addresses of claims of Cluster API.
    pub(crate) contract: Vec<IPAddress>,
}

/// An address of a pool that a claim has, or that is promised to it.
type Use<'a> = (PoolKey, &'a str, NamespacedName);

/// What is reserved for claims, in pools with usable addresses.
#[derive(Default)]
struct Reserved {
    pools: BTreeMap<PoolKey, UsableBlocks>,
    holders: BTreeMap<Slot, (PoolKey, NamespacedName)>,
    /// A claim gets one address.
    addresses: BTreeMap<NamespacedName, Slot>,
}

impl Reserved {
    /// Reserves an address for a claim. Fails with the reason why it cannot be reserved.
    fn add(&mut self, (pool, text, claim): &Use<'_>) -> Result<(), String> {
        let usable = self.pools.get(pool);
        let block = parse_address(text).map(Block::address).ok();
        let block = block.filter(|block| usable.is_some_and(|usable| usable.contains(*block)));
        let block = block.ok_or_else(|| format!("{pool} cannot allocate it"))?;
        if let Some(problem) = promised_to(claim).problem(pool) {
            return Err(problem.detail());
        }
        let slot = Slot {
            scope: Scope::Pool(pool.clone()),
            block,
        };
        if let Some((_, holder)) = self.holders.get(&slot).filter(|(_, it)| it != claim) {
            return Err(format!("the claim {holder} has it"));
        }
        if let Some(other) = self.addresses.get(claim).filter(|other| **other != slot) {
            return Err(format!("the claim has {}", other.block));
        }
        self.addresses.insert(claim.clone(), slot.clone());
        self.holders.insert(slot, (pool.clone(), claim.clone()));
        Ok(())
    }
}

/// Converts pools, and reserves each address for the claim that has it. All manifests get the label
/// of the source.
///
/// # Errors
/// Everything that is wrong with the pools.
pub(crate) fn convert(objects: &Objects, source: &str) -> Result<Converted, Vec<String>> {
    let mut converted = Converted::default();
    let mut problems = Vec::new();
    let mut reserved = Reserved::default();
    for pool in &objects.pools {
        let key = NamespacedName::of(&pool.metadata);
        match manifest(pool, &key) {
            Ok((manifest, usable)) => {
                converted.objects.push(manifest);
                reserved.pools.insert(pool_key(&key, key.name()), usable);
            }
            Err(found) => problems.extend(found.iter().map(|it| format!("IPPool {key}: {it}"))),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut claims = BTreeSet::new();
    for used in uses(objects) {
        let added = reserved.add(&used);
        let (_, text, claim) = used;
        if let Err(why) = added {
            let problem = format!("{text} of the claim {claim} is left out: {why}");
            converted.warnings.push(problem);
        }
        claims.insert(claim);
    }
    for (slot, (pool, claim)) in &reserved.holders {
        let manifest = json!(reservation(slot, pool, Some(claim)));
        converted.objects.push(manifest);
    }
    let keys = objects
        .claims
        .iter()
        .map(|it| NamespacedName::of(&it.metadata));
    for key in keys.filter(|key| !claims.contains(key)) {
        converted
            .warnings
            .push(format!("IPClaim {key} has no IPAddress"));
    }
    for object in &mut converted.objects {
        set_source(object, source);
    }
    Ok(converted)
}

/// The addresses in use, then those that are promised.
fn uses(objects: &Objects) -> Vec<Use<'_>> {
    let mut uses = Vec::new();
    let mut add = |metadata: &ObjectMeta, pool: &str, address, claim: &str| {
        let key = NamespacedName::of(metadata);
        let claim = NamespacedName::new(key.namespace(), claim);
        uses.push((pool_key(&key, pool), address, claim));
    };
    for Allocated { metadata, spec } in &objects.addresses {
        add(
            metadata,
            &spec.pool.name,
            spec.address.as_str(),
            &spec.claim.name,
        );
    }
    for IPAddress { metadata, spec, .. } in &objects.contract {
        if spec.pool_ref.api_group == GROUP {
            add(
                metadata,
                &spec.pool_ref.name,
                &spec.address,
                &spec.claim_ref.name,
            );
        }
    }
    for IPPool { metadata, spec } in &objects.pools {
        let name = metadata.name.as_deref().unwrap_or_default();
        for (claim, address) in &spec.pre_allocations {
            add(metadata, name, address, claim);
        }
    }
    uses
}

/// A pool in the namespace of an object.
fn pool_key(object: &NamespacedName, name: &str) -> PoolKey {
    PoolKey::new(InClusterKind::IPPool, Some(object.namespace()), name)
}

/// The manifest of a pool, and its addresses.
fn manifest(pool: &IPPool, key: &NamespacedName) -> Result<(Value, UsableBlocks), Vec<String>> {
    let spec = &pool.spec;
    let (mut ranges, mut problems) = (Vec::new(), Vec::new());
    for part in &spec.pools {
        match range(spec, part) {
            Ok(range) => ranges.push(range),
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if ranges.is_empty() {
        return Err(vec!["spec.pools is empty".to_owned()]);
    }
    // Name servers of the pool are the default of all ranges, so those of the first one stay there.
    let is_plain = |range: &AddressRange| range.dns_servers.is_empty();
    let first = if ranges.first().is_some_and(is_plain) {
        ranges.remove(0)
    } else {
        AddressRange::default()
    };
    let is_random = spec.allocation_strategy == "random";
    let spec = PoolSpec::Addresses(IPPoolSpec {
        addresses: first.addresses,
        prefix: first.prefix,
        gateway: first.gateway,
        ranges,
        dns_servers: spec.dns_servers.clone(),
        allocation: is_random.then(|| AllocationPolicy {
            order: Some(AllocationOrder::Random),
            ..AllocationPolicy::default()
        }),
        ..IPPoolSpec::default()
    });
    let usable = spec.usable();
    let usable =
        usable.map_err(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let mut new = Pool::reference(&pool_key(key, key.name()), None);
    new.spec = spec;
    Ok((json!(plain_pool(&new)), usable))
}

/// A part of a pool, with what it has from the pool.
fn range(spec: &IPPoolParts, part: &Part) -> Result<AddressRange, String> {
    let subnet = part.subnet.as_deref().map(parse_entry).transpose();
    let subnet = subnet.map_err(|error| error.to_string())?;
    let in_subnet = |number: fn(Span) -> u128| {
        let entry = subnet?;
        Some(entry.family.address(number(entry.span)).to_string())
    };
    // Without a start, the first address of the subnet is not used.
    let second = || in_subnet(|span| span.first().saturating_add(1));
    let start = part.start.clone().or_else(second);
    let end = part.end.clone().or_else(|| in_subnet(Span::last));
    let entry = match (start, end, &part.subnet) {
        (_, _, Some(subnet)) if part.start.is_none() && part.end.is_none() => subnet.clone(),
        (Some(start), Some(end), _) => format!("{start}-{end}"),
        _ => {
            let problem = "a pool in spec.pools has neither a subnet nor both start and end";
            return Err(problem.to_owned());
        }
    };
    let length = part.subnet.as_deref().and_then(|it| it.split_once('/'));
    let length = length.and_then(|(_, length)| length.parse().ok());
    let prefix = part.prefix.or(spec.prefix).or(length);
    Ok(AddressRange {
        addresses: vec![entry],
        prefix: prefix.ok_or_else(|| "spec.prefix is missing".to_owned())?,
        gateway: part.gateway.clone().or_else(|| spec.gateway.clone()),
        dns_servers: part.dns_servers.clone(),
        search_domains: Vec::new(),
    })
}

#[cfg(test)]
mod tests;
