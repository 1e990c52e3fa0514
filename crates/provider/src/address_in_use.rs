//! Events on IPAddresses that are deleted while their claim is bound to them. Such an IPAddress
//! keeps its finalizer until the claim is deleted.

use std::collections::HashSet;

use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::finalizer;
use capi_ipam_controller::observed::ObjectVersion;
use capi_ipam_controller::watch::{EventHandler, Invalid, Keyed};
use kube::ResourceExt;
use kube::core::ObjectMeta;
use parking_lot::Mutex;

use crate::adapter::PoolKind;
use crate::api::{ContractVersion, IPAddress, Uid, conditions, names};
use crate::claim_cache::ClaimCache;
use crate::contract::uid_of;

/// Publishes one event for each IPAddress that is deleted while its claim is bound. IPAddresses
/// that are already being deleted in the initial list get none: an earlier process published it.
pub(super) struct AddressInUseEvents {
    pub(super) version: ContractVersion,
    pub(super) pools: Vec<PoolKind>,
    pub(super) claims: ClaimCache,
    pub(super) events: EventPublisher,
    pub(super) deleting: Mutex<Deleting>,
}

/// The IPAddresses that are being deleted.
#[derive(Default)]
pub(super) struct Deleting {
    uids: HashSet<Uid>,
    /// Whether the initial list is complete.
    is_listed: bool,
}

impl Deleting {
    /// Adds an IPAddress that is being deleted. Returns whether it is new and not part of the
    /// initial list.
    fn insert(&mut self, address: &IPAddress) -> bool {
        self.uids.insert(uid_of(address)) && self.is_listed
    }
}

impl EventHandler<IPAddress> for AddressInUseEvents {
    fn init(&self) {
        *self.deleting.lock() = Deleting::default();
    }

    fn init_done(&self) {
        self.deleting.lock().is_listed = true;
    }

    fn apply(&self, address: &IPAddress) {
        let is_kept = address.is_deleting() && finalizer::is_set(address, names::PROTECT_ADDRESS);
        if !is_kept
            || !self
                .pools
                .iter()
                .any(|kind| kind.matches(&address.spec.pool_ref))
            || !self.deleting.lock().insert(address)
        {
            return;
        }
        let name = address.name_any();
        let claim = self
            .claims
            .get(&address.namespace().unwrap_or_default(), &name);
        if claim.is_some_and(|claim| claim.is_managed && claim.bound && claim.deleted.is_none()) {
            let note = format!(
                "IPAddressClaim {name} is bound to this IPAddress, which is removed after the claim"
            );
            self.events.warning(
                address,
                &self.version,
                conditions::ADDRESS_IN_USE,
                "Delete",
                &note,
            );
        }
    }

    fn delete(&self, address: &IPAddress) {
        self.forget(&address.metadata);
    }

    fn apply_invalid(&self, _: &Invalid) {}

    fn delete_invalid(&self, address: &Invalid) {
        self.forget(&address.metadata);
    }
}

impl AddressInUseEvents {
    fn forget(&self, address: &ObjectMeta) {
        let uid = ObjectVersion::of(address).uid;
        self.deleting.lock().uids.remove(&uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletion_is_new_once_and_not_in_the_initial_list() {
        let (deleting, mut address) = (Mutex::new(Deleting::default()), IPAddress::default());
        let mut is_new_deletion = |uid: &str| {
            address.metadata.uid = Some(uid.to_owned());
            deleting.lock().insert(&address)
        };
        let (before, since) = (
            "6101ef08-5b98-40af-8a1f-bc85701b2e47",
            "0001ef08-5b98-00af-8a1f-0085701b2e47",
        );
        assert!(!is_new_deletion(before));
        deleting.lock().is_listed = true;
        assert!(!is_new_deletion(before));
        assert!(is_new_deletion(since) && !is_new_deletion(since));
    }
}
