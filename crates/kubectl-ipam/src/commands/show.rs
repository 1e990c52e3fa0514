//! `show`: a pool with everything that it contains. It reads lists of the whole cluster; as text, the
//! specification is printed before.

use std::collections::HashMap;

use capi_ipam_api::{PoolKey, Scope};

use super::watch::{self, LIST_INTERVAL, Reading};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::{Loader, Readable};
use crate::model::{PoolDetails, Report, show, specification};
use crate::objects::{PoolRow, SliceRow};
use crate::output;
use crate::render::{self, Style};

pub(super) async fn run(global: &Global, pool: &str, watch: bool) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let style = output::style(global);
    if !watch && output::is_text(global.output) {
        let mut loader = Loader::new(&cluster);
        let pool = loader.find_pool(pool).await?;
        return print(&mut loader, &pool, style).await;
    }
    watch::print(global, style, watch.then_some(LIST_INTERVAL), async || {
        let mut loader = Loader::new(&cluster);
        let pool = loader.find_pool(pool).await?;
        let details = details(&mut loader, &pool).await?;
        let report = Report::PoolDetails(Box::new(details));
        Ok(Reading::of(&loader, report))
    })
    .await
}

/// Prints a pool: first its specification, then what is computed from all IPAddresses, reservations
/// and claims.
async fn print(loader: &mut Loader<'_>, pool: &PoolRow, style: Style) -> Result<Code, Error> {
    output::print(&render::head(&specification(pool)))?;
    let details = details(loader, pool).await?;
    output::print(&render::body(&details, style))?;
    output::print(&render::incomplete(&loader.sentences()))?;
    // The text has the missing permissions.
    loader.warnings.iter().for_each(|text| output::warn(text));
    Ok(output::code(loader))
}

/// A pool with everything that it contains.
async fn details(loader: &mut Loader<'_>, pool: &PoolRow) -> Result<PoolDetails, Error> {
    // Pools of other namespaces matter only for a network.
    let is_alone = pool.network.is_none();
    let all = if is_alone {
        Readable::complete(vec![pool.clone()])
    } else {
        loader.pools(None).await?
    };
    let scopes: HashMap<&PoolKey, &Scope> = all
        .seen()
        .iter()
        .map(|pool| (&pool.key, &pool.scope))
        .collect();
    let is_here = |key: &PoolKey| {
        *key == pool.key || scopes.get(key).is_some_and(|scope| **scope == pool.scope)
    };
    let namespace = pool.namespace_of_users();
    let addresses = loader
        .addresses_in(namespace, |row| is_here(&row.pool))
        .await?;
    let reservations = loader
        .reservations(|row| row.slot.scope == pool.scope)
        .await?;
    let claims = loader.claims(namespace, |row| is_here(&row.pool)).await?;
    let is_own = |row: &SliceRow| row.is_of(&pool.key);
    let has_slices = pool.spec.slices().is_some();
    let slices = if has_slices {
        loader.slices(is_own).await?
    } else {
        Readable::complete(Vec::new())
    };
    // Which addresses are in the network depends on its pools.
    let addresses = addresses.depends_on(&all);
    let pools = all.as_ref().map(Vec::as_slice);
    Ok(show(
        pool,
        &pools,
        &addresses,
        &reservations,
        &slices,
        &claims,
    ))
}
