//! The limits of the stored version of pools, checked by the webhook as well.
//!
//! The API server checks them in the version of the request only. What an object of another version
//! is converted to, or carries in its annotation, is not limited by the definition.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use capi_ipam_api::{InClusterKind, crds};
use capi_ipam_webhook::denial;
use kube::core::response::StatusCause;
use serde_json::{Value, json};
use tracing::error;

/// The maximum number of causes that are returned for one object.
const MAX_CAUSES: usize = 16;

/// The limits of each kind of pool, from its definition.
static LIMITS: LazyLock<Vec<(InClusterKind, Limits)>> = LazyLock::new(|| {
    let of_kind = |kind| match crds::stored_pool_spec(kind) {
        Ok(schema) => Some((kind, Limits::of(&schema)?)),
        Err(error) => {
            error!(%kind, %error, "cannot generate the definition; its limits are not checked");
            None
        }
    };
    InClusterKind::ALL.into_iter().filter_map(of_kind).collect()
});

/// The limits of a part of a schema and of the parts in it.
#[derive(Debug, Default, PartialEq)]
struct Limits {
    max_items: Option<usize>,
    max_length: Option<usize>,
    max_properties: Option<usize>,
    fields: BTreeMap<String, Limits>,
    /// Of the entries of a list or the values of a map.
    items: Option<Box<Limits>>,
}

/// Returns what exceeds the limits of a kind in the specification of a pool. What the object had
/// `before` is accepted, as the API server does.
pub(super) fn exceeded(
    kind: InClusterKind,
    spec: Option<&Value>,
    before: Option<&Value>,
) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if let (Some(spec), Some((_, limits))) = (spec, LIMITS.iter().find(|(of, _)| *of == kind)) {
        limits.check(spec, before, "spec", &mut causes);
    }
    causes
}

impl Limits {
    /// The limits of a schema; `None` if it has none.
    fn of(schema: &Value) -> Option<Self> {
        let number = |name| {
            schema
                .get(name)
                .and_then(Value::as_u64)
                .and_then(|number| usize::try_from(number).ok())
        };
        let mut fields = BTreeMap::new();
        for (name, field) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            if let Some(limits) = Self::of(field) {
                fields.insert(name.clone(), limits);
            }
        }
        let items = schema
            .get("items")
            .or_else(|| schema.get("additionalProperties"))
            .and_then(Self::of)
            .map(Box::new);
        let limits = Self {
            max_items: number("maxItems"),
            max_length: number("maxLength"),
            max_properties: number("maxProperties"),
            fields,
            items,
        };
        (limits != Self::default()).then_some(limits)
    }

    fn check(
        &self,
        value: &Value,
        before: Option<&Value>,
        path: &str,
        causes: &mut Vec<StatusCause>,
    ) {
        if before == Some(value) || causes.len() >= MAX_CAUSES {
            return;
        }
        match value {
            Value::String(text) => {
                // As the API server counts.
                let length = text.chars().count();
                if let Some(limit) = self.max_length.filter(|limit| length > *limit) {
                    let beginning: String = text.chars().take(limit).collect();
                    let detail = format!("has {length} characters; at most {limit} are allowed");
                    causes.push(denial::invalid_value(
                        path,
                        &json!(format!("{beginning}…")),
                        detail,
                    ));
                }
            }
            Value::Array(items) => {
                if let Some(limit) = self.max_items.filter(|limit| items.len() > *limit) {
                    let count = items.len();
                    let detail = format!(
                        "has {count} entries; at most {limit} are allowed: use ranges, or several pools"
                    );
                    causes.push(denial::invalid_value(path, &json!(count), detail));
                    return;
                }
                let Some(limits) = &self.items else { return };
                for (index, item) in items.iter().enumerate() {
                    let before = before.and_then(|before| before.get(index));
                    limits.check(item, before, &format!("{path}[{index}]"), causes);
                }
            }
            Value::Object(fields) => {
                if let Some(limit) = self.max_properties.filter(|limit| fields.len() > *limit) {
                    let count = fields.len();
                    let detail = format!("has {count} entries; at most {limit} are allowed");
                    causes.push(denial::invalid_value(path, &json!(count), detail));
                    return;
                }
                for (name, field) in fields {
                    let limits = self.fields.get(name).or(self.items.as_deref());
                    if let Some(limits) = limits {
                        let before = before.and_then(|before| before.get(name));
                        limits.check(field, before, &format!("{path}.{name}"), causes);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(kind: InClusterKind, spec: &Value, before: Option<&Value>) -> Vec<String> {
        exceeded(kind, Some(spec), before)
            .into_iter()
            .map(|cause| cause.field)
            .collect()
    }

    fn entries(count: usize) -> Value {
        let texts: Vec<String> = (0..count)
            .map(|number| format!("10.0.{}.{}", number / 256, number % 256))
            .collect();
        json!(texts)
    }

    /// Each list and each text of each kind, one more than its limit.
    #[test]
    fn each_limit_of_the_definitions_is_checked() {
        for kind in InClusterKind::ALL {
            let (_, limits) = LIMITS.iter().find(|(of, _)| *of == kind).unwrap();
            let mut checked = 0;
            each(limits, "spec", &mut |path, wrap, limits| {
                let cases = [
                    limits
                        .max_items
                        .map(|limit| json!(vec![Value::Null; limit + 1])),
                    limits.max_length.map(|limit| json!("x".repeat(limit + 1))),
                    limits
                        .max_properties
                        .map(|limit| (0..=limit).map(|n| (n.to_string(), Value::Null)).collect()),
                ];
                for value in cases.into_iter().flatten() {
                    let spec = wrap(value);
                    assert_eq!(fields(kind, &spec, None), [path.to_owned()], "{kind}");
                    assert!(
                        fields(kind, &spec, Some(&spec)).is_empty(),
                        "{kind}: {path} did not change"
                    );
                    checked += 1;
                }
            });
            assert!(checked >= 12, "{kind}: {checked}");
        }
    }

    /// What is called with the path of a part, a function that wraps a value of it, and its limits.
    type Visit<'a> = dyn FnMut(&str, &dyn Fn(Value) -> Value, &Limits) + 'a;

    /// Calls a function with the path of each part, and a function that wraps a value of the part
    /// into a specification.
    fn each(limits: &Limits, path: &str, visit: &mut Visit<'_>) {
        each_in(limits, path, &|value| value, visit);
    }

    fn each_in(limits: &Limits, path: &str, wrap: &dyn Fn(Value) -> Value, visit: &mut Visit<'_>) {
        visit(path, wrap, limits);
        for (name, field) in &limits.fields {
            each_in(
                field,
                &format!("{path}.{name}"),
                &|value| wrap(json!({ name: value })),
                visit,
            );
        }
        if let Some(items) = &limits.items {
            if limits.max_items.is_some() {
                each_in(
                    items,
                    &format!("{path}[0]"),
                    &|value| wrap(json!([value])),
                    visit,
                );
            } else {
                each_in(
                    items,
                    &format!("{path}.key"),
                    &|value| wrap(json!({ "key": value })),
                    visit,
                );
            }
        }
    }

    #[test]
    fn lists_at_their_limit_are_accepted() {
        let kind = InClusterKind::IPPool;
        assert!(
            fields(
                kind,
                &json!({"addresses": entries(4096), "prefix": 8}),
                None
            )
            .is_empty()
        );
        assert_eq!(
            fields(
                kind,
                &json!({"addresses": entries(4097), "prefix": 8}),
                None
            ),
            ["spec.addresses"]
        );
        let long = json!({"addresses": entries(5000), "prefix": 8});
        let changed = json!({"addresses": entries(5000), "prefix": 9});
        assert!(
            fields(kind, &changed, Some(&long)).is_empty(),
            "the list did not change"
        );
        let lists = json!({"excludedAddresses": entries(4097), "draining": entries(4097)});
        assert_eq!(
            fields(kind, &lists, None),
            ["spec.draining", "spec.excludedAddresses"]
        );
    }
}
