//! What is known of every IPAddress, in few bytes each.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::finalizer;
use capi_ipam_controller::watch::Observer;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use crate::api::{IPAddress, IPAddressClaim, names, PoolReference, Uid};
use crate::decision::AddressState;

/// The IPAddress objects as last seen, by namespace and name. Expectations by the watch and by the writes of this process.
pub struct AddressIndex {
    state: Mutex<State>,
    waker: Trigger<IPAddressClaim>,
}

#[derive(Default)]
struct State {
    addresses: HashMap<Arc<str>, HashMap<Box<str>, AddressRecord>>,
    /// Pool references that occur, each kept once.
    pools: HashSet<Arc<PoolReference>>,
    /// Counts listings, to tell what an older listing named from what the newest does.
    listing: u32,
    listed_once: bool,
}

/// What is known of one IPAddress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRecord {
    /// The claim that owns it.
    pub claim: Option<Uid>,
    /// The pool it was taken from.
    pub pool: Arc<PoolReference>,
    /// Whether it carries our finalizer.
    pub protected: bool,
    /// Whether it carries others.
    protected_by_others: bool,
    /// Whether the pool is among its owners.
    pub owned_by_pool: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether `spec.claimRef` names an object of its own name, as the contract demands.
    pub named_after_claim: bool,
    /// Its uid, if that is a UUID.
    uid: Option<Uid>,
    version: u64,
    listing: u32,
}

impl AddressRecord {
    /// Whether it was made for the claim of its name with that uid and pool.
    fn is_for(&self, claim: Option<Uid>, pool: &PoolReference) -> bool {
        self.claim.is_some() && self.claim == claim && self.named_after_claim && *self.pool == *pool
    }
}

impl State {
    fn shared(&mut self, pool: &PoolReference) -> Arc<PoolReference> {
        if let Some(known) = self.pools.get(pool) {
            return Arc::clone(known);
        }
        // What nobody uses any more is dropped, now and then.
        if self.pools.len() >= 1024 && self.pools.len().is_power_of_two() {
            self.pools.retain(|known| Arc::strong_count(known) > 1);
        }
        let pool = Arc::new(pool.clone());
        self.pools.insert(Arc::clone(&pool));
        pool
    }
}

impl AddressIndex {
    /// An empty index, that wakes the claims whose IPAddress is changed by others.
    pub(super) fn new(waker: Trigger<IPAddressClaim>) -> Self {
        Self { state: Mutex::default(), waker }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same reference, kept once for all that have it.
    pub(super) fn shared(&self, pool: &PoolReference) -> Arc<PoolReference> {
        self.lock().shared(pool)
    }

    /// What is known of the IPAddress of that name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<AddressRecord> {
        self.lock().addresses.get(namespace)?.get(name).cloned()
    }

    /// How the IPAddress of the claim's name stands.
    pub(super) fn state_for(&self, claim: &IPAddressClaim) -> AddressState {
        let (namespace, name) = (claim.metadata.namespace.as_deref(), claim.metadata.name.as_deref());
        let uid = claim.metadata.uid.as_deref().map(Uid::of);
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        self.state_of(namespace, name, uid, &claim.spec.pool_ref)
    }

    /// How the IPAddress of that name stands to the claim of that name with that uid and pool.
    pub(super) fn state_of(
        &self,
        namespace: &str,
        name: &str,
        claim: Option<Uid>,
        pool: &PoolReference,
    ) -> AddressState {
        let state = self.lock();
        let record = state.addresses.get(namespace).and_then(|names| names.get(name));
        let Some(record) = record else { return AddressState::Absent };
        match (record.is_for(claim, pool), record.deleting) {
            (true, true) => AddressState::Deleting,
            (true, false) if record.protected && record.owned_by_pool => AddressState::Right,
            _ => AddressState::Wrong,
        }
    }

    /// Uid and resource version, as last seen, of the IPAddress that is the claim's, if we alone protect it and it is not
    /// being deleted.
    pub(super) fn identity_for(&self, claim: &IPAddressClaim) -> Option<(String, String)> {
        let record = self.get(claim.metadata.namespace.as_deref()?, claim.metadata.name.as_deref()?)?;
        let is_ours = record.is_for(claim.metadata.uid.as_deref().map(Uid::of), &claim.spec.pool_ref);
        let protected_by_us = record.protected && !record.protected_by_others;
        let uid = record.uid.filter(|_| is_ours && protected_by_us && !record.deleting && record.version > 0)?;
        Some((uid.to_string(), record.version.to_string()))
    }

    /// Remembers the answer to our own write, before the watch tells of it; unless the watch has told of a later state.
    pub(super) fn insert(&self, address: &IPAddress) {
        self.put(address, false);
    }

    /// Remembers an IPAddress, an older state in the place of a newer one only if that is to be believed. Returns whether
    /// that was news.
    fn put(&self, address: &IPAddress, believed: bool) -> bool {
        let mut state = self.lock();
        let pool = state.shared(&address.spec.pool_ref);
        let record = AddressRecord {
            claim: owning_claim(address).map(Uid::of),
            owned_by_pool: address
                .owner_references()
                .iter()
                .any(|owner| owner.kind == pool.kind && owner.name == pool.name),
            pool,
            protected: finalizer::is_set(address, names::PROTECT_ADDRESS),
            protected_by_others: finalizer::all(address).any(|other| other != names::PROTECT_ADDRESS),
            deleting: address.metadata.deletion_timestamp.is_some(),
            named_after_claim: address.metadata.name.as_ref() == Some(&address.spec.claim_ref.name),
            uid: address.metadata.uid.as_deref().and_then(Uid::exactly),
            version: version(address),
            listing: state.listing,
        };
        let namespace = address.metadata.namespace.as_deref().unwrap_or_default();
        let name = address.metadata.name.as_deref().unwrap_or_default();
        if !state.addresses.contains_key(namespace) {
            state.addresses.insert(namespace.into(), HashMap::new());
        }
        let Some(names) = state.addresses.get_mut(namespace) else { return false };
        match names.get_mut(name) {
            Some(known) if known.version > record.version && !believed => false,
            Some(known) => {
                let unchanged =
                    AddressRecord { listing: record.listing, version: record.version, ..known.clone() } == record;
                *known = record;
                !unchanged
            }
            None => {
                names.insert(name.into(), record);
                true
            }
        }
    }

    /// Forgets an IPAddress. Returns whether it was known.
    pub(super) fn remove(&self, namespace: &str, name: &str) -> bool {
        let mut state = self.lock();
        let Some(names) = state.addresses.get_mut(namespace) else { return false };
        let known = names.remove(name).is_some();
        if names.is_empty() {
            state.addresses.remove(namespace);
        }
        known
    }
}

impl Observer<IPAddress> for AddressIndex {
    fn listing(&self) {
        let mut state = self.lock();
        state.listing = state.listing.wrapping_add(1);
    }

    fn listed(&self) {
        let mut vanished = Vec::new();
        {
            let mut state = self.lock();
            state.listed_once = true;
            let listing = state.listing;
            for (namespace, names) in &mut state.addresses {
                names.retain(|name, record| {
                    let stays = record.listing == listing;
                    if !stays {
                        vanished.push((Arc::clone(namespace), name.clone()));
                    }
                    stays
                });
            }
            state.addresses.retain(|_, names| !names.is_empty());
        }
        for (namespace, name) in vanished {
            self.waker.wake(Some(&namespace), &name);
        }
    }

    fn applied(&self, address: &IPAddress) {
        let news = self.put(address, true);
        // In the first listing every claim is looked at anyway.
        if news && self.lock().listed_once {
            self.waker.wake(address.metadata.namespace.as_deref(), &address.name_any());
        }
    }

    fn deleted(&self, address: &IPAddress) {
        let namespace = address.metadata.namespace.as_deref();
        // What this process removed itself is no news.
        if self.remove(namespace.unwrap_or_default(), &address.name_any()) {
            self.waker.wake(namespace, &address.name_any());
        }
    }
}

/// The version as a number, 0 when it is none.
fn version(address: &IPAddress) -> u64 {
    address.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// The uid of the claim that owns an IPAddress, if one does.
pub(super) fn owning_claim(address: &IPAddress) -> Option<&str> {
    let owner = address.owner_references().iter().find(|owner| owner.kind == "IPAddressClaim" && in_group(owner))?;
    Some(&owner.uid)
}

fn in_group(owner: &OwnerReference) -> bool {
    owner.api_version.split_once('/').is_some_and(|(group, _)| group == names::GROUP)
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::controller::ControllerBuilder;
    use serde_json::json;

    use crate::api::ContractVersion;
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
    fn a_late_answer_to_our_write_does_not_hide_what_happened_since() {
        let index = AddressIndex::new(ControllerBuilder::<_, ()>::new("claims", ContractVersion::V1Beta2).waker());
        let protected = || index.get("n", "a").unwrap().protected;
        index.insert(&address("12", &[names::PROTECT_ADDRESS]));
        assert!(protected());
        index.applied(&address("13", &[]));
        index.insert(&address("12", &[names::PROTECT_ADDRESS]));
        assert!(!protected());
        index.insert(&address("14", &[names::PROTECT_ADDRESS]));
        assert!(protected());
        // The watch is believed always: after a restore versions are lower.
        index.applied(&address("3", &[]));
        assert!(!protected());
    }

    #[test]
    fn pool_references_that_nobody_uses_are_dropped() {
        let index = AddressIndex::new(ControllerBuilder::<_, ()>::new("claims", ContractVersion::V1Beta2).waker());
        let reference = |number: u32| PoolReference { name: number.to_string(), ..PoolReference::default() };
        let used = index.shared(&reference(0));
        for number in 1..10_000 {
            index.shared(&reference(number));
        }
        assert!(index.lock().pools.len() <= 1024);
        assert!(Arc::ptr_eq(&used, &index.shared(&reference(0))));
    }

    #[test]
    fn only_what_we_alone_protect_is_taken_back_unread() {
        let (uid, owner) = ("6101ef08-5b98-40af-8a1f-bc85701b2e47", "0001ef08-5b98-00af-8a1f-0085701b2e47");
        let mut address = address("12", &[names::PROTECT_ADDRESS]);
        address.metadata.uid = Some(uid.to_owned());
        let kind = "IPAddressClaim".to_owned();
        let api_version = "ipam.cluster.x-k8s.io/v1beta2".to_owned();
        let reference = OwnerReference { api_version, kind, name: "a".into(), uid: owner.into(), ..Default::default() };
        address.metadata.owner_references = Some(vec![reference]);
        let mut claim = IPAddressClaim { metadata: address.metadata.clone(), ..IPAddressClaim::default() };
        claim.metadata.uid = Some(owner.to_owned());
        claim.spec.pool_ref = address.spec.pool_ref.clone();

        let index = AddressIndex::new(ControllerBuilder::<_, ()>::new("claims", ContractVersion::V1Beta2).waker());
        index.applied(&address);
        assert_eq!(index.identity_for(&claim), Some((uid.to_owned(), "12".to_owned())));
        for finalizers in [vec![], vec![names::PROTECT_ADDRESS, "example.com/held"], vec!["example.com/held"]] {
            address.metadata.finalizers = Some(finalizers.into_iter().map(str::to_owned).collect());
            index.applied(&address);
            assert_eq!(index.identity_for(&claim), None);
        }
        address.metadata.finalizers = Some(vec![names::PROTECT_ADDRESS.to_owned()]);
        index.applied(&address);
        claim.metadata.uid = Some(uid.to_owned());
        assert_eq!(index.identity_for(&claim), None, "it is another claim's");
    }
}
