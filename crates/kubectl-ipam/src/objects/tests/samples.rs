//! Objects and a ledger for tests that have rows only.

use capi_ipam_api::{
    IPNetwork, IPReservation, MemberPhase, NamedPool, NamespaceAccess, NamespaceSource, Pool,
    PoolNetwork, names,
};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::{Ledger, Observe};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use serde_json::json;

use super::kind::Kind;
use super::table::Table;
use super::{
    AddressRow, ClaimRow, NetworkRow, Objects, PoolRow, ReservationRow, ServedKinds, SliceRow,
    UnservedPool,
};
use crate::error::MissingRight;

impl ClaimRow {
    /// A claim of a kind that is served.
    pub(crate) fn served(claim: &IPAddressClaim) -> Self {
        Self::new(claim, Ok(NamedPool::of_claim(claim).unwrap()))
    }

    /// A claim of a kind that is not served.
    pub(crate) fn unserved(claim: &IPAddressClaim, served: &ServedKinds) -> Self {
        Self::new(claim, Err(UnservedPool::of(claim, served).unwrap()))
    }
}

impl Objects {
    /// Objects with these rows.
    pub(crate) fn of(
        pools: impl IntoIterator<Item = PoolRow>,
        addresses: impl IntoIterator<Item = AddressRow>,
        reservations: impl IntoIterator<Item = ReservationRow>,
        claims: impl IntoIterator<Item = ClaimRow>,
    ) -> Self {
        let mut objects = Self::default();
        pools.into_iter().for_each(|row| objects.add_pool(row));
        for row in addresses {
            objects.addresses.insert(&row.key.clone(), row);
        }
        objects.set_reservations(reservations);
        objects.set_claims(claims);
        objects
    }

    pub(crate) fn add_pool(&mut self, row: PoolRow) {
        let namespace = row.key.namespace.as_deref().unwrap_or_default();
        let key = NamespacedName::new(namespace, &row.key.name);
        let table = self.pools.entry(row.key.kind).or_default();
        table.insert(&key, row);
    }

    pub(crate) fn add_network(&mut self, row: NetworkRow) {
        let key = NamespacedName::new("", &row.name);
        self.networks.insert(&key, row);
    }

    pub(crate) fn add_slice(&mut self, row: SliceRow) {
        let key = NamespacedName::new("", &row.name);
        self.slices.insert(&key, row);
    }

    /// Replaces the reservations.
    pub(crate) fn set_reservations(&mut self, rows: impl IntoIterator<Item = ReservationRow>) {
        self.reservations = Table::default();
        for row in rows {
            let key = NamespacedName::new("", &row.slot.reservation_name());
            self.reservations.insert(&key, row);
        }
    }

    /// Replaces the claims.
    pub(crate) fn set_claims(&mut self, rows: impl IntoIterator<Item = ClaimRow>) {
        self.claims = Table::default();
        for row in rows {
            self.claims.insert(&row.key.clone(), row);
        }
    }

    /// The caller may not list a kind, and sees nothing of it.
    pub(crate) fn deny(&mut self, kind: Kind) {
        let right = MissingRight {
            verb: "list",
            resource: kind.plural().to_owned(),
            namespace: None,
        };
        self.lists.remove(&kind);
        self.list_mut(kind).missing(right);
        match kind {
            Kind::Pool(of) => drop(self.pools.remove(&of)),
            Kind::PoolSet(of) => drop(self.pool_sets.remove(&of)),
            Kind::Address => self.addresses = Table::default(),
            Kind::Claim => self.claims = Table::default(),
            Kind::Network => self.networks = Table::default(),
            Kind::Registry => self.registries = Table::default(),
            Kind::Reservation => self.reservations = Table::default(),
            Kind::Slice => self.slices = Table::default(),
        }
    }
}

/// A ledger with the pools, networks of pools, IPAddresses and reservations.
pub(crate) fn ledger_of(objects: &Objects) -> Ledger {
    let mut ledger = Ledger::default();
    for row in objects.pools() {
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
    for row in objects.addresses.iter() {
        let object = json!({
            "metadata": { "namespace": row.key.namespace(), "name": row.key.name() },
            "spec": {
                "address": row.block.base(), "prefix": row.prefix, "claimRef": { "name": row.claim.as_ref() },
                "poolRef": { "apiGroup": names::GROUP, "kind": row.pool.kind.name(), "name": row.pool.name.as_ref() },
            },
        });
        ledger.apply(&serde_json::from_value::<IPAddress>(object).unwrap());
    }
    for row in objects.reservations.iter() {
        let claim = row.claim.as_ref().map(|claim| {
            let uid = row.has_uid().then_some("uid");
            json!({ "namespace": claim.namespace(), "name": claim.name(), "uid": uid })
        });
        let object = json!({
            "metadata": { "name": row.slot.reservation_name(), "uid": row.slot.reservation_name() },
            "spec": {
                "scope": row.slot.scope.name(), "address": row.slot.block.to_string(), "claimRef": claim,
                "releasedAt": row.released, "quarantine": row.quarantine,
                "poolRef": { "kind": row.pool.kind.name(), "namespace": row.pool.namespace.as_deref(), "name": row.pool.name.as_ref() },
            },
        });
        ledger.apply(&serde_json::from_value::<IPReservation>(object).unwrap());
    }
    ledger
}
