use std::sync::Arc;

use super::ledger::Ledger;
use crate::api::IPReservation;
use crate::provider::Contract;
use crate::runtime::client::Calls;

/// What handlers, pools and sweeper work with.
pub(super) struct Shared {
    pub(super) ledger: Arc<Ledger>,
    pub(super) reservations: Calls<IPReservation>,
    pub(super) contract: Contract,
}
