//! `claims`: the claims with their addresses, also those that no provider serves.

use crate::cli::{Global, ListFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::input::matches;
use crate::load::{Claims, Loader, Readable, Selected};
use crate::model::{ClaimLine, Report, claims};
use crate::objects::ClaimRow;
use crate::output;
use crate::sort::sort_by;

pub(super) async fn run(
    global: &Global,
    only_waiting: bool,
    pool: Option<&str>,
    list: &ListFlags,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    if let Some(labels) = &list.selector {
        loader.selected = Selected::Claims(labels.clone());
    }
    let namespace = global.listed_namespace(&cluster.namespace);
    let lines = lines(&mut loader, namespace, only_waiting, pool).await?;
    let claims = sort_by(lines, list.sort_by.as_deref())?;
    output::finish(
        &loader,
        &Report::ClaimList { claims },
        global.output,
        output::list_style(global, list),
    )
}

async fn lines(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
    only_waiting: bool,
    pool: Option<&str>,
) -> Result<Vec<ClaimLine>, Error> {
    let wanted = |claim: &ClaimRow| {
        (!only_waiting || claim.is_waiting()) && pool.is_none_or(|pool| matches(&claim.pool, pool))
    };
    let found = loader.all_claims(namespace, wanted).await?;
    let is_empty = found.seen().served.is_empty() && found.seen().unserved.is_empty();
    if is_empty {
        // An empty list of which nothing may be read is unknown.
        found.require(|| "the list of claims".to_owned())?;
        return Ok(Vec::new());
    }
    let Claims {
        served,
        mut unserved,
    } = found.into_seen();
    unserved.retain(|claim| {
        pool.is_none_or(|pool| claim.has_pool(pool)) && (!only_waiting || !claim.deleting)
    });
    // A waiting claim has no address.
    let addresses = if only_waiting || served.is_empty() {
        Readable::complete(Vec::new())
    } else {
        loader.addresses_in(namespace, |_| true).await?
    };
    Ok(claims(served, &unserved, &addresses.as_ref()))
}
