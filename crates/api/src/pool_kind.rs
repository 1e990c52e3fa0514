use std::borrow::Cow;
use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The kinds of pools of this provider. The dynamic type of [`Pool`](super::Pool).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InClusterKind {
    /// A pool of single addresses for the claims of its namespace.
    IPPool,
    /// A pool of single addresses for the claims of all namespaces.
    GlobalIPPool,
    /// A pool of prefixes for the claims of its namespace.
    PrefixPool,
    /// A pool of prefixes for the claims of all namespaces.
    GlobalPrefixPool,
}

impl InClusterKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [
        Self::IPPool,
        Self::GlobalIPPool,
        Self::PrefixPool,
        Self::GlobalPrefixPool,
    ];

    /// Returns the kind with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name, as in `kind: InClusterIPPool`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IPPool => "InClusterIPPool",
            Self::GlobalIPPool => "GlobalInClusterIPPool",
            Self::PrefixPool => "InClusterPrefixPool",
            Self::GlobalPrefixPool => "GlobalInClusterPrefixPool",
        }
    }

    /// The plural name, as in API paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::IPPool => "inclusterippools",
            Self::GlobalIPPool => "globalinclusterippools",
            Self::PrefixPool => "inclusterprefixpools",
            Self::GlobalPrefixPool => "globalinclusterprefixpools",
        }
    }

    /// Whether the kind is cluster-scoped.
    pub const fn is_global(self) -> bool {
        matches!(self, Self::GlobalIPPool | Self::GlobalPrefixPool)
    }

    /// Whether the pools allocate prefixes, not single addresses.
    pub const fn has_prefixes(self) -> bool {
        matches!(self, Self::PrefixPool | Self::GlobalPrefixPool)
    }
}

impl fmt::Display for InClusterKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl Serialize for InClusterKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for InClusterKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        Self::of(&name).ok_or_else(|| {
            D::Error::custom(format_args!(
                "{name} is not a kind of pool of this provider"
            ))
        })
    }
}
