use super::PoolKey;

/// How many pools a text names at most.
const MAX_NAMED: usize = 5;

/// Who may read a text about an object: the users of the object's namespace, or, for an object without a namespace,
/// the users of any namespace. Names of objects in other namespaces are not for them; counts are. Global pools have no
/// namespace, and everybody may know their names.
///
/// Messages of conditions and events, and the warnings and refusals of webhooks, name objects through this only.
///
/// ```
/// use capi_ipam::api::{Audience, InClusterKind, PoolKey};
///
/// let pool = |namespace: &str| PoolKey {
///     kind: InClusterKind::IPPool,
///     namespace: Some(namespace.into()),
///     name: "web".into(),
/// };
/// let pools = [pool("team-a"), pool("team-b"), pool("team-c")];
/// assert_eq!(Audience::of(Some("team-a")).pools(&pools), "InClusterIPPool team-a/web and 2 pools in other namespaces");
/// assert_eq!(Audience::of(None).pools(&pools), "3 namespaced pools");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audience<'a> {
    namespace: Option<&'a str>,
}

impl<'a> Audience<'a> {
    /// The readers of an object of that namespace; `None` for an object without one.
    pub const fn of(namespace: Option<&'a str>) -> Self {
        Self { namespace }
    }

    /// The readers of a pool.
    pub fn of_pool(pool: &'a PoolKey) -> Self {
        Self::of(pool.namespace.as_deref())
    }

    /// Whether a text for this audience may name an object of that namespace; `None` for an object without one.
    pub fn may_name(self, namespace: Option<&str>) -> bool {
        namespace.is_none() || namespace == self.namespace
    }

    /// The pools as a part of a sentence: `InClusterIPPool team-a/web, GlobalInClusterIPPool shared and 2 pools in
    /// other namespaces`. It names five pools at most, in the order of `pools`, and counts the rest. Empty when there
    /// are no pools.
    pub fn pools<'p>(self, pools: impl IntoIterator<Item = &'p PoolKey>) -> String {
        let (known, others): (Vec<_>, Vec<_>) =
            pools.into_iter().partition(|pool| self.may_name(pool.namespace.as_deref()));
        let mut parts: Vec<String> = known.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        let more = known.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            parts.push(format!("{more} more"));
        }
        if !others.is_empty() {
            parts.push(self.count(others.len(), "pool", "pools"));
        }
        enumerated(&parts)
    }

    /// An object of that namespace as a part of a sentence: `IPAddressClaim team-a/web`, or `an IPAddressClaim in
    /// another namespace`.
    pub fn object(self, kind: &str, namespace: &str, name: &str) -> String {
        if self.may_name(Some(namespace)) {
            return format!("{kind} {namespace}/{name}");
        }
        let article = if kind.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" };
        match self.namespace {
            Some(_) => format!("{article} {kind} in another namespace"),
            None => format!("{article} {kind}"),
        }
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

/// `a`, `a and b`, `a, b and c`.
fn enumerated(parts: &[String]) -> String {
    match parts.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use crate::api::InClusterKind;
    use super::*;

    fn pool(namespace: &str, name: &str) -> PoolKey {
        let namespace = (!namespace.is_empty()).then(|| namespace.into());
        let kind = if namespace.is_some() { InClusterKind::IPPool } else { InClusterKind::GlobalIPPool };
        PoolKey { kind, namespace, name: name.into() }
    }

    #[test]
    fn pools_of_other_namespaces_are_counted() {
        let text = |audience, pools: &[PoolKey]| Audience::of(audience).pools(pools);
        let (own, other, global) = (pool("a", "x"), pool("b", "secret"), pool("", "g"));
        assert_eq!(text(Some("a"), &[]), "");
        assert_eq!(text(Some("a"), std::slice::from_ref(&own)), "InClusterIPPool a/x");
        assert_eq!(text(Some("a"), std::slice::from_ref(&other)), "1 pool in another namespace");
        assert_eq!(text(Some("a"), &[own.clone(), global.clone()]), "InClusterIPPool a/x and GlobalInClusterIPPool g");
        assert_eq!(
            text(Some("a"), &[other.clone(), own.clone(), global.clone(), pool("c", "secret")]),
            "InClusterIPPool a/x, GlobalInClusterIPPool g and 2 pools in other namespaces"
        );
        assert_eq!(text(None, std::slice::from_ref(&own)), "1 namespaced pool");
        assert_eq!(text(None, &[own, global, other]), "GlobalInClusterIPPool g and 2 namespaced pools");
        // A namespace that begins like another is another.
        assert_eq!(
            text(Some("team"), &[pool("team-a", "x"), pool("", "g")]),
            "GlobalInClusterIPPool g and 1 pool in another namespace"
        );
    }

    #[test]
    fn five_pools_are_named_at_most() {
        let pools: Vec<_> =
            (0..8).map(|number| pool("a", &format!("p{number}"))).chain([pool("b", "secret")]).collect();
        assert_eq!(
            Audience::of(Some("a")).pools(&pools),
            "InClusterIPPool a/p0, InClusterIPPool a/p1, InClusterIPPool a/p2, InClusterIPPool a/p3, \
             InClusterIPPool a/p4, 3 more and 1 pool in another namespace"
        );
    }

    #[test]
    fn objects_of_other_namespaces_have_no_name() {
        let text = |audience, kind| Audience::of(audience).object(kind, "a", "x");
        assert_eq!(text(Some("a"), "IPAddress"), "IPAddress a/x");
        assert_eq!(text(Some("b"), "IPAddress"), "an IPAddress in another namespace");
        assert_eq!(text(None, "Claim"), "a Claim");
    }

    #[test]
    fn a_pool_speaks_to_its_own_namespace() {
        assert_eq!(Audience::of_pool(&pool("a", "x")), Audience::of(Some("a")));
        assert_eq!(Audience::of_pool(&pool("", "g")), Audience::of(None));
        assert!(Audience::of(Some("a")).may_name(Some("a")) && Audience::of(Some("a")).may_name(None));
        assert!(!Audience::of(Some("a")).may_name(Some("b")) && !Audience::of(None).may_name(Some("a")));
    }
}
