//! `reserve` and `unreserve`: reservations of users.

use std::io::{BufRead, IsTerminal, Write};

use capi_ipam_api::{
    IPReservation, IPReservationSpec, PoolKey, ReservationClaim, Scope, Slot, names,
};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_ledger::Proposal;
use kube::api::ObjectMeta;

use crate::cli::WriteFlags;
use crate::cluster::{Created, Identity, Kind};
use crate::commands::{parse_block, show_command};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{Report, ReservationAction, ReservationChange};
use crate::objects::{AddressRow, PoolRow, ReservationRow};

/// How often another address is tried if somebody else reserves the next one first.
const ATTEMPTS: u32 = 10;

/// Reserves an address, or the next one of the pool.
pub(crate) async fn reserve(
    loader: &mut Loader<'_>,
    name: &str,
    address: Option<&str>,
    claim: Option<&str>,
    dry_run: bool,
) -> Result<Report, Error> {
    loader.cluster.require_reservations()?;
    let pool = loader.find_pool(name).await?;
    let usable = pool.usable.as_ref().map_err(|problem| {
        Error::Argument(format!(
            "the specification of {} is invalid: {problem}",
            pool.key
        ))
    })?;
    let own_namespace = pool
        .key
        .namespace
        .as_deref()
        .unwrap_or(&loader.cluster.namespace);
    let claim = claim
        .map(|claim| parse_claim(claim, own_namespace))
        .transpose()?;
    if let Some(claim) = &claim {
        check_claim(&pool.key, claim)?;
    }
    let block = address.map(parse_block).transpose()?;
    if let Some(block) = block {
        if !usable.contains(block) {
            return Err(Error::Argument(format!(
                "{} does not contain {block}",
                pool.key
            )));
        }
        let slot = Slot {
            scope: pool.scope.clone(),
            block,
        };
        if let Some((row, _)) = find(loader, &pool, block).await?.first() {
            return Err(held_by(row));
        }
        check_use(loader, &pool, block, claim.as_ref()).await?;
        let report = create(loader, &pool, block, claim.as_ref(), dry_run).await?;
        return report.ok_or_else(|| Error::Changed {
            object: format!("the reservation of {slot}"),
        });
    }
    if pool.spec.slices().is_some() {
        return Err(Error::Argument(format!(
            "{} has slices: the next address depends on the owner of the claim. Name the address; list the slices with: {}",
            pool.key,
            show_command(&pool.key)
        )));
    }
    let ledger = loader
        .ledger(&pool)
        .await?
        .require(|| format!("the next address of {}", pool.key))?;
    for attempt in 0..ATTEMPTS {
        let Proposal::Slot(slot) = ledger.propose(
            &pool.key,
            &NamespacedName::new("", &attempt.to_string()),
            i64::from(attempt),
        ) else {
            break;
        };
        if let Some(report) = create(loader, &pool, slot.block, claim.as_ref(), dry_run).await? {
            return Ok(report);
        }
    }
    Err(Error::NoFree {
        pool: pool.key.to_string(),
    })
}

/// Fails if no claim of this name can ever get an address of the pool.
fn check_claim(pool: &PoolKey, claim: &NamespacedName) -> Result<(), Error> {
    match promised_to(claim).problem(pool) {
        Some(problem) => Err(Error::Argument(problem.to_string())),
        None => Ok(()),
    }
}

/// The claim reference of a promise: it has no uid.
pub(crate) fn promised_to(claim: &NamespacedName) -> ReservationClaim {
    let (namespace, name) = claim.parts();
    ReservationClaim {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: None,
        cluster: None,
    }
}

/// Fails if another claim uses the address, although it has no reservation yet: the provider
/// creates one.
async fn check_use(
    loader: &mut Loader<'_>,
    pool: &PoolRow,
    block: Block,
    claim: Option<&NamespacedName>,
) -> Result<(), Error> {
    // The claims that can use the address of a namespaced pool without a network are in its
    // namespace.
    let is_alone = pool.network.is_none();
    let namespace = if is_alone {
        pool.key.namespace.as_deref()
    } else {
        None
    };
    let in_use = || format!("whether {block} is in use");
    let rows = loader
        .addresses_in(namespace, |row| row.block == block)
        .await?
        .require(in_use)?;
    let pools = if is_alone {
        vec![pool.clone()]
    } else {
        loader.pools(None).await?.require(in_use)?
    };
    let is_here = |key: &PoolKey| {
        pools
            .iter()
            .any(|row| row.key == *key && row.scope == pool.scope)
    };
    let owner = rows
        .iter()
        .find(|row| is_here(&row.pool))
        .map(AddressRow::claim_key);
    match owner.filter(|owner| Some(owner) != claim) {
        Some(owner) => {
            let slot = Slot {
                scope: pool.scope.clone(),
                block,
            };
            Err(Error::Held {
                slot: slot.to_string(),
                holder: in_use_by(&owner),
            })
        }
        None => Ok(()),
    }
}

fn in_use_by(claim: &NamespacedName) -> String {
    format!("in use by the claim {claim}; delete the claim to release it")
}

/// Creates a reservation. `None` if one exists.
async fn create(
    loader: &Loader<'_>,
    pool: &PoolRow,
    block: Block,
    claim: Option<&NamespacedName>,
    dry_run: bool,
) -> Result<Option<Report>, Error> {
    let slot = Slot {
        scope: pool.scope.clone(),
        block,
    };
    let new = reservation(&slot, &pool.key, claim);
    match loader.cluster.create_reservation(&new, dry_run).await? {
        Created::New => Ok(Some(report(
            ReservationAction::Created,
            &slot,
            &pool.key,
            claim,
            dry_run,
        ))),
        Created::Exists => Ok(None),
    }
}

/// Deletes a reservation of a user.
pub(crate) async fn unreserve(
    loader: &mut Loader<'_>,
    name: &str,
    address: &str,
    flags: &WriteFlags,
) -> Result<Report, Error> {
    let block = parse_block(address)?;
    loader.cluster.require_reservations()?;
    let pool = loader.find_pool(name).await?;
    let found = find(loader, &pool, block).await?;
    let Some((row, _)) = found.first() else {
        let slot = Slot {
            scope: pool.scope.clone(),
            block,
        };
        return Err(Error::NotReserved {
            slot: slot.to_string(),
        });
    };
    if let Some((held, _)) = found.iter().find(|(row, _)| row.has_uid) {
        return Err(held_by(held));
    }
    let namespace = if pool.network.is_none() {
        pool.key.namespace.as_deref()
    } else {
        None
    };
    let users = loader
        .addresses_in(namespace, |address| address.block == block)
        .await?;
    let users = users.require(|| format!("whether {block} is in use"))?;
    let user = row
        .claim
        .as_ref()
        .filter(|claim| users.iter().any(|address| address.claim_key() == **claim));
    if let Some(claim) = user {
        let question = format!(
            "{block} is in use by the claim {claim}; the next claim of that name can get another address"
        );
        confirm(&question, flags.yes)?;
    }
    if row.released.is_some() {
        confirm(
            &format!("{block} cools down; it can be allocated at once"),
            flags.yes,
        )?;
    }
    for (row, version) in &found {
        loader
            .cluster
            .delete_reservation(&row.slot.reservation_name(), version, flags.is_dry_run())
            .await?;
    }
    Ok(report(
        ReservationAction::Deleted,
        &row.slot,
        &pool.key,
        row.claim.as_ref(),
        flags.is_dry_run(),
    ))
}

/// Reads the reservation of an address. While the pool joins or leaves a network, it can still be
/// in the other scope, or in both.
async fn find(
    loader: &Loader<'_>,
    pool: &PoolRow,
    block: Block,
) -> Result<Vec<(ReservationRow, Identity)>, Error> {
    let mut all = Vec::new();
    for scope in scopes(pool) {
        let is_own_scope = scope == pool.scope;
        let name = Slot { scope, block }.reservation_name();
        let mut found = None;
        let each = |it: IPReservation| {
            found = ReservationRow::of(&it).map(|row| (row, Identity::of(&it.metadata)))
        };
        loader
            .cluster
            .list_named(Kind::Reservation, None, &name, each)
            .await?;
        // In the scope that the pool leaves, another pool can have the address.
        all.extend(found.filter(|(row, _)| is_own_scope || row.pool == pool.key));
    }
    Ok(all)
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
fn held_by(row: &ReservationRow) -> Error {
    let holder = match (&row.claim, row.released.is_some()) {
        (Some(claim), true) => format!("cooling down after the release by the claim {claim}"),
        (Some(claim), false) if row.has_uid => {
            format!("held by the claim {claim}; delete the claim to release it")
        }
        (Some(claim), false) => format!("reserved for the claim {claim}"),
        (None, _) => "reserved already".to_owned(),
    };
    Error::Held {
        slot: row.slot.to_string(),
        holder,
    }
}

/// A reservation of a user.
pub(crate) fn reservation(
    slot: &Slot,
    pool: &PoolKey,
    claim: Option<&NamespacedName>,
) -> IPReservation {
    let block = slot.block;
    IPReservation {
        api_version: Some(format!("{}/{}", names::GROUP, names::POOL_VERSION)),
        kind: Some("IPReservation".to_owned()),
        metadata: ObjectMeta {
            name: Some(slot.reservation_name()),
            ..ObjectMeta::default()
        },
        spec: IPReservationSpec {
            scope: slot.scope.name(),
            address: block.base().to_string(),
            prefix_length: (!block.is_address()).then(|| block.length().into()),
            pool_ref: pool.to_reference(),
            claim_ref: claim.map(promised_to),
            released_at: None,
        },
    }
}

fn report(
    action: ReservationAction,
    slot: &Slot,
    pool: &PoolKey,
    claim: Option<&NamespacedName>,
    dry_run: bool,
) -> Report {
    let network = if let Scope::Network(name) = &slot.scope {
        Some(name.to_string())
    } else {
        None
    };
    Report::ReservationChange(ReservationChange {
        action,
        dry_run,
        name: slot.reservation_name(),
        address: slot.block.to_string(),
        pool: pool.into(),
        network,
        claim: claim.map(ToString::to_string),
    })
}

/// Parses `NAMESPACE/NAME` or `NAME`.
pub(crate) fn parse_claim(text: &str, namespace: &str) -> Result<NamespacedName, Error> {
    let (namespace, name) = text.split_once('/').unwrap_or((namespace, text));
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err(Error::Argument(format!(
            "invalid claim {text}: write NAMESPACE/NAME or NAME"
        )));
    }
    Ok(NamespacedName::new(namespace, name))
}

/// Asks on the terminal. Without one, `--yes` is necessary.
fn confirm(warning: &str, yes: bool) -> Result<(), Error> {
    if yes {
        return Ok(());
    }
    let refused = || Error::NotConfirmed {
        warning: warning.to_owned(),
    };
    if !std::io::stdin().is_terminal() {
        return Err(refused());
    }
    let _ = write!(std::io::stderr(), "{warning}. Continue? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let is_read = std::io::stdin().lock().read_line(&mut answer).is_ok();
    if is_read && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        Ok(())
    } else {
        Err(refused())
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::InClusterKind;

    use super::*;

    #[test]
    fn reservation_of_a_user_is_valid() {
        let key = PoolKey::new(InClusterKind::PrefixPool, Some("a"), "p");
        let slot = Slot {
            scope: Scope::Pool(key.clone()),
            block: Block::new("fd00::".parse().unwrap(), 64),
        };
        let claim = parse_claim("vm", "a").unwrap();
        let new = reservation(&slot, &key, Some(&claim));
        assert_eq!(new.slot().unwrap(), (slot, key));
        assert_eq!(new.spec.claim_ref.unwrap().namespace, "a");
    }

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

    #[test]
    fn claim_has_a_namespace_and_a_name() {
        assert_eq!(parse_claim("b/vm", "a").unwrap().to_string(), "b/vm");
        for wrong in ["", "/vm", "a/", "a/b/c"] {
            assert!(parse_claim(wrong, "a").is_err(), "{wrong}");
        }
    }
}
