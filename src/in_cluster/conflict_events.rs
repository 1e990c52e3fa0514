//! Events on claims that report a conflict of their address, and on the pools of these addresses.

use std::collections::HashMap;
use std::sync::Arc;

use capi_ipam_api::{Audience, Pool, conditions};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::{EventHandler, Invalid};
use capi_ipam_provider::api::{AddressConflict, ContractVersion, IPAddressClaim, Uid};
use parking_lot::Mutex;

use super::shared_ledger::SharedLedger;

/// Publishes an event for each conflict that a claim reports, once for each text.
pub(super) struct ConflictEvents {
    ledger: Arc<SharedLedger>,
    version: ContractVersion,
    events: EventPublisher,
    /// The last conflict of each claim.
    reported: Mutex<HashMap<Uid, AddressConflict>>,
}

impl ConflictEvents {
    pub(super) fn new(
        ledger: Arc<SharedLedger>,
        version: ContractVersion,
        events: EventPublisher,
    ) -> Self {
        Self {
            ledger,
            version,
            events,
            reported: Mutex::default(),
        }
    }

    fn publish(&self, claim: &IPAddressClaim, uid: Uid, conflict: &AddressConflict) {
        let key = NamespacedName::of(&claim.metadata);
        let held = self
            .ledger
            .read(|ledger| ledger.addresses().held_by(&key, uid));
        let held = held.iter().find(|held| held.was_used).or(held.first());
        let address = held.map(|held| held.slot.block.to_string());
        let address = address.as_deref().unwrap_or("its address");
        let (events, reason) = (&self.events, conditions::ADDRESS_CONFLICT);
        let text = describe("the claim", address, conflict);
        events.warning(claim, &self.version, reason, "Inspect", &text);
        let Some(pool) = held.map(|held| &held.pool) else {
            return;
        };
        let info = self.ledger.read(|ledger| ledger.pools().pool_info(pool));
        let object = Pool::reference(pool, info.map(|info| info.uid.clone()));
        let name = Audience::of_pool(pool).object("IPAddressClaim", key.namespace(), key.name());
        let text = describe(&name, address, conflict);
        events.warning(&object, &pool.kind, reason, "Inspect", &text);
    }
}

fn describe(claim: &str, address: &str, conflict: &AddressConflict) -> String {
    let (reason, duration) = (&conflict.reason, conflict.duration);
    let text = format!(
        "{claim} reports a conflict of {address}: {reason}; delete its machine: then the address is quarantined for \
         {duration:#}"
    );
    match &conflict.problem {
        Some(problem) => format!("{text}; {problem}"),
        None => text,
    }
}

impl EventHandler<IPAddressClaim> for ConflictEvents {
    fn apply(&self, claim: &IPAddressClaim) {
        let Some(uid) = claim.metadata.uid.as_deref().map(Uid::of) else {
            return;
        };
        let mut reported = self.reported.lock();
        let Some(conflict) = claim.conflict() else {
            reported.remove(&uid);
            return;
        };
        if reported.get(&uid) != Some(&conflict) {
            self.publish(claim, uid, &conflict);
            reported.insert(uid, conflict);
        }
    }

    fn delete(&self, claim: &IPAddressClaim) {
        if let Some(uid) = claim.metadata.uid.as_deref().map(Uid::of) {
            self.reported.lock().remove(&uid);
        }
    }

    fn apply_invalid(&self, _: &Invalid) {}

    /// The controller reports the last known state as deleted.
    fn delete_invalid(&self, _: &Invalid) {}
}

#[cfg(test)]
mod tests {
    use capi_ipam_provider::api::DEFAULT_QUARANTINE;

    use super::*;

    #[test]
    fn event_names_address_reason_and_duration() {
        let mut conflict = AddressConflict {
            reason: "ARP reply".to_owned(),
            duration: DEFAULT_QUARANTINE,
            problem: None,
        };
        assert_eq!(
            describe("the claim", "10.0.0.5", &conflict),
            "the claim reports a conflict of 10.0.0.5: ARP reply; delete its machine: then the address is quarantined for 24h"
        );
        conflict.problem = Some("\"x\" is not a duration".to_owned());
        assert!(
            describe("the claim", "10.0.0.5", &conflict).ends_with("24h; \"x\" is not a duration")
        );
    }
}
