//! What `reserve` and `unreserve` share: the reservations of an address, and the report of a change.

use capi_ipam_api::{IPReservation, PoolKey, Scope, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_ip::Block;
use jiff::Timestamp;

use crate::cli::DryRun;
use crate::cluster::{Identity, named};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{Report, ReservationAction, ReservationChange};
use crate::objects::{PoolRow, ReservationRow};

/// Reads the reservation of an address. While the pool joins or leaves a network, it can still be
/// in the other scope, or in both.
pub(super) async fn find(
    loader: &Loader<'_>,
    pool: &PoolRow,
    block: Block,
) -> Result<Vec<(ReservationRow, Identity)>, Error> {
    let mut all = Vec::new();
    for scope in scopes(pool) {
        let is_own_scope = scope == pool.scope;
        let name = Slot { scope, block }.reservation_name();
        let parameters = named(&name);
        let listed = loader.cluster.list_other(None, &parameters);
        let listed: Vec<MaybeInvalid<IPReservation>> = listed.await?;
        let found = listed.iter().find_map(|it| identified(it.0.as_ref().ok()?));
        // In the scope that the pool leaves, another pool can have the address.
        all.extend(found.filter(|(row, _)| is_own_scope || row.pool == pool.key));
    }
    Ok(all)
}

/// A reservation that has an effect, with its version.
pub(super) fn identified(object: &IPReservation) -> Option<(ReservationRow, Identity)> {
    let row = ReservationRow::of(object)?;
    Some((row, Identity::of(&object.metadata)))
}

/// The scopes in which reservations of a pool can be: its own first.
fn scopes(pool: &PoolRow) -> Vec<Scope> {
    let mut scopes = vec![pool.scope.clone()];
    if let Some(moving) = &pool.moving {
        let others = [
            Scope::Network(moving.name.as_str().into()),
            Scope::Pool(pool.key.clone()),
        ];
        scopes.extend(others.into_iter().filter(|scope| *scope != pool.scope));
    }
    scopes
}

/// Why an address cannot be reserved.
pub(super) fn held_by(row: &ReservationRow) -> Error {
    let holder = match (&row.claim, row.released.is_some()) {
        (Some(claim), true) => format!("cooling down after the release by the claim {claim}"),
        (Some(claim), false) if row.has_uid() => {
            format!("held by the claim {claim}; delete the claim to release it")
        }
        (Some(claim), false) => format!("reserved for the claim {claim}"),
        (None, _) => match &row.quarantine {
            Some(quarantine) => format!("quarantined until {}", quarantine.until.0),
            None => "reserved already".to_owned(),
        },
    };
    Error::Held {
        slot: row.slot.to_string(),
        holder,
    }
}

/// The report of a change.
pub(super) fn report(
    loader: &Loader<'_>,
    action: ReservationAction,
    (pool, slot): (&PoolKey, &Slot),
    claim: Option<&NamespacedName>,
    until: Option<Timestamp>,
) -> Report {
    let dry_run = loader.cluster.dry_run;
    let network = if let Scope::Network(name) = &slot.scope {
        Some(name.to_string())
    } else {
        None
    };
    Report::ReservationChange(ReservationChange {
        action,
        dry_run: dry_run.is_dry_run(),
        unchecked: dry_run == DryRun::Client,
        name: slot.reservation_name(),
        address: slot.block.to_string(),
        pool: pool.into(),
        network,
        claim: claim.map(ToString::to_string),
        until,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservation_of_a_moving_pool_is_searched_in_both_scopes() {
        let names = |phase: &str| -> Vec<String> {
            let pool = serde_json::json!({
                "kind": "InClusterIPPool", "metadata": { "name": "web", "namespace": "a", "generation": 1 },
                "spec": { "addresses": ["10.0.0.2"], "prefix": 24 },
                "status": { "observedGeneration": 1, "network": { "name": "lab", "phase": phase, "remaining": 1 } },
            });
            let pool: capi_ipam_api::Pool = serde_json::from_value(pool).unwrap();
            scopes(&PoolRow::from(&pool))
                .iter()
                .map(Scope::name)
                .collect()
        };
        assert_eq!(names("Member"), ["n.lab"]);
        assert_eq!(names("Joining"), ["n.lab", "p.a.web"]);
        assert_eq!(names("Leaving"), ["p.a.web", "n.lab"]);
    }
}
