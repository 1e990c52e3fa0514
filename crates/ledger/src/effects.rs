//! What a change of the ledger asks others to do.

use std::sync::Arc;

use capi_ipam_api::{PoolKey, PoolSetKey, Slot};
use capi_ipam_objects::namespaced_name::NamespacedName;

/// What changes ask others to do. Taken with [`Ledger::take_effects`](super::Ledger::take_effects).
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Claims to reconcile, in this order: they were granted a turn, or what they wait for has
    /// changed.
    pub claims: Vec<NamespacedName>,
    /// Pools whose counts or conditions may have changed, and whose controller is not notified yet.
    pub pools: Vec<PoolKey>,
    /// Sets whose counts or conditions may have changed, and whose controller is not notified yet.
    pub sets: Vec<PoolSetKey>,
    /// Networks whose counts or members may have changed.
    pub networks: Vec<Arc<str>>,
    /// Whether a cool-down has started or ended, or its end may have changed.
    pub cooldowns_changed: bool,
    /// Whether reservations may have to be moved to another scope.
    pub scopes_changed: bool,
    /// Whether a pool was shown with fewer fields than before: a definition may have lost them.
    pub has_lost_fields: bool,
    /// Whether claims have to be rechecked: [`Ledger::take_rechecks`](super::Ledger::take_rechecks) returns them.
    pub has_rechecks: bool,
    /// Addresses in use whose reservation was deleted.
    pub unreserved: Vec<Slot>,
    /// Whether networks of pools have to be computed again: [`Ledger::refresh`](super::Ledger::refresh) computes some.
    pub has_queued_refreshes: bool,
}
