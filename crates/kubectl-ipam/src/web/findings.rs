//! What is wrong with the objects, as the checks of `doctor` find it.

use capi_ipam_api::PoolKey;

use crate::model::{Finding, FoundProblem, PoolFinding, Severity};

/// What the last examination has found.
#[derive(Default)]
pub(super) struct Findings {
    /// All of it, also what can be a change in progress.
    all: Vec<Finding>,
    /// What was found twice, or is no change in progress.
    pub(super) shown: Vec<FoundProblem>,
}

impl Findings {
    /// Replaces what was found, with the pools that each finding is about. Returns whether something
    /// else is shown.
    pub(super) fn set(&mut self, found: Vec<Finding>) -> bool {
        let is_same = |one: &Finding, other: &Finding| {
            (one.check, &one.object) == (other.check, &other.object)
        };
        let mut shown = Vec::new();
        for finding in &found {
            let has_lasted = self.all.iter().any(|old| is_same(old, finding));
            if has_lasted || !finding.check.is_transient() {
                shown.push(FoundProblem {
                    pools: finding.pools().into_iter().map(Into::into).collect(),
                    finding: finding.clone(),
                });
            }
        }
        self.all = found;
        let is_other = self.shown != shown;
        self.shown = shown;
        is_other
    }

    /// What is most urgent of a pool.
    pub(super) fn of_pool(&self, key: &PoolKey) -> Option<PoolFinding> {
        let name = key.into();
        // The most urgent one is first.
        let mut found = self.shown.iter().filter(|it| it.pools.contains(&name));
        let worst = found.find(|it| it.finding.severity != Severity::Note)?;
        Some(PoolFinding {
            severity: worst.finding.severity,
            check: worst.finding.check,
        })
    }
}
