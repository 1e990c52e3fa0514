use capi_ipam::api::{AddressMetadata, NamespaceSource, PoolSpec, ReclaimPolicy, SlicePolicy};
use schemars::JsonSchema;
use serde::Serialize;

use super::contents::{Contents, contents};
use super::map::map;
use super::slices::{SliceLine, slice_lines};
use super::{ClaimLine, Counts, Holder, OccupancyMap, PoolName, claims, holders, pools};
use crate::objects::{AddressRow, ClaimRow, PoolRow, ReservationRow, SliceRow};

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
    /// When the addresses of claims that are being deleted are released, and whether addresses are verified.
    #[serde(skip_serializing_if = "is_default")]
    pub reclaim: ReclaimPolicy,
    /// How the pool is divided into slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice_policy: Option<SlicePolicy>,
    /// Keys of the labels and annotations that new IPAddresses get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub address_metadata: Vec<String>,
    /// Who may use a global pool, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<String>,
    /// Counts of the listed objects.
    pub counts: Counts,
    /// The slices of the pool, in the order of their addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SliceLine>,
    /// The map; omitted if the specification is invalid or has no addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<OccupancyMap>,
    /// What holds addresses of the pool.
    pub holders: Vec<Holder>,
    /// What holds addresses that the pool does not contain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub out_of_range: Vec<Holder>,
    /// Claims that wait for an address, the first one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<ClaimLine>,
}

fn is_default(policy: &ReclaimPolicy) -> bool {
    *policy == ReclaimPolicy::default()
}

/// Describes a pool. `all` are all known pools, for the networks; addresses and reservations may be of any pool.
pub(crate) fn show(
    pool: &PoolRow,
    all: &[PoolRow],
    addresses: &[AddressRow],
    reservations: &[ReservationRow],
    slices: &[SliceRow],
    rows: Vec<ClaimRow>,
) -> PoolDetails {
    let contents = contents(pool, addresses, reservations);
    let usable = pool.usable.as_ref().ok().filter(|usable| !usable.set.is_empty());
    let map = usable.map(|usable| map(usable, &contents.held));
    let reserved = contents.reserved.iter().copied();
    let inside = holders(all, contents.inside.iter().copied(), reserved, &rows);
    let outside = holders(all, contents.outside.iter().copied(), [], &rows);
    let slices = usable.map(|usable| slice_lines(usable, slices, &contents)).unwrap_or_default();
    let waiting = rows.into_iter().filter(|claim| claim.is_waiting() && claim.pool == pool.key).collect();
    PoolDetails { slices, map, holders: inside, out_of_range: outside, ..describe(pool, &contents, waiting) }
}

/// Describes a pool without its map and holders.
pub(super) fn describe(pool: &PoolRow, contents: &Contents<'_>, waiting: Vec<ClaimRow>) -> PoolDetails {
    let (ready, reason) = pools::readiness(pool);
    let (ranges, excluded, gateway, prefix_length) = match &pool.spec {
        PoolSpec::Addresses(spec) => (&spec.addresses, &spec.excluded_addresses, &spec.gateway, spec.prefix),
        PoolSpec::Prefixes(spec) => {
            (&spec.prefixes, &spec.excluded_prefixes, &spec.gateway, spec.allocation_prefix_length)
        }
    };
    let mut waiting = claims(waiting, &[]);
    waiting.sort_by_key(|claim| claim.created);
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
        counts: contents.counts,
        slices: Vec::new(),
        map: None,
        holders: Vec::new(),
        out_of_range: Vec::new(),
        waiting,
    }
}

/// Describes the ranges of a pool: `10.1.0.0/24, prefix /24, gateway 10.1.0.1`.
fn more_ranges(spec: &PoolSpec) -> Vec<String> {
    let describe = |entries: &[String], prefix: Option<i64>, gateway: &Option<String>| {
        let prefix = prefix.map(|prefix| format!(", prefix /{prefix}")).unwrap_or_default();
        let gateway = gateway.as_ref().filter(|gateway| !gateway.is_empty());
        let gateway = gateway.map(|gateway| format!(", gateway {gateway}")).unwrap_or_default();
        format!("{}{prefix}{gateway}", entries.join(", "))
    };
    match spec {
        PoolSpec::Addresses(spec) => {
            spec.ranges.iter().map(|it| describe(&it.addresses, Some(it.prefix), &it.gateway)).collect()
        }
        PoolSpec::Prefixes(spec) => spec.ranges.iter().map(|it| describe(&it.prefixes, None, &it.gateway)).collect(),
    }
}

/// The keys of labels and annotations.
fn keys(metadata: &AddressMetadata) -> Vec<String> {
    metadata.labels.keys().chain(metadata.annotations.keys()).cloned().collect()
}

/// The messages of the conditions other than Ready that are True: they report problems.
fn warnings(pool: &PoolRow) -> Vec<String> {
    let others = pool.conditions.iter().filter(|condition| condition.type_ != "Ready" && condition.status == "True");
    others.map(|it| format!("{}: {}", it.type_, it.message.as_deref().unwrap_or_default())).collect()
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
        NamespaceSource::Selector => "claims of the namespaces that spec.allowedNamespaces selects".to_owned(),
        NamespaceSource::Names => format!("claims of the namespaces {}", allowed.names.join(", ")),
    });
    let limits = access.limits.unwrap_or_default();
    let limit = |limit: Option<i64>, group: &str| limit.map(|limit| format!("at most {limit} for each {group}"));
    let headroom = access.headroom.map(|it| format!("the last {} free for the claims of spec.headroom", it.addresses));
    let limits = [limit(limits.per_namespace, "namespace"), limit(limits.per_cluster, "Cluster")];
    namespaces.into_iter().chain(limits.into_iter().flatten()).chain(headroom).collect()
}

#[cfg(test)]
mod tests {
    use capi_ipam::api::Pool;
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
            access(&PoolRow::from(&serde_json::from_value::<Pool>(pool).unwrap()))
        };
        let expected = [
            "claims of the namespaces a, b",
            "at most 50 for each namespace",
            "at most 20 for each Cluster",
            "the last 5 free for the claims of spec.headroom",
        ];
        assert_eq!(pool("GlobalInClusterIPPool"), expected);
        assert!(pool("InClusterIPPool").is_empty(), "namespaced pools have no rules");
    }
}
