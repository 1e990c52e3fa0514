//! The gateways of pools, and those of their IPAddresses. A machine configures what its IPAddress
//! had when it was created; a change of the pool does not reach it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use capi_ipam_api::PoolKey;
use capi_ipam_ip::{UsableBlocks, parse_address};

use super::examination::Examination;
use super::names::first_names;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, edit};
use crate::objects::{AddressRow, Kind, Objects};

/// Gateways that machines cannot use. Admission only warns about them, and nobody reads a warning
/// of a GitOps tool.
pub(super) fn unusable(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    Examination::inspect(objects.pools(), objects.lacking(&Kind::POOLS), |pool| {
        let repair = "correct the gateway, and then replace the machines that have it, which OutdatedGateway names";
        let finding = |warning| {
            Check::UnusableGateway
                .finding(&pool.key, warning, repair.to_owned())
                .with_commands(vec![edit(&pool.key)])
        };
        pool.unusable_gateways().into_iter().map(finding).collect()
    })
}

/// What an IPAddress has, and what the pool would give it now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    /// Two gateways; `None` for an IPAddress, or a pool, without one.
    Gateway(Option<Box<str>>, Option<IpAddr>),
    /// Two prefix lengths.
    Prefix(Option<u8>, u8),
}

impl Difference {
    /// `have another gateway than the pool (10.98.0.1, the pool has 10.99.1.1)`, of this many
    /// IPAddresses.
    fn describe(&self, count: usize) -> String {
        let have = if count == 1 { "has" } else { "have" };
        let number = |prefix: &u8| format!("/{prefix}");
        let (noun, one, other) = match self {
            Self::Gateway(one, other) => (
                "gateway",
                one.as_ref().map(ToString::to_string),
                other.as_ref().map(ToString::to_string),
            ),
            Self::Prefix(one, other) => (
                "prefix length",
                one.as_ref().map(number),
                Some(number(other)),
            ),
        };
        let (one, other) = (or_none(one), or_none(other));
        format!("{have} another {noun} than the pool ({one}, the pool has {other})")
    }
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "none".to_owned())
}

/// IPAddresses that have another gateway, or another prefix length, than their pool.
pub(super) fn outdated(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let lacking = objects.lacking_of_pools_and(&[Kind::Address]);
    Examination::compare(lacking, || outdated_of(objects))
}

fn outdated_of(objects: &Objects) -> Vec<Finding> {
    let mut groups: BTreeMap<(&PoolKey, Difference), Vec<&AddressRow>> = BTreeMap::new();
    for address in objects.addresses.sorted() {
        let pool = objects.pool(&address.pool);
        let Some(Ok(usable)) = pool.map(|pool| &pool.usable) else {
            continue;
        };
        for difference in differences(address, usable) {
            let group = (&address.pool, difference);
            groups.entry(group).or_default().push(address);
        }
    }
    let finding = |((pool, difference), addresses): ((&PoolKey, Difference), Vec<&AddressRow>)| {
        let number = addresses.len();
        let noun = if number == 1 {
            "IPAddress"
        } else {
            "IPAddresses"
        };
        let problem = format!(
            "{number} {noun} {}: {}",
            difference.describe(number),
            first_names(addresses.iter().map(|address| &address.key))
        );
        let repair = "replace the machines of these claims, which keep what their IPAddress has; or set the value of the \
                      pool again";
        Check::OutdatedGateway
            .finding(pool, problem, repair.to_owned())
            .with_commands(vec![edit(pool)])
    };
    groups.into_iter().map(finding).collect()
}

/// What an IPAddress does not have of its pool. What the pool no longer contains is another
/// finding, and an IPAddress in deletion goes away.
fn differences(address: &AddressRow, usable: &UsableBlocks) -> Vec<Difference> {
    let mut all = Vec::new();
    if address.deletion.is_some() || !usable.contains(address.block) {
        return all;
    }
    let gateway = usable.gateway_of(address.block);
    let own = address.gateway.as_deref().map(parse_address);
    let is_same = match (&own, gateway) {
        (None, None) => true,
        (Some(Ok(own)), Some(gateway)) => *own == gateway,
        _ => false,
    };
    if !is_same {
        all.push(Difference::Gateway(address.gateway.clone(), gateway));
    }
    let prefix = usable.prefix_of(address.block);
    if address.prefix != Some(prefix) {
        all.push(Difference::Prefix(address.prefix, prefix));
    }
    all
}
