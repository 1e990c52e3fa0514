//! Claims that name a set of pools: chooses the member, of which the claim gets an address as if it
//! had named it.
//!
//! The reservation of the address records the choice. So a claim that has one, or may have one, tries
//! that member first.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::advice::MISSING_POOL;
use capi_ipam_api::{PoolChoice, PoolKey, PoolSetKey, conditions, first_texts, names};
use capi_ipam_ledger::{PoolLookup, SetInfo, failure_domain};
use capi_ipam_provider::advanced::{Ensured, PoolView};
use capi_ipam_provider::api::{IPAddress, MachineOwner};
use capi_ipam_provider::prelude::HandlerError;
use kube::ResourceExt;

use super::errors::{not_seen_yet, request_error};
use super::handler::InClusterHandler;

/// Why the members of a set have no address for a claim.
struct Refusals<'a> {
    set: &'a PoolSetKey,
    /// The failure domain of the members.
    zone: Option<&'a str>,
    errors: Vec<HandlerError>,
}

impl Refusals<'_> {
    /// The claim reports that pools are exhausted if one is: it waits for an address of it.
    fn into_error(self) -> HandlerError {
        let place = match self.zone {
            Some(zone) => format!(" in failure domain {zone}"),
            None => String::new(),
        };
        let set = self.set;
        if self.errors.is_empty() {
            return HandlerError::Waiting {
                reason: conditions::NO_POOLS,
                message: format!("{set} has no pools{place}; add one to the set"),
            };
        }
        let count = self.errors.len();
        let is_exhausted = |error: &HandlerError| matches!(error, HandlerError::PoolExhausted(_));
        let summary = if self.errors.iter().all(is_exhausted) {
            format!("all of its {count} pools{place} are exhausted")
        } else {
            format!("none of its {count} pools{place} can serve it")
        };
        let reasons = first_texts(&self.errors, "; ");
        let message = format!("{set} has no address for the claim: {summary}: {reasons}");
        let mut errors = self.errors;
        let first = errors.iter().position(is_exhausted).unwrap_or_default();
        match errors.swap_remove(first) {
            HandlerError::PoolExhausted(_) => HandlerError::PoolExhausted(message),
            HandlerError::PoolNotAllowed(_) => HandlerError::PoolNotAllowed(message),
            HandlerError::QuotaExceeded(_) => HandlerError::QuotaExceeded(message),
            HandlerError::Waiting { reason, .. } => HandlerError::Waiting { reason, message },
            _ => HandlerError::PoolNotReady(message),
        }
    }
}

/// Whether the claim waits for the pool, and another pool can serve it meanwhile.
fn is_refusal(error: &HandlerError) -> bool {
    match error {
        HandlerError::PoolNotFound(_)
        | HandlerError::PoolNotReady(_)
        | HandlerError::PoolExhausted(_)
        | HandlerError::PoolNotAllowed(_)
        | HandlerError::QuotaExceeded(_)
        | HandlerError::Waiting { .. } => true,
        HandlerError::RetryAfter { .. }
        | HandlerError::DuplicateAddress(_)
        | HandlerError::Conflict(_)
        | HandlerError::Transient { .. }
        | HandlerError::Permanent(_) => false,
    }
}

impl InClusterHandler {
    /// Looks up the set, which stands for the pool of the claim, and its member, if that is recorded.
    /// Returns also the settings of the set.
    pub(super) fn fetch_set(
        &self,
        set: &PoolSetKey,
    ) -> Result<(PoolView, Arc<SetInfo>), HandlerError> {
        let is_deleting = self.claim.metadata.deletion_timestamp.is_some();
        let member = self.recorded_pool();
        if let Some(member) = member.as_ref().filter(|_| is_deleting) {
            self.context.terminating.add(member, &self.key);
        }
        let info = match self
            .ledger()
            .note(|ledger| ledger.set_or_wait(set, &self.key))
        {
            PoolLookup::Found(info) => info,
            PoolLookup::NotSeenYet => return Err(not_seen_yet(set)),
            PoolLookup::Missing => {
                let text = format!("{set} does not exist; {MISSING_POOL}");
                return Err(HandlerError::PoolNotFound(text));
            }
        };
        let pool = member.as_ref().and_then(|member| {
            self.ledger()
                .read(|ledger| ledger.pools().pool_info(member))
        });
        let view = PoolView {
            api_version: format!("{}/{}", names::GROUP, names::POOL_VERSION),
            uid: info.uid.clone(),
            paused: info.paused || pool.as_ref().is_some_and(|pool| pool.paused),
            deleting: info.deleting,
            holds_address: info.deleting && member.is_some(),
            release_terminating_after: self.terminating_limit(pool.as_deref()),
        };
        if view.paused || view.deleting || is_deleting {
            return Ok((view, info));
        }
        if let Err(problems) = &info.members {
            let message = format!("{set} is not valid: {problems}; correct the set");
            return Err(HandlerError::PoolNotReady(message));
        }
        if !info.initialized {
            let message = format!("{set} is not initialized yet (finalizer missing)");
            let after = Duration::from_secs(5);
            return Err(HandlerError::RetryAfter { message, after });
        }
        Ok((view, info))
    }

    pub(super) fn recorded_pool(&self) -> Option<PoolKey> {
        self.ledger()
            .read(|ledger| ledger.recorded_pool(&self.key, self.uid))
    }

    /// Allocates an address of a member: the recorded one, or else the first one that has one.
    pub(super) async fn allocate_from_set(
        &self,
        set: &PoolSetKey,
        info: &SetInfo,
        existing: Option<&IPAddress>,
    ) -> Result<Ensured, HandlerError> {
        let recorded = match existing {
            Some(existing) => Some(self.member_of(set, existing)?),
            None => self.recorded_pool(),
        };
        if let Some(pool) = &recorded {
            match self.allocate_in(set, pool, existing).await {
                // The member is gone, or no longer has the address.
                Err(error) if existing.is_none() && self.may_try_next(&error, None) => {}
                result => return result,
            }
        }
        let zone = self.zone(set, info).await?;
        let zone = zone.as_deref();
        let domains = info.domains(zone);
        let mut refusals = Refusals {
            set,
            zone: zone.filter(|_| !info.fallback),
            errors: Vec::new(),
        };
        let free = self
            .ledger()
            .read(|ledger| ledger.free_members(set, &self.key, self.uid, domains));
        let mut tried = Vec::new();
        for are_free in [true, false] {
            let members = if are_free {
                free.clone()
            } else {
                // The claim waits in the queue of each.
                self.ledger().read(|ledger| ledger.members(set, domains))
            };
            for pool in members {
                if tried.contains(&pool) {
                    continue;
                }
                match self.allocate_in(set, &pool, None).await {
                    Err(error) if self.may_try_next(&error, recorded.as_ref()) => {
                        refusals.errors.push(error);
                    }
                    result => return result,
                }
                tried.push(pool);
            }
        }
        Err(refusals.into_error())
    }

    /// Whether another member can be chosen after the error of one: nothing is reserved for the claim,
    /// or only in a member that does not exist or no longer has the address, such as `tried`. The
    /// creation of the IPAddress decides between two members, and the sweeper releases what is not
    /// used.
    fn may_try_next(&self, error: &HandlerError, tried: Option<&PoolKey>) -> bool {
        let is_lost = || match self.recorded_pool() {
            Some(pool) if Some(&pool) == tried => true,
            Some(pool) => {
                let info = self.ledger().read(|ledger| ledger.pools().pool_info(&pool));
                info.is_none()
            }
            None => true,
        };
        is_refusal(error) && (matches!(error, HandlerError::PoolExhausted(_)) || is_lost())
    }

    async fn allocate_in(
        &self,
        set: &PoolSetKey,
        pool: &PoolKey,
        existing: Option<&IPAddress>,
    ) -> Result<Ensured, HandlerError> {
        let ledger = self.ledger();
        ledger.note(|ledger| ledger.try_member(set, &self.key, pool));
        let mut ensured = self.allocate(pool, existing).await?;
        if let Ensured::Allocated(allocation) = &mut ensured {
            let name = names::MEMBER_POOL_ANNOTATION.to_owned();
            let member = pool.to_member_annotation();
            allocation.annotations.insert(name, member);
            ledger.change(|ledger| ledger.leave_set(set, &self.key));
        }
        Ok(ensured)
    }

    /// The member of which an IPAddress is.
    fn member_of(&self, set: &PoolSetKey, existing: &IPAddress) -> Result<PoolKey, HandlerError> {
        let found = self
            .ledger()
            .read(|ledger| ledger.member_of_address(existing, Some(self.uid)));
        found.ok_or_else(|| {
            HandlerError::Permanent(format!(
                "the IPAddress {} exists already, and no pool of {set} contains its address {}; delete it",
                existing.name_any(),
                existing.spec.address
            ))
        })
    }

    /// The failure domain of the claim, if the set chooses by it. `None` if any pool can be chosen.
    async fn zone(&self, set: &PoolSetKey, info: &SetInfo) -> Result<Option<String>, HandlerError> {
        if info.choose != PoolChoice::ByFailureDomain {
            return Ok(None);
        }
        let mut zone = failure_domain(&self.claim, None);
        if zone.is_none()
            && let Some(owner) = MachineOwner::of(&self.claim)
        {
            let machines = self.context.contract.machines(self.key.namespace());
            let read = machines.get(owner.name).await;
            let machine =
                read.map_err(|error| request_error("read the Machine of the claim", error))?;
            let machine = machine.filter(|machine| owner.is_of(machine));
            zone = failure_domain(&self.claim, machine.as_ref());
        }
        if zone.is_some() || info.fallback {
            return Ok(zone);
        }
        Err(HandlerError::Waiting {
            reason: conditions::FAILURE_DOMAIN_UNKNOWN,
            message: format!(
                "{set} chooses by failure domain, and neither the claim nor its Machine has the label {}; set the label \
                 of the claim, or spec.fallback of the set",
                names::ZONE_LABEL
            ),
        })
    }
}
