//! `show`: a pool with everything that it contains. It reads lists of the whole cluster; as text, the
//! specification is printed before.

use std::collections::HashSet;

use capi_ipam_api::PoolKey;

use super::watch::{self, LIST_INTERVAL, Reading};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::{Loader, Readable};
use crate::model::{PoolDetails, Report, show, specification};
use crate::objects::{ClaimRow, PoolRow, SliceRow};
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
    let supply = loader.supply(pool).await?;
    let pools = supply.pools.seen().iter();
    let members = pools.filter(|other| other.scope == pool.scope);
    let members: HashSet<&PoolKey> = members.map(|pool| &pool.key).collect();
    let is_here = |row: &ClaimRow| row.pool == pool.key || members.contains(&row.pool);
    let claims = loader.claims(pool.namespace_of_users(), is_here).await?;
    let is_own = |row: &SliceRow| row.is_of(&pool.key);
    let slices = if pool.spec.slices().is_some() {
        loader.slices(is_own).await?
    } else {
        Readable::complete(Vec::new())
    };
    Ok(show(
        pool,
        &supply.ledger.as_ref(),
        &supply.pools.as_ref().map(Vec::as_slice),
        &supply.addresses,
        &supply.reservations,
        &slices,
        &claims,
    ))
}
