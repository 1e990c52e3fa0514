//! Releases the address of a claim: sends the requests of [`release::Release`] and
//! [`clean_up::CleanUp`].

use std::time::Instant;

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::controller::Action;
use capi_ipam_controller::{finalizer, trace_span, traces};
use capi_ipam_protocol::clean_up::{self, CleanUp};
use capi_ipam_protocol::release::{self, End, Event, Release, Step};
use capi_ipam_protocol::{ClaimRead, FoundAddress};
use kube::ResourceExt;
use kube::core::ObjectMeta;
use tracing::debug;

use crate::adapter::{ClaimHandler, ProviderAdapter, Released};
use crate::api::{IPAddress, IPAddressClaim, names};
use crate::bind::unexpected_event;
use crate::claim_conditions::ClaimConditions;
use crate::error::ReconcileError;
use crate::guarded::Guarded;
use crate::ip_address::found_address;
use crate::message_debounce::MessageDebounce;
use crate::reconciler::{CONFLICT_RETRY_DELAY, ClaimReconciler};

/// One attempt to release a claim.
struct Releasing<'a, A: ProviderAdapter> {
    reconciler: &'a ClaimReconciler<A>,
    claim: &'a IPAddressClaim,
    handler: &'a mut Guarded<A::Handler>,
    debounce: &'a mut MessageDebounce,
    /// The status of a claim that has finalizers of other controllers.
    early: Option<&'a ClaimConditions>,
    /// The IPAddress that was read.
    existing: Option<IPAddress>,
    /// What a later release, or that of a claim which is gone, ends with.
    action: Action,
}

/// The clean-up of one claim that does not exist.
struct CleaningUp<'a, A: ProviderAdapter> {
    reconciler: &'a ClaimReconciler<A>,
    claim: &'a IPAddressClaim,
    handler: &'a mut Guarded<A::Handler>,
    /// The IPAddress that was read.
    existing: Option<IPAddress>,
    /// The conflict of the last deletion.
    conflict: Option<CallError>,
    /// What a later release ends with.
    action: Action,
}

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Releases the address of a claim that is being deleted. `early` is the status of a claim that
    /// has finalizers of other controllers.
    pub(super) async fn release(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
        debounce: &mut MessageDebounce,
        early: Option<&ClaimConditions>,
    ) -> Result<Action, ReconcileError> {
        let mut release = Release::start(release::Facts {
            address_is_known: self.addresses.delete_preconditions(claim).is_some(),
            has_finalizer: finalizer::is_set(claim, names::RELEASE_ADDRESS),
            is_early: early.is_some(),
        });
        let mut releasing = Releasing {
            reconciler: self,
            claim,
            handler,
            debounce,
            early,
            existing: None,
            action: Action::AwaitChange,
        };
        loop {
            if let Step::Done(end) = release.step() {
                return releasing.end(end).await;
            }
            let event = releasing.perform(release.step()).await?;
            release.next(event);
        }
    }

    /// Releases what was allocated to a claim that no longer exists. Returns `None` and changes
    /// nothing if a live read finds the claim with this uid.
    pub(super) async fn clean_up_if_gone(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
    ) -> Result<Option<Action>, ReconcileError> {
        let mut clean_up = CleanUp::start();
        let mut cleaning = CleaningUp {
            reconciler: self,
            claim,
            handler,
            existing: None,
            conflict: None,
            action: Action::AwaitChange,
        };
        loop {
            if let clean_up::Step::Done(end) = clean_up.step() {
                return cleaning.end(end);
            }
            let event = cleaning.perform(clean_up.step()).await?;
            clean_up.next(event);
        }
    }

    /// Reads whether a claim exists. If not, releases what was allocated to it; `action` follows.
    pub(super) async fn check_claim(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
        action: &mut Action,
    ) -> Result<ClaimRead, ReconcileError> {
        match self.clean_up_if_gone(claim, handler).await? {
            None => Ok(ClaimRead::Exists),
            Some(next) => {
                *action = next;
                Ok(ClaimRead::Gone)
            }
        }
    }

    /// R3. A claim of which the cache dropped annotations is read first, since removing the last
    /// finalizer replaces the object.
    async fn remove_finalizer(&self, claim: &IPAddressClaim) -> Result<IPAddressClaim, CallError> {
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

impl<A: ProviderAdapter> Releasing<'_, A> {
    /// Sends the request of a step.
    async fn perform(&mut self, step: Step) -> Result<Event, ReconcileError> {
        match step {
            Step::RemoveKnownAddress => {
                let remove = self.remove_known_address();
                traces::in_span(trace_span!("delete_address"), remove).await
            }
            Step::ReadAddress | Step::ReadLateAddress => {
                let (found, facts) = self.reconciler.read_address(self.claim).await?;
                self.existing = found;
                Ok(Event::Address(facts))
            }
            Step::CheckClaim => {
                let check = self
                    .reconciler
                    .check_claim(self.claim, self.handler, &mut self.action);
                Ok(Event::Claim(check.await?))
            }
            Step::RemoveAddress => {
                let remove = self.remove_address();
                traces::in_span(trace_span!("delete_address"), remove).await
            }
            Step::Release => self.release_address().await,
            Step::Report => self.report().await,
            Step::RemoveFinalizer => self.remove_finalizer().await,
            Step::Done(_) => Err(unexpected_event()),
        }
    }

    /// The result of the attempt.
    async fn end(self, end: End) -> Result<Action, ReconcileError> {
        match end {
            End::AwaitChange => Ok(Action::AwaitChange),
            End::Retry => Ok(Action::Requeue(CONFLICT_RETRY_DELAY)),
            End::Later | End::CleanedUp => Ok(self.action),
            End::Released => {
                let (namespace, name) = (self.claim.namespace(), self.claim.name_any());
                debug!(namespace, claim = name, "released the address of the claim");
                Ok(Action::AwaitChange)
            }
            End::Blocked => self.report_blocked_address().await,
            End::UnexpectedEvent => Err(unexpected_event()),
        }
    }

    /// R1 without a read: deletes the IPAddress of the claim at the version in the cache.
    async fn remove_known_address(&mut self) -> Result<Event, ReconcileError> {
        let Some((uid, version)) = self.reconciler.addresses.delete_preconditions(self.claim)
        else {
            return Ok(Event::AddressChanged);
        };
        let (namespace, name) = (
            self.claim.namespace().unwrap_or_default(),
            self.claim.name_any(),
        );
        let addresses = self.reconciler.contract.addresses(&namespace);
        let deleted = match finalizer::delete_at_version(&addresses, &name, &uid, &version).await {
            Ok(deleted) => deleted,
            Err(error) if error.is_conflict() => return Ok(Event::AddressChanged),
            Err(error) => return Err(error.into()),
        };
        if deleted.is_gone {
            self.reconciler
                .addresses
                .remove(&namespace, &name, Some(&uid));
        }
        if let Some(address) = &deleted.object {
            self.handler.address_deleted(address);
        }
        Ok(if deleted.is_gone {
            Event::Removed
        } else {
            Event::Blocked
        })
    }

    /// R1.
    async fn remove_address(&mut self) -> Result<Event, ReconcileError> {
        let address = self.existing.take().ok_or_else(unexpected_event)?;
        let is_gone = self.reconciler.remove_address(&address).await?;
        self.handler.address_deleted(&address);
        Ok(if is_gone {
            Event::Removed
        } else {
            Event::Blocked
        })
    }

    /// R2.
    async fn release_address(&mut self) -> Result<Event, ReconcileError> {
        if let Released::After(wait) = self.handler.release_address().await? {
            self.action = Action::Requeue(wait);
            return Ok(Event::Later);
        }
        let pending = &self.reconciler.pending_creates;
        let creation_may_apply = pending.may_still_apply(self.claim, Instant::now());
        Ok(Event::Released { creation_may_apply })
    }

    /// Completes the report of an early release.
    async fn report(&mut self) -> Result<Event, ReconcileError> {
        let is_written = match self.early {
            Some(status) => self.reconciler.complete_report(self.claim, status).await?,
            None => false,
        };
        Ok(Event::Reported { is_written })
    }

    /// R3.
    async fn remove_finalizer(&mut self) -> Result<Event, ReconcileError> {
        let reconciler = self.reconciler;
        let remove = reconciler.remove_finalizer(self.claim);
        match traces::in_span(trace_span!("finalizer"), remove).await {
            // Its other finalizers keep the claim.
            Ok(written) if self.early.is_some() => reconciler.expect_write(&written),
            Ok(_) => reconciler.expect_deleted(self.claim),
            Err(error) if error.is_not_found() => reconciler.expect_deleted(self.claim),
            Err(error) => return Err(error.into()),
        }
        Ok(Event::FinalizerRemoved)
    }

    async fn report_blocked_address(self) -> Result<Action, ReconcileError> {
        let (namespace, name) = (self.claim.namespace(), self.claim.name_any());
        debug!(
            namespace,
            name, "IPAddress still has finalizers of other controllers"
        );
        // Another controller can have added its finalizer since the address was read.
        let (found, _) = self.reconciler.read_address(self.claim).await?;
        let Some(address) = found else {
            return Ok(Action::Requeue(CONFLICT_RETRY_DELAY));
        };
        let status = match self.early {
            Some(early) => early.clone().waiting_for_address(&address),
            None => ClaimConditions::blocked_by_address_finalizers(&address),
        };
        let wait = self.reconciler.options.resync_interval;
        self.reconciler
            .report_blocked_deletion(self.claim, &status, self.debounce, wait)
            .await
    }
}

impl<A: ProviderAdapter> CleaningUp<'_, A> {
    /// Sends the request of a step.
    async fn perform(&mut self, step: clean_up::Step) -> Result<clean_up::Event, ReconcileError> {
        use clean_up::{Event, Step};
        match step {
            Step::CheckClaim => {
                let (read, _) = self.reconciler.read_claim(self.claim).await?;
                Ok(Event::Claim(read))
            }
            Step::ReadAddress => {
                let (found, facts) = self.reconciler.read_address(self.claim).await?;
                self.existing = found;
                Ok(Event::Address(facts))
            }
            Step::CheckSuccessor => {
                let (_, exists) = self.reconciler.read_claim(self.claim).await?;
                Ok(Event::Successor { exists })
            }
            Step::RemoveAddress => self.remove_address().await,
            Step::Release => match self.handler.release_address().await? {
                Released::Now => Ok(Event::Released),
                Released::After(wait) => {
                    self.action = Action::Requeue(wait);
                    Ok(Event::Later)
                }
            },
            Step::Done(_) => Err(unexpected_event()),
        }
    }

    /// The result of the clean-up; `None` if the claim exists.
    fn end(self, end: clean_up::End) -> Result<Option<Action>, ReconcileError> {
        match end {
            clean_up::End::ClaimExists => Ok(None),
            clean_up::End::Later => Ok(Some(self.action)),
            clean_up::End::Released => {
                self.reconciler.expect_deleted(self.claim);
                let (namespace, claim) = (self.claim.namespace(), self.claim.name_any());
                debug!(
                    namespace,
                    claim, "claim no longer exists; released its address"
                );
                Ok(Some(Action::AwaitChange))
            }
            clean_up::End::Failed => match self.conflict {
                Some(conflict) => Err(conflict.into()),
                None => Err(unexpected_event()),
            },
            clean_up::End::UnexpectedEvent => Err(unexpected_event()),
        }
    }

    /// R1.
    async fn remove_address(&mut self) -> Result<clean_up::Event, ReconcileError> {
        let address = self.existing.take().ok_or_else(unexpected_event)?;
        match self.reconciler.remove_address(&address).await {
            Ok(_) => {
                self.handler.address_deleted(&address);
                Ok(clean_up::Event::Removed)
            }
            Err(error) if error.is_conflict() => {
                self.conflict = Some(error);
                Ok(clean_up::Event::AddressChanged)
            }
            Err(error) => Err(error.into()),
        }
    }
}
