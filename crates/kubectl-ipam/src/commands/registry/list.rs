//! `registry list`: the registries, the management clusters that use them, and their blocks.

use capi_ipam_controller::clock;

use crate::cli::{Global, ListFlags, RegistryAccess};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::{Loader, Selected};
use crate::model::{RegistryFacts, Report, registry_lines};
use crate::objects::RegistryRow;
use crate::{output, registry};

pub(super) async fn run(
    global: &Global,
    names: &[String],
    list: &ListFlags,
    access: &RegistryAccess,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    if let Some(labels) = &list.selector {
        loader.selected = Selected::Registries(labels.clone());
    }
    let rows = registry::rows(&mut loader).await?.listed("registries")?;
    let rows = named(rows, names)?;
    let networks = loader.networks().await?.into_seen();
    let mut all = Vec::new();
    for row in &rows {
        let facts = registry::facts(&mut loader, row, access).await?;
        loader.warnings.extend(warning(&facts));
        all.push(facts);
    }
    let registries = registry_lines(&all, &networks, clock::timestamp());
    let report = Report::RegistryList { registries };
    output::finish(
        &loader,
        &report,
        global.output,
        output::list_style(global, list),
    )
}

/// That a registry cannot be read. A missing permission has its own warning.
fn warning(facts: &RegistryFacts) -> Option<String> {
    let unread = facts.records.as_ref().err()?;
    if unread.missing.is_some() {
        return None;
    }
    Some(format!(
        "the records of IPRegistry {} cannot be read ({}); clusters and networks are as the manager has reported them",
        facts.row.name, unread.reason
    ))
}

/// The registries with these names, in their order; all without names.
fn named(rows: Vec<RegistryRow>, names: &[String]) -> Result<Vec<RegistryRow>, Error> {
    if names.is_empty() {
        return Ok(rows);
    }
    let mut found = Vec::new();
    for name in names {
        let Some(row) = rows.iter().find(|row| row.name == *name) else {
            return Err(Error::NoRegistry { name: name.clone() });
        };
        found.push(row.clone());
    }
    Ok(found)
}
