//! `reserve`: reserves an address, or the next one of a pool.

use capi_ipam_api::{IPReservation, PoolKey, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, UsableBlocks};
use capi_ipam_ledger::Outcome;

use super::reservations::{find, held_by, report};
use crate::cli::{DryRun, Global};
use crate::cluster::{Cluster, Created, with_warnings};
use crate::error::{Code, Error};
use crate::input::{parse_block, parse_claim, show_command};
use crate::load::Loader;
use crate::model::{Report, ReservationAction, has_supply, why_not_contained};
use crate::objects::{AddressRow, Kind, PoolRow};
use crate::output;
use crate::user_reservation::{promised_to, reservation};

/// How often another address is tried if somebody else reserves the next one first.
const MAX_ATTEMPTS: u32 = 10;

/// What is reserved.
struct Request<'a> {
    pool: &'a PoolRow,
    /// The claim that gets the address. Without it, no claim gets the address.
    claim: Option<NamespacedName>,
}

pub(super) async fn run(
    global: &Global,
    pool: &str,
    address: Option<&str>,
    claim: Option<&str>,
    dry_run: DryRun,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?.with_dry_run(dry_run);
    cluster.require_reservations()?;
    let mut loader = Loader::new(&cluster);
    let pool = loader.find_pool(pool).await?;
    usable(&pool)?;
    let request = Request {
        pool: &pool,
        claim: claim_of(claim, &pool.key, &cluster.namespace)?,
    };
    let report = match address {
        Some(address) => {
            let block = parse_block(address, pool.key.kind.has_prefixes())?;
            reserve_block(&mut loader, &request, block).await?
        }
        None => reserve_next(&mut loader, &request).await?,
    };
    output::finish(&loader, &report, global.output, output::style(global))
}

/// The claim that gets the address. Its namespace is by default that of the pool, and for a global
/// pool that of the caller.
fn claim_of(
    text: Option<&str>,
    pool: &PoolKey,
    own_namespace: &str,
) -> Result<Option<NamespacedName>, Error> {
    let Some(text) = text else {
        return Ok(None);
    };
    let namespace = pool.namespace.as_deref().unwrap_or(own_namespace);
    let claim = parse_claim(text, namespace)?;
    match promised_to(&claim).problem(pool) {
        // No claim of this name can ever get an address of the pool.
        Some(problem) => Err(Error::Argument(problem.to_string())),
        None => Ok(Some(claim)),
    }
}

fn usable(pool: &PoolRow) -> Result<&UsableBlocks, Error> {
    pool.usable.as_ref().map_err(|problem| {
        Error::Argument(format!(
            "the specification of {} is invalid: {problem}",
            pool.key
        ))
    })
}

/// Reserves the address that the user names.
async fn reserve_block(
    loader: &mut Loader<'_>,
    request: &Request<'_>,
    block: Block,
) -> Result<Report, Error> {
    let pool = request.pool;
    if !usable(pool)?.contains(block) {
        return Err(Error::Argument(why_not_contained(pool, block)));
    }
    if let Some((row, _)) = find(loader, pool, block).await?.first() {
        return Err(held_by(row));
    }
    check_use(loader, pool, block, request.claim.as_ref()).await?;
    let slot = pool.slot(block);
    let report = create(loader, request, &slot).await?;
    report.ok_or_else(|| Error::Changed {
        object: format!("the reservation of {slot}"),
    })
}

/// Reserves the next address that the pool allocates.
async fn reserve_next(loader: &mut Loader<'_>, request: &Request<'_>) -> Result<Report, Error> {
    let pool = request.pool;
    if pool.spec.slices().is_some() {
        return Err(Error::Argument(format!(
            "{} has slices: the next address depends on the owner of the claim. Name the address; list the slices with: {}",
            pool.key,
            show_command(&pool.key)
        )));
    }
    loader.read_supply(pool).await?;
    let objects = &loader.objects;
    let mut missing = objects.lacking(&[Kind::Address, Kind::Reservation]);
    if !has_supply(pool, objects) {
        missing.extend(objects.lacking(&Kind::ALL));
    }
    if !missing.is_empty() {
        let what = format!("the next address of {}", pool.key);
        return Err(Error::Unknown { what, missing });
    }
    let mut ledger = loader.ledger.take().unwrap_or_default();
    for attempt in 0..MAX_ATTEMPTS {
        // Each proposal holds its address for another claim, which does not exist.
        let claim = NamespacedName::new("", &attempt.to_string());
        let Outcome::Offer(slot) = ledger.propose(&pool.key, &claim, i64::from(attempt)) else {
            break;
        };
        if let Some(report) = create(loader, request, &slot).await? {
            return Ok(report);
        }
    }
    Err(Error::Failed(format!("{} has no free address", pool.key)))
}

/// Fails if another claim uses the address, although it has no reservation yet: the provider
/// creates one.
pub(super) async fn check_use(
    loader: &mut Loader<'_>,
    pool: &PoolRow,
    block: Block,
    claim: Option<&NamespacedName>,
) -> Result<(), Error> {
    let in_use = || format!("whether {block} is in use");
    let namespace = pool.namespace_of_users();
    loader.require(&[Kind::Address], namespace, in_use).await?;
    if pool.network.is_some() {
        loader.require(&Kind::POOLS, None, in_use).await?;
    }
    let objects = &loader.objects;
    let mut addresses = objects.addresses.iter();
    let is_user = |row: &&AddressRow| {
        row.block == block && (row.pool == pool.key || objects.scope_of(&row.pool) == pool.scope)
    };
    let owner = addresses.find(is_user).map(AddressRow::claim_key);
    match owner.filter(|owner| Some(owner) != claim) {
        Some(owner) => Err(Error::Held {
            slot: pool.slot(block).to_string(),
            holder: format!("in use by the claim {owner}; delete the claim to release it"),
        }),
        None => Ok(()),
    }
}

/// Creates the reservation that the user requests. `None` if one exists.
async fn create(
    loader: &Loader<'_>,
    request: &Request<'_>,
    slot: &Slot,
) -> Result<Option<Report>, Error> {
    let (pool, claim) = (&request.pool.key, request.claim.as_ref());
    let new = reservation(slot, pool, claim);
    let action = ReservationAction::Created;
    let is_created = create_reservation(loader, &new).await?;
    Ok(is_created.then(|| report(loader, action, (pool, slot), claim, None)))
}

/// Creates a reservation, and prints the warnings of the webhook. False if one exists.
pub(super) async fn create_reservation(
    loader: &Loader<'_>,
    new: &IPReservation,
) -> Result<bool, Error> {
    let creation = loader.cluster.create_reservation(new);
    let (created, warnings) = with_warnings(creation).await;
    for warning in warnings {
        output::warn(&warning);
    }
    Ok(created? == Created::New)
}
