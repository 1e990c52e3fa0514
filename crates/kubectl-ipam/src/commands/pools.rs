//! `pools`: the pools with their occupancy, once or as they change.

use crate::cli::{Global, ListFlags};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{Report, pools};
use crate::objects::{Kind, PoolRow};

pub(super) async fn report(
    loader: &mut Loader<'_>,
    global: &Global,
    names: &[String],
    list: &ListFlags,
) -> Result<Report, Error> {
    loader.select(&Kind::POOLS, list);
    let namespace = global.listed_namespace(&loader.cluster.namespace);
    let mut keys = Vec::new();
    if names.is_empty() {
        loader.read(&Kind::POOLS, namespace).await?;
        let rows = loader.objects.pools();
        loader.require_some(&Kind::POOLS, rows.is_empty(), "pools")?;
        keys.extend(rows.iter().map(|row| row.key.clone()));
        if !keys.iter().any(|key| key.namespace.is_some()) {
            loader.require_namespace(namespace).await?;
        }
    }
    for name in names {
        keys.push(loader.find_pool(name).await?.key);
    }
    // Claims of all namespaces wait for global pools.
    loader.read(&[Kind::Claim], None).await?;
    let objects = &loader.objects;
    let rows: Vec<&PoolRow> = keys.iter().filter_map(|key| objects.pool(key)).collect();
    Ok(Report::PoolList {
        pools: pools(&rows, objects, objects.served()),
    })
}
