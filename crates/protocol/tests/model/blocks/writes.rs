//! The requests that write: to the registry, and to the API server of a cluster.

use capi_ipam_protocol::block::{Confirmation, Mark, Step};

use super::Scope;
use super::mutations::Mutation;
use super::state::{Claim, State, Stored, StoredSlice, Task, bit};

impl State {
    /// Writes the record of a block if it has the revision that the manager knows.
    fn write_record(
        &mut self,
        scope: &Scope,
        manager: usize,
        block: usize,
        record: Option<Stored>,
    ) {
        let known = self.managers[manager][block].key.unwrap_or_default();
        self.write_revision(scope, manager, block, known.revision, record);
    }

    /// Writes the record of a block if it has a revision.
    pub(super) fn write_revision(
        &mut self,
        scope: &Scope,
        manager: usize,
        block: usize,
        revision: u32,
        record: Option<Stored>,
    ) {
        let is_same = revision == self.keys[block].revision;
        if is_same || scope.mutation == Some(Mutation::WriteUnconditionally) {
            self.before[block] = self.keys[block];
            self.keys[block].revision += 1;
            self.keys[block].record = record;
            self.managers[manager][block].key = Some(self.keys[block]);
        } else {
            // A conflict: the record is read again.
            self.managers[manager][block].key = None;
        }
    }

    /// Writes a slice if it has the version that the manager knows.
    fn write_slice(
        &mut self,
        scope: &Scope,
        manager: usize,
        block: usize,
        change: impl FnOnce(&mut StoredSlice),
    ) {
        let objects = &mut self.clusters[scope.cluster(manager)][block];
        let known = &mut self.managers[manager][block];
        if let Some(slice) = &mut objects.slice
            && Some(slice.version) == known.slice.map(|slice| slice.version)
        {
            objects.last_version += 1;
            change(slice);
            slice.version = objects.last_version;
        }
        known.slice = objects.slice;
        known.received = None;
    }

    /// Performs a step of the protocol.
    pub(super) fn perform(&mut self, scope: &Scope, manager: usize, block: usize, step: Step) {
        let cluster = scope.cluster(manager);
        let holder = scope.identity(cluster);
        let stored = self.managers[manager][block].key.and_then(|key| key.record);
        let contenders = stored.map(|stored| stored.contenders).unwrap_or_default();
        let ours = Stored {
            holder,
            is_returned: false,
            is_expired: false,
            contenders: contenders & !bit(holder),
        };
        match step {
            Step::Wait | Step::ReturnRecord | Step::DeleteSlice => {}
            Step::CreateRecord | Step::TakeRecord | Step::KeepRecord => {
                self.write_record(scope, manager, block, Some(ours));
            }
            Step::ConfirmRecord => {
                if scope.mutation != Some(Mutation::ConfirmWithoutRecord) {
                    self.write_record(scope, manager, block, stored);
                }
                let known = &mut self.managers[manager][block];
                if known.key.is_some() {
                    known.received = known.slice.map(|slice| slice.version);
                }
            }
            Step::Contend | Step::Withdraw => {
                let contenders = match step {
                    Step::Contend => contenders | bit(holder),
                    _ => contenders & !bit(holder),
                };
                let record = stored.map(|stored| Stored {
                    contenders,
                    ..stored
                });
                self.write_record(scope, manager, block, record);
            }
            Step::CreateSlice => {
                let objects = &mut self.clusters[cluster][block];
                if objects.slice.is_none() {
                    objects.last_version += 1;
                    objects.slice = Some(StoredSlice {
                        uid: objects.last_version,
                        version: objects.last_version,
                        is_confirmed: false,
                        is_conflicting: false,
                        is_marked: false,
                    });
                }
                self.managers[manager][block].slice = objects.slice;
                self.managers[manager][block].received = None;
            }
            Step::ConfirmSlice => {
                self.write_slice(scope, manager, block, |slice| {
                    slice.is_confirmed = true;
                    slice.is_conflicting = false;
                });
            }
            Step::MarkConflict => {
                self.write_slice(scope, manager, block, |slice| slice.is_conflicting = true);
            }
            Step::AwaitQuarantine => self.write_slice(scope, manager, block, |slice| {
                slice.is_confirmed = false;
                slice.is_conflicting = false;
            }),
            Step::MarkEmpty => {
                self.write_slice(scope, manager, block, |slice| slice.is_marked = true)
            }
            Step::ClearMark => {
                self.write_slice(scope, manager, block, |slice| slice.is_marked = false)
            }
        }
    }

    /// Binds the reserved address, or releases it.
    pub(super) fn check(&mut self, scope: &Scope, manager: usize, block: usize) {
        let cluster = scope.cluster(manager);
        let is_suspended = self.is_suspended(scope, cluster);
        let objects = &mut self.clusters[cluster][block];
        // A live read.
        let known = &mut self.managers[manager][block];
        known.slice = objects.slice;
        let slice = objects.slice.map(|slice| slice.view(false));
        let mut is_usable = known.allocates(scope) && !is_suspended;
        if scope.mutation == Some(Mutation::BindWithoutCheck) {
            is_usable = true;
        }
        if scope.mutation == Some(Mutation::IgnoreConflicts) {
            is_usable = slice.is_some_and(|slice| {
                slice.confirmation == Confirmation::Written && slice.mark == Mark::None
            });
        }
        if is_usable && self.claims[cluster] == Claim::Waiting && objects.is_reserved {
            objects.is_bound = true;
            self.claims[cluster] = Claim::Bound;
            self.bound_in_conflict |= slice.is_some_and(|slice| slice.is_conflicting);
            let record = self.keys[block].record;
            let identity = scope.identity(cluster);
            self.bound_in_known_conflict |= known.is_ours_alone == Some(false);
            self.bound_without_record |= !record.is_some_and(|stored| stored.is_of(identity));
        } else if !objects.is_bound && self.claims[cluster] != Claim::Waiting {
            objects.release();
        }
        known.is_used = objects.is_reserved;
        known.task = Task::Idle;
    }
}
