//! The dependencies of the in-cluster provider.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::IPSlice;
use capi_ipam_controller::client::ResourceClient;
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_provider::advanced::{ContractClient, Selection};

use super::allocation_log::AllocationLog;
use super::deletion_check::DeletionChecker;
use super::reservation_store::ReservationStore;
use super::shared_ledger::SharedLedger;
use super::signs_of_life::SignsOfLife;
use super::slices_listed::SlicesListed;
use super::terminating::TerminatingClaims;

/// The dependencies that claim handlers, pool controllers, sweeper and cool-downs share.
pub(super) struct Context {
    pub(super) ledger: Arc<SharedLedger>,
    pub(super) reservations: ReservationStore,
    pub(super) allocations: AllocationLog,
    pub(super) slices: ResourceClient<IPSlice>,
    pub(super) slices_listed: SlicesListed,
    pub(super) signs_of_life: Arc<SignsOfLife>,
    pub(super) events: EventPublisher,
    pub(super) contract: ContractClient,
    pub(super) deletion_checker: Arc<DeletionChecker>,
    /// For how long the claims and addresses of restored objects may be missing.
    pub(super) restore_timeout: Duration,
    pub(super) terminating: Arc<TerminatingClaims>,
    /// Selects the claims and pools that this process manages.
    pub(super) selection: Selection,
}
