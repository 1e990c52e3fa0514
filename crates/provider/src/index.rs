//! A compact index of all IPAddress objects.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::finalizer;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{Observed, Origin};
use capi_ipam_controller::watch::{Keyed, ObservedCache};
use capi_ipam_protocol::decision::AddressState;
use kube::ResourceExt;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use crate::api::{ContractVersion, IPAddress, IPAddressClaim, PoolReference, Uid, names};

/// The last seen state of all IPAddress objects, by namespace and name. Filled by their watch and
/// by the writes of this process.
pub(super) struct AddressIndex {
    state: Mutex<State>,
    trigger: Trigger<IPAddressClaim>,
}

#[derive(Default)]
struct State {
    addresses: Observed<AddressRecord>,
    /// Interned pool references.
    pools: HashSet<Arc<PoolReference>>,
    is_synced: bool,
}

/// The cached properties of one IPAddress.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct AddressRecord {
    /// Uid of the claim that owns the IPAddress.
    pub(super) claim: Option<Uid>,
    /// The pool of the IPAddress.
    pub(super) pool: Arc<PoolReference>,
    /// The version in which the claim is an owner of the IPAddress, if it is one of the contract.
    pub(super) owner_version: Option<ContractVersion>,
    /// Whether the IPAddress has our finalizer.
    pub(super) protected: bool,
    /// Whether the IPAddress has other finalizers.
    has_foreign_finalizers: bool,
    /// Whether the pool is an owner of the IPAddress.
    pub(super) owned_by_pool: bool,
    /// Whether the IPAddress is being deleted.
    pub(super) deleting: bool,
    /// Whether `spec.claimRef` has the name of the IPAddress itself, as the contract requires.
    pub(super) named_after_claim: bool,
    /// Whether the uid of the IPAddress is a UUID, which is known completely.
    has_uuid: bool,
}

impl AddressRecord {
    /// Returns whether the IPAddress belongs to the claim with its name and this uid and pool.
    fn is_for(&self, claim: Option<Uid>, pool: &PoolReference) -> bool {
        self.claim.is_some() && self.claim == claim && self.named_after_claim && *self.pool == *pool
    }
}

impl State {
    fn intern(&mut self, pool: &PoolReference) -> Arc<PoolReference> {
        if let Some(known) = self.pools.get(pool) {
            return Arc::clone(known);
        }
        // Unused references are removed from time to time.
        if self.pools.len() >= 1024 && self.pools.len().is_power_of_two() {
            self.pools.retain(|known| Arc::strong_count(known) > 1);
        }
        let pool = Arc::new(pool.clone());
        self.pools.insert(Arc::clone(&pool));
        pool
    }
}

impl AddressIndex {
    /// Creates an empty index that enqueues claims whose IPAddress is changed by others.
    pub(super) fn new(trigger: Trigger<IPAddressClaim>) -> Self {
        Self {
            state: Mutex::default(),
            trigger,
        }
    }

    /// Returns the shared copy of a pool reference.
    pub(super) fn intern(&self, pool: &PoolReference) -> Arc<PoolReference> {
        self.state.lock().intern(pool)
    }

    /// Returns the cached properties of an IPAddress; `None` if it is not known.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<AddressRecord> {
        self.state.lock().addresses.get(namespace, name).cloned()
    }

    /// Calls `function` with namespace, name and properties of all known IPAddresses, and returns
    /// its results. The index is locked meanwhile.
    pub(super) fn filter_map<T>(
        &self,
        function: impl FnMut((&str, &str, &AddressRecord)) -> Option<T>,
    ) -> Vec<T> {
        self.state
            .lock()
            .addresses
            .iter()
            .filter_map(function)
            .collect()
    }

    /// The number of known IPAddresses of a pool.
    pub(super) fn count(&self, namespace: &str, pool: &PoolReference) -> usize {
        let state = self.state.lock();
        state
            .addresses
            .iter()
            .filter(|(known, _, record)| *known == namespace && *record.pool == *pool)
            .count()
    }

    /// The state of the IPAddress with the name of the claim.
    pub(super) fn state_for(&self, claim: &IPAddressClaim) -> AddressState {
        let (key, uid) = (claim.key(), claim.metadata.uid.as_deref().map(Uid::of));
        self.state_of(&key, uid, &claim.spec.pool_ref)
    }

    /// The state of the IPAddress with this name, for the claim with the same name and this uid and
    /// pool.
    pub(super) fn state_of(
        &self,
        name: &NamespacedName,
        claim: Option<Uid>,
        pool: &PoolReference,
    ) -> AddressState {
        let (namespace, name) = name.parts();
        let state = self.state.lock();
        let Some(record) = state.addresses.get(namespace, name) else {
            return AddressState::Absent;
        };
        match (record.is_for(claim, pool), record.deleting) {
            (true, true) => AddressState::Deleting,
            (true, false) if record.protected && record.owned_by_pool => AddressState::Valid,
            _ => AddressState::Invalid,
        }
    }

    /// The last seen uid and resource version of the IPAddress of the claim, as preconditions of
    /// its deletion. `None` unless it has our finalizer and no other, and is not being deleted.
    pub(super) fn delete_preconditions(&self, claim: &IPAddressClaim) -> Option<(String, String)> {
        let key = claim.key();
        let (namespace, name) = key.parts();
        let state = self.state.lock();
        let record = state.addresses.get(namespace, name)?;
        let is_ours = record.is_for(
            claim.metadata.uid.as_deref().map(Uid::of),
            &claim.spec.pool_ref,
        );
        let has_only_our_finalizer = record.protected && !record.has_foreign_finalizers;
        if !is_ours || !has_only_our_finalizer || record.deleting || !record.has_uuid {
            return None;
        }
        let (uid, version) = state.addresses.preconditions(namespace, name)?;
        Some((uid.to_string(), version.to_string()))
    }

    /// Stores the response to a write of this process, unless a newer state is known.
    pub(super) fn insert(&self, address: &IPAddress) {
        self.upsert(address, Origin::Response);
    }

    /// Stores the state of an IPAddress, unless a newer one is known. Returns whether the record
    /// changed.
    fn upsert(&self, address: &IPAddress, origin: Origin) -> bool {
        let mut state = self.state.lock();
        let pool = state.intern(&address.spec.pool_ref);
        let record = AddressRecord {
            claim: address.claim_uid().map(Uid::of),
            owner_version: owner_version(address),
            owned_by_pool: address
                .owner_references()
                .iter()
                .any(|owner| owner.kind == pool.kind && owner.name == pool.name),
            pool,
            protected: finalizer::is_set(address, names::PROTECT_ADDRESS),
            has_foreign_finalizers: finalizer::all(address)
                .any(|other| other != names::PROTECT_ADDRESS),
            deleting: address.is_deleting(),
            named_after_claim: address.metadata.name.as_ref() == Some(&address.spec.claim_ref.name),
            has_uuid: address
                .metadata
                .uid
                .as_deref()
                .and_then(Uid::parse)
                .is_some(),
        };
        let change = state
            .addresses
            .see(origin, &address.metadata, record.clone(), Instant::now());
        change.is_some_and(|change| change.before.as_ref() != Some(&record))
    }

    /// Removes an IPAddress, unless another one of its name was created since.
    pub(super) fn remove(&self, namespace: &str, name: &str, uid: Option<&str>) {
        self.observed().delete(namespace, name, uid, Instant::now());
    }
}

impl ObservedCache for AddressIndex {
    type Object = IPAddress;
    type Value = AddressRecord;

    fn observed(&self) -> MappedMutexGuard<'_, Observed<AddressRecord>> {
        MutexGuard::map(self.state.lock(), |state| &mut state.addresses)
    }

    fn see(&self, address: &IPAddress) {
        let is_changed = self.upsert(address, Origin::Watch);
        // During the initial list every claim is reconciled anyway.
        if is_changed && self.state.lock().is_synced {
            self.trigger.enqueue(address.key());
        }
    }

    /// An IPAddress that this process deleted is already removed.
    fn removed(&self, address: &NamespacedName, record: Option<AddressRecord>) {
        if record.is_some() {
            self.trigger.enqueue(address.clone());
        }
    }

    /// Also of one that could never be decoded.
    fn not_listed(&self, address: &NamespacedName, _: Option<AddressRecord>) {
        self.trigger.enqueue(address.clone());
    }

    fn listed(&self) {
        self.state.lock().is_synced = true;
    }
}

/// The version in which the claim is an owner of an IPAddress.
fn owner_version(address: &IPAddress) -> Option<ContractVersion> {
    let (_, version) = address.claim_owner()?.api_version.split_once('/')?;
    ContractVersion::ALL
        .into_iter()
        .find(|known| known.as_str() == version)
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::controller::ControllerBuilder;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;

    use capi_ipam_controller::watch::EventHandler;

    use super::*;

    fn address(version: &str, finalizers: &[&str]) -> IPAddress {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "a", "resourceVersion": version, "finalizers": finalizers},
            "spec": {"claimRef": {"name": "a"}, "address": "10.0.0.1", "prefix": 24,
                     "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}},
        }))
        .unwrap()
    }

    #[test]
    fn late_response_does_not_replace_a_newer_state() {
        let index = AddressIndex::new(ControllerBuilder::<_, ()>::new("claims").trigger());
        let protected = || index.get("n", "a").unwrap().protected;
        index.insert(&address("12", &[names::PROTECT_ADDRESS]));
        assert!(protected());
        index.apply(&address("13", &[]));
        index.insert(&address("12", &[names::PROTECT_ADDRESS]));
        assert!(!protected());
        index.insert(&address("14", &[names::PROTECT_ADDRESS]));
        assert!(protected());
        // Another watch has seen a restore.
        index.restored();
        index.insert(&address("5", &[]));
        assert!(!protected());
        index.insert(&address("14", &[names::PROTECT_ADDRESS]));
        // A new list replaces the state: versions are lower after a restore.
        index.init();
        index.apply(&address("3", &[]));
        assert!(!protected());
    }

    #[test]
    fn unused_pool_references_are_removed() {
        let index = AddressIndex::new(ControllerBuilder::<_, ()>::new("claims").trigger());
        let reference = |number: u32| PoolReference {
            name: number.to_string(),
            ..PoolReference::default()
        };
        let used = index.intern(&reference(0));
        for number in 1..10_000 {
            index.intern(&reference(number));
        }
        assert!(index.state.lock().pools.len() <= 1024);
        assert!(Arc::ptr_eq(&used, &index.intern(&reference(0))));
    }

    #[test]
    fn delete_preconditions_require_only_our_finalizer() {
        let (uid, owner) = (
            "6101ef08-5b98-40af-8a1f-bc85701b2e47",
            "0001ef08-5b98-00af-8a1f-0085701b2e47",
        );
        let mut address = address("12", &[names::PROTECT_ADDRESS]);
        address.metadata.uid = Some(uid.to_owned());
        let kind = "IPAddressClaim".to_owned();
        let api_version = "ipam.cluster.x-k8s.io/v1beta2".to_owned();
        let reference = OwnerReference {
            api_version,
            kind,
            name: "a".into(),
            uid: owner.into(),
            ..Default::default()
        };
        address.metadata.owner_references = Some(vec![reference]);
        let mut claim = IPAddressClaim {
            metadata: address.metadata.clone(),
            ..IPAddressClaim::default()
        };
        claim.metadata.uid = Some(owner.to_owned());
        claim.spec.pool_ref = address.spec.pool_ref.clone();

        let index = AddressIndex::new(ControllerBuilder::<_, ()>::new("claims").trigger());
        index.apply(&address);
        assert_eq!(
            index.delete_preconditions(&claim),
            Some((uid.to_owned(), "12".to_owned()))
        );
        for finalizers in [
            vec![],
            vec![names::PROTECT_ADDRESS, "example.com/held"],
            vec!["example.com/held"],
        ] {
            address.metadata.finalizers = Some(finalizers.into_iter().map(str::to_owned).collect());
            index.apply(&address);
            assert_eq!(index.delete_preconditions(&claim), None);
        }
        address.metadata.finalizers = Some(vec![names::PROTECT_ADDRESS.to_owned()]);
        index.apply(&address);
        claim.metadata.uid = Some(uid.to_owned());
        assert_eq!(
            index.delete_preconditions(&claim),
            None,
            "it belongs to another claim"
        );
    }
}
