//! Giving a claim its address: steps A1 to A4.
//!
//! A1 the claim gets our finalizer. A2 the provider allocates. A3 the IPAddress is created whole, under the claim's
//! name. A4 the claim's status names it. Each step is guarded by what the one before it read, and each may have been
//! done before by somebody else: an IPAddress of the claim's name is adopted.
//!
//! For a provider that finds what it gave to a claim that is gone, A1 and A2 are done in the same time. A3 waits for both.

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::controller::Outcome;
use capi_ipam_controller::{clock, finalizer, patch};
use kube::ResourceExt;
use tracing::{debug, info};

use crate::adapter::{Allocation, ClaimHandler, HandlerError, PoolView, ProviderAdapter};
use crate::address::{build, is_for, repaired};
use crate::api::{IPAddress, IPAddressClaim, names};
use crate::index::owning_claim;
use crate::reconciler::{CONFLICT_RETRY_DELAY, ClaimReconciler, ReconcileError};
use crate::report::Report;
use crate::rewrite::MessageDelay;

/// How often the IPAddress of a claim may turn out to be another in one attempt.
const MAX_ROUNDS: usize = 3;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    pub(super) async fn bind(
        &self,
        claim: &IPAddressClaim,
        pool: &PoolView,
        handler: &mut A::Handler,
        delay: &mut MessageDelay,
    ) -> Result<Outcome, ReconcileError> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let known_before = finalizer::is_set(claim, names::RELEASE_ADDRESS);
        let known = self.addresses.get(&namespace, &name).is_some();
        let begun = if known_before || known || !self.adapter.allocates_before_finalizer() {
            self.add_finalizer(claim).await?.map(|claim| (claim, None))
        } else {
            self.add_finalizer_and_allocate(claim, handler).await?
        };
        let Some((claim, mut allocated_early)) = begun else { return Ok(Outcome::Done) };
        let addresses = self.contract.addresses(&namespace);
        let mut existing = if known { addresses.get(&name).await? } else { None };
        if known_before
            && existing.is_none()
            && let Some(outcome) = self.wait_for_restore(&claim, delay).await?
        {
            return Ok(outcome);
        }
        for _ in 0..MAX_ROUNDS {
            if let Some(leftover) = existing.as_ref().filter(|address| address.metadata.deletion_timestamp.is_some()) {
                self.remove_address(leftover).await?;
                return Ok(Outcome::Yield(CONFLICT_RETRY_DELAY));
            }
            if let Some(address) = &existing
                && !is_for(address, &claim)
            {
                return Err(HandlerError::Permanent(made_for_another(address)).into());
            }
            // An owner that is not this claim is gone only if this claim is there: it may be a later one.
            if let Some(address) = &existing
                && owning_claim(address) != claim.metadata.uid.as_deref()
                && let Some(outcome) = self.clean_up_if_gone(&claim, handler).await?
            {
                return Ok(outcome);
            }
            let allocated = match allocated_early.take() {
                Some(allocated) => allocated,
                None => handler.ensure_address(existing.as_ref()).await,
            };
            let allocation = match allocated {
                Err(HandlerError::Discard(why)) if existing.is_some() => {
                    info!(namespace, name, why, "an IPAddress of an earlier claim is removed");
                    if let Some(address) = existing.take() {
                        self.remove_address(&address).await?;
                    }
                    continue;
                }
                allocated => allocated?,
            };
            let made = match existing.take() {
                Some(address) => self.adopt(&address, &claim, pool, &allocation).await?,
                None => self.create_address(&claim, pool, &allocation).await?,
            };
            match made {
                Made::Ours => {
                    let committed = self.commit(&claim, &allocation).await;
                    return match committed {
                        // A claim that vanished this moment shows as a conflict too.
                        Err(error) if error.is_not_found() || error.is_conflict() => {
                            self.clean_up_if_gone(&claim, handler).await?.ok_or_else(|| error.into())
                        }
                        ended => Ok(ended?),
                    };
                }
                Made::Another(address) => existing = Some(*address),
            }
        }
        Ok(Outcome::Yield(CONFLICT_RETRY_DELAY))
    }

    /// A1. `None` when the claim is gone, or going and not to be held back.
    async fn add_finalizer(&self, claim: &IPAddressClaim) -> Result<Option<IPAddressClaim>, ReconcileError> {
        if finalizer::is_set(claim, names::RELEASE_ADDRESS) {
            return Ok(Some(claim.clone()));
        }
        let namespace = claim.namespace().unwrap_or_default();
        let claims = self.contract.claims(&namespace);
        let mut wanted = claim.clone();
        wanted.finalizers_mut().push(names::RELEASE_ADDRESS.to_owned());
        if claim.owner_references().is_empty() {
            // `clusterctl move` would take its pool along, and leave the claim and its IPAddress behind.
            wanted.labels_mut().insert(names::MOVE_LABEL.to_owned(), String::new());
        }
        match patch::write(&claims, claim, &wanted).await {
            Ok(written) => {
                written.iter().for_each(|claim| self.expect_write(claim));
                Ok(written)
            }
            Err(error) if error.is_not_found() => Ok(None),
            // The server refuses a new finalizer on an object that is being deleted; or somebody's webhook refuses it.
            Err(error) if error.is_invalid() || error.is_forbidden() => match claims.get(&claim.name_any()).await? {
                Some(found) if found.metadata.deletion_timestamp.is_none() => {
                    Err(HandlerError::transient("the API server refuses our finalizer on the claim", error).into())
                }
                _ => Ok(None),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// A1 and A2 in the same time. `None` when the claim is gone, with what was allocated, or going.
    async fn add_finalizer_and_allocate(
        &self,
        claim: &IPAddressClaim,
        handler: &mut A::Handler,
    ) -> Result<Option<(IPAddressClaim, Option<Allocated>)>, ReconcileError> {
        let (protected, allocated) = tokio::join!(self.add_finalizer(claim), handler.ensure_address(None));
        // Without our finalizer nobody may tell that the claim went in this moment.
        if !matches!(protected, Ok(Some(_))) && self.clean_up_if_gone(claim, handler).await?.is_some() {
            return Ok(None);
        }
        Ok(protected?.map(|claim| (claim, Some(allocated))))
    }

    /// A3.
    async fn create_address(
        &self,
        claim: &IPAddressClaim,
        pool: &PoolView,
        allocation: &Allocation,
    ) -> Result<Made, ReconcileError> {
        let addresses = self.contract.addresses(&claim.namespace().unwrap_or_default());
        let wanted = build(self.contract.ipam, claim, pool, allocation);
        match self.late.track(claim, addresses.create(&wanted)).await {
            Ok(created) => {
                self.addresses.insert(&created);
                Ok(Made::Ours)
            }
            Err(error) if error.is_already_exists() || error.outcome_is_unknown() => {
                match addresses.get(&claim.name_any()).await? {
                    Some(address) => Ok(Made::Another(Box::new(address))),
                    // Not there, or not yet: found and adopted in the next attempt.
                    None => Err(error.into()),
                }
            }
            Err(error) if error.is_namespace_terminating() => {
                Err(HandlerError::PoolNotReady("the claim's namespace is being deleted".to_owned()).into())
            }
            Err(error) if error.is_invalid() || error.is_forbidden() => {
                Err(HandlerError::transient("the API server refuses the IPAddress", error).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes an existing IPAddress with the right address this claim's.
    async fn adopt(
        &self,
        address: &IPAddress,
        claim: &IPAddressClaim,
        pool: &PoolView,
        allocation: &Allocation,
    ) -> Result<Made, ReconcileError> {
        let addresses = self.contract.addresses(&claim.namespace().unwrap_or_default());
        let wanted = repaired(self.contract.ipam, address, claim, pool, allocation);
        let written = match patch::write(&addresses, address, &wanted).await {
            Err(error) if error.is_invalid() || error.is_forbidden() => {
                return Err(HandlerError::transient("the API server refuses to change the IPAddress", error).into());
            }
            written => written?,
        };
        if let Some(written) = written {
            debug!(claim = claim.name_any(), "an IPAddress is adopted");
            self.addresses.insert(&written);
        } else {
            self.addresses.insert(address);
        }
        Ok(Made::Ours)
    }

    /// A4, the commit point.
    async fn commit(&self, claim: &IPAddressClaim, allocation: &Allocation) -> Result<Outcome, CallError> {
        let version = self.contract.ipam;
        let report = Report::bound(claim, allocation);
        let wanted = report.bound_on(version, claim, clock::now());
        let namespace = claim.namespace().unwrap_or_default();
        if let Some(written) = patch::write(&self.contract.claims(&namespace), claim, &wanted).await? {
            self.expect_write(&written);
            debug!(namespace, claim = claim.name_any(), address = %allocation.address, "claim is bound");
            self.events.normal(claim, &version, report.reason, "Allocate", &report.message);
        }
        Ok(Outcome::Done)
    }

    /// R1: takes our finalizer off an IPAddress and deletes it. Returns whether it is gone; others' finalizers keep it.
    pub(super) async fn remove_address(&self, address: &IPAddress) -> Result<bool, CallError> {
        let (namespace, name) = (address.namespace().unwrap_or_default(), address.name_any());
        // As it was read: in this moment another manager may adopt it for a later claim.
        let gone = finalizer::delete(&self.contract.addresses(&namespace), address, names::PROTECT_ADDRESS).await?;
        if gone {
            self.addresses.remove(&namespace, &name);
        }
        Ok(gone)
    }
}

/// What came of A2.
type Allocated = Result<Allocation, HandlerError>;

/// What came of making an IPAddress.
enum Made {
    /// It is there, with the right address and this claim as owner.
    Ours,
    /// Another one has the name.
    Another(Box<IPAddress>),
}

fn made_for_another(address: &IPAddress) -> String {
    let (pool, claim) = (&address.spec.pool_ref, &address.spec.claim_ref.name);
    format!(
        "an IPAddress of the claim's name exists already, made for claim {claim} and {} {}; delete it, or rename the claim",
        pool.kind, pool.name
    )
}
