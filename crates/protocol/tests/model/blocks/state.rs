//! What the registry, the API servers and the managers know, and what a manager decides from.

use capi_ipam_protocol::block::{Confirmation, Mark, Record, Slice, Step, View};

use super::Scope;

/// The cluster of each manager.
pub(super) const CLUSTER: [usize; 3] = [0, 1, 0];
pub(super) const CLUSTERS: usize = 2;
pub(super) const BLOCKS: usize = 2;

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
    /// There is no slice: the record of this revision is deleted next.
    DeleteRecord { revision: u32 },
}

/// What a manager knows of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Known {
    pub(super) slice: Option<StoredSlice>,
    pub(super) is_used: bool,
    pub(super) key: Option<Key>,
    /// The version of the slice for which the record was confirmed.
    pub(super) received: Option<u32>,
    pub(super) task: Task,
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
    pub(super) managers: [[Known; BLOCKS]; 3],
    pub(super) crashes_left: u32,
    pub(super) lost_replies_left: u32,
    pub(super) lost_writes_left: u32,
    pub(super) old_reads_left: u32,
    /// An address was bound in a block although the slice had a conflict.
    pub(super) bound_in_conflict: bool,
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
            record: record(known.key, cluster),
            is_overlapped: false,
            slice,
            is_used: known.is_used || matches!(known.task, Task::Reserve | Task::Check),
            is_needed: self.needed_block(scope, manager) == Some(block),
            is_settled: true,
            is_watched: true,
        }
    }

    /// The block that a manager needs for a claim that waits: the first one that no other cluster
    /// has.
    pub(super) fn needed_block(&self, scope: &Scope, manager: usize) -> Option<usize> {
        let cluster = CLUSTER[manager];
        if self.claims[cluster] != Claim::Waiting {
            return None;
        }
        (0..scope.blocks).find(|block| {
            let known = &self.managers[manager][*block];
            let has_conflict = known.slice.is_some_and(|slice| slice.is_conflicting);
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
            (0..scope.blocks).all(|block| {
                let known = &self.managers[manager][block];
                let objects = &self.clusters[CLUSTER[manager]][block];
                known.slice == objects.slice
                    && known.is_used == objects.is_reserved
                    && known.key == Some(self.keys[block])
                    && known.task == Task::Idle
                    && self.view(scope, manager, block).next() == Step::Wait
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
        },
    }
}
