//! `pools`: the pools with their occupancy, once or as they change.

use crate::cli::{Global, ListFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::{Loader, Selected};
use crate::model::{Report, pools};
use crate::objects::{ClaimRow, PoolRow};
use crate::output;

pub(super) async fn run(
    global: &Global,
    names: &[String],
    list: &ListFlags,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let report = report(&mut loader, global, names, list).await?;
    let style = output::list_style(global, list);
    output::finish(&loader, &report, global.output, style)
}

async fn report(
    loader: &mut Loader<'_>,
    global: &Global,
    names: &[String],
    list: &ListFlags,
) -> Result<Report, Error> {
    if let Some(labels) = &list.selector {
        loader.selected = Selected::Pools(labels.clone());
    }
    let namespace = global.listed_namespace(&loader.cluster.namespace);
    let rows = if names.is_empty() {
        let rows = loader.pools(namespace).await?.listed("pools")?;
        // Nothing found can mean that the namespace is misspelt.
        if let Some(namespace) = namespace
            && !rows.iter().any(|row| row.key.namespace.is_some())
        {
            loader.require_namespace(namespace).await?;
        }
        rows
    } else {
        named(loader, names).await?
    };
    // Claims of all namespaces wait for global pools.
    let waiting = loader.claims(None, ClaimRow::is_waiting).await?;
    Ok(Report::PoolList {
        pools: pools(&rows, &waiting.as_ref()),
    })
}

/// The pools with these names, in their order.
async fn named(loader: &mut Loader<'_>, names: &[String]) -> Result<Vec<PoolRow>, Error> {
    let mut rows = Vec::new();
    for name in names {
        rows.push(loader.find_pool(name).await?);
    }
    Ok(rows)
}
