use std::collections::{BTreeMap, HashMap};

use capi_ipam::api::{PoolKey, PoolSpec, Scope};
use capi_ipam_ip::{Block, SpanSet, UsableBlocks};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolName;
use crate::objects::{AddressRow, ClaimRow, Key, PoolRow, ReservationRow};

/// What holds an address or prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The address or prefix.
    pub address: String,
    /// The state.
    pub state: HolderState,
    /// The pool.
    pub pool: PoolName,
    /// The network of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Name of the IPReservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Namespace and name of the IPAddress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// Namespace and name of the claim. If the address cools down, of the last claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Kind and name of the owner of the claim that is not the Cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The Cluster of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Since when: creation of the IPAddress or of the reservation, or the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Timestamp>,
    /// End of the cool-down.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
}

/// The state of an address that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum HolderState {
    /// An IPAddress has it.
    Allocated,
    /// A reservation holds it for a claim that has no IPAddress yet.
    Allocating,
    /// A reservation keeps it for a claim of that name.
    Promised,
    /// A reservation excludes it.
    Excluded,
    /// It was released and cannot be reused yet.
    CoolingDown,
}

/// A pool that contains an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PoolMatch {
    /// The pool.
    pub pool: PoolName,
    /// The network of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// How the pool contains it.
    pub membership: Membership,
}

/// How a pool contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Membership {
    /// The pool can allocate it.
    Allocatable,
    /// The pool excludes it.
    Excluded,
    /// It is the gateway of the pool.
    Gateway,
    /// It is a reserved address of the subnet.
    Reserved,
}

/// The pools that contain `block` or a part of it.
pub(crate) fn matches_of(pools: &[PoolRow], block: Block) -> Vec<PoolMatch> {
    let found = pools.iter().filter_map(|pool| Some((pool, membership(pool, block)?)));
    let entry = |(pool, membership): (&PoolRow, _)| PoolMatch {
        pool: (&pool.key).into(),
        network: pool.network.clone(),
        membership,
    };
    found.map(entry).collect()
}

fn membership(pool: &PoolRow, block: Block) -> Option<Membership> {
    let usable = pool.usable.as_ref().ok()?;
    if overlaps(usable, block) {
        return Some(Membership::Allocatable);
    }
    if usable.gateways().any(|gateway| Block::address(gateway) == block) {
        return Some(Membership::Gateway);
    }
    let contains = |spec: &PoolSpec| spec.usable().is_ok_and(|usable| overlaps(&usable, block));
    let mut spec = pool.spec.clone();
    match &mut spec {
        PoolSpec::Addresses(spec) => spec.excluded_addresses.clear(),
        PoolSpec::Prefixes(spec) => spec.excluded_prefixes.clear(),
    }
    if contains(&spec) {
        return Some(Membership::Excluded);
    }
    if let PoolSpec::Addresses(spec) = &mut spec {
        spec.allocate_reserved_ip_addresses = true;
    }
    contains(&spec).then_some(Membership::Reserved)
}

fn overlaps(usable: &UsableBlocks, block: Block) -> bool {
    let numbers = usable.numbers_overlapping(block).map(SpanSet::from).unwrap_or_default();
    !numbers.intersect(&usable.set).is_empty()
}

#[derive(Default)]
struct Entry<'a> {
    addresses: Vec<&'a AddressRow>,
    reservation: Option<&'a ReservationRow>,
}

/// Joins addresses, reservations and claims: one holder per IPAddress, and one per reservation without one.
pub(crate) fn holders<'a>(
    pools: &[PoolRow],
    addresses: impl IntoIterator<Item = &'a AddressRow>,
    reservations: impl IntoIterator<Item = &'a ReservationRow>,
    claims: impl IntoIterator<Item = &'a ClaimRow>,
) -> Vec<Holder> {
    let pools: HashMap<&PoolKey, &PoolRow> = pools.iter().map(|pool| (&pool.key, pool)).collect();
    let claims: HashMap<&Key, &ClaimRow> = claims.into_iter().map(|claim| (&claim.key, claim)).collect();
    let mut entries: BTreeMap<(u128, u8, Scope), Entry<'_>> = BTreeMap::new();
    let place = |block: Block, scope: Scope| (block.span().first(), block.length(), scope);
    for address in addresses {
        let scope =
            pools.get(&address.pool).map_or_else(|| Scope::Pool(address.pool.clone()), |pool| pool.scope.clone());
        entries.entry(place(address.block, scope)).or_default().addresses.push(address);
    }
    for reservation in reservations {
        let slot = &reservation.slot;
        entries.entry(place(slot.block, slot.scope.clone())).or_default().reservation = Some(reservation);
    }
    // A vector that grows would take twice the memory for a moment.
    let mut holders = Vec::with_capacity(entries.values().map(|entry| entry.addresses.len().max(1)).sum());
    for ((_, _, scope), entry) in entries {
        let reservation = entry.reservation;
        let name = reservation.map(|reservation| reservation.slot.reservation_name());
        let network = if let Scope::Network(name) = &scope { Some(name.to_string()) } else { None };
        for address in &entry.addresses {
            let claim = (address.key.0.clone(), address.claim.clone());
            let owner = claims.get(&claim);
            holders.push(Holder {
                address: address.block.to_string(),
                state: HolderState::Allocated,
                pool: (&address.pool).into(),
                network: network.clone(),
                reservation: name.clone(),
                ip_address: Some(join(&address.key)),
                claim: Some(join(&claim)),
                machine: owner.and_then(|claim| claim.machine.as_deref()).map(str::to_owned),
                cluster: owner.and_then(|it| it.cluster.as_deref()).or(address.cluster.as_deref()).map(str::to_owned),
                since: address.created,
                until: None,
            });
        }
        if let Some(reservation) = reservation.filter(|_| entry.addresses.is_empty()) {
            holders.push(reserved(reservation, network, name, &pools, &claims));
        }
    }
    holders
}

/// The state of an address with a reservation and without an IPAddress.
pub(super) fn state(reservation: &ReservationRow) -> HolderState {
    match (&reservation.released, &reservation.claim) {
        (Some(_), _) => HolderState::CoolingDown,
        (None, Some(_)) if reservation.has_uid => HolderState::Allocating,
        (None, Some(_)) => HolderState::Promised,
        (None, None) => HolderState::Excluded,
    }
}

/// The holder of a reservation without an IPAddress.
fn reserved(
    reservation: &ReservationRow,
    network: Option<String>,
    name: Option<String>,
    pools: &HashMap<&PoolKey, &PoolRow>,
    claims: &HashMap<&Key, &ClaimRow>,
) -> Holder {
    let state = state(reservation);
    let owner = reservation.claim.as_ref().filter(|_| state != HolderState::CoolingDown);
    let owner = owner.and_then(|claim| claims.get(claim));
    let seconds = pools.get(&reservation.pool).map(|pool| pool.spec.cooldown_seconds());
    // Times are truncated to seconds: the last second has to be over.
    let end = seconds.map(|seconds| SignedDuration::from_secs(seconds.saturating_add(1)));
    Holder {
        address: reservation.slot.block.to_string(),
        state,
        pool: (&reservation.pool).into(),
        network,
        reservation: name,
        ip_address: None,
        claim: reservation.claim.as_ref().map(join),
        machine: owner.and_then(|claim| claim.machine.as_deref()).map(str::to_owned),
        cluster: owner.and_then(|claim| claim.cluster.as_deref()).map(str::to_owned),
        since: reservation.released.or(reservation.created),
        until: reservation.released.zip(end).and_then(|(released, end)| released.checked_add(end).ok()),
    }
}

fn join((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}
