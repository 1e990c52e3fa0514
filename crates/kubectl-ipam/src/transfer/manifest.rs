//! JSON and YAML: the objects as the API server stores them, alone, in documents, or in a List.

use capi_ipam::api::{IPPoolSpec, IPReservation, IPReservationSpec, Pool, PrefixPoolSpec, names};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use serde_saphyr::Spanned;

use super::{Entry, Parsed, Wanted};
use crate::load::kind_of;
use crate::model::ImportProblem;

/// The objects of a List with their lines.
#[derive(Deserialize)]
struct List {
    items: Vec<Spanned<Value>>,
}

/// Parses one or more documents. JSON is YAML.
pub(super) fn parse(text: &str, namespace: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for (start, document) in documents(text) {
        let line = |line: u64| line.saturating_add(start);
        let value: Value = match serde_saphyr::from_str_with_options(document, options()) {
            Ok(Value::Null) => continue,
            Ok(value) => value,
            Err(error) => {
                let at = error.location().map(|location| line(location.line()));
                parsed.problems.push(ImportProblem { line: at, problem: first_line(&error.to_string()) });
                continue;
            }
        };
        let is_list = value.get("items").is_some_and(Value::is_array);
        let items: Vec<Spanned<Value>> = if is_list {
            let list = serde_saphyr::from_str_with_options::<List>(document, options());
            list.map(|list| list.items).unwrap_or_default()
        } else {
            serde_saphyr::from_str_with_options(document, options()).map(|item| vec![item]).unwrap_or_default()
        };
        for item in items {
            parsed.add(line(item.referenced.line()), entry(item.value, namespace));
        }
    }
    parsed
}

/// The documents of a text, and the number of lines before each.
fn documents(text: &str) -> Vec<(u64, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut lines_before, mut offset, mut lines) = (0_usize, 0_u64, 0_usize, 0_u64);
    for line in text.split_inclusive('\n') {
        let end = offset.saturating_add(line.len());
        lines = lines.saturating_add(1);
        if line.trim_end() == "---" {
            documents.push((lines_before, text.get(start..offset).unwrap_or_default()));
            (start, lines_before) = (end, lines);
        }
        offset = end;
    }
    documents.push((lines_before, text.get(start..).unwrap_or_default()));
    documents.retain(|(_, document)| !document.trim().is_empty());
    documents
}

/// Limits for tens of thousands of objects: the file is one of the caller's.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { budget: serde_saphyr::budget! { max_events: 50_000_000, max_nodes: 20_000_000, max_total_scalar_bytes: 1 << 30 } }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn entry(mut value: Value, namespace: &str) -> Result<Entry, Vec<String>> {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let expected = format!("{}/{}", names::GROUP, names::POOL_VERSION);
    if version != expected {
        return Err(vec![format!("apiVersion: is {version:?}; {expected} is supported")]);
    }
    if kind == "IPReservation" {
        unknown_fields::<IPReservationSpec>(&value)?;
        return reservation(value).map(Entry::Reservation).map_err(|problem| vec![problem]);
    }
    let Some(pool_kind) = kind_of(&kind).filter(|it| it.name() == kind) else {
        return Err(vec![format!("kind: {kind:?} is neither a pool nor IPReservation")]);
    };
    if pool_kind.has_prefixes() {
        unknown_fields::<PrefixPoolSpec>(&value)?;
    } else {
        unknown_fields::<IPPoolSpec>(&value)?;
    }
    if text("/metadata/name").is_empty() {
        return Err(vec!["metadata.name: is empty".to_owned()]);
    }
    let given = text("/metadata/namespace");
    if pool_kind.is_global() && !given.is_empty() {
        return Err(vec![format!("metadata.namespace: a {kind} has none")]);
    }
    if !pool_kind.is_global()
        && given.is_empty()
        && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    let pool: Pool = serde_json::from_value(value).map_err(|error| vec![error.to_string()])?;
    Ok(Entry::Pool(Box::new(pool)))
}

/// Fails for fields of the specification that would be ignored.
fn unknown_fields<T: JsonSchema>(value: &Value) -> Result<(), Vec<String>> {
    let schema = schemars::schema_for!(T);
    let known = schema.get("properties").and_then(Value::as_object);
    let is_known = |name: &String| known.is_some_and(|known| known.contains_key(name));
    let fields = value.get("spec").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name);
    let unknown: Vec<String> =
        fields.filter(|name| !is_known(name)).map(|name| format!("spec.{name}: unknown field")).collect();
    if unknown.is_empty() { Ok(()) } else { Err(unknown) }
}

fn reservation(value: Value) -> Result<Wanted, String> {
    let reservation: IPReservation = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let (slot, pool) = reservation.slot().map_err(|problem| problem.to_string())?;
    let claim = reservation.spec.claim_ref.as_ref();
    if claim.is_some_and(|claim| claim.uid.is_some()) || reservation.spec.released_at.is_some() {
        return Err("spec.claimRef.uid: a reservation of the provider cannot be imported".to_owned());
    }
    let claim = claim.map(|claim| (claim.namespace.as_str().into(), claim.name.as_str().into()));
    Ok(Wanted { pool, block: slot.block, scope: Some(slot.scope), claim })
}
