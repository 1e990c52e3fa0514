//! Makes the checks of `doctor`.

use std::collections::HashSet;
use std::time::Duration;

use super::snapshot::read;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{Check, Finding, FindingList, Snapshot, diagnosis, retain};
use crate::output;

/// Time between two reads. What is right after it was a change in progress: a manager binds and
/// releases in less.
const RECHECK_DELAY: Duration = Duration::from_secs(1);
/// The same for a move, whose progress the status of a pool shows every 2 seconds.
const MOVE_DELAY: Duration = Duration::from_secs(3);

/// What the checks have found, and what they have read.
pub(super) struct Diagnosed<'a> {
    pub(super) diagnosis: FindingList,
    pub(super) snapshot: Snapshot,
    pub(super) loader: Loader<'a>,
}

impl Diagnosed<'_> {
    /// The exit code. What is wrong is more important than a check that was not possible.
    pub(super) fn code(&self) -> Code {
        if self.diagnosis.has(Check::MissingDefinition) {
            Code::NoDefinition
        } else if self.diagnosis.has_problems() {
            Code::Findings
        } else {
            output::code(&self.loader)
        }
    }
}

/// Makes all checks. What may be a change in progress is checked twice.
pub(super) async fn diagnose(cluster: &Cluster) -> Result<Diagnosed<'_>, Error> {
    let first = check(cluster).await?;
    let Some(delay) = recheck_delay(&first.diagnosis.findings) else {
        return Ok(first);
    };
    tokio::time::sleep(delay).await;
    let mut again = check(cluster).await?;
    let old = first.diagnosis.findings;
    let names: HashSet<(Check, &str)> = old
        .iter()
        .map(|finding| (finding.check, finding.object.as_str()))
        .collect();
    // The problem of a move states how many reservations are left: with progress it is another one.
    let has_lasted = |finding: &Finding| {
        let same = names.contains(&(finding.check, finding.object.as_str()));
        same && (finding.check != Check::MoveStalled || old.contains(finding))
    };
    retain(&mut again.diagnosis, |finding| {
        !finding.check.is_transient() || has_lasted(finding)
    });
    Ok(again)
}

/// How long to wait for the second read; `None` if no finding can be a change in progress.
fn recheck_delay(findings: &[Finding]) -> Option<Duration> {
    let mut delay = None;
    for finding in findings {
        if finding.check == Check::MoveStalled {
            return Some(MOVE_DELAY);
        }
        if finding.check.is_transient() {
            delay = Some(RECHECK_DELAY);
        }
    }
    delay
}

async fn check(cluster: &Cluster) -> Result<Diagnosed<'_>, Error> {
    // All lists are read concurrently: too much for the stack.
    let (snapshot, loader) = Box::pin(read(cluster)).await?;
    Ok(Diagnosed {
        diagnosis: diagnosis(&snapshot),
        snapshot,
        loader,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Severity;

    #[test]
    fn only_a_change_in_progress_is_checked_twice() {
        let delay_of = |checks: &[Check]| {
            let finding = |check: &Check| Finding {
                severity: Severity::Error,
                check: *check,
                object: String::new(),
                problem: String::new(),
                since: None,
                cause: None,
                places: Vec::new(),
                repair: String::new(),
                commands: Vec::new(),
            };
            let findings: Vec<Finding> = checks.iter().map(finding).collect();
            recheck_delay(&findings)
        };
        assert_eq!(delay_of(&[Check::Paused, Check::PoolsOverlap]), None);
        let lost = [Check::Paused, Check::LostAddress];
        assert_eq!(delay_of(&lost), Some(RECHECK_DELAY));
        let move_too = [Check::LostAddress, Check::MoveStalled];
        assert_eq!(delay_of(&move_too), Some(MOVE_DELAY));
    }
}
