//! `export`: pools and reservations of users.

use capi_ipam::api::{IPReservation, Pool, PoolKey, names};
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::plan::IMPORT_LABEL;
use super::table;
use crate::cli::Format;
use crate::cluster::Kind;
use crate::error::Error;
use crate::load::Loader;

/// The annotation in which `kubectl apply` stores the last version.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the pools of a namespace, or of all, the global pools, and the reservations of users in them.
pub(crate) async fn export(loader: &mut Loader<'_>, namespace: Option<&str>, format: Format) -> Result<String, Error> {
    if format == Format::Name {
        return Err(Error::Argument("export writes csv, json or yaml".to_owned()));
    }
    let mut pools: Vec<Pool> = Vec::new();
    loader.each_pool(namespace, |pool| pools.push(plain_pool(pool))).await?;
    pools.sort_by_key(PoolKey::of);
    let keys: std::collections::HashSet<PoolKey> = pools.iter().map(PoolKey::of).collect();
    let mut reservations: Vec<IPReservation> = Vec::new();
    let each = |reservation: IPReservation| {
        let is_of_user = reservation.spec.claim_ref.as_ref().is_none_or(|claim| claim.uid.is_none())
            && reservation.spec.released_at.is_none();
        if is_of_user && reservation.slot().is_ok_and(|(_, pool)| keys.contains(&pool)) {
            reservations.push(plain_reservation(reservation));
        }
    };
    loader.list(Kind::Reservation, None, each).await?;
    reservations.sort_by_key(|reservation| reservation.slot().ok());
    let failed = |error: &dyn std::error::Error| Error::Output(error.to_string());
    if matches!(format, Format::Table | Format::Wide | Format::Csv) {
        pools.iter().try_for_each(require_columns)?;
        return table::write(&pools, &reservations).map_err(|error| failed(&error));
    }
    let value = |result: Result<Value, serde_json::Error>| result.map_err(|error| failed(&error));
    let mut items = Vec::new();
    for pool in &pools {
        items.push(value(serde_json::to_value(pool))?);
    }
    for reservation in &reservations {
        items.push(value(serde_json::to_value(reservation))?);
    }
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    Ok(if format == Format::Json {
        serde_json::to_string_pretty(&list).map_err(|error| failed(&error))? + "\n"
    } else {
        serde_saphyr::to_string(&list).map_err(|error| failed(&error))?
    })
}

/// Fails if a table would lack a field of a pool: an import of it would create another pool.
fn require_columns(pool: &Pool) -> Result<(), Error> {
    let fields = table::fields_without_column(&pool.spec);
    if fields.is_empty() {
        return Ok(());
    }
    let (key, fields) = (PoolKey::of(pool), fields.join(", "));
    Err(Error::Argument(format!("{key} has {fields}, for which a table has no column: export as YAML, -o yaml")))
}

fn api_version() -> String {
    format!("{}/{}", names::GROUP, names::POOL_VERSION)
}

/// What a user writes of a pool.
fn plain_pool(pool: &Pool) -> Pool {
    let metadata = plain_metadata(pool.metadata.clone());
    Pool { api_version: Some(api_version()), kind: pool.kind, metadata, spec: pool.spec.clone(), status: None }
}

fn plain_reservation(reservation: IPReservation) -> IPReservation {
    IPReservation {
        api_version: Some(api_version()),
        kind: Some("IPReservation".to_owned()),
        metadata: plain_metadata(reservation.metadata),
        spec: reservation.spec,
    }
}

fn plain_metadata(metadata: ObjectMeta) -> ObjectMeta {
    let ObjectMeta { name, namespace, mut labels, mut annotations, .. } = metadata;
    labels.iter_mut().for_each(|labels| drop(labels.remove(IMPORT_LABEL)));
    annotations.iter_mut().for_each(|annotations| drop(annotations.remove(LAST_APPLIED)));
    let labels = labels.filter(|labels| !labels.is_empty());
    let annotations = annotations.filter(|annotations| !annotations.is_empty());
    ObjectMeta { name, namespace, labels, annotations, ..ObjectMeta::default() }
}
