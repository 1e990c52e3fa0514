//! The gateways of pools, and those of their IPAddresses. A machine configures what its IPAddress
//! had when it was created; a change of the pool does not reach it.

use capi_ipam_api::counted;
use capi_ipam_ip::{UsableBlocks, parse_address};

use super::examination::Examination;
use super::names::{first_names, grouped};
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Subject, edit};
use crate::objects::{AddressRow, Kind, Objects, PoolRow};

/// Gateways that machines cannot use. Admission only warns about them, and nobody reads a warning
/// of a GitOps tool.
pub(super) fn unusable(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    Examination::inspect(objects.pools(), objects.lacking(&Kind::POOLS), |pool| {
        let repair = "correct the gateway, and then replace the machines that have it, which OutdatedGateway names";
        let warnings = pool.unusable_gateways().into_iter();
        warnings.map(move |warning| of_pool(Check::UnusableGateway, pool, warning, repair))
    })
}

/// A finding that is repaired in the pool.
fn of_pool(check: Check, pool: &PoolRow, problem: String, repair: &str) -> Finding {
    check
        .finding(Subject::pool(&pool.key), problem, repair)
        .with_commands([edit(&pool.key)])
}

/// What an IPAddress has, and what the pool would give it now; `None` for nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Difference {
    noun: &'static str,
    own: Option<String>,
    of_pool: Option<String>,
}

impl Difference {
    /// `another gateway than the pool (10.98.0.1, the pool has 10.99.1.1)`.
    fn describe(&self) -> String {
        let own = self.own.as_deref().unwrap_or("none");
        let of_pool = self.of_pool.as_deref().unwrap_or("none");
        let noun = self.noun;
        format!("another {noun} than the pool ({own}, the pool has {of_pool})")
    }
}

/// IPAddresses that have another gateway, or another prefix length, than their pool.
pub(super) fn outdated(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let lacking = objects.lacking_of_pools_and(&[Kind::Address]);
    Examination::compare(lacking, || outdated_of(objects))
}

fn outdated_of(objects: &Objects) -> Vec<Finding> {
    let mut all = Vec::new();
    for address in objects.addresses.sorted() {
        if let Some(pool) = objects.pool(&address.pool)
            && let Ok(usable) = &pool.usable
        {
            let differences = differences(address, usable).into_iter();
            all.extend(differences.map(|difference| (pool, difference, address)));
        }
    }
    let groups = grouped(all, |(pool, difference, _)| (&pool.key, difference.clone()));
    let mut findings = Vec::new();
    for ((_, difference), group) in groups {
        let problem = format!(
            "{} {}: {}",
            counted(group.len(), "IPAddress has", "IPAddresses have"),
            difference.describe(),
            first_names(group.iter().map(|(_, _, address)| &address.key))
        );
        let repair = "replace the machines of these claims, which keep what their IPAddress has; or set the value of the \
                      pool again";
        let pool = group.first().map(|(pool, ..)| *pool);
        findings.extend(pool.map(|pool| of_pool(Check::OutdatedGateway, pool, problem, repair)));
    }
    findings
}

/// What an IPAddress does not have of its pool. What the pool no longer contains is another
/// finding, and an IPAddress in deletion goes away.
fn differences(address: &AddressRow, usable: &UsableBlocks) -> Vec<Difference> {
    let mut all = Vec::new();
    if address.deletion.is_some() || !usable.contains(address.block) {
        return all;
    }
    let gateway = usable.gateway_of(address.block);
    let own = address.gateway.as_deref();
    // One that is no address is another one.
    let is_same = own.map(|own| parse_address(own).ok()) == gateway.map(Some);
    if !is_same {
        all.push(Difference {
            noun: "gateway",
            own: own.map(str::to_owned),
            of_pool: gateway.map(|gateway| gateway.to_string()),
        });
    }
    let prefix = usable.prefix_of(address.block);
    if address.prefix != Some(prefix) {
        all.push(Difference {
            noun: "prefix length",
            own: address.prefix.map(|prefix| format!("/{prefix}")),
            of_pool: Some(format!("/{prefix}")),
        });
    }
    all
}
