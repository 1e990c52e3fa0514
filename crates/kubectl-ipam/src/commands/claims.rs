//! `claims`: the claims with their addresses, also those that no provider serves.

use crate::cli::{Global, ListFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::input::{PoolText, matches, parse_claim};
use crate::load::{Claims, Loader, Readable, Selected};
use crate::model::{ClaimLine, Report, claims};
use crate::objects::{ClaimRow, UnservedClaim};
use crate::output;
use crate::sort::sort_by;

/// Which claims are listed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted<'a> {
    /// Only these: `NAME` or `NAMESPACE/NAME`. Empty for all.
    pub(super) names: &'a [String],
    pub(super) only_waiting: bool,
    /// Only those of this pool.
    pub(super) pool: Option<&'a str>,
    /// Only those of this Cluster.
    pub(super) cluster: Option<&'a str>,
}

impl Wanted<'_> {
    fn includes(&self, claim: &ClaimRow) -> bool {
        let (namespace, name) = claim.key.parts();
        (!self.only_waiting || claim.is_waiting())
            && self.pool.is_none_or(|pool| matches(&claim.pool, pool))
            && self.is_of_cluster(claim.cluster.as_deref())
            && self.is_named(namespace, name)
    }

    /// The same for a claim that no provider serves.
    fn includes_unserved(&self, claim: &UnservedClaim) -> bool {
        let (namespace, name) = claim.key.parts();
        (!self.only_waiting || !claim.deleting)
            && self.pool.is_none_or(|pool| claim.has_pool(pool))
            && self.is_of_cluster(claim.cluster.as_deref())
            && self.is_named(namespace, name)
    }

    fn is_of_cluster(&self, cluster: Option<&str>) -> bool {
        self.cluster.is_none() || self.cluster == cluster
    }

    /// A name without a namespace is that of a claim of any listed one.
    fn is_named(&self, namespace: &str, name: &str) -> bool {
        let is_this = |wanted: &String| match wanted.split_once('/') {
            Some((in_namespace, wanted)) => in_namespace == namespace && wanted == name,
            None => wanted == name,
        };
        self.names.is_empty() || self.names.iter().any(is_this)
    }

    /// The namespace to list: that of the names if they have one.
    fn namespace<'n>(&'n self, listed: Option<&'n str>) -> Result<Option<&'n str>, Error> {
        let mut namespaces = Vec::new();
        for name in self.names {
            parse_claim(name, "default")?;
            namespaces.extend(name.split_once('/').map(|(namespace, _)| namespace));
        }
        if let Some(pool) = self.pool {
            namespaces.extend(PoolText::parse(pool).namespace);
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        Ok(match namespaces.as_slice() {
            [] => listed,
            [one] => Some(one),
            _ => None,
        })
    }
}

pub(super) async fn run(
    global: &Global,
    wanted: &Wanted<'_>,
    list: &ListFlags,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    if let Some(labels) = &list.selector {
        loader.selected = Selected::Claims(labels.clone());
    }
    let namespace = wanted.namespace(global.listed_namespace(&cluster.namespace))?;
    let lines = lines(&mut loader, namespace, wanted).await?;
    // Nothing found can mean that the pool is misspelt.
    if lines.is_empty()
        && namespace.is_some()
        && let Some(pool) = wanted.pool
    {
        loader.find_pool(pool).await?;
    }
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
    wanted: &Wanted<'_>,
) -> Result<Vec<ClaimLine>, Error> {
    let found = loader
        .all_claims(namespace, |claim| wanted.includes(claim))
        .await?;
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
    unserved.retain(|claim| wanted.includes_unserved(claim));
    // A waiting claim has no address.
    let addresses = if wanted.only_waiting || served.is_empty() {
        Readable::complete(Vec::new())
    } else {
        loader.addresses_in(namespace, |_| true).await?
    };
    Ok(claims(served, &unserved, &addresses.as_ref()))
}

/// The claims that have a name, or whose machine or Cluster has it, with their addresses.
pub(super) async fn named(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
    text: &str,
) -> Result<Vec<ClaimLine>, Error> {
    let (in_namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (namespace, text),
    };
    let is_named = |claim: &ClaimRow| {
        let machine = claim.machine.as_deref().unwrap_or_default();
        // A machine is a kind and a name.
        let machine = machine.rsplit_once('/').map_or(machine, |(_, name)| name);
        claim.key.name() == name || machine == name || claim.cluster.as_deref() == Some(name)
    };
    let found = loader.claims(in_namespace, is_named).await?;
    if found.seen().is_empty() {
        found.require(|| format!("which claims {text} has"))?;
        return Err(Error::NoClaim {
            name: text.to_owned(),
            place: match in_namespace {
                Some(namespace) => format!("the namespace {namespace}"),
                None => "all namespaces".to_owned(),
            },
        });
    }
    let addresses = loader.addresses_in(in_namespace, |_| true).await?;
    Ok(claims(found.into_seen(), &[], &addresses.as_ref()))
}
