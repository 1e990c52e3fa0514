//! The event handlers of the ledger: one for each watched kind.

use std::sync::Arc;

use capi_ipam_api::{IPNetwork, IPReservation, InClusterKind, Pool, Slot, names};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::Origin;
use capi_ipam_controller::watch::{EventHandler, Invalid};
use capi_ipam_ip::{Block, parse_lenient};
use capi_ipam_provider::api::names::CLUSTER_NAME_LABEL;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;

use super::refresh::PoolInput;
use super::state::State;
use super::usage::AddressOwner;
use super::{Ledger, PoolKey};

/// The pool, block and key of an IPAddress; `None` if it is not of one of our pools or its address
/// is not valid. Cluster API accepts addresses that no pool can contain, such as IPv4-mapped ones:
/// the address that they stand for is in use.
pub fn allocated_block(address: &IPAddress) -> Option<(PoolKey, Block, NamespacedName)> {
    let pool = PoolKey::of_address(address)?;
    let value = parse_lenient(&address.spec.address)?;
    let block = match pool.kind {
        // The prefix of a single address is that of its subnet.
        InClusterKind::IPPool | InClusterKind::GlobalIPPool => Block::address(value),
        InClusterKind::PrefixPool | InClusterKind::GlobalPrefixPool => {
            Block::new(value, u8::try_from(address.spec.prefix).ok()?)
        }
    };
    Some((pool, block, NamespacedName::of(&address.metadata)))
}

impl EventHandler<IPAddress> for Ledger {
    fn init(&self) {
        self.state.lock().address_lists.begin();
    }

    fn init_done(&self) {
        self.change(State::remove_unlisted_addresses);
    }

    fn apply(&self, address: &IPAddress) {
        let Some((pool, block, name)) = allocated_block(address) else {
            return;
        };
        let cluster = address.labels().get(CLUSTER_NAME_LABEL).map(String::as_str);
        let allocated_at = address.annotations().get(names::ALLOCATED_AT_ANNOTATION);
        let allocated_at = allocated_at.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        self.change(|state| {
            let (pool, list) = (state.shared_key(pool), state.address_lists.current());
            let cluster = state.clusters.share(cluster);
            let slot = Slot {
                scope: state.scope_of(&pool),
                block,
            };
            // Another manager may have served a claim that has a turn here.
            if state
                .pools
                .get_mut(&pool)
                .is_some_and(|entry| entry.wait_queue.leave(&name))
            {
                state.dirty_pools.push(PoolKey::clone(&pool));
            }
            if let Some(at) = allocated_at {
                state
                    .pools
                    .entry(pool.clone())
                    .or_default()
                    .record_allocation(block, at.as_microsecond());
            }
            state.update(&slot, |usage| {
                usage.insert_address(AddressOwner {
                    name: name.clone(),
                    pool,
                    cluster,
                    list,
                });
            });
        });
    }

    fn delete(&self, address: &IPAddress) {
        let Some((pool, block, name)) = allocated_block(address) else {
            return;
        };
        self.change(|state| {
            let slot = Slot {
                scope: state.scope_of(&pool),
                block,
            };
            state.update(&slot, |usage| usage.remove_address(&name));
            // The claim for which the address is reserved may be waiting for this deletion.
            let reserved_for = state
                .usage(&slot)
                .and_then(|usage| usage.reservation.as_ref()?.claim.clone());
            state
                .claims_to_wake
                .extend(reserved_for.filter(|claim| *claim != name));
        });
    }
}

impl EventHandler<IPReservation> for Ledger {
    fn init(&self) {
        self.state.lock().reservation_versions.begin_list();
    }

    fn init_done(&self) {
        self.change(State::remove_unlisted_reservations);
        self.reservations_observed.notify_waiters();
    }

    fn restored(&self) {
        self.state.lock().reservation_versions.restored();
    }

    fn apply(&self, reservation: &IPReservation) {
        self.observe_reservation(reservation);
        self.reservations_observed.notify_waiters();
    }

    fn delete(&self, reservation: &IPReservation) {
        self.remove_reservation(reservation);
    }

    fn apply_invalid(&self, object: &Invalid) {
        self.change(|state| state.insert_undecodable(object, Origin::Watch));
        self.reservations_observed.notify_waiters();
    }

    fn delete_invalid(&self, object: &Invalid) {
        if let Some(slot) = self.change(|state| state.remove_undecodable(object)) {
            self.wake(&self.owners(&slot));
        }
    }
}

impl EventHandler<IPNetwork> for Ledger {
    fn init(&self) {
        let mut state = self.state.lock();
        state.networks.versions.begin_list();
        state.start.begin_list(PoolInput::Networks);
    }

    fn init_done(&self) {
        let missing = self.state.lock().networks.end_list();
        missing.iter().for_each(|name| self.remove_network(name));
        self.end_list(PoolInput::Networks);
    }

    fn restored(&self) {
        self.state.lock().networks.restored();
    }

    fn apply(&self, network: &IPNetwork) {
        self.apply_network(network);
    }

    fn delete(&self, network: &IPNetwork) {
        self.delete_network(&network.metadata);
    }

    fn apply_invalid(&self, network: &Invalid) {
        self.apply_invalid_network(&network.metadata);
    }

    fn delete_invalid(&self, network: &Invalid) {
        self.delete_network(&network.metadata);
    }
}

impl EventHandler<Namespace> for Ledger {
    fn init(&self) {
        let mut state = self.state.lock();
        state.networks.namespace_lists.begin();
        state.start.begin_list(PoolInput::Namespaces);
    }

    fn init_done(&self) {
        let missing = self.state.lock().networks.end_namespace_list();
        missing.iter().for_each(|name| self.remove_namespace(name));
        self.end_list(PoolInput::Namespaces);
    }

    fn apply(&self, namespace: &Namespace) {
        self.apply_namespace(
            namespace.metadata.name.as_deref().unwrap_or_default(),
            namespace.labels(),
        );
    }

    fn delete(&self, namespace: &Namespace) {
        self.remove_namespace(namespace.metadata.name.as_deref().unwrap_or_default());
    }
}

/// Claims that no longer exist leave the wait queues: addresses would be held for them.
impl EventHandler<IPAddressClaim> for Ledger {
    fn apply(&self, _: &IPAddressClaim) {}

    fn delete(&self, claim: &IPAddressClaim) {
        if let Some(pool) = PoolKey::of_claim(claim) {
            self.stop_waiting(&pool, &NamespacedName::of(&claim.metadata));
        }
    }
}

/// The event handler of the pools of one kind. It updates the ledger.
pub struct PoolEventHandler {
    /// The ledger to update.
    pub ledger: Arc<Ledger>,
    /// The kind of the pools.
    pub kind: InClusterKind,
}

impl EventHandler<Pool> for PoolEventHandler {
    fn init(&self) {
        self.ledger.begin_pool_list(self.kind);
    }

    fn init_done(&self) {
        self.ledger.end_pool_list(self.kind);
    }

    fn restored(&self) {
        self.ledger.state.lock().pools_restored(self.kind);
    }

    fn apply(&self, pool: &Pool) {
        self.ledger.apply_pool(pool);
    }

    fn delete(&self, pool: &Pool) {
        self.ledger.delete_pool(pool);
    }

    fn apply_invalid(&self, object: &Invalid) {
        self.ledger.apply_invalid_pool(&self.key_of(object), object);
    }

    fn delete_invalid(&self, object: &Invalid) {
        self.ledger
            .delete_invalid_pool(&self.key_of(object), object);
    }
}

impl PoolEventHandler {
    fn key_of(&self, object: &Invalid) -> PoolKey {
        let metadata = &object.metadata;
        PoolKey::new(
            self.kind,
            metadata.namespace.as_deref(),
            metadata.name.as_deref().unwrap_or_default(),
        )
    }
}
