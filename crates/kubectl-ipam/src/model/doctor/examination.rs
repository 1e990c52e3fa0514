//! The result of a group of checks: what is wrong, and what could not be checked.

use crate::error::{MissingRight, sentences};
use crate::load::Readable;
use crate::model::finding::Finding;

/// Why checks were not possible, or not for all objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unknown {
    pub(super) reason: String,
    /// The permissions that the reason names.
    pub(super) missing: Vec<MissingRight>,
    /// Whether the checks were made for some objects.
    pub(super) partly: bool,
}

/// The result of a group of checks that read the same objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Examination {
    pub(super) findings: Vec<Finding>,
    pub(super) unknown: Option<Unknown>,
}

impl Examination {
    /// Checks for which no permission is needed.
    pub(super) fn complete(findings: impl IntoIterator<Item = Finding>) -> Self {
        Self {
            findings: findings.into_iter().collect(),
            unknown: None,
        }
    }

    /// Checks that compare objects: each missing object would be a wrong finding, so they need all.
    pub(super) fn compare<F: IntoIterator<Item = Finding>>(
        missing: Vec<MissingRight>,
        find: impl FnOnce() -> F,
    ) -> Self {
        if missing.is_empty() {
            Self::complete(find())
        } else {
            Self::default().with_unknown(missing, false)
        }
    }

    /// Checks of single objects, of those that can be read.
    pub(super) fn inspect<'a, T: 'a, F: IntoIterator<Item = Finding>>(
        rows: impl IntoIterator<Item = &'a T>,
        missing: Vec<MissingRight>,
        find: impl Fn(&'a T) -> F,
    ) -> Self {
        let mut findings = Vec::new();
        let mut has_some = false;
        for row in rows {
            has_some = true;
            findings.extend(find(row));
        }
        Self::complete(findings).with_unknown(missing, has_some)
    }

    /// As [`Examination::inspect`], of a list.
    pub(super) fn inspect_list<'a, T, F: IntoIterator<Item = Finding>>(
        list: &'a Readable<Vec<T>>,
        find: impl Fn(&'a T) -> F,
    ) -> Self {
        Self::inspect(list.seen(), list.missing.clone(), find)
    }

    /// Checks of the objects of a list. Each can be impossible for a different reason.
    pub(super) fn of_each<'a, T>(
        list: &'a Readable<Vec<T>>,
        examine: impl Fn(&'a T) -> Self,
    ) -> Self {
        let mut all = Self::default().with_unknown(list.missing.clone(), false);
        for row in list.seen() {
            let one = examine(row);
            all.findings.extend(one.findings);
            all.unknown = all.unknown.or(one.unknown);
        }
        all
    }

    /// Adds the permissions that are missing, if any.
    pub(super) fn with_unknown(mut self, missing: Vec<MissingRight>, partly: bool) -> Self {
        if !missing.is_empty() {
            self.unknown = Some(Unknown {
                reason: sentences(&missing).join("; "),
                missing,
                partly,
            });
        }
        self
    }

    /// Checks of what the cluster does not show.
    pub(super) fn not_visible(reason: impl Into<String>, partly: bool) -> Self {
        Self {
            findings: Vec::new(),
            unknown: Some(Unknown {
                reason: reason.into(),
                missing: Vec::new(),
                partly,
            }),
        }
    }
}
