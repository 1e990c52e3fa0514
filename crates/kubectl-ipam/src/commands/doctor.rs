//! `doctor`: makes all checks, and prints the state of each part and what is wrong.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::snapshot::read;
use crate::cli::{Global, WaitFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{
    Check, Finding, FindingList, Report, Selection, Snapshot, diagnosis, health, parts, retain,
};
use crate::output;
use crate::render::Style;

/// Time between two attempts of `--wait`.
const WAIT_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two reads. What is right after it was a change in progress: a manager binds and
/// releases in less.
const RECHECK_DELAY: Duration = Duration::from_secs(1);
/// The same for a move, whose progress the status of a pool shows every 2 seconds.
const MOVE_DELAY: Duration = Duration::from_secs(3);

pub(super) async fn run(
    global: &Global,
    pool: Option<&str>,
    only_errors: bool,
    wait: &WaitFlags,
) -> Result<Code, Error> {
    let end = Instant::now().checked_add(wait.wait_duration);
    let is_over = || !wait.wait || end.is_some_and(|end| Instant::now() >= end);
    loop {
        match examine(global, pool, only_errors, is_over).await {
            Ok(Some(code)) => return Ok(code),
            Ok(None) => {}
            // An API server that starts does not answer yet, and objects are created after it.
            Err(Error::Unreachable { .. } | Error::NoPool { .. } | Error::NoNamespace { .. })
                if !is_over() => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
}

/// Makes all checks, and prints what they find if the provider works, or if the time is over.
async fn examine(
    global: &Global,
    pool: Option<&str>,
    only_errors: bool,
    is_over: impl Fn() -> bool,
) -> Result<Option<Code>, Error> {
    // A definition can be installed between two attempts.
    let cluster = Cluster::connect(global).await?;
    let selection = selection(&cluster, global, pool, only_errors).await?;
    let mut found = diagnose(&cluster).await?;
    found.diagnosis.parts = parts(&found.diagnosis, &found.snapshot);
    found.diagnosis.healthy = health(&found.diagnosis.parts);
    if found.diagnosis.healthy == Some(false) && !is_over() {
        return Ok(None);
    }
    selection.apply(&mut found.diagnosis, &found.snapshot);
    print(global, found).map(Some)
}

fn print(global: &Global, found: Diagnosed<'_>) -> Result<Code, Error> {
    // Findings are of objects of all namespaces.
    let style = Style {
        namespaces: true,
        ..output::style(global)
    };
    let code = found.code();
    // The text has the missing permissions.
    if !output::is_text(global.output) {
        output::warn_incomplete(&found.loader);
    }
    let missing = found.loader.sentences();
    let report = Report::FindingList(found.diagnosis);
    output::print_report(&report, &missing, global.output, style)?;
    Ok(code)
}

/// What the flags select. A namespace or a pool that does not exist is an error: nothing would be
/// found in it.
async fn selection(
    cluster: &Cluster,
    global: &Global,
    pool: Option<&str>,
    only_errors: bool,
) -> Result<Selection, Error> {
    let mut loader = Loader::new(cluster);
    loader
        .require_namespace(global.namespace.as_deref())
        .await?;
    let mut selection = Selection {
        only_errors,
        ..Selection::default()
    };
    match pool {
        Some(pool) => selection.pool = Some(loader.find_pool(pool).await?.key),
        None => selection.namespace.clone_from(&global.namespace),
    }
    Ok(selection)
}

/// What the checks have found, and what they have read.
struct Diagnosed<'a> {
    diagnosis: FindingList,
    snapshot: Snapshot,
    loader: Loader<'a>,
}

impl Diagnosed<'_> {
    /// The exit code. What is wrong is more important than a check that was not possible.
    fn code(&self) -> Code {
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
async fn diagnose(cluster: &Cluster) -> Result<Diagnosed<'_>, Error> {
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

    #[test]
    fn only_a_change_in_progress_is_checked_twice() {
        let delay_of = |checks: &[Check]| {
            let finding = |check: &Check| check.finding("", "", "");
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
