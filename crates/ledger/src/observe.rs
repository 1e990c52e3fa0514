//! What watches and responses show, as changes of the ledger.

use std::sync::Arc;

use capi_ipam_api::{
    IPNetwork, IPRegistry, IPReservation, InClusterKind, Pool, PoolKey, PoolSetKey, Slot, names,
};
use capi_ipam_contract::names::CLUSTER_NAME_LABEL;
use capi_ipam_contract::{IPAddress, Uid};
use capi_ipam_ip::{Block, parse_lenient};
use capi_ipam_objects::clock;
use capi_ipam_objects::maybe_invalid::{Invalid, MaybeInvalid, readable};
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::{ObjectVersion, Origin, Stamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::core::ObjectMeta;

use crate::addresses::{AddressOwner, ReservationInfo};
use crate::network_view::status_record;
use crate::networks::{Change, NetworkInfo, Networks};
use crate::pools::start::PoolInput;
use crate::registry_names::RegistryNames;
use crate::{Ledger, PoolInfo};

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
    /// An object that cannot be decoded was listed, created or changed. It exists: what was known
    /// of it stays in force.
    fn apply_invalid(&mut self, object: &Invalid);
    /// An object whose last state cannot be decoded was deleted.
    fn delete_invalid(&mut self, object: &Invalid);
}

/// The pool, block and key of an IPAddress; `None` if it is not of one of our pools or its address
/// is not valid. Cluster API accepts addresses that no pool can contain, such as IPv4-mapped ones:
/// the address that they stand for is in use.
pub fn allocated_block(address: &IPAddress) -> Option<(PoolKey, Block, NamespacedName)> {
    let pool = PoolKey::of_address(address)?;
    let block = block_of(address, pool.kind)?;
    Some((pool, block, NamespacedName::of(&address.metadata)))
}

/// The block of an IPAddress of a pool of this kind; `None` if its address is not valid.
pub fn block_of(address: &IPAddress, kind: InClusterKind) -> Option<Block> {
    let value = parse_lenient(&address.spec.address)?;
    Some(if kind.has_prefixes() {
        Block::new(value, u8::try_from(address.spec.prefix).ok()?)
    } else {
        // The prefix of a single address is that of its subnet.
        Block::address(value)
    })
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
        // The list shows the ones that exist.
        self.sets.uncertain.clear();
        self.start.begin_list(PoolInput::Addresses);
    }

    fn init_done(&mut self) {
        self.change(Self::remove_unlisted_addresses);
        self.complete_list(PoolInput::Addresses);
    }

    fn apply(&mut self, address: &IPAddress) {
        if let Some(set) = PoolSetKey::of_address(address) {
            self.change(|ledger| ledger.observe_address_of_set(&set, address));
        }
        let claim_uid = address.claim_uid().map(Uid::of);
        let Some((pool, block, name)) = self.known_block(address, claim_uid) else {
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
        let claim_uid = address.claim_uid().map(Uid::of);
        let Some((pool, block, name)) = self.known_block(address, claim_uid) else {
            // It was of a member that is not known any more.
            if PoolSetKey::of_address(address).is_some() {
                let name = NamespacedName::of(&address.metadata);
                self.change(|ledger| ledger.remove_addresses_of(&name));
            }
            return;
        };
        self.change(|ledger| {
            ledger.sets.forget_address(&name);
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

    /// Claims that have an IPAddress with its address are reconciled again: they may be waiting for
    /// the deletion of the reservation. A bound claim needs another reservation.
    fn delete(&mut self, reservation: &IPReservation) {
        let removed = self.change(|ledger| ledger.remove(reservation));
        if let Some(slot) = removed {
            self.wake(self.addresses.owners(&slot));
            if self.unreserved_at(&slot).is_some() {
                self.effects.unreserved.push(slot);
            }
        }
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
        self.change_networks(Networks::end_list);
        self.complete_list(PoolInput::Networks);
    }

    fn restored(&mut self) {
        self.networks.restored();
    }

    fn apply(&mut self, network: &IPNetwork) {
        self.apply_network(network);
    }

    fn delete(&mut self, network: &IPNetwork) {
        self.network_deleted(&network.metadata);
    }

    /// The pools of a network that exists and cannot be decoded stay in it, and do not allocate.
    fn apply_invalid(&mut self, network: &Invalid) {
        let info = NetworkInfo::undecodable(network);
        self.record_network(&network.metadata, info, Origin::Watch);
    }

    fn delete_invalid(&mut self, network: &Invalid) {
        self.network_deleted(&network.metadata);
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
        self.change_networks(Networks::end_namespace_list);
        self.complete_list(PoolInput::Namespaces);
    }

    fn apply(&mut self, namespace: &Namespace) {
        self.namespace_seen(&namespace.metadata);
    }

    fn delete(&mut self, namespace: &Namespace) {
        self.namespace_deleted(&namespace.metadata);
    }

    /// Its labels, which decide, are in the metadata.
    fn apply_invalid(&mut self, object: &Invalid) {
        self.namespace_seen(&object.metadata);
    }

    fn delete_invalid(&mut self, object: &Invalid) {
        self.namespace_deleted(&object.metadata);
    }
}

/// What is known before the definitions are read.
const FIELDS_ARE_LOST: &str = "the API server removes fields of pools: a CustomResourceDefinition was replaced by an older one";

impl Ledger {
    /// Records a pool that a watch has shown.
    pub fn apply_pool(&mut self, pool: &Pool) {
        let info = PoolInfo::updated(
            self.pools.declared_pool(&PoolKey::of(pool)).as_deref(),
            pool,
        );
        self.record_pool(pool, info, Origin::Watch);
    }

    /// Records a pool with its settings, as [`PoolInfo::updated`] has read them. The addresses of a
    /// pool can take long to parse: who shares the ledger does not hold a lock meanwhile.
    pub fn record_pool(&mut self, pool: &Pool, info: PoolInfo, origin: Origin) {
        let waiting = self.change(|ledger| ledger.see_pool(pool, info, origin));
        self.wake(waiting);
    }

    /// Records whether the API server serves definitions with all fields that this program has;
    /// `problem` says which one lacks some, and what to do. Until they are back no pool changes its
    /// scope, and those that are in a network, or may be, do not allocate.
    pub fn set_definitions_problem(&mut self, problem: Option<&str>) {
        if self.networks.definitions_problem.as_deref() == problem {
            return;
        }
        self.change_networks(|networks| {
            networks.definitions_problem = problem.map(Into::into);
            Change::All
        });
    }

    /// An object has fewer fields with the same generation: a definition has lost them. The check
    /// of the definitions begins at once.
    pub fn note_lost_fields(&mut self) {
        self.effects.has_lost_fields = true;
        self.set_definitions_problem(Some(FIELDS_ARE_LOST));
    }

    /// Returns the claims that wait for the pool.
    fn see_pool(&mut self, pool: &Pool, info: PoolInfo, origin: Origin) -> Vec<NamespacedName> {
        let key = self.pools.shared_key(PoolKey::of(pool));
        if self.pools.has_lost_fields(&key, pool) {
            self.note_lost_fields();
        }
        let seen = ObjectVersion::of(&pool.metadata);
        let Some(stamp) = self.pools.see(&key, seen, origin) else {
            return Vec::new();
        };
        let entry = self.pools.entry(&key);
        let (has_status, status) = status_record(pool);
        let has_same_status = entry.set_status_record(&info.uid, stamp, has_status, status);
        if entry.declared() == Some(&info) {
            if !has_same_status {
                self.queue_refresh(&key);
            }
            return Vec::new();
        }
        self.set_pool(&key, Some(info));
        self.waiting_for_pool(&key)
    }

    /// Records a pool that exists in a state which cannot be decoded.
    pub fn apply_invalid_pool(&mut self, key: &PoolKey, object: &Invalid) {
        let waiting = self.change(|ledger| ledger.see_undecodable_pool(key, object));
        self.wake(waiting);
    }

    /// Returns the claims that wait for the pool.
    fn see_undecodable_pool(&mut self, key: &PoolKey, object: &Invalid) -> Vec<NamespacedName> {
        let seen = ObjectVersion::of(&object.metadata);
        let key = &self.pools.shared_key(key.clone());
        let Some(stamp) = self.pools.see(key, seen, Origin::Watch) else {
            return Vec::new();
        };
        let entry = self.pools.entry(key);
        // Another pool of this name has other rules.
        let later = match entry.declared() {
            Some(declared) if Uid::of(&declared.uid) == seen.uid => declared.undecodable(object),
            _ => PoolInfo::never_decoded(key, object),
        };
        entry.set_status_record(&later.uid, stamp, false, None);
        if entry.declared() != Some(&later) {
            self.set_pool(key, Some(later));
        }
        self.waiting_for_pool(key)
    }

    /// Removes a pool. Its addresses in use are kept.
    pub fn remove_pool(&mut self, key: &PoolKey) {
        self.remove_pool_of(key, None);
    }

    /// Removes a pool, unless another one of its name was created since.
    pub fn delete_pool(&mut self, key: &PoolKey, metadata: &ObjectMeta) {
        let uid = ObjectVersion::of(metadata).uid;
        self.remove_pool_of(key, Some(uid));
    }

    /// Removes a pool: the one with this uid, or any.
    fn remove_pool_of(&mut self, key: &PoolKey, uid: Option<Uid>) {
        if !self.pools.see_deleted(key, uid) {
            return;
        }
        let waiting = self.change(|ledger| {
            ledger.set_pool(key, None);
            ledger.waiting_for_pool(key)
        });
        self.wake(waiting);
    }

    /// The claims that wait for a change of the pool, which has changed.
    fn waiting_for_pool(&mut self, key: &PoolKey) -> Vec<NamespacedName> {
        match self.pools.get_mut(key) {
            Some(entry) => entry.wait_queue.pool_changed(),
            None => Vec::new(),
        }
    }

    /// Begins a list of the pools of a kind: [`Ledger::apply_pool`] is called for each of them.
    pub fn begin_pool_list(&mut self, kind: InClusterKind) {
        self.pools.begin_list(kind);
        self.start.begin_list(PoolInput::Pools(kind));
    }

    /// Removes the pools of a kind that the list, which is complete now, has not shown. The last
    /// one of the initial lists computes all pools: before, nothing is proposed.
    pub fn end_pool_list(&mut self, kind: InClusterKind) {
        for key in self.pools.unlisted(kind) {
            self.remove_pool(&key);
        }
        self.complete_pool_list(kind);
    }

    /// The last step of [`Ledger::end_pool_list`].
    pub fn complete_pool_list(&mut self, kind: InClusterKind) {
        self.complete_list(PoolInput::Pools(kind));
    }

    /// Records a network that a watch has shown.
    pub fn apply_network(&mut self, network: &IPNetwork) {
        let info = NetworkInfo::of(network);
        self.record_network(&network.metadata, info, Origin::Watch);
    }

    /// Records a network that a response has shown. Ignored if the ledger has newer information, as
    /// for pools.
    pub fn insert_network(&mut self, network: &IPNetwork) {
        let info = NetworkInfo::of(network);
        self.record_network(&network.metadata, info, Origin::Response);
    }

    pub(super) fn record_network(
        &mut self,
        metadata: &ObjectMeta,
        info: NetworkInfo,
        origin: Origin,
    ) {
        let name: Arc<str> = metadata.name.as_deref().unwrap_or_default().into();
        let seen = ObjectVersion::of(metadata);
        self.change(|ledger| {
            if ledger.networks.has_lost_fields(&name, &info) {
                ledger.note_lost_fields();
            }
            let change = ledger.networks.see(&name, info, seen, origin);
            ledger.refresh_pools(&change);
        });
    }

    /// Changes the networks, and computes the pools again that this may affect.
    pub(super) fn change_networks(&mut self, how: impl FnOnce(&mut Networks) -> Change) {
        self.change(|ledger| {
            let change = how(&mut ledger.networks);
            ledger.refresh_pools(&change);
        });
    }

    /// Removes a network. Its reservations are kept.
    fn network_deleted(&mut self, metadata: &ObjectMeta) {
        let name = metadata.name.as_deref().unwrap_or_default();
        let uid = ObjectVersion::of(metadata).uid;
        self.change_networks(|networks| networks.remove(name, Some(uid)));
    }

    fn namespace_seen(&mut self, metadata: &ObjectMeta) {
        let name = metadata.name.as_deref().unwrap_or_default();
        let labels = metadata.labels.clone().unwrap_or_default();
        self.change(|ledger| {
            let change = ledger.networks.set_namespace(name, labels);
            ledger.refresh_pools(&change);
            ledger.wake_refused(name);
        });
    }

    fn namespace_deleted(&mut self, metadata: &ObjectMeta) {
        let name = metadata.name.as_deref().unwrap_or_default();
        self.change_networks(|networks| networks.remove_namespace(name));
    }

    /// Asks to reconcile claims.
    pub(super) fn wake(&mut self, claims: impl IntoIterator<Item = NamespacedName>) {
        self.effects.claims.extend(claims);
    }

    /// Records what a response has shown under the name of the reservation of an address: the name
    /// is taken, also if the object is not a valid reservation or cannot be decoded.
    pub fn insert_found(&mut self, slot: &Slot, found: &MaybeInvalid<IPReservation>) {
        let claim = self.change(|ledger| {
            let claim = match &found.0 {
                Ok(reservation) => ledger.insert(reservation, Origin::Response),
                Err(invalid) => {
                    ledger.ignore_undecodable(invalid, Origin::Response);
                    None
                }
            };
            if ledger.addresses.take_name(slot) {
                ledger.set_name_taken(slot, true);
            }
            claim
        });
        self.wake(claim);
    }

    /// Records what a list has shown.
    pub fn insert_listed(&mut self, found: &MaybeInvalid<IPReservation>) {
        match &found.0 {
            Ok(reservation) => self.insert_reservation(reservation),
            Err(invalid) => {
                self.change(|ledger| ledger.ignore_undecodable(invalid, Origin::Response));
            }
        }
    }

    /// Records a reservation that a response has shown. Ignored if the ledger has newer
    /// information: the reservation was deleted, or a newer version of it was observed.
    pub fn insert_reservation(&mut self, reservation: &IPReservation) {
        self.record_reservation(reservation, Origin::Response);
    }

    pub(super) fn record_reservation(&mut self, reservation: &IPReservation, origin: Origin) {
        let claim = self.change(|ledger| ledger.insert(reservation, origin));
        self.wake(claim);
    }

    /// Removes the reservation of an address if it has that uid.
    pub fn remove_reservation_of(&mut self, slot: &Slot, uid: &str) {
        self.change(|ledger| ledger.remove_at(slot, Some(Uid::of(uid))));
        self.wake(self.addresses.owners(slot));
    }

    /// Records a reservation, unless a later state is known. Returns the claim that has to be
    /// reconciled because of it.
    pub(super) fn insert(
        &mut self,
        reservation: &IPReservation,
        origin: Origin,
    ) -> Option<NamespacedName> {
        let name = reservation.metadata.name.as_deref().unwrap_or_default();
        let (slot, pool) = match reservation.slot() {
            Ok(placed) => placed,
            Err(problem) => {
                let lacks_label = reservation.needs_move_label();
                self.ignore(
                    &reservation.metadata,
                    problem.to_string(),
                    lacks_label,
                    origin,
                );
                return None;
            }
        };
        let seen = ObjectVersion::of(&reservation.metadata);
        let stamp = self.addresses.see(name, Some(&slot), seen, origin)?;
        self.forget_ignored(name, None);
        let slot = Slot {
            scope: self.addresses.shared_scope(slot.scope),
            block: slot.block,
        };
        let cluster = match &reservation.spec.claim_ref {
            Some(claim) => self.addresses.share_cluster(claim.cluster.as_deref()),
            None => None,
        };
        let is_observed = origin == Origin::Watch;
        let info = ReservationInfo::of(
            reservation,
            self.pools.shared_key(pool),
            cluster,
            stamp,
            is_observed,
        );
        self.insert_at(&slot, info)
    }

    /// Keeps what is known of a reservation that exists in a state which is not valid. Its version
    /// stays that of the known state.
    fn keep_known(&mut self, slot: Option<&Slot>, uid: Uid, stamp: Stamp) {
        let Some(slot) = slot else { return };
        let is_known = self
            .addresses
            .reservation(slot)
            .is_some_and(|known| known.uid.uid() == uid);
        if is_known {
            self.update(slot, |usage| {
                if let Some(known) = &mut usage.reservation {
                    known.stamp = known.stamp.seen_again(stamp);
                }
            });
        }
    }

    /// Records an object that cannot be decoded. It exists, so it reserves the address of its name,
    /// and what was known of it before stays.
    pub(super) fn ignore_undecodable(&mut self, object: &Invalid, origin: Origin) {
        let error = &object.error;
        let problem = format!("it cannot be decoded ({error}); correct or delete it");
        self.ignore(&object.metadata, problem, false, origin);
    }

    /// Records an object that is not a valid reservation.
    fn ignore(
        &mut self,
        metadata: &ObjectMeta,
        problem: String,
        lacks_label: bool,
        origin: Origin,
    ) {
        let Some(name) = metadata.name.as_deref() else {
            return;
        };
        let slot = self.slot_of_name(name);
        let seen = ObjectVersion::of(metadata);
        let Some(stamp) = self.addresses.see(name, slot.as_ref(), seen, origin) else {
            return;
        };
        self.keep_known(slot.as_ref(), seen.uid, stamp);
        let taken = self
            .addresses
            .ignore(metadata, slot, problem, stamp, lacks_label);
        if let Some(slot) = taken {
            self.set_name_taken(&slot, true);
        }
    }

    /// Forgets an object that is not a valid reservation: of this uid, if one is passed. Returns
    /// its address.
    fn forget_ignored(&mut self, name: &str, uid: Option<&str>) -> Option<Slot> {
        let slot = self.addresses.forget_ignored(name, uid)?;
        self.set_name_taken(&slot, false);
        Some(slot)
    }

    fn set_name_taken(&mut self, slot: &Slot, is_taken: bool) {
        self.update(slot, |usage| usage.is_name_taken = is_taken);
    }

    /// The address that an object of this name reserves.
    fn slot_of_name(&self, name: &str) -> Option<Slot> {
        // A pool without addresses in use has no scope with some.
        let pools = self.pools.iter().map(|(pool, entry)| entry.scope(pool));
        self.addresses.slot_of_name(name, pools)
    }

    /// Removes an object that is not a valid reservation. Returns its address.
    pub(super) fn remove_invalid(&mut self, name: &str, uid: &str) -> Option<Slot> {
        self.addresses.see_invalid_deleted(uid);
        let slot = match self.forget_ignored(name, Some(uid)) {
            Some(slot) => slot,
            None => self.slot_of_name(name)?,
        };
        self.remove_at(&slot, Some(Uid::of(uid)));
        Some(slot)
    }

    /// Records the reservation of an address. Returns its claim if it has to be reconciled.
    fn insert_at(
        &mut self,
        slot: &Slot,
        mut reservation: ReservationInfo,
    ) -> Option<NamespacedName> {
        reservation.is_remembered = self
            .pools
            .keeps_for_next(&reservation, clock::now().0.as_second());
        let to_wake = if self.wakes_its_claim(slot, &reservation) {
            reservation.claim.clone()
        } else {
            None
        };
        if let Some(claim) = &to_wake
            && let Some(entry) = self.pools.get_mut(&reservation.pool)
        {
            entry.wait_queue.stop_waiting_for_pool(claim);
        }
        self.addresses.index_holder(slot, Some(&reservation));
        let claim = reservation.claim.clone();
        let claim_uid = reservation.claim_uid;
        let is_released = reservation.released_at.is_some();
        let pool = reservation.pool.clone();
        self.update(slot, |usage| {
            usage.candidate = None;
            usage.set_reservation(reservation);
        });
        self.reservation_inserted(&pool, &slot.scope);
        if let Some(claim) = claim
            && let Some(uid) = claim_uid
        {
            if !is_released {
                self.correct_member(&claim, &pool, slot);
            }
            self.leave_when_served(&pool, &claim, uid);
        }
        to_wake
    }

    /// Whether the claim of a reservation, which is to be recorded, has to be reconciled.
    fn wakes_its_claim(&self, slot: &Slot, reservation: &ReservationInfo) -> bool {
        let Some(claim) = &reservation.claim else {
            return false;
        };
        let mut waits = false;
        let mut is_sticky = false;
        if let Some(entry) = self.pools.get(&reservation.pool) {
            waits = entry.wait_queue.waits(claim);
            is_sticky = entry.retention().is_sticky;
        }
        if reservation.released_at.is_some() {
            // The next claim of the same name may have been observed before the release.
            return waits && is_sticky;
        }
        let mut is_new = true;
        let mut was_observed = false;
        if let Some(known) = self.addresses.reservation(slot) {
            is_new = known.uid != reservation.uid || known.claim_uid != reservation.claim_uid;
            was_observed = known.is_observed && !is_new;
            // The claim has an IPAddress with this address, which was reserved for another claim.
            if is_new
                && self
                    .addresses
                    .usage(slot)
                    .is_some_and(|usage| usage.is_owned_by(claim))
            {
                return true;
            }
        }
        // The limits of the pool are checked when the watch has reported it.
        let is_checked_now = reservation.is_observed && !was_observed;
        // It is promised to the claim, or the claim waits since its creation had an unknown
        // outcome.
        (is_new && reservation.is_manual()) || (waits && (is_new || is_checked_now))
    }

    /// Removes a claim that has an IPAddress and its reservation from the wait queue, and returns
    /// whether it was there. Two managers can serve one claim: it can have requested an address
    /// after its IPAddress was observed. Nothing reconciles it any more, so a turn would stay
    /// unused.
    pub(super) fn leave_when_served(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        uid: Uid,
    ) -> bool {
        // Nearly no claim waits: this is cheaper than to search its addresses.
        match self.pools.get(pool) {
            Some(entry) if entry.wait_queue.waits(claim) => {}
            _ => return false,
        }
        if !self.addresses.is_served(pool, claim, uid) {
            return false;
        }
        let Some(entry) = self.pools.get_mut(pool) else {
            return false;
        };
        let has_left = entry.wait_queue.leave(claim);
        if has_left {
            self.dirty_pools.push(pool.clone());
        }
        has_left
    }

    /// Removes a reservation. Returns its address if it is a valid one.
    pub(super) fn remove(&mut self, reservation: &IPReservation) -> Option<Slot> {
        let uid = reservation.metadata.uid.as_deref().unwrap_or_default();
        let name = reservation.metadata.name.as_deref().unwrap_or_default();
        if let Ok((slot, _)) = reservation.slot() {
            self.forget_ignored(name, Some(uid));
            self.remove_at(&slot, Some(Uid::of(uid)));
            return Some(slot);
        }
        self.remove_invalid(name, uid)
    }

    /// Removes the reservation of an address, if it has that uid or no uid is passed.
    pub(super) fn remove_at(&mut self, slot: &Slot, uid: Option<Uid>) {
        if self.addresses.see_deleted(slot, uid) {
            self.addresses.index_holder(slot, None);
            self.update(slot, |usage| usage.reservation = None);
        }
    }

    /// Removes all IPAddress objects that the newest list does not show.
    pub(super) fn remove_unlisted_addresses(&mut self) {
        let unlisted = self.addresses.end_list();
        let is_missing = |owner: &AddressOwner| unlisted.contains(owner.list);
        let slots = self
            .addresses
            .slots(|usage| usage.owners.iter().any(is_missing));
        for slot in &slots {
            let sets = &mut self.sets;
            if let Some(usage) = self.addresses.usage(slot) {
                let missing = usage.owners.iter().filter(|owner| is_missing(owner));
                missing.for_each(|owner| sets.forget_address(&owner.name));
            }
            self.update(slot, |usage| {
                usage.owners.retain(|owner| !is_missing(owner))
            });
        }
    }

    /// Records that the IPAddress of this name exists, although its address cannot be read. Linear
    /// in the addresses in use: such an object is rare.
    pub(super) fn keep_addresses_of(&mut self, name: &NamespacedName) {
        let list = self.addresses.list();
        for slot in self.addresses.slots(|usage| usage.is_owned_by(name)) {
            self.update(&slot, |usage| usage.set_list(name, list));
        }
    }

    /// Removes the IPAddress of this name, whatever address it has. Linear in the addresses in use.
    pub(super) fn remove_addresses_of(&mut self, name: &NamespacedName) {
        self.sets.forget_address(name);
        for slot in self.addresses.slots(|usage| usage.is_owned_by(name)) {
            self.update(&slot, |usage| usage.remove_address(name));
        }
    }

    /// Removes all reservations that the newest list does not show.
    pub(super) fn remove_unlisted_reservations(&mut self) {
        let (slots, names) = self.addresses.end_reservation_list();
        for slot in &slots {
            self.remove_at(slot, None);
        }
        for name in &names {
            self.forget_ignored(name, None);
        }
    }
}
