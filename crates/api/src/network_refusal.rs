//! Why a pool must not allocate because of a network.

use std::fmt;
use std::sync::Arc;

/// Why a pool must not allocate addresses. It keeps the scope that it has, and nothing of it is
/// moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkRefusal {
    /// The network that the pool names does not exist.
    NotFound(Arc<str>),
    /// The network to which the pool belongs, and which it does not name, does not exist.
    Lost(Arc<str>),
    /// The network does not allow the namespace of the pool.
    NotAllowed(Arc<str>),
    /// The specification of the network is not valid.
    Invalid(Arc<str>),
    /// The network is being deleted.
    Deleting(Arc<str>),
    /// Several networks select the pool, which names none of them.
    Ambiguous(Arc<str>, Arc<str>),
    /// The pools of the network allocate blocks of another length.
    LengthMismatch {
        /// The network.
        network: Arc<str>,
        /// The length of the blocks of the network.
        theirs: u8,
        /// The length of the blocks of the pool.
        ours: u8,
    },
    /// The API server removes fields that decide on networks: what is wrong with a served
    /// definition.
    DefinitionOutdated(Arc<str>),
}

impl NetworkRefusal {
    /// Whether the pool is refused because of this network.
    pub fn concerns(&self, name: &str) -> bool {
        match self {
            Self::NotFound(network)
            | Self::Lost(network)
            | Self::NotAllowed(network)
            | Self::Invalid(network)
            | Self::Deleting(network)
            | Self::LengthMismatch { network, .. } => **network == *name,
            Self::Ambiguous(one, other) => **one == *name || **other == *name,
            Self::DefinitionOutdated(_) => false,
        }
    }

    /// Whether claims that hold an address of the pool can still be bound.
    pub fn keeps_members(&self) -> bool {
        matches!(self, Self::Deleting(_))
    }

    /// Whether only the pool is refused, and other pools use the network: if nothing of the pool is
    /// in the network, the network need not wait for the pool.
    pub fn is_of_the_pool(&self) -> bool {
        matches!(self, Self::NotAllowed(_) | Self::LengthMismatch { .. })
    }
}

impl fmt::Display for NetworkRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(network) => {
                write!(
                    formatter,
                    "IPNetwork {network} does not exist; create it, or correct spec.network"
                )
            }
            Self::Lost(network) => write!(
                formatter,
                "IPNetwork {network}, to which the pool belongs, does not exist; create it again, with spec.pools \
                 matching the pool or not, or name another network in spec.network of the pool"
            ),
            Self::NotAllowed(network) => {
                write!(
                    formatter,
                    "IPNetwork {network} does not allow pools of this namespace (spec.namespaces)"
                )
            }
            Self::DefinitionOutdated(problem) => formatter.write_str(problem),
            Self::Invalid(network) => {
                write!(
                    formatter,
                    "the specification of IPNetwork {network} is not valid; correct the network"
                )
            }
            Self::Deleting(network) => write!(
                formatter,
                "IPNetwork {network} is being deleted; the pool leaves it when neither spec.network of the pool names \
                 it nor spec.pools of the network matches the pool"
            ),
            Self::Ambiguous(one, other) => write!(
                formatter,
                "the IPNetworks {one} and {other} both select the pool; name one of them in spec.network"
            ),
            Self::LengthMismatch {
                network,
                theirs,
                ours,
            } => write!(
                formatter,
                "the pools of IPNetwork {network} allocate blocks of length {theirs}, this pool allocates length {ours}; \
                 name another network in spec.network, or change the labels of the pool"
            ),
        }
    }
}
