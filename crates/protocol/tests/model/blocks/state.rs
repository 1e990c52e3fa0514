//! What the registry, the API servers and the managers know, and what a manager decides from.

use capi_ipam_protocol::block::{Access, Confirmation, Holding, Mark, Record, Slice, Step, View};

use super::mutations::Mutation;
use super::rebuilt::Former;
use super::registry::Registry;
use super::restore::Backup;
use super::{Scope, Third};

/// The last one is a third cluster, or the first one built again.
pub(super) const CLUSTERS: usize = 3;
pub(super) const MANAGERS: usize = 3;
/// Each block has one address.
pub(super) const BLOCKS: usize = 2;

/// A record in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stored {
    pub(super) holder: usize,
    pub(super) is_returned: bool,
    /// Whether another cluster may take it after its return.
    pub(super) is_expired: bool,
    /// The other clusters that are named, one bit for each.
    pub(super) contenders: u8,
}

impl Stored {
    /// Whether the block is that of the cluster with this identity: no other one may take it.
    pub(super) fn is_of(self, identity: usize) -> bool {
        self.holder == identity && !self.is_expired
    }

    /// Whether the cluster with this identity is named.
    pub(super) fn names(self, identity: usize) -> bool {
        self.contenders & bit(identity) != 0
    }
}

/// The bit of a cluster among those that a record names.
pub(super) const fn bit(identity: usize) -> u8 {
    1 << identity
}

/// A key of the registry: its revision, and its record or the marker of its deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) revision: u32,
    pub(super) record: Option<Stored>,
}

/// A slice in the API server of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoredSlice {
    /// The version with which it was created: no other slice has it.
    pub(super) uid: u32,
    pub(super) version: u32,
    pub(super) is_confirmed: bool,
    pub(super) is_conflicting: bool,
    pub(super) is_marked: bool,
}

impl StoredSlice {
    pub(super) fn view(self, was_received: bool) -> Slice {
        let confirmation = match (was_received, self.is_confirmed) {
            (true, _) => Confirmation::Received,
            (false, true) => Confirmation::Written,
            (false, false) => Confirmation::Missing,
        };
        Slice {
            confirmation,
            is_conflicting: self.is_conflicting,
            mark: if self.is_marked {
                Mark::Old
            } else {
                Mark::None
            },
        }
    }
}

/// The objects of a block in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Objects {
    pub(super) slice: Option<StoredSlice>,
    pub(super) last_version: u32,
    pub(super) is_reserved: bool,
    pub(super) is_bound: bool,
    /// Whether the claim that has the reservation was moved to the other cluster.
    pub(super) is_moved: bool,
}

impl Objects {
    /// Deletes the reservation.
    pub(super) fn release(&mut self) {
        self.is_reserved = false;
        self.is_bound = false;
        self.is_moved = false;
    }

    /// Whether the address is free for a claim, or the claim goes on with its reservation.
    pub(super) fn is_free(&self, known: &Known, goes_on: bool) -> bool {
        !known.is_used || goes_on && self.is_reserved && !self.is_bound && !self.is_moved
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Task {
    #[default]
    Idle,
    /// The address was proposed.
    Reserve,
    /// The address is reserved, and the slice is read next.
    Check,
    /// No address is in use: the slice of this version is deleted next.
    Delete { version: u32 },
    /// There is no slice: the block with the record of this revision is returned next.
    Return { revision: u32 },
}

/// What a manager knows of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Known {
    pub(super) slice: Option<StoredSlice>,
    /// Whether the record that was shown last is one that allows to use the block; `None` before
    /// the first one.
    pub(super) is_ours_alone: Option<bool>,
    pub(super) is_used: bool,
    pub(super) key: Option<Key>,
    /// The version of the slice for which the record was confirmed.
    pub(super) received: Option<u32>,
    pub(super) task: Task,
}

impl Known {
    /// Whether the manager allocates from the block.
    pub(super) fn allocates(&self, scope: &Scope) -> bool {
        let may_use =
            self.is_ours_alone != Some(false) || scope.mutation == Some(Mutation::UseUntilMarked);
        let slice = self.slice.map(|slice| slice.view(false));
        may_use && slice.is_some_and(Slice::is_usable)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Claim {
    Waiting,
    Bound,
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) keys: [Key; BLOCKS],
    pub(super) before: [Key; BLOCKS],
    pub(super) clusters: [[Objects; BLOCKS]; CLUSTERS],
    pub(super) claims: [Claim; CLUSTERS],
    pub(super) lives: [u32; CLUSTERS],
    /// Whether the first cluster shares no blocks any more.
    pub(super) has_ended: bool,
    pub(super) managers: [[Known; BLOCKS]; MANAGERS],
    pub(super) crashes_left: u32,
    pub(super) lost_replies_left: u32,
    pub(super) lost_writes_left: u32,
    pub(super) lost_records_left: u32,
    pub(super) old_reads_left: u32,
    /// An address was bound in a block although the slice had a conflict.
    pub(super) bound_in_conflict: bool,
    /// An address was bound in a block of which the manager knew that another cluster has or uses
    /// it.
    pub(super) bound_in_known_conflict: bool,
    /// An address was bound in a block of which the cluster had no record.
    pub(super) bound_without_record: bool,
    pub(super) backup: Option<Backup>,
    pub(super) restores_left: u32,
    /// Whether the claim of the first cluster was moved.
    pub(super) has_moved: bool,
    pub(super) registry: Registry,
    pub(super) former: Former,
}

impl State {
    /// What a manager decides from.
    pub(super) fn view(&self, scope: &Scope, manager: usize, block: usize) -> View {
        let known = &self.managers[manager][block];
        let cluster = scope.cluster(manager);
        let slice = known.slice.map(|slice| {
            let was_received = known.received == Some(slice.version);
            slice.view(was_received)
        });
        View {
            record: scope.record(known.key, cluster),
            is_shared: self.shares(cluster),
            slice,
            is_used: known.is_used || matches!(known.task, Task::Reserve | Task::Check),
            is_needed: self.needed_block(scope, manager) == Some(block),
            // A manager may mark an empty block at any time.
            is_idle: true,
            is_settled: true,
            is_being_taken: false,
            access: self.access(scope, manager),
        }
    }

    /// What the cluster of a manager may do.
    fn access(&self, scope: &Scope, manager: usize) -> Access {
        let cluster = scope.cluster(manager);
        let access = if self.is_suspended(scope, cluster) {
            Access::Suspended
        } else if scope.joins && cluster == 0 {
            Access::Limited
        } else {
            self.registry.access(manager)
        };
        match scope.mutation {
            Some(mutation) => mutation.access(access),
            None => access,
        }
    }

    /// Whether a cluster shares blocks.
    pub(super) fn shares(&self, cluster: usize) -> bool {
        cluster != 0 || !self.has_ended
    }

    /// Lets the managers notice what the records show. One whose last write has an unknown outcome
    /// goes on with what was shown before.
    pub(super) fn notice_records(&mut self, scope: &Scope) {
        for (manager, blocks) in self.managers.iter_mut().enumerate() {
            let cluster = scope.cluster(manager);
            for known in blocks {
                if known.key.is_some() {
                    let record = scope.record(known.key, cluster);
                    known.is_ours_alone = Some(record.is_ours_alone());
                }
            }
        }
    }

    /// What a manager does next for a block.
    pub(super) fn step(&self, scope: &Scope, manager: usize, block: usize) -> Step {
        self.view(scope, manager, block).next()
    }

    /// The block that a manager needs for a claim that waits: the first one that no other cluster
    /// has.
    pub(super) fn needed_block(&self, scope: &Scope, manager: usize) -> Option<usize> {
        let cluster = scope.cluster(manager);
        if self.claims[cluster] != Claim::Waiting || !self.shares(cluster) {
            return None;
        }
        (0..scope.blocks).find(|block| {
            let known = &self.managers[manager][*block];
            let has_conflict = known.slice.is_some_and(|slice| slice.is_conflicting);
            let is_free = match scope.record(known.key, cluster) {
                Record::Unknown => known.slice.is_some(),
                Record::Absent => true,
                Record::Ours { is_contested, .. } => !is_contested,
                Record::Theirs { holding, .. } => holding == Holding::Free,
                Record::Unreadable => false,
            };
            is_free && !has_conflict && !known.is_used
        })
    }

    /// Whether all managers know everything and have nothing to do.
    pub(super) fn is_quiet(&self, scope: &Scope) -> bool {
        (0..scope.managers).all(|manager| {
            let is_running = self.is_running(scope, manager);
            !is_running || self.is_idle(scope, manager)
        })
    }

    /// Whether a manager knows everything and has nothing to do.
    fn is_idle(&self, scope: &Scope, manager: usize) -> bool {
        let is_listed = self.steps_of_registry(scope, manager).is_empty();
        is_listed
            && (0..scope.blocks).all(|block| {
                let known = &self.managers[manager][block];
                let objects = &self.clusters[scope.cluster(manager)][block];
                known.slice == objects.slice
                    && known.is_used == objects.is_reserved
                    && known.key == Some(self.keys[block])
                    && known.task == Task::Idle
                    && self.step(scope, manager, block) == Step::Wait
            })
    }
}

impl Scope {
    /// The cluster of a manager.
    pub(super) fn cluster(&self, manager: usize) -> usize {
        match manager {
            2 if self.third == Third::First => 0,
            other => other,
        }
    }

    /// The identity of a cluster in the registry.
    pub(super) fn identity(&self, cluster: usize) -> usize {
        match cluster {
            2 if self.third == Third::Rebuilt => 0,
            other => other,
        }
    }

    /// The record as a cluster sees it.
    pub(super) fn record(&self, key: Option<Key>, cluster: usize) -> Record {
        let Some(key) = key else {
            return Record::Unknown;
        };
        let identity = self.identity(cluster);
        let takes_early = self.mutation == Some(Mutation::TakeInQuarantine);
        match key.record {
            None => Record::Absent,
            Some(stored) if stored.holder == identity => Record::Ours {
                is_returned: stored.is_returned,
                is_contested: stored.contenders != 0,
            },
            Some(stored) => Record::Theirs {
                names_us: stored.names(identity),
                is_full: false,
                holding: holding(stored, identity, takes_early),
            },
        }
    }
}

/// Whether another cluster still has a block. One that others contend for is theirs after the
/// quarantine.
fn holding(stored: Stored, identity: usize, takes_early: bool) -> Holding {
    let may_take = stored.contenders == 0 || stored.names(identity);
    let is_over = stored.is_expired || takes_early && stored.is_returned;
    match stored.is_returned {
        _ if is_over && may_take => Holding::Free,
        true => Holding::Returned,
        false => Holding::Held,
    }
}
