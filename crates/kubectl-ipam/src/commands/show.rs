//! `show`: a pool with everything that it contains. It reads lists of the whole cluster; as text, the
//! specification is printed before.

use std::collections::HashSet;

use capi_ipam_api::PoolKey;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::{Ledger, Outcome};

use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::{Loader, Readable};
use crate::model::{Fact, PoolDetails, Report, show, specification};
use crate::objects::{ClaimRow, PoolRow, SliceRow};
use crate::output;
use crate::render::{self, Style};

/// The number of next addresses that are shown.
const MAX_NEXT: i64 = 5;

pub(super) async fn run(global: &Global, pool: &str) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let style = output::style(global);
    let mut loader = Loader::new(&cluster);
    let pool = loader.find_pool(pool).await?;
    if output::is_text(global.output) {
        return print(&mut loader, &pool, style).await;
    }
    let details = details(&mut loader, &pool).await?;
    let report = Report::PoolDetails(Box::new(details));
    output::finish(&loader, &report, global.output, style)
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
    let mut shown = show(
        pool,
        &supply.ledger.as_ref(),
        &supply.pools.as_ref().map(Vec::as_slice),
        &supply.addresses,
        &supply.reservations,
        &slices,
        &claims,
    );
    if pool.spec.slices().is_none() {
        shown.next = next_addresses(supply.into_ledger(), &pool.key);
    }
    Ok(shown)
}

/// The addresses that the pool allocates next. With slices, they depend on the owner of the claim.
fn next_addresses(ledger: Readable<Ledger>, pool: &PoolKey) -> Fact<Vec<String>> {
    if !ledger.is_complete() {
        return Fact::Unknown;
    }
    let mut ledger = ledger.into_seen();
    let mut addresses = Vec::new();
    for number in 0..MAX_NEXT {
        // Each proposal holds its address for a claim that does not exist, in a namespace without
        // another address.
        let claim = NamespacedName::new(&format!("-{number}"), "");
        match ledger.propose(pool, &claim, number) {
            Outcome::Offer(slot) => addresses.push(slot.block.to_string()),
            _ => break,
        }
    }
    if addresses.is_empty() {
        return Fact::Absent;
    }
    Fact::Known(addresses)
}
