//! What is known of the scope of a pool.

use std::sync::Arc;

use crate::networks::exclusions::AppliedExclusions;
use crate::networks::scope_rule::{Record, StatusRecord};

/// What is known of the scope of a pool.
#[derive(Clone, Default)]
pub(crate) struct PoolScope {
    /// What is recorded of the scope.
    pub(crate) record: Record,
    /// Whether addresses in use decide whether the pool stays in its network.
    pub(crate) depends_on_use: bool,
    /// What the status of the pool states about its network.
    pub(crate) status: Option<StatusRecord>,
    /// The network that the pool joins once the network is initialized.
    pub(crate) awaited: Option<Arc<str>>,
    /// The blocks of the pool without the exclusions of its network.
    pub(crate) exclusions: Option<AppliedExclusions>,
}

impl PoolScope {
    /// Whether neither the ledger nor the status of the pool has a record of the scope.
    pub(crate) fn is_unknown(&self) -> bool {
        self.record == Record::Unknown && self.status.is_none()
    }

    /// Forgets the pool: another one of the same name exists now. With `keeps_network` its
    /// addresses in use stay in their network, and so does the new pool.
    pub(crate) fn forget_pool(&mut self, keeps_network: bool) {
        let is_in_network = matches!(self.record, Record::Network(_));
        if !keeps_network || !is_in_network {
            self.record = Record::Unknown;
        }
        self.status = None;
    }

    /// Records what the status of the pool states about its network; `has_status` is false if the
    /// pool has no status yet. Returns whether this is what was known before.
    pub(crate) fn set_status(&mut self, has_status: bool, found: Option<StatusRecord>) -> bool {
        let known = self.status.take();
        self.status = match (found, &known) {
            (Some(found), _) => Some(found),
            // A status that no longer names the network states that the pool has left it.
            (None, Some(StatusRecord::Member(network) | StatusRecord::Left(network)))
                if has_status =>
            {
                Some(StatusRecord::Left(network.clone()))
            }
            // Without a status nothing is stated.
            (None, known) => known.clone(),
        };
        let is_same = self.status == known;
        if !is_same {
            self.record
                .note_status_change(known.as_ref(), self.status.as_ref());
        }
        is_same
    }
}
