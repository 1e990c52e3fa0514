use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

/// A field that an object has or has not, or that may not be read. In JSON an absent field is
/// omitted, and an unknown one is `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fact<T> {
    /// There is no value.
    #[default]
    Absent,
    /// The value.
    Known(T),
    /// Whether there is a value is unknown: a permission is missing.
    Unknown,
}

impl<T> Fact<T> {
    /// The value. Without one, it is absent if everything that can contain it was read.
    pub(crate) fn of(value: Option<T>, is_complete: bool) -> Self {
        match value {
            Some(value) => Self::Known(value),
            None if is_complete => Self::Absent,
            None => Self::Unknown,
        }
    }

    /// Whether there is no value.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The value if it is known.
    pub fn known(&self) -> Option<&T> {
        if let Self::Known(value) = self {
            Some(value)
        } else {
            None
        }
    }
}

impl<T: Serialize> Serialize for Fact<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(value) => value.serialize(serializer),
            Self::Absent | Self::Unknown => serializer.serialize_none(),
        }
    }
}

impl<T: JsonSchema> JsonSchema for Fact<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Option::<T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<T>::json_schema(generator)
    }
}

/// A list of what was found; `None` if nothing was found and something may not be read.
pub(crate) fn list<T>(found: Vec<T>, is_complete: bool) -> Option<Vec<T>> {
    if found.is_empty() && !is_complete {
        None
    } else {
        Some(found)
    }
}
