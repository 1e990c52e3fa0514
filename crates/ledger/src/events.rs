//! What the watches report, as changes of the ledger.

use capi_ipam_api::{IPNetwork, IPRegistry, IPReservation, InClusterKind, PoolKey, Slot, names};
use capi_ipam_contract::IPAddress;
use capi_ipam_contract::names::CLUSTER_NAME_LABEL;
use capi_ipam_ip::{Block, parse_lenient};
use capi_ipam_objects::maybe_invalid::{Invalid, readable};
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::{ObjectVersion, Origin};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;

use super::Ledger;
use super::addresses::AddressOwner;
use super::networks::{Change, NetworkInfo};
use super::pools::start::PoolInput;
use super::registry_names::RegistryNames;

/// What lists and watches report of the objects of one kind. Pools are reported to
/// [`Ledger::apply_pool`] and the methods beside it, since their kinds are listed one by one.
pub trait Observe<K> {
    /// A list begins: [`Observe::apply`] is called for each object in it. Another one can begin
    /// before it is complete.
    fn init(&mut self) {}
    /// The list is complete: what it has not shown does not exist.
    fn init_done(&mut self) {}
    /// The object was listed, created or changed.
    fn apply(&mut self, object: &K);
    /// The object was deleted.
    fn delete(&mut self, object: &K);
    /// etcd was restored to an earlier state: any state is accepted from now on. A list follows.
    fn restored(&mut self) {}
    /// An object that cannot be decoded was listed, created or changed. It exists: what was known of
    /// it stays in force.
    fn apply_invalid(&mut self, object: &Invalid);
    /// An object whose last state cannot be decoded was deleted.
    fn delete_invalid(&mut self, object: &Invalid);
}

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

/// When an address was allocated: the manager that created the IPAddress has recorded it.
fn allocated_at(address: &IPAddress) -> Option<jiff::Timestamp> {
    let text = address.annotations().get(names::ALLOCATED_AT_ANNOTATION)?;
    text.parse().ok()
}

/// What can be read of an IPAddress that cannot be decoded.
fn readable_address(object: &Invalid) -> IPAddress {
    IPAddress {
        metadata: (*object.metadata).clone(),
        spec: readable(&object.spec),
        ..IPAddress::default()
    }
}

impl Observe<IPAddress> for Ledger {
    fn init(&mut self) {
        self.addresses.begin_list();
        self.start.begin_list(PoolInput::Addresses);
    }

    fn init_done(&mut self) {
        self.change(Self::remove_unlisted_addresses);
        self.complete_list(PoolInput::Addresses);
    }

    fn apply(&mut self, address: &IPAddress) {
        let Some((pool, block, name)) = allocated_block(address) else {
            return;
        };
        let cluster = address.labels().get(CLUSTER_NAME_LABEL).map(String::as_str);
        let allocated_at = allocated_at(address);
        self.change(|ledger| {
            let pool = ledger.pools.shared_key(pool);
            let list = ledger.addresses.list();
            let cluster = ledger.addresses.share_cluster(cluster);
            let scope = ledger.pools.scope(&pool);
            // Another manager may have served a claim that has a turn here.
            if let Some(entry) = ledger.pools.get_mut(&pool)
                && entry.wait_queue.leave(&name)
            {
                ledger.dirty_pools.push(PoolKey::clone(&pool));
            }
            if let Some(at) = allocated_at {
                let entry = ledger.pools.entry(&pool);
                entry.record_allocation(block, at.as_microsecond());
            }
            ledger.update(&Slot { scope, block }, |usage| {
                usage.insert_address(AddressOwner {
                    name: name.clone(),
                    pool,
                    cluster,
                    list,
                });
            });
        });
    }

    fn delete(&mut self, address: &IPAddress) {
        let Some((pool, block, name)) = allocated_block(address) else {
            return;
        };
        self.change(|ledger| {
            let scope = ledger.pools.scope(&pool);
            let slot = Slot { scope, block };
            ledger.update(&slot, |usage| usage.remove_address(&name));
            // The claim for which the address is reserved may be waiting for this deletion.
            if let Some(reservation) = ledger.addresses.reservation(&slot)
                && let Some(claim) = reservation.claim.clone()
                && claim != name
            {
                ledger.wake(Some(claim));
            }
        });
    }

    /// The address is in use, by what can be read of it. Otherwise what is known of it stays.
    fn apply_invalid(&mut self, object: &Invalid) {
        let address = readable_address(object);
        if allocated_block(&address).is_some() {
            self.apply(&address);
        } else {
            self.keep_addresses_of(&NamespacedName::of(&object.metadata));
        }
    }

    fn delete_invalid(&mut self, object: &Invalid) {
        let name = NamespacedName::of(&object.metadata);
        self.delete(&readable_address(object));
        self.change(|ledger| ledger.remove_addresses_of(&name));
    }
}

impl Observe<IPReservation> for Ledger {
    fn init(&mut self) {
        self.addresses.begin_reservation_list();
        self.start.begin_list(PoolInput::Reservations);
    }

    fn init_done(&mut self) {
        self.change(|ledger| {
            ledger.remove_unlisted_reservations();
            ledger.wake_unchecked();
        });
        self.complete_list(PoolInput::Reservations);
    }

    fn restored(&mut self) {
        self.addresses.reservations_restored();
    }

    fn apply(&mut self, reservation: &IPReservation) {
        self.record_reservation(reservation, Origin::Watch);
    }

    fn delete(&mut self, reservation: &IPReservation) {
        self.remove_reservation(reservation);
    }

    fn apply_invalid(&mut self, object: &Invalid) {
        self.change(|ledger| ledger.ignore_undecodable(object, Origin::Watch));
    }

    fn delete_invalid(&mut self, object: &Invalid) {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let removed = self.change(|ledger| ledger.remove_invalid(name, uid));
        if let Some(slot) = removed {
            self.wake(self.addresses.owners(&slot));
        }
    }
}

impl Observe<IPNetwork> for Ledger {
    fn init(&mut self) {
        self.networks.versions.begin_list();
        self.start.begin_list(PoolInput::Networks);
    }

    fn init_done(&mut self) {
        let missing = self.networks.end_list();
        self.change(|ledger| {
            let removed = missing
                .iter()
                .map(|name| ledger.networks.remove(name, None));
            let change = Change::of_all(removed.collect());
            ledger.refresh_pools(&change);
        });
        self.complete_list(PoolInput::Networks);
    }

    fn restored(&mut self) {
        self.networks.restored();
    }

    fn apply(&mut self, network: &IPNetwork) {
        self.apply_network(network);
    }

    fn delete(&mut self, network: &IPNetwork) {
        let name = network.metadata.name.as_deref().unwrap_or_default();
        let uid = ObjectVersion::of(&network.metadata).uid;
        self.remove_network_of(name, Some(uid));
    }

    /// The pools of a network that exists and cannot be decoded stay in it, and do not allocate.
    fn apply_invalid(&mut self, network: &Invalid) {
        let info = NetworkInfo::undecodable(network);
        self.record_network(&network.metadata, info, Origin::Watch);
    }

    fn delete_invalid(&mut self, network: &Invalid) {
        let name = network.metadata.name.as_deref().unwrap_or_default();
        let uid = ObjectVersion::of(&network.metadata).uid;
        self.remove_network_of(name, Some(uid));
    }
}

impl Observe<IPRegistry> for Ledger {
    fn init(&mut self) {
        self.networks.registries.known.begin_list();
    }

    fn init_done(&mut self) {
        self.change_registries(RegistryNames::end_list);
    }

    fn apply(&mut self, registry: &IPRegistry) {
        self.change_registries(|names| names.insert(&registry.metadata));
    }

    fn delete(&mut self, registry: &IPRegistry) {
        self.change_registries(|names| names.remove(&registry.metadata));
    }

    fn apply_invalid(&mut self, object: &Invalid) {
        self.change_registries(|names| names.insert(&object.metadata));
    }

    fn delete_invalid(&mut self, object: &Invalid) {
        self.change_registries(|names| names.remove(&object.metadata));
    }
}

impl Observe<Namespace> for Ledger {
    fn init(&mut self) {
        self.networks.namespace_lists.begin();
        self.start.begin_list(PoolInput::Namespaces);
    }

    fn init_done(&mut self) {
        let missing = self.networks.end_namespace_list();
        self.change(|ledger| {
            let removed = missing
                .iter()
                .map(|name| ledger.networks.remove_namespace(name));
            let change = Change::of_all(removed.collect());
            ledger.refresh_pools(&change);
        });
        self.complete_list(PoolInput::Namespaces);
    }

    fn apply(&mut self, namespace: &Namespace) {
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        self.set_namespace(name, namespace.labels());
    }

    fn delete(&mut self, namespace: &Namespace) {
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        self.remove_namespace(name);
    }

    /// Its labels, which decide, are in the metadata.
    fn apply_invalid(&mut self, object: &Invalid) {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let labels = object.metadata.labels.clone().unwrap_or_default();
        self.set_namespace(name, &labels);
    }

    fn delete_invalid(&mut self, object: &Invalid) {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        self.remove_namespace(name);
    }
}
