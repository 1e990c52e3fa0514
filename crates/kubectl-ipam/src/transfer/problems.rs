//! What the API server says of changes, and when it makes no sense to ask it about further ones.

use std::collections::HashMap;

use super::plan::Change;
use super::server_warnings::ServerWarnings;
use crate::error::Error;
use crate::model::ImportProblem;

/// How often the same failure of the API server is reported.
const MAX_EQUAL_FAILURES: usize = 10;

/// The problems of changes, and the warnings about those that are accepted.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) list: Vec<ImportProblem>,
    pub(super) warnings: ServerWarnings,
    /// How often each failure of the server occurred.
    failures: HashMap<String, usize>,
}

impl Problems {
    /// Adds the problem of a change.
    pub(super) fn add(&mut self, change: &Change, error: &Error) {
        let problem = ImportProblem {
            line: change.line,
            problem: error.to_string(),
            object: Some(change.action.object()),
        };
        if let Error::Server { .. } = error {
            let count = self.failures.entry(problem.pattern()).or_default();
            *count = count.saturating_add(1);
        }
        self.list.push(problem);
    }

    /// Whether the same failure of the server occurred so often that further changes have it too.
    pub(super) fn is_server_failing(&self) -> bool {
        self.failures
            .values()
            .any(|count| *count >= MAX_EQUAL_FAILURES)
    }

    /// Adds that the check has ended because of such a failure.
    pub(super) fn check_ended(&mut self, checked: usize, total: usize) {
        let missing = total.saturating_sub(checked);
        self.list.push(ImportProblem::general(format!(
            "the check ended after {MAX_EQUAL_FAILURES} equal failures of the API server: {missing} of {total} changes \
             were not checked"
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Action;
    use super::*;
    use crate::cluster::Identity;

    fn change(name: &str) -> Change {
        let version = Identity {
            uid: String::new(),
            resource_version: String::new(),
            generation: 1,
        };
        Change {
            line: Some(2),
            action: Action::DeleteReservation(name.to_owned(), version),
            fields: Vec::new(),
            follows_pool: false,
        }
    }

    fn reason(name: &str) -> String {
        format!("ipreservations \"{name}\" is forbidden: exceeded quota")
    }

    #[test]
    fn ten_equal_failures_of_the_server_end_the_check() {
        let mut problems = Problems::default();
        for number in 0..MAX_EQUAL_FAILURES {
            assert!(!problems.is_server_failing(), "{number}");
            let name = format!("p.{number}");
            let error = Error::Server {
                operation: "create".to_owned(),
                reason: reason(&name),
            };
            problems.add(&change(&name), &error);
        }
        assert!(problems.is_server_failing());
    }

    #[test]
    fn problems_of_objects_do_not_end_the_check() {
        let mut problems = Problems::default();
        for number in 0..50 {
            let name = format!("p.{number}");
            let error = Error::Request {
                operation: "create".to_owned(),
                reason: reason(&name),
            };
            problems.add(&change(&name), &error);
        }
        assert!(!problems.is_server_failing());
    }
}
