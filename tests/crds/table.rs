//! Objects that an API server has to accept or to reject.

use serde_json::Value;
use support::specifications::{Case, Denial};

use super::ControlPlane;

pub(super) const ADDRESSES: &str = "InClusterIPPool";
pub(super) const PREFIXES: &str = "InClusterPrefixPool";

/// Collects unexpected results, so that all of them are reported at once.
pub(super) struct Table<'a> {
    plane: &'a ControlPlane,
    wrong: Vec<String>,
}

impl<'a> Table<'a> {
    pub(super) fn new(plane: &'a ControlPlane) -> Self {
        Self {
            plane,
            wrong: Vec::new(),
        }
    }

    pub(super) fn accepts(&mut self, kind: &str, spec: Value) {
        self.check(&Case::new(kind, "case", spec));
    }

    /// `field` and `text` are parts of the error about one field.
    pub(super) fn rejects(&mut self, kind: &str, spec: Value, field: &str, text: &str) {
        let crd = Some(Denial::new(field, text));
        self.check(&Case {
            crd,
            ..Case::new(kind, "case", spec)
        });
    }

    /// Compares what the API server says with the verdict of the CRD.
    pub(super) fn check(&mut self, case: &Case) {
        let problem = match (&case.crd, make(self.plane, &case.object)) {
            (None, Ok(())) => return,
            (None, Err(output)) => format!("is rejected: {output}"),
            (Some(_), Ok(())) => "is accepted".to_owned(),
            (Some(Denial { field, text }), Err(output)) => {
                let start = format!("{field}: ");
                let is_reported = |line: &str| line.contains(&start) && line.contains(text);
                // The error for a rule that could not be evaluated.
                let failures = ["evaluating rule", "cost", "no such"];
                let has_failed = failures.iter().any(|text| output.contains(text));
                if output.lines().any(is_reported) && !has_failed {
                    return;
                }
                format!("{field}: {text} is not in: {output}")
            }
        };
        self.wrong.push(format!("{}: {problem}", case.object));
    }

    pub(super) fn done(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

pub(super) fn make(plane: &ControlPlane, object: &Value) -> Result<(), String> {
    plane.dry_create(object)
}
