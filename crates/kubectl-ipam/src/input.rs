//! What users write on the command line and in files: addresses, claims, and names of pools.

use capi_ipam_api::{InClusterKind, PoolKey};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, parse_address};

use crate::error::Error;

/// Parses an address or a prefix.
pub(crate) fn parse_block(text: &str) -> Result<Block, Error> {
    let invalid = |reason: String| Error::Argument(format!("invalid address {text}: {reason}"));
    let Some((address, length)) = text.split_once('/') else {
        let address = parse_address(text).map_err(|error| invalid(error.to_string()))?;
        return Ok(Block::address(address));
    };
    let address = parse_address(address).map_err(|error| invalid(error.to_string()))?;
    let wrong =
        || invalid("the prefix length must be a number up to 32 (IPv4) or 128 (IPv6)".to_owned());
    let length = length.parse().map_err(|_| wrong())?;
    let block = Block::new(address, length);
    // A block shortens a length that its family does not have.
    if block.length() == length {
        Ok(block)
    } else {
        Err(wrong())
    }
}

/// Parses `NAMESPACE/NAME` or `NAME`.
pub(crate) fn parse_claim(text: &str, namespace: &str) -> Result<NamespacedName, Error> {
    let (namespace, name) = text.split_once('/').unwrap_or((namespace, text));
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err(Error::Argument(format!(
            "invalid claim {text}: write NAMESPACE/NAME or NAME"
        )));
    }
    Ok(NamespacedName::new(namespace, name))
}

/// Whether a pool has the name `NAME` or `KIND/NAME`. The kind is a name, a plural, or the short
/// form of the tables.
pub(crate) fn matches(key: &PoolKey, text: &str) -> bool {
    match text.split_once('/') {
        Some((kind, name)) => key.name.as_ref() == name && is_kind(key.kind, kind),
        None => key.name.as_ref() == text,
    }
}

/// Whether a text is the name, the plural or the short form of a kind.
fn is_kind(kind: InClusterKind, text: &str) -> bool {
    [kind.name(), kind.plural(), short(kind)]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(text))
}

/// The kind with this name, plural or short form.
pub(crate) fn kind_of(text: &str) -> Option<InClusterKind> {
    InClusterKind::ALL
        .into_iter()
        .find(|kind| is_kind(*kind, text))
}

/// The short form of a kind in tables.
pub(crate) const fn short(kind: InClusterKind) -> &'static str {
    match kind {
        InClusterKind::IPPool => "IP",
        InClusterKind::GlobalIPPool => "GlobalIP",
        InClusterKind::PrefixPool => "Prefix",
        InClusterKind::GlobalPrefixPool => "GlobalPrefix",
    }
}

/// The command that shows a pool.
pub(crate) fn show_command(pool: &PoolKey) -> String {
    let namespace = match &pool.namespace {
        Some(name) => format!(" --namespace {name}"),
        None => String::new(),
    };
    format!(
        "kubectl ipam show {}/{}{namespace}",
        short(pool.kind),
        pool.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn address_and_prefix_are_parsed() {
        assert_eq!(parse_block("10.0.0.7").unwrap().to_string(), "10.0.0.7");
        assert_eq!(parse_block("fd00::1/64").unwrap().to_string(), "fd00::/64");
        for wrong in ["10.0.0", "10.0.0.0/33", "10.0.0.0/x", ""] {
            assert_eq!(
                parse_block(wrong).unwrap_err().code(),
                Code::Usage,
                "{wrong}"
            );
        }
    }

    #[test]
    fn claim_has_a_namespace_and_a_name() {
        assert_eq!(parse_claim("b/vm", "a").unwrap().to_string(), "b/vm");
        for wrong in ["", "/vm", "a/", "a/b/c"] {
            assert!(parse_claim(wrong, "a").is_err(), "{wrong}");
        }
    }

    #[test]
    fn pool_has_a_name_or_a_kind_and_a_name() {
        let global = PoolKey::new(InClusterKind::GlobalIPPool, None, "web");
        for text in [
            "web",
            "globalip/web",
            "GlobalInClusterIPPool/web",
            "globalinclusterippools/web",
        ] {
            assert!(matches(&global, text), "{text}");
        }
        assert!(!matches(&global, "ip/web") && !matches(&global, "other"));
    }
}
