//! Decides whether the release of an address starts a cool-down.

use capi_ipam_ledger::PoolInfo;

/// How the address of a released reservation was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::in_cluster) enum FormerUse {
    /// By the claim of the reservation, as far as it is known.
    OfClaim,
    /// Not at all: the claim has used another address of the pool, several managers have reserved
    /// one each.
    Spare,
    /// By another claim, which still uses it, and gets the reservation next.
    OfOther,
}

/// Whether the pool keeps the reservation of a released address, until its cool-down ends or for
/// the next claim of the same name. A sticky pool without a cool-down keeps only the one that the
/// claim has used. A pool that is deleted, or is being deleted, keeps none. An address in use is
/// never without a reservation.
pub(super) fn keeps_reservation(pool: Option<&PoolInfo>, former_use: FormerUse) -> bool {
    if former_use == FormerUse::OfOther {
        return true;
    }
    let Some(pool) = pool.filter(|pool| !pool.deleting) else {
        return false;
    };
    pool.cooldown_seconds > 0 || (pool.is_sticky && former_use == FormerUse::OfClaim)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use capi_ipam_api::Pool;

    fn keeps(change: &Value, former_use: FormerUse) -> bool {
        let mut pool = json!({
            "kind": "InClusterIPPool", "metadata": {"namespace": "n", "name": "p"},
            "spec": {"addresses": ["10.0.0.0/24"], "prefix": 24},
        });
        json_patch::merge(&mut pool, change);
        let pool = serde_json::from_value::<Pool>(pool).unwrap();
        keeps_reservation(Some(&PoolInfo::of(&pool)), former_use)
    }

    #[test]
    fn pool_decides_whether_a_reservation_is_kept() {
        let cooldown = json!({"addressReuseGracePeriodSeconds": 60});
        let sticky = json!({"allocation": {"sticky": true}});
        let deleting =
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": cooldown});
        for former_use in [FormerUse::OfClaim, FormerUse::Spare] {
            assert!(!keeps(&json!({}), former_use));
            assert!(
                keeps(&json!({"spec": cooldown}), former_use),
                "a spare address may have been used as well"
            );
            assert_eq!(
                keeps(&json!({"spec": sticky}), former_use),
                former_use == FormerUse::OfClaim
            );
            assert!(!keeps(&deleting, former_use));
            assert!(!keeps_reservation(None, former_use), "the pool is deleted");
        }
        assert!(keeps(&json!({}), FormerUse::OfOther) && keeps(&deleting, FormerUse::OfOther));
    }
}
