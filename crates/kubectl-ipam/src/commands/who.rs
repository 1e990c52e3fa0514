//! `who`: what contains and holds an address. It reads lists of the whole cluster; as text, what is
//! known before is printed at once.

use capi_ipam_api::{IPReservation, Slot};
use capi_ipam_ip::{Block, UsableBlocks};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};

use super::{block_holders, claims};
use crate::cli::Global;
use crate::cluster::{Cluster, Kind, ListError};
use crate::error::{Code, Error, MissingRight};
use crate::input::{is_address_like, parse_block};
use crate::load::{Loader, Readable};
use crate::model::{Holder, PoolMatch, Report, holders, matches_of};
use crate::objects::{AddressRow, ClaimRow, PoolRow, ReservationRow};
use crate::output;
use crate::render::{self, Style};

pub(super) async fn run(global: &Global, target: &str) -> Result<Code, Error> {
    // An empty text is no name either.
    if !target.is_empty() && !is_address_like(target) {
        return run_for_name(global, target).await;
    }
    let block = parse_block(target, false)?;
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let style = output::style(global);
    if output::is_text(global.output) {
        return print(&mut loader, block, style).await;
    }
    let report = report(&mut loader, block).await?;
    output::finish(&loader, &report, global.output, style)
}

/// The addresses that a claim, machine or Cluster has.
async fn run_for_name(global: &Global, name: &str) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let namespace = global.listed_namespace(&cluster.namespace);
    let claims = claims::named(&mut loader, namespace, name).await?;
    let report = Report::ClaimList { claims };
    let style = Style {
        wide: output::is_text(global.output),
        ..output::style(global)
    };
    output::finish(&loader, &report, global.output, style)
}

async fn report(loader: &mut Loader<'_>, block: Block) -> Result<Report, Error> {
    let rows = loader.pools(None).await?;
    let pools = rows.as_ref().map(|rows| matches_of(rows, block));
    let holders = all_holders(loader, &rows, block).await?;
    require_holder(&pools, &holders, block)?;
    Ok(Report::HolderList {
        address: block.to_string(),
        pools: pools.listed_if_known(),
        holders: holders.listed_if_known(),
        blocks: block_holders::read(loader, rows.seen(), block).await?,
    })
}

/// Prints what contains and holds an address: first the pools, then the holder that the reservation
/// names, then the others, for which all IPAddresses are read.
async fn print(loader: &mut Loader<'_>, block: Block, style: Style) -> Result<Code, Error> {
    let rows = loader.pools(None).await?;
    let pools = rows.as_ref().map(|rows| matches_of(rows, block));
    if !pools.seen().is_empty() {
        output::print(&render::memberships(Some(pools.seen())))?;
    }
    let known = reserved_holders(loader.cluster, &rows, block).await?;
    let blocks = block_holders::read(loader, rows.seen(), block).await?;
    output::print(&render::block_holders(&blocks))?;
    output::print(&render::holder_texts(&known, style))?;
    let all = all_holders(loader, &rows, block).await?;
    require_holder(&pools, &all, block)?;
    if pools.seen().is_empty() {
        output::print(&render::memberships(pools.listed_if_known().as_deref()))?;
    }
    let others = all
        .seen()
        .iter()
        .filter(|holder| !known.iter().any(|known| is_same(known, holder)));
    output::print(&render::holder_texts(others, style))?;
    output::print(&render::shared_addresses(all.seen()))?;
    if known.is_empty() && all.seen().is_empty() {
        output::print(&render::no_holder(
            &block.to_string(),
            all.is_complete(),
            &blocks,
        ))?;
    }
    output::print(&render::incomplete(&loader.sentences()))?;
    // The text has the missing permissions.
    loader.warnings.iter().for_each(|text| output::warn(text));
    Ok(output::code(loader))
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
    Some(pool.slot(found))
}

fn overlap(one: Block, other: Block) -> bool {
    let (a, b) = (one.span(), other.span());
    one.family() == other.family() && a.first() <= b.last() && b.first() <= a.last()
}
