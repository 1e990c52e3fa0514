//! IPAddresses that are deleted while their claim is bound to them: they stay until the claim is deleted, and an event
//! says so.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::finalizer;
use capi_ipam_controller::watch::Observer;
use kube::ResourceExt;

use crate::adapter::PoolKind;
use crate::api::{conditions, ContractVersion, IPAddress, names, Uid};
use crate::claim_cache::Claims;

/// Publishes one event for each IPAddress that is deleted while its claim is bound. What a listing shows as deleted has had
/// its event, as far as is known.
pub(super) struct HeldAddresses {
    pub(super) version: ContractVersion,
    pub(super) pools: Vec<PoolKind>,
    pub(super) claims: Claims,
    pub(super) events: EventPublisher,
    pub(super) seen: Seen,
}

/// The IPAddresses that are being deleted.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    deleting: HashSet<Uid>,
    listed: bool,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an IPAddress that is being deleted. Returns whether that is news.
    fn note(&self, address: &IPAddress) -> bool {
        let mut state = self.lock();
        let is_new = uid(address).is_some_and(|uid| state.deleting.insert(uid));
        is_new && state.listed
    }
}

fn uid(address: &IPAddress) -> Option<Uid> {
    address.metadata.uid.as_deref().and_then(Uid::exactly)
}

impl Observer<IPAddress> for HeldAddresses {
    fn listing(&self) {
        *self.seen.lock() = State::default();
    }

    fn listed(&self) {
        self.seen.lock().listed = true;
    }

    fn applied(&self, address: &IPAddress) {
        let held = address.metadata.deletion_timestamp.is_some() && finalizer::is_set(address, names::PROTECT_ADDRESS);
        if !held || !self.pools.iter().any(|kind| kind.is_meant_by(&address.spec.pool_ref)) || !self.seen.note(address)
        {
            return;
        }
        let name = address.name_any();
        let claim = self.claims.get(&address.namespace().unwrap_or_default(), &name);
        if claim.is_some_and(|claim| claim.served && claim.bound && claim.deleted.is_none()) {
            let note = format!("IPAddressClaim {name} uses this IPAddress; it is removed once the claim is deleted");
            self.events.warning(address, &self.version, conditions::ADDRESS_IN_USE, "Delete", &note);
        }
    }

    fn deleted(&self, address: &IPAddress) {
        if let Some(uid) = uid(address) {
            self.seen.lock().deleting.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_is_news_once_and_not_in_a_listing() {
        let (seen, mut address) = (Seen::default(), IPAddress::default());
        let mut is_news = |uid: &str| {
            address.metadata.uid = Some(uid.to_owned());
            seen.note(&address)
        };
        let (before, since) = ("6101ef08-5b98-40af-8a1f-bc85701b2e47", "0001ef08-5b98-00af-8a1f-0085701b2e47");
        assert!(!is_news(before));
        seen.lock().listed = true;
        assert!(!is_news(before));
        assert!(is_news(since) && !is_news(since));
    }
}
