//! The sweeper: a periodic garbage collector that releases abandoned reservations, creates missing
//! ones, and passes on turns that are not used. IPAddresses without a claim are deleted by the
//! sweep of the claim controller.
//!
//! It repairs what crashes leave behind, and is deliberately slow. A reservation must be abandoned
//! in the ledger in two passes and for the grace period, and then according to live reads; every
//! write has the version that was read as precondition; and only a small part of a pool is released
//! in one pass. The reservation of an existing unbound claim is never released. A release starts
//! the cool-down, as that of the claim would have.
//!
//! Every process releases abandoned reservations, also in namespaces that it does not manage: it
//! watches the claims of all namespaces, and live reads decide. What a read shows is recorded in
//! the ledger. Reservations are created only for claims that this process manages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{IPReservation, PoolKey, ReservationClaim, Scope, Slot, conditions};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::clock;
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::trace_span;
use capi_ipam_ledger::{
    AbandonedReservation, Held, InvalidReservation, KnownReservation, Ledger, Unreserved,
    allocated_block,
};
use capi_ipam_provider::advanced::{
    ClaimCache, ClaimSnapshot, ContractClient, Lasting, ProviderSetup, Suspects,
};
use capi_ipam_provider::api::conditions::NO_CLAIM;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, Uid};
use kube::ResourceExt;
use prometheus_client::metrics::counter::Counter;
use tracing::{Instrument, debug, info, warn};

use super::context::Context;
use super::duplicates::Duplicates;
use super::options::InClusterOptions;
use super::reservation::{Ownership, build, claim_reference, ownership};
use super::reservation_store::{CreateResult, FormerUse, WriteResult};
use super::{move_label, release};

/// The maximum number of missing reservations that are created in one pass.
const MAX_RESERVED_PER_PASS: usize = 20_000;
/// The number of missing reservations that are created concurrently.
const RESERVE_CONCURRENCY: usize = 8;
/// The maximum number of addresses of a scope that are released in one pass, unless a twentieth of
/// those in use is more.
const MAX_RELEASED_PER_PASS: usize = 5;

pub(super) struct Sweeper {
    context: Arc<Context>,
    duplicates: Duplicates,
    contract: ContractClient,
    claims: ClaimCache,
    interval: Duration,
    grace: Duration,
    events: EventPublisher,
    /// The number of released reservations.
    freed: Counter,
    /// Reservations without effect that are reported already.
    reported_invalid: Vec<InvalidReservation>,
    /// Reservations that seem abandoned.
    suspects: Suspects<AbandonedReservation>,
    /// Abandoned reservations that are reported and kept.
    reported_abandoned: Lasting<AbandonedReservation>,
    report_only: bool,
}

impl BackgroundTask for Sweeper {
    async fn run_once(&mut self) -> NextRun {
        self.pass()
            .instrument(trace_span!("sweep", what = "ipreservations"))
            .await;
        NextRun::After(self.interval)
    }
}

impl Sweeper {
    pub(super) fn new(
        setup: &ProviderSetup<'_>,
        options: &InClusterOptions,
        context: Arc<Context>,
    ) -> Self {
        let duplicates = Duplicates::new(setup, Arc::clone(&context));
        Self {
            context,
            duplicates,
            contract: setup.contract.clone(),
            claims: setup.claim_cache(),
            interval: options.sweep_interval,
            grace: options.sweep_grace,
            report_only: options.sweep_report_only,
            events: setup.manager.events.clone(),
            freed: setup.orphans_freed("ipreservations"),
            reported_invalid: Vec::new(),
            suspects: Suspects::default(),
            reported_abandoned: Lasting::default(),
        }
    }

    async fn pass(&mut self) {
        let is_managed = |claim: ClaimSnapshot| claim.is_managed;
        self.context.ledger.note(|ledger| {
            ledger.prune_wait_queues(|claim| {
                self.claims
                    .get(claim.namespace(), claim.name())
                    .is_some_and(is_managed)
            });
        });
        self.end_stale_cooldowns().await;
        self.reserve_missing().await;
        self.duplicates.report().await;
        self.report_invalid_reservations();
        move_label::add_missing(&self.context).await;
        if self.release_abandoned().await {
            // A released reservation may have been that of an earlier claim for an address in use.
            self.end_stale_cooldowns().await;
            self.reserve_missing().await;
        }
    }

    /// Releases abandoned reservations, and returns whether there were any.
    async fn release_abandoned(&mut self) -> bool {
        let claims = &self.claims;
        let seen = self.context.ledger.read(|ledger| {
            ledger.abandoned_reservations(|claim, uid, has_address| {
                let claim = claims.get(claim.namespace(), claim.name());
                claim.is_some_and(|claim| claim.uid == uid && (has_address || !claim.bound))
            })
        });
        let mut released: HashMap<Scope, usize> = HashMap::new();
        let mut postponed: HashMap<Scope, usize> = HashMap::new();
        let confirmed = self.suspects.update(seen, self.grace, Instant::now());
        if self.report_only {
            let new = self.reported_abandoned.update(confirmed);
            new.iter()
                .for_each(|abandoned| self.report_abandoned(abandoned));
            return false;
        }
        for suspect in confirmed {
            let scope = &suspect.slot.scope;
            let max = MAX_RELEASED_PER_PASS
                .max(self.context.ledger.read(|ledger| ledger.usage_count(scope)) / 20);
            let count = released.entry(scope.clone()).or_default();
            if *count >= max {
                *postponed.entry(scope.clone()).or_default() += 1;
                continue;
            }
            match self.release_reservation(&suspect).await {
                Ok(true) => *count = count.saturating_add(1),
                Ok(false) => {}
                Err(error) => {
                    debug!(
                        ?suspect,
                        error = error_chain(&error),
                        "cannot verify an abandoned object, will retry"
                    );
                }
            }
            self.suspects.remove(&suspect);
        }
        for (scope, count) in postponed {
            warn!(%scope, count, "too many abandoned addresses for one pass; the others are released later");
        }
        released.values().any(|count| *count > 0)
    }

    /// Reports manually created reservations that have no effect. Admission rejects most of them.
    fn report_invalid_reservations(&mut self) {
        let invalid = self.context.ledger.read(Ledger::invalid_reservations);
        self.reported_invalid
            .retain(|known| invalid.contains(known));
        for found in invalid {
            if self.reported_invalid.contains(&found) {
                continue;
            }
            self.reported_invalid.push(found.clone());
            warn!(
                reservation = found.name,
                problem = found.problem,
                "reservation has no effect"
            );
            let mut object = IPReservation::default();
            (object.metadata.name, object.metadata.uid) = (Some(found.name), Some(found.uid));
            self.events.warning(
                &object,
                &(),
                conditions::INVALID_RESERVATION,
                "Reserve",
                &found.problem,
            );
        }
    }

    /// Reports a reservation that seems abandoned and is kept.
    fn report_abandoned(&self, abandoned: &AbandonedReservation) {
        let AbandonedReservation { slot, claim, uid } = abandoned;
        let name = slot.reservation_name();
        let (namespace, claim_name) = claim.parts();
        warn!(
            reservation = name,
            namespace,
            claim = claim_name,
            "reservation seems abandoned and is kept"
        );
        let mut object = IPReservation::default();
        let message = format!(
            "the claim in spec.claimRef does not exist or does not use {}; delete this IPReservation to release it",
            slot.block
        );
        let held = self
            .context
            .ledger
            .read(|ledger| ledger.held_by(claim, *uid));
        object.metadata.uid = held
            .into_iter()
            .find(|held| held.slot == *slot)
            .map(|held| held.uid);
        object.metadata.name = Some(name);
        self.events
            .warning(&object, &(), NO_CLAIM, "Inspect", &message);
    }

    /// Releases a reservation if its claim does not exist, or is bound to another address.
    async fn release_reservation(
        &self,
        abandoned: &AbandonedReservation,
    ) -> Result<bool, CallError> {
        let AbandonedReservation { slot, claim, uid } = abandoned;
        let (namespace, claim_name) = claim.parts();
        let uid = *uid;
        let held = self
            .context
            .ledger
            .read(|ledger| ledger.held_by(claim, uid));
        // Read before the claim: if the claim is missing in the later read, no existing claim holds
        // this reservation.
        let Some(found) = self.context.reservations.get(slot).await? else {
            return Ok(false);
        };
        let held_by = found
            .spec
            .claim_ref
            .as_ref()
            .and_then(|claim| claim.uid.as_deref())
            .map(Uid::of);
        if held_by != Some(uid) || found.spec.released_at.is_some() {
            return Ok(false);
        }
        let address = self.contract.addresses(namespace).get(claim_name).await?;
        let claim = self.contract.claims(namespace).get(claim_name).await?;
        let existing =
            claim.filter(|claim| claim.metadata.uid.as_deref().map(Uid::of) == Some(uid));
        // Compared by pool, not by scope: the network of a deleted pool is not known.
        let from = PoolKey::of_reservation(&found.spec.pool_ref);
        let in_use = address
            .as_ref()
            .zip(from)
            .is_some_and(|(address, from)| has_address(address, slot, &from));
        match existing {
            None if in_use => return Ok(false),
            Some(claim) if in_use || claim.bound_address().is_none() || address.is_none() => {
                return Ok(false);
            }
            _ => {}
        }
        // With the version that was read: the claim may have released the reservation since.
        let Some(known) = KnownReservation::of(&found) else {
            return Ok(false);
        };
        let former_use = self.former_use(slot, &held);
        let cools_down = match self
            .context
            .reservations
            .release(&known, former_use)
            .await?
        {
            WriteResult::Done(released) => released.spec.released_at.is_some(),
            WriteResult::Gone => false,
            WriteResult::Changed(_) => return Ok(false),
        };
        self.freed.inc();
        let reservation = slot.reservation_name();
        info!(
            reservation,
            claim = claim_name,
            namespace,
            cools_down,
            "released an abandoned reservation"
        );
        Ok(true)
    }

    /// How an address was used whose reservation is abandoned. `held` is what its claim holds.
    fn former_use(&self, slot: &Slot, held: &[Held]) -> FormerUse {
        if !self
            .context
            .ledger
            .read(|ledger| ledger.owners(slot))
            .is_empty()
        {
            return FormerUse::OfOther;
        }
        let known = held.iter().find(|known| known.slot == *slot);
        known.map_or(FormerUse::OfClaim, |known| release::former_use(held, known))
    }

    /// Ends the cool-downs of addresses that are in use: a provider without reservations allocated
    /// them, or a user set `releasedAt`.
    async fn end_stale_cooldowns(&self) {
        for (slot, name, uid) in self.context.ledger.read(Ledger::cooling_down_in_use) {
            let Some(claim) = self.bound_claim(&name) else {
                continue;
            };
            // This is a later claim with the name of the one that released the address.
            if uid.is_some_and(|uid| uid != claim.uid) {
                continue;
            }
            if let Err(error) = self
                .end_cooldown(&slot, name.namespace(), name.name())
                .await
            {
                debug!(%slot, error = error_chain(&error), "cannot end a cool-down, will retry");
            }
        }
    }

    /// Makes the reservation of an address that cools down that of the bound claim that uses it,
    /// according to live reads, in one write: the address is reserved at any time. The reservation
    /// is read first: a claim that is bound in a later read did not release it.
    async fn end_cooldown(
        &self,
        slot: &Slot,
        namespace: &str,
        name: &str,
    ) -> Result<(), CallError> {
        let read = self.context.reservations.get(slot).await?;
        let Some(found) = read.filter(|found| found.spec.released_at.is_some()) else {
            return Ok(());
        };
        let address = self.contract.addresses(namespace).get(name).await?;
        let has_it = |address: &IPAddress| {
            allocated_block(address).is_some_and(|(_, block, _)| block == slot.block)
        };
        let Some(address) = address.filter(has_it) else {
            return Ok(());
        };
        let claim = self.contract.claims(namespace).get(name).await?;
        let is_owner = |claim: &IPAddressClaim| {
            claim.bound_address() == Some(name)
                && claim.metadata.deletion_timestamp.is_none()
                && address
                    .owner_references()
                    .iter()
                    .any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref())
        };
        let Some(claim) = claim.filter(is_owner) else {
            return Ok(());
        };
        let Some((pool, ..)) = allocated_block(&address) else {
            return Ok(());
        };
        let Some(known) = KnownReservation::of(&found) else {
            return Ok(());
        };
        let claim = claim_reference(&claim);
        if let WriteResult::Done(_) = self
            .context
            .reservations
            .take_over(&known, &pool, &claim, None)
            .await?
        {
            debug!(
                reservation = slot.reservation_name(),
                "ended the cool-down of an address in use"
            );
        }
        Ok(())
    }

    /// Creates reservations for addresses in use that have none: after an upgrade, a move or a
    /// restore, or for manually created IPAddress objects.
    async fn reserve_missing(&self) {
        use futures::StreamExt as _;
        let is_bound = |claim: &NamespacedName| self.bound_claim(claim).is_some();
        let missing = self
            .context
            .ledger
            .read(|ledger| ledger.unreserved(MAX_RESERVED_PER_PASS, is_bound));
        let created = futures::stream::iter(missing)
            .map(|missing| async move {
                match self.reserve(&missing).await {
                    Ok(created) => created,
                    Err(error) => {
                        let error = error_chain(&error);
                        debug!(slot = %missing.slot, error, "cannot create a missing reservation, will retry");
                        false
                    }
                }
            })
            .buffer_unordered(RESERVE_CONCURRENCY)
            .filter(|created| std::future::ready(*created))
            .count()
            .await;
        if created > 0 {
            info!(count = created, "created reservations for addresses in use");
        }
    }

    /// The claim of that name, if this process manages it, and it is bound and keeps its address.
    fn bound_claim(&self, claim: &NamespacedName) -> Option<ClaimSnapshot> {
        self.claims
            .get(claim.namespace(), claim.name())
            .filter(|claim| claim.is_managed && self.keeps_address(claim))
    }

    fn keeps_address(&self, claim: &ClaimSnapshot) -> bool {
        claim.bound && !self.was_recently_deleted(claim)
    }

    /// Whether the deletion of a claim started less than the grace period ago: its address may be
    /// released any moment.
    fn was_recently_deleted(&self, claim: &ClaimSnapshot) -> bool {
        let since = claim
            .deleted
            .as_ref()
            .map(|deleted| clock::now().0.duration_since(deleted.0));
        since.is_some_and(|since| since.unsigned_abs() < self.grace || since.is_negative())
    }

    async fn reserve(&self, missing: &Unreserved) -> Result<bool, CallError> {
        let Unreserved { slot, claims } = missing;
        // The address of a duplicate belongs to the oldest claim.
        let seen = claims.iter().filter_map(|(key, pool)| {
            Some((self.claims.get(key.namespace(), key.name())?, key, pool))
        });
        let bound = seen.filter(|(claim, ..)| self.keeps_address(claim));
        let oldest = bound.min_by_key(|(claim, ..)| (claim.created, claim.uid));
        let Some((claim, key, pool)) = oldest.filter(|(claim, ..)| claim.is_managed) else {
            return Ok(false);
        };
        // The claim may have been reconciled since the pass started.
        if !self
            .context
            .ledger
            .read(|ledger| ledger.is_unreserved(slot))
        {
            return Ok(false);
        }
        let (namespace, name) = key.parts();
        // A deleted claim may have released the address, and the watch of IPAddress objects may lag
        // behind. A claim with another reservation may have another address, and the watched
        // IPAddress may be that of an earlier claim.
        let needs_read = claim.deleted.is_some()
            || !self
                .context
                .ledger
                .read(|ledger| ledger.held_by(key, claim.uid))
                .is_empty();
        if needs_read {
            let address = self.contract.addresses(namespace).get(name).await?;
            if !address.is_some_and(|address| has_address(&address, slot, pool)) {
                return Ok(false);
            }
        }
        let (namespace, name, uid) = (
            namespace.to_owned(),
            name.to_owned(),
            Some(claim.uid.to_string()),
        );
        let holding = ReservationClaim {
            namespace,
            name,
            uid,
            cluster: None,
        };
        let wanted = build(slot, pool, holding.clone());
        let is_ours = |found: &IPReservation| ownership(found, &holding) == Ownership::Ours;
        match self
            .context
            .reservations
            .create(slot, &wanted, None, is_ours)
            .await?
        {
            CreateResult::Created(_) => Ok(true),
            CreateResult::Exists(_) => Ok(false),
            CreateResult::Taken(_) => {
                warn!(%pool, %slot, namespace = holding.namespace, claim = holding.name,
                    "address is in use by one claim and reserved for another");
                Ok(false)
            }
        }
    }
}

/// Whether an IPAddress has this address, from this pool.
fn has_address(address: &IPAddress, slot: &Slot, pool: &PoolKey) -> bool {
    allocated_block(address).is_some_and(|(from, block, _)| block == slot.block && from == *pool)
}
