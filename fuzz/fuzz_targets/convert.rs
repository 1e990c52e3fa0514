//! Fuzzes the conversion of pools with arbitrary objects.
//!
//! Invariants: an object in the desired version is unchanged, conversion fails only because of what
//! clients wrote about `v1alpha2` fields in a `v1alpha1` object, it never changes the status, and a
//! `v1alpha2` object survives a round trip.
//!
//! The first line is the type of the input: `j` for the fields of an object as JSON, `t` for the
//! texts of a `v1alpha1` spec, one per line: subnet, start, end, prefix, gateway, then the
//! addresses. With an `x` in the first line the pool is global.
//!
//! Run with `cargo +nightly fuzz run convert`.

#![no_main]

use capi_ipam::admission::conversion::{ConversionError, convert};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

const OLD: &str = "ipam.cluster.x-k8s.io/v1alpha1";
const NEW: &str = "ipam.cluster.x-k8s.io/v1alpha2";
const ANNOTATION: &str = "cluster.x-k8s.io/conversion-data";

fuzz_target!(|input: &str| {
    let (first, rest) = input.split_once('\n').unwrap_or_default();
    let kind = if first.contains('x') {
        "GlobalInClusterIPPool"
    } else {
        "InClusterIPPool"
    };
    let fields = if first.starts_with('t') {
        from_texts(rest)
    } else {
        serde_json::from_str(rest).ok()
    };
    if let Some(fields) = fields {
        check(kind, fields);
    }
});

/// An object with a `v1alpha1` spec of these texts.
fn from_texts(texts: &str) -> Option<Map<String, Value>> {
    let mut lines = texts.split('\n');
    let mut spec = Map::new();
    for name in ["subnet", "start", "end", "prefix", "gateway"] {
        let line = lines.next()?;
        let value = if name == "prefix" {
            json!(line.parse::<i64>().ok())
        } else {
            json!(line)
        };
        if !line.is_empty() && !value.is_null() {
            spec.insert(name.to_owned(), value);
        }
    }
    let addresses: Vec<&str> = lines.collect();
    if !addresses.is_empty() {
        spec.insert("addresses".to_owned(), json!(addresses));
    }
    json!({ "metadata": { "name": "pool" }, "spec": spec })
        .as_object()
        .cloned()
}

fn check(kind: &str, fields: Map<String, Value>) {
    for (version, other) in [(OLD, NEW), (NEW, OLD)] {
        let mut object = fields.clone();
        object.insert("apiVersion".to_owned(), json!(version));
        object.insert("kind".to_owned(), json!(kind));
        let object = Value::Object(object);
        assert_eq!(convert(object.clone(), version).as_ref(), Ok(&object));

        let Some(there) = converted(&object, other) else {
            continue;
        };
        assert_eq!(there["apiVersion"], other);
        assert_eq!(there.get("status"), object.get("status"));
        let Some(back) = converted(&there, version) else {
            continue;
        };
        if version == NEW && is_well_formed(&object) {
            assert_eq!(back, object);
        }
    }
}

/// The object in another version. `None` if a mark or the annotation of a `v1alpha1` object, which clients
/// can set, prevents that.
fn converted(object: &Value, version: &str) -> Option<Value> {
    match convert(object.clone(), version) {
        Ok(converted) => Some(converted),
        Err(ConversionError::TooLarge { .. } | ConversionError::Malformed { .. })
            if object["apiVersion"] == OLD =>
        {
            None
        }
        Err(error) => panic!("{object}: {error}"),
    }
}

/// Whether an API server can store the `v1alpha2` object, and it has no conversion-data annotation.
fn is_well_formed(object: &Value) -> bool {
    let spec = &object["spec"];
    let metadata = &object["metadata"];
    let annotations = match metadata.get("annotations") {
        None => true,
        Some(Value::Object(annotations)) => {
            annotations.values().all(Value::is_string) && !annotations.contains_key(ANNOTATION)
        }
        Some(_) => false,
    };
    let status = object.get("status").is_none_or(Value::is_object);
    let fields = spec["addresses"].is_array() && spec["prefix"].is_i64();
    fields && metadata.is_object() && annotations && status && is_exact(object)
}

/// Whether the value has no fractions, which can lose precision when they are written and parsed.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(values) => values.iter().all(is_exact),
        Value::Object(fields) => fields.values().all(is_exact),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}
