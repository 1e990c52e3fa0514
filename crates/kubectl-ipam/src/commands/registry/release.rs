//! `registry release`: deletes the records of a management cluster that no longer exists.

use std::time::Duration;

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::clock;
use capi_ipam_registry::{Backend, Entry, RegistryError, list};

use crate::cli::{DryRun, Global, ReleaseFlags};
use crate::cluster::Cluster;
use crate::commands::confirm::confirm;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{Change, Plan, RecordChange, RegistryRelease, Report, plan};
use crate::render::{age, record_change_lines};
use crate::{output, registry};

/// How long it may take to list the records.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(global: &Global, wanted: &ReleaseFlags) -> Result<Code, Error> {
    if wanted.dry_run == DryRun::Server {
        return Err(Error::Argument(
            "a registry cannot check a change without making it: write --dry-run=client".to_owned(),
        ));
    }
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let row = registry::find(&mut loader, wanted.registry.as_deref()).await?;
    let Some(own) = registry::identity(&cluster, &row).await? else {
        return Err(Error::NoIdentity { registry: row.name });
    };
    let opened = registry::open(&mut loader, &row, &wanted.access).await?;
    let opened = opened.map_err(|unread| registry::unread_error(&row.name, unread))?;
    let failed = |error: &(dyn std::error::Error + 'static)| Error::Registry {
        operation: "read".to_owned(),
        registry: row.name.clone(),
        reason: error_chain(error),
    };
    let records = list(&opened, LIST_TIMEOUT).await;
    let records = records.map_err(|error| failed(&error))?;
    let plan = plan(&records, &wanted.cluster_id, &own, clock::timestamp())?;
    let mut released = RegistryRelease {
        registry: row.name.clone(),
        cluster: wanted.cluster_id.clone(),
        last_seen: plan.seen,
        dry_run: wanted.dry_run.is_dry_run(),
        changes: Vec::new(),
    };
    let mut result = Ok(());
    if released.dry_run {
        released.changes = plan.lines();
    } else {
        confirm(&question(wanted, &plan), wanted.yes)?;
        result = apply(&opened, &plan, &mut released.changes).await;
    }
    let report = Report::RegistryRelease(released);
    let code = output::finish(&loader, &report, global.output, output::style(global))?;
    // What was done is printed before.
    result.map_err(|error| Error::Registry {
        operation: format!("release management cluster {} of", wanted.cluster_id),
        registry: row.name,
        reason: format!(
            "{}; run the same command again after it is corrected",
            error_chain(&error)
        ),
    })?;
    Ok(code)
}

/// What is going to happen.
fn question(wanted: &ReleaseFlags, plan: &Plan) -> String {
    let changes = record_change_lines(&plan.lines(), false);
    let seen = match plan.seen {
        Some(_) => format!("was last seen {} ago", age(plan.seen, clock::timestamp())),
        None => "has no time at which it was last seen".to_owned(),
    };
    format!(
        "{changes}management cluster {} {seen}. Its addresses can be allocated again, so no machine of it may run",
        wanted.cluster_id
    )
}

/// Makes the changes of a plan. Adds those that were made to `made`.
///
/// Each write names the version that the plan rests on. The first one replaces the record of the
/// cluster by the same one: it fails if the cluster has given a sign of life since.
async fn apply<B: Backend>(
    registry: &B,
    plan: &Plan,
    made: &mut Vec<RecordChange>,
) -> Result<(), RegistryError> {
    let cluster = match &plan.cluster {
        Some(entry) => Some(written_again(registry, entry).await?),
        None => None,
    };
    for change in &plan.changes {
        write(registry, change).await?;
        made.push(change.line.clone());
    }
    if let Some(entry) = &cluster {
        registry.delete(entry).await?;
        made.extend(plan.last_line());
    }
    Ok(())
}

/// Writes a record again, in the version that was read.
async fn written_again<B: Backend>(registry: &B, entry: &Entry) -> Result<Entry, RegistryError> {
    match entry.record() {
        Some(record) => registry.update(entry, record).await,
        None => Ok(entry.clone()),
    }
}

async fn write<B: Backend>(registry: &B, change: &Change) -> Result<(), RegistryError> {
    match &change.wanted {
        Some(record) => registry.update(&change.entry, record).await.map(drop),
        None => registry.delete(&change.entry).await,
    }
}

#[cfg(test)]
mod tests;
