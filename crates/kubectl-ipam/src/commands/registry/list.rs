//! `registry list`: the registries, the management clusters that use them, and their blocks.

use capi_ipam_controller::clock;

use crate::cli::{ListFlags, RegistryAccess};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{RegistryFacts, Report, registry_lines};
use crate::objects::{Kind, RegistryRow};
use crate::registry;

pub(super) async fn report(
    loader: &mut Loader<'_>,
    names: &[String],
    list: &ListFlags,
    access: &RegistryAccess,
) -> Result<Report, Error> {
    loader.select(&[Kind::Registry], list);
    loader.read(&[Kind::Registry, Kind::Network], None).await?;
    let rows = loader.objects.registries.sorted();
    let mut rows: Vec<RegistryRow> = rows.into_iter().cloned().collect();
    loader.require_some(&[Kind::Registry], rows.is_empty(), "registries")?;
    if !names.is_empty() {
        rows.clear();
    }
    for name in names {
        let found = loader.objects.registry(name).cloned();
        rows.push(found.ok_or_else(|| Error::NoRegistry { name: name.clone() })?);
    }
    let mut all = Vec::new();
    for row in &rows {
        let facts = registry::facts(loader, row, access).await?;
        loader.warnings.extend(warning(&facts));
        all.push(facts);
    }
    let networks = loader.objects.networks.sorted();
    let registries = registry_lines(&all, &networks, clock::timestamp());
    Ok(Report::RegistryList { registries })
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
