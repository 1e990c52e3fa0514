//! `who` and `show`. Both read lists of the whole cluster. As text, what is known before is printed at once.

use capi_ipam::api::{IPReservation, PoolKey, Scope, Slot};
use capi_ipam_ip::{Block, UsableBlocks};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};

use crate::cluster::{Cluster, Kind, ListError};
use crate::commands::finish;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{Holder, PoolDetails, PoolMatch, Report, holders, matches_of, show};
use crate::objects::{AddressRow, ClaimRow, PoolRow, ReservationRow, SliceRow};
use crate::output;
use crate::render::{self, Style};

/// What contains and holds an address.
pub(crate) async fn who(loader: &mut Loader<'_>, block: Block) -> Result<Report, Error> {
    let rows = loader.pools(None).await?;
    let pools = matches_of(&rows, block);
    let holders = all_holders(loader, &rows, block).await?;
    require_holder(loader, &pools, &holders, block)?;
    Ok(Report::HolderList { address: block.to_string(), pools, holders })
}

/// Prints what contains and holds an address: first the pools, then the holder that the reservation names, then the
/// others, for which all IPAddresses are read.
pub(crate) async fn print_who(loader: &mut Loader<'_>, block: Block, style: Style) -> Result<Code, Error> {
    let rows = loader.pools(None).await?;
    let pools = matches_of(&rows, block);
    if !pools.is_empty() {
        output::print(&render::memberships(&pools))?;
    }
    let known = reserved_holders(loader.cluster, &rows, block).await?;
    output::print(&render::holder_texts(&known, style))?;
    let all = all_holders(loader, &rows, block).await?;
    require_holder(loader, &pools, &all, block)?;
    if pools.is_empty() {
        output::print(&render::memberships(&pools))?;
    }
    let id = |holder: &Holder| (holder.ip_address.clone(), holder.reservation.clone());
    let others = all.iter().filter(|holder| !known.iter().any(|known| id(known) == id(holder)));
    output::print(&render::holder_texts(others, style))?;
    if all.is_empty() && known.is_empty() {
        output::print(&render::nothing_holds(&block.to_string()))?;
    }
    Ok(finish(loader))
}

fn require_holder(loader: &Loader<'_>, pools: &[PoolMatch], holders: &[Holder], block: Block) -> Result<(), Error> {
    if pools.is_empty() && holders.is_empty() && loader.missing.is_empty() {
        return Err(Error::NoHolder { address: block.to_string() });
    }
    Ok(())
}

/// All holders: reads all IPAddresses and reservations.
async fn all_holders(loader: &mut Loader<'_>, rows: &[PoolRow], block: Block) -> Result<Vec<Holder>, Error> {
    let addresses = loader.addresses(|row| overlap(row.block, block)).await?;
    let reservations = loader.reservations(|row| overlap(row.slot.block, block)).await?;
    let wanted = |claim: &ClaimRow| {
        addresses.iter().any(|row| row.key.0 == claim.key.0 && row.claim == claim.key.1)
            || reservations.iter().any(|row| row.claim.as_ref() == Some(&claim.key))
    };
    let claims =
        if addresses.is_empty() && reservations.is_empty() { Vec::new() } else { loader.claims(None, wanted).await? };
    Ok(holders(rows, &addresses, &reservations, &claims))
}

/// The holders that the reservations of the address name: objects are read by name. Without a permission none is found.
async fn reserved_holders(cluster: &Cluster, rows: &[PoolRow], block: Block) -> Result<Vec<Holder>, Error> {
    let mut slots: Vec<Slot> = rows.iter().filter_map(|pool| slot(pool, block)).collect();
    slots.sort();
    slots.dedup();
    let (mut reservations, mut addresses, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    for slot in &slots {
        let each = |it: IPReservation| reservations.extend(ReservationRow::of(&it));
        optional(cluster.list_named(Kind::Reservation, None, &slot.reservation_name(), each).await)?;
    }
    for (namespace, name) in reservations.iter().filter_map(|row| row.claim.as_ref()) {
        let each = |it: IPAddressClaim| claims.extend(ClaimRow::of(&it));
        optional(cluster.list_named(Kind::Claim, Some(namespace), name, each).await)?;
        // The IPAddress has the name of its claim.
        let each = |it: IPAddress| addresses.extend(AddressRow::of(&it).filter(|row| overlap(row.block, block)));
        optional(cluster.list_named(Kind::Address, Some(namespace), name, each).await)?;
    }
    Ok(holders(rows, &addresses, &reservations, &claims))
}

fn optional<T>(result: Result<T, ListError>) -> Result<(), Error> {
    match result {
        Ok(_) | Err(ListError::Forbidden(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The address or prefix of a pool that contains `block`; `None` if several do.
fn slot(pool: &PoolRow, block: Block) -> Option<Slot> {
    let usable: &UsableBlocks = pool.usable.as_ref().ok()?;
    let numbers = usable.numbers_overlapping(block)?;
    let found = (numbers.first() == numbers.last()).then(|| usable.block(numbers.first()))?;
    Some(Slot { scope: pool.scope.clone(), block: found })
}

fn overlap(one: Block, other: Block) -> bool {
    let (a, b) = (one.span(), other.span());
    one.family() == other.family() && a.first() <= b.last() && b.first() <= a.last()
}

/// Prints a pool: first its specification, then what is computed from all IPAddresses, reservations and claims.
pub(crate) async fn print_details(loader: &mut Loader<'_>, name: &str, style: Style) -> Result<Code, Error> {
    let pool = loader.find_pool(name).await?;
    output::print(&render::head(&show(&pool, &[], &[], &[], &[], Vec::new())))?;
    let details = details(loader, &pool).await?;
    output::print(&render::body(&details, style))?;
    Ok(finish(loader))
}

/// A pool with everything that it contains.
pub(crate) async fn details(loader: &mut Loader<'_>, pool: &PoolRow) -> Result<PoolDetails, Error> {
    // Pools of other namespaces matter only for a network.
    let all = if pool.network.is_some() { loader.pools(None).await? } else { vec![pool.clone()] };
    let scope = |key: &PoolKey| {
        let found = all.iter().find(|pool| pool.key == *key);
        found.map_or_else(|| Scope::Pool(key.clone()), |pool| pool.scope.clone())
    };
    let namespace = if pool.network.is_none() { pool.key.namespace.as_deref() } else { None };
    let mut addresses = loader.addresses_in(namespace, |row| scope(&row.pool) == pool.scope).await?;
    let mut reservations = loader.reservations(|row| row.slot.scope == pool.scope).await?;
    let mut claims = loader.claims(namespace, |row| scope(&row.pool) == pool.scope).await?;
    let is_own = |row: &SliceRow| row.block.as_ref().is_ok_and(|(key, _)| *key == pool.key);
    let slices = if pool.spec.slices().is_some() { loader.slices(is_own).await? } else { Vec::new() };
    addresses.shrink_to_fit();
    reservations.shrink_to_fit();
    claims.shrink_to_fit();
    Ok(show(pool, &all, &addresses, &reservations, &slices, claims))
}
