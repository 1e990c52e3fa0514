//! `quarantine`: blocks an address at which another host answers. One in use is quarantined when its
//! claim is released.

use capi_ipam_api::Quarantine;
use capi_ipam_controller::clock;
use capi_ipam_ip::Block;
use capi_ipam_provider::api::{AddressConflict, names, quarantine_reason};
use jiff::SignedDuration;
use serde_json::json;

use super::reservations::{find, held_by, report};
use super::reserve::{check_use, create_reservation};
use crate::cli::{DryRun, Global};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::input::parse_block;
use crate::load::Loader;
use crate::model::{Report, ReservationAction, why_not_contained};
use crate::objects::{Kind, PoolRow};
use crate::output;
use crate::user_reservation::reservation;

/// What the user says about the address.
pub(super) struct Request<'a> {
    pub(super) address: &'a str,
    pub(super) pool: Option<&'a str>,
    pub(super) duration: SignedDuration,
    pub(super) reason: &'a str,
    pub(super) dry_run: DryRun,
}

pub(super) async fn run(global: &Global, request: &Request<'_>) -> Result<Code, Error> {
    let cluster = Cluster::connect(global)
        .await?
        .with_dry_run(request.dry_run);
    cluster.require_reservations()?;
    let block = parse_block(request.address, false)?;
    let mut loader = Loader::new(&cluster);
    let pool = match request.pool {
        Some(pool) => loader.find_pool(pool).await?,
        None => pool_of(&mut loader, block).await?,
    };
    let is_contained = pool
        .usable
        .as_ref()
        .is_ok_and(|usable| usable.contains(block));
    if !is_contained {
        return Err(Error::Argument(why_not_contained(&pool, block)));
    }
    let conflict = AddressConflict {
        reason: quarantine_reason(request.reason),
        duration: request.duration,
        problem: None,
    };
    let report = quarantine(&mut loader, &pool, block, &conflict).await?;
    output::finish(&loader, &report, global.output, output::style(global))
}

/// The pool that allocates an address. All pools of one network share its reservation.
async fn pool_of(loader: &mut Loader<'_>, block: Block) -> Result<PoolRow, Error> {
    let known = || format!("which pool contains {block}");
    loader.require(&Kind::POOLS, None, known).await?;
    let mut pools = loader.objects.pools();
    pools.retain(|pool| pool.usable.as_ref().is_ok_and(|it| it.contains(block)));
    let Some(first) = pools.first() else {
        return Err(Error::NoHolder {
            address: block.to_string(),
        });
    };
    if pools.iter().all(|pool| pool.scope == first.scope) {
        return Ok((*first).clone());
    }
    let names: Vec<String> = pools.iter().map(|pool| pool.key.to_string()).collect();
    let names = names.join(" and ");
    Err(Error::Argument(format!(
        "several pools contain {block}: {names}; name one with --pool"
    )))
}

async fn quarantine(
    loader: &mut Loader<'_>,
    pool: &PoolRow,
    block: Block,
    conflict: &AddressConflict,
) -> Result<Report, Error> {
    let found = find(loader, pool, block).await?;
    let found = found.first();
    let slot = found.map_or_else(|| pool.slot(block), |(row, _)| row.slot.clone());
    let place = (&pool.key, &slot);
    let quarantine = Quarantine::of(conflict, &clock::now());
    let cluster = loader.cluster;
    match found {
        // The API server decides between this and an allocation at the same time: both create the
        // same name.
        None => {
            check_use(loader, pool, block, None).await?;
            let mut new = reservation(&slot, &pool.key, None);
            new.spec.quarantine = Some(quarantine.clone());
            if !create_reservation(loader, &new).await? {
                let object = format!("the reservation of {slot}");
                return Err(Error::Changed { object });
            }
        }
        Some((row, version)) if row.released.is_some() || row.quarantine.is_some() => {
            let spec = json!({"claimRef": null, "releasedAt": null, "quarantine": quarantine});
            let (name, version) = (slot.reservation_name(), version.clone());
            check_use(loader, pool, block, None).await?;
            cluster.change_reservation(&name, &version, &spec).await?;
        }
        Some((row, _)) => {
            let (Some(claim), Some(uid)) = (&row.claim, &row.claim_uid) else {
                return Err(held_by(row));
            };
            let annotations = json!({
                names::CONFLICT_ANNOTATION: conflict.reason,
                names::QUARANTINE_FOR_ANNOTATION: format!("{:#}", conflict.duration),
            });
            cluster.annotate_claim(claim, uid, &annotations).await?;
            let action = ReservationAction::Requested;
            return Ok(report(loader, action, place, Some(claim), None));
        }
    }
    let until = Some(quarantine.until.0);
    let action = ReservationAction::Quarantined;
    Ok(report(loader, action, place, None, until))
}
