//! `import`: lets the API server check the changes, and then makes them.

use std::cell::Cell;
use std::path::Path;

use futures::{StreamExt, stream};

use super::existing;
use super::file::{parse, read};
use super::plan::{Action, Change, Plan, Refused, plan};
use super::problems::Problems;
use super::progress::Progress;
use crate::cluster::{Cluster, Created, with_warnings};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{ChangeAction, ChangeResult, ImportChange, ImportProblem, ImportSummary};
use crate::output;

/// Number of requests at the same time. With 1, an import takes four times as long.
const CONCURRENCY: usize = 16;

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
    let mut answers = Problems::default();
    let mut summary = match plan(parsed, &existing, name, prune) {
        Ok(mut plan) => {
            warnings.append(&mut plan.warnings);
            execute(loader.cluster, plan, dry_run, &mut answers).await?
        }
        Err(refused) => {
            check_rest(loader.cluster, refused, &mut answers).await;
            ImportSummary {
                dry_run,
                ..ImportSummary::default()
            }
        }
    };
    summary.problems = answers.list;
    // What concerns no line is last.
    summary
        .problems
        .sort_by(|one, other| (one.line.is_none(), one).cmp(&(other.line.is_none(), other)));
    warnings.extend(answers.warnings.sentences());
    loader.warnings.append(&mut warnings);
    Ok(summary)
}

/// Adds the problems of a file, and those that the API server finds in the rest of it. Nothing is
/// changed.
async fn check_rest(cluster: &Cluster, refused: Box<Refused>, problems: &mut Problems) {
    let Refused {
        problems: found,
        plan,
    } = *refused;
    let phases = plan.phases();
    let mut changes: Vec<&Change> = phases.iter().flatten().collect();
    // What the file does not contain may be in a line with a problem.
    changes.retain(|change| change.line.is_some());
    if let Err(error) = check(cluster, &changes, problems).await {
        let problem = format!("the other lines could not be checked: {error}");
        problems.list.push(ImportProblem::general(problem));
    }
    problems.list.extend(found);
}

/// Lets the API server check a plan, and makes its changes if it accepts all of them.
async fn execute(
    cluster: &Cluster,
    plan: Plan,
    dry_run: bool,
    problems: &mut Problems,
) -> Result<ImportSummary, Error> {
    let unchanged = plan.unchanged;
    let phases = plan.phases();
    let changes: Vec<&Change> = phases.iter().flatten().collect();
    let mut results = check(cluster, &changes, problems).await?;
    if !dry_run && problems.list.is_empty() {
        results = make(cluster, &phases, problems).await;
    } else if !dry_run {
        for result in &mut results {
            if *result == ChangeResult::Checked {
                *result = ChangeResult::NotMade;
            }
        }
    }
    let mut summary = ImportSummary {
        dry_run,
        unchanged,
        ..ImportSummary::default()
    };
    for (change, result) in changes.into_iter().zip(results) {
        add(&mut summary, change, result);
    }
    Ok(summary)
}

/// Lets the API server check all changes, without making them. Returns the result of each. A
/// missing permission or an API server that does not answer is an error: nothing is written.
async fn check(
    cluster: &Cluster,
    changes: &[&Change],
    problems: &mut Problems,
) -> Result<Vec<ChangeResult>, Error> {
    let mut results = vec![ChangeResult::NotMade; changes.len()];
    let mut progress = Progress::new("checked", changes.len());
    let mut answers = stream::iter(changes.iter().zip(&mut results))
        .map(|(change, result)| async move {
            let (answer, warnings) = with_warnings(perform(cluster, change, true)).await;
            (*change, result, answer, warnings)
        })
        .buffer_unordered(CONCURRENCY);
    while let Some((change, result, answer, warnings)) = answers.next().await {
        problems.warnings.add(change.line, warnings);
        match answer {
            Ok(()) => *result = ChangeResult::Checked,
            Err(error) if is_about_all(&error) => {
                let (checked, total) = (progress.done(), changes.len());
                drop(progress);
                output::note(&format!(
                    "the check ended after {checked} of {total} changes; nothing was changed"
                ));
                return Err(error);
            }
            Err(error) => {
                *result = ChangeResult::Failed;
                problems.add(change, &error);
            }
        }
        progress.advance();
        if problems.is_server_failing() {
            problems.check_ended(progress.done(), changes.len());
            break;
        }
    }
    drop(answers);
    Ok(results)
}

/// Whether no request can succeed.
fn is_about_all(error: &Error) -> bool {
    matches!(
        error,
        Error::Forbidden(_) | Error::Unauthenticated { .. } | Error::Unreachable { .. }
    )
}

/// Makes the changes, one phase after the other, and returns the result of each. After a failure no
/// other change is started, and above all no deletion: what the file contains must exist before
/// anything is deleted.
async fn make(
    cluster: &Cluster,
    phases: &[Vec<Change>],
    problems: &mut Problems,
) -> Vec<ChangeResult> {
    let total = phases.iter().map(Vec::len).fold(0, usize::saturating_add);
    let mut progress = Progress::new("made", total);
    let has_failed = Cell::new(false);
    let mut all = Vec::with_capacity(total);
    for changes in phases {
        let mut results = vec![ChangeResult::NotMade; changes.len()];
        let is_stopped = || has_failed.get();
        let mut answers = stream::iter(changes.iter().zip(&mut results))
            .map(|(change, result)| async move {
                if is_stopped() {
                    return None;
                }
                let (answer, warnings) = with_warnings(perform(cluster, change, false)).await;
                Some((change, result, answer, warnings))
            })
            .buffer_unordered(CONCURRENCY);
        while let Some(answer) = answers.next().await {
            let Some((change, result, answer, warnings)) = answer else {
                continue;
            };
            problems.warnings.add(change.line, warnings);
            match answer {
                Ok(()) => *result = ChangeResult::Made,
                Err(error) => {
                    has_failed.set(true);
                    *result = ChangeResult::Failed;
                    problems.add(change, &error);
                }
            }
            progress.advance();
        }
        drop(answers);
        all.append(&mut results);
    }
    all
}

/// Adds a change to the summary.
fn add(summary: &mut ImportSummary, change: &Change, result: ChangeResult) {
    let action = change.action.kind();
    let count = match (result, action) {
        (ChangeResult::Made | ChangeResult::Checked, ChangeAction::Created) => &mut summary.created,
        (ChangeResult::Made | ChangeResult::Checked, ChangeAction::Updated) => &mut summary.updated,
        (ChangeResult::Made | ChangeResult::Checked, ChangeAction::Deleted) => &mut summary.deleted,
        (ChangeResult::Failed | ChangeResult::NotMade, _) => &mut summary.not_made,
    };
    *count = count.saturating_add(1);
    let (kind, namespace, name) = change.action.identity();
    summary.changes.push(ImportChange {
        line: change.line,
        action,
        result,
        kind,
        namespace,
        name,
        fields: change.fields.clone(),
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
