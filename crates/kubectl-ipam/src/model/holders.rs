use std::collections::BTreeMap;

use capi_ipam_api::{PoolKey, PoolSpec, Scope};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolName;
use super::fact::Fact;
use crate::objects::{AddressRow, ClaimRow, Kind, Objects, PoolRow, ReservationRow};

/// What holds an address or prefix. A field is omitted if there is no value, and `null` if it may
/// not be read.
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
    #[serde(skip_serializing_if = "Fact::is_absent")]
    pub network: Fact<String>,
    /// Name of the IPReservation.
    #[serde(skip_serializing_if = "Fact::is_absent")]
    pub reservation: Fact<String>,
    /// Namespace and name of the IPAddress.
    #[serde(skip_serializing_if = "Fact::is_absent")]
    pub ip_address: Fact<String>,
    /// Namespace and name of the claim. If the address cools down, of the last claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Kind and name of the owner of the claim that is not the Cluster.
    #[serde(skip_serializing_if = "Fact::is_absent")]
    pub machine: Fact<String>,
    /// The Cluster of the claim.
    #[serde(skip_serializing_if = "Fact::is_absent")]
    pub cluster: Fact<String>,
    /// Since when: creation of the IPAddress or of the reservation, or the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// End of the cool-down or of the quarantine.
    #[serde(skip_serializing_if = "Fact::is_absent")]
    pub until: Fact<Timestamp>,
    /// Why it is quarantined, or will be when the claim is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
}

/// The state of an address that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum HolderState {
    /// An IPAddress has it.
    Allocated,
    /// An IPAddress has it, and its claim is being deleted.
    Releasing,
    /// A reservation holds it for a claim that has no IPAddress yet.
    Allocating,
    /// A reservation holds it for a claim. Whether the claim has an IPAddress may not be read.
    Held,
    /// A reservation keeps it for a claim of that name.
    Promised,
    /// A reservation excludes it.
    Excluded,
    /// It was released and cannot be reused yet.
    CoolingDown,
    /// Another host answers at it, and no claim gets it yet.
    Quarantined,
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
    /// The pool contains it, in use or not.
    InRange,
    /// The pool excludes it.
    Excluded,
    /// It is the gateway of the pool.
    Gateway,
    /// It is a reserved address of the subnet.
    Reserved,
}

/// The pools that contain `block` or a part of it.
pub(crate) fn matches_of(objects: &Objects, block: Block) -> Vec<PoolMatch> {
    let mut found = Vec::new();
    for pool in objects.pools() {
        if let Some(membership) = membership(pool, block) {
            found.push(PoolMatch {
                pool: (&pool.key).into(),
                network: pool.network.clone(),
                membership,
            });
        }
    }
    found
}

/// Why a pool cannot allocate an address or a prefix.
pub(crate) fn why_not_contained(pool: &PoolRow, block: Block) -> String {
    let key = &pool.key;
    match membership(pool, block) {
        Some(Membership::Gateway) => format!("{block} is the gateway of {key}"),
        Some(Membership::Excluded) => format!("{block} is excluded by the specification of {key}"),
        Some(Membership::Reserved) => format!(
            "{block} is a network, broadcast or router address of the subnet of {key}, which does not allocate it \
             without spec.allocateReservedIPAddresses"
        ),
        // It contains a part of the block, or addresses of it.
        Some(Membership::InRange) => format!("{block} is not a block that {key} allocates"),
        None => format!("{key} does not contain {block}"),
    }
}

fn membership(pool: &PoolRow, block: Block) -> Option<Membership> {
    let usable = pool.usable.as_ref().ok()?;
    if usable.overlaps_block(block) {
        return Some(Membership::InRange);
    }
    if usable
        .gateways()
        .any(|gateway| Block::address(gateway) == block)
    {
        return Some(Membership::Gateway);
    }
    let contains = |spec: &PoolSpec| {
        spec.usable()
            .is_ok_and(|usable| usable.overlaps_block(block))
    };
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

#[derive(Default)]
struct Entry<'a> {
    addresses: Vec<&'a AddressRow>,
    reservation: Option<&'a ReservationRow>,
}

/// Joins addresses and reservations with their claims: one holder per IPAddress, and one per reservation
/// without one.
pub(crate) fn holders<'a>(
    objects: &Objects,
    addresses: impl IntoIterator<Item = &'a AddressRow>,
    reservations: impl IntoIterator<Item = &'a ReservationRow>,
) -> Vec<Holder> {
    let mut entries: BTreeMap<(u128, u8, Scope), Entry<'_>> = BTreeMap::new();
    let place = |block: Block, scope: Scope| (block.span().first(), block.length(), scope);
    for address in addresses {
        let place = place(address.block, objects.scope_of(&address.pool));
        entries.entry(place).or_default().addresses.push(address);
    }
    for reservation in reservations {
        let slot = &reservation.slot;
        let place = place(slot.block, slot.scope.clone());
        entries.entry(place).or_default().reservation = Some(reservation);
    }
    let mut holders = Vec::new();
    for ((_, _, scope), mut entry) in entries {
        entry.addresses.sort_by_key(|address| &address.key);
        for address in &entry.addresses {
            holders.push(allocated(objects, address, &scope, entry.reservation));
        }
        if let Some(reservation) = entry.reservation.filter(|_| entry.addresses.is_empty()) {
            holders.push(reserved(objects, reservation, &scope));
        }
    }
    holders
}

/// The state of an address with a reservation and without an IPAddress.
pub(super) fn state(reservation: &ReservationRow) -> HolderState {
    match (&reservation.released, &reservation.claim) {
        (Some(_), _) => HolderState::CoolingDown,
        (None, Some(_)) if reservation.has_uid() => HolderState::Allocating,
        (None, Some(_)) => HolderState::Promised,
        (None, None) if reservation.quarantine.is_some() => HolderState::Quarantined,
        (None, None) => HolderState::Excluded,
    }
}

/// Whether it is known in which scope the addresses of a pool are: that of the pool, or of its network.
fn knows_scope(objects: &Objects, pool: &PoolKey) -> bool {
    objects.pool(pool).is_some() || objects.has(&Kind::POOLS)
}

/// The network of an address. The pool says it, so it is unknown without the pool.
fn network_of(objects: &Objects, scope: &Scope, pool: &PoolKey) -> Fact<String> {
    match scope {
        Scope::Network(name) => Fact::Known(name.to_string()),
        Scope::Pool(_) if knows_scope(objects, pool) => Fact::Absent,
        Scope::Pool(_) => Fact::Unknown,
    }
}

/// The machine of a claim.
fn machine_of(objects: &Objects, claim: &NamespacedName) -> Fact<String> {
    let machine = objects
        .claims
        .get(claim)
        .and_then(|it| it.machine.as_deref());
    let is_complete = objects.covers(Kind::Claim, Some(claim.namespace()));
    Fact::of(machine.map(str::to_owned), is_complete)
}

/// The Cluster of a claim; `other` is what another object says.
fn cluster_of(objects: &Objects, claim: &NamespacedName, other: Option<&str>) -> Fact<String> {
    let cluster = objects
        .claims
        .get(claim)
        .and_then(|it| it.cluster.as_deref());
    let is_complete = objects.covers(Kind::Claim, Some(claim.namespace()));
    Fact::of(cluster.or(other).map(str::to_owned), is_complete)
}

/// The holder of an IPAddress.
fn allocated(
    objects: &Objects,
    address: &AddressRow,
    scope: &Scope,
    reservation: Option<&ReservationRow>,
) -> Holder {
    let claim = address.claim_key();
    let owner = objects.claims.get(&claim);
    let name = reservation.map(|reservation| reservation.slot.reservation_name());
    let has_reservations = knows_scope(objects, &address.pool) && objects.has(&[Kind::Reservation]);
    Holder {
        address: address.block.to_string(),
        state: if owner.is_some_and(ClaimRow::is_deleting) {
            HolderState::Releasing
        } else {
            HolderState::Allocated
        },
        pool: (&address.pool).into(),
        network: network_of(objects, scope, &address.pool),
        reservation: Fact::of(name, has_reservations),
        ip_address: Fact::Known(address.key.to_string()),
        machine: machine_of(objects, &claim),
        cluster: cluster_of(objects, &claim, address.cluster.as_deref()),
        claim: Some(claim.to_string()),
        since: address.created,
        until: Fact::Absent,
        conflict: owner.and_then(|owner| Some(owner.conflict.as_deref()?.to_owned())),
    }
}

/// The holder of a reservation without an IPAddress.
fn reserved(objects: &Objects, reservation: &ReservationRow, scope: &Scope) -> Holder {
    // Which IPAddresses are in a network depends on its pools.
    let has_pools = matches!(scope, Scope::Pool(_)) || objects.has(&Kind::POOLS);
    let has_addresses = has_pools && objects.has(&[Kind::Address]);
    let state = match state(reservation) {
        HolderState::Allocating if !has_addresses => HolderState::Held,
        state => state,
    };
    let mut holder = Holder {
        address: reservation.slot.block.to_string(),
        state,
        pool: (&reservation.pool).into(),
        network: match scope {
            Scope::Network(name) => Fact::Known(name.to_string()),
            Scope::Pool(_) => Fact::Absent,
        },
        reservation: Fact::Known(reservation.slot.reservation_name()),
        ip_address: Fact::of(None, has_addresses),
        claim: reservation.claim.as_ref().map(ToString::to_string),
        machine: Fact::Absent,
        cluster: Fact::Absent,
        since: reservation.released.or(reservation.created),
        until: until(objects, reservation),
        conflict: reservation
            .quarantine
            .as_ref()
            .map(|quarantine| quarantine.reason.clone()),
    };
    if let Some(claim) = &reservation.claim
        && state != HolderState::CoolingDown
    {
        holder.machine = machine_of(objects, claim);
        holder.cluster = cluster_of(objects, claim, None);
    }
    holder
}

/// The end of the quarantine, or of the cool-down, whose length the pool has.
fn until(objects: &Objects, reservation: &ReservationRow) -> Fact<Timestamp> {
    if let Some(quarantine) = &reservation.quarantine {
        return Fact::Known(quarantine.until.0);
    }
    let Some(released) = reservation.released else {
        return Fact::Absent;
    };
    let pool = objects.pool(&reservation.pool);
    // Times are truncated to seconds: the last second has to be over.
    let end = pool.and_then(|pool| {
        let seconds = pool.spec.cooldown_seconds().saturating_add(1);
        released
            .checked_add(SignedDuration::from_secs(seconds))
            .ok()
    });
    Fact::of(end, objects.has(&Kind::POOLS))
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::Pool;
    use serde_json::json;

    use super::*;

    #[test]
    fn address_that_a_pool_does_not_allocate_has_its_cause() {
        let pool = json!({
            "kind": "InClusterIPPool", "metadata": { "name": "web", "namespace": "lab" },
            "spec": { "addresses": ["10.0.0.0/24"], "prefix": 24, "gateway": "10.0.0.1",
                      "excludedAddresses": ["10.0.0.20"] },
        });
        let pool = PoolRow::from(&serde_json::from_value::<Pool>(pool).unwrap());
        for (address, why) in [
            (
                "10.0.0.1",
                "10.0.0.1 is the gateway of InClusterIPPool lab/web",
            ),
            ("10.0.0.20", "10.0.0.20 is excluded by the specification"),
            (
                "10.0.0.0",
                "10.0.0.0 is a network, broadcast or router address",
            ),
            (
                "10.0.0.255",
                "10.0.0.255 is a network, broadcast or router address",
            ),
            (
                "10.0.1.7",
                "InClusterIPPool lab/web does not contain 10.0.1.7",
            ),
        ] {
            let text = why_not_contained(&pool, Block::address(address.parse().unwrap()));
            assert!(text.starts_with(why), "{text}");
        }
    }
}
