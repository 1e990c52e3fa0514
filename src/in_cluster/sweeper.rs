//! The sweeper: a periodic garbage collector that releases abandoned addresses, creates missing reservations, and
//! passes on turns that are not used.
//!
//! It repairs what crashes leave behind, and is deliberately slow. An object must be abandoned in the ledger in two
//! passes and for the grace period, and then according to live reads; every deletion has the uid that was read as
//! precondition; and only a small part of a pool is released in one pass. The reservation of an existing unbound claim
//! is never deleted.
//!
//! Every process releases abandoned addresses, also in namespaces that it does not manage: it watches the claims of all
//! namespaces, and live reads decide. What a read shows is recorded in the ledger. Reservations are created only for
//! claims that this process manages.

mod lasting;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::{clock, finalizer};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, Uid};
use capi_ipam_provider::{ClaimCache, ClaimSnapshot, ContractClient, ProviderSetup};
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::lasting::Lasting;
use super::context::Context;
use super::duplicates::Duplicates;
use super::ledger::{ClaimKey, InvalidReservation, Origin, Suspect, Unclaimed, Unreserved, allocated_block};
use super::move_label;
use super::options::InClusterOptions;
use super::reservation::{Ownership, build, ownership};
use crate::api::{IPReservation, PoolKey, ReservationClaim, Scope, Slot, conditions, names};

/// The maximum number of missing reservations that are created in one pass.
const MAX_RESERVED_PER_PASS: usize = 20_000;
/// The number of missing reservations that are created concurrently.
const RESERVE_CONCURRENCY: usize = 8;
/// The maximum number of addresses of a scope that are released in one pass, unless a twentieth of those in use is
/// more.
const MAX_RELEASED_PER_PASS: usize = 5;

pub(super) struct Sweeper {
    context: Arc<Context>,
    duplicates: Duplicates,
    contract: ContractClient,
    claims: ClaimCache,
    gates: Vec<ReadinessGate>,
    interval: Duration,
    grace: Duration,
    events: EventPublisher,
    /// Reservations without effect that are reported already.
    reported_invalid: Vec<InvalidReservation>,
    /// IPAddress objects without a claim.
    unclaimed: Lasting<Unclaimed>,
    /// Abandoned objects, with the time at which they were first found so.
    suspects: HashMap<Suspect, Instant>,
}

impl Sweeper {
    pub(super) fn new(
        setup: &ProviderSetup<'_>,
        options: &InClusterOptions,
        context: Arc<Context>,
        gates: Vec<ReadinessGate>,
    ) -> Self {
        let duplicates = Duplicates::new(setup, Arc::clone(&context));
        Self {
            context,
            duplicates,
            contract: setup.contract.clone(),
            claims: setup.claim_cache(),
            gates,
            interval: options.sweep_interval,
            grace: options.sweep_grace,
            events: setup.manager.events.clone(),
            reported_invalid: Vec::new(),
            unclaimed: Lasting::default(),
            suspects: HashMap::new(),
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let work = async {
            for gate in &self.gates {
                gate.wait().await;
            }
            loop {
                self.pass().await;
                tokio::time::sleep(self.interval).await;
            }
        };
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
    }

    async fn pass(&mut self) {
        let is_managed = |claim: ClaimSnapshot| claim.is_managed;
        self.context
            .ledger
            .prune_wait_queues(|(namespace, name)| self.claims.get(namespace, name).is_some_and(is_managed));
        self.end_stale_cooldowns().await;
        self.reserve_missing().await;
        self.duplicates.report().await;
        self.report_invalid_reservations();
        self.report_unclaimed();
        move_label::add_missing(&self.context).await;
        let confirmed = self.confirmed(Instant::now());
        let mut released: HashMap<Scope, usize> = HashMap::new();
        let mut postponed: HashMap<Scope, usize> = HashMap::new();
        for suspect in confirmed {
            let scope = &suspect.slot().scope;
            let max = MAX_RELEASED_PER_PASS.max(self.context.ledger.usage_count(scope) / 20);
            let count = released.entry(scope.clone()).or_default();
            if *count >= max {
                *postponed.entry(scope.clone()).or_default() += 1;
                continue;
            }
            let done = match &suspect {
                Suspect::Reservation { slot, claim, uid } => self.delete_reservation(slot, claim, *uid).await,
                Suspect::Address { claim, .. } => self.delete_address(claim).await,
            };
            match done {
                Ok(true) => *count = count.saturating_add(1),
                Ok(false) => {}
                Err(error) => {
                    debug!(?suspect, error = error_chain(&error), "cannot verify an abandoned object, will retry");
                }
            }
            self.suspects.remove(&suspect);
        }
        for (scope, count) in postponed {
            warn!(%scope, count, "too many abandoned addresses for one pass; the others are released later");
        }
        if released.values().any(|count| *count > 0) {
            // A deleted reservation may have been that of an earlier claim for an address in use.
            self.reserve_missing().await;
        }
    }

    /// Reports manually created reservations that have no effect. Admission rejects most of them.
    fn report_invalid_reservations(&mut self) {
        let invalid = self.context.ledger.invalid_reservations();
        self.reported_invalid.retain(|known| invalid.contains(known));
        for found in invalid {
            if self.reported_invalid.contains(&found) {
                continue;
            }
            self.reported_invalid.push(found.clone());
            warn!(reservation = found.name, problem = found.problem, "reservation has no effect");
            let mut object = IPReservation::default();
            (object.metadata.name, object.metadata.uid) = (Some(found.name), Some(found.uid));
            self.events.warning(&object, &(), conditions::INVALID_RESERVATION, "Reserve", &found.problem);
        }
    }

    /// Reports manually created IPAddress objects without a claim: their addresses count as in use.
    fn report_unclaimed(&mut self) {
        let claims = &self.claims;
        let unclaimed = self.context.ledger.unclaimed(|(namespace, name)| claims.get(namespace, name).is_some());
        // One that was created by the provider has no finalizer for a moment before it is deleted.
        for found in self.unclaimed.update(unclaimed) {
            let (namespace, name) = &found.name;
            if !self.context.selection.includes_namespace(Some(namespace)) {
                continue;
            }
            let message = format!(
                "no IPAddressClaim {name} exists: {} counts as in use and is not allocated; delete this IPAddress to \
                 release it",
                found.slot.block
            );
            warn!(namespace, address = name, value = %found.slot.block, "IPAddress has no claim and is kept");
            let mut object = IPAddress::default();
            (object.metadata.namespace, object.metadata.name) = (Some(namespace.clone()), Some(name.clone()));
            self.events.warning(&object, &self.contract.ipam, conditions::NO_CLAIM, "Inspect", &message);
        }
    }

    /// Returns the objects that were abandoned in an earlier pass too, and for the grace period.
    fn confirmed(&mut self, now: Instant) -> Vec<Suspect> {
        let claims = &self.claims;
        let seen = self.context.ledger.suspects(|(namespace, name), uid, has_address| {
            let Some(claim) = claims.get(namespace, name) else { return false };
            uid.is_none_or(|uid| claim.uid == uid && (has_address || !claim.bound))
        });
        let suspects = &self.suspects;
        self.suspects =
            seen.into_iter().map(|suspect| (suspect.clone(), suspects.get(&suspect).copied().unwrap_or(now))).collect();
        let old = |(suspect, since): (&Suspect, &Instant)| {
            (*since < now && now.saturating_duration_since(*since) >= self.grace).then(|| suspect.clone())
        };
        self.suspects.iter().filter_map(old).collect()
    }

    /// Deletes a reservation if its claim does not exist, or is bound to another address.
    async fn delete_reservation(&self, slot: &Slot, claim: &ClaimKey, uid: Uid) -> Result<bool, CallError> {
        let (namespace, claim_name) = claim;
        let name = &slot.reservation_name();
        let held = self.context.ledger.held_by(claim, uid);
        // Read before the claim: if the claim is missing in the later read, no existing claim holds this reservation.
        let Some(found) = self.context.reservations.get(name).await? else {
            let known = held.iter().find(|held| held.slot == *slot && !held.is_promise);
            known.iter().for_each(|known| self.context.ledger.remove_reservation_of(slot, &known.uid));
            return Ok(false);
        };
        let held_by = found.spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_deref()).map(Uid::of);
        if held_by != Some(uid) || found.spec.released_at.is_some() {
            self.context.ledger.insert_reservation(&found);
            return Ok(false);
        }
        let address = self.contract.addresses(namespace).get(claim_name).await?;
        let claim = self.contract.claims(namespace).get(claim_name).await?;
        let existing = claim.filter(|claim| claim.metadata.uid.as_deref().map(Uid::of) == Some(uid));
        // Compared by pool, not by scope: the network of a deleted pool is not known.
        let from = PoolKey::of_reservation(&found.spec.pool_ref);
        let in_use = address.as_ref().zip(from).is_some_and(|(address, from)| has_address(address, slot, &from));
        match existing {
            None if in_use => return Ok(false),
            Some(claim) if in_use || claim.bound_address().is_none() || address.is_none() => return Ok(false),
            _ => {}
        }
        // With the version that was read: the claim may have released the reservation since, which starts a cool-down.
        let (uid, version) = (found.uid().unwrap_or_default(), found.resource_version().unwrap_or_default());
        self.context.reservations.delete_unchanged(name, &uid, &version).await?;
        self.context.ledger.remove_reservation(&found);
        info!(reservation = name, claim = claim_name, namespace, "deleted an abandoned reservation");
        Ok(true)
    }

    /// Deletes an IPAddress if no claim of its name exists.
    async fn delete_address(&self, (namespace, name): &ClaimKey) -> Result<bool, CallError> {
        let addresses = self.contract.addresses(namespace);
        let found = addresses.get(name).await?;
        let Some(address) = found.filter(|found| Origin::of(found) == Origin::Provider) else { return Ok(false) };
        let pool = PoolKey::of_address(&address);
        if pool.and_then(|pool| self.context.ledger.pool_info(&pool)).is_some_and(|info| info.paused) {
            return Ok(false);
        }
        if let Some(cluster) = address.labels().get(names::CLUSTER_NAME_LABEL)
            && self.contract.clusters(namespace).get(cluster).await?.is_some_and(|cluster| cluster.is_paused())
        {
            return Ok(false);
        }
        if self.contract.claims(namespace).get(name).await?.is_some() {
            return Ok(false);
        }
        // With the version that was read: a claim may have been created since, and have adopted the IPAddress.
        finalizer::delete(&addresses, &address, names::PROTECT_ADDRESS).await?;
        info!(namespace, address = name, value = address.spec.address, "deleted an IPAddress without a claim");
        Ok(true)
    }

    /// Ends the cool-downs of addresses that are in use: a provider without reservations allocated them, or a user set
    /// `releasedAt`.
    async fn end_stale_cooldowns(&self) {
        for (slot, (namespace, name), uid) in self.context.ledger.cooling_down_in_use() {
            let Some(claim) = self.bound_claim(&namespace, &name) else { continue };
            // This is a later claim with the name of the one that released the address.
            if uid.is_some_and(|uid| uid != claim.uid) {
                continue;
            }
            if let Err(error) = self.end_cooldown(&slot, &namespace, &name).await {
                debug!(%slot, error = error_chain(&error), "cannot end a cool-down, will retry");
            }
        }
    }

    /// Ends the cool-down of an address that a bound claim uses, according to live reads. The reservation is read
    /// first: a claim that is bound in a later read did not release it.
    async fn end_cooldown(&self, slot: &Slot, namespace: &str, name: &str) -> Result<(), CallError> {
        let reservation = slot.reservation_name();
        let Some(found) = self.context.reservations.get(&reservation).await? else { return Ok(()) };
        if found.spec.released_at.is_none() {
            self.context.ledger.insert_reservation(&found);
            return Ok(());
        }
        let address = self.contract.addresses(namespace).get(name).await?;
        let has_it = |address: &IPAddress| allocated_block(address).is_some_and(|(_, block, _)| block == slot.block);
        let Some(address) = address.filter(has_it) else { return Ok(()) };
        let claim = self.contract.claims(namespace).get(name).await?;
        let is_owner = |claim: &IPAddressClaim| {
            claim.bound_address() == Some(name)
                && claim.metadata.deletion_timestamp.is_none()
                && address.owner_references().iter().any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref())
        };
        if !claim.as_ref().is_some_and(is_owner) {
            return Ok(());
        }
        let (uid, version) = (found.uid().unwrap_or_default(), found.resource_version().unwrap_or_default());
        self.context.reservations.delete_unchanged(&reservation, &uid, &version).await?;
        self.context.ledger.remove_reservation(&found);
        debug!(reservation, "ended the cool-down of an address in use");
        Ok(())
    }

    /// Creates reservations for addresses in use that have none: after an upgrade, a move or a restore, or for manually
    /// created IPAddress objects.
    async fn reserve_missing(&self) {
        use futures::StreamExt as _;
        let is_bound = |(namespace, name): &ClaimKey| self.bound_claim(namespace, name).is_some();
        let missing = self.context.ledger.unreserved(MAX_RESERVED_PER_PASS, is_bound);
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
    fn bound_claim(&self, namespace: &str, name: &str) -> Option<ClaimSnapshot> {
        self.claims.get(namespace, name).filter(|claim| claim.is_managed && self.keeps_address(claim))
    }

    fn keeps_address(&self, claim: &ClaimSnapshot) -> bool {
        claim.bound && !self.was_recently_deleted(claim)
    }

    /// Whether the deletion of a claim started less than the grace period ago: its address may be released any moment.
    fn was_recently_deleted(&self, claim: &ClaimSnapshot) -> bool {
        let since = claim.deleted.as_ref().map(|deleted| clock::now().0.duration_since(deleted.0));
        since.is_some_and(|since| since.unsigned_abs() < self.grace || since.is_negative())
    }

    async fn reserve(&self, missing: &Unreserved) -> Result<bool, CallError> {
        let Unreserved { slot, claims } = missing;
        // The address of a duplicate belongs to the oldest claim.
        let seen = claims.iter().filter_map(|(key, pool)| Some((self.claims.get(&key.0, &key.1)?, key, pool)));
        let bound = seen.filter(|(claim, ..)| self.keeps_address(claim));
        let oldest = bound.min_by_key(|(claim, ..)| (claim.created, claim.uid));
        let Some((claim, key, pool)) = oldest.filter(|(claim, ..)| claim.is_managed) else { return Ok(false) };
        // The claim may have been reconciled since the pass started.
        if !self.context.ledger.is_unreserved(slot) {
            return Ok(false);
        }
        let (namespace, name) = key.clone();
        // A deleted claim may have released the address, and the watch of IPAddress objects may lag behind. A claim
        // with another reservation may have another address, and the watched IPAddress may be that of an earlier claim.
        let needs_read = claim.deleted.is_some() || !self.context.ledger.held_by(key, claim.uid).is_empty();
        if needs_read {
            let address = self.contract.addresses(&namespace).get(&name).await?;
            if !address.is_some_and(|address| has_address(&address, slot, pool)) {
                return Ok(false);
            }
        }
        let holding = ReservationClaim { namespace, name, uid: Some(claim.uid.to_string()) };
        match self.context.reservations.create(&build(slot, pool, holding.clone())).await {
            Ok(created) => {
                self.context.ledger.insert_reservation(&created);
                Ok(true)
            }
            Err(error) if error.is_already_exists() => {
                let name = slot.reservation_name();
                if let Some(found) = self.context.reservations.get(&name).await? {
                    self.context.ledger.insert_reservation(&found);
                    if ownership(&found, &holding) != Ownership::Ours {
                        warn!(%pool, %slot, namespace = holding.namespace, claim = holding.name,
                            "address is in use by one claim and reserved for another");
                    }
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether an IPAddress has this address, from this pool.
fn has_address(address: &IPAddress, slot: &Slot, pool: &PoolKey) -> bool {
    allocated_block(address).is_some_and(|(from, block, _)| block == slot.block && from == *pool)
}
