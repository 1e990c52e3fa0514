//! `show`: a pool with everything that it contains. It reads lists of the whole cluster; as text, the
//! specification is printed before.

use capi_ipam_api::PoolKey;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::{Ledger, Outcome};

use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{Fact, PoolDetails, Report, show, specification};
use crate::objects::{Kind, PoolRow};
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
    loader.read_supply(pool).await?;
    loader
        .read(&[Kind::Claim], pool.namespace_of_users())
        .await?;
    let mut ledger = loader.ledger.take().unwrap_or_default();
    let mut shown = show(pool, &loader.objects, &ledger);
    if pool.spec.slices().is_none() {
        shown.next = match shown.counts.free {
            Some(_) => next_addresses(&mut ledger, &pool.key),
            None => Fact::Unknown,
        };
    }
    Ok(shown)
}

/// The addresses that the pool allocates next. With slices, they depend on the owner of the claim.
fn next_addresses(ledger: &mut Ledger, pool: &PoolKey) -> Fact<Vec<String>> {
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
