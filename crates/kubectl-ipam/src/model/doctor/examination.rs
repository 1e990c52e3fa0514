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
    pub(super) fn compare<T>(input: &Readable<T>, find: impl FnOnce(&T) -> Vec<Finding>) -> Self {
        match input.known() {
            Some(input) => Self::complete(find(input)),
            None => Self::default().with_unknown(input, false),
        }
    }

    /// Checks of single objects, of those that can be read.
    pub(super) fn inspect<T>(
        input: &Readable<Vec<T>>,
        find: impl FnMut(&T) -> Vec<Finding>,
    ) -> Self {
        let seen = input.seen();
        Self::complete(seen.iter().flat_map(find)).with_unknown(input, !seen.is_empty())
    }

    /// Adds the permissions that are missing for a value, if any.
    pub(super) fn with_unknown<T>(mut self, input: &Readable<T>, partly: bool) -> Self {
        if !input.is_complete() {
            self.unknown = Some(Unknown {
                reason: sentences(input.missing()).join("; "),
                missing: input.missing().to_vec(),
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
