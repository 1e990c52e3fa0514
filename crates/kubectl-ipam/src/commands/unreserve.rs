//! `unreserve`: deletes the reservation of an address.

use capi_ipam_api::IPReservation;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;

use super::confirm::confirm;
use super::reservations::{find, held_by, identified, report};
use crate::cli::{Global, WriteFlags};
use crate::cluster::{Cluster, Identity};
use crate::error::{Code, Error};
use crate::input::{PoolText, parse_block};
use crate::load::{Loader, path};
use crate::model::{Report, ReservationAction};
use crate::objects::{Kind, ReservationRow};
use crate::output;

pub(super) async fn run(
    global: &Global,
    pool: &str,
    address: &str,
    flags: &WriteFlags,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?.with_dry_run(flags.dry_run);
    let block = parse_block(address, false)?;
    cluster.require_reservations()?;
    let mut loader = Loader::new(&cluster);
    let (found, missing) = match loader.find_pool(pool).await {
        Ok(pool) => {
            let found = find(&loader, &pool, block).await?;
            let problem = format!("{} is not reserved", pool.slot(block));
            (found, Error::NotFound(problem))
        }
        // Reservations of users outlive their pool.
        Err(error @ Error::NoPool { .. }) => {
            (of_missing_pool(&mut loader, pool, block).await?, error)
        }
        Err(error) => return Err(error),
    };
    let Some((row, _)) = found.first() else {
        return Err(missing);
    };
    let report = unreserve(&mut loader, row, &found, flags).await?;
    output::finish(&loader, &report, global.output, output::style(global))
}

/// The reservations of an address for a pool that does not exist.
async fn of_missing_pool(
    loader: &mut Loader<'_>,
    pool: &str,
    block: Block,
) -> Result<Vec<(ReservationRow, Identity)>, Error> {
    let text = PoolText::parse(pool);
    let namespace = match text.namespace {
        Some(namespace) => namespace.to_owned(),
        None => loader.cluster.namespace.clone(),
    };
    let mut found = Vec::new();
    let listed = loader.read_objects::<IPReservation>(Kind::Reservation, None);
    for object in listed.await? {
        found.extend(identified(&object).filter(|(row, _)| {
            let its_namespace = row.pool.namespace.as_deref();
            let is_here = its_namespace.is_none_or(|it| it == namespace);
            row.slot.block == block && is_here && text.matches(&row.pool)
        }));
    }
    loader.require_known(&[Kind::Reservation], || {
        format!("whether {block} is reserved")
    })?;
    let mut pools: Vec<String> = found
        .iter()
        .map(|(row, _)| path(row.pool.kind, &row.pool.name))
        .collect();
    pools.dedup();
    if pools.len() > 1 {
        return Err(Error::AmbiguousPool {
            name: pool.to_owned(),
            choices: pools.join(" or "),
        });
    }
    Ok(found)
}

/// Deletes the reservations of an address: one, or one in each scope of a pool that moves.
async fn unreserve(
    loader: &mut Loader<'_>,
    row: &ReservationRow,
    found: &[(ReservationRow, Identity)],
    flags: &WriteFlags,
) -> Result<Report, Error> {
    if let Some((held, _)) = found.iter().find(|(row, _)| row.has_uid()) {
        return Err(held_by(held));
    }
    confirm_consequences(loader, row, flags.yes).await?;
    for (row, version) in found {
        loader
            .cluster
            .delete_reservation(&row.slot.reservation_name(), version)
            .await?;
    }
    Ok(report(
        loader,
        ReservationAction::Deleted,
        (&row.pool, &row.slot),
        row.claim.as_ref(),
        None,
    ))
}

/// Asks before a change that affects an address in use, or one that cools down or is quarantined.
async fn confirm_consequences(
    loader: &mut Loader<'_>,
    reservation: &ReservationRow,
    yes: bool,
) -> Result<(), Error> {
    let block = reservation.slot.block;
    // Claims of all namespaces use the addresses of a network.
    let namespace = match reservation.slot.scope.network() {
        Some(_) => None,
        None => reservation.pool.namespace.as_deref(),
    };
    let in_use = || format!("whether {block} is in use");
    loader.require(&[Kind::Address], namespace, in_use).await?;
    let addresses = &loader.objects.addresses;
    let is_user = |claim: &NamespacedName| {
        let mut users = addresses.iter().filter(|address| address.block == block);
        users.any(|address| address.claim_key() == *claim)
    };
    if let Some(claim) = reservation.claim.as_ref().filter(|claim| is_user(claim)) {
        let question = format!(
            "{block} is in use by the claim {claim}; the next claim of that name can get another address"
        );
        confirm(&question, yes)?;
    }
    if let Some(quarantine) = &reservation.quarantine {
        let (until, reason) = (quarantine.until.0, &quarantine.reason);
        let question =
            format!("{block} is quarantined until {until} ({reason}); it can be allocated at once");
        confirm(&question, yes)?;
    }
    if reservation.released.is_some() {
        let question = format!("{block} cools down; it can be allocated at once");
        confirm(&question, yes)?;
    }
    Ok(())
}
