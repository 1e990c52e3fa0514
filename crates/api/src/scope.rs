use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use capi_ipam_ip::Block;
use sha2::{Digest, Sha256};

use super::{InClusterKind, PoolKey};

/// Maximum length of the name of an object (RFC 1123 subdomain).
const MAX_NAME_LENGTH: usize = 253;

/// The set within which an address is unique. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// A pool without a network.
    Pool(PoolKey),
    /// All pools of this network.
    Network(Arc<str>),
}

impl Scope {
    /// Returns the scope of a pool with or without a network.
    pub fn of(pool: &PoolKey, network: Option<&str>) -> Self {
        network.map_or_else(
            || Self::Pool(pool.clone()),
            |network| Self::Network(network.into()),
        )
    }

    /// Parses the scope in a reservation for an address of `pool`; `None` if it is not a possible
    /// scope of the pool.
    pub fn parse(name: &str, pool: &PoolKey) -> Option<Self> {
        if let Some(network) = name.strip_prefix("n.") {
            return (!network.is_empty()).then(|| Self::Network(network.into()));
        }
        Some(Self::Pool(pool.clone())).filter(|scope| scope.name() == name)
    }

    /// The network; `None` if the scope is a pool.
    pub fn network(&self) -> Option<&str> {
        if let Self::Network(name) = self {
            Some(name)
        } else {
            None
        }
    }

    /// The name of the scope: `p.NAMESPACE.POOL` for an InClusterIPPool, `g.POOL` for a
    /// GlobalInClusterIPPool, `pp.NAMESPACE.POOL` and `gp.POOL` for pools of prefixes, `n.NETWORK`
    /// for a network. Names are unique, since a namespace contains no dots.
    pub fn name(&self) -> String {
        match self {
            Self::Network(network) => format!("n.{network}"),
            Self::Pool(pool) => {
                let (namespace, name) = (pool.namespace.as_deref().unwrap_or_default(), &pool.name);
                match pool.kind {
                    InClusterKind::IPPool => format!("p.{namespace}.{name}"),
                    InClusterKind::GlobalIPPool => format!("g.{name}"),
                    InClusterKind::PrefixPool => format!("pp.{namespace}.{name}"),
                    InClusterKind::GlobalPrefixPool => format!("gp.{name}"),
                }
            }
        }
    }
}

/// Returns the name of the reservation of an address or prefix: the scope, a dot and the address.
/// An IPv6 address is written with all its digits and with dashes. A prefix ends with its length. A
/// scope that is too long is replaced by `h.` and its SHA-256 hash.
///
/// ```
/// use capi_ipam_ip::Block;
/// use capi_ipam_api::{InClusterKind, PoolKey, Scope, reservation_name};
///
/// let pool = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "web");
/// let address = Block::address("10.0.0.5".parse().unwrap());
/// assert_eq!(reservation_name(&Scope::Pool(pool), address), "p.team-a.web.10.0.0.5");
/// let prefix = Block::new("fd00::".parse().unwrap(), 64);
/// assert_eq!(
///     reservation_name(&Scope::Network("lab".into()), prefix),
///     "n.lab.fd00-0000-0000-0000-0000-0000-0000-0000-64"
/// );
/// ```
pub fn reservation_name(scope: &Scope, block: Block) -> String {
    let mut text = address_in_name(block.base());
    if !block.is_address() {
        text = format!("{text}-{}", block.length());
    }
    let scope = scope.name();
    let name = format!("{scope}.{text}");
    if name.len() <= MAX_NAME_LENGTH {
        return name;
    }
    format!("h.{:x}.{text}", Sha256::digest(scope))
}

/// An address as a part of the name of an object: an IPv6 address is written with all its digits
/// and with dashes.
pub fn address_in_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address
            .segments()
            .map(|segment| format!("{segment:04x}"))
            .join("-"),
    }
}

/// The block that an object of this name reserves in a scope: the reverse of [`reservation_name`].
/// `None` if the name is not that of a reservation of the scope.
///
/// The name alone reserves the block, whatever the object contains: no other reservation of it can
/// be created.
pub fn block_of_name(scope: &Scope, name: &str) -> Option<Block> {
    let (_, block) = split_block_name(name)?;
    (reservation_name(scope, block) == name).then_some(block)
}

/// The slot that an object of this name reserves. `None` if it is not the name of a reservation, or
/// if it contains the hash of its scope: [`block_of_name`] recognizes it.
pub fn slot_of_name(name: &str) -> Option<Slot> {
    let (scope, block) = split_block_name(name)?;
    let scope = match scope.strip_prefix("n.") {
        Some(network) => Scope::Network(network.into()),
        None => Scope::Pool(PoolKey::of_scope(scope)?),
    };
    let slot = Slot { scope, block };
    (slot.reservation_name() == name).then_some(slot)
}

/// Splits a name that ends with a dot, an address (see [`address_in_name`]) and the length of a
/// block, if it has one, into what comes before and the block. Other notations of the block are
/// accepted: compare the name with the one that the result has.
pub fn split_block_name(name: &str) -> Option<(&str, Block)> {
    let (scope, last) = name.rsplit_once('.')?;
    let mut groups = last.split('-');
    let segments: Option<Vec<u16>> = groups
        .by_ref()
        .take(8)
        .map(|group| u16::from_str_radix(group, 16).ok())
        .collect();
    let segments: Option<[u16; 8]> = segments.and_then(|segments| segments.try_into().ok());
    if let Some(segments) = segments {
        return Some((scope, block_with_length(segments.into(), groups.next())?));
    }
    // The four numbers of an IPv4 address contain three dots.
    let (start, _) = name.rmatch_indices('.').nth(3)?;
    let (scope, text) = (name.get(..start)?, name.get(start.checked_add(1)?..)?);
    let (address, length) = match text.split_once('-') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: Ipv4Addr = address.parse().ok()?;
    Some((scope, block_with_length(address.into(), length)?))
}

/// The block of an address and the text of its length; a single address without a length.
fn block_with_length(base: IpAddr, length: Option<&str>) -> Option<Block> {
    match length {
        Some(length) => Some(Block::new(base, length.parse().ok()?)),
        None => Some(Block::address(base)),
    }
}

/// An address or prefix of a scope: what a reservation reserves. Displayed as `10.0.0.5 of
/// InClusterIPPool a/b`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// The scope within which the block is unique.
    pub scope: Scope,
    /// The address or prefix.
    pub block: Block,
}

impl Slot {
    /// The name of the reservation of this slot.
    pub fn reservation_name(&self) -> String {
        reservation_name(&self.scope, self.block)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(pool) => pool.fmt(formatter),
            Self::Network(network) => write!(formatter, "network {network}"),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {}", self.block, self.scope)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn pool(kind: InClusterKind, namespace: &str, name: &str) -> Scope {
        let namespace = (!kind.is_global()).then_some(namespace);
        Scope::Pool(PoolKey::new(kind, namespace, name))
    }

    #[test]
    fn reservation_names_are_unique() {
        let long = "x".repeat(240);
        let mut scopes: Vec<Scope> = ["a", "a.b", "b"]
            .map(|name| Scope::Network(name.into()))
            .into();
        for kind in InClusterKind::ALL {
            let names = ["b", "b.10.0.0", "a.b", &long, &format!("{long}y")].map(str::to_owned);
            scopes.extend(names.iter().map(|name| pool(kind, "a", name)));
        }
        let blocks = ["10.0.0.5", "5.10.0.0", "fd00::5", "::5", "255.255.255.255"]
            .into_iter()
            .flat_map(|text| {
                [
                    Block::address(text.parse().unwrap()),
                    Block::new(text.parse().unwrap(), 24),
                ]
            });
        let blocks: Vec<Block> = blocks
            .chain([Block::new("fd00::".parse().unwrap(), 127)])
            .collect();
        let mut names = HashSet::new();
        for scope in &scopes {
            for block in &blocks {
                let name = reservation_name(scope, *block);
                assert!(name.len() <= MAX_NAME_LENGTH);
                assert!(names.insert(name.clone()), "{name} twice");
                assert_eq!(block_of_name(scope, &name), Some(*block), "{name}");
                let is_hashed = name.starts_with("h.");
                let slot = Slot {
                    scope: scope.clone(),
                    block: *block,
                };
                assert_eq!(slot_of_name(&name), (!is_hashed).then_some(slot), "{name}");
            }
        }
    }

    #[test]
    fn other_names_reserve_nothing() {
        let network = Scope::Network("a".into());
        for name in [
            "",
            "n.a",
            "n.a.ipv4",
            "n.a.10.0.0",
            "n.a.10.0.0.05",
            "n.a.10.0.0.5-33",
            "n.a.10.0.0.5-24",
            "n.a.10.0.0.5-32",
            "n.a.fd00-0-0-0-0-0-0-5",
            "n.a.FD00-0000-0000-0000-0000-0000-0000-0005",
            "n.a.fd00-0000-0000-0000-0000-0000-0000-0005-64",
            "x.a.10.0.0.5",
            "p.a.10.0.0.5",
        ] {
            assert_eq!(
                (block_of_name(&network, name), slot_of_name(name)),
                (None, None),
                "{name}"
            );
        }
        assert_eq!(
            block_of_name(&network, "n.b.10.0.0.5"),
            None,
            "another scope"
        );
    }

    #[test]
    fn scope_names_round_trip() {
        let key = PoolKey::new(InClusterKind::IPPool, Some("a"), "b");
        for scope in [Scope::Pool(key.clone()), Scope::Network("lab".into())] {
            assert_eq!(Scope::parse(&scope.name(), &key), Some(scope));
        }
        for wrong in ["p.a.c", "g.b", "n.", "", "pp.a.b"] {
            assert_eq!(Scope::parse(wrong, &key), None, "{wrong}");
        }
    }
}
