//! Warnings about valid pools that are probably not what the user intended.

use std::sync::Arc;

use capi_ipam_api::{
    AccessRules, Audience, Pool, PoolKey, Scope, advice, counted, host_bits_warning, pool_warnings,
};
use capi_ipam_ip::UsableBlocks;

use super::view::View;
use super::{conversion, scope_changes, shared_blocks};

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
    let over = access_rules(pool)
        .map(|rules| view.over_limit(key, &rules))
        .unwrap_or_default();
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
    if let Some(limit) = pool.spec.reclaim().terminating_limit() {
        warnings.push(format!(
            "spec.reclaim.terminating.afterSeconds: an address is released {} seconds after the deletion of its claim, \
             even if a machine still uses it; another machine can then get the same address",
            limit.as_secs()
        ));
    }
    let change = view.scope_change(key, pool);
    warnings.extend(scope_changes::of_pool(&change, pool, old));
    let older = view.reservations_without_pool(key, &change.after);
    if older > 0 {
        warnings.push(format!(
            "metadata.name: {older} IPReservations that users created for an earlier pool of this name apply to this \
             pool; to see them: kubectl get ipreservations; delete those that you do not need"
        ));
    }
    warnings.extend(shared_blocks::of_pool(pool, &change.after, usable, view));
    let overlapping = view.overlapping(key, &change.after, usable);
    if !overlapping.is_empty() {
        warnings.extend(overlap_warnings(
            key,
            usable,
            &change.after,
            &overlapping,
            view,
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
    let others: Vec<Arc<UsableBlocks>> = overlapping
        .iter()
        .filter_map(|other| view.pool(other)?.1)
        .collect();
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
