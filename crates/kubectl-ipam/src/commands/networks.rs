//! `networks`: the networks, with their pools that join or leave.

use super::watch::{self, LIST_INTERVAL, Reading};
use crate::cli::{Global, ListFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::{Loader, Selected};
use crate::model::{Report, network_lines};
use crate::objects::NetworkRow;
use crate::output;
use crate::sort::sort_by;

pub(super) async fn run(
    global: &Global,
    names: &[String],
    watch: bool,
    list: &ListFlags,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let style = output::list_style(global, list);
    watch::print(global, style, watch.then_some(LIST_INTERVAL), async || {
        let mut loader = Loader::new(&cluster);
        let report = report(&mut loader, names, list).await?;
        Ok(Reading::of(&loader, report))
    })
    .await
}

async fn report(
    loader: &mut Loader<'_>,
    names: &[String],
    list: &ListFlags,
) -> Result<Report, Error> {
    if let Some(labels) = &list.selector {
        loader.selected = Selected::Networks(labels.clone());
    }
    let rows = loader.networks().await?.listed("networks")?;
    let rows = if names.is_empty() {
        rows
    } else {
        named(&rows, names)?
    };
    let networks = sort_by(network_lines(&rows), list.sort_by.as_deref())?;
    Ok(Report::NetworkList { networks })
}

/// The networks with these names, in their order.
fn named(rows: &[NetworkRow], names: &[String]) -> Result<Vec<NetworkRow>, Error> {
    let mut found = Vec::new();
    for name in names {
        let Some(row) = rows.iter().find(|row| row.name == *name) else {
            return Err(Error::NoNetwork { name: name.clone() });
        };
        found.push(row.clone());
    }
    Ok(found)
}
