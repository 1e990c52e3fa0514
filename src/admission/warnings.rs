//! Warnings about valid pools that are probably not what the user intended.

use std::sync::Arc;

use capi_ipam_api::{
    AccessRules, Audience, OverLimit, Pool, PoolKey, Scope, ScopeChange, advice, counted,
    host_bits_warning, pool_warnings,
};
use capi_ipam_ip::UsableBlocks;
use capi_ipam_ledger::{Ledger, Nearby, PoolInfo};

use super::view::View;
use super::{conversion, scope_changes, shared_blocks};

/// What the ledger knows of a pool that is written.
struct Known {
    over_limit: OverLimit,
    change: ScopeChange,
    /// The number of reservations that users created for an earlier pool.
    older: usize,
    /// The length of the blocks that its network shares.
    shared_length: Option<u8>,
    /// The pools that can overlap.
    nearby: Nearby,
}

impl Known {
    fn of(
        ledger: &Ledger,
        key: &PoolKey,
        declared: PoolInfo,
        usable: &UsableBlocks,
        rules: Option<&AccessRules>,
    ) -> Self {
        let over_limit = rules.map(|rules| ledger.over_limit_with(key, rules));
        let change = ledger.preview_pool(key, declared);
        let network = change.after.network();
        let blocks = network.and_then(|network| ledger.network_blocks(network));
        Self {
            over_limit: over_limit.unwrap_or_default(),
            older: ledger.reservations_without_pool(key, &change.after),
            shared_length: blocks.and_then(|blocks| blocks.lengths.of(usable.family)),
            nearby: ledger.pools().nearby_with(key, &change.after, usable),
            change,
        }
    }
}

/// Returns the warnings about a valid pool. `old` is the pool before the write.
pub(super) fn of(
    pool: &Pool,
    old: Option<&Pool>,
    key: &PoolKey,
    usable: &UsableBlocks,
    view: &dyn View,
) -> Vec<String> {
    let mut warnings = pool_warnings(&pool.spec, usable);
    // The range of a subnet of v1alpha1 has no host bits.
    warnings.extend(
        conversion::old_subnet(pool).and_then(|subnet| host_bits_warning("spec.subnet", &subnet)),
    );
    if let Some(limit) = pool.spec.reclaim().terminating_limit() {
        warnings.push(format!(
            "spec.reclaim.terminating.afterSeconds: an address is released {} seconds after the deletion of its claim, \
             even if a machine still uses it; another machine can then get the same address",
            limit.as_secs()
        ));
    }
    let declared = PoolInfo::of(pool);
    let rules = access_rules(pool);
    let read = |ledger: &Ledger| Known::of(ledger, key, declared, usable, rules.as_ref());
    let Some(known) = view.read(read) else {
        return warnings;
    };
    warnings.extend(limit_warnings(known.over_limit));
    warnings.extend(scope_changes::of_pool(&known.change, pool, old));
    if known.older > 0 {
        warnings.push(format!(
            "metadata.name: {} IPReservations that users created for an earlier pool of this name apply to this \
             pool; to see them: kubectl get ipreservations; delete those that you do not need",
            known.older
        ));
    }
    let scope = &known.change.after;
    if let (Some(network), Some(length)) = (scope.network(), known.shared_length) {
        warnings.extend(shared_blocks::of_pool(pool, usable, network, length));
    }
    // They are compared without a lock.
    let overlapping = known.nearby.overlapping(usable);
    if !overlapping.is_empty() {
        warnings.extend(overlap_warnings(key, usable, scope, &overlapping, view));
    }
    warnings
}

/// The warnings about addresses in use beyond what a pool allows.
fn limit_warnings(over: OverLimit) -> Vec<String> {
    let mut warnings = Vec::new();
    if over.addresses > 0 {
        warnings.push(format!(
            "spec.limits: {} {} more; addresses in use are kept",
            counted(
                over.groups,
                "namespace or Cluster has",
                "namespaces or Clusters have"
            ),
            counted(over.addresses, "address", "addresses")
        ));
    }
    if over.not_allowed > 0 {
        warnings.push(format!(
            "spec.allowedNamespaces: {} in namespaces that are not allowed; addresses in use are kept",
            counted(over.not_allowed, "address is", "addresses are")
        ));
    }
    warnings
}

/// The warnings about pools of other scopes that can allocate the same addresses: the problem, and
/// what to do. Clients show the first 256 bytes of a warning.
fn overlap_warnings(
    key: &PoolKey,
    usable: &UsableBlocks,
    scope: &Scope,
    overlapping: &[PoolKey],
    view: &dyn View,
) -> [String; 2] {
    let usable_of = |ledger: &Ledger, pool| ledger.pools().pool_info(pool)?.usable.clone().ok();
    let others: Option<Vec<Arc<UsableBlocks>>> = view.read(|ledger| {
        let found = overlapping
            .iter()
            .filter_map(|pool| usable_of(ledger, pool));
        found.collect()
    });
    let others = others.unwrap_or_default();
    let shared = others.iter().find_map(|other| usable.first_shared(other));
    let has_one_length = others.iter().all(|other| other.length == usable.length);
    let pools = Audience::of_pool(key).pools(overlapping);
    let advice = advice::overlap(scope, has_one_length);
    [
        advice::overlap_problem(shared, &pools),
        format!("overlapping pools: {advice}"),
    ]
}

/// Who may use a global pool, if its specification restricts it.
fn access_rules(pool: &Pool) -> Option<AccessRules> {
    pool.kind
        .is_global()
        .then(|| pool.spec.access().rules().ok().flatten())
        .flatten()
}
