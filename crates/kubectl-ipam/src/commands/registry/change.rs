//! Changes the records of a registry as planned, after a confirmation.

use std::time::Duration;

use capi_ipam_api::SharedBlocks;
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::clock;
use capi_ipam_registry::{
    Backend, Created, Entry, Key, NetworkRecord, RecordCache, RegistryError, list,
};

use crate::cli::{DryRun, Global, RecordFlags};
use crate::cluster::Cluster;
use crate::commands::confirm::confirm;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{
    Change, Plan, RecordChange, RegistryRelease, Report, Write, adoption, creation, plan,
};
use crate::render::{age, record_change_lines};
use crate::{output, registry};

/// How long it may take to list the records.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// What a command changes.
pub(super) enum Operation<'a> {
    /// Deletes the records of a management cluster that no longer exists.
    Release { cluster: &'a str, yes: bool },
    /// Gives the blocks of a management cluster that no longer exists to this one, which was built again
    /// with the same identity.
    Adopt { yes: bool },
    /// Writes the record of a network before a management cluster does.
    CreateNetwork {
        network: &'a str,
        size: u64,
        quarantine: Option<i64>,
    },
}

impl Operation<'_> {
    /// What is done, for an error: `release management cluster west of`.
    fn name(&self) -> String {
        match self {
            Self::Release { cluster, .. } => format!("release management cluster {cluster} of"),
            Self::Adopt { .. } => "adopt the blocks of a former management cluster of".to_owned(),
            Self::CreateNetwork { network, .. } => format!("create network {network} in"),
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
        let planned = match self {
            Self::Release { cluster, .. } => plan(records, cluster, own, now),
            Self::Adopt { .. } => {
                let uid = registry::namespace_uid(cluster).await?;
                let uid = uid.ok_or(Error::NoClusterUid)?;
                adoption(records, own, &uid, now)
            }
            Self::CreateNetwork {
                network,
                size,
                quarantine,
            } => creation(records, network_record(network, *size, *quarantine, own)?),
        };
        Ok(planned?)
    }

    /// Asks an operator about what has consequences.
    fn confirm(&self, plan: &Plan, own: &str) -> Result<(), Error> {
        let (question, yes) = match self {
            Self::Release { cluster, yes } => {
                let changes = record_change_lines(&plan.lines(), false);
                let seen = match plan.seen {
                    Some(_) => {
                        format!("was last seen {} ago", age(plan.seen, clock::timestamp()))
                    }
                    None => "has no time at which it was last seen".to_owned(),
                };
                let question = format!(
                    "{changes}management cluster {cluster} {seen}. Its addresses can be allocated again, so no machine of it \
                     may run"
                );
                (question, *yes)
            }
            Self::Adopt { yes } => {
                let seen = age(plan.seen, clock::timestamp());
                let question = format!(
                    "management cluster {own} with another UID was last seen {seen} ago. This cluster takes over its blocks, \
                     and allocates their addresses, so no machine of it may run that is not restored here"
                );
                (question, *yes)
            }
            Self::CreateNetwork { .. } => return Ok(()),
        };
        confirm(&question, yes)
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

pub(super) async fn run(
    global: &Global,
    flags: &RecordFlags,
    operation: &Operation<'_>,
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
        cluster: match operation {
            Operation::Release { cluster, .. } => (*cluster).to_owned(),
            _ => own.clone(),
        },
        last_seen: plan.seen,
        dry_run: flags.dry_run.is_dry_run(),
        changes: Vec::new(),
    };
    let mut result = Ok(());
    if changed.dry_run {
        changed.changes = plan.lines();
    } else {
        operation.confirm(&plan, &own)?;
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
    match &change.write {
        Write::None => Ok(()),
        Write::Update(entry, record) => registry.update(entry, record).await.map(drop),
        Write::Delete(entry) => registry.delete(entry).await,
        Write::Create(record) => match registry.create(&change.line.record, record).await? {
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
