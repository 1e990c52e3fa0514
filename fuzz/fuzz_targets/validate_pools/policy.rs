//! The fields of a pool that do not change which addresses it has.

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use serde_json::{Value, json};

const ORDERS: [&str; 3] = ["LowestFirst", "RoundRobin", "Random"];
const OWNERS: [&str; 3] = ["Cluster", "Namespace", "Label"];
/// A text, and whether it is valid.
type Text = (&'static str, bool);

/// Names of labels that users may set.
const LABELS: [Text; 6] = [
    ("topology/rack", true),
    ("rack", true),
    ("-rack", false),
    ("a/b/c", false),
    ("", false),
    ("example.com/x_y.z", true),
];
/// Values of labels.
const VALUES: [Text; 5] = [
    ("", true),
    ("120", true),
    ("a.b_c-D", true),
    ("a b", false),
    ("a.", false),
];
const MIN_TERMINATING_SECONDS: i32 = 60;
const MAX_SLICE: u128 = 1 << 20;

#[derive(Arbitrary, Debug)]
pub struct Policy {
    order: Option<u8>,
    sticky: Option<bool>,
    requests: Option<bool>,
    pub slices: Option<Slices>,
    terminating: Option<i32>,
    verify: Option<bool>,
    label: Option<(u8, u8)>,
}

#[derive(Arbitrary, Debug)]
pub struct Slices {
    size: Size,
    per: u8,
    label: Option<u8>,
    most_each: Option<i16>,
    keep_seconds: Option<i16>,
}

#[derive(Arbitrary, Debug)]
enum Size {
    PowerOfTwo(u8),
    Any(i32),
}

impl Slices {
    pub fn size(&self) -> i64 {
        match self.size {
            Size::PowerOfTwo(exponent) => 1 << (exponent % 24),
            Size::Any(size) => size.into(),
        }
    }

    fn per(&self) -> &'static str {
        OWNERS[usize::from(self.per) % OWNERS.len()]
    }

    /// Whether a pool that lists `total` blocks of `length` bits can have these slices.
    fn is_valid(&self, total: u128, length: u8) -> bool {
        let size = u128::try_from(self.size())
            .ok()
            .filter(|size| size.is_power_of_two() && *size <= MAX_SLICE);
        let label = self
            .label
            .map(|index| LABELS[usize::from(index) % LABELS.len()].1);
        let has_valid_label = if self.per() == "Label" {
            label == Some(true)
        } else {
            label.is_none()
        };
        has_valid_label
            && size.is_some_and(|size| {
                size <= total && size <= 1_u128.checked_shl(length.into()).unwrap_or(u128::MAX)
            })
            && self.most_each.is_none_or(|most| most >= 1)
            && self.keep_seconds.is_none_or(|seconds| seconds >= 0)
    }
}

impl Policy {
    /// Sets the fields in a spec.
    pub fn add_to(&self, spec: &mut Value) {
        let order = self
            .order
            .map(|index| ORDERS[usize::from(index) % ORDERS.len()]);
        spec["allocation"] =
            json!({"order": order, "sticky": self.sticky, "requests": self.requests});
        if let Some(slices) = &self.slices {
            let label = slices
                .label
                .map(|index| LABELS[usize::from(index) % LABELS.len()].0);
            spec["slices"] = json!({"size": slices.size(), "per": slices.per(), "label": label,
                                    "mostEach": slices.most_each, "keepSeconds": slices.keep_seconds});
        }
        if let Some(seconds) = self.terminating {
            spec["reclaim"]["terminating"] = json!({"afterSeconds": seconds});
        }
        if let Some(verify) = self.verify {
            spec["reclaim"]["verify"] = json!(if verify { "Report" } else { "None" });
        }
        if let Some((key, value)) = self.label() {
            spec["addressMetadata"] = json!({"labels": {key.0: value.0}});
        }
    }

    fn label(&self) -> Option<(Text, Text)> {
        let (key, value) = self.label?;
        Some((
            LABELS[usize::from(key) % LABELS.len()],
            VALUES[usize::from(value) % VALUES.len()],
        ))
    }

    /// Whether a pool that lists `total` blocks of `length` bits can have this policy.
    pub fn is_valid(&self, total: u128, length: u8) -> bool {
        self.slices
            .as_ref()
            .is_none_or(|slices| slices.is_valid(total, length))
            && self
                .terminating
                .is_none_or(|seconds| seconds >= MIN_TERMINATING_SECONDS)
            && self.label().is_none_or(|(key, value)| key.1 && value.1)
    }
}
