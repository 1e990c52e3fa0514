//! `claims`: the claims with their addresses, also those that no provider serves.

use capi_ipam_controller::namespaced_name::NamespacedName;

use super::watch::{self, Reading};
use crate::cli::{Global, ListFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::input::{PoolText, parse_claim};
use crate::load::Loader;
use crate::model::{ClaimLine, ClaimState, Report, claims};
use crate::objects::{Cause, ClaimRow, Kind, Objects};
use crate::output;
use crate::render::Style;

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
    /// Whether a claim is listed. One that another provider has bound is listed only if it is named.
    fn includes(&self, claim: &ClaimRow) -> bool {
        let mut wanted = self.names.iter();
        let is_named = wanted.any(|name| has_name(&claim.key, name));
        let has_pool = match &claim.pool {
            Ok(named) => {
                let wanted = self.pool.map(PoolText::parse);
                wanted.is_none_or(|text| text.matches_named(named))
            }
            Err(pool) => {
                let is_bound = claim.bound.is_some() && pool.cause == Cause::OtherProvider;
                (is_named || !is_bound) && self.pool.is_none_or(|name| pool.is_named(name))
            }
        };
        has_pool
            && (self.names.is_empty() || is_named)
            && (!self.only_waiting || claim.is_waiting())
            && (self.cluster.is_none() || self.cluster == claim.cluster.as_deref())
    }

    /// Fails if no claim has one of the names.
    fn require_all(&self, objects: &Objects, namespace: Option<&str>) -> Result<(), Error> {
        for name in self.names {
            let mut claims = objects.claims.iter();
            if !claims.any(|claim| has_name(&claim.key, name)) {
                let place = place(namespace);
                return Err(Error::NotFound(format!(
                    "claim {name} does not exist in {place}; list the claims with: kubectl ipam claims -A"
                )));
            }
        }
        Ok(())
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

/// Whether a claim has the name that a user wrote. A name without a namespace is that of a claim of
/// any listed one.
fn has_name(claim: &NamespacedName, wanted: &str) -> bool {
    match wanted.split_once('/') {
        Some((namespace, name)) => claim.parts() == (namespace, name),
        None => claim.name() == wanted,
    }
}

/// Where claims were searched.
pub(super) fn place(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("the namespace {namespace}"),
        None => "all namespaces".to_owned(),
    }
}

pub(super) async fn run(
    global: &Global,
    wanted: &Wanted<'_>,
    watch: bool,
    list: &ListFlags,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let namespace = wanted.namespace(global.listed_namespace(&cluster.namespace))?;
    let style = Style {
        // Names of several namespaces can be listed, too.
        namespaces: namespace.is_none(),
        ..output::list_style(global, list)
    };
    watch::print(global, style, watch, async || {
        let mut loader = Loader::new(&cluster);
        let report = report(&mut loader, namespace, wanted, list).await?;
        Ok(Reading::of(&loader, report))
    })
    .await
}

async fn report(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
    wanted: &Wanted<'_>,
    list: &ListFlags,
) -> Result<Report, Error> {
    loader.select(&[Kind::Claim], list);
    loader.read(&[Kind::Claim], namespace).await?;
    // A claim that is named has to exist, whatever the other flags select.
    let missing = wanted.require_all(&loader.objects, namespace);
    let found = lines(&loader.objects, |it| wanted.includes(it));
    if found.is_empty() || missing.is_err() {
        // What may not be read is unknown, not missing.
        if missing.is_err() || wanted.names.is_empty() {
            loader.require_known(&[Kind::Claim], || "the list of claims".to_owned())?;
        }
        loader.require_namespace(namespace).await?;
        missing?;
        let is_set = |pool: &&str| matches!(PoolText::parse(pool).kind, Some(Kind::PoolSet(_)));
        let pool = wanted.pool.filter(|pool| !is_set(pool));
        if let Some(pool) = pool.filter(|_| namespace.is_some()) {
            loader.find_pool(pool).await?;
        }
    } else if found.iter().any(|it| it.state != ClaimState::Unserved) && !wanted.only_waiting {
        // A waiting claim has no address.
        loader.read(&[Kind::Address], namespace).await?;
    }
    Ok(Report::ClaimList {
        claims: lines(&loader.objects, |it| wanted.includes(it)),
    })
}

/// The lines of all claims, by namespace and name.
pub(super) fn all(objects: &Objects) -> Vec<ClaimLine> {
    lines(objects, |_| true)
}

/// The lines of selected claims, by namespace and name.
fn lines(objects: &Objects, is_selected: impl Fn(&ClaimRow) -> bool) -> Vec<ClaimLine> {
    let mut rows = objects.claims.sorted();
    rows.retain(|claim| is_selected(claim));
    claims(rows, objects)
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
    loader
        .read(&[Kind::Claim, Kind::Address], in_namespace)
        .await?;
    let found = lines(&loader.objects, |it| belongs_to(it, name));
    if found.is_empty() {
        loader.require_known(&[Kind::Claim], || format!("which claims {text} has"))?;
        return Err(Error::NoClaim {
            name: text.to_owned(),
            place: place(in_namespace),
        });
    }
    Ok(found)
}

/// Whether a claim, its machine or its Cluster has a name.
fn belongs_to(claim: &ClaimRow, name: &str) -> bool {
    let machine = claim.machine.as_deref().unwrap_or_default();
    // A machine is a kind and a name.
    let machine = machine.rsplit_once('/').map_or(machine, |(_, name)| name);
    claim.key.name() == name || machine == name || claim.cluster.as_deref() == Some(name)
}
