//! What the permissions of the caller allow to read.
//!
//! A list that may not be read is not empty: it is unknown. [`Readable`] keeps the two apart.
//! The user of a list says what happens without the permission: [`Readable::require`] fails,
//! [`Readable::known`] has no value, and [`Readable::seen`] is for true statements about single
//! objects, which do not say that there are no others.

use crate::error::{Error, MissingRight};

/// A value that depends on lists, with the permissions that the caller lacks for them.
#[must_use = "without a permission the value is only a part"]
#[derive(Clone, Debug)]
pub(crate) struct Readable<T> {
    value: T,
    missing: Vec<MissingRight>,
    /// The namespace that could be read although the whole cluster could not.
    namespace: Option<Box<str>>,
}

impl<T> Readable<T> {
    /// A value for which no permission is missing.
    pub(crate) fn complete(value: T) -> Self {
        Self {
            value,
            missing: Vec::new(),
            namespace: None,
        }
    }

    /// What can be read without some permissions.
    pub(crate) fn part(value: T, missing: Vec<MissingRight>) -> Self {
        Self {
            value,
            missing,
            namespace: None,
        }
    }

    /// All objects of one namespace, of those of the whole cluster.
    pub(crate) fn namespace(value: T, missing: MissingRight, namespace: &str) -> Self {
        Self {
            value,
            missing: vec![missing],
            namespace: Some(namespace.into()),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether all objects of a namespace were read; `None` stands for all namespaces.
    pub(crate) fn covers(&self, namespace: Option<&str>) -> bool {
        self.is_complete() || namespace.is_some() && self.namespace.as_deref() == namespace
    }

    /// The value, if no permission is missing.
    pub(crate) fn known(&self) -> Option<&T> {
        self.is_complete().then_some(&self.value)
    }

    /// What can be read. It must not be used to conclude that something does not exist.
    pub(crate) fn seen(&self) -> &T {
        &self.value
    }

    /// As [`Readable::seen`].
    pub(crate) fn into_seen(self) -> T {
        self.value
    }

    pub(crate) fn missing(&self) -> &[MissingRight] {
        &self.missing
    }

    /// The value. Fails if a permission is missing: then `what` is unknown.
    pub(crate) fn require(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        if self.is_complete() {
            return Ok(self.value);
        }
        Err(Error::Unknown {
            what: what(),
            missing: self.missing,
        })
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Readable<U> {
        Readable {
            value: change(self.value),
            missing: self.missing,
            namespace: self.namespace,
        }
    }

    pub(crate) fn as_ref(&self) -> Readable<&T> {
        Readable {
            value: &self.value,
            missing: self.missing.clone(),
            namespace: self.namespace.clone(),
        }
    }

    /// A value that depends on both.
    pub(crate) fn and<U>(self, other: Readable<U>) -> Readable<(T, U)> {
        let mut missing = self.missing;
        for right in other.missing {
            if !missing.contains(&right) {
                missing.push(right);
            }
        }
        let namespace = if self.namespace == other.namespace {
            self.namespace
        } else {
            None
        };
        Readable {
            value: (self.value, other.value),
            missing,
            namespace,
        }
    }

    /// The same value, which also depends on another list.
    pub(crate) fn depends_on<U>(self, other: &Readable<U>) -> Self {
        self.and(other.as_ref()).map(|(value, _)| value)
    }
}

impl<T> Readable<Vec<T>> {
    /// The rows of a list that is printed. Fails if it is empty because something may not be read:
    /// then it is unknown, not empty.
    pub(crate) fn listed(self, what: &str) -> Result<Vec<T>, Error> {
        if self.value.is_empty() {
            return self.require(|| format!("the list of {what}"));
        }
        Ok(self.value)
    }

    /// As [`Readable::listed`]; `None` if the list is unknown.
    pub(crate) fn listed_if_known(self) -> Option<Vec<T>> {
        let is_unknown = self.value.is_empty() && !self.is_complete();
        (!is_unknown).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(resource: &str) -> MissingRight {
        MissingRight {
            verb: "list",
            resource: resource.to_owned(),
            namespace: None,
        }
    }

    #[test]
    fn value_without_a_permission_is_not_known() {
        let all = Readable::complete(7);
        assert_eq!((all.known(), all.covers(None)), (Some(&7), true));
        assert_eq!(all.require(String::new).unwrap(), 7);
        let part = Readable::namespace(7, right("a"), "lab");
        assert_eq!((part.known(), part.seen()), (None, &7));
        assert_eq!(
            [Some("lab"), Some("other"), None].map(|name| part.covers(name)),
            [true, false, false]
        );
        let error = part
            .require(|| "the number of a".to_owned())
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "the number of a is unknown: you may not list a in all namespaces: ask for a ClusterRole that allows it"
        );
    }

    #[test]
    fn value_that_depends_on_two_lists_needs_both() {
        let both = Readable::part(1, vec![right("a")])
            .and(Readable::part(2, vec![right("b"), right("a")]));
        assert_eq!(
            (both.known(), both.missing()),
            (None, &[right("a"), right("b")][..])
        );
        assert!(
            Readable::complete(1)
                .and(Readable::complete(2))
                .is_complete()
        );
        assert!(!Readable::complete(1).depends_on(&both).is_complete());
        let lab = || Readable::namespace(1, right("a"), "lab");
        assert!(
            lab().and(lab()).covers(Some("lab")) && !lab().and(Readable::complete(2)).covers(None)
        );
    }
}
