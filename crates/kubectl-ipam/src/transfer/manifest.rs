//! JSON and YAML: the objects as the API server stores them, alone, in documents, or in a List.

use capi_ipam_api::{IPReservation, InClusterKind, Pool, PoolKey, names};
use capi_ipam_controller::namespaced_name::NamespacedName;
use serde_json::{Map, Value, json};

use super::document::{self, Content, Node};
use super::partial::text_problems;
use super::record::{
    Entry, Parsed, RESERVATION, Record, TEXTS_NOT_IMPORTED, Texts, Wanted, WantedPool,
};
use super::schema::{Fault, METADATA_NOT_IMPORTED, faults, schema, unknown_kind};
use crate::model::ImportProblem;

/// Parses one or more documents. JSON is YAML.
pub(super) fn parse(text: &str, namespace: &str) -> Parsed {
    let (documents, problems) = document::parse(text);
    let mut parsed = Parsed {
        problems,
        ..Parsed::default()
    };
    for document in documents {
        if document.get("kind").and_then(Node::as_text) == Some("List") {
            list(&mut parsed, document, namespace);
        } else {
            object(&mut parsed, document, namespace);
        }
    }
    parsed
}

/// Adds the objects of a List.
fn list(parsed: &mut Parsed, document: Node, namespace: &str) {
    let Content::Map(fields) = document.content else {
        return;
    };
    for field in fields {
        match (field.name.as_str(), field.value.content) {
            // The metadata of a List is empty, or that of a response of the API server.
            ("apiVersion" | "kind" | "metadata", _) => {}
            ("items", Content::List(items)) => items
                .into_iter()
                .for_each(|item| object(parsed, item, namespace)),
            ("items", _) => parsed.problem(field.line, "items: must be a list".to_owned()),
            (name, _) => parsed.problem(field.line, format!("{name}: unknown field")),
        }
    }
}

/// Adds an object.
fn object(parsed: &mut Parsed, mut document: Node, namespace: &str) {
    let line = document.line;
    let text = |name: &str| {
        document
            .get(name)
            .and_then(Node::as_text)
            .unwrap_or_default()
    };
    let (version, kind) = (text("apiVersion"), text("kind"));
    let expected = format!("{}/{}", names::GROUP, names::POOL_VERSION);
    if version != expected {
        return parsed.problem(
            line,
            format!("apiVersion: is {version:?}; {expected} is supported"),
        );
    }
    let pool_kind = InClusterKind::of(kind);
    let schema = schema(kind).filter(|_| pool_kind.is_some() || kind == RESERVATION);
    let Some(schema) = schema else {
        return parsed.problem(line, format!("kind: {}", unknown_kind(kind)));
    };
    remove_not_imported(parsed, &mut document, pool_kind.is_some());
    let faults = faults(&document, schema);
    if faults.iter().any(|fault| !fault.is_bound) {
        if let Some(kind) = pool_kind {
            unread_pool(parsed, kind, &document, &faults, namespace);
        }
        // All of them, so that the file has to be corrected once.
        for fault in faults {
            parsed.problem(fault.line, fault.problem);
        }
        return;
    }
    let value = document.to_value();
    let entry = match pool_kind {
        Some(kind) => pool(kind, value, namespace),
        None => reservation(value),
    };
    let bound = |fault: Fault| ImportProblem::of_line(fault.line, fault.problem);
    match entry {
        Ok(entry) => {
            let out_of_bounds = faults.into_iter().map(bound).collect();
            parsed.records.push(Record {
                line,
                entry,
                out_of_bounds,
            });
        }
        Err(problem) => parsed.problem(line, problem),
    }
}

/// Records a pool that has faults, and what is wrong with the rest of it.
fn unread_pool(
    parsed: &mut Parsed,
    kind: InClusterKind,
    document: &Node,
    faults: &[Fault],
    namespace: &str,
) {
    let text = |name: &str| document.get("metadata")?.get(name)?.as_text();
    if let Some(name) = text("name") {
        let namespace = text("namespace").unwrap_or(namespace);
        let namespace = (!kind.is_global()).then_some(namespace);
        parsed
            .unread_pools
            .insert(PoolKey::new(kind, namespace, name));
    }
    let Some(spec) = document.get("spec") else {
        return;
    };
    let mut rest = Map::new();
    for field in spec.fields() {
        let path = format!("spec.{}", field.name);
        let is_of_field = |fault: &Fault| {
            let below = fault.path.strip_prefix(&path);
            below.is_some_and(|below| below.is_empty() || below.starts_with(['.', '[']))
        };
        if !faults.iter().any(is_of_field) {
            rest.insert(field.name.clone(), field.value.to_value());
        }
    }
    for problem in text_problems(kind.name(), &Value::Object(rest)) {
        let line = spec.line_of_entry(problem.field).unwrap_or(document.line);
        parsed.problem(line, problem.to_string());
    }
}

/// Removes the fields that the API server and controllers set, as in the output of `kubectl get`,
/// and records them.
fn remove_not_imported(parsed: &mut Parsed, document: &mut Node, has_status: bool) {
    let Content::Map(fields) = &mut document.content else {
        return;
    };
    fields.retain(|field| {
        let is_status = has_status && field.name == "status";
        if is_status {
            parsed.skip_field(field.line, "status");
        }
        !is_status
    });
    let Some(metadata) = fields.iter_mut().find(|field| field.name == "metadata") else {
        return;
    };
    let Content::Map(fields) = &mut metadata.value.content else {
        return;
    };
    fields.retain(|field| {
        let is_removed = METADATA_NOT_IMPORTED.contains(&field.name.as_str());
        if is_removed {
            parsed.skip_field(field.line, &format!("metadata.{}", field.name));
        }
        !is_removed
    });
    for field in fields {
        let path = format!("metadata.{}", field.name);
        let Content::Map(entries) = &mut field.value.content else {
            continue;
        };
        entries.retain(|entry| {
            let is_removed = TEXTS_NOT_IMPORTED.contains(&entry.name.as_str());
            if is_removed {
                parsed.skip_field(entry.line, &format!("{path}[{}]", entry.name));
            }
            !is_removed
        });
    }
}

fn pool(kind: InClusterKind, mut value: Value, namespace: &str) -> Result<Entry, String> {
    let given = value
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if kind.is_global() && !given.is_empty() {
        return Err(format!("metadata.namespace: a {kind} has none"));
    }
    if !kind.is_global()
        && given.is_empty()
        && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    let spec = value.get("spec").cloned().unwrap_or_else(|| json!({}));
    let pool: Pool = serde_json::from_value(value).map_err(|error| format!("spec: {error}"))?;
    Ok(Entry::Pool(Box::new(WantedPool { pool, spec })))
}

fn reservation(value: Value) -> Result<Entry, String> {
    let reservation: IPReservation =
        serde_json::from_value(value).map_err(|error| format!("spec: {error}"))?;
    if reservation
        .metadata
        .namespace
        .as_deref()
        .is_some_and(|namespace| !namespace.is_empty())
    {
        return Err(format!("metadata.namespace: an {RESERVATION} has none"));
    }
    let (slot, pool) = reservation.slot().map_err(|problem| problem.to_string())?;
    if reservation.spec.released_at.is_some() {
        return Err("spec.releasedAt: a reservation of the provider cannot be imported".to_owned());
    }
    let claim = match reservation.spec.claim_ref {
        Some(claim) if claim.uid.is_some() => {
            return Err(
                "spec.claimRef.uid: a reservation of the provider cannot be imported".to_owned(),
            );
        }
        // It counts for the limits of a Cluster, which a promise does not.
        Some(claim) if claim.cluster.is_some() => {
            return Err(
                "spec.claimRef.cluster: a reservation of the provider cannot be imported"
                    .to_owned(),
            );
        }
        Some(claim) => Some(NamespacedName::new(&claim.namespace, &claim.name)),
        None => None,
    };
    let texts = |texts: Option<Texts>| texts.unwrap_or_default();
    Ok(Entry::Reservation(Box::new(Wanted {
        pool,
        block: slot.block,
        scope: Some(slot.scope),
        claim,
        labels: texts(reservation.metadata.labels),
        annotations: texts(reservation.metadata.annotations),
    })))
}
