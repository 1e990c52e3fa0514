//! `export`: pools and reservations of users.

use std::collections::{BTreeMap, HashSet};

use capi_ipam_api::{IPReservation, Pool, PoolKey, names};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::record::{TEXTS_NOT_IMPORTED, Texts};
use super::table;
use crate::cli::Format;
use crate::cluster::Kind;
use crate::error::Error;
use crate::input::{matches, short};
use crate::load::Loader;
use crate::model::counted;

/// What `export` writes.
pub(crate) struct Exported {
    pub(crate) text: String,
    /// What it leaves out, and why.
    pub(crate) left_out: Vec<String>,
}

/// Returns the pools of a namespace, or of all, the global pools, and the reservations of users in
/// them. With names, only these pools.
pub(crate) async fn export(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
    names: &[String],
    format: Format,
) -> Result<Exported, Error> {
    if format == Format::Name {
        return Err(Error::Argument(
            "export writes csv, json or yaml".to_owned(),
        ));
    }
    let mut pools: Vec<Pool> = Vec::new();
    loader
        .each_pool(namespace, |pool| pools.push(plain_pool(pool)))
        .await?
        .into_seen();
    pools.sort_by_key(PoolKey::of);
    select(&mut pools, names, namespace)?;
    let keys: HashSet<PoolKey> = pools.iter().map(PoolKey::of).collect();
    let (mut reservations, mut left_out): (Vec<IPReservation>, Vec<String>) =
        (Vec::new(), Vec::new());
    let each = |reservation: IPReservation| {
        let is_of_user = reservation
            .spec
            .claim_ref
            .as_ref()
            .is_none_or(|claim| claim.uid.is_none())
            && reservation.spec.released_at.is_none();
        let pool = PoolKey::of_reservation(&reservation.spec.pool_ref);
        if !is_of_user || pool.is_none_or(|pool| !keys.contains(&pool)) {
            return;
        }
        match reservation.slot() {
            Ok(_) => reservations.push(plain_reservation(reservation)),
            Err(problem) => left_out.push(format!(
                "IPReservation {} is left out: {problem}",
                reservation.name_any()
            )),
        }
    };
    loader
        .list(Kind::Reservation, None, each)
        .await?
        .into_seen();
    reservations.sort_by_key(|reservation| reservation.slot().ok());
    let text = if matches!(format, Format::Table | Format::Wide | Format::Csv) {
        left_out.extend(remove_without_columns(&mut pools, &mut reservations));
        table::write(&pools, &reservations).map_err(|error| Error::Output(error.to_string()))?
    } else {
        list(&pools, &reservations, format).map_err(Error::Output)?
    };
    Ok(Exported { text, left_out })
}

/// Keeps the pools with one of these names. Fails if a name is that of no pool.
fn select(pools: &mut Vec<Pool>, names: &[String], namespace: Option<&str>) -> Result<(), Error> {
    if names.is_empty() {
        return Ok(());
    }
    for name in names {
        if !pools.iter().any(|pool| matches(&PoolKey::of(pool), name)) {
            let place = namespace.map_or_else(
                || "any namespace".to_owned(),
                |namespace| format!("the namespace {namespace} or among the global pools"),
            );
            return Err(Error::NoPool {
                name: name.clone(),
                place,
            });
        }
    }
    pools.retain(|pool| {
        let key = PoolKey::of(pool);
        names.iter().any(|name| matches(&key, name))
    });
    Ok(())
}

/// Removes the pools that a table cannot state, with their reservations: an import would create
/// other pools. Returns what it removes, and the labels and annotations that the table lacks.
fn remove_without_columns(
    pools: &mut Vec<Pool>,
    reservations: &mut Vec<IPReservation>,
) -> Vec<String> {
    let mut removed: BTreeMap<PoolKey, (String, usize)> = BTreeMap::new();
    pools.retain(|pool| {
        let fields = table::fields_without_column(&pool.spec);
        let is_kept = fields.is_empty();
        if !is_kept {
            removed.insert(PoolKey::of(pool), (fields.join(", "), 0));
        }
        is_kept
    });
    reservations.retain(|reservation| {
        let key = PoolKey::of_reservation(&reservation.spec.pool_ref);
        let Some((_, count)) = key.and_then(|key| removed.get_mut(&key)) else {
            return true;
        };
        *count = count.saturating_add(1);
        false
    });
    let mut left_out: Vec<String> = removed
        .iter()
        .map(|(key, (fields, count))| removed_text(key, fields, *count))
        .collect();
    let objects: Vec<(String, &ObjectMeta)> = pools
        .iter()
        .map(|pool| (PoolKey::of(pool).to_string(), &pool.metadata))
        .chain(reservations.iter().map(|reservation| {
            let name = format!("IPReservation {}", reservation.name_any());
            (name, &reservation.metadata)
        }))
        .collect();
    left_out.extend(texts_left_out("labels", &objects, |metadata| {
        metadata.labels.is_some()
    }));
    left_out.extend(texts_left_out("annotations", &objects, |metadata| {
        metadata.annotations.is_some()
    }));
    left_out
}

/// That a pool is left out, and how it can be exported.
fn removed_text(key: &PoolKey, fields: &str, reservations: usize) -> String {
    let with = match reservations {
        0 => String::new(),
        count => format!(" with {}", counted(count, "reservation")),
    };
    let namespace = match &key.namespace {
        Some(name) => format!(" --namespace {name}"),
        None => String::new(),
    };
    format!(
        "{key} is left out{with}: a table has no column for {fields}; export it with: kubectl ipam export {}/{} \
         --output yaml{namespace}",
        short(key.kind),
        key.name
    )
}

/// That labels or annotations are left out, with the first object that has them.
fn texts_left_out(
    field: &str,
    objects: &[(String, &ObjectMeta)],
    has_texts: impl Fn(&ObjectMeta) -> bool,
) -> Option<String> {
    let mut names = Vec::new();
    for (name, metadata) in objects {
        if has_texts(metadata) {
            names.push(name);
        }
    }
    let first = names.first()?;
    let more = match names.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" and of {}", counted(more, "more object")),
    };
    Some(format!(
        "metadata.{field} of {first}{more} are left out: a table has no column for them; --output yaml writes them"
    ))
}

/// The objects as a List.
fn list(pools: &[Pool], reservations: &[IPReservation], format: Format) -> Result<String, String> {
    let value =
        |result: Result<Value, serde_json::Error>| result.map_err(|error| error.to_string());
    let mut items = Vec::new();
    for pool in pools {
        items.push(value(serde_json::to_value(pool))?);
    }
    for reservation in reservations {
        items.push(value(serde_json::to_value(reservation))?);
    }
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    if format == Format::Json {
        return Ok(serde_json::to_string_pretty(&list).map_err(|error| error.to_string())? + "\n");
    }
    serde_saphyr::to_string(&list).map_err(|error| error.to_string())
}

fn api_version() -> String {
    format!("{}/{}", names::GROUP, names::POOL_VERSION)
}

/// What a user writes of a pool.
fn plain_pool(pool: &Pool) -> Pool {
    let mut plain = pool.clone();
    plain.api_version = Some(api_version());
    plain.metadata = plain_metadata(plain.metadata);
    plain.status = None;
    plain
}

fn plain_reservation(reservation: IPReservation) -> IPReservation {
    IPReservation {
        api_version: Some(api_version()),
        kind: Some("IPReservation".to_owned()),
        metadata: plain_metadata(reservation.metadata),
        spec: reservation.spec,
        status: None,
    }
}

fn plain_metadata(metadata: ObjectMeta) -> ObjectMeta {
    let ObjectMeta {
        name,
        namespace,
        labels,
        annotations,
        ..
    } = metadata;
    let (labels, annotations) = (of_user(labels), of_user(annotations));
    ObjectMeta {
        name,
        namespace,
        labels,
        annotations,
        ..ObjectMeta::default()
    }
}

/// The labels or annotations that a user has set; `None` if there are none.
fn of_user(texts: Option<Texts>) -> Option<Texts> {
    let mut texts = texts?;
    texts.retain(|name, _| !TEXTS_NOT_IMPORTED.contains(&name.as_str()));
    (!texts.is_empty()).then_some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, fields: &Value, labels: &Value) -> Pool {
        let mut spec = json!({ "addresses": ["10.0.0.0/24"], "prefix": 24 });
        if let (Some(spec), Some(fields)) = (spec.as_object_mut(), fields.as_object()) {
            spec.extend(fields.clone());
        }
        let metadata = json!({ "name": name, "namespace": "a", "labels": labels });
        let pool = json!({ "kind": "InClusterIPPool", "metadata": metadata, "spec": spec });
        serde_json::from_value(pool).unwrap()
    }

    fn reservation(name: &str, pool: &str, labels: &Value) -> IPReservation {
        let pool = json!({ "kind": "InClusterIPPool", "namespace": "a", "name": pool });
        let spec = json!({ "scope": "p.a.web", "address": "10.0.0.9", "poolRef": pool });
        let metadata = json!({ "name": name, "labels": labels });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    #[test]
    fn everything_that_a_table_lacks_is_named() {
        let (none, labels) = (json!({}), json!({ "team": "x" }));
        let slices =
            json!({ "slices": { "size": 16, "per": "Namespace" }, "draining": ["10.0.0.9"] });
        let mut pools = vec![
            pool("web", &none, &Value::Null),
            pool("sliced", &slices, &labels),
        ];
        let mut reservations = vec![
            reservation("r1", "web", &labels),
            reservation("r2", "sliced", &labels),
            reservation("r3", "web", &labels),
        ];
        let left_out = remove_without_columns(&mut pools, &mut reservations);
        assert_eq!(
            left_out,
            [
                "InClusterIPPool a/sliced is left out with 1 reservation: a table has no column for draining, slices; \
                 export it with: kubectl ipam export IP/sliced --output yaml --namespace a",
                "metadata.labels of IPReservation r1 and of 1 more object are left out: a table has no column for \
                 them; --output yaml writes them",
            ]
        );
        assert_eq!((pools.len(), reservations.len()), (1, 2));
        pools[0].metadata.labels = None;
        reservations.clear();
        assert!(remove_without_columns(&mut pools, &mut reservations).is_empty());
    }
}
