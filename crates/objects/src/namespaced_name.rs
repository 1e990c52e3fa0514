//! The identity of an object of a kind.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use kube::core::ObjectMeta;

/// Namespace and name of an object. The namespace of a cluster-scoped object is empty.
///
/// Both are in one allocation that clones share, because a process keeps several of them for each
/// object.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NamespacedName(Arc<str>);

impl NamespacedName {
    /// Joins a namespace, which contains no slash, and a name.
    pub fn new(namespace: &str, name: &str) -> Self {
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        Self(text.into())
    }

    /// Returns the namespace and name of the object with this metadata.
    pub fn of(metadata: &ObjectMeta) -> Self {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        Self::new(namespace, metadata.name.as_deref().unwrap_or_default())
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.parts().0
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.parts().1
    }

    /// The namespace and the name.
    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or_default()
    }
}

/// Orders by namespace, then by name.
impl Ord for NamespacedName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for NamespacedName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Displays `namespace/name`, or the name of a cluster-scoped object, as the keys of client-go.
impl fmt::Display for NamespacedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.strip_prefix('/').unwrap_or(&self.0))
    }
}

impl fmt::Debug for NamespacedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_that_were_joined() {
        let claim = NamespacedName::new("team-a", "web-0.eth0");
        assert_eq!(claim.parts(), ("team-a", "web-0.eth0"));
        assert_eq!(claim.to_string(), "team-a/web-0.eth0");
        let network = NamespacedName::of(&ObjectMeta {
            name: Some("office".to_owned()),
            ..ObjectMeta::default()
        });
        assert_eq!(network.parts(), ("", "office"));
        assert_eq!(network.to_string(), "office");
    }

    #[test]
    fn names_are_ordered_within_their_namespace() {
        let mut names = [("a-b", "x"), ("a", "y"), ("a", "x-1"), ("a", "x")]
            .map(|(n, name)| NamespacedName::new(n, name));
        names.sort_unstable();
        assert_eq!(
            names.map(|name| name.to_string()),
            ["a/x", "a/x-1", "a/y", "a-b/x"]
        );
    }
}
