//! What users write on the command line and in files: addresses, claims, and names of pools.

use capi_ipam_api::{InClusterKind, NamedPool, PoolKey, PoolSetKind};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;

use crate::error::Error;
use crate::objects::Kind;

/// Parses an address or a prefix. `is_prefix`: whether only a prefix can be meant.
pub(crate) fn parse_block(text: &str, is_prefix: bool) -> Result<Block, Error> {
    if text.trim().is_empty() {
        let hint = "the address is empty: write an address such as 10.0.0.7, or a prefix such as fd00::/64";
        return Err(Error::Argument(hint.to_owned()));
    }
    capi_ipam_ip::parse_block(text, is_prefix)
        .map_err(|error| Error::Argument(format!("invalid address {text}: {error}")))
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

/// How a user names a pool or a set of pools: `NAME`, `KIND/NAME`, or as the tables print it, `NAMESPACE/NAME`; also
/// `KIND/NAMESPACE/NAME`. A kind is a name, a plural, or the short form of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolText<'a> {
    pub(crate) kind: Option<Kind>,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
}

impl<'a> PoolText<'a> {
    pub(crate) fn parse(text: &'a str) -> Self {
        let (rest, name) = match text.rsplit_once('/') {
            Some((rest, name)) => (Some(rest), name),
            None => (None, text),
        };
        let Some(rest) = rest else {
            return Self {
                kind: None,
                namespace: None,
                name,
            };
        };
        if let Some((kind, namespace)) = rest.split_once('/') {
            return Self {
                kind: named_kind(kind),
                namespace: Some(namespace),
                name,
            };
        }
        let kind = named_kind(rest);
        Self {
            kind,
            namespace: if kind.is_none() { Some(rest) } else { None },
            name,
        }
    }

    /// Whether a pool has this name. Without a namespace the caller has selected those of one.
    pub(crate) fn matches(self, key: &PoolKey) -> bool {
        self.has(Kind::Pool(key.kind), key.namespace.as_deref(), &key.name)
    }

    /// The same for what a claim names.
    pub(crate) fn matches_named(self, named: &NamedPool) -> bool {
        match named {
            NamedPool::Pool(key) => self.matches(key),
            NamedPool::Set(set) => {
                self.has(Kind::PoolSet(set.kind), set.namespace.as_deref(), &set.name)
            }
        }
    }

    fn has(self, kind: Kind, namespace: Option<&str>, name: &str) -> bool {
        let has_kind = self.kind.is_none_or(|wanted| wanted == kind);
        let has_namespace = self.namespace.is_none() || self.namespace == namespace;
        has_kind && has_namespace && self.name == name
    }
}

/// Whether a text is meant as an address or a prefix, rather than as the name of an object.
pub(crate) fn is_address_like(text: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_hexdigit() || ".:/".contains(letter);
    let begins = text.contains(':') || text.starts_with(|first: char| first.is_ascii_digit());
    begins && text.contains(['.', ':', '/']) && text.chars().all(is_part)
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

/// The kind of pools, or of sets of pools, with this name or plural.
fn named_kind(text: &str) -> Option<Kind> {
    let is_set = |kind: &PoolSetKind| {
        let names = [kind.name(), kind.plural()];
        names.iter().any(|name| name.eq_ignore_ascii_case(text))
    };
    let set = || PoolSetKind::ALL.into_iter().find(is_set);
    let pool = kind_of(text).map(Kind::Pool);
    pool.or_else(|| set().map(Kind::PoolSet))
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
    use capi_ipam_api::PoolSetKey;

    use super::*;
    use crate::error::Code;

    #[test]
    fn address_and_prefix_are_parsed() {
        let parsed = |text| parse_block(text, false).unwrap().to_string();
        assert_eq!(parsed("10.0.0.7"), "10.0.0.7");
        assert_eq!(parsed("10.0.0.7/24"), "10.0.0.7");
        assert_eq!(parsed("fd00::/64"), "fd00::/64");
        let error = parse_block("fd00::1/64", true).unwrap_err().to_string();
        assert!(
            error.ends_with("write fd00::1 for the address, or fd00::/64 for the prefix"),
            "{error}"
        );
        for wrong in ["10.0.0", "10.0.0.0/33", "10.0.0.0/x", ""] {
            assert_eq!(
                parse_block(wrong, false).unwrap_err().code(),
                Code::Usage,
                "{wrong}"
            );
        }
    }

    #[test]
    fn empty_address_is_named_as_such() {
        let error = parse_block("", false).unwrap_err().to_string();
        assert!(error.starts_with("the address is empty: write"), "{error}");
    }

    #[test]
    fn misspelt_address_is_not_taken_for_a_name() {
        for address in ["10.0.0.7", "10.0.0", "fd00::/64", "10.0.0.0/24", "::1"] {
            assert!(is_address_like(address), "{address}");
        }
        for name in ["vm-1", "lab/vm-1", "prod", "10", "node.example", "abc.de"] {
            assert!(!is_address_like(name), "{name}");
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
        let matches = |key: &PoolKey, text: &str| PoolText::parse(text).matches(key);
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
        assert!(!matches(&global, "lab/web"), "it has no namespace");
        let web = PoolKey::new(InClusterKind::IPPool, Some("lab"), "web");
        for text in ["web", "lab/web", "ip/lab/web", "IP/web"] {
            assert!(matches(&web, text), "{text}");
        }
        assert!(!matches(&web, "other/web") && !matches(&web, "globalip/web"));
    }

    #[test]
    fn set_is_named_as_a_pool_is() {
        let set = NamedPool::Set(PoolSetKey {
            kind: PoolSetKind::Namespaced,
            namespace: Some("lab".into()),
            name: "racks".into(),
        });
        let matches = |text: &str| PoolText::parse(text).matches_named(&set);
        for text in ["racks", "ippoolsets/racks", "IPPoolSet/racks", "lab/racks"] {
            assert!(matches(text), "{text}");
        }
        for text in ["ip/racks", "globalippoolset/racks", "other/racks", "lab"] {
            assert!(!matches(text), "{text}");
        }
    }
}
