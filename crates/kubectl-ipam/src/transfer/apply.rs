//! `import`: reads the objects of the cluster, and makes the changes.

use std::collections::HashSet;
use std::io::{IsTerminal, Write};
use std::path::Path;

use capi_ipam::api::{IPReservation, Pool, PoolKey};
use capi_ipam_ip::Block;
use futures::{StreamExt, stream};
use kube::ResourceExt;

use super::plan::{Action, Change, Existing, ExistingPool, ExistingReservation, IMPORT_LABEL, Plan, plan};
use super::{Entry, Parsed, parse, read};
use crate::cluster::{Cluster, Created, Identity, Kind};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{ImportProblem, ImportSummary};
use crate::objects::ReservationRow;

/// Number of requests at the same time.
const CONCURRENCY: usize = 16;
/// Number of changes between two lines of progress.
const PROGRESS: usize = 500;

/// Imports a file. Nothing is written if a line is wrong.
pub(crate) async fn import(
    loader: &mut Loader<'_>,
    path: &Path,
    name: &str,
    prune: bool,
    dry_run: bool,
) -> Result<ImportSummary, Error> {
    let parsed = parse(&read(path)?, &loader.cluster.namespace);
    if parsed.records.iter().any(|record| matches!(record.entry, Entry::Reservation(_))) {
        loader.cluster.require_reservations()?;
    }
    let existing = existing(loader, &parsed, prune).await?;
    if let Some(right) = loader.missing.first() {
        return Err(Error::Forbidden(right.clone()));
    }
    let mut summary = ImportSummary { dry_run, ..ImportSummary::default() };
    match plan(parsed, &existing, name, prune) {
        Ok(plan) => apply(loader.cluster, plan, &mut summary).await?,
        Err(problems) => summary.problems = problems,
    }
    summary.problems.sort();
    Ok(summary)
}

/// Reads what the file is compared with, and keeps only that.
async fn existing(loader: &mut Loader<'_>, parsed: &Parsed, prune: bool) -> Result<Existing, Error> {
    let mut existing = Existing::default();
    let blocks: HashSet<Block> = parsed
        .records
        .iter()
        .filter_map(|record| if let Entry::Reservation(wanted) = &record.entry { Some(wanted.block) } else { None })
        .collect();
    let import = |labels: &std::collections::BTreeMap<String, String>| labels.get(IMPORT_LABEL).cloned();
    loader
        .each_pool(None, |pool: &Pool| {
            let entry = ExistingPool {
                spec: pool.spec.clone(),
                import: import(pool.labels()),
                version: Identity::of(&pool.metadata),
            };
            existing.pools.insert(PoolKey::of(pool), entry);
        })
        .await?;
    let each = |reservation: IPReservation| {
        let import = import(reservation.labels());
        let Some(row) = ReservationRow::of(&reservation) else { return };
        if import.is_some() || blocks.contains(&row.slot.block) {
            let entry = ExistingReservation {
                claim: row.claim,
                is_held: row.has_uid || row.released.is_some(),
                import,
                version: Identity::of(&reservation.metadata),
            };
            existing.reservations.insert(row.slot.reservation_name(), entry);
        }
    };
    loader.list(Kind::Reservation, None, each).await?;
    if !blocks.is_empty() || prune {
        for row in loader.addresses(|row| prune || blocks.contains(&row.block)).await? {
            if prune {
                existing.pools_in_use.insert(row.pool.clone());
            }
            if blocks.contains(&row.block) {
                existing.addresses.push((row.pool, row.block, (row.key.0, row.claim)));
            }
        }
    }
    if prune {
        existing.pools_in_use.extend(loader.claims(None, |_| true).await?.into_iter().map(|claim| claim.pool));
    }
    Ok(existing)
}

/// Makes the changes. A change that fails is a problem of its line; the others are made. A missing permission ends it.
async fn apply(cluster: &Cluster, plan: Plan, summary: &mut ImportSummary) -> Result<(), Error> {
    let Plan { pools, reservations, deletions, unchanged } = plan;
    summary.unchanged = unchanged;
    let total = pools.len().saturating_add(reservations.len()).saturating_add(deletions.len());
    let mut progress = Progress { done: 0, total, shows: std::io::stderr().is_terminal() };
    for changes in [pools, reservations, deletions] {
        let dry_run = summary.dry_run;
        let mut results = stream::iter(changes)
            .map(|change| async move { (change.line, perform(cluster, change, dry_run).await) })
            .buffer_unordered(CONCURRENCY);
        while let Some((line, result)) = results.next().await {
            progress.advance();
            let count = match result {
                Ok(Done::Created) => &mut summary.created,
                Ok(Done::Updated) => &mut summary.updated,
                Ok(Done::Deleted) => &mut summary.deleted,
                Err(error @ (Error::Forbidden(_) | Error::Unauthenticated { .. })) => return Err(error),
                Err(error) => {
                    summary.problems.push(ImportProblem { line, problem: error.to_string() });
                    continue;
                }
            };
            *count = count.saturating_add(1);
        }
    }
    Ok(())
}

enum Done {
    Created,
    Updated,
    Deleted,
}

async fn perform(cluster: &Cluster, change: Change, dry_run: bool) -> Result<Done, Error> {
    let created = |result: Created, name: String| match result {
        Created::New => Ok(Done::Created),
        Created::Exists => Err(Error::Changed { object: name }),
    };
    match change.action {
        Action::CreatePool(key, pool) => created(cluster.create_pool(&key, &pool, dry_run).await?, key.to_string()),
        Action::UpdatePool(key, version, spec) => {
            cluster.replace_spec(&key, &version, &spec, dry_run).await.map(|()| Done::Updated)
        }
        Action::CreateReservation(new) => {
            let name = new.name_any();
            created(cluster.create_reservation(&new, dry_run).await?, format!("IPReservation {name}"))
        }
        Action::ReplaceReservation(version, new) => {
            let name = new.name_any();
            cluster.delete_reservation(&name, &version, dry_run).await?;
            if !dry_run {
                created(cluster.create_reservation(&new, dry_run).await?, format!("IPReservation {name}"))?;
            }
            Ok(Done::Updated)
        }
        Action::DeleteReservation(name, version) => {
            cluster.delete_reservation(&name, &version, dry_run).await.map(|()| Done::Deleted)
        }
        Action::DeletePool(key, version) => cluster.delete_pool(&key, &version, dry_run).await.map(|()| Done::Deleted),
    }
}

/// Progress on a terminal.
struct Progress {
    done: usize,
    total: usize,
    shows: bool,
}

impl Progress {
    fn advance(&mut self) {
        self.done = self.done.saturating_add(1);
        if self.shows && self.done.is_multiple_of(PROGRESS) {
            let _ = writeln!(std::io::stderr(), "{} of {} changes", self.done, self.total);
        }
    }
}
