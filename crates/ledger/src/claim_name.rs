use std::sync::Arc;

use super::ClaimKey;

/// Namespace and name of a claim in one allocation, since there is one for each address in use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClaimName(Arc<str>);

impl ClaimName {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    pub(super) fn of((namespace, name): &ClaimKey) -> Self {
        Self::new(namespace, name)
    }

    /// The namespace, which contains no slash, and the name.
    fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.parts().0
    }

    pub(super) fn key(&self) -> ClaimKey {
        let (namespace, name) = self.parts();
        (namespace.to_owned(), name.to_owned())
    }
}

impl PartialEq<ClaimKey> for ClaimName {
    fn eq(&self, (namespace, name): &ClaimKey) -> bool {
        self.parts() == (namespace, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_key() {
        let key = ("team-a".to_owned(), "web-0.eth0".to_owned());
        let name = ClaimName::of(&key);
        assert_eq!((name.namespace(), name.key()), ("team-a", key.clone()));
        assert!(name == key && name != ("team".to_owned(), "a/web-0.eth0".to_owned()));
        assert_ne!(name, ClaimName::new("team-a", "web-1"));
    }
}
