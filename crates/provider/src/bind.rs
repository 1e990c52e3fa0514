//! Binds a claim to an address: sends the requests of [`bind::Bind`], steps A1 to A4.

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::controller::{Action, Attempt};
use capi_ipam_controller::{clock, finalizer, patch, trace_span, traces};
use capi_ipam_protocol::ClaimRead;
use capi_ipam_protocol::bind::{self, Bind, End, Event, RemovalReason, Step};
use kube::ResourceExt;
use tracing::{Span, debug, field, info};

use crate::adapter::{
    AddressOrigin, Allocation, ClaimHandler, Ensured, HandlerError, PoolView, ProviderAdapter,
};
use crate::api::{IPAddress, IPAddressClaim, conditions, names};
use crate::attempt_state::AttemptState;
use crate::claim_conditions::ClaimConditions;
use crate::error::ReconcileError;
use crate::guarded::Guarded;
use crate::ip_address::{new_ip_address, repaired, repaired_parts};
use crate::reconciler::{CONFLICT_RETRY_DELAY, ClaimReconciler};
use crate::restore::{confirm_restored, end_wait, is_chosen, replaced_address};

/// One attempt to bind a claim: the objects of which [`Bind`] knows what matters.
struct Binding<'a, A: ProviderAdapter> {
    reconciler: &'a ClaimReconciler<A>,
    /// The claim as last read or written.
    claim: IPAddressClaim,
    pool: &'a PoolView,
    handler: &'a mut Guarded<A::Handler>,
    attempt: &'a mut Attempt<AttemptState>,
    /// The IPAddress with the name of the claim that was found last.
    existing: Option<IPAddress>,
    /// The result of A2, if it was concurrent with A1.
    early_allocation: Option<Result<Ensured, HandlerError>>,
    allocation: Option<Allocation>,
    /// Whether the outcome of a creation of the IPAddress is unknown.
    may_have_created: bool,
    /// Why the provider does not allocate the address of the IPAddress to the claim.
    rejection: String,
    /// The error of the last request, if the protocol has to continue after it; or what the wait
    /// for a restore, or the release of a claim that is gone, ends with.
    result: Result<Action, ReconcileError>,
}

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Binds a claim to an address, as far as one attempt leads.
    pub(super) async fn bind(
        &self,
        claim: &IPAddressClaim,
        pool: &PoolView,
        handler: &mut Guarded<A::Handler>,
        attempt: &mut Attempt<AttemptState>,
    ) -> Result<Action, ReconcileError> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let mut bind = Bind::start(bind::Facts {
            has_finalizer: finalizer::is_set(claim, names::RELEASE_ADDRESS),
            address_is_known: self.addresses.get(&namespace, &name).is_some(),
            is_bound: claim.bound_address().is_some(),
            allocates_early: self.options.allocate_before_finalizer,
        });
        let mut binding = Binding {
            reconciler: self,
            claim: claim.clone(),
            pool,
            handler,
            attempt,
            existing: None,
            early_allocation: None,
            allocation: None,
            may_have_created: false,
            rejection: String::new(),
            result: Ok(Action::AwaitChange),
        };
        loop {
            if let Step::Done(end) = bind.step() {
                return binding.end(end);
            }
            let event = binding.perform(&bind).await?;
            bind.next(event);
        }
    }
}

impl<A: ProviderAdapter> Binding<'_, A> {
    /// Sends the request of the current step.
    async fn perform(&mut self, bind: &Bind) -> Result<Event, ReconcileError> {
        match bind.step() {
            // A1.
            Step::AddFinalizer => {
                let add = self.reconciler.add_finalizer(&self.claim);
                let added = traces::in_span(trace_span!("finalizer"), add).await?;
                Ok(self.finalizer_added(added))
            }
            Step::AddFinalizerAndAllocate => Ok(self.add_finalizer_and_allocate().await),
            Step::ReadAddress(_) => {
                let (found, facts) = self.reconciler.read_address(&self.claim).await?;
                // Without it, the error of a creation is the result of the attempt.
                self.existing = found.or(self.existing.take());
                Ok(Event::Address(facts))
            }
            Step::CheckRestore => {
                let check = self.reconciler.check_restore(&mut self.claim, self.attempt);
                let Some(action) = check.await? else {
                    return Ok(Event::Served);
                };
                self.result = Ok(action);
                Ok(Event::Waits)
            }
            Step::CheckClaim(_) => {
                let clean_up = self.reconciler.clean_up_if_gone(&self.claim, self.handler);
                let Some(action) = clean_up.await? else {
                    return Ok(Event::Claim(ClaimRead::Exists));
                };
                self.result = Ok(action);
                Ok(Event::Claim(ClaimRead::Gone))
            }
            Step::Allocate => self.allocate().await,
            // R1.
            Step::RemoveAddress(reason) => {
                if reason == RemovalReason::Rejected {
                    info!(
                        namespace = self.claim.metadata.namespace,
                        name = self.claim.metadata.name,
                        why = self.rejection,
                        "deleting the IPAddress of an earlier claim"
                    );
                }
                if let Some(address) = self.existing.take() {
                    self.reconciler.remove_address(&address).await?;
                }
                Ok(Event::Removed)
            }
            Step::CreateAddress => self.create_address().await,
            Step::RepairAddress => self.repair_address().await,
            Step::Commit => self.commit(bind.adopts_from_other_claim()).await,
            Step::Done(_) => Err(unexpected_event()),
        }
    }

    /// The result of the attempt.
    fn end(self, end: End) -> Result<Action, ReconcileError> {
        match end {
            End::AwaitChange => Ok(Action::AwaitChange),
            End::Retry => Ok(Action::Requeue(CONFLICT_RETRY_DELAY)),
            End::AwaitRestore | End::CleanedUp | End::Failed => self.result,
            End::NameConflict => {
                let message = self.existing.as_ref().map(name_conflict);
                Err(HandlerError::Permanent(message.unwrap_or_default()).into())
            }
            End::RemovalOfBound => {
                let name = self.claim.name_any();
                let why = self.rejection;
                Err(HandlerError::Permanent(format!(
                    "the provider wants to delete IPAddress {name} of a bound claim: {why}; this is a bug of the \
                     provider"
                ))
                .into())
            }
            End::UnexpectedEvent => Err(unexpected_event()),
        }
    }

    fn finalizer_added(&mut self, added: Option<IPAddressClaim>) -> Event {
        match added {
            Some(claim) => {
                self.claim = claim;
                Event::FinalizerSet
            }
            None => Event::FinalizerNotSet,
        }
    }

    /// A1 and A2 concurrently.
    async fn add_finalizer_and_allocate(&mut self) -> Event {
        let add = self.reconciler.add_finalizer(&self.claim);
        let add = traces::in_span(trace_span!("finalizer"), add);
        let (added, allocated) = tokio::join!(add, self.handler.ensure_address(None));
        self.early_allocation = Some(allocated);
        match added {
            Ok(added) => self.finalizer_added(added),
            Err(error) => {
                self.result = Err(error);
                Event::FinalizerNotSet
            }
        }
    }

    /// A2.
    async fn allocate(&mut self) -> Result<Event, ReconcileError> {
        let ensured = match self.early_allocation.take() {
            Some(allocated) => allocated?,
            None => self.handler.ensure_address(self.existing.as_ref()).await?,
        };
        match ensured {
            Ensured::Allocated(allocation) => {
                Span::current().record("address", field::display(allocation.address));
                self.allocation = Some(allocation);
                Ok(Event::Allocated)
            }
            Ensured::DeleteExisting(why) => {
                self.rejection = why;
                Ok(Event::AddressRejected)
            }
        }
    }

    /// A3 for a claim without an IPAddress.
    async fn create_address(&mut self) -> Result<Event, ReconcileError> {
        let allocation = self.allocation.as_ref().ok_or_else(unexpected_event)?;
        let (reconciler, claim) = (self.reconciler, &self.claim);
        let addresses = reconciler.contract.addresses_beside(claim);
        let desired = new_ip_address(reconciler.contract.ipam, claim, self.pool, allocation);
        let create = addresses.create(&desired);
        let create = reconciler.pending_creates.track(claim, create);
        let error = match traces::in_span(trace_span!("create_address"), create).await {
            Ok(created) => {
                reconciler.addresses.insert(&created);
                return Ok(Event::Created);
            }
            Err(error) => error,
        };
        // A read shows the IPAddress that has the name, of this process or another one.
        if error.is_already_exists() || error.outcome_is_unknown() {
            self.may_have_created |= error.outcome_is_unknown();
            self.result = Err(error.into());
            return Ok(Event::NotCreated);
        }
        Err(creation_error(error))
    }

    /// A3 for a claim with an IPAddress of the right address: repairs owner references, finalizer
    /// and labels.
    async fn repair_address(&mut self) -> Result<Event, ReconcileError> {
        let allocation = self.allocation.as_ref().ok_or_else(unexpected_event)?;
        let address = self.existing.as_ref().ok_or_else(unexpected_event)?;
        let (reconciler, claim) = (self.reconciler, &self.claim);
        let version = reconciler.contract.ipam;
        let addresses = reconciler.contract.addresses_beside(claim);
        let desired = repaired(version, address, claim, self.pool, allocation);
        // What is logged belongs to the span, too.
        let repair = async {
            let written = patch::write(&addresses, address, &desired).await?;
            if let Some(written) = &written {
                reconciler.report_repair(claim, address, &desired, written);
            }
            let known = written.as_ref().unwrap_or(address);
            reconciler.addresses.insert(known);
            Ok::<_, CallError>(())
        };
        match traces::in_span(trace_span!("adopt_address"), repair).await {
            Ok(()) => Ok(Event::Repaired),
            Err(error) if error.is_rejected() => {
                let message = "the API server rejected the change of the IPAddress";
                Err(rejected(message, error).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A4: commits the binding. `is_restored` is whether the IPAddress is that of an earlier claim
    /// of this name.
    async fn commit(&mut self, is_restored: bool) -> Result<Event, ReconcileError> {
        let allocation = self.allocation.as_ref().ok_or_else(unexpected_event)?;
        let (reconciler, claim) = (self.reconciler, &self.claim);
        let version = reconciler.contract.ipam;
        let status = ClaimConditions::bound(&reconciler.filter.pool_name(claim), allocation);
        let mut desired = status.apply_to(version, claim, clock::now());
        let is_expected = is_restored || is_chosen(claim, allocation);
        if is_expected || replaced_address(version, claim).is_none() {
            confirm_restored(version, &mut desired);
        }
        let commit = async {
            let written = match reconciler.write_claim(claim, &desired).await {
                Err(error) if error.outcome_is_unknown() => {
                    Some(reconciler.committed(claim, error).await?)
                }
                written => written?,
            };
            if let Some(written) = written {
                reconciler.report_bound(claim, &written, allocation, &status);
            }
            Ok::<_, CallError>(())
        };
        match traces::in_span(trace_span!("commit"), commit).await {
            Ok(()) => {}
            // A patch of a claim that was just deleted can also fail with a conflict.
            Err(error) if error.has_changed() => {
                self.result = Err(error.into());
                return Ok(Event::NotCommitted);
            }
            Err(error) => return Err(error.into()),
        }
        if let Some(origin) = self.new_address_origin() {
            self.handler.address_bound(allocation, origin);
        }
        Ok(Event::Committed)
    }

    /// Where the IPAddress comes from; `None` if the claim was bound to it before.
    fn new_address_origin(&self) -> Option<AddressOrigin> {
        let has_existed = self.existing.is_some() && !self.may_have_created;
        match (has_existed, self.claim.bound_address()) {
            (false, None) => Some(AddressOrigin::Created),
            (false, Some(_)) => Some(AddressOrigin::Recreated),
            (true, None) => Some(AddressOrigin::Existing),
            (true, Some(_)) => None,
        }
    }
}

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// A1. Returns `None` if the claim does not exist, or is being deleted.
    async fn add_finalizer(
        &self,
        claim: &IPAddressClaim,
    ) -> Result<Option<IPAddressClaim>, ReconcileError> {
        if finalizer::is_set(claim, names::RELEASE_ADDRESS) {
            return Ok(Some(claim.clone()));
        }
        let mut desired = claim.clone();
        desired
            .finalizers_mut()
            .push(names::RELEASE_ADDRESS.to_owned());
        end_wait(self.contract.ipam, &mut desired, clock::now());
        if claim.owner_references().is_empty() {
            // Otherwise `clusterctl move` moves its pool, but neither the claim nor its IPAddress.
            desired
                .labels_mut()
                .insert(names::MOVE_LABEL.to_owned(), String::new());
        }
        match self.write_claim(claim, &desired).await {
            Ok(written) => Ok(written),
            Err(error) if error.is_not_found() => Ok(None),
            // The API server rejects a new finalizer on an object that is being deleted; a webhook
            // may reject it as well.
            Err(error) if error.is_rejected() => {
                let claims = self.contract.claims_beside(claim);
                match claims.get(&claim.name_any()).await? {
                    Some(found) if found.metadata.deletion_timestamp.is_none() => {
                        Err(HandlerError::transient(
                            "the API server rejected our finalizer on the claim",
                            error,
                        )
                        .into())
                    }
                    _ => Ok(None),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reports by an event that an IPAddress was changed: adopted by a claim without an address, or
    /// repaired.
    fn report_repair(
        &self,
        claim: &IPAddressClaim,
        before: &IPAddress,
        desired: &IPAddress,
        written: &IPAddress,
    ) {
        let (name, parts) = (claim.name_any(), repaired_parts(before, desired));
        let (reason, action, note) = if claim.bound_address().is_none() {
            let note = format!("adopted by claim {name}, which keeps the address; set: {parts}");
            (conditions::ADDRESS_ADOPTED, "Adopt", note)
        } else {
            let note = format!("repaired for the bound claim {name}; set again: {parts}");
            (conditions::ADDRESS_REPAIRED, "Repair", note)
        };
        debug!(claim = name, parts, reason, "changed an existing IPAddress");
        let version = &self.contract.ipam;
        self.events.normal(written, version, reason, action, &note);
    }

    /// Reports that a claim is bound, and that it has another address than before a restore.
    fn report_bound(
        &self,
        claim: &IPAddressClaim,
        written: &IPAddressClaim,
        allocation: &Allocation,
        status: &ClaimConditions,
    ) {
        let version = self.contract.ipam;
        debug!(
            namespace = claim.metadata.namespace,
            claim = claim.metadata.name,
            address = %allocation.address,
            "claim is bound"
        );
        if claim.bound_address().is_none() {
            self.metrics.record_bind(claim);
        }
        self.events
            .normal(claim, &version, status.reason, "Allocate", &status.message);
        if let Some(replaced) = replaced_address(version, written) {
            let reason = replaced.reason.as_deref();
            let reason = reason.unwrap_or(conditions::RESTORED_WITHOUT_ADDRESS);
            let note = format!("{}: {}", status.message, replaced.message());
            self.events
                .warning(claim, &version, reason, "Allocate", &note);
        }
    }

    /// Reads whether A4 was applied although the API server has not answered. Otherwise nobody
    /// would record that the claim is bound: the next reconcile finds nothing to do. Returns `error`
    /// if this is still unknown, or if the claim was bound before.
    async fn committed(
        &self,
        claim: &IPAddressClaim,
        error: CallError,
    ) -> Result<IPAddressClaim, CallError> {
        if claim.bound_address().is_some() {
            return Err(error);
        }
        let claims = self.contract.claims_beside(claim);
        let found = claims.get(&claim.name_any()).await?;
        let is_committed = |found: &IPAddressClaim| {
            found.metadata.uid == claim.metadata.uid && found.bound_address().is_some()
        };
        let found = found.filter(is_committed).ok_or(error)?;
        self.expect_write(&found);
        Ok(found)
    }
}

/// What a rejected creation of an IPAddress means.
fn creation_error(error: CallError) -> ReconcileError {
    if error.is_namespace_terminating() {
        let message = "the claim's namespace is being deleted".to_owned();
        return HandlerError::PoolNotReady(message).into();
    }
    if error.is_rejected() {
        return rejected("the API server rejected the IPAddress", error).into();
    }
    error.into()
}

/// The steps and the requests do not fit together.
pub(super) fn unexpected_event() -> ReconcileError {
    HandlerError::Permanent("unexpected step of the protocol; this is a bug".to_owned()).into()
}

fn rejected(message: &str, error: CallError) -> HandlerError {
    let hint = if error.is_owner_kind_unknown() {
        ", which lasts up to 30 s after the start of the API server"
    } else {
        ""
    };
    HandlerError::transient(format!("{message}{hint}"), error)
}

fn name_conflict(address: &IPAddress) -> String {
    let (pool, claim) = (&address.spec.pool_ref, &address.spec.claim_ref.name);
    format!(
        "an IPAddress with the name of the claim already exists for claim {claim} and {} {}; delete the IPAddress or \
         rename the claim",
        pool.kind, pool.name
    )
}
