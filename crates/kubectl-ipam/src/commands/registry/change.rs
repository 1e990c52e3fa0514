//! Changes the records of a registry as planned, after a confirmation.

use std::time::Duration;

use capi_ipam_controller::client::error_chain;
use capi_ipam_registry::{Backend, Entry, RecordCache, RegistryError, list};

use crate::cli::{ChangeFlags, DryRun, Global};
use crate::cluster::Cluster;
use crate::commands::confirm::confirm;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{Change, Plan, RecordChange, RegistryRelease, Report};
use crate::{output, registry};

/// How long it may take to list the records.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// What a command changes.
pub(super) trait Operation {
    /// What is done, for an error: `release management cluster west of`.
    fn name(&self) -> String;

    /// The management cluster, `own` is the identity of this one.
    fn cluster(&self, own: &str) -> String;

    /// Decides what is written.
    async fn plan(
        &self,
        cluster: &Cluster,
        records: &RecordCache,
        own: &str,
    ) -> Result<Plan, Error>;

    /// What an operator has to confirm.
    fn question(&self, plan: &Plan, own: &str) -> String;
}

pub(super) async fn run(
    global: &Global,
    flags: &ChangeFlags,
    operation: &impl Operation,
) -> Result<Code, Error> {
    if flags.dry_run == DryRun::Server {
        return Err(Error::Argument(
            "a registry cannot check a change without making it: write --dry-run=client".to_owned(),
        ));
    }
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let row = registry::find(&mut loader, flags.registry.as_deref()).await?;
    let Some(own) = registry::identity(&cluster, &row).await? else {
        return Err(Error::NoIdentity { registry: row.name });
    };
    let opened = registry::open(&mut loader, &row, &flags.access).await?;
    let opened = opened.map_err(|unread| registry::unread_error(&row.name, unread))?;
    let records = list(&opened, LIST_TIMEOUT).await;
    let records = records.map_err(|error| Error::Registry {
        operation: "read".to_owned(),
        registry: row.name.clone(),
        reason: error_chain(&error),
    })?;
    let plan = operation.plan(&cluster, &records, &own).await?;
    let mut changed = RegistryRelease {
        registry: row.name.clone(),
        cluster: operation.cluster(&own),
        last_seen: plan.seen,
        dry_run: flags.dry_run.is_dry_run(),
        changes: Vec::new(),
    };
    let mut result = Ok(());
    if changed.dry_run {
        changed.changes = plan.lines();
    } else {
        confirm(&operation.question(&plan, &own), flags.yes)?;
        result = apply(opened.as_ref(), &plan, &mut changed.changes).await;
    }
    let report = Report::RegistryRelease(changed);
    let code = output::finish(&loader, &report, global.output, output::style(global))?;
    // What was done is printed before.
    result.map_err(|error| Error::Registry {
        operation: operation.name(),
        registry: row.name,
        reason: format!(
            "{}; run the same command again after it is corrected",
            error_chain(&error)
        ),
    })?;
    Ok(code)
}

/// Makes the changes of a plan. Adds those that were made to `made`.
///
/// Each write names the version that the plan rests on. The first one replaces the record of the
/// cluster by the same one: it fails if the cluster has given a sign of life since.
pub(super) async fn apply(
    registry: &dyn Backend,
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
async fn written_again(registry: &dyn Backend, entry: &Entry) -> Result<Entry, RegistryError> {
    match entry.record() {
        Some(record) => registry.update(entry, record).await,
        None => Ok(entry.clone()),
    }
}

async fn write(registry: &dyn Backend, change: &Change) -> Result<(), RegistryError> {
    match &change.wanted {
        Some(record) => registry.update(&change.entry, record).await.map(drop),
        None => registry.delete(&change.entry).await,
    }
}

#[cfg(test)]
mod tests;
