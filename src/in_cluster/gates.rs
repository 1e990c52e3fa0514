//! The readiness gates of the watches of the provider: each becomes ready when its kind has been
//! listed once.

use std::time::Duration;

use capi_ipam_api::{InClusterKind, PoolSetKind};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_provider::advanced::ProviderSetup;

/// How long the counts of pools and networks are not written after the start of a manager that does
/// not know yet which blocks are those of its management cluster.
pub(super) const IDENTITY_TIMEOUT: Duration = Duration::from_secs(10);

/// The gate of each watched kind.
pub(super) struct Gates {
    pub(super) claims: ReadinessGate,
    pub(super) addresses: ReadinessGate,
    pub(super) reservations: ReadinessGate,
    pub(super) slices: ReadinessGate,
    pub(super) networks: ReadinessGate,
    pub(super) registries: ReadinessGate,
    pub(super) namespaces: ReadinessGate,
    /// In the order of [`InClusterKind::ALL`].
    pub(super) pools: [ReadinessGate; InClusterKind::ALL.len()],
    /// In the order of [`PoolSetKind::ALL`].
    pub(super) sets: [ReadinessGate; PoolSetKind::ALL.len()],
}

impl Gates {
    /// Registers the watches of this provider. Those of the SDK are registered already.
    pub(super) fn register(setup: &ProviderSetup<'_>) -> Self {
        let health = &setup.manager.health;
        Self {
            claims: setup.claims_synced.clone(),
            addresses: setup.addresses_synced.clone(),
            reservations: health.register_watch("IPReservation"),
            slices: health.register_watch("IPSlice"),
            networks: health.register_watch("IPNetwork"),
            registries: health.register_watch("IPRegistry"),
            namespaces: health.register_watch("Namespace"),
            pools: InClusterKind::ALL.map(|kind| health.register_watch(kind.name())),
            sets: PoolSetKind::ALL.map(|kind| health.register_watch(kind.name())),
        }
    }

    /// The gates of what the counts of a pool depend on. Which pools belong to a network is known
    /// when networks and namespaces are listed.
    pub(super) fn of_pool(&self) -> Vec<ReadinessGate> {
        vec![
            self.addresses.clone(),
            self.reservations.clone(),
            self.slices.clone(),
            self.networks.clone(),
            self.namespaces.clone(),
        ]
    }

    /// The gates of what the ledger contains.
    pub(super) fn of_ledger(&self) -> Vec<ReadinessGate> {
        let mut gates = self.of_pool();
        gates.extend_from_slice(&self.pools);
        gates
    }

    /// The gates of what shows who uses an address: the ledger and the claims.
    pub(super) fn of_use(&self) -> Vec<ReadinessGate> {
        let mut gates = self.of_ledger();
        gates.push(self.claims.clone());
        gates
    }
}
