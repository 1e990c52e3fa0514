//! The fields in which an object changes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::record::Texts;
use crate::model::FieldChange;

/// The fields in which two values of a field differ, in alphabetical order. A list and a reference
/// such as `poolRef` are one field.
pub(super) fn differences(
    path: &str,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Vec<FieldChange> {
    let mut found = Vec::new();
    add(&mut found, path, given(old), given(new));
    found
}

/// The labels or annotations that an object gets, or that change.
pub(super) fn texts(path: &str, old: &Texts, new: &Texts) -> Vec<FieldChange> {
    let change = |(name, value): (&String, &String)| FieldChange {
        field: format!("{path}[{name}]"),
        old: old.get(name).cloned().map(Value::from),
        new: Some(value.clone().into()),
    };
    new.iter().map(change).collect()
}

/// A value; `None` if it is null.
fn given(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

fn add(found: &mut Vec<FieldChange>, path: &str, old: Option<&Value>, new: Option<&Value>) {
    if old == new {
        return;
    }
    let is_parent = [old, new]
        .into_iter()
        .flatten()
        .all(|value| value.is_object() && !path.ends_with("Ref"));
    if !is_parent {
        found.push(FieldChange {
            field: path.to_owned(),
            old: old.cloned(),
            new: new.cloned(),
        });
        return;
    }
    let names: BTreeSet<&String> = [old, new]
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .flat_map(serde_json::Map::keys)
        .collect();
    for name in names {
        let old = old.and_then(|value| value.get(name));
        let new = new.and_then(|value| value.get(name));
        add(found, &format!("{path}.{name}"), given(old), given(new));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_added_and_removed_fields_are_found() {
        let old = json!({ "addresses": ["a"], "prefix": 24, "gateway": "g", "limits": { "perNamespace": 1 },
                          "poolRef": { "name": "p" } });
        let new = json!({ "addresses": ["a", "b"], "prefix": 24, "network": "n", "gateway": null,
                          "limits": { "perNamespace": 1, "perCluster": 2 }, "poolRef": { "name": "q" } });
        let found = differences("spec", Some(&old), Some(&new));
        let texts: Vec<_> = found
            .iter()
            .map(|change| {
                let text = |value: &Option<Value>| value.as_ref().map(Value::to_string);
                (change.field.as_str(), text(&change.old), text(&change.new))
            })
            .collect();
        let json = |text: &str| Some(text.to_owned());
        assert_eq!(
            texts,
            [
                ("spec.addresses", json("[\"a\"]"), json("[\"a\",\"b\"]")),
                ("spec.gateway", json("\"g\""), None),
                ("spec.limits.perCluster", None, json("2")),
                ("spec.network", None, json("\"n\"")),
                (
                    "spec.poolRef",
                    json("{\"name\":\"p\"}"),
                    json("{\"name\":\"q\"}")
                ),
            ]
        );
        assert!(differences("spec", Some(&old), Some(&old)).is_empty());
    }

    #[test]
    fn object_that_is_created_has_all_its_fields() {
        let new = json!({ "prefix": 24, "limits": { "perNamespace": 1 } });
        let found = differences("spec", None, Some(&new));
        let fields: Vec<_> = found.iter().map(|change| change.field.as_str()).collect();
        assert_eq!(fields, ["spec.limits.perNamespace", "spec.prefix"]);
    }
}
