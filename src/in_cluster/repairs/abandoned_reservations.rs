//! Reservations to which their claim is not entitled: of a claim that does not exist, or that is
//! bound to another address.
//!
//! [`ReleaseAbandoned`](capi_ipam_provider::ReleaseAbandoned) decides when and how many are
//! released. Which ones is decided by live reads, in the order of [`Check`]. The reservation of an
//! existing unbound claim is never released. One that was restored or moved waits for its claim.
//! One in a network that shares blocks waits until the registry has shown what other management
//! clusters use, see [`signs_of_life`](crate::in_cluster::signs_of_life). A release starts the
//! cool-down, as that of the claim would have.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{AllocationCause, IPReservation, PoolKey, Scope, Slot};
use capi_ipam_controller::absence::Absence;
use capi_ipam_controller::client::CallError;
use capi_ipam_controller::clock;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::{AbandonedReservation, Held, KnownReservation};
use capi_ipam_protocol::abandoned::{Check, Event, FoundAddress, FoundClaim, Step, Verdict};
use capi_ipam_provider::advanced::{AbandonedObjects, ClaimCache, Found, Release};
use capi_ipam_provider::api::conditions::NO_CLAIM;
use capi_ipam_provider::api::{IPAddressClaim, Uid};
use tracing::{debug, info, warn};

use super::{has_address, is_held_by};
use crate::in_cluster::context::Context;
use crate::in_cluster::release;
use crate::in_cluster::reservation_store::{FormerUse, WriteResult};

/// The time until the watch of a registry is asked again for a sign of life.
const SIGN_OF_LIFE_DELAY: Duration = Duration::from_secs(2);

/// How long it is remembered that a reservation is abandoned.
const CONFIRMATION_TTL: Duration = Duration::from_hours(1);

/// The reservations that seem abandoned in the ledger.
pub(super) struct AbandonedReservations {
    context: Arc<Context>,
    claims: ClaimCache,
    /// When live reads have first confirmed that a reservation is abandoned.
    confirmed: HashMap<AbandonedReservation, Instant>,
}

impl AbandonedObjects for AbandonedReservations {
    const NAME: &'static str = "ipreservations";
    type Object = AbandonedReservation;
    type Group = Scope;
    type Error = CallError;

    fn find(&self) -> Found<AbandonedReservation> {
        // A claim is entitled to what it uses, and to any address while it is not bound: it may be
        // getting this one.
        let is_entitled = |claim: &NamespacedName, uid, has_address| {
            let found = self.claims.get(claim.namespace(), claim.name());
            found.is_some_and(|found| found.uid == uid && (has_address || !found.bound))
        };
        let ledger = &self.context.ledger;
        Found {
            abandoned: ledger.read(|ledger| ledger.abandoned_reservations(is_entitled)),
            kept: Vec::new(),
        }
    }

    fn group(&self, abandoned: &AbandonedReservation) -> Scope {
        abandoned.slot.scope.clone()
    }

    fn group_size(&self, scope: &Scope) -> usize {
        self.context
            .ledger
            .read(|ledger| ledger.addresses().usage_count(scope))
    }

    /// Releases a reservation if its claim does not exist, or is bound to another address.
    async fn release(&mut self, abandoned: &AbandonedReservation) -> Result<Release, CallError> {
        // Before the reads: the ledger forgets a reservation that a read does not show.
        let held = self.held(abandoned);
        let mut reads = LiveReads {
            context: &self.context,
            abandoned,
            reservation: None,
        };
        let verdict = reads.check().await?;
        if let Verdict::Keep(reason) = verdict {
            debug!(slot = %abandoned.slot, ?reason, "a reservation that seemed abandoned is kept");
            return Ok(Release::Kept);
        }
        let Some(found) = reads.reservation else {
            return Ok(Release::Kept);
        };
        match self.awaited(abandoned).await? {
            Release::Done => {}
            kept => return Ok(kept),
        }
        if self.may_be_in_use_elsewhere(abandoned) {
            return Ok(Release::Awaits(SIGN_OF_LIFE_DELAY));
        }
        // With the version that was read: the claim may have released the reservation since.
        let Some(known) = KnownReservation::of(&found) else {
            return Ok(Release::Kept);
        };
        let former_use = self.former_use(&abandoned.slot, &held);
        let released = self.release_known(abandoned, &known, former_use).await?;
        if released == Release::Done && former_use != FormerUse::Spare {
            self.context.allocations.record(|log| {
                let (cause, place) = (AllocationCause::Abandoned, (&known.pool, &known.slot));
                let claim = found.spec.claim_ref.clone()?;
                Some(log.event(cause, place, claim))
            });
        }
        Ok(released)
    }

    async fn report(&self, abandoned: &AbandonedReservation) -> Result<(), CallError> {
        let slot = &abandoned.slot;
        let name = slot.reservation_name();
        let (namespace, claim) = abandoned.claim.parts();
        warn!(
            reservation = name,
            namespace, claim, "reservation seems abandoned and is kept"
        );
        let message = format!(
            "the claim in spec.claimRef does not exist or does not use {}; delete this IPReservation to release it",
            slot.block
        );
        let held = self.held(abandoned);
        let known = held.into_iter().find(|held| held.slot == *slot);
        let mut object = IPReservation::default();
        object.metadata.name = Some(name);
        object.metadata.uid = known.map(|known| known.uid);
        self.context
            .events
            .warning(&object, &(), NO_CLAIM, "Inspect", &message);
        Ok(())
    }
}

impl AbandonedReservations {
    pub(super) fn new(context: Arc<Context>, claims: ClaimCache) -> Self {
        Self {
            context,
            claims,
            confirmed: HashMap::new(),
        }
    }

    /// Whether the claim of a reservation may still be restored. A restored claim has another uid,
    /// and takes over the reservation when its IPAddress is restored.
    async fn awaited(&self, abandoned: &AbandonedReservation) -> Result<Release, CallError> {
        let slot = &abandoned.slot;
        let Some(found) = self.context.reservations.metadata(slot).await? else {
            return Ok(Release::Kept);
        };
        let absence = Absence::of(&found, None);
        if absence == Absence::Deleted {
            return Ok(Release::Done);
        }
        if let Some(left) = absence.remaining(self.context.restore_timeout, clock::now().0) {
            let seconds = left.as_secs();
            info!(%slot, seconds, "reservation was restored or moved, and waits for its claim");
            return Ok(Release::Awaits(left));
        }
        let (namespace, name) = abandoned.claim.parts();
        let claim = self.context.contract.claims(namespace).get(name).await?;
        let is_unbound = claim.is_some_and(|claim| claim.bound_address().is_none());
        Ok(if is_unbound {
            Release::Kept
        } else {
            Release::Done
        })
    }

    /// Whether another management cluster can use the address, for all that the registry of its
    /// block has shown: `clusterctl move` deletes claims that it has created in another cluster.
    fn may_be_in_use_elsewhere(&mut self, abandoned: &AbandonedReservation) -> bool {
        let Slot { scope, block } = &abandoned.slot;
        let Scope::Network(network) = scope else {
            return false;
        };
        let ledger = &self.context.ledger;
        let registry = ledger.read(|ledger| ledger.registry_of_address(&abandoned.slot));
        let Some(registry) = registry else {
            return false;
        };
        self.confirmed
            .retain(|_, confirmed| confirmed.elapsed() < CONFIRMATION_TTL);
        let now = Instant::now();
        let confirmed = *self.confirmed.entry(abandoned.clone()).or_insert(now);
        let signs = &self.context.signs_of_life;
        if !signs.is_seen_since(&registry, confirmed) {
            info!(slot = %abandoned.slot, registry, "reservation seems abandoned, and is kept until the registry shows that no other management cluster uses the address");
            return true;
        }
        // A process that starts without the registry would allocate the address.
        if ledger.read(|ledger| ledger.is_in_unmarked_conflict(network, *block)) {
            return true;
        }
        self.confirmed.remove(abandoned);
        false
    }

    /// What the claim of a reservation holds, as far as the ledger knows.
    fn held(&self, abandoned: &AbandonedReservation) -> Vec<Held> {
        let AbandonedReservation { claim, uid, .. } = abandoned;
        let ledger = &self.context.ledger;
        ledger.read(|ledger| ledger.addresses().held_by(claim, *uid))
    }

    /// Releases a reservation in the version that was read, and returns whether this has succeeded.
    async fn release_known(
        &self,
        abandoned: &AbandonedReservation,
        known: &KnownReservation,
        former_use: FormerUse,
    ) -> Result<Release, CallError> {
        let reservations = &self.context.reservations;
        let cools_down = match reservations.release(known, former_use).await? {
            WriteResult::Done(released) => released.spec.released_at.is_some(),
            WriteResult::Gone => false,
            WriteResult::Changed(_) => return Ok(Release::Kept),
        };
        let (namespace, claim) = abandoned.claim.parts();
        info!(
            reservation = abandoned.slot.reservation_name(),
            claim, namespace, cools_down, "released an abandoned reservation"
        );
        Ok(Release::Done)
    }

    /// How an address was used whose reservation is abandoned. `held` is what its claim holds.
    fn former_use(&self, slot: &Slot, held: &[Held]) -> FormerUse {
        let owners = self
            .context
            .ledger
            .read(|ledger| ledger.addresses().owners(slot));
        if !owners.is_empty() {
            return FormerUse::OfOther;
        }
        match held.iter().find(|known| known.slot == *slot) {
            Some(known) => release::former_use(held, known),
            None => FormerUse::OfClaim,
        }
    }
}

/// The live reads that decide whether one reservation is released.
struct LiveReads<'a> {
    context: &'a Context,
    abandoned: &'a AbandonedReservation,
    /// The reservation that was read.
    reservation: Option<IPReservation>,
}

impl LiveReads<'_> {
    /// Sends the requests of [`Check`], and returns the verdict.
    async fn check(&mut self) -> Result<Verdict, CallError> {
        let mut check = Check::start();
        loop {
            let event = match check.step() {
                Step::ReadReservation => self.read_reservation().await?,
                Step::ReadAddress => self.read_address().await?,
                Step::ReadClaim { .. } => self.read_claim().await?,
                Step::Done(verdict) => return Ok(verdict),
            };
            check.next(event);
        }
    }

    async fn read_reservation(&mut self) -> Result<Event, CallError> {
        let slot = &self.abandoned.slot;
        self.reservation = self.context.reservations.get(slot).await?;
        let found = self.reservation.as_ref();
        let is_held = found.is_some_and(|found| is_held_by(found, self.abandoned.uid));
        Ok(Event::Reservation { is_held })
    }

    async fn read_address(&self) -> Result<Event, CallError> {
        let (namespace, name) = self.abandoned.claim.parts();
        let addresses = self.context.contract.addresses(namespace);
        let Some(address) = addresses.get(name).await? else {
            return Ok(Event::Address(FoundAddress::Missing));
        };
        // Compared by pool, not by scope: the network of a deleted pool is not known.
        let reservation = self.reservation.as_ref();
        let pool = reservation.and_then(|found| PoolKey::of_reservation(&found.spec.pool_ref));
        let slot = &self.abandoned.slot;
        let is_reserved = pool.is_some_and(|pool| has_address(&address, slot, &pool));
        Ok(Event::Address(if is_reserved {
            FoundAddress::Reserved
        } else {
            FoundAddress::Other
        }))
    }

    async fn read_claim(&self) -> Result<Event, CallError> {
        let (namespace, name) = self.abandoned.claim.parts();
        let found = self.context.contract.claims(namespace).get(name).await?;
        let has_uid = |claim: &IPAddressClaim| {
            claim.metadata.uid.as_deref().map(Uid::of) == Some(self.abandoned.uid)
        };
        Ok(Event::Claim(match found.filter(has_uid) {
            None => FoundClaim::Gone,
            Some(claim) if claim.bound_address().is_some() => FoundClaim::Bound,
            Some(_) => FoundClaim::Unbound,
        }))
    }
}
