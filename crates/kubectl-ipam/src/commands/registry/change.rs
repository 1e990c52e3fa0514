//! Changes the records of a registry as planned, after a confirmation.

use std::time::Duration;

use capi_ipam_api::SharedBlocks;
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::clock;
use capi_ipam_registry::{
    Backend, Created, Entry, Key, NetworkRecord, RecordCache, RegistryError, list,
};

use crate::cli::{DryRun, Global, RecordCommand, RecordFlags};
use crate::cluster::Cluster;
use crate::commands::confirm::confirm;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::registry::{Change, Plan, Write, adoption, creation, plan};
use crate::model::{RecordChange, RegistryRelease, Report};
use crate::render::{age, record_change_lines};
use crate::{output, registry};

/// How long it may take to list the records.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Changes the records of a registry.
pub(super) async fn run(global: &Global, command: &RecordCommand) -> Result<Code, Error> {
    let flags = command.flags();
    if flags.dry_run == DryRun::Server {
        return Err(Error::Argument(
            "a registry cannot check a change without making it: write --dry-run=client".to_owned(),
        ));
    }
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let row = registry::find(&mut loader, flags.registry.as_deref()).await?;
    let own = registry::known_identity(&cluster, &row).await?;
    let opened = registry::open(&mut loader, &row, &flags.access).await?;
    let failed = |operation: String, reason: String| Error::Registry {
        operation,
        registry: row.name.clone(),
        reason,
    };
    let records = list(&opened, LIST_TIMEOUT).await;
    let records = records.map_err(|error| failed("read".to_owned(), error_chain(&error)))?;
    let plan = command.plan(&cluster, &records, &own).await?;
    let mut changed = RegistryRelease {
        registry: row.name.clone(),
        cluster: command.cluster(&own).to_owned(),
        last_seen: plan.seen,
        dry_run: flags.dry_run.is_dry_run(),
        changes: Vec::new(),
    };
    let mut result = Ok(());
    if changed.dry_run {
        changed.changes = plan.lines();
    } else {
        command.confirm(&plan, &own)?;
        result = apply(opened.as_ref(), &plan, &mut changed.changes).await;
    }
    let report = Report::RegistryRelease(changed);
    let code = output::finish(&loader, &report, global.output, output::style(global))?;
    // What was done is printed before.
    result.map_err(|error| {
        let chain = error_chain(&error);
        let reason = format!("{chain}; run the same command again after it is corrected");
        failed(command.name(), reason)
    })?;
    Ok(code)
}

impl RecordCommand {
    fn flags(&self) -> &RecordFlags {
        match self {
            Self::Release { records, .. }
            | Self::Adopt { records, .. }
            | Self::CreateNetwork { records, .. } => records,
        }
    }

    /// What is done, for an error: `release management cluster west of`.
    fn name(&self) -> String {
        match self {
            Self::Release { cluster_id, .. } => {
                format!("release management cluster {cluster_id} of")
            }
            Self::Adopt { .. } => "adopt the blocks of a former management cluster of".to_owned(),
            Self::CreateNetwork { network, .. } => format!("create network {network} in"),
        }
    }

    /// The management cluster whose records are changed. `own` is this one.
    fn cluster<'a>(&'a self, own: &'a str) -> &'a str {
        match self {
            Self::Release { cluster_id, .. } => cluster_id,
            Self::Adopt { .. } | Self::CreateNetwork { .. } => own,
        }
    }

    /// Decides what is written.
    async fn plan(
        &self,
        cluster: &Cluster,
        records: &RecordCache,
        own: &str,
    ) -> Result<Plan, Error> {
        let now = clock::timestamp();
        match self {
            Self::Release { cluster_id, .. } => plan(records, cluster_id, own, now),
            Self::Adopt { .. } => {
                let uid = registry::namespace_uid(cluster).await?;
                adoption(records, own, &uid.ok_or(Error::NoClusterUid)?, now)
            }
            Self::CreateNetwork {
                network,
                size,
                quarantine_seconds,
                ..
            } => {
                let wanted = network_record(network, *size, *quarantine_seconds, own)?;
                creation(records, wanted)
            }
        }
    }

    /// Asks an operator about what has consequences.
    fn confirm(&self, plan: &Plan, own: &str) -> Result<(), Error> {
        let seen = age(plan.seen, clock::timestamp());
        let (question, yes) = match self {
            Self::Release {
                cluster_id, yes, ..
            } => {
                let changes = record_change_lines(&plan.lines(), false);
                let seen = match plan.seen {
                    Some(_) => format!("was last seen {seen} ago"),
                    None => "has no time at which it was last seen".to_owned(),
                };
                let question = format!(
                    "{changes}management cluster {cluster_id} {seen}. Its addresses can be allocated again, so no machine \
                     of it may run"
                );
                (question, yes)
            }
            Self::Adopt { yes, .. } => {
                let question = format!(
                    "management cluster {own} with another UID was last seen {seen} ago. This cluster takes over its blocks, \
                     and allocates their addresses, so no machine of it may run that is not restored here"
                );
                (question, yes)
            }
            Self::CreateNetwork { .. } => return Ok(()),
        };
        confirm(&question, *yes)
    }
}

/// The record of a network, if it is valid.
fn network_record(
    network: &str,
    size: u64,
    quarantine: Option<i64>,
    own: &str,
) -> Result<NetworkRecord, Error> {
    let invalid = |problem: String| Error::Argument(format!("network {network}: {problem}"));
    let key = Key::Network {
        name: network.into(),
    };
    if Key::parse(&key.to_string()) != Some(key) {
        return Err(invalid("invalid name".to_owned()));
    }
    let blocks = SharedBlocks {
        registry: "any".to_owned(),
        size: i64::try_from(size).unwrap_or(i64::MAX),
        quarantine_seconds: quarantine,
        ..SharedBlocks::default()
    };
    if let Some(problem) = blocks.rules().err().and_then(|all| all.into_iter().next()) {
        return Err(invalid(problem.to_string()));
    }
    Ok(NetworkRecord {
        network: network.to_owned(),
        size,
        size_of: own.to_owned(),
        quarantine_seconds: quarantine,
    })
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
    let mut cluster = plan.cluster.as_deref().cloned();
    if let Some(entry) = &mut cluster
        && let Some(record) = entry.record().cloned()
    {
        *entry = registry.update(entry, &record).await?;
    }
    for change in &plan.changes {
        write(registry, change, cluster.as_ref()).await?;
        made.push(change.line.clone());
    }
    Ok(())
}

/// Makes a change. `cluster` is the record of the cluster, as it was written.
async fn write(
    registry: &dyn Backend,
    change: &Change,
    cluster: Option<&Entry>,
) -> Result<(), RegistryError> {
    match (&change.write, cluster) {
        (Write::None, _) | (Write::DeleteCluster, None) => Ok(()),
        (Write::Update(entry, record), _) => registry.update(entry, record).await.map(drop),
        (Write::Delete(entry), _) => registry.delete(entry).await,
        (Write::DeleteCluster, Some(entry)) => registry.delete(entry).await,
        (Write::Create(record), _) => match registry.create(&change.line.record, record).await? {
            Created::Ours(_) => Ok(()),
            // The next run compares it.
            Created::Theirs(entry) => Err(RegistryError::Conflict {
                registry: "the registry".to_owned(),
                key: entry.key,
            }),
        },
    }
}

#[cfg(test)]
mod tests;
