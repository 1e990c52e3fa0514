//! The sweeper: frees addresses that no claim holds any more, reserves those in use that have no reservation, and passes
//! turns on that are not used.
//!
//! It is the last resort after crashes, and never in a hurry: what looks abandoned to the ledger has to look so twice
//! and for some time, and then to live reads; every deletion carries the uid that was read; and no more than a small
//! part of a pool is freed in one pass. A reservation is never freed while its claim lives unbound.
//!
//! Of several processes any may free what is abandoned, also in namespaces that it does not serve: the claims of all
//! namespaces are known, and live reads decide. What a read shows goes into the ledger. Reservations are created only for
//! claims that this process serves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, chain};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::{clock, finalizer};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, Uid};
use capi_ipam_provider::{Claims, ContractClient, ProviderSetup, ClaimSnapshot};
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::api::{conditions, IPReservation, names, PoolKey, ReservationClaim, Scope, Slot};
use super::context::Shared;
use super::duplicates::Duplicates;
use super::ledger::{ClaimKey, holding, Origin, Suspect, Unclaimed, Unreserved, InvalidReservation};
use super::move_label::MoveLabeler;
use super::options::InClusterOptions;
use super::reservation::{build, Holder, holder};

/// How many missing reservations are made in one pass.
const MAX_RESERVED_PER_PASS: usize = 20_000;
/// How many missing reservations are made at the same time.
const RESERVE_CONCURRENCY: usize = 8;
/// So many addresses of a pool may be freed in one pass, or a twentieth of it if that is more.
const MAX_FREED_PER_PASS: usize = 5;

pub(super) struct Sweeper {
    shared: Arc<Shared>,
    unlabelled: Arc<MoveLabeler>,
    duplicates: Duplicates,
    contract: ContractClient,
    claims: Claims,
    awaited: Vec<ReadinessGate>,
    interval: Duration,
    grace: Duration,
    events: EventPublisher,
    /// Reservations that have been told to be of no use.
    reported: Vec<InvalidReservation>,
    /// IPAddress objects without a claim that have been reported.
    unclaimed: Vec<Unclaimed>,
    /// Since when something looks abandoned.
    suspects: HashMap<Suspect, Instant>,
}

impl Sweeper {
    pub(super) fn new(
        setup: &ProviderSetup<'_>,
        options: &InClusterOptions,
        shared: Arc<Shared>,
        unlabelled: Arc<MoveLabeler>,
        awaited: Vec<ReadinessGate>,
    ) -> Self {
        let duplicates = Duplicates::new(setup, Arc::clone(&shared));
        Self {
            shared,
            unlabelled,
            duplicates,
            contract: setup.contract.clone(),
            claims: setup.claims(),
            awaited,
            interval: options.sweep_interval,
            grace: options.sweep_grace,
            events: setup.manager.events.clone(),
            reported: Vec::new(),
            unclaimed: Vec::new(),
            suspects: HashMap::new(),
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let work = async {
            for synced in &self.awaited {
                synced.wait().await;
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
        let is_served = |claim: ClaimSnapshot| claim.served;
        self.shared.ledger.prune_wait_queues(|(namespace, name)| self.claims.get(namespace, name).is_some_and(is_served));
        self.end_pointless_rests().await;
        self.reserve_missing().await;
        self.duplicates.report().await;
        self.report_useless_reservations();
        self.report_unclaimed();
        self.unlabelled.label(&self.shared.reservations).await;
        let confirmed = self.confirmed(Instant::now());
        let mut freed: HashMap<Scope, usize> = HashMap::new();
        let mut held_back: HashMap<Scope, usize> = HashMap::new();
        for suspect in confirmed {
            let scope = &suspect.slot().scope;
            let most = MAX_FREED_PER_PASS.max(self.shared.ledger.taken(scope) / 20);
            let count = freed.entry(scope.clone()).or_default();
            if *count >= most {
                *held_back.entry(scope.clone()).or_default() += 1;
                continue;
            }
            let done = match &suspect {
                Suspect::Reservation { slot, claim, uid } => self.free(slot, claim, *uid).await,
                Suspect::Address { claim, .. } => self.remove_address(claim).await,
            };
            match done {
                Ok(true) => *count = count.saturating_add(1),
                Ok(false) => {}
                Err(error) => debug!(?suspect, error = chain(&error), "cannot verify, will retry"),
            }
            self.suspects.remove(&suspect);
        }
        for (scope, count) in held_back {
            warn!(%scope, count, "more addresses look abandoned than are freed at once; the rest follows later");
        }
        if freed.values().any(|count| *count > 0) {
            // An address can be in use under a reservation of an earlier claim.
            self.reserve_missing().await;
        }
    }

    /// Tells of reservations made by hand that do not do what they were made for. Where admission works there are none.
    fn report_useless_reservations(&mut self) {
        let useless = self.shared.ledger.invalid_reservations();
        self.reported.retain(|known| useless.contains(known));
        for useless in useless {
            if self.reported.contains(&useless) {
                continue;
            }
            self.reported.push(useless.clone());
            warn!(reservation = useless.name, why = useless.why, "a reservation is of no use");
            let mut object = IPReservation::default();
            (object.metadata.name, object.metadata.uid) = (Some(useless.name), Some(useless.uid));
            self.events.warning(&object, &(), conditions::INVALID_RESERVATION, "Reserve", &useless.why);
        }
    }

    /// Reports IPAddress objects that somebody made by hand and that no claim has: their addresses count as in use.
    fn report_unclaimed(&mut self) {
        let claims = &self.claims;
        let unclaimed = self.shared.ledger.unclaimed(|(namespace, name)| claims.get(namespace, name).is_some());
        self.unclaimed.retain(|known| unclaimed.contains(known));
        for found in unclaimed {
            let (namespace, name) = &found.name;
            if self.unclaimed.contains(&found) || !self.shared.selection.includes_namespace(Some(namespace)) {
                continue;
            }
            let message = format!(
                "there is no IPAddressClaim {name}: {} counts as in use and is not allocated; delete this IPAddress to \
                 free it",
                found.slot.block
            );
            warn!(namespace, address = name, value = %found.slot.block, "an IPAddress has no claim and is kept");
            let mut object = IPAddress::default();
            (object.metadata.namespace, object.metadata.name) = (Some(namespace.clone()), Some(name.clone()));
            self.events.warning(&object, &self.contract.ipam, conditions::NO_CLAIM, "Inspect", &message);
            self.unclaimed.push(found);
        }
    }

    /// What has looked abandoned in an earlier pass too, and for the time of grace.
    fn confirmed(&mut self, now: Instant) -> Vec<Suspect> {
        let claims = &self.claims;
        let seen = self.shared.ledger.suspects(|(namespace, name), uid, has_address| {
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

    /// Deletes a reservation if its claim is dead, or bound to another address.
    async fn free(&self, slot: &Slot, claim: &ClaimKey, uid: Uid) -> Result<bool, CallError> {
        let (namespace, claim_name) = claim;
        let name = &slot.reservation_name();
        let known = self.shared.ledger.reservation_uid(slot, uid);
        // Read before the claim: what is held at this moment cannot be held by a claim that is gone a moment later.
        let Some(found) = self.shared.reservations.get(name).await? else {
            known.iter().for_each(|known| self.shared.ledger.remove_reservation_of(slot, known));
            return Ok(false);
        };
        let held_by = found.spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_deref()).map(Uid::of);
        if held_by != Some(uid) || found.spec.released_at.is_some() {
            self.shared.ledger.insert_reservation(&found);
            return Ok(false);
        }
        let address = self.contract.addresses(namespace).get(claim_name).await?;
        let claim = self.contract.claims(namespace).get(claim_name).await?;
        let alive = claim.filter(|claim| claim.metadata.uid.as_deref().map(Uid::of) == Some(uid));
        // By the pool and not by its scope: a pool that is gone does not say any more which network it was in.
        let from = PoolKey::of_reservation(&found.spec.pool_ref);
        let in_use = address.as_ref().zip(from).is_some_and(|(address, from)| holds(address, slot, &from));
        match alive {
            None if in_use => return Ok(false),
            Some(claim) if in_use || claim.bound_address().is_none() || address.is_none() => return Ok(false),
            _ => {}
        }
        // As it was read: it may have been released since, and cools down then.
        let (uid, version) = (found.uid().unwrap_or_default(), found.resource_version().unwrap_or_default());
        self.shared.reservations.delete_unchanged(name, &uid, &version).await?;
        self.shared.ledger.remove_reservation(&found);
        info!(reservation = name, claim = claim_name, namespace, "a reservation of a claim that is gone is freed");
        Ok(true)
    }

    /// Removes an IPAddress if there is no claim of its name.
    async fn remove_address(&self, (namespace, name): &ClaimKey) -> Result<bool, CallError> {
        let addresses = self.contract.addresses(namespace);
        let found = addresses.get(name).await?;
        let Some(address) = found.filter(|found| Origin::of(found) == Origin::Provider) else { return Ok(false) };
        let pool = PoolKey::of_address(&address);
        if pool.and_then(|pool| self.shared.ledger.facts(&pool)).is_some_and(|facts| facts.paused) {
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
        // As it was read: a claim may have been made since, and have adopted it.
        finalizer::delete(&addresses, &address, names::PROTECT_ADDRESS).await?;
        info!(namespace, address = name, value = address.spec.address, "an IPAddress without a claim is removed");
        Ok(true)
    }

    /// Ends the cool-down of addresses that are in use: a provider without reservations allocated them, or somebody set
    /// `releasedAt` by hand.
    async fn end_pointless_rests(&self) {
        for (slot, (namespace, name), uid) in self.shared.ledger.cooling_down_in_use() {
            let Some(claim) = self.bound_claim(&namespace, &name) else { continue };
            // A later claim of the name of the one that released the address.
            if uid.is_some_and(|uid| uid != claim.uid) {
                continue;
            }
            if let Err(error) = self.end_rest(&slot, &namespace, &name).await {
                debug!(%slot, error = chain(&error), "cannot end a cool-down, will retry");
            }
        }
    }

    /// Ends the cool-down of an address that a bound claim has, by live reads: of the reservation first, since a claim that
    /// is bound after that did not release it.
    async fn end_rest(&self, slot: &Slot, namespace: &str, name: &str) -> Result<(), CallError> {
        let reservation = slot.reservation_name();
        let Some(found) = self.shared.reservations.get(&reservation).await? else { return Ok(()) };
        if found.spec.released_at.is_none() {
            self.shared.ledger.insert_reservation(&found);
            return Ok(());
        }
        let address = self.contract.addresses(namespace).get(name).await?;
        let has_it = |address: &IPAddress| holding(address).is_some_and(|(_, block, _)| block == slot.block);
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
        self.shared.reservations.delete_unchanged(&reservation, &uid, &version).await?;
        self.shared.ledger.remove_reservation(&found);
        debug!(reservation, "a cool-down is ended: the address is in use");
        Ok(())
    }

    /// Reserves addresses in use that have no reservation: after an upgrade, a move, a restore, or made by hand.
    async fn reserve_missing(&self) {
        use futures::StreamExt as _;
        let is_bound = |(namespace, name): &ClaimKey| self.bound_claim(namespace, name).is_some();
        let missing = self.shared.ledger.unreserved(MAX_RESERVED_PER_PASS, is_bound);
        let made = futures::stream::iter(missing)
            .map(|missing| async move {
                match self.reserve(&missing).await {
                    Ok(made) => made,
                    Err(error) => {
                        debug!(slot = %missing.slot, error = chain(&error), "cannot be reserved now");
                        false
                    }
                }
            })
            .buffer_unordered(RESERVE_CONCURRENCY)
            .filter(|made| std::future::ready(*made))
            .count()
            .await;
        if made > 0 {
            info!(count = made, "addresses in use without a reservation are reserved now");
        }
    }

    /// The claim of that name, if this process serves it, and it is bound and stays.
    fn bound_claim(&self, namespace: &str, name: &str) -> Option<ClaimSnapshot> {
        self.claims.get(namespace, name).filter(|claim| claim.served && self.is_bound_to_stay(claim))
    }

    fn is_bound_to_stay(&self, claim: &ClaimSnapshot) -> bool {
        claim.bound && !self.is_about_to_go(claim)
    }

    /// Whether a claim is being deleted, and not for so long that its address must be in use still.
    fn is_about_to_go(&self, claim: &ClaimSnapshot) -> bool {
        let since = claim.deleted.as_ref().map(|deleted| clock::now().0.duration_since(deleted.0));
        since.is_some_and(|since| since.unsigned_abs() < self.grace || since.is_negative())
    }

    async fn reserve(&self, missing: &Unreserved) -> Result<bool, CallError> {
        let Unreserved { slot, claims } = missing;
        // Of several the oldest has the better right.
        let seen = claims.iter().filter_map(|(key, pool)| Some((self.claims.get(&key.0, &key.1)?, key, pool)));
        let bound = seen.filter(|(claim, ..)| self.is_bound_to_stay(claim));
        let oldest = bound.min_by_key(|(claim, ..)| (claim.created, claim.uid));
        let Some((claim, key, pool)) = oldest.filter(|(claim, ..)| claim.served) else { return Ok(false) };
        // The claim may have been attended to since the pass began.
        if !self.shared.ledger.is_unreserved(slot) {
            return Ok(false);
        }
        let (namespace, name) = key.clone();
        // It may be released at this moment: then the reservation went last, and the watch has yet to tell of the rest.
        // Or it has another address already, and what the watch told last is of an earlier claim of its name.
        let is_doubtful = claim.deleted.is_some() || !self.shared.ledger.reservations_of(key, claim.uid).is_empty();
        if is_doubtful {
            let address = self.contract.addresses(&namespace).get(&name).await?;
            if !address.is_some_and(|address| holds(&address, slot, pool)) {
                return Ok(false);
            }
        }
        let holding = ReservationClaim { namespace, name, uid: Some(claim.uid.to_string()) };
        match self.shared.reservations.create(&build(slot, pool, holding.clone())).await {
            Ok(created) => {
                self.shared.ledger.insert_reservation(&created);
                Ok(true)
            }
            Err(error) if error.is_already_exists() => {
                let name = slot.reservation_name();
                if let Some(found) = self.shared.reservations.get(&name).await? {
                    self.shared.ledger.insert_reservation(&found);
                    if holder(&found, &holding) != Holder::Ours {
                        warn!(%pool, %slot, namespace = holding.namespace, claim = holding.name,
                            "an address is in use by a claim and reserved for someone else");
                    }
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether an IPAddress has that very address, from that pool.
fn holds(address: &IPAddress, slot: &Slot, pool: &PoolKey) -> bool {
    holding(address).is_some_and(|(from, block, _)| block == slot.block && from == *pool)
}
