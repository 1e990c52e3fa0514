//! The result of a group of checks: what is wrong, and what could not be checked.

use crate::error::{MissingRight, sentences};
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
    pub(super) fn compare(missing: Vec<MissingRight>, find: impl FnOnce() -> Vec<Finding>) -> Self {
        if missing.is_empty() {
            Self::complete(find())
        } else {
            Self::default().with_unknown(missing, false)
        }
    }

    /// Checks of single objects, of those that can be read.
    pub(super) fn inspect<'a, T: 'a>(
        rows: impl IntoIterator<Item = &'a T>,
        missing: Vec<MissingRight>,
        find: impl Fn(&T) -> Vec<Finding>,
    ) -> Self {
        let mut findings = Vec::new();
        let mut has_some = false;
        for row in rows {
            has_some = true;
            findings.extend(find(row));
        }
        Self::complete(findings).with_unknown(missing, has_some)
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
    pub(super) fn not_visible(reason: &str) -> Self {
        Self {
            findings: Vec::new(),
            unknown: Some(Unknown {
                reason: reason.to_owned(),
                missing: Vec::new(),
                partly: false,
            }),
        }
    }
}
