use std::sync::Arc;

use super::ledger::Ledger;
use super::pool_use::PoolUse;
use crate::api::IPReservation;
use crate::provider::{Contract, Selection};
use crate::runtime::client::Calls;

/// What handlers, pools and sweeper work with.
pub(super) struct Shared {
    pub(super) ledger: Arc<Ledger>,
    pub(super) reservations: Calls<IPReservation>,
    pub(super) contract: Contract,
    pub(super) pool_use: Arc<PoolUse>,
    /// The claims and pools that this process serves.
    pub(super) selection: Selection,
}
