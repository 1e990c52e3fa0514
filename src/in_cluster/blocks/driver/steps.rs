//! Sends the write that the protocol of blocks has decided on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{
    BlockRecord, IPNetwork, IPSlice, IPSliceSpec, MAX_CONTENDERS, Scope, SliceConflict, SliceOwner,
    SliceOwnerKind, reservation_name,
};
use capi_ipam_controller::client::{CallError, Creation, Deleted};
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_controller::{clock, patch};
use capi_ipam_ip::Block;
use capi_ipam_ledger::BlockSlice;
use capi_ipam_protocol::block::Step;
use capi_ipam_registry::{Record, RegistryError, cidr, hand_over};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use tracing::{info, warn};

use super::super::check::read_slice;
use super::super::reservation_list::ReservationList;
use super::super::target::{Memory, Target};
use super::Driver;
use crate::in_cluster::shared_ledger::SharedLedger;

/// The cluster of a conflict whose record cannot be decoded.
pub(super) const UNKNOWN_CLUSTER: &str = "unknown";

/// Why a step was not done. It is decided again from what is known then.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// A request to the registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A request to the API server failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// What was decided on has changed meanwhile.
    #[error("the {0} has changed")]
    Changed(&'static str),
}

const CHANGED_SLICE: StepError = StepError::Changed("IPSlice");
const CHANGED_USE: StepError = StepError::Changed("use of the block");

impl Target {
    fn scope(&self) -> Scope {
        Scope::Network(Arc::clone(&self.network))
    }

    fn slice(&self) -> Result<&BlockSlice, StepError> {
        self.slice.as_ref().ok_or(CHANGED_SLICE)
    }

    /// The other cluster of a conflict.
    fn other_cluster(&self) -> &str {
        match self.record() {
            Some((_, record)) if *record.cluster != *self.cluster => &record.cluster,
            Some((_, record)) => match record.contenders.first() {
                Some(contender) => contender,
                None => UNKNOWN_CLUSTER,
            },
            None => UNKNOWN_CLUSTER,
        }
    }
}

impl Driver {
    /// Does one step. `list` is one that began after a slice that is deleted was known in its version: it
    /// shows whether an address of the block is reserved. What responses show is recorded in the
    /// ledger and in the cache of records.
    pub(super) async fn perform(
        &self,
        step: Step,
        target: &Target,
        memory: &mut Memory,
        list: Option<&ReservationList>,
    ) -> Result<(), StepError> {
        match step {
            Step::Wait => Ok(()),
            Step::CreateRecord => self.create_record(target).await,
            Step::ReturnRecord => self.return_record(target).await,
            Step::ConfirmRecord => {
                let version = target.slice()?.version.clone();
                self.update_record(step, target).await?;
                memory.confirmed(&version);
                Ok(())
            }
            Step::TakeRecord | Step::KeepRecord | Step::Contend | Step::Withdraw => {
                self.update_record(step, target).await
            }
            Step::CreateSlice => self.create_slice(target).await,
            Step::ConfirmSlice
            | Step::MarkConflict
            | Step::AwaitQuarantine
            | Step::MarkEmpty
            | Step::ClearMark => self.update_slice(step, target, memory).await,
            Step::DeleteSlice if target.is_foreign => self.delete_slice(target).await,
            Step::DeleteSlice => self.return_slice(target, list).await,
        }
    }

    /// Reports a step that was done.
    pub(super) fn report(&self, step: Step, target: &Target) {
        let (network, block) = (&target.network, cidr(target.block));
        let registry = &self.registry.name;
        // One that was confirmed before is confirmed again after a conflict.
        let is_new = target
            .slice
            .as_ref()
            .is_some_and(|slice| slice.confirmed_at.is_none());
        match step {
            Step::ConfirmSlice if is_new => {
                info!(%network, block, "took a block");
                let note = format!("block {block} is taken from registry {registry}");
                self.publish(network, "BlockTaken", "Take", &note);
            }
            Step::ReturnRecord => {
                info!(%network, block, "returned a block");
                let note = format!(
                    "block {block} is returned to registry {registry}: no address of it is in use"
                );
                self.publish(network, "BlockReturned", "Return", &note);
            }
            Step::MarkConflict => warn!(
                %network, block, cluster = target.other_cluster(),
                "another management cluster uses a block of this one; no address of it is allocated"
            ),
            Step::DeleteSlice if target.is_foreign => info!(
                %network, block,
                "deleted the IPSlice of another management cluster or registry"
            ),
            _ => {}
        }
    }

    /// Publishes an event on a network. One that was deleted has no events any more.
    fn publish(&self, name: &str, reason: &str, action: &str, note: &str) {
        let uid = self
            .context
            .ledger
            .read(|ledger| ledger.networks().uid(name));
        if uid.is_some() {
            let mut network = IPNetwork::default();
            network.metadata.name = Some(name.to_owned());
            network.metadata.uid = uid;
            self.context
                .events
                .normal(&network, &(), reason, action, note);
        }
    }

    async fn create_record(&self, target: &Target) -> Result<(), StepError> {
        let record = Record::Block(BlockRecord {
            network: target.network.to_string(),
            block: cidr(target.block),
            cluster: target.cluster.to_string(),
            since: Some(clock::now()),
            ..BlockRecord::default()
        });
        let key = target.key();
        self.registry.create(&key, &record).await?;
        Ok(())
    }

    /// Replaces the record in the version that was known when the step was decided.
    async fn update_record(&self, step: Step, target: &Target) -> Result<(), StepError> {
        let (held, known) = target.record().ok_or(StepError::Changed("record"))?;
        let mut wanted = known.clone();
        change_record(&mut wanted, step, &target.cluster);
        let wanted = Record::Block(wanted);
        self.registry.update(held, &wanted).await?;
        Ok(())
    }

    /// Returns a block without a slice. The record is written in the version of before the read: if another
    /// process confirms it meanwhile, the version changes.
    async fn return_record(&self, target: &Target) -> Result<(), StepError> {
        if self.read_slice(target).await?.is_some() {
            return Err(CHANGED_SLICE);
        }
        if self.is_used(target) {
            return Err(CHANGED_USE);
        }
        self.update_record(Step::ReturnRecord, target).await
    }

    fn is_used(&self, target: &Target) -> bool {
        let ledger = &self.context.ledger;
        ledger.read(|ledger| ledger.is_block_used(&target.network, target.block))
    }

    /// Reads the IPSlice of the block, and records what the response shows.
    async fn read_slice(
        &self,
        target: &Target,
    ) -> Result<Option<MaybeInvalid<IPSlice>>, StepError> {
        Ok(read_slice(&self.context, &target.network, target.block).await?)
    }

    fn insert_slice(&self, slice: &IPSlice) {
        self.context
            .ledger
            .change(|ledger| ledger.insert_slice(slice));
    }

    async fn create_slice(&self, target: &Target) -> Result<(), StepError> {
        let owner = SliceOwner {
            kind: SliceOwnerKind::ManagementCluster,
            namespace: None,
            name: target.cluster.to_string(),
        };
        let mut slice = IPSlice::assigned(&target.scope(), target.block, owner, clock::now());
        slice.spec.registry = Some(self.registry.name.clone());
        match self.context.slices.create_or_find(&slice).await? {
            Creation::Created(created) => self.insert_slice(&created),
            // Another process, or a request of this one without an answer, has created it.
            Creation::Found(found) => {
                self.context.ledger.change(|ledger| {
                    ledger.insert_found_slice(&target.scope(), target.block, &found);
                });
            }
        }
        Ok(())
    }

    /// Changes the slice in the version that was known when the step was decided.
    async fn update_slice(
        &self,
        step: Step,
        target: &Target,
        memory: &Memory,
    ) -> Result<(), StepError> {
        let known = target.slice()?;
        let found = self.read_slice(target).await?.ok_or(CHANGED_SLICE)?;
        let is_known = found.meta().resource_version.as_deref() == Some(&*known.version);
        let found = found.0.ok().filter(|_| is_known).ok_or(CHANGED_SLICE)?;
        let mut wanted = found.clone();
        change_slice(&mut wanted.spec, step, target, memory);
        if let Some(written) = patch::write(&self.context.slices, &found, &wanted).await? {
            self.insert_slice(&written);
        }
        Ok(())
    }

    /// Deletes the slice of a block if the list shows no reservation of an address of it, and the ledger shows
    /// none in use.
    async fn return_slice(
        &self,
        target: &Target,
        list: Option<&ReservationList>,
    ) -> Result<(), StepError> {
        let (network, block) = (&target.network, target.block);
        let uid = &target.slice()?.uid;
        let returning = Returning::begin(&self.context.ledger, network, block, uid);
        let returning = returning.ok_or(CHANGED_USE)?;
        let is_reserved = list.is_none_or(|list| list.uses(network, block));
        if is_reserved || self.is_used(target) {
            return Err(CHANGED_USE);
        }
        self.delete_slice(target).await?;
        drop(returning);
        Ok(())
    }

    /// Deletes the slice in the version that was known when the step was decided.
    async fn delete_slice(&self, target: &Target) -> Result<(), StepError> {
        let slice = target.slice()?;
        let name = reservation_name(&target.scope(), target.block);
        let slices = &self.context.slices;
        match slices
            .delete_unchanged(&name, &slice.uid, &slice.version)
            .await?
        {
            Deleted::Gone => {
                let scope = target.scope();
                self.context.ledger.change(|ledger| {
                    ledger.remove_slice_of(&scope, target.block, &slice.uid);
                });
                Ok(())
            }
            // The next step deletes it again.
            Deleted::Terminating(_) => Err(CHANGED_SLICE),
        }
    }
}

/// What a step changes in the record of a block. To confirm it changes nothing but its version.
fn change_record(record: &mut BlockRecord, step: Step, own: &str) {
    let is_own = |contender: &String| contender == own;
    match step {
        Step::TakeRecord => hand_over(record, own.to_owned(), clock::now()),
        Step::KeepRecord => {
            // Another manager of this cluster must not return it at once.
            record.since = Some(clock::now());
            record.returned_at = None;
        }
        Step::ReturnRecord => record.returned_at = Some(clock::now()),
        Step::Contend => {
            let has_room = record.contenders.len() < MAX_CONTENDERS;
            if has_room && !record.contenders.iter().any(is_own) {
                record.contenders.push(own.to_owned());
                record.contenders.sort_unstable();
            }
        }
        Step::Withdraw => record.contenders.retain(|contender| !is_own(contender)),
        _ => {}
    }
}

/// What a step changes in the slice of a block.
fn change_slice(slice: &mut IPSliceSpec, step: Step, target: &Target, memory: &Memory) {
    match step {
        Step::ConfirmSlice => {
            slice.confirmed_at = Some(clock::now());
            slice.conflict = None;
        }
        Step::MarkConflict => {
            slice.conflict = Some(SliceConflict {
                cluster: target.other_cluster().to_owned(),
                since: clock::now(),
            });
        }
        Step::AwaitQuarantine => {
            slice.confirmed_at = None;
            slice.conflict = None;
        }
        Step::MarkEmpty => {
            let idle_time = memory.idle_time(target.delays, Instant::now());
            slice.empty_since = Some(empty_since(idle_time));
        }
        Step::ClearMark => slice.empty_since = None,
        _ => {}
    }
}

/// The time of the API server since which a block is empty, in whole seconds.
fn empty_since(idle_time: Duration) -> Time {
    let seconds = Duration::from_secs(idle_time.as_secs());
    let now = clock::now();
    Time(now.0.checked_sub(seconds).unwrap_or(now.0))
}

/// As long as this exists, this process allocates no address of a block whose slice it deletes. The
/// deletion can also end because the task is aborted, when the settings of the registry change.
struct Returning<'a> {
    ledger: &'a SharedLedger,
    scope: Scope,
    block: Block,
    uid: &'a str,
}

impl<'a> Returning<'a> {
    /// `None` if an address of the block is not free, or if the slice is another one.
    fn begin(ledger: &'a SharedLedger, network: &str, block: Block, uid: &'a str) -> Option<Self> {
        let scope = Scope::Network(network.into());
        let began = ledger.change(|ledger| ledger.begin_slice_return(&scope, block, uid));
        began.then_some(Self {
            ledger,
            scope,
            block,
            uid,
        })
    }
}

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        // Without effect on a slice that was deleted.
        self.ledger
            .change(|ledger| ledger.cancel_slice_return(&self.scope, self.block, self.uid));
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::IPSlice;
    use serde_json::json;

    use super::*;

    #[test]
    fn aborted_return_leaves_the_block_usable() {
        let block = Block::new([10, 0, 0, 4].into(), 30);
        let ledger = SharedLedger::read_only();
        let slice: IPSlice = serde_json::from_value(json!({
            "metadata": {"name": "n.lab.10.0.0.4-30", "uid": "s", "resourceVersion": "5"},
            "spec": {"scope": "n.lab", "block": "10.0.0.4/30",
                     "owner": {"kind": "ManagementCluster", "name": "west"},
                     "assignedAt": "2026-01-01T00:00:00Z", "confirmedAt": "2026-01-01T00:00:00Z"},
        }))
        .expect("the slice is valid");
        ledger.change(|ledger| {
            ledger.set_management_cluster("site", "west");
            ledger.insert_slice(&slice);
        });
        let is_usable = || ledger.read(|ledger| ledger.is_block_usable("lab", block));
        assert!(is_usable());

        assert!(Returning::begin(&ledger, "lab", block, "another").is_none());
        let returning = Returning::begin(&ledger, "lab", block, "s");
        assert!(returning.is_some());
        assert!(!is_usable());
        drop(returning);
        assert!(is_usable());

        // The deletion has succeeded.
        let returning = Returning::begin(&ledger, "lab", block, "s");
        ledger.change(|ledger| ledger.remove_slice_of(&Scope::Network("lab".into()), block, "s"));
        drop(returning);
        let slice = ledger.read(|ledger| ledger.slice_of_block("lab", block));
        assert!(slice.is_none());
    }
}
