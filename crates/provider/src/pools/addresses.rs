//! Which address of a pool each IPAddress has, to detect a provider that allocates an address
//! twice, and to count the addresses of a pool.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{Observed, Origin};
use capi_ipam_controller::watch::{Keyed, ObservedCache};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::EnqueuePool;
use crate::adapter::PoolKind;
use crate::api::{IPAddress, IPAddressClaim};

/// The addresses of the pools of one kind, as last seen by the watch of IPAddresses.
pub(super) struct PoolAddresses {
    kind: PoolKind,
    state: Mutex<State>,
    /// Called with each pool whose count has changed.
    on_change: EnqueuePool,
}

#[derive(Default)]
struct State {
    /// The pools of the IPAddresses, and their addresses. `None`: not a valid address.
    used: Observed<Used>,
    /// The names of the IPAddresses with an address. More than one name of a slot is a duplicate.
    names: BTreeSet<(Slot, Arc<str>)>,
    /// The number of IPAddresses of each pool.
    counts: HashMap<NamespacedName, usize>,
    /// The pools whose count has changed.
    changed: Vec<NamespacedName>,
}

/// The pool of an IPAddress, and its address if it is valid.
pub(super) type Used = (NamespacedName, Option<IpAddr>);

/// A pool and one of its addresses.
type Slot = (NamespacedName, IpAddr);

impl State {
    fn add(&mut self, (pool, address): Used, name: &str) {
        let count = self.counts.entry(pool.clone()).or_default();
        *count = count.saturating_add(1);
        self.changed.push(pool.clone());
        if let Some(address) = address {
            self.names.insert(((pool, address), name.into()));
        }
    }

    fn remove(&mut self, (pool, address): &Used, name: &str) {
        if let Some(count) = self.counts.get_mut(pool) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(pool);
            }
        }
        self.changed.push(pool.clone());
        if let Some(address) = *address {
            self.names.remove(&((pool.clone(), address), name.into()));
        }
    }
}

impl PoolAddresses {
    pub(super) fn new(kind: PoolKind, on_change: EnqueuePool) -> Self {
        Self {
            kind,
            state: Mutex::default(),
            on_change,
        }
    }

    /// The number of IPAddresses of a pool.
    pub(super) fn count(&self, pool: &NamespacedName) -> usize {
        let state = self.state.lock();
        state.counts.get(pool).copied().unwrap_or_default()
    }

    /// Changes the state, and enqueues the pools whose count has changed.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let changed = {
            let mut state = self.state.lock();
            change(&mut state);
            std::mem::take(&mut state.changed)
        };
        for pool in changed {
            (self.on_change)(pool);
        }
    }

    /// Returns the name of another IPAddress of the claim's pool that has this address.
    pub(super) fn other_owner(&self, claim: &IPAddressClaim, address: IpAddr) -> Option<String> {
        let claim_name = claim.key();
        let pool = NamespacedName::new(claim_name.namespace(), &claim.spec.pool_ref.name);
        let slot = (pool, address.to_canonical());
        let state = self.state.lock();
        let from_slot = state.names.range((slot.clone(), "".into())..);
        let mut owners = from_slot.take_while(|(known, _)| *known == slot);
        let other = owners.find(|(_, owner)| **owner != *claim_name.name());
        other.map(|(_, owner)| owner.to_string())
    }
}

impl ObservedCache for PoolAddresses {
    type Object = IPAddress;
    type Value = Used;

    fn observed(&self) -> MappedMutexGuard<'_, Observed<Used>> {
        MutexGuard::map(self.state.lock(), |state| &mut state.used)
    }

    fn see(&self, address: &IPAddress) {
        let pool = &address.spec.pool_ref;
        let object = address.key();
        let (namespace, name) = object.parts();
        if !self.kind.matches(pool) {
            let before = self.observed().forget(namespace, name);
            self.removed(&object, before);
            return;
        }
        let value = address.spec.address.parse::<IpAddr>().ok();
        let used = (
            NamespacedName::new(namespace, &pool.name),
            value.map(|value| value.to_canonical()),
        );
        self.change(|state| {
            let now = Instant::now();
            let metadata = &address.metadata;
            let change = state.used.see(Origin::Watch, metadata, used.clone(), now);
            let Some(change) = change.filter(|change| change.before.as_ref() != Some(&used)) else {
                return;
            };
            let before = change.before.iter();
            before.for_each(|before| state.remove(before, name));
            state.add(used, name);
        });
    }

    fn removed(&self, address: &NamespacedName, used: Option<Used>) {
        if let Some(used) = used {
            self.change(|state| state.remove(&used, address.name()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use capi_ipam_controller::watch::{EventHandler, Invalid};

    use super::*;

    fn address(name: &str, pool: &str, value: &str) -> IPAddress {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name},
            "spec": {"claimRef": {"name": name}, "address": value, "prefix": 24,
                     "poolRef": {"apiGroup": "example.com", "kind": "ListPool", "name": pool}},
        }))
        .unwrap()
    }

    #[test]
    fn other_owner_of_an_address_is_found() {
        let kind = PoolKind::new("example.com", "ListPool");
        let addresses = PoolAddresses::new(kind, Box::new(|_| {}));
        let owner = |name: &str, value: [u8; 4]| {
            let metadata = address(name, "p", "10.0.0.1").metadata;
            let mut claim = IPAddressClaim {
                metadata,
                ..IPAddressClaim::default()
            };
            claim.spec.pool_ref.name = "p".to_owned();
            addresses.other_owner(&claim, value.into())
        };
        addresses.init();
        addresses.apply(&address("a", "p", "10.0.0.1"));
        addresses.apply(&address("b", "other", "10.0.0.2"));
        addresses.init_done();
        assert_eq!(
            (
                owner("c", [10, 0, 0, 1]).as_deref(),
                owner("a", [10, 0, 0, 1])
            ),
            (Some("a"), None)
        );
        assert_eq!(owner("c", [10, 0, 0, 2]), None, "it is of another pool");
        addresses.apply(&address("b", "p", "10.0.0.1"));
        assert_eq!(owner("a", [10, 0, 0, 1]).as_deref(), Some("b"));
        addresses.delete(&address("b", "p", "10.0.0.1"));
        addresses.apply(&address("a", "p", "no address"));
        assert_eq!(owner("c", [10, 0, 0, 1]), None);
        addresses.apply(&address("a", "p", "10.0.0.1"));
        addresses.init();
        addresses.init_done();
        assert_eq!(owner("c", [10, 0, 0, 1]), None);
        let state = addresses.state.lock();
        assert!(state.names.is_empty() && state.counts.is_empty());
    }

    #[test]
    fn invalid_addresses_are_counted() {
        let changed = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changed);
        let on_change = Box::new(move |pool: NamespacedName| seen.lock().push(pool.to_string()));
        let kind = PoolKind::new("example.com", "ListPool");
        let addresses = PoolAddresses::new(kind, on_change);
        addresses.apply(&address("a", "p", "10.0.0.1"));
        addresses.apply(&address("b", "p", "no address"));
        let count = || addresses.count(&NamespacedName::new("n", "p"));
        assert_eq!((count(), changed.lock().len()), (2, 2));
        // Nothing has changed.
        addresses.apply(&address("b", "p", "no address"));
        assert_eq!(changed.lock().len(), 2);
        addresses.delete(&address("b", "p", "no address"));
        assert_eq!(count(), 1);
        addresses.apply(&address("a", "q", "10.0.0.1"));
        assert_eq!(count(), 0);
        assert_eq!(changed.lock().last().map(String::as_str), Some("n/q"));
    }

    #[test]
    fn undecodable_address_stays_counted_until_it_is_deleted() {
        let kind = PoolKind::new("example.com", "ListPool");
        let addresses = PoolAddresses::new(kind, Box::new(|_| {}));
        let count = || addresses.count(&NamespacedName::new("n", "p"));
        let invalid = Invalid {
            spec: serde_json::Value::Null,
            error: "no address".to_owned(),
            metadata: Box::new(address("a", "p", "10.0.0.1").metadata),
        };
        addresses.apply(&address("a", "p", "10.0.0.1"));
        addresses.init();
        addresses.apply_invalid(&invalid);
        addresses.init_done();
        assert_eq!(count(), 1);
        addresses.delete_invalid(&invalid);
        assert_eq!(count(), 0);
    }
}
