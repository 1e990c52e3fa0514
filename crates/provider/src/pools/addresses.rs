//! Which address of a pool each IPAddress has, to detect a provider that allocates an address
//! twice.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{Observed, Origin};
use capi_ipam_controller::watch::EventHandler;
use parking_lot::Mutex;

use crate::adapter::PoolKind;
use crate::api::{IPAddress, IPAddressClaim};

/// The addresses of the pools of one kind, as last seen by the watch of IPAddresses.
pub(super) struct PoolAddresses {
    kind: PoolKind,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The slots of the IPAddresses.
    slots: Observed<Slot>,
    /// The names of the IPAddresses with an address. More than one name is a duplicate.
    names: HashMap<Slot, Vec<Arc<str>>>,
}

/// A pool and one of its addresses.
type Slot = (NamespacedName, IpAddr);

impl State {
    fn remove(&mut self, slot: &Slot, name: &str) {
        if let Some(names) = self.names.get_mut(slot) {
            names.retain(|known| **known != *name);
            if names.is_empty() {
                self.names.remove(slot);
            }
        }
    }
}

impl PoolAddresses {
    pub(super) fn new(kind: PoolKind) -> Self {
        Self {
            kind,
            state: Mutex::default(),
        }
    }

    /// Returns the name of another IPAddress of the claim's pool that has this address.
    pub(super) fn other_owner(&self, claim: &IPAddressClaim, address: IpAddr) -> Option<String> {
        let claim_name = NamespacedName::of(&claim.metadata);
        let pool = NamespacedName::new(claim_name.namespace(), &claim.spec.pool_ref.name);
        let slot = (pool, address.to_canonical());
        let state = self.state.lock();
        state
            .names
            .get(&slot)?
            .iter()
            .find(|owner| ***owner != *claim_name.name())
            .map(ToString::to_string)
    }
}

impl EventHandler<IPAddress> for PoolAddresses {
    fn init(&self) {
        self.state.lock().slots.begin_list();
    }

    fn init_done(&self) {
        let mut state = self.state.lock();
        for (address, slot) in state.slots.end_list(Instant::now()) {
            slot.iter()
                .for_each(|slot| state.remove(slot, address.name()));
        }
    }

    fn apply(&self, address: &IPAddress) {
        let pool = &address.spec.pool_ref;
        let object = NamespacedName::of(&address.metadata);
        let (namespace, name) = object.parts();
        let mut state = self.state.lock();
        let Some(value) = address
            .spec
            .address
            .parse::<IpAddr>()
            .ok()
            .filter(|_| self.kind.matches(pool))
        else {
            let before = state.slots.forget(namespace, name);
            before.iter().for_each(|before| state.remove(before, name));
            return;
        };
        let slot = (
            NamespacedName::new(namespace, &pool.name),
            value.to_canonical(),
        );
        let change = state.slots.see(
            Origin::Watch,
            &address.metadata,
            slot.clone(),
            Instant::now(),
        );
        let Some(change) = change.filter(|change| change.before.as_ref() != Some(&slot)) else {
            return;
        };
        change
            .before
            .iter()
            .for_each(|before| state.remove(before, name));
        state.names.entry(slot).or_default().push(name.into());
    }

    fn delete(&self, address: &IPAddress) {
        let object = NamespacedName::of(&address.metadata);
        let mut state = self.state.lock();
        let (namespace, name) = object.parts();
        let before = state.slots.delete(
            namespace,
            name,
            address.metadata.uid.as_deref(),
            Instant::now(),
        );
        before.iter().for_each(|before| state.remove(before, name));
    }

    fn restored(&self) {
        self.state.lock().slots.restored();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let addresses = PoolAddresses::new(PoolKind::new("example.com", "ListPool"));
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
        assert!(addresses.state.lock().names.is_empty());
    }
}
