//! `networks`: the networks, with their pools that join or leave.

use crate::cli::{Global, ListFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::{Loader, Selected};
use crate::model::{Report, network_lines};
use crate::objects::NetworkRow;
use crate::output;

pub(super) async fn run(
    global: &Global,
    names: &[String],
    list: &ListFlags,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let report = report(&mut loader, names, list).await?;
    let style = output::list_style(global, list);
    output::finish(&loader, &report, global.output, style)
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
    Ok(Report::NetworkList {
        networks: network_lines(&rows),
    })
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
