//! Sends the write that the protocol of blocks has decided on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{
    BlockRecord, IPNetwork, IPSlice, MAX_CONTENDERS, NetworkRecord, Scope, SliceConflict,
    SliceOwner, SliceOwnerKind, reservation_name,
};
use capi_ipam_controller::client::{CallError, Deleted};
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_controller::{clock, patch};
use capi_ipam_ip::Block;
use capi_ipam_ledger::BlockSlice;
use capi_ipam_protocol::block::Step;
use capi_ipam_registry::{Backend, Created, Entry, Key, Record, RegistryError, cidr, hand_over};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use tracing::{info, warn};

use super::facts::{Delays, Memory};
use super::open_registry::OpenRegistry;
use super::record_watch::record_shown;
use super::reservation_list::ReservationList;
use super::returning::Returning;
use crate::in_cluster::context::Context;

/// The cluster of a conflict whose record cannot be decoded.
pub(super) const UNKNOWN_CLUSTER: &str = "unknown";

/// Why a step was not done. It is decided again from what is known then.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// A request to the registry failed.
    #[error("cannot {step} in the registry")]
    Registry {
        /// What was requested.
        step: &'static str,
        /// The error of the registry.
        #[source]
        source: RegistryError,
    },
    /// A request to the API server failed.
    #[error("cannot {step}")]
    Call {
        /// What was requested.
        step: &'static str,
        /// The error of the request.
        #[source]
        source: CallError,
    },
    /// What was decided on has changed meanwhile.
    #[error("the {0} has changed")]
    Changed(&'static str),
}

fn call_error(step: &'static str) -> impl FnOnce(CallError) -> StepError {
    move |source| StepError::Call { step, source }
}

/// A block of a network, and what was known when the step was decided.
pub(super) struct Target {
    pub(super) network: Arc<str>,
    pub(super) block: Block,
    pub(super) slice: Option<BlockSlice>,
    /// What the registry shows under the name of the block.
    pub(super) entry: Option<Arc<Entry>>,
}

impl Target {
    pub(super) fn scope(&self) -> Scope {
        Scope::Network(Arc::clone(&self.network))
    }

    /// The name of the record.
    pub(super) fn key(&self) -> Key {
        Key::Block {
            network: (*self.network).into(),
            block: self.block,
        }
    }

    /// The name of the IPSlice.
    fn slice_name(&self) -> String {
        reservation_name(&self.scope(), self.block)
    }

    fn entry(&self) -> Result<&Entry, StepError> {
        self.entry.as_deref().ok_or(StepError::Changed("record"))
    }

    fn record(&self) -> Result<(&Entry, &BlockRecord), StepError> {
        let entry = self.entry()?;
        match entry.record() {
            Some(Record::Block(record)) => Ok((entry, record)),
            _ => Err(StepError::Changed("record")),
        }
    }

    fn slice(&self) -> Result<&BlockSlice, StepError> {
        self.slice.as_ref().ok_or(StepError::Changed("IPSlice"))
    }

    /// The other cluster of a conflict.
    fn other_cluster(&self, own: &str) -> String {
        if let Ok((_, record)) = self.record() {
            if record.cluster != own {
                return record.cluster.clone();
            }
            if let Some(contender) = record.contenders.first() {
                return contender.clone();
            }
        }
        UNKNOWN_CLUSTER.to_owned()
    }
}

/// What is reported of a block of a network.
#[derive(Clone, Copy)]
pub(super) enum BlockEvent {
    Taken,
    Returned,
}

/// Sends the writes for the blocks of one registry.
pub(super) struct Writer {
    pub(super) context: Arc<Context>,
    pub(super) registry: Arc<OpenRegistry>,
}

impl Writer {
    /// Does one step. `list` is one that began after a slice that is deleted was known in its version: it
    /// shows whether an address of the block is reserved. What responses show is recorded in the
    /// ledger and in the cache of records.
    pub(super) async fn perform(
        &self,
        step: Step,
        target: &Target,
        memory: &mut Memory,
        delays: Delays,
        list: Option<&ReservationList>,
    ) -> Result<(), StepError> {
        match step {
            Step::Wait => Ok(()),
            Step::CreateRecord => self.create_record(target).await,
            Step::TakeRecord => {
                let id = self.registry.cluster.clone();
                let take = move |record: &mut BlockRecord| hand_over(record, id, clock::now());
                self.update_record("take a block that was returned", target, take)
                    .await
            }
            Step::KeepRecord => {
                // Another manager of this cluster must not return it at once.
                let keep = |record: &mut BlockRecord| {
                    record.since = Some(clock::now());
                    record.returned_at = None;
                };
                self.update_record("take a block back", target, keep).await
            }
            Step::ConfirmRecord => {
                let version = target.slice()?.version.clone();
                self.update_record("confirm the record", target, |_| {})
                    .await?;
                memory.confirmed(&version);
                Ok(())
            }
            Step::ReturnRecord => self.return_record(target).await,
            Step::Contend => {
                let id = self.registry.cluster.clone();
                let contend = move |record: &mut BlockRecord| contend(record, id);
                self.update_record("contend for the block", target, contend)
                    .await
            }
            Step::Withdraw => {
                let id = self.registry.cluster.clone();
                let withdraw = move |record: &mut BlockRecord| {
                    record.contenders.retain(|contender| *contender != id);
                };
                self.update_record("withdraw from the block", target, withdraw)
                    .await
            }
            Step::CreateSlice => self.create_slice(target).await,
            Step::ConfirmSlice => {
                let confirm = |slice: &mut IPSlice| {
                    slice.spec.confirmed_at = Some(clock::now());
                    slice.spec.conflict = None;
                };
                self.write_slice("confirm the IPSlice", target, confirm)
                    .await
            }
            Step::MarkConflict => self.mark_conflict(target).await,
            Step::AwaitQuarantine => {
                let wait = |slice: &mut IPSlice| {
                    slice.spec.confirmed_at = None;
                    slice.spec.conflict = None;
                };
                self.write_slice("end the conflict in the IPSlice", target, wait)
                    .await
            }
            Step::MarkEmpty => {
                let empty_since = empty_since(memory.idle_time(delays, Instant::now()));
                let mark = |slice: &mut IPSlice| slice.spec.empty_since = Some(empty_since);
                self.write_slice("mark the IPSlice", target, mark).await
            }
            Step::ClearMark => {
                let clear = |slice: &mut IPSlice| slice.spec.empty_since = None;
                self.write_slice("keep the IPSlice", target, clear).await
            }
            Step::DeleteSlice => self.delete_slice(target, list).await,
        }
    }

    /// Creates or replaces the record of a network. Another management cluster may have created it.
    pub(super) async fn write_network(
        &self,
        key: &Key,
        known: Option<&Entry>,
        wanted: NetworkRecord,
    ) -> Result<(), RegistryError> {
        let wanted = Record::Network(wanted);
        let backend = &self.registry.backend;
        let written = match known {
            Some(known) => backend.update(known, &wanted).await?,
            None => match backend.create(&key.to_string(), &wanted).await? {
                Created::Ours(entry) | Created::Theirs(entry) => entry,
            },
        };
        self.registry.records.apply(&written);
        Ok(())
    }

    async fn create_record(&self, target: &Target) -> Result<(), StepError> {
        let record = Record::Block(BlockRecord {
            network: target.network.to_string(),
            block: cidr(target.block),
            cluster: self.registry.cluster.clone(),
            since: Some(clock::now()),
            ..BlockRecord::default()
        });
        let created = self
            .registry
            .backend
            .create(&target.key().to_string(), &record)
            .await;
        match created {
            Ok(Created::Ours(entry) | Created::Theirs(entry)) => {
                self.record(target, &entry);
                Ok(())
            }
            Err(source) => Err(StepError::Registry {
                step: "take a block",
                source,
            }),
        }
    }

    /// Replaces the record in the version that was known when the step was decided.
    async fn update_record(
        &self,
        step: &'static str,
        target: &Target,
        change: impl FnOnce(&mut BlockRecord),
    ) -> Result<(), StepError> {
        let (held, known) = target.record()?;
        let mut wanted = known.clone();
        change(&mut wanted);
        let updated = self
            .registry
            .backend
            .update(held, &Record::Block(wanted))
            .await;
        let entry = updated.map_err(|source| StepError::Registry { step, source })?;
        self.record(target, &entry);
        Ok(())
    }

    /// Records what a response of the registry has shown of a block.
    fn record(&self, target: &Target, entry: &Entry) {
        self.registry.records.apply(entry);
        record_shown(&self.context, &self.registry, &target.key());
    }

    /// Returns a block without a slice. The record is written in the version of before the read: if another
    /// process confirms it meanwhile, the version changes.
    async fn return_record(&self, target: &Target) -> Result<(), StepError> {
        if let Some(found) = self.find_slice(target).await? {
            self.record_found(target, &found);
            return Err(StepError::Changed("IPSlice"));
        }
        let (network, block) = (&target.network, target.block);
        let ledger = &self.context.ledger;
        if ledger.read(|ledger| ledger.is_block_used(network, block)) {
            return Err(StepError::Changed("use of the block"));
        }
        let mark = |record: &mut BlockRecord| record.returned_at = Some(clock::now());
        self.update_record("return a block", target, mark).await?;
        info!(%network, block = %cidr(block), "returned a block");
        self.publish(target, BlockEvent::Returned);
        Ok(())
    }

    /// Publishes an event on the network of a block.
    pub(super) fn publish(&self, target: &Target, event: BlockEvent) {
        let name = &target.network;
        let uid = self
            .context
            .ledger
            .read(|ledger| ledger.networks().uid(name));
        // A network that was deleted has no events any more.
        let Some(uid) = uid else { return };
        let mut network = IPNetwork::default();
        network.metadata.name = Some(name.to_string());
        network.metadata.uid = Some(uid);
        let block = cidr(target.block);
        let registry = &self.registry.name;
        let (reason, action, note) = match event {
            BlockEvent::Taken => (
                "BlockTaken",
                "Take",
                format!("block {block} is taken from registry {registry}"),
            ),
            BlockEvent::Returned => (
                "BlockReturned",
                "Return",
                format!(
                    "block {block} is returned to registry {registry}: no address of it is in use"
                ),
            ),
        };
        self.context
            .events
            .normal(&network, &(), reason, action, &note);
    }

    async fn create_slice(&self, target: &Target) -> Result<(), StepError> {
        let owner = SliceOwner {
            kind: SliceOwnerKind::ManagementCluster,
            namespace: None,
            name: self.registry.cluster.clone(),
        };
        let mut slice = IPSlice::assigned(&target.scope(), target.block, owner, clock::now());
        slice.spec.registry = Some(self.registry.name.clone());
        let error = match self.context.slices.create(&slice).await {
            Ok(created) => {
                self.context
                    .ledger
                    .change(|ledger| ledger.insert_slice(&created));
                return Ok(());
            }
            Err(error) => error,
        };
        if error.is_already_exists() || error.outcome_is_unknown() {
            // Another process, or a request of this one without an answer, has created it.
            if let Some(found) = self.find_slice(target).await? {
                self.record_found(target, &found);
                return Ok(());
            }
        }
        Err(call_error("create an IPSlice")(error))
    }

    /// Reads the IPSlice of the block.
    async fn find_slice(
        &self,
        target: &Target,
    ) -> Result<Option<MaybeInvalid<IPSlice>>, StepError> {
        let name = target.slice_name();
        let read = self.context.slices.get_maybe_invalid(&name).await;
        read.map_err(call_error("read the IPSlice"))
    }

    /// Records an IPSlice that a read has shown.
    fn record_found(&self, target: &Target, found: &MaybeInvalid<IPSlice>) {
        self.context
            .ledger
            .change(|ledger| ledger.insert_found_slice(&target.scope(), target.block, found));
    }

    /// Changes the slice in the version that was known when the step was decided.
    async fn write_slice(
        &self,
        step: &'static str,
        target: &Target,
        change: impl FnOnce(&mut IPSlice),
    ) -> Result<(), StepError> {
        let found = self.read_slice(target).await?;
        let mut wanted = found.clone();
        change(&mut wanted);
        let written = patch::write(&self.context.slices, &found, &wanted).await;
        if let Some(written) = written.map_err(call_error(step))? {
            self.context
                .ledger
                .change(|ledger| ledger.insert_slice(&written));
        }
        Ok(())
    }

    /// Reads the slice. Fails if it is not the known version.
    async fn read_slice(&self, target: &Target) -> Result<IPSlice, StepError> {
        let known = target.slice()?;
        let Some(found) = self.find_slice(target).await? else {
            let uid = known.uid.clone();
            self.context.ledger.change(|ledger| {
                ledger.remove_slice_of(&target.scope(), target.block, &uid);
            });
            return Err(StepError::Changed("IPSlice"));
        };
        let is_known = found.meta().resource_version.as_deref() == Some(&*known.version);
        match found.0 {
            Ok(slice) if is_known => Ok(slice),
            other => {
                self.record_found(target, &MaybeInvalid(other));
                Err(StepError::Changed("IPSlice"))
            }
        }
    }

    async fn mark_conflict(&self, target: &Target) -> Result<(), StepError> {
        let cluster = target.other_cluster(&self.registry.cluster);
        let since: Time = clock::now();
        let conflict = SliceConflict {
            cluster: cluster.clone(),
            since,
        };
        let mark = |slice: &mut IPSlice| slice.spec.conflict = Some(conflict);
        self.write_slice("mark the conflict in the IPSlice", target, mark)
            .await?;
        warn!(
            network = %target.network, block = %cidr(target.block), cluster,
            "another management cluster uses a block of this one; no address of it is allocated"
        );
        Ok(())
    }

    async fn delete_slice(
        &self,
        target: &Target,
        list: Option<&ReservationList>,
    ) -> Result<(), StepError> {
        let slice = target.slice()?;
        let (block, uid) = (target.block, slice.uid.clone());
        let returning = Returning::begin(&self.context.ledger, &target.network, block, &uid)
            .ok_or(StepError::Changed("use of the block"))?;
        self.delete_unused_slice(target, slice, list).await?;
        self.context.ledger.change(|ledger| {
            ledger.remove_slice_of(&target.scope(), block, &uid);
        });
        drop(returning);
        Ok(())
    }

    /// Deletes the slice of another management cluster or registry.
    pub(super) async fn delete_foreign_slice(
        &self,
        target: &Target,
        slice: &BlockSlice,
    ) -> Result<(), StepError> {
        let name = target.slice_name();
        let deleted = self
            .context
            .slices
            .delete_unchanged(&name, &slice.uid, &slice.version)
            .await;
        deleted.map_err(call_error(
            "delete the IPSlice of another management cluster or registry",
        ))?;
        self.context.ledger.change(|ledger| {
            ledger.remove_slice_of(&target.scope(), target.block, &slice.uid);
        });
        info!(
            network = %target.network,
            block = %cidr(target.block),
            cluster = %slice.cluster,
            "deleted the IPSlice of another management cluster or registry"
        );
        Ok(())
    }

    async fn delete_unused_slice(
        &self,
        target: &Target,
        slice: &BlockSlice,
        list: Option<&ReservationList>,
    ) -> Result<(), StepError> {
        self.require_unused(target, list)?;
        let name = target.slice_name();
        let deleted = self
            .context
            .slices
            .delete_unchanged(&name, &slice.uid, &slice.version)
            .await;
        match deleted.map_err(call_error("delete the IPSlice"))? {
            Deleted::Gone => Ok(()),
            // The next step deletes it again.
            Deleted::Terminating(_) => Err(StepError::Changed("IPSlice")),
        }
    }

    /// Fails if the list shows a reservation of an address of the block, or the ledger shows one in use.
    fn require_unused(
        &self,
        target: &Target,
        list: Option<&ReservationList>,
    ) -> Result<(), StepError> {
        let (network, block) = (&target.network, target.block);
        let is_reserved = match list {
            Some(list) => list.uses(network, block),
            None => true,
        };
        let ledger = &self.context.ledger;
        if is_reserved || ledger.read(|ledger| ledger.is_block_used(network, block)) {
            return Err(StepError::Changed("use of the block"));
        }
        Ok(())
    }
}

/// The time of the API server since which a block is empty, in whole seconds.
fn empty_since(idle_time: Duration) -> Time {
    let seconds = Duration::from_secs(idle_time.as_secs());
    let now = clock::now();
    let since = now.0.checked_sub(seconds);
    Time(since.unwrap_or(now.0))
}

/// Names a cluster that uses addresses of the block.
fn contend(record: &mut BlockRecord, id: String) {
    if record.contenders.len() < MAX_CONTENDERS && !record.contenders.contains(&id) {
        record.contenders.push(id);
        record.contenders.sort_unstable();
    }
}
