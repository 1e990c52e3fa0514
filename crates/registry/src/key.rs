//! The names of records.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use capi_ipam_api::{address_in_name, is_dns_subdomain, split_block_name};
use capi_ipam_ip::Block;

/// The name of the record of the registry.
const REGISTRY: &str = "registry";

/// What a record is about. Its text form is the name of the record: the key in a NATS bucket, and
/// the name of an [`IPBlock`](capi_ipam_api::IPBlock).
///
/// ```
/// use capi_ipam_registry::Key;
///
/// let key = Key::parse("block.backbone.10.8.0.64-26").unwrap();
/// assert!(matches!(&key, Key::Block { network, .. } if &**network == "backbone"));
/// assert_eq!(key.to_string(), "block.backbone.10.8.0.64-26");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A block of a network, such as `block.backbone.10.8.0.64-26`.
    Block {
        /// The name of the network, a DNS subdomain.
        network: Box<str>,
        /// The block.
        block: Block,
    },
    /// A management cluster, such as `cluster.west-1`.
    Cluster {
        /// Its id, a DNS subdomain.
        id: Box<str>,
    },
    /// The registry: `registry`.
    Registry,
    /// A network, such as `network.backbone`.
    Network {
        /// Its name, a DNS subdomain.
        name: Box<str>,
    },
}

impl Key {
    /// The key that is before those of all blocks of a network.
    pub(crate) fn first_block(network: &str) -> Self {
        Self::Block {
            network: network.into(),
            block: Block::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        }
    }

    /// Parses the name of a record, the inverse of [`ToString`]. `None` for any other text.
    pub fn parse(name: &str) -> Option<Self> {
        if name == REGISTRY {
            return Some(Self::Registry);
        }
        let (kind, rest) = name.split_once('.')?;
        let key = match kind {
            "block" => {
                let (network, block) = parse_block(rest)?;
                Self::Block { network, block }
            }
            "cluster" => Self::Cluster {
                id: parse_name(rest)?,
            },
            "network" => Self::Network {
                name: parse_name(rest)?,
            },
            _ => return None,
        };
        // A block can be written in other ways, such as with host bits.
        (key.to_string() == name).then_some(key)
    }
}

fn parse_name(text: &str) -> Option<Box<str>> {
    is_dns_subdomain(text).then(|| text.into())
}

fn parse_block(text: &str) -> Option<(Box<str>, Block)> {
    let (network, block) = split_block_name(text)?;
    Some((parse_name(network)?, block))
}

/// A block as the end of a name, always with its length.
fn block_in_name(block: Block) -> String {
    format!("{}-{}", address_in_name(block.base()), block.length())
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block { network, block } => {
                write!(formatter, "block.{network}.{}", block_in_name(*block))
            }
            Self::Cluster { id } => write!(formatter, "cluster.{id}"),
            Self::Network { name } => write!(formatter, "network.{name}"),
            Self::Registry => formatter.write_str(REGISTRY),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_have_these_names() {
        let block = |network: &str, address: &str, length| Key::Block {
            network: network.into(),
            block: Block::new(address.parse().unwrap(), length),
        };
        let cases = [
            (block("lab", "10.8.0.64", 26), "block.lab.10.8.0.64-26"),
            (
                block("a.10.0.0", "10.0.0.0", 8),
                "block.a.10.0.0.10.0.0.0-8",
            ),
            (
                block("lab", "fd00::", 64),
                "block.lab.fd00-0000-0000-0000-0000-0000-0000-0000-64",
            ),
            (block("lab", "10.0.0.7", 32), "block.lab.10.0.0.7-32"),
        ];
        for (key, name) in cases {
            assert_eq!(key.to_string(), name);
            assert_eq!(Key::parse(name), Some(key));
        }
    }

    #[test]
    fn other_text_is_no_key() {
        for name in [
            "",
            "block",
            "block.",
            "block.lab",
            "block.lab.10.8.0.64",
            "block.lab.10.8.0.65-26",
            "block.lab.10.8.0.064-26",
            "block.lab.10.8.0.64-33",
            "block.10.8.0.64-26",
            "block..10.8.0.64-26",
            "block.Lab.10.8.0.64-26",
            "block.lab.FD00-0000-0000-0000-0000-0000-0000-0000-64",
            "block.lab.fd00-0-0-0-0-0-0-0-64",
            "Block.lab.10.8.0.64-26",
            "cluster.",
            "cluster.West",
            "cluster.a..b",
            "network.-",
            "other.lab",
        ] {
            assert_eq!(Key::parse(name), None, "{name}");
        }
    }

    fn names() -> impl Strategy<Value = Box<str>> {
        proptest::collection::vec("[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?", 1..6)
            .prop_map(|parts| parts.join(".").into())
    }

    fn blocks() -> impl Strategy<Value = Block> {
        (any::<IpAddr>(), 0..=128_u8).prop_map(|(address, length)| Block::new(address, length))
    }

    fn keys() -> impl Strategy<Value = Key> {
        prop_oneof![
            (names(), blocks()).prop_map(|(network, block)| Key::Block { network, block }),
            names().prop_map(|id| Key::Cluster { id }),
            names().prop_map(|name| Key::Network { name }),
        ]
    }

    proptest! {
        #[test]
        fn keys_round_trip(key in keys()) {
            prop_assert_eq!(Key::parse(&key.to_string()), Some(key));
        }

        #[test]
        fn parsed_names_round_trip(name in "(block|cluster|network)[.a-f0-9-]{0,60}") {
            if let Some(key) = Key::parse(&name) {
                prop_assert_eq!(key.to_string(), name);
            }
        }
    }
}
