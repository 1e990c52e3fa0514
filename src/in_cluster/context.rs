use std::sync::Arc;

use capi_ipam_controller::client::ResourceClient;
use capi_ipam_provider::{ContractClient, Selection};

use crate::api::IPReservation;
use super::ledger::Ledger;
use super::pool_use::PoolUse;

/// What handlers, pools and sweeper work with.
pub(super) struct Shared {
    pub(super) ledger: Arc<Ledger>,
    pub(super) reservations: ResourceClient<IPReservation>,
    pub(super) contract: ContractClient,
    pub(super) pool_use: Arc<PoolUse>,
    /// The claims and pools that this process serves.
    pub(super) selection: Selection,
}
