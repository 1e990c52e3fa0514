//! Objects that an API server has to accept or to reject.

use capi_ipam_api::Pool;
use serde::Deserialize;
use serde_json::Value;

use super::{ControlPlane, object};

pub(super) const ADDRESSES: &str = "InClusterIPPool";
pub(super) const GLOBAL_ADDRESSES: &str = "GlobalInClusterIPPool";
pub(super) const PREFIXES: &str = "InClusterPrefixPool";
pub(super) const GLOBAL_PREFIXES: &str = "GlobalInClusterPrefixPool";

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

    #[expect(
        clippy::needless_pass_by_value,
        reason = "the lines of a table are more readable without ampersands"
    )]
    pub(super) fn accepts(&mut self, kind: &str, spec: Value) {
        self.accepts_object(&object(kind, "case", &spec));
    }

    /// `field` and `text` are parts of the error about one field.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the lines of a table are more readable without ampersands"
    )]
    pub(super) fn rejects(&mut self, kind: &str, spec: Value, field: &str, text: &str) {
        self.rejects_object(&object(kind, "case", &spec), field, text);
    }

    /// The CRD accepts the object. `field` has the problem that the provider reports, by the webhooks
    /// or in the condition of the pool.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the lines of a table are more readable without ampersands"
    )]
    pub(super) fn leaves_to_webhooks(&mut self, kind: &str, spec: Value, field: &str) {
        let object = object(kind, "case", &spec);
        self.accepts_object(&object);
        let pool = Pool::deserialize(&object).expect("a pool");
        let problems = pool.spec.usable().err().unwrap_or_default();
        let mut texts = problems.iter().map(ToString::to_string);
        if !texts.any(|text| text.starts_with(field)) {
            self.wrong
                .push(format!("{object}: {field} is not in {problems:?}"));
        }
    }

    pub(super) fn accepts_object(&mut self, object: &Value) {
        if let Err(output) = make(self.plane, object) {
            self.wrong.push(format!("{object} is refused: {output}"));
        }
    }

    pub(super) fn rejects_object(&mut self, object: &Value, field: &str, text: &str) {
        match make(self.plane, object) {
            Ok(()) => self.wrong.push(format!("{object} is accepted")),
            Err(output) => {
                let reported = output
                    .lines()
                    .any(|line| line.contains(&format!("{field}: ")) && line.contains(text));
                // The error for a rule that could not be evaluated.
                let failed = ["evaluating rule", "cost", "no such"]
                    .iter()
                    .any(|text| output.contains(text));
                if !reported || failed {
                    self.wrong
                        .push(format!("{object}: {field}: {text} is not in: {output}"));
                }
            }
        }
    }

    pub(super) fn done(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

pub(super) fn make(plane: &ControlPlane, object: &Value) -> Result<(), String> {
    plane.dry_create(object)
}
