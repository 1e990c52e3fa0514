//! The resourceVersion of an object.

use std::fmt;
use std::num::NonZeroU64;

use kube::core::ObjectMeta;

/// A resourceVersion as a number, which grows with every write to etcd, of whichever object. It
/// decreases only when etcd is restored to an earlier state.
///
/// The API server assigns decimal numbers. A version that is none is unknown: it has no order, and
/// no value of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(NonZeroU64);

impl ResourceVersion {
    /// A version that no object has: that of a write before all others. A write with it as
    /// precondition fails.
    pub const OLDEST: Self = Self(NonZeroU64::MIN);

    /// Parses a decimal number without leading zeros. It is displayed as the same text. Returns
    /// `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let starts_with_digit = text.starts_with(|first: char| ('1'..='9').contains(&first));
        text.parse().ok().filter(|_| starts_with_digit).map(Self)
    }

    /// The version of an object; `None` if it has none, or one that is not a number.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Self::parse(metadata.resource_version.as_deref()?)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_decimal_numbers_are_versions() {
        let max = u64::MAX.to_string();
        for text in ["1", "9", "10", "123456789", max.as_str()] {
            assert_eq!(
                ResourceVersion::parse(text)
                    .map(|version| version.to_string())
                    .as_deref(),
                Some(text)
            );
        }
        for text in [
            "",
            "0",
            "01",
            "+1",
            "-1",
            " 1",
            "1a",
            "18446744073709551616",
        ] {
            assert_eq!(ResourceVersion::parse(text), None, "{text}");
        }
        assert!(ResourceVersion::parse("9") < ResourceVersion::parse("10"));
    }
}
