//! Makes the checks of `doctor` and `status`.

use std::time::Duration;

use super::snapshot::read;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{Check, Finding, FindingList, Snapshot, diagnosis};
use crate::output;

/// Time between two reads. What is right after it was a change in progress.
const RECHECK_DELAY: Duration = Duration::from_secs(3);

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
    let is_transient = |finding: &Finding| finding.check.is_transient();
    if !first.diagnosis.findings.iter().any(is_transient) {
        return Ok(first);
    }
    tokio::time::sleep(RECHECK_DELAY).await;
    let mut again = check(cluster).await?;
    let old = first.diagnosis.findings;
    again
        .diagnosis
        .findings
        .retain(|finding| !is_transient(finding) || has_lasted(finding, &old));
    Ok(again)
}

/// Whether a finding was there before. The problem of a move states how many reservations are left:
/// with progress it is another one.
fn has_lasted(finding: &Finding, old: &[Finding]) -> bool {
    let is_same = |old: &Finding| (old.check, &old.object) == (finding.check, &finding.object);
    if finding.check == Check::MoveStalled {
        return old.contains(finding);
    }
    old.iter().any(is_same)
}

async fn check(cluster: &Cluster) -> Result<Diagnosed<'_>, Error> {
    let (snapshot, loader) = read(cluster).await?;
    Ok(Diagnosed {
        diagnosis: diagnosis(&snapshot),
        snapshot,
        loader,
    })
}
