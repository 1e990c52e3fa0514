//! What the registry, the API servers and the managers know, and what a manager decides from.

use capi_ipam_protocol::block::{
    Compared, Comparison, Confirmation, Mark, Record, Recorded, Seen, Slice, Step, View,
};

use super::Scope;
use super::mutations::Mutation;
use super::restore::Backup;
use super::sizes;

/// The cluster of each manager.
pub(super) const CLUSTER: [usize; 3] = [0, 1, 0];
pub(super) const CLUSTERS: usize = 2;
/// Two blocks, and one that consists of both.
pub(super) const BLOCKS: usize = 3;
pub(super) const ADDRESSES: usize = 2;

/// A record in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stored {
    pub(super) holder: usize,
    pub(super) is_returning: bool,
    /// Whether the other cluster is named.
    pub(super) names_other: bool,
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
    /// The number of the reserved address in the block.
    pub(super) address: usize,
    /// Whether the claim that has the reservation was moved to the other cluster.
    pub(super) is_moved: bool,
}

impl Objects {
    /// Deletes the reservation.
    pub(super) fn release(&mut self) {
        self.is_reserved = false;
        self.is_bound = false;
        self.address = 0;
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
    /// The address with this number was proposed.
    Reserve { address: usize },
    /// The address is reserved, and the slice is read next.
    Check,
    /// No address is in use: the slice of this version is deleted next.
    Delete { version: u32 },
    /// There is no slice: the record of this revision is deleted next.
    DeleteRecord { revision: u32 },
}

/// What a manager knows of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Known {
    pub(super) slice: Option<StoredSlice>,
    /// Whether the slice was compared with the record.
    pub(super) compared: Compared,
    pub(super) is_used: bool,
    pub(super) key: Option<Key>,
    /// Whether the watch has shown the record in this revision, and so all that was written before.
    pub(super) is_watched: bool,
    /// Whether the block has overlapped with another one when the last pass began, see
    /// [`Mutation::DecideAtBeginOfPass`].
    pub(super) was_overlapped: bool,
    /// The version of the slice for which the record was confirmed.
    pub(super) received: Option<u32>,
    /// Whether the record is, or was, in the registry.
    pub(super) recorded: Recorded,
    pub(super) task: Task,
}

impl Known {
    /// The manager sees the slice.
    pub(super) fn see(&mut self, slice: Option<StoredSlice>) {
        let same = self
            .slice
            .filter(|before| slice.is_some_and(|slice| slice.uid == before.uid));
        let before = same.map(|before| (self.compared, before.view(false)));
        self.compared = match slice {
            Some(slice) => Compared::after(before, slice.view(false)),
            None => Compared::default(),
        };
        self.slice = slice;
    }

    /// Whether the manager allocates from the block.
    pub(super) fn allocates(&self, scope: &Scope) -> bool {
        let is_compared =
            self.compared.is_done() || scope.mutation == Some(Mutation::TrustRestoredSlices);
        let slice = self.slice.map(|slice| slice.view(false));
        is_compared && slice.is_some_and(Slice::is_usable)
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
    pub(super) managers: [[Known; BLOCKS]; 3],
    pub(super) crashes_left: u32,
    pub(super) lost_replies_left: u32,
    pub(super) lost_writes_left: u32,
    pub(super) lost_records_left: u32,
    pub(super) old_reads_left: u32,
    /// An address was bound in a block although the slice had a conflict.
    pub(super) bound_in_conflict: bool,
    /// An address was bound in a block of which the cluster had no record.
    pub(super) bound_without_record: bool,
    pub(super) backup: Option<Backup>,
    pub(super) restores_left: u32,
    /// Whether the claim of the first cluster was moved.
    pub(super) has_moved: bool,
}

impl State {
    /// What a manager decides from.
    pub(super) fn view(&self, scope: &Scope, manager: usize, block: usize) -> View {
        let known = &self.managers[manager][block];
        let cluster = CLUSTER[manager];
        let slice = known.slice.map(|slice| {
            let was_received = known.received == Some(slice.version);
            slice.view(was_received)
        });
        View {
            record: if self.is_listed(scope, manager) {
                record(known.key, cluster)
            } else {
                Record::Unknown
            },
            sharing: known.recorded.sharing(self.shares(cluster)),
            is_overlapped: self.is_overlapped(scope, manager, block),
            slice,
            is_used: known.is_used || matches!(known.task, Task::Reserve { .. } | Task::Check),
            is_needed: self.needed_block(scope, manager) == Some(block),
            // A manager may mark an empty block at any time.
            is_idle: true,
            is_settled: true,
            is_watched: !scope.has_two_sizes()
                || known.is_watched
                || scope.mutation == Some(Mutation::ConfirmBeforeWatch),
            is_being_taken: false,
        }
    }

    /// Whether a manager finds that a slice agrees with the record. After a restore it reads the
    /// record.
    pub(super) fn can_compare(&self, scope: &Scope, manager: usize, block: usize) -> bool {
        let known = &self.managers[manager][block];
        if known.slice.is_none() || known.compared.is_done() {
            return false;
        }
        let mut state = self.clone();
        if self.restores_left < scope.restores {
            state.read(manager, block, self.keys[block]);
        }
        state.view(scope, manager, block).compare() == Comparison::Agreement
    }

    /// Whether a cluster shares blocks.
    pub(super) fn shares(&self, cluster: usize) -> bool {
        cluster != 0 || !self.has_ended
    }

    /// Lets the managers remember in which registry the records of blocks are.
    pub(super) fn remember_records(&mut self, scope: &Scope) {
        let names_registry = scope.mutation != Some(Mutation::OmitRegistry);
        let unknown = match scope.mutation {
            Some(Mutation::TakeUnknownForLost) => Some(false),
            _ => None,
        };
        for (manager, cluster) in CLUSTER.into_iter().enumerate() {
            let is_taking = self.shares(cluster);
            for known in &mut self.managers[manager] {
                let is_named = match record(known.key, cluster) {
                    Record::Unknown => unknown,
                    Record::Ours { .. } => Some(true),
                    Record::Theirs { names_us, .. } => Some(names_us),
                    Record::Absent | Record::Unreadable => Some(false),
                };
                known.recorded = known.recorded.update(Seen {
                    is_taking,
                    has_slice: known.slice.is_some(),
                    is_slice_of_registry: names_registry && known.slice.is_some(),
                    is_named,
                });
            }
        }
    }

    /// Lets the managers compare slices again whose records show something else.
    pub(super) fn notice_records(&mut self, scope: &Scope) {
        if scope.mutation == Some(Mutation::UseUntilMarked) {
            return;
        }
        for (manager, cluster) in CLUSTER.into_iter().enumerate() {
            for known in &mut self.managers[manager] {
                if !record(known.key, cluster).is_ours_alone() {
                    known.compared = Compared::default();
                }
            }
        }
    }

    /// What a manager does next for a block.
    pub(super) fn step(&self, scope: &Scope, manager: usize, block: usize) -> Step {
        let view = self.view(scope, manager, block);
        let step = view.next();
        // A record that was lost is written again in any case.
        let takes = step == Step::CreateRecord && self.managers[manager][block].slice.is_none();
        if takes && !scope.takes_blocks(CLUSTER[manager]) {
            return Step::Wait;
        }
        let is_hidden = scope.mutation == Some(Mutation::HideConflict);
        if is_hidden && step == Step::CreateRecord && view.is_overlapped {
            return Step::Wait;
        }
        step
    }

    /// Whether the watch of a manager has shown all records.
    pub(super) fn is_current(&self, manager: usize) -> bool {
        let mut known = self.managers[manager].iter().zip(self.keys);
        known.all(|(known, key)| known.is_watched && known.key == Some(key))
    }

    /// Whether a new pass of a manager can decide differently from the last one.
    pub(super) fn can_begin_pass(&self, scope: &Scope, manager: usize) -> bool {
        let mut known = self.managers[manager].iter().enumerate();
        scope.mutation == Some(Mutation::DecideAtBeginOfPass)
            && known.any(|(block, known)| {
                known.was_overlapped != self.shows_overlap(scope, manager, block)
            })
    }

    /// Whether a manager has listed the records since it started.
    pub(super) fn is_listed(&self, scope: &Scope, manager: usize) -> bool {
        let own = scope.blocks_of(CLUSTER[manager]);
        let mut others = (0..scope.blocks).filter(|block| !own.contains(block));
        others.all(|block| self.managers[manager][block].key.is_some())
    }

    /// Whether a manager decides that another cluster has a block of another size that overlaps with
    /// this one.
    fn is_overlapped(&self, scope: &Scope, manager: usize, block: usize) -> bool {
        if scope.mutation == Some(Mutation::DecideAtBeginOfPass) {
            return self.managers[manager][block].was_overlapped;
        }
        self.shows_overlap(scope, manager, block)
    }

    /// Whether the records that a manager knows show such a block.
    pub(super) fn shows_overlap(&self, scope: &Scope, manager: usize, block: usize) -> bool {
        (0..scope.blocks).any(|other| {
            let known = &self.managers[manager][other];
            let record = known.key.and_then(|key| key.record);
            let is_theirs = record.is_some_and(|stored| stored.holder != CLUSTER[manager]);
            let overlaps = match scope.mutation {
                Some(Mutation::CompareBlocksForEquality) => other == block,
                _ => sizes::overlap(other, block),
            };
            is_theirs && other != block && overlaps
        })
    }

    /// The block that a manager needs for a claim that waits: the first one that no other cluster
    /// has.
    pub(super) fn needed_block(&self, scope: &Scope, manager: usize) -> Option<usize> {
        let cluster = CLUSTER[manager];
        if self.claims[cluster] != Claim::Waiting || !self.shares(cluster) {
            return None;
        }
        // The claim has an address. With one size, a block may be taken all the same, as a spare one.
        let is_allocating =
            |known: &Known| matches!(known.task, Task::Reserve { .. } | Task::Check);
        if scope.has_two_sizes() && self.managers[manager].iter().any(is_allocating) {
            return None;
        }
        scope.blocks_of(cluster).find(|block| {
            let known = &self.managers[manager][*block];
            let has_conflict = known.slice.is_some_and(|slice| slice.is_conflicting)
                || self.is_overlapped(scope, manager, *block);
            let is_free = match record(known.key, cluster) {
                Record::Unknown => known.slice.is_some(),
                Record::Absent => true,
                Record::Ours { is_contested, .. } => !is_contested,
                Record::Theirs { .. } | Record::Unreadable => false,
            };
            is_free && !has_conflict && !known.is_used
        })
    }

    /// Whether all managers know everything and have nothing to do.
    pub(super) fn is_quiet(&self, scope: &Scope) -> bool {
        (0..scope.managers).all(|manager| {
            let is_current = !scope.has_two_sizes() || self.is_current(manager);
            is_current
                && !self.can_begin_pass(scope, manager)
                && (0..scope.blocks).all(|block| {
                    let known = &self.managers[manager][block];
                    let objects = &self.clusters[CLUSTER[manager]][block];
                    known.slice == objects.slice
                        && known.is_used == objects.is_reserved
                        && known.key == Some(self.keys[block])
                        && known.task == Task::Idle
                        && !self.can_compare(scope, manager, block)
                        && self.step(scope, manager, block) == Step::Wait
                })
        })
    }
}

/// The record as a cluster sees it.
pub(super) fn record(key: Option<Key>, cluster: usize) -> Record {
    let Some(key) = key else {
        return Record::Unknown;
    };
    match key.record {
        None => Record::Absent,
        Some(stored) if stored.holder == cluster => Record::Ours {
            is_returning: stored.is_returning,
            is_contested: stored.names_other,
        },
        Some(stored) => Record::Theirs {
            names_us: stored.names_other,
            is_full: false,
        },
    }
}
