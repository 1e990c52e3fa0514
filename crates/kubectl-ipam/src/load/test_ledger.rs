//! A ledger for tests that have rows only.

use capi_ipam_api::{
    IPNetwork, IPReservation, MemberPhase, NamespaceAccess, NamespaceSource, Pool, PoolNetwork,
    names,
};
use capi_ipam_ledger::{Ledger, Observe};
use capi_ipam_provider::api::IPAddress;
use serde_json::json;

use crate::objects::{AddressRow, PoolRow, ReservationRow};

/// A ledger with the objects of these rows, and the networks of the pools.
pub(crate) fn ledger_of<'a>(
    pools: impl IntoIterator<Item = &'a PoolRow>,
    addresses: impl IntoIterator<Item = &'a AddressRow>,
    reservations: impl IntoIterator<Item = &'a ReservationRow>,
) -> Ledger {
    let mut ledger = Ledger::default();
    for row in pools {
        let mut pool = Pool::reference(&row.key, None);
        pool.spec = row.spec.clone();
        pool.metadata.finalizers = Some(vec![names::PROTECT_POOL.to_owned()]);
        if let Some(name) = &row.network {
            let mut network = IPNetwork::default();
            network.metadata.name = Some(name.clone());
            network.spec.namespaces = Some(NamespaceAccess {
                from: NamespaceSource::All,
                ..NamespaceAccess::default()
            });
            ledger.apply_network(&network);
            let status = pool.status.get_or_insert_default();
            status.network = Some(PoolNetwork {
                name: name.clone(),
                phase: MemberPhase::Member,
                ..PoolNetwork::default()
            });
        }
        ledger.apply_pool(&pool);
    }
    for row in addresses {
        let object = json!({
            "metadata": { "namespace": row.key.namespace(), "name": row.key.name() },
            "spec": {
                "address": row.block.base(), "prefix": row.prefix, "claimRef": { "name": row.claim.as_ref() },
                "poolRef": { "apiGroup": names::GROUP, "kind": row.pool.kind.name(), "name": row.pool.name.as_ref() },
            },
        });
        ledger.apply(&serde_json::from_value::<IPAddress>(object).unwrap());
    }
    for row in reservations {
        let claim = row.claim.as_ref().map(|claim| {
            let uid = row.has_uid.then_some("uid");
            json!({ "namespace": claim.namespace(), "name": claim.name(), "uid": uid })
        });
        let object = json!({
            "metadata": { "name": row.slot.reservation_name(), "uid": row.slot.reservation_name() },
            "spec": {
                "scope": row.slot.scope.name(), "address": row.slot.block.to_string(), "claimRef": claim,
                "releasedAt": row.released,
                "poolRef": { "kind": row.pool.kind.name(), "namespace": row.pool.namespace.as_deref(), "name": row.pool.name.as_ref() },
            },
        });
        ledger.apply(&serde_json::from_value::<IPReservation>(object).unwrap());
    }
    ledger
}
