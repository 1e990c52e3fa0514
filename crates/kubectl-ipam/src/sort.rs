//! `--sort-by`: the order of a list by a field of its JSON output.

use std::cmp::Ordering;

use capi_ipam_ip::parse_address;
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;

/// Sorts items by a field such as `.counts.free`, as kubectl does; `None` keeps their order. Items
/// without the field are last.
pub(crate) fn sort_by<T: Serialize>(items: Vec<T>, field: Option<&str>) -> Result<Vec<T>, Error> {
    let Some(field) = field else { return Ok(items) };
    let path = path(field)?;
    let mut keyed = Vec::with_capacity(items.len());
    for item in items {
        let json = serde_json::to_value(&item).map_err(|error| Error::Output(error.to_string()))?;
        keyed.push((value(&json, &path), item));
    }
    let is_unknown = !keyed.is_empty() && keyed.iter().all(|(value, _)| value.is_none());
    if is_unknown {
        return Err(Error::Argument(format!(
            "--sort-by: no item has a field {field}; see the fields with -o json"
        )));
    }
    keyed.sort_by(|(one, _), (other, _)| compare_optional(one.as_ref(), other.as_ref()));
    Ok(keyed.into_iter().map(|(_, item)| item).collect())
}

/// The names of `.a.b`, `a.b` or `{.a.b}`.
fn path(field: &str) -> Result<Vec<&str>, Error> {
    let inner = field
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .unwrap_or(field);
    let names: Vec<&str> = inner.trim_start_matches('.').split('.').collect();
    let is_name =
        |name: &&str| !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric());
    if names.iter().all(is_name) {
        return Ok(names);
    }
    Err(Error::Argument(format!(
        "--sort-by: {field} is not a field; write for example .counts.free"
    )))
}

/// The field of an item; `None` if the item does not have it, or if it is unknown.
fn value(item: &Value, path: &[&str]) -> Option<Value> {
    let mut found = item;
    for name in path {
        found = found.get(name)?;
    }
    if found.is_null() {
        None
    } else {
        Some(found.clone())
    }
}

fn compare_optional(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => compare(one, other),
        (one, other) => one.is_none().cmp(&other.is_none()),
    }
}

/// Numbers and addresses by their value, everything else as text.
fn compare(one: &Value, other: &Value) -> Ordering {
    if let (Some(one), Some(other)) = (one.as_u64(), other.as_u64()) {
        return one.cmp(&other);
    }
    let address = |value: &Value| {
        let text = value.as_str()?;
        parse_address(text.split('/').next().unwrap_or_default()).ok()
    };
    if let (Some(one), Some(other)) = (address(one), address(other)) {
        return one.cmp(&other);
    }
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    text(one).cmp(&text(other))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_are_sorted_by_a_field() {
        let items = [
            json!({ "name": "b", "counts": { "free": 9 }, "address": "10.0.0.10" }),
            json!({ "name": "c", "counts": null, "address": null }),
            json!({ "name": "a", "counts": { "free": 10 }, "address": "10.0.0.9/32" }),
        ];
        let sorted = |field: &str| -> String {
            let sorted = sort_by(items.to_vec(), Some(field)).unwrap();
            sorted
                .iter()
                .map(|item| item["name"].as_str().unwrap())
                .collect()
        };
        assert_eq!(
            [sorted(".name"), sorted("counts.free"), sorted("{.address}")],
            ["abc", "bac", "abc"]
        );
        assert_eq!(sort_by(items.to_vec(), None).unwrap(), items);
        for wrong in [".none", "", ".a[0]", "{.name"] {
            assert!(sort_by(items.to_vec(), Some(wrong)).is_err(), "{wrong}");
        }
        assert!(
            sort_by(Vec::<Value>::new(), Some(".name"))
                .unwrap()
                .is_empty()
        );
    }
}
