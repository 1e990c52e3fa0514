//! Conversion of the spec of a pool from `v1alpha1` to `v1alpha2`.
//!
//! It operates on plain JSON and never fails. Invalid values are passed through, or become an
//! invalid entry of `addresses`, so that the validation of `v1alpha2` reports them.

use capi_ipam_ip::{Family, parse_entry};
use serde_json::Value;

/// The fields of a JSON object.
pub(super) type Fields = serde_json::Map<String, Value>;

/// The fields that both versions have.
const SHARED: [&str; 3] = ["addresses", "prefix", "gateway"];

/// Whether both versions have this field.
pub(super) fn is_shared(name: &str) -> bool {
    SHARED.contains(&name)
}

/// Returns the fields of `spec` that both versions have.
pub(super) fn shared_fields(spec: &Fields) -> Fields {
    let fields = spec.iter().filter(|(name, _)| is_shared(name));
    fields
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The fields that `v1alpha2` requires, unless the pool has ranges, with their empty values.
fn required_fields() -> [(&'static str, Value); 2] {
    [
        ("addresses", Value::Array(Vec::new())),
        ("prefix", Value::from(0)),
    ]
}

/// As [`shared_fields`], with empty values for missing fields that `v1alpha2` requires.
pub(super) fn with_required_fields(spec: &Fields) -> Fields {
    let mut fields = shared_fields(spec);
    for (name, empty) in required_fields() {
        if fields.get(name).is_none_or(Value::is_null) {
            fields.insert(name.to_owned(), empty);
        }
    }
    fields
}

/// Records in the `v1alpha2` fields of an object which required fields it does not have, as null.
pub(super) fn record_missing_fields(spec: &Fields, recorded: &mut Fields) {
    for (name, _) in required_fields() {
        if !spec.contains_key(name) {
            recorded.insert(name.to_owned(), Value::Null);
        }
    }
}

/// Removes the empty required fields that the object did not have before it was converted to
/// `v1alpha1`, and does not have as a `v1alpha1` object.
pub(super) fn remove_missing_fields(spec: &mut Fields, old_spec: &Fields, recorded: &Fields) {
    for (name, empty) in required_fields() {
        let was_missing = recorded.get(name) == Some(&Value::Null) && !old_spec.contains_key(name);
        if was_missing && spec.get(name) == Some(&empty) {
            spec.remove(name);
        }
    }
}

/// Returns the `v1alpha1` spec with the fields that its subnet implies: `start`, `end` and
/// `prefix`.
///
/// The Go provider adds them as well, and stores the spec in this form.
pub(super) fn with_subnet_fields(spec: &Fields) -> Fields {
    let mut spec = spec.clone();
    if let Some(subnet) = text(&spec, "subnet").and_then(Subnet::parse) {
        let (start, end) = subnet.ends();
        let all = [
            ("start", Value::from(start)),
            ("end", Value::from(end)),
            ("prefix", Value::from(subnet.length)),
        ];
        for (name, value) in all {
            if is_unset(spec.get(name)) {
                spec.insert(name.to_owned(), value);
            }
        }
    }
    spec
}

/// Converts a `v1alpha1` spec to the fields of `v1alpha2`. Required fields are always set.
pub(super) fn to_v1alpha2(spec: &Fields) -> Fields {
    let spec = with_subnet_fields(spec);
    let mut fields = with_required_fields(&spec);
    if let Some(Value::Array(addresses)) = fields.get_mut("addresses") {
        addresses.extend(additional_entries(&spec).map(Value::from));
    }
    fields
}

/// Returns the entries that `subnet`, `start` and `end` add to the addresses. `spec` has the fields
/// that its subnet implies.
fn additional_entries(spec: &Fields) -> impl Iterator<Item = String> {
    // A range with one end only is not valid, and validation reports it.
    let range = match (text(spec, "start"), text(spec, "end")) {
        (None, None) => None,
        (start, end) => Some(format!(
            "{}-{}",
            start.unwrap_or_default(),
            end.unwrap_or_default()
        )),
    };
    let subnet = text(spec, "subnet")
        .filter(|subnet| Subnet::parse(subnet).is_none())
        .map(|subnet| {
            // Without a length it would be a valid address or range, but it is not a valid subnet.
            let slash = if parse_entry(subnet).is_ok() { "/" } else { "" };
            format!("{subnet}{slash}")
        });
    range.into_iter().chain(subnet)
}

/// Returns the text of a field; `None` if it is empty.
fn text<'a>(spec: &'a Fields, name: &str) -> Option<&'a str> {
    spec.get(name)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

/// Whether a field is missing, or has the zero value that the Go provider treats as missing.
fn is_unset(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(_) => false,
    }
}

/// A valid network.
struct Subnet {
    family: Family,
    first: u128,
    last: u128,
    length: u8,
}

impl Subnet {
    /// Parses a network in CIDR notation.
    fn parse(text: &str) -> Option<Self> {
        let entry = parse_entry(text).ok().filter(|_| text.contains('/'))?;
        let (first, last) = (entry.span.first(), entry.span.last());
        // The two ends of a network differ in all host bits.
        let host_bits = u8::try_from((first ^ last).count_ones()).ok()?;
        Some(Self {
            family: entry.family,
            first,
            last,
            length: entry.family.bits().saturating_sub(host_bits),
        })
    }

    /// Returns the second and the second to last address; for networks of one or two addresses, the
    /// first and the last.
    fn ends(&self) -> (String, String) {
        let edge = u128::from(self.last.saturating_sub(self.first) > 1);
        let address = |number| self.family.address(number).to_string();
        (
            address(self.first.saturating_add(edge)),
            address(self.last.saturating_sub(edge)),
        )
    }
}
