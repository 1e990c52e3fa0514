//! The spec of a pool: what `v1alpha2` makes of the fields of `v1alpha1`.
//!
//! Works on plain JSON and never fails. What cannot be understood is carried over as it is, or as an entry of the
//! addresses that nothing can read, so that the validation of `v1alpha2` names it.

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

/// The fields of `spec` that both versions have.
pub(super) fn shared(spec: &Fields) -> Fields {
    let fields = spec.iter().filter(|(name, _)| is_shared(name));
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// As [`shared`], with those that `v1alpha2` requires also when `spec` lacks them.
pub(super) fn complete(spec: &Fields) -> Fields {
    let mut fields = shared(spec);
    for (name, empty) in [("addresses", Value::Array(Vec::new())), ("prefix", Value::from(0))] {
        if fields.get(name).is_none_or(Value::is_null) {
            fields.insert(name.to_owned(), empty);
        }
    }
    fields
}

/// The `v1alpha1` spec, with what follows from its subnet written out: `start`, `end` and `prefix`.
///
/// The Go provider writes them out too, and keeps the spec in this form.
pub(super) fn filled(spec: &Fields) -> Fields {
    let mut spec = spec.clone();
    if let Some(subnet) = text(&spec, "subnet").and_then(Subnet::read) {
        let (start, end) = subnet.ends();
        let all = [("start", Value::from(start)), ("end", Value::from(end)), ("prefix", Value::from(subnet.length))];
        for (name, value) in all {
            if says_nothing(spec.get(name)) {
                spec.insert(name.to_owned(), value);
            }
        }
    }
    spec
}

/// The fields of `v1alpha2` that follow from a `v1alpha1` spec; always with those that `v1alpha2` requires.
pub(super) fn converted(spec: &Fields) -> Fields {
    let spec = filled(spec);
    let mut fields = complete(&spec);
    if let Some(Value::Array(addresses)) = fields.get_mut("addresses") {
        addresses.extend(further_entries(&spec).map(Value::from));
    }
    fields
}

/// The entries that `subnet`, `start` and `end` add to the addresses. `spec` is filled.
fn further_entries(spec: &Fields) -> impl Iterator<Item = String> {
    // With one end only there is no way to read it, and validation says so.
    let range = match (text(spec, "start"), text(spec, "end")) {
        (None, None) => None,
        (start, end) => Some(format!("{}-{}", start.unwrap_or_default(), end.unwrap_or_default())),
    };
    let subnet = text(spec, "subnet").filter(|subnet| Subnet::read(subnet).is_none()).map(|subnet| {
        // A subnet without a length could be taken for a single address or a range, which it is not.
        let slash = if parse_entry(subnet).is_ok() { "/" } else { "" };
        format!("{subnet}{slash}")
    });
    range.into_iter().chain(subnet)
}

/// The text of a field, unless it is empty.
fn text<'a>(spec: &'a Fields, name: &str) -> Option<&'a str> {
    spec.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Whether a field is missing, or has the value that the Go provider takes for missing.
fn says_nothing(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(_) => false,
    }
}

/// A network that could be read.
struct Subnet {
    family: Family,
    first: u128,
    last: u128,
    length: u8,
}

impl Subnet {
    /// Reads a network in CIDR notation.
    fn read(text: &str) -> Option<Subnet> {
        let entry = parse_entry(text).ok().filter(|_| text.contains('/'))?;
        let (first, last) = (entry.span.first(), entry.span.last());
        // The two ends differ in the host bits, in all of them.
        let host_bits = u8::try_from((first ^ last).count_ones()).ok()?;
        Some(Subnet { family: entry.family, first, last, length: entry.family.bits().saturating_sub(host_bits) })
    }

    /// The second and the last but one address. Where there is nothing between the first and the last one, those two.
    fn ends(&self) -> (String, String) {
        let edge = u128::from(self.last.saturating_sub(self.first) > 1);
        let address = |number| self.family.address(number).to_string();
        (address(self.first.saturating_add(edge)), address(self.last.saturating_sub(edge)))
    }
}
