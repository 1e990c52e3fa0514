use std::fmt::Display;

use capi_ipam_objects::namespaced_name::NamespacedName;

use super::PoolKey;

/// Maximum number of pools that a message names.
const MAX_NAMED: usize = 5;

/// The users who can read a message on an object: those of the namespace of the object or, for a
/// cluster-scoped object, those of any namespace. A message must not reveal names of objects in
/// other namespaces; it may reveal their number. Names of global pools are public.
///
/// Conditions, events, and warnings and denials of webhooks refer to other objects only through
/// this type.
///
/// ```
/// use capi_ipam_api::{Audience, InClusterKind, PoolKey};
///
/// let pool = |namespace: &str| PoolKey::new(InClusterKind::IPPool, Some(namespace), "web");
/// let pools = [pool("team-a"), pool("team-b"), pool("team-c")];
/// assert_eq!(Audience::of(Some("team-a")).pools(&pools), "InClusterIPPool team-a/web and 2 pools in other namespaces");
/// assert_eq!(Audience::of(None).pools(&pools), "3 namespaced pools");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audience<'a> {
    namespace: Option<&'a str>,
}

impl<'a> Audience<'a> {
    /// Creates the audience of an object in this namespace; `None` for a cluster-scoped object.
    pub const fn of(namespace: Option<&'a str>) -> Self {
        Self { namespace }
    }

    /// Creates the audience of a pool.
    pub fn of_pool(pool: &'a PoolKey) -> Self {
        Self::of(pool.namespace.as_deref())
    }

    /// Returns whether a message may name an object in this namespace; `None` for a cluster-scoped
    /// object.
    pub fn may_name(self, namespace: Option<&str>) -> bool {
        namespace.is_none() || namespace == self.namespace
    }

    /// Formats pools for a sentence: `InClusterIPPool team-a/web, GlobalInClusterIPPool shared and
    /// 2 pools in other namespaces`. It names at most five pools, in the order of `pools`, and
    /// counts the rest. Returns an empty text if there are no pools.
    pub fn pools<'p>(self, pools: impl IntoIterator<Item = &'p PoolKey>) -> String {
        let (known, others): (Vec<_>, Vec<_>) = pools
            .into_iter()
            .partition(|pool| self.may_name(pool.namespace.as_deref()));
        let mut parts: Vec<String> = known
            .iter()
            .take(MAX_NAMED)
            .map(ToString::to_string)
            .collect();
        let more = known.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            parts.push(format!("{more} more"));
        }
        if !others.is_empty() {
            parts.push(self.count(others.len(), "pool", "pools"));
        }
        join_list(&parts)
    }

    /// Formats an object for a sentence: `IPAddressClaim team-a/web`, or `an IPAddressClaim in
    /// another namespace`.
    pub fn object(self, kind: &str, namespace: &str, name: &str) -> String {
        if self.may_name(Some(namespace)) {
            return format!("{kind} {namespace}/{name}");
        }
        let article = if kind.starts_with(['A', 'E', 'I', 'O']) {
            "an"
        } else {
            "a"
        };
        match self.namespace {
            Some(_) => format!("{article} {kind} in another namespace"),
            None => format!("{article} {kind}"),
        }
    }

    /// Formats claims for a sentence: `claims team-a/vm-0, team-a/vm-1 and 7 more`. `claims` are
    /// the first ones of `total`. Returns an empty text if none of them may be named.
    pub fn claims(self, claims: &[NamespacedName], total: usize) -> String {
        let mut parts: Vec<String> = claims
            .iter()
            .filter(|claim| self.may_name(Some(claim.namespace())))
            .map(ToString::to_string)
            .collect();
        if parts.is_empty() {
            return String::new();
        }
        let more = total.saturating_sub(parts.len());
        if more > 0 {
            parts.push(format!("{more} more"));
        }
        let noun = if total == 1 { "claim" } else { "claims" };
        format!("{noun} {}", join_list(&parts))
    }

    fn count(self, count: usize, one: &str, several: &str) -> String {
        let noun = if count == 1 { one } else { several };
        match (self.namespace, count) {
            (None, _) => format!("{count} namespaced {noun}"),
            (Some(_), 1) => format!("1 {noun} in another namespace"),
            (Some(_), _) => format!("{count} {noun} in other namespaces"),
        }
    }
}

/// A number with its noun: `1 address`, `2 addresses`.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(
    count: N,
    one: &str,
    several: &str,
) -> String {
    let noun = if count == N::from(1) { one } else { several };
    format!("{count} {noun}")
}

/// The maximum number of texts of [`first_texts`].
const MAX_FIRST: usize = 3;

/// The first three texts, and the number of the others: `a; b; c; and 2 more`.
pub fn first_texts<T: ToString>(all: impl IntoIterator<Item = T>, separator: &str) -> String {
    let mut texts: Vec<String> = all.into_iter().map(|text| text.to_string()).collect();
    let others = texts.len().saturating_sub(MAX_FIRST);
    if others > 0 {
        texts.truncate(MAX_FIRST);
        texts.push(format!("and {others} more"));
    }
    texts.join(separator)
}

/// `a`, `a and b`, `a, b and c`.
fn join_list(parts: &[String]) -> String {
    match parts.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InClusterKind;

    fn pool(namespace: &str, name: &str) -> PoolKey {
        let namespace = (!namespace.is_empty()).then_some(namespace);
        let kind = if namespace.is_some() {
            InClusterKind::IPPool
        } else {
            InClusterKind::GlobalIPPool
        };
        PoolKey::new(kind, namespace, name)
    }

    #[test]
    fn pools_of_other_namespaces_are_counted() {
        let text = |audience, pools: &[PoolKey]| Audience::of(audience).pools(pools);
        let (own, other, global) = (pool("a", "x"), pool("b", "secret"), pool("", "g"));
        assert_eq!(text(Some("a"), &[]), "");
        assert_eq!(
            text(Some("a"), std::slice::from_ref(&own)),
            "InClusterIPPool a/x"
        );
        assert_eq!(
            text(Some("a"), std::slice::from_ref(&other)),
            "1 pool in another namespace"
        );
        assert_eq!(
            text(Some("a"), &[own.clone(), global.clone()]),
            "InClusterIPPool a/x and GlobalInClusterIPPool g"
        );
        assert_eq!(
            text(
                Some("a"),
                &[
                    other.clone(),
                    own.clone(),
                    global.clone(),
                    pool("c", "secret")
                ]
            ),
            "InClusterIPPool a/x, GlobalInClusterIPPool g and 2 pools in other namespaces"
        );
        assert_eq!(text(None, std::slice::from_ref(&own)), "1 namespaced pool");
        assert_eq!(
            text(None, &[own, global, other]),
            "GlobalInClusterIPPool g and 2 namespaced pools"
        );
        // A common prefix does not make two namespaces equal.
        assert_eq!(
            text(Some("team"), &[pool("team-a", "x"), pool("", "g")]),
            "GlobalInClusterIPPool g and 1 pool in another namespace"
        );
    }

    #[test]
    fn at_most_five_pools_are_named() {
        let pools: Vec<_> = (0..8)
            .map(|number| pool("a", &format!("p{number}")))
            .chain([pool("b", "secret")])
            .collect();
        assert_eq!(
            Audience::of(Some("a")).pools(&pools),
            "InClusterIPPool a/p0, InClusterIPPool a/p1, InClusterIPPool a/p2, InClusterIPPool a/p3, \
             InClusterIPPool a/p4, 3 more and 1 pool in another namespace"
        );
    }

    #[test]
    fn objects_of_other_namespaces_are_not_named() {
        let text = |audience, kind| Audience::of(audience).object(kind, "a", "x");
        assert_eq!(text(Some("a"), "IPAddress"), "IPAddress a/x");
        assert_eq!(
            text(Some("b"), "IPAddress"),
            "an IPAddress in another namespace"
        );
        assert_eq!(text(None, "Claim"), "a Claim");
    }

    #[test]
    fn claims_of_the_namespace_are_named() {
        let claims = ["x", "y"].map(|name| NamespacedName::new("a", name));
        let own = Audience::of(Some("a"));
        assert_eq!(own.claims(&claims, 9), "claims a/x, a/y and 7 more");
        assert_eq!(own.claims(&claims, 2), "claims a/x and a/y");
        assert_eq!(own.claims(&claims[..1], 1), "claim a/x");
        assert_eq!(own.claims(&[], 3), "");
        assert_eq!(Audience::of(Some("b")).claims(&claims, 2), "");
        assert_eq!(Audience::of(None).claims(&claims, 2), "");
    }

    #[test]
    fn audience_of_a_pool_is_its_namespace() {
        assert_eq!(Audience::of_pool(&pool("a", "x")), Audience::of(Some("a")));
        assert_eq!(Audience::of_pool(&pool("", "g")), Audience::of(None));
        assert!(
            Audience::of(Some("a")).may_name(Some("a")) && Audience::of(Some("a")).may_name(None)
        );
        assert!(
            !Audience::of(Some("a")).may_name(Some("b")) && !Audience::of(None).may_name(Some("a"))
        );
    }
}
