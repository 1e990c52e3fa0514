//! Addresses in use without a reservation: after an upgrade, a move or a restore, or of manually
//! created IPAddress objects.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{IPReservation, PoolKey, ReservationClaim, Slot};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::Unreserved;
use capi_ipam_provider::advanced::{ClaimSnapshot, ProviderSetup, Repair, Repaired, run_repair};
use futures::StreamExt as _;
use tracing::{debug, info, warn};

use super::bound_claims::BoundClaims;
use super::has_address;
use crate::in_cluster::context::Context;
use crate::in_cluster::options::InClusterOptions;
use crate::in_cluster::reservation::{Ownership, build, ownership};
use crate::in_cluster::reservation_store::CreateResult;

/// The maximum number of missing reservations that are created in one pass.
const MAX_PER_PASS: usize = 20_000;
/// The number of missing reservations that are created concurrently.
const CONCURRENCY: usize = 8;
/// The time in which the watches report that the address was released.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// Creates the reservations that bound claims lack.
pub(super) struct CreateMissingReservations {
    context: Arc<Context>,
    claims: BoundClaims,
    /// Whether each IPAddress is read: the watch has reported the deletion of a reservation, which
    /// follows that of the IPAddress if the address is released.
    always_reads: bool,
}

/// The claim that keeps an address without a reservation.
struct Keeper<'a> {
    claim: ClaimSnapshot,
    key: &'a NamespacedName,
    pool: &'a PoolKey,
}

impl Repair for CreateMissingReservations {
    const NAME: &'static str = "missing-reservations";

    async fn pass(&mut self) -> Repaired {
        let is_bound = |claim: &NamespacedName| self.claims.get_managed(claim).is_some();
        let ledger = &self.context.ledger;
        let missing = ledger.read(|ledger| ledger.unreserved(MAX_PER_PASS, is_bound));
        self.create_all(missing).await
    }
}

/// Creates a reservation at once if somebody deletes that of an address in use, for example with
/// `kubectl ipam unreserve`. The sweeper would do it later.
pub(in crate::in_cluster) struct ReplaceDeletedReservations(CreateMissingReservations);

impl ReplaceDeletedReservations {
    pub(in crate::in_cluster) fn new(
        setup: &ProviderSetup<'_>,
        options: &InClusterOptions,
        context: &Arc<Context>,
    ) -> Self {
        let claims = BoundClaims::new(setup.claim_cache(), options.sweep_grace);
        Self(CreateMissingReservations {
            always_reads: true,
            ..CreateMissingReservations::new(Arc::clone(context), claims)
        })
    }
}

impl BackgroundTask for ReplaceDeletedReservations {
    async fn run_once(&mut self) -> NextRun {
        let ledger = Arc::clone(&self.0.context.ledger);
        ledger.unreserved_added().await;
        tokio::time::sleep(SETTLE_TIME).await;
        run_repair(self).await;
        NextRun::Now
    }
}

impl Repair for ReplaceDeletedReservations {
    const NAME: &'static str = "deleted-reservations";

    async fn pass(&mut self) -> Repaired {
        let ledger = &self.0.context.ledger;
        let slots = ledger.take_unreserved();
        let missing = slots
            .iter()
            .filter_map(|slot| ledger.read(|ledger| ledger.unreserved_at(slot)))
            .collect();
        self.0.create_all(missing).await
    }
}

impl CreateMissingReservations {
    pub(super) fn new(context: Arc<Context>, claims: BoundClaims) -> Self {
        Self {
            context,
            claims,
            always_reads: false,
        }
    }

    async fn create_all(&self, missing: Vec<Unreserved>) -> Repaired {
        let count = futures::stream::iter(missing)
            .map(|missing| async move { self.try_create(&missing).await })
            .buffer_unordered(CONCURRENCY)
            .filter(|is_created| std::future::ready(*is_created))
            .count()
            .await;
        if count > 0 {
            info!(count, "created reservations for addresses in use");
        }
        Repaired { count }
    }

    /// Creates a missing reservation. Returns whether it is created.
    async fn try_create(&self, missing: &Unreserved) -> bool {
        match self.create(missing).await {
            Ok(is_created) => is_created,
            Err(error) => {
                let error = error_chain(&error);
                debug!(slot = %missing.slot, error, "cannot create a missing reservation, will retry");
                false
            }
        }
    }

    async fn create(&self, missing: &Unreserved) -> Result<bool, CallError> {
        let Some(keeper) = self.keeper(missing) else {
            return Ok(false);
        };
        let slot = &missing.slot;
        // The claim may have been reconciled since the pass started.
        let ledger = &self.context.ledger;
        if !ledger.read(|ledger| ledger.addresses().is_unreserved(slot)) {
            return Ok(false);
        }
        if self.needs_read(&keeper) && !self.has_address(&keeper, slot).await? {
            return Ok(false);
        }
        self.reserve(slot, &keeper).await
    }

    /// The claim to which an address belongs. `None` if another process manages it.
    fn keeper<'a>(&self, missing: &'a Unreserved) -> Option<Keeper<'a>> {
        let bound = missing.claims.iter().filter_map(|(key, pool)| {
            let claim = self.claims.get(key)?;
            Some(Keeper { claim, key, pool })
        });
        // The address of a duplicate belongs to the oldest claim.
        let oldest = bound.min_by_key(|keeper| (keeper.claim.created, keeper.claim.uid));
        oldest.filter(|keeper| keeper.claim.is_managed)
    }

    /// Whether the IPAddress has to be read. A deleted claim may have released the address, and the
    /// watch of IPAddress objects may lag behind. A claim with another reservation may have another
    /// address, and the watched IPAddress may be that of an earlier claim.
    fn needs_read(&self, keeper: &Keeper<'_>) -> bool {
        let ledger = &self.context.ledger;
        let held = ledger.read(|ledger| ledger.addresses().held_by(keeper.key, keeper.claim.uid));
        self.always_reads || keeper.claim.deleted.is_some() || !held.is_empty()
    }

    /// Reads whether the IPAddress of a claim has the address.
    async fn has_address(&self, keeper: &Keeper<'_>, slot: &Slot) -> Result<bool, CallError> {
        let addresses = self.context.contract.addresses(keeper.key.namespace());
        let address = addresses.get(keeper.key.name()).await?;
        Ok(address.is_some_and(|address| has_address(&address, slot, keeper.pool)))
    }

    async fn reserve(&self, slot: &Slot, keeper: &Keeper<'_>) -> Result<bool, CallError> {
        let holder = ReservationClaim {
            namespace: keeper.key.namespace().to_owned(),
            name: keeper.key.name().to_owned(),
            uid: Some(keeper.claim.uid.to_string()),
            cluster: None,
        };
        let wanted = build(slot, keeper.pool, holder.clone());
        let is_ours = |found: &IPReservation| ownership(found, &holder) == Ownership::Ours;
        let reservations = &self.context.reservations;
        match reservations.create(slot, &wanted, None, is_ours).await? {
            CreateResult::Created(_) => Ok(true),
            CreateResult::Exists(_) => Ok(false),
            CreateResult::Taken(_) => {
                warn!(pool = %keeper.pool, %slot, namespace = holder.namespace, claim = holder.name,
                    "address is in use by one claim and reserved for another");
                Ok(false)
            }
        }
    }
}
