//! All reads and writes of reservations.
//!
//! Each method records in the ledger what a response shows, and determines with
//! [`capi_ipam_protocol::write`] what an answer of the API server means. After the creation of a
//! reservation with an unknown outcome, the claim uses the same address in its next attempt.

mod release_rule;

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{IPReservation, PoolKey, Quarantine, ReservationClaim, Slot, advice, names};
use capi_ipam_controller::client::{CallError, Deleted, REQUEST_TIMEOUT, ResourceClient};
use capi_ipam_controller::log_limit::RepetitionLimit;
use capi_ipam_controller::observed::ObjectVersion;
use capi_ipam_controller::watch::{MaybeInvalid, RestoreDetector};
use capi_ipam_controller::{clock, patch};
use capi_ipam_ledger::KnownReservation;
use capi_ipam_protocol::write::{self, Answer, Change, ChangeRead, CreationRead};
use capi_ipam_provider::api::{AddressConflict, Uid};
use json_patch::PatchOperation;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::json;
use tracing::warn;

pub(super) use self::release_rule::FormerUse;
use self::release_rule::keeps_reservation;
use super::problem_report::report_problem;
use super::reservation::{Ownership, build, build_quarantine, ownership};
use super::shared_ledger::SharedLedger;

/// Reads and writes reservations.
pub(super) struct ReservationStore {
    client: ResourceClient<IPReservation>,
    ledger: Arc<SharedLedger>,
    restores: RestoreDetector,
    /// When this process began to write.
    started: Instant,
    /// Limits the log of reservations that another manager has created.
    other_managers: RepetitionLimit,
}

/// How long a write of an earlier process may be applied.
const EARLIER_WRITES: Duration = REQUEST_TIMEOUT.saturating_mul(3);

/// What the creation of a reservation has led to, as far as the API server has answered or a live
/// read shows.
#[derive(Debug)]
pub(super) enum CreateResult {
    /// The reservation is created.
    Created(Box<IPReservation>),
    /// A reservation as wanted has the name. This request has created it only if its outcome was
    /// unknown.
    Exists(Box<IPReservation>),
    /// Another object has the name. The name is taken, whatever the object contains.
    Taken(Box<MaybeInvalid<IPReservation>>),
}

/// What the write of a known reservation has led to, as far as the API server has answered or a
/// live read shows.
#[derive(Debug)]
pub(super) enum WriteResult {
    /// The reservation is as wanted. One that was deleted waits for its finalizers.
    Done(Box<IPReservation>),
    /// The object of this name is another one than the write requires. Nothing was written, or will
    /// be.
    Changed(Box<MaybeInvalid<IPReservation>>),
    /// No object has the name.
    Gone,
}

/// The attempt of a claim to get an address. If its outcome is unknown, the ledger remembers it, so
/// that the next attempt of the claim uses the same address.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) claim: Uid,
    pub(super) pool: &'a PoolKey,
}

impl ReservationStore {
    pub(super) fn new(
        client: ResourceClient<IPReservation>,
        ledger: Arc<SharedLedger>,
        restores: RestoreDetector,
    ) -> Self {
        Self {
            client,
            ledger,
            restores,
            started: Instant::now(),
            other_managers: RepetitionLimit::default(),
        }
    }

    /// Detects restores of etcd.
    pub(super) fn restores(&self) -> &RestoreDetector {
        &self.restores
    }

    /// Reads the metadata of the reservation of an address, including `managedFields`.
    pub(super) async fn metadata(&self, slot: &Slot) -> Result<Option<ObjectMeta>, CallError> {
        self.client.get_metadata(&slot.reservation_name()).await
    }

    /// Reads the object that has the name of the reservation of an address, from etcd.
    pub(super) async fn read(
        &self,
        slot: &Slot,
    ) -> Result<Option<MaybeInvalid<IPReservation>>, CallError> {
        // What was known before the read is gone if the read does not show it. Nothing else is: a
        // reservation that the watch reports meanwhile can be newer than the read.
        let known = self
            .ledger
            .read(|ledger| ledger.addresses().known_reservation(slot));
        let epoch = self.restores.epoch();
        let read = self
            .client
            .get_maybe_invalid(&slot.reservation_name())
            .await?;
        let Some(found) = read else {
            if let Some(known) = known {
                self.ledger
                    .change(|ledger| ledger.remove_reservation_of(slot, &known.uid));
            }
            return Ok(None);
        };
        if known.is_some_and(|known| known.is_newer_than(found.meta())) {
            warn!(
                reservation = found.name_any(),
                "the resourceVersion has decreased, etcd was probably restored from a snapshot; listing again"
            );
            self.restores.report(epoch);
        }
        self.ledger
            .change(|ledger| ledger.insert_found(slot, &found));
        Ok(Some(found))
    }

    /// Like [`Self::read`], but an object that cannot be decoded is an error.
    pub(super) async fn get(&self, slot: &Slot) -> Result<Option<IPReservation>, CallError> {
        let found = self.read(slot).await?;
        found.map(|found| self.client.decoded(found)).transpose()
    }

    /// Lists all reservations in pages, and passes each object to a function.
    pub(super) async fn for_each(
        &self,
        mut use_object: impl FnMut(&MaybeInvalid<IPReservation>),
    ) -> Result<(), CallError> {
        let use_page = |page: Vec<MaybeInvalid<IPReservation>>| {
            for found in &page {
                self.ledger.change(|ledger| ledger.insert_listed(found));
                use_object(found);
            }
        };
        self.client.for_each_page(use_page).await
    }

    /// Creates a reservation. `is_wanted` determines whether an object that has the name already is
    /// as wanted.
    pub(super) async fn create(
        &self,
        slot: &Slot,
        wanted: &IPReservation,
        attempt: Option<Attempt<'_>>,
        is_wanted: impl Fn(&IPReservation) -> bool,
    ) -> Result<CreateResult, CallError> {
        let error = match self.client.create(wanted).await {
            Ok(created) => {
                self.ledger
                    .change(|ledger| ledger.insert_reservation(&created));
                return Ok(CreateResult::Created(Box::new(created)));
            }
            Err(error) => error,
        };
        let is_first = attempt.is_some_and(|attempt| self.is_first(attempt));
        if write::after_creation(answer(&error)) != write::Creation::Read {
            return Err(error);
        }
        self.remember(slot, attempt);
        let read = self.read(slot).await?;
        let found = read
            .as_ref()
            .map(|found| found.0.as_ref().is_ok_and(&is_wanted));
        match (write::read_after_creation(found), read) {
            (CreationRead::AsWanted, Some(MaybeInvalid(Ok(found)))) => {
                if is_first && error.is_already_exists() {
                    self.report_other_manager(&found);
                }
                self.forget(attempt);
                Ok(CreateResult::Exists(Box::new(found)))
            }
            (CreationRead::AsWanted | CreationRead::Taken, Some(found)) => {
                self.forget(attempt);
                Ok(CreateResult::Taken(Box::new(found)))
            }
            // The creation may still be applied.
            (_, None) | (CreationRead::StillUnknown, _) => Err(error),
        }
    }

    /// Makes a released reservation that of a claim, for an address of `pool`.
    pub(super) async fn take_over(
        &self,
        known: &KnownReservation,
        pool: &PoolKey,
        claim: &ReservationClaim,
        attempt: Option<Attempt<'_>>,
    ) -> Result<WriteResult, CallError> {
        // Without the time of the release.
        let change = patch::set(
            &["spec"],
            json!(build(&known.slot, pool, claim.clone()).spec),
        );
        self.patch(known, change, attempt, |found| {
            ownership(found, claim) == Ownership::Ours
        })
        .await
    }

    /// Makes the reservation of an earlier claim that of a claim with the same name.
    pub(super) async fn change_uid(
        &self,
        known: &KnownReservation,
        claim: &ReservationClaim,
        attempt: Option<Attempt<'_>>,
    ) -> Result<WriteResult, CallError> {
        let change = patch::set(&["spec", "claimRef", "uid"], json!(claim.uid));
        self.patch(known, change, attempt, |found| {
            ownership(found, claim) == Ownership::Ours
        })
        .await
    }

    /// Releases the reservation of a claim: the rules of its pool decide whether it is deleted, or
    /// is kept with the time of the release until the cool-down ends. The caller has established
    /// that the claim does not use the address.
    pub(super) async fn release(
        &self,
        known: &KnownReservation,
        former_use: FormerUse,
    ) -> Result<WriteResult, CallError> {
        let pool = self
            .ledger
            .read(|ledger| ledger.pools().pool_info(&known.pool));
        if keeps_reservation(pool.as_deref(), former_use) {
            self.set_released_at_now(known, |found| found.spec.released_at.is_some())
                .await
        } else {
            self.delete(known).await
        }
    }

    /// Releases the reservation of a claim that reports a conflict: it becomes the quarantine of the
    /// address, in one write. The caller has established that the claim does not use the address.
    pub(super) async fn quarantine(
        &self,
        known: &KnownReservation,
        conflict: &AddressConflict,
    ) -> Result<WriteResult, CallError> {
        let quarantine = Quarantine::of(conflict, &clock::now());
        let wanted = build_quarantine(&known.slot, &known.pool, quarantine);
        self.patch(
            known,
            patch::set(&["spec"], json!(wanted.spec)),
            None,
            |found| found.spec.quarantine.is_some(),
        )
        .await
    }

    /// Sets the end of a quarantine, which is too far in the future, to the latest one.
    pub(super) async fn limit_quarantine(
        &self,
        known: &KnownReservation,
    ) -> Result<WriteResult, CallError> {
        let latest = Quarantine::latest_end(&clock::now());
        let change = patch::set(&["spec", "quarantine", "until"], json!(latest));
        self.patch(known, change, None, |_| false).await
    }

    /// Sets the time of a release, which is in the future, to the current time.
    pub(super) async fn correct_release(
        &self,
        known: &KnownReservation,
    ) -> Result<WriteResult, CallError> {
        // A read does not show whose write has set the time. The next run finds it if it is still
        // in the future.
        self.set_released_at_now(known, |_| false).await
    }

    async fn set_released_at_now(
        &self,
        known: &KnownReservation,
        is_done: impl Fn(&IPReservation) -> bool,
    ) -> Result<WriteResult, CallError> {
        let change = patch::set(&["spec", "releasedAt"], json!(clock::now()));
        self.patch(known, change, None, is_done).await
    }

    pub(super) async fn delete(&self, known: &KnownReservation) -> Result<WriteResult, CallError> {
        let name = known.slot.reservation_name();
        let error = match self
            .client
            .delete_unchanged(&name, &known.uid, &known.version)
            .await
        {
            Ok(Deleted::Gone) => {
                self.ledger
                    .change(|ledger| ledger.remove_reservation_of(&known.slot, &known.uid));
                return Ok(WriteResult::Gone);
            }
            // Its address is not free before it is gone.
            Ok(Deleted::Terminating(found)) => {
                self.ledger
                    .change(|ledger| ledger.insert_reservation(&found));
                return Ok(WriteResult::Done(found));
            }
            Err(error) => error,
        };
        let is_terminating = |found: &IPReservation| found.metadata.deletion_timestamp.is_some();
        self.resolve(known, error, None, is_terminating).await
    }

    /// Adds the label of `clusterctl move` to the reservation of this name, if it needs the label.
    /// Returns whether it was added.
    pub(super) async fn add_move_label(&self, name: &str) -> Result<bool, CallError> {
        let read = self.client.get(name).await?;
        let Some(found) = read.filter(IPReservation::needs_move_label) else {
            return Ok(false);
        };
        let mut wanted = found.clone();
        wanted
            .labels_mut()
            .insert(names::MOVE_LABEL.to_owned(), String::new());
        self.update_metadata(&found, &wanted).await?;
        Ok(true)
    }

    /// Writes into the status of the reservation of this name that it has this problem, or that it
    /// has none, if it still is in the state `judged`. Nothing is written if the status
    /// says so already. Returns whether the status says so now.
    pub(super) async fn report(
        &self,
        name: &str,
        judged: ObjectVersion,
        problem: Option<&str>,
    ) -> Result<bool, CallError> {
        let report = report_problem(&self.client, name, judged, problem, |it| &mut it.status);
        let reported = report.await?;
        if let Some(seen) = &reported {
            self.ledger.change(|ledger| ledger.insert_reservation(seen));
        }
        Ok(reported.is_some())
    }

    /// Writes changed labels and annotations of a reservation, in the version that was read. If the
    /// outcome is unknown, the next attempt reads the reservation: nothing is written if it has the
    /// change.
    pub(super) async fn update_metadata(
        &self,
        found: &IPReservation,
        wanted: &IPReservation,
    ) -> Result<(), CallError> {
        if let Some(written) = patch::write(&self.client, found, wanted).await? {
            self.ledger
                .change(|ledger| ledger.insert_reservation(&written));
        }
        Ok(())
    }

    /// Changes a reservation. `is_done` determines whether an object that is read has the change.
    async fn patch(
        &self,
        known: &KnownReservation,
        change: PatchOperation,
        attempt: Option<Attempt<'_>>,
        is_done: impl Fn(&IPReservation) -> bool,
    ) -> Result<WriteResult, CallError> {
        let preconditions = (Some(known.uid.clone()), Some(known.version.clone()));
        let patch = patch::with_uid_and_version(preconditions.0, preconditions.1, vec![change]);
        match self
            .client
            .patch(&known.slot.reservation_name(), patch)
            .await
        {
            Ok(written) => {
                self.ledger
                    .change(|ledger| ledger.insert_reservation(&written));
                Ok(WriteResult::Done(Box::new(written)))
            }
            Err(error) => self.resolve(known, error, attempt, is_done).await,
        }
    }

    /// Determines what a failed write of a known reservation means.
    async fn resolve(
        &self,
        known: &KnownReservation,
        error: CallError,
        attempt: Option<Attempt<'_>>,
        is_done: impl Fn(&IPReservation) -> bool,
    ) -> Result<WriteResult, CallError> {
        let slot = &known.slot;
        match write::after_change(answer(&error)) {
            Change::Gone => {
                self.ledger
                    .change(|ledger| ledger.remove_reservation_of(slot, &known.uid));
                return Ok(WriteResult::Gone);
            }
            Change::Read => {}
            Change::Done | Change::Failed => return Err(error),
        }
        let attempt = attempt.filter(|_| error.outcome_is_unknown());
        self.remember(slot, attempt);
        // Without a read the outcome stays unknown, and the error of the write is the one to
        // report.
        let Ok(read) = self.read(slot).await else {
            return Err(error);
        };
        let found = read
            .as_ref()
            .map(|found| found_object(found, known, is_done));
        match (write::read_after_change(found), read) {
            (ChangeRead::Gone, _) | (_, None) => {
                self.ledger
                    .change(|ledger| ledger.remove_reservation_of(slot, &known.uid));
                self.forget(attempt);
                Ok(WriteResult::Gone)
            }
            (ChangeRead::Done, Some(MaybeInvalid(Ok(found)))) => {
                self.forget(attempt);
                Ok(WriteResult::Done(Box::new(found)))
            }
            // The write may still be applied.
            (ChangeRead::StillUnknown, _) => Err(error),
            (ChangeRead::Done | ChangeRead::Changed, Some(other)) => {
                self.forget(attempt);
                Ok(WriteResult::Changed(Box::new(other)))
            }
        }
    }

    /// Whether no earlier attempt of the claim may have created a reservation.
    fn is_first(&self, attempt: Attempt<'_>) -> bool {
        let Attempt { claim, pool } = attempt;
        let earlier = self.ledger.read(|ledger| ledger.attempt(claim, pool));
        earlier.is_none() && self.started.elapsed() > EARLIER_WRITES
    }

    /// Logs that another process has reserved an address for a claim that this process serves, at
    /// the same time. It does no harm: both want the same.
    fn report_other_manager(&self, found: &IPReservation) {
        let Some(others) = self.other_managers.allow("", Instant::now()) else {
            return;
        };
        let claim = found.spec.claim_ref.as_ref();
        let claim = claim.map(|claim| format!("{}/{}", claim.namespace, claim.name));
        warn!(
            claim,
            others,
            "another manager serves this claim at the same time: {}",
            advice::SEVERAL_MANAGERS
        );
    }

    fn remember(&self, slot: &Slot, attempt: Option<Attempt<'_>>) {
        if let Some(attempt) = attempt {
            self.ledger.note(|ledger| {
                ledger
                    .addresses_mut()
                    .remember_attempt(attempt.claim, attempt.pool, slot)
            });
        }
    }

    fn forget(&self, attempt: Option<Attempt<'_>>) {
        if let Some(attempt) = attempt {
            self.ledger
                .note(|ledger| ledger.addresses_mut().forget_attempt(attempt.claim));
        }
    }
}

/// What the API server has answered to a write that failed.
fn answer(error: &CallError) -> Answer {
    if error.outcome_is_unknown() {
        Answer::Unknown
    } else if error.is_already_exists() {
        Answer::NameExists
    } else if error.is_not_found() {
        Answer::NotFound
    } else if error.is_conflict() {
        Answer::Conflict
    } else {
        Answer::Rejected
    }
}

/// The object that was read after a change of a known reservation.
fn found_object(
    found: &MaybeInvalid<IPReservation>,
    known: &KnownReservation,
    is_done: impl Fn(&IPReservation) -> bool,
) -> write::Found {
    let metadata = found.meta();
    let is_same = metadata.uid.as_deref() == Some(&known.uid);
    let has_version = metadata.resource_version.as_deref() == Some(&known.version);
    write::Found {
        is_same,
        is_unchanged: is_same && has_version,
        is_done: found.0.as_ref().is_ok_and(is_done),
    }
}

#[cfg(test)]
mod tests;
