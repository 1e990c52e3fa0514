use capi_ipam_api::{AddressMetadata, NamespaceSource, PoolSpec, ReclaimPolicy, SlicePolicy};
use capi_ipam_ledger::Ledger;
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolName;
use super::claims::{ClaimLine, claims};
use super::contents::contents;
use super::fact::{Fact, list};
use super::finding::Check;
use super::holders::{Holder, holders};
use super::map::{Content, OccupancyMap, map};
use super::pools::{KnownCounts, readiness};
use super::slices::{SliceLine, pool_slices};
use crate::objects::{Kind, Objects, PoolRow};

/// A pool with everything that it contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolDetails {
    /// The pool.
    pub pool: PoolName,
    /// The network of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Status of the condition Ready.
    pub ready: String,
    /// Why the pool is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The problems of the specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Messages of other conditions that report a problem.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The entries of the pool.
    pub ranges: Vec<String>,
    /// The excluded entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    /// The gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Prefix length of the subnet, or the length of allocated prefixes.
    pub prefix_length: i64,
    /// Further entries in other subnets, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more_ranges: Vec<String>,
    /// The draining parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<String>,
    /// Seconds before a released address can be reused.
    pub cooldown_seconds: i64,
    /// Order of allocation: `LowestFirst`, `RoundRobin` or `Random`.
    pub order: String,
    /// Whether a claim gets the address back that the last claim of its name had.
    pub sticky: bool,
    /// Whether claims may request an address.
    pub requests: bool,
    /// When the addresses of claims that are being deleted are released, and whether addresses are
    /// verified.
    #[serde(skip_serializing_if = "is_default")]
    pub reclaim: ReclaimPolicy,
    /// How the pool is divided into slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice_policy: Option<SlicePolicy>,
    /// Keys of the labels and annotations in `spec.addressMetadata`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub address_metadata: Vec<String>,
    /// Who may use a global pool, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<String>,
    /// Counts of the listed objects.
    pub counts: KnownCounts,
    /// The addresses or prefixes that the pool allocates next; of a pool with the order `Random`, some of
    /// them. Omitted if there are none, or if they depend on the owner of the claim; `null` if they are
    /// unknown.
    #[serde(skip_serializing_if = "Fact::is_absent")]
    pub next: Fact<Vec<String>>,
    /// The slices of the pool, in the order of their addresses; `null` if they may not be read.
    #[serde(skip_serializing_if = "is_empty_list")]
    pub slices: Option<Vec<SliceLine>>,
    /// The map; omitted if the specification is invalid or has no addresses, and `null` if the
    /// IPAddresses or the reservations of the pool may not be read.
    #[serde(skip_serializing_if = "Fact::is_absent")]
    pub map: Fact<OccupancyMap>,
    /// What holds addresses of the pool; `null` if it may not be read.
    pub holders: Option<Vec<Holder>>,
    /// What holds addresses that the pool does not contain; `null` if it may not be read.
    #[serde(skip_serializing_if = "is_empty_list")]
    pub out_of_range: Option<Vec<Holder>>,
    /// Claims that wait for an address, the first one first; `null` if they may not be read.
    #[serde(skip_serializing_if = "is_empty_list")]
    pub waiting: Option<Vec<ClaimLine>>,
}

#[expect(clippy::ref_option, reason = "serde asks for a reference")]
fn is_empty_list<T>(list: &Option<Vec<T>>) -> bool {
    list.as_ref().is_some_and(Vec::is_empty)
}

fn is_default(policy: &ReclaimPolicy) -> bool {
    *policy == ReclaimPolicy::default()
}

/// Describes a pool. The ledger has the same objects.
pub(crate) fn show(pool: &PoolRow, objects: &Objects, ledger: &Ledger) -> PoolDetails {
    let contents = contents(pool, objects, ledger);
    let slice_size = pool.spec.slices().map(|slices| slices.size);
    let map = match (contents.usable(), Content::of(&contents, slice_size)) {
        (None, _) => Fact::Absent,
        (Some(_), None) => Fact::Unknown,
        (Some(_), Some(content)) => Fact::Known(map(&content)),
    };
    let inside = contents.inside.iter().copied();
    let inside = holders(objects, inside, contents.reserved.iter().copied());
    let outside = holders(objects, contents.outside.iter().copied(), []);
    let has_all = contents.held.is_some();
    let mut waiting = objects.served();
    waiting.retain(|claim| claim.is_waiting() && claim.named_pool() == Some(&pool.key));
    waiting.sort_by_key(|claim| claim.created);
    let has_claims = objects.covers(Kind::Claim, pool.key.namespace.as_deref());
    PoolDetails {
        counts: contents.counts,
        slices: pool_slices(pool, objects, &contents),
        map,
        holders: list(inside, has_all),
        out_of_range: list(outside, contents.has_addresses),
        waiting: list(claims(waiting, objects), has_claims),
        ..specification(pool)
    }
}

/// The specification and the conditions of a pool, without what it contains.
pub(crate) fn specification(pool: &PoolRow) -> PoolDetails {
    let (ready, reason) = readiness(pool);
    let (ranges, excluded, gateway, prefix_length) = match &pool.spec {
        PoolSpec::Addresses(spec) => (
            &spec.addresses,
            &spec.excluded_addresses,
            &spec.gateway,
            spec.prefix,
        ),
        PoolSpec::Prefixes(spec) => (
            &spec.prefixes,
            &spec.excluded_prefixes,
            &spec.gateway,
            spec.allocation_prefix_length,
        ),
    };
    PoolDetails {
        pool: (&pool.key).into(),
        network: pool.network.clone(),
        ready,
        reason,
        problem: pool.usable.as_ref().err().cloned(),
        warnings: warnings(pool),
        ranges: ranges.clone(),
        excluded: excluded.clone(),
        gateway: gateway.clone().filter(|gateway| !gateway.is_empty()),
        prefix_length,
        more_ranges: more_ranges(&pool.spec),
        draining: pool.spec.draining().to_vec(),
        cooldown_seconds: pool.spec.cooldown_seconds(),
        order: format!("{:?}", pool.spec.order()),
        sticky: pool.spec.is_sticky(),
        requests: pool.spec.accepts_requests(),
        reclaim: pool.spec.reclaim(),
        slice_policy: pool.spec.slices().cloned(),
        address_metadata: pool.spec.address_metadata().map(keys).unwrap_or_default(),
        access: access(pool),
        counts: KnownCounts::default(),
        next: Fact::Absent,
        slices: Some(Vec::new()),
        map: Fact::Absent,
        holders: Some(Vec::new()),
        out_of_range: Some(Vec::new()),
        waiting: Some(Vec::new()),
    }
}

/// Describes the ranges of a pool: `10.1.0.0/24, prefix /24, gateway 10.1.0.1`.
fn more_ranges(spec: &PoolSpec) -> Vec<String> {
    let mut texts = Vec::new();
    match spec {
        PoolSpec::Addresses(spec) => {
            for range in &spec.ranges {
                let subnet = format!("{}, prefix /{}", range.addresses.join(", "), range.prefix);
                texts.push(subnet + &gateway_text(range.gateway.as_deref()));
            }
        }
        PoolSpec::Prefixes(spec) => {
            for range in &spec.ranges {
                let prefixes = range.prefixes.join(", ");
                texts.push(prefixes + &gateway_text(range.gateway.as_deref()));
            }
        }
    }
    texts
}

/// `, gateway 10.1.0.1`; nothing without a gateway.
fn gateway_text(gateway: Option<&str>) -> String {
    match gateway {
        None | Some("") => String::new(),
        Some(gateway) => format!(", gateway {gateway}"),
    }
}

/// The keys of labels and annotations.
fn keys(metadata: &AddressMetadata) -> Vec<String> {
    metadata
        .labels
        .keys()
        .chain(metadata.annotations.keys())
        .cloned()
        .collect()
}

/// What is wrong with a pool that can be ready: the conditions other than Ready that are True, and
/// gateways, about which no condition exists.
fn warnings(pool: &PoolRow) -> Vec<String> {
    let mut warnings = Vec::new();
    for condition in &pool.conditions {
        if condition.type_ != "Ready" && condition.status == "True" {
            let message = condition.message();
            warnings.push(format!("{}: {message}", condition.type_));
        }
    }
    for problem in pool.unusable_gateways() {
        warnings.push(format!("{:?}: {problem}", Check::UnusableGateway));
    }
    warnings
}

/// Describes who may use a global pool.
fn access(pool: &PoolRow) -> Vec<String> {
    let access = pool.spec.access();
    if !pool.key.kind.is_global() {
        return Vec::new();
    }
    let namespaces = access.allowed_namespaces.map(|allowed| match allowed.from {
        NamespaceSource::All => "claims of all namespaces".to_owned(),
        NamespaceSource::None => "no claims".to_owned(),
        NamespaceSource::Selector => {
            "claims of the namespaces that spec.allowedNamespaces selects".to_owned()
        }
        NamespaceSource::Names => format!("claims of the namespaces {}", allowed.names.join(", ")),
    });
    let limits = access.limits.unwrap_or_default();
    let limit = |limit: Option<i64>, group: &str| {
        limit.map(|limit| format!("at most {limit} for each {group}"))
    };
    let headroom = access.headroom.map(|it| {
        format!(
            "the last {} free for the claims of spec.headroom",
            it.addresses
        )
    });
    let limits = [
        limit(limits.per_namespace, "namespace"),
        limit(limits.per_cluster, "Cluster"),
    ];
    namespaces
        .into_iter()
        .chain(limits.into_iter().flatten())
        .chain(headroom)
        .collect()
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::Pool;
    use serde_json::json;

    use super::*;

    #[test]
    fn access_rules_are_described() {
        let pool = |kind: &str| {
            let pool = json!({
                "kind": kind, "metadata": { "name": "shared" },
                "spec": {
                    "addresses": ["10.0.0.0/24"], "prefix": 24,
                    "allowedNamespaces": { "from": "Names", "names": ["a", "b"] },
                    "limits": { "perNamespace": 50, "perCluster": 20 },
                    "headroom": { "addresses": 5, "for": {} },
                },
            });
            access(&PoolRow::from(
                &serde_json::from_value::<Pool>(pool).unwrap(),
            ))
        };
        let expected = [
            "claims of the namespaces a, b",
            "at most 50 for each namespace",
            "at most 20 for each Cluster",
            "the last 5 free for the claims of spec.headroom",
        ];
        assert_eq!(pool("GlobalInClusterIPPool"), expected);
        assert!(
            pool("InClusterIPPool").is_empty(),
            "namespaced pools have no rules"
        );
    }
}
