//! `who` and `show`. Both read lists of the whole cluster. As text, what is known before is printed
//! at once.

use std::collections::HashMap;

use capi_ipam_api::{IPReservation, PoolKey, Scope, Slot};
use capi_ipam_ip::{Block, UsableBlocks};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};

use crate::cluster::{Cluster, Kind, ListError};
use crate::commands::{code, warn};
use crate::error::{Code, Error, MissingRight};
use crate::load::{Loader, Readable};
use crate::model::{
    Holder, PoolDetails, PoolMatch, Report, holders, matches_of, show, specification,
};
use crate::objects::{AddressRow, ClaimRow, PoolRow, ReservationRow, SliceRow};
use crate::output;
use crate::render::{self, Style};

/// What contains and holds an address.
pub(crate) async fn who(loader: &mut Loader<'_>, block: Block) -> Result<Report, Error> {
    let rows = loader.pools(None).await?;
    let pools = rows.as_ref().map(|rows| matches_of(rows, block));
    let holders = all_holders(loader, &rows, block).await?;
    require_holder(&pools, &holders, block)?;
    let (pools, holders) = (listed(pools), listed(holders));
    Ok(Report::HolderList {
        address: block.to_string(),
        pools,
        holders,
    })
}

/// The list; `None` if it is empty because something may not be read.
fn listed<T>(list: Readable<Vec<T>>) -> Option<Vec<T>> {
    let is_unknown = list.seen().is_empty() && !list.is_complete();
    (!is_unknown).then(|| list.into_seen())
}

/// Prints what contains and holds an address: first the pools, then the holder that the reservation
/// names, then the others, for which all IPAddresses are read.
pub(crate) async fn print_who(
    loader: &mut Loader<'_>,
    block: Block,
    style: Style,
) -> Result<Code, Error> {
    let rows = loader.pools(None).await?;
    let pools = rows.as_ref().map(|rows| matches_of(rows, block));
    if !pools.seen().is_empty() {
        output::print(&render::memberships(Some(pools.seen())))?;
    }
    let known = reserved_holders(loader.cluster, &rows, block).await?;
    output::print(&render::holder_texts(&known, style))?;
    let all = all_holders(loader, &rows, block).await?;
    require_holder(&pools, &all, block)?;
    if pools.seen().is_empty() {
        output::print(&render::memberships(listed(pools).as_deref()))?;
    }
    let others = all
        .seen()
        .iter()
        .filter(|holder| !known.iter().any(|known| is_same(known, holder)));
    output::print(&render::holder_texts(others, style))?;
    if known.is_empty() && all.seen().is_empty() {
        output::print(&render::no_holder(&block.to_string(), all.is_complete()))?;
    }
    output::print(&render::incomplete(&loader.sentences()))?;
    warn(loader);
    Ok(code(loader))
}

/// Whether two descriptions are of one holder. The first one was read by name, so it can know more.
fn is_same(known: &Holder, other: &Holder) -> bool {
    let is_address = known.ip_address.known().is_some() && known.ip_address == other.ip_address;
    let has_address = known
        .ip_address
        .known()
        .or(other.ip_address.known())
        .is_some();
    is_address
        || !has_address
            && known.reservation.known().is_some()
            && known.reservation == other.reservation
}

fn require_holder(
    pools: &Readable<Vec<PoolMatch>>,
    holders: &Readable<Vec<Holder>>,
    block: Block,
) -> Result<(), Error> {
    let is_empty = |(pools, holders): &(&Vec<_>, &Vec<_>)| pools.is_empty() && holders.is_empty();
    if pools
        .as_ref()
        .and(holders.as_ref())
        .known()
        .is_some_and(is_empty)
    {
        return Err(Error::NoHolder {
            address: block.to_string(),
        });
    }
    Ok(())
}

/// All holders: reads all IPAddresses and reservations.
async fn all_holders(
    loader: &mut Loader<'_>,
    rows: &Readable<Vec<PoolRow>>,
    block: Block,
) -> Result<Readable<Vec<Holder>>, Error> {
    let addresses = loader.addresses(|row| overlap(row.block, block)).await?;
    let reservations = loader
        .reservations(|row| overlap(row.slot.block, block))
        .await?;
    let wanted = |claim: &ClaimRow| {
        addresses
            .seen()
            .iter()
            .any(|row| row.claim_key() == claim.key)
            || reservations
                .seen()
                .iter()
                .any(|row| row.claim.as_ref() == Some(&claim.key))
    };
    let has_none = addresses.seen().is_empty() && reservations.seen().is_empty();
    let claims = if has_none {
        Readable::complete(Vec::new())
    } else {
        loader.claims(None, wanted).await?
    };
    let pools = rows.as_ref().map(Vec::as_slice);
    let found = holders(
        &pools,
        addresses.as_ref(),
        reservations.as_ref(),
        claims.as_ref(),
    );
    Ok(addresses.and(reservations).map(|_| found))
}

/// The holders that the reservations of the address name: objects are read by name. Without a
/// permission none is found.
async fn reserved_holders(
    cluster: &Cluster,
    rows: &Readable<Vec<PoolRow>>,
    block: Block,
) -> Result<Vec<Holder>, Error> {
    let mut slots: Vec<Slot> = rows
        .seen()
        .iter()
        .filter_map(|pool| slot(pool, block))
        .collect();
    slots.sort();
    slots.dedup();
    let (mut reservations, mut addresses, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    let (mut address_rights, mut claim_rights) = (Vec::new(), Vec::new());
    for slot in &slots {
        let each = |it: IPReservation| reservations.extend(ReservationRow::of(&it));
        // Without the permission the list of all reservations reports it.
        let _ = denied(
            cluster
                .list_named(Kind::Reservation, None, &slot.reservation_name(), each)
                .await,
        )?;
    }
    for claim in reservations.iter().filter_map(|row| row.claim.as_ref()) {
        let (namespace, name) = claim.parts();
        let each = |it: IPAddressClaim| claims.extend(ClaimRow::of(&it));
        claim_rights.extend(denied(
            cluster
                .list_named(Kind::Claim, Some(namespace), name, each)
                .await,
        )?);
        // The IPAddress has the name of its claim.
        let each = |it: IPAddress| {
            addresses.extend(AddressRow::of(&it).filter(|row| overlap(row.block, block)))
        };
        address_rights.extend(denied(
            cluster
                .list_named(Kind::Address, Some(namespace), name, each)
                .await,
        )?);
    }
    let addresses = Readable::part(addresses.as_slice(), address_rights);
    let claims = Readable::part(claims.as_slice(), claim_rights);
    let pools = rows.as_ref().map(Vec::as_slice);
    Ok(holders(
        &pools,
        addresses,
        Readable::complete(reservations.as_slice()),
        claims,
    ))
}

/// The permission that a list lacks.
fn denied<T>(result: Result<T, ListError>) -> Result<Option<MissingRight>, Error> {
    match result {
        Ok(_) => Ok(None),
        Err(ListError::Forbidden(right)) => Ok(Some(right)),
        Err(error) => Err(error.into()),
    }
}

/// The address or prefix of a pool that contains `block`; `None` if several do.
fn slot(pool: &PoolRow, block: Block) -> Option<Slot> {
    let usable: &UsableBlocks = pool.usable.as_ref().ok()?;
    let numbers = usable.numbers_overlapping(block)?;
    let found = (numbers.first() == numbers.last()).then(|| usable.block(numbers.first()))?;
    Some(Slot {
        scope: pool.scope.clone(),
        block: found,
    })
}

fn overlap(one: Block, other: Block) -> bool {
    let (a, b) = (one.span(), other.span());
    one.family() == other.family() && a.first() <= b.last() && b.first() <= a.last()
}

/// Prints a pool: first its specification, then what is computed from all IPAddresses, reservations
/// and claims.
pub(crate) async fn print_details(
    loader: &mut Loader<'_>,
    name: &str,
    style: Style,
) -> Result<Code, Error> {
    let pool = loader.find_pool(name).await?;
    output::print(&render::head(&specification(&pool)))?;
    let details = details(loader, &pool).await?;
    output::print(&render::body(&details, style))?;
    output::print(&render::incomplete(&loader.sentences()))?;
    warn(loader);
    Ok(code(loader))
}

/// A pool with everything that it contains.
pub(crate) async fn details(loader: &mut Loader<'_>, pool: &PoolRow) -> Result<PoolDetails, Error> {
    // Pools of other namespaces matter only for a network.
    let is_alone = pool.network.is_none();
    let all = if is_alone {
        Readable::complete(vec![pool.clone()])
    } else {
        loader.pools(None).await?
    };
    let scopes: HashMap<&PoolKey, &Scope> = all
        .seen()
        .iter()
        .map(|pool| (&pool.key, &pool.scope))
        .collect();
    let is_here = |key: &PoolKey| {
        *key == pool.key || scopes.get(key).is_some_and(|scope| **scope == pool.scope)
    };
    let namespace = if is_alone {
        pool.key.namespace.as_deref()
    } else {
        None
    };
    let addresses = loader
        .addresses_in(namespace, |row| is_here(&row.pool))
        .await?;
    let reservations = loader
        .reservations(|row| row.slot.scope == pool.scope)
        .await?;
    let claims = loader.claims(namespace, |row| is_here(&row.pool)).await?;
    let is_own = |row: &SliceRow| row.block.as_ref().is_ok_and(|(key, _)| *key == pool.key);
    let has_slices = pool.spec.slices().is_some();
    let slices = if has_slices {
        loader.slices(is_own).await?
    } else {
        Readable::complete(Vec::new())
    };
    // Which addresses are in the network depends on its pools.
    let addresses = addresses.depends_on(&all);
    let pools = all.as_ref().map(Vec::as_slice);
    Ok(show(
        pool,
        &pools,
        &addresses,
        &reservations,
        &slices,
        &claims,
    ))
}
