//! `unreserve`: deletes the reservation of an address.

use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;

use super::confirm::confirm;
use super::reservations::{find, held_by, report};
use crate::cli::{Global, WriteFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::input::parse_block;
use crate::load::Loader;
use crate::model::{Report, ReservationAction};
use crate::objects::{PoolRow, ReservationRow};
use crate::output;

pub(super) async fn run(
    global: &Global,
    pool: &str,
    address: &str,
    flags: &WriteFlags,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?.with_dry_run(flags.dry_run);
    let block = parse_block(address)?;
    cluster.require_reservations()?;
    let mut loader = Loader::new(&cluster);
    let pool = loader.find_pool(pool).await?;
    let report = unreserve(&mut loader, &pool, block, flags).await?;
    output::finish(&loader, &report, global.output, output::style(global))
}

async fn unreserve(
    loader: &mut Loader<'_>,
    pool: &PoolRow,
    block: Block,
    flags: &WriteFlags,
) -> Result<Report, Error> {
    let found = find(loader, pool, block).await?;
    let Some((row, _)) = found.first() else {
        return Err(Error::NotReserved {
            slot: pool.slot(block).to_string(),
        });
    };
    if let Some((held, _)) = found.iter().find(|(row, _)| row.has_uid) {
        return Err(held_by(held));
    }
    confirm_consequences(loader, pool, row, flags.yes).await?;
    for (row, version) in &found {
        loader
            .cluster
            .delete_reservation(
                &row.slot.reservation_name(),
                version,
                flags.dry_run.is_dry_run(),
            )
            .await?;
    }
    Ok(report(
        ReservationAction::Deleted,
        &row.slot,
        &pool.key,
        row.claim.as_ref(),
        flags.dry_run,
    ))
}

/// Asks before a change that affects an address in use, or one that cools down.
async fn confirm_consequences(
    loader: &mut Loader<'_>,
    pool: &PoolRow,
    reservation: &ReservationRow,
    yes: bool,
) -> Result<(), Error> {
    let block = reservation.slot.block;
    let users = loader
        .addresses_in(pool.namespace_of_users(), |address| address.block == block)
        .await?
        .require(|| format!("whether {block} is in use"))?;
    let is_user =
        |claim: &NamespacedName| users.iter().any(|address| address.claim_key() == *claim);
    if let Some(claim) = reservation.claim.as_ref().filter(|claim| is_user(claim)) {
        let question = format!(
            "{block} is in use by the claim {claim}; the next claim of that name can get another address"
        );
        confirm(&question, yes)?;
    }
    if reservation.released.is_some() {
        let question = format!("{block} cools down; it can be allocated at once");
        confirm(&question, yes)?;
    }
    Ok(())
}
