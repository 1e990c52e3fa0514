//! `import`: lets the API server check the changes, and then makes them.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::path::Path;

use futures::{StreamExt, stream};

use super::existing;
use super::file::{parse, read};
use super::plan::{Action, Change, Plan, plan};
use crate::cluster::{Cluster, Created};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{ChangeAction, ImportChange, ImportProblem, ImportSummary};

/// Number of requests at the same time.
const CONCURRENCY: usize = 16;
/// Number of changes between two lines of progress.
const PROGRESS: usize = 500;
/// How often the same answer of the API server is reported. It is a problem of the server, not of
/// the objects.
const MAX_EQUAL_PROBLEMS: usize = 10;

/// Imports a file. Nothing is written if a line is wrong, or if the API server refuses one of the
/// changes.
pub(crate) async fn import(
    loader: &mut Loader<'_>,
    path: &Path,
    name: &str,
    prune: bool,
    dry_run: bool,
) -> Result<ImportSummary, Error> {
    let parsed = parse(&read(path)?, &loader.cluster.namespace);
    if parsed.reserved().next().is_some() {
        loader.cluster.require_reservations()?;
    }
    let mut warnings = parsed.warnings();
    let existing = existing::read(loader, &parsed, prune).await?;
    if let Some(right) = loader.missing.first() {
        return Err(Error::Forbidden(right.clone()));
    }
    let mut summary = ImportSummary {
        dry_run,
        ..ImportSummary::default()
    };
    match plan(parsed, &existing, name, prune) {
        Ok(mut plan) => {
            warnings.append(&mut plan.warnings);
            summary.problems = check(loader.cluster, &plan).await?;
            if summary.problems.is_empty() {
                summary.unchanged = plan.unchanged;
                make(loader.cluster, plan, &mut summary).await;
            }
        }
        Err(problems) => summary.problems = problems,
    }
    loader.warnings.append(&mut warnings);
    summary.problems.sort();
    summary.changes.sort();
    Ok(summary)
}

/// Lets the API server check all changes, without making them. Returns the problems. A missing
/// permission or an API server that does not answer is an error: nothing is written.
async fn check(cluster: &Cluster, plan: &Plan) -> Result<Vec<ImportProblem>, Error> {
    let changes: Vec<&Change> = plan
        .pools
        .iter()
        .chain(&plan.reservations)
        .chain(&plan.deletions)
        .collect();
    let mut progress = Progress::new("checked", changes.len());
    let mut results = stream::iter(changes)
        .map(|change| async move { (change.line, perform(cluster, change, true).await) })
        .buffer_unordered(CONCURRENCY);
    let (mut problems, mut counts) = (Vec::new(), HashMap::<String, usize>::new());
    while let Some((line, result)) = results.next().await {
        progress.advance();
        let problem = match result {
            Ok(()) => continue,
            Err(
                error @ (Error::Forbidden(_)
                | Error::Unauthenticated { .. }
                | Error::Unreachable { .. }),
            ) => {
                return Err(error);
            }
            Err(error) => error.to_string(),
        };
        let count = counts.entry(problem.clone()).or_default();
        *count = count.saturating_add(1);
        let is_last = *count == MAX_EQUAL_PROBLEMS;
        problems.push(ImportProblem { line, problem });
        if is_last {
            let problem = format!(
                "the check ended after {MAX_EQUAL_PROBLEMS} equal answers of the API server"
            );
            problems.push(ImportProblem {
                line: None,
                problem,
            });
            break;
        }
    }
    Ok(problems)
}

/// Makes the changes: pools, reservations, deletions. After a failure no other change is started,
/// and above all no deletion: what the file contains must exist before anything is deleted.
async fn make(cluster: &Cluster, plan: Plan, summary: &mut ImportSummary) {
    let phases = [plan.pools, plan.reservations, plan.deletions];
    let total = phases.iter().map(Vec::len).fold(0, usize::saturating_add);
    if summary.dry_run {
        phases
            .iter()
            .flatten()
            .for_each(|change| count(summary, change));
        return;
    }
    let mut progress = Progress::new("made", total);
    let has_failed = Cell::new(false);
    for changes in phases {
        let is_stopped = || has_failed.get();
        let mut results = stream::iter(changes)
            .map(|change| async move {
                let result = if is_stopped() {
                    None
                } else {
                    Some(perform(cluster, &change, false).await)
                };
                (change, result)
            })
            .buffer_unordered(CONCURRENCY);
        while let Some((change, result)) = results.next().await {
            match result {
                Some(Ok(())) => count(summary, &change),
                Some(Err(error)) => {
                    has_failed.set(true);
                    summary.not_made = summary.not_made.saturating_add(1);
                    let problem = format!("{}: {error}", change.action.object());
                    summary.problems.push(ImportProblem {
                        line: change.line,
                        problem,
                    });
                }
                None => summary.not_made = summary.not_made.saturating_add(1),
            }
            progress.advance();
        }
    }
}

/// Adds a change to the summary.
fn count(summary: &mut ImportSummary, change: &Change) {
    let action = change.action.kind();
    let count = match action {
        ChangeAction::Created => &mut summary.created,
        ChangeAction::Updated => &mut summary.updated,
        ChangeAction::Deleted => &mut summary.deleted,
    };
    *count = count.saturating_add(1);
    summary.changes.push(ImportChange {
        line: change.line,
        action,
        object: change.action.object(),
    });
}

/// Sends a change to the API server.
async fn perform(cluster: &Cluster, change: &Change, dry_run: bool) -> Result<(), Error> {
    let created = |result: Created| match result {
        Created::New => Ok(()),
        Created::Exists => Err(Error::Changed {
            object: change.action.object(),
        }),
    };
    match &change.action {
        Action::CreatePool(key, pool) => created(cluster.create_pool(key, pool, dry_run).await?),
        Action::UpdatePool(key, version, update) => {
            let metadata = &update.metadata;
            if let Some(spec) = &update.spec {
                cluster.replace_spec(key, version, spec, dry_run).await?;
            }
            if metadata.is_empty() {
                return Ok(());
            }
            cluster
                .label_pool(
                    key,
                    version,
                    &metadata.labels,
                    &metadata.annotations,
                    dry_run,
                )
                .await
        }
        Action::CreateReservation(new) if dry_run && change.follows_pool => {
            created(cluster.check_reservation(new).await?)
        }
        Action::CreateReservation(new) => created(cluster.create_reservation(new, dry_run).await?),
        Action::UpdateReservation(name, version, metadata) => {
            cluster
                .label_reservation(
                    name,
                    version,
                    &metadata.labels,
                    &metadata.annotations,
                    dry_run,
                )
                .await
        }
        Action::DeleteReservation(name, version) => {
            cluster.delete_reservation(name, version, dry_run).await
        }
        Action::DeletePool(key, version) => cluster.delete_pool(key, version, dry_run).await,
    }
}

/// Progress on a terminal.
struct Progress {
    what: &'static str,
    done: usize,
    total: usize,
    shows: bool,
}

impl Progress {
    fn new(what: &'static str, total: usize) -> Self {
        Self {
            what,
            done: 0,
            total,
            shows: std::io::stderr().is_terminal(),
        }
    }

    fn advance(&mut self) {
        self.done = self.done.saturating_add(1);
        if self.shows && self.done.is_multiple_of(PROGRESS) {
            let _ = writeln!(
                std::io::stderr(),
                "{} of {} changes {}",
                self.done,
                self.total,
                self.what
            );
        }
    }
}
