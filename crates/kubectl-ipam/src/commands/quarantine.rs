//! `quarantine`: blocks an address at which another host answers. One in use is quarantined when its
//! claim is released.

use capi_ipam_api::{PoolKey, Quarantine, Slot};
use capi_ipam_controller::clock;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_provider::api::{AddressConflict, names, quarantine_reason};
use jiff::SignedDuration;
use serde_json::json;

use super::reservations::{change, find, held_by, report};
use super::reserve::{check_use, create_reservation};
use crate::cli::{DryRun, Global};
use crate::cluster::{Cluster, Identity};
use crate::error::{Code, Error};
use crate::input::parse_block;
use crate::load::{Loader, path};
use crate::model::{Report, ReservationAction, ReservationChange, why_not_contained};
use crate::objects::{Kind, PoolRow, ReservationRow};
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
    let names = pools.iter().map(|pool| {
        let flags = path(pool.key.kind, &pool.key.name);
        let namespace = pool.key.namespace.iter();
        let namespace: String = namespace.map(|name| format!(" -n {name}")).collect();
        format!("--pool {flags}{namespace}")
    });
    Err(Error::Argument(format!(
        "several pools contain {block}: add {}",
        names.collect::<Vec<_>>().join(" or ")
    )))
}

async fn quarantine(
    loader: &mut Loader<'_>,
    pool: &PoolRow,
    block: Block,
    conflict: &AddressConflict,
) -> Result<Report, Error> {
    let found = find(loader, pool, block).await?;
    let Some((row, version)) = found.first() else {
        return quarantine_free(loader, pool, block, conflict).await;
    };
    let is_unused = row.released.is_some() || row.quarantine.is_some();
    match (&row.claim, &row.claim_uid) {
        _ if is_unused => replace(loader, row, version, conflict).await,
        (Some(claim), Some(uid)) => annotate(loader, row, claim, uid, conflict).await,
        _ => Err(held_by(row)),
    }
}

/// Quarantines an address that nothing uses. The API server decides between this and an allocation
/// at the same time: both create the same name.
async fn quarantine_free(
    loader: &mut Loader<'_>,
    pool: &PoolRow,
    block: Block,
    conflict: &AddressConflict,
) -> Result<Report, Error> {
    check_use(loader, pool, block, None).await?;
    let slot = pool.slot(block);
    let quarantine = Quarantine::of(conflict, &clock::now());
    let mut new = reservation(&slot, &pool.key, None);
    new.spec.quarantine = Some(quarantine.clone());
    if create_reservation(loader, &new).await? {
        return Ok(quarantined(loader, &slot, &pool.key, &quarantine));
    }
    Err(Error::Changed {
        object: format!("the reservation of {slot}"),
    })
}

/// Quarantines a released address, or changes a quarantine.
async fn replace(
    loader: &Loader<'_>,
    row: &ReservationRow,
    version: &Identity,
    conflict: &AddressConflict,
) -> Result<Report, Error> {
    let quarantine = Quarantine::of(conflict, &clock::now());
    let spec = json!({"claimRef": null, "releasedAt": null, "quarantine": quarantine});
    let name = row.slot.reservation_name();
    let cluster = loader.cluster;
    cluster.change_reservation(&name, version, &spec).await?;
    Ok(quarantined(loader, &row.slot, &row.pool, &quarantine))
}

fn quarantined(
    loader: &Loader<'_>,
    slot: &Slot,
    pool: &PoolKey,
    quarantine: &Quarantine,
) -> Report {
    Report::ReservationChange(ReservationChange {
        until: Some(quarantine.until.0),
        ..change(loader, ReservationAction::Quarantined, slot, pool, None)
    })
}

/// Requests the quarantine of an address in use with annotations of its claim.
async fn annotate(
    loader: &Loader<'_>,
    row: &ReservationRow,
    claim: &NamespacedName,
    uid: &str,
    conflict: &AddressConflict,
) -> Result<Report, Error> {
    let annotations = json!({
        names::CONFLICT_ANNOTATION: conflict.reason,
        names::QUARANTINE_FOR_ANNOTATION: format!("{:#}", conflict.duration),
    });
    let cluster = loader.cluster;
    cluster.annotate_claim(claim, uid, &annotations).await?;
    let action = ReservationAction::Requested;
    Ok(report(loader, action, &row.slot, &row.pool, Some(claim)))
}
