//! Releases the address of a claim: sends the requests of [`release::Release`] and
//! [`clean_up::CleanUp`].

use std::time::Instant;

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::controller::{Action, Attempt};
use capi_ipam_controller::{clock, finalizer, trace_span, traces};
use capi_ipam_protocol::clean_up::{self, CleanUp};
use capi_ipam_protocol::release::{self, End, Event, Release, Step};
use capi_ipam_protocol::{ClaimRead, FoundAddress};
use kube::ResourceExt;
use kube::core::ObjectMeta;
use tracing::debug;

use crate::adapter::{ClaimHandler, ProviderAdapter, Released};
use crate::api::{IPAddress, IPAddressClaim, names};
use crate::attempt_state::AttemptState;
use crate::bind::unexpected_event;
use crate::claim_conditions::ClaimConditions;
use crate::error::ReconcileError;
use crate::guarded::Guarded;
use crate::ip_address::found_address;
use crate::reconciler::{CONFLICT_RETRY_DELAY, ClaimReconciler};

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Releases the address of a claim that is being deleted. `early` is the status of a claim that
    /// has finalizers of other controllers.
    pub(super) async fn release(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
        attempt: &mut Attempt<AttemptState>,
        early: Option<&ClaimConditions>,
    ) -> Result<Action, ReconcileError> {
        let mut release = Release::start(release::Facts {
            address_is_known: self.addresses.delete_preconditions(claim).is_some(),
            has_finalizer: finalizer::is_set(claim, names::RELEASE_ADDRESS),
            is_early: early.is_some(),
        });
        let mut existing = None;
        let mut action = Action::AwaitChange;
        let end = loop {
            let event: Result<Event, ReconcileError> = match release.step() {
                Step::RemoveKnownAddress => {
                    let remove = self.remove_known_address(claim, handler);
                    traces::in_span(trace_span!("delete_address"), remove).await
                }
                Step::ReadAddress | Step::ReadLateAddress => {
                    let (found, facts) = self.read_address(claim).await?;
                    existing = found;
                    Ok(Event::Address(facts))
                }
                Step::CheckClaim => match self.clean_up_if_gone(claim, handler).await? {
                    None => Ok(Event::Claim(ClaimRead::Exists)),
                    Some(next) => {
                        action = next;
                        Ok(Event::Claim(ClaimRead::Gone))
                    }
                },
                // R1.
                Step::RemoveAddress => {
                    let address = existing.take().ok_or_else(unexpected_event)?;
                    let remove = self.remove_address(&address);
                    let is_gone = traces::in_span(trace_span!("delete_address"), remove).await?;
                    handler.address_deleted(&address);
                    Ok(removal(is_gone))
                }
                // R2.
                Step::Release => match handler.release_address().await? {
                    Released::Now => Ok(Event::Released {
                        creation_may_apply: self
                            .pending_creates
                            .may_still_apply(claim, Instant::now()),
                    }),
                    Released::After(wait) => {
                        action = Action::Requeue(wait);
                        Ok(Event::Later)
                    }
                },
                Step::Report => self.complete_report(claim, early).await,
                // R3.
                Step::RemoveFinalizer => {
                    let remove = self.remove_finalizer(claim, early.is_some());
                    traces::in_span(trace_span!("finalizer"), remove).await
                }
                Step::Done(end) => break end,
            };
            release.next(event?);
        };
        match end {
            End::AwaitChange | End::Later | End::CleanedUp => Ok(action),
            End::Retry => Ok(Action::Requeue(CONFLICT_RETRY_DELAY)),
            End::Released => {
                debug!(
                    namespace = claim.metadata.namespace,
                    claim = claim.metadata.name,
                    "released the address of the claim"
                );
                Ok(Action::AwaitChange)
            }
            End::Blocked => self.report_blocked_address(claim, attempt, early).await,
            End::UnexpectedEvent => Err(unexpected_event()),
        }
    }

    /// Releases what was allocated to a claim that no longer exists. Returns `None` and changes
    /// nothing if a live read finds the claim with this uid.
    pub(super) async fn clean_up_if_gone(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
    ) -> Result<Option<Action>, ReconcileError> {
        use clean_up::{End, Event, Step};
        let mut clean_up = CleanUp::start();
        let mut existing = None;
        let mut conflict = None;
        let mut action = Action::AwaitChange;
        loop {
            let event = match clean_up.step() {
                Step::CheckClaim => Event::Claim(self.read_claim(claim).await?.0),
                Step::ReadAddress => {
                    let (found, facts) = self.read_address(claim).await?;
                    existing = found;
                    Event::Address(facts)
                }
                Step::CheckSuccessor => Event::Successor {
                    exists: self.read_claim(claim).await?.1,
                },
                // R1.
                Step::RemoveAddress => {
                    let address = existing.take().ok_or_else(unexpected_event)?;
                    match self.remove_address(&address).await {
                        Ok(_) => {
                            handler.address_deleted(&address);
                            Event::Removed
                        }
                        Err(error) if error.is_conflict() => {
                            conflict = Some(error);
                            Event::AddressChanged
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Step::Release => match handler.release_address().await? {
                    Released::Now => Event::Released,
                    Released::After(wait) => {
                        action = Action::Requeue(wait);
                        Event::Later
                    }
                },
                Step::Done(End::ClaimExists) => return Ok(None),
                Step::Done(End::Later) => return Ok(Some(action)),
                Step::Done(End::Released) => break,
                Step::Done(End::Failed) => {
                    return Err(conflict.map_or_else(unexpected_event, Into::into));
                }
                Step::Done(End::UnexpectedEvent) => return Err(unexpected_event()),
            };
            clean_up.next(event);
        }
        self.expect_deleted(claim);
        debug!(
            namespace = claim.metadata.namespace,
            claim = claim.metadata.name,
            "claim no longer exists; released its address"
        );
        Ok(Some(Action::AwaitChange))
    }

    /// Replaces an outdated message of a claim whose address was released early: that of a failed
    /// attempt, or that the IPAddress waits for other controllers.
    async fn complete_report(
        &self,
        claim: &IPAddressClaim,
        status: Option<&ClaimConditions>,
    ) -> Result<Event, ReconcileError> {
        let status = status.ok_or_else(unexpected_event)?;
        let desired = status.apply_to(self.contract.ipam, claim, clock::now());
        let written = self.write_claim(claim, &desired).await?;
        Ok(Event::Reported {
            is_written: written.is_some(),
        })
    }

    /// R3. `is_kept` is whether other finalizers keep the claim.
    async fn remove_finalizer(
        &self,
        claim: &IPAddressClaim,
        is_kept: bool,
    ) -> Result<Event, ReconcileError> {
        match self.without_finalizer(claim).await {
            Ok(written) if is_kept => self.expect_write(&written),
            Ok(_) => self.expect_deleted(claim),
            Err(error) if error.is_not_found() => self.expect_deleted(claim),
            Err(error) => return Err(error.into()),
        }
        Ok(Event::FinalizerRemoved)
    }

    /// Removes our finalizer from a claim. One of which the cache dropped annotations is read first,
    /// since removing the last finalizer replaces the object.
    async fn without_finalizer(&self, claim: &IPAddressClaim) -> Result<IPAddressClaim, CallError> {
        let claims = self.contract.claims_beside(claim);
        if claim.is_trimmed {
            let version = &claim.metadata.resource_version;
            let is_same = |found: &ObjectMeta| found.resource_version == *version;
            let (name, finalizer) = (claim.name_any(), names::RELEASE_ADDRESS);
            let removed = finalizer::remove_unread(&claims, &name, finalizer, is_same).await?;
            if let Some(metadata) = removed {
                return Ok(IPAddressClaim {
                    metadata,
                    ..claim.clone()
                });
            }
            // If the version differs, the API server rejects the removal with a conflict.
        }
        finalizer::remove(&claims, claim, names::RELEASE_ADDRESS).await
    }

    /// R1 without a read: deletes the IPAddress of the claim at the version in the cache.
    async fn remove_known_address(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
    ) -> Result<Event, ReconcileError> {
        let Some((uid, version)) = self.addresses.delete_preconditions(claim) else {
            return Ok(Event::AddressChanged);
        };
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let addresses = self.contract.addresses(&namespace);
        let deleted = match finalizer::delete_at_version(&addresses, &name, &uid, &version).await {
            Ok(deleted) => deleted,
            Err(error) if error.is_conflict() => return Ok(Event::AddressChanged),
            Err(error) => return Err(error.into()),
        };
        if deleted.is_gone {
            self.addresses.remove(&namespace, &name, Some(&uid));
        }
        if let Some(address) = &deleted.object {
            handler.address_deleted(address);
        }
        Ok(removal(deleted.is_gone))
    }

    async fn report_blocked_address(
        &self,
        claim: &IPAddressClaim,
        attempt: &mut Attempt<AttemptState>,
        early: Option<&ClaimConditions>,
    ) -> Result<Action, ReconcileError> {
        debug!(
            namespace = claim.metadata.namespace,
            name = claim.metadata.name,
            "IPAddress still has finalizers of other controllers"
        );
        // Another controller can have added its finalizer since the address was read.
        let (found, _) = self.read_address(claim).await?;
        let Some(address) = found else {
            return Ok(Action::Requeue(CONFLICT_RETRY_DELAY));
        };
        let status = match early {
            Some(early) => early.clone().waiting_for_address(&address),
            None => ClaimConditions::blocked_by_address_finalizers(&address),
        };
        let wait = self.options.resync_interval;
        self.report_blocked_deletion(claim, &status, attempt, wait)
            .await
    }

    /// R1: removes our finalizer from an IPAddress and deletes it. Returns whether it is removed;
    /// other finalizers keep it.
    pub(super) async fn remove_address(&self, address: &IPAddress) -> Result<bool, CallError> {
        let (namespace, name) = (address.namespace().unwrap_or_default(), address.name_any());
        // With the version that was read as precondition: another manager may adopt it for a newer
        // claim.
        let addresses = self.contract.addresses(&namespace);
        let is_removed = finalizer::delete(&addresses, address, names::PROTECT_ADDRESS).await?;
        if is_removed {
            self.addresses
                .remove(&namespace, &name, address.metadata.uid.as_deref());
        }
        Ok(is_removed)
    }

    /// Reads the IPAddress with the name of a claim, and what the protocol depends on.
    pub(super) async fn read_address(
        &self,
        claim: &IPAddressClaim,
    ) -> Result<(Option<IPAddress>, Option<FoundAddress>), CallError> {
        let addresses = self.contract.addresses_beside(claim);
        let found = addresses.get(&claim.name_any()).await?;
        let facts = found.as_ref().map(|found| found_address(found, claim));
        Ok((found, facts))
    }

    /// Reads whether a claim exists with this uid, or with its name.
    async fn read_claim(&self, claim: &IPAddressClaim) -> Result<(ClaimRead, bool), CallError> {
        let claims = self.contract.claims_beside(claim);
        let found = claims.get_metadata(&claim.name_any()).await?;
        let has_name = found.is_some();
        let read = match found {
            Some(found) if found.uid == claim.metadata.uid => ClaimRead::Exists,
            _ => ClaimRead::Gone,
        };
        Ok((read, has_name))
    }
}

/// What R1 has led to.
fn removal(is_gone: bool) -> Event {
    if is_gone {
        Event::Removed
    } else {
        Event::Blocked
    }
}
