//! A model of a block that two management clusters take from a registry, use, and return.
//!
//! Each cluster has a separate API server with a slice, a reservation and a claim for each block.
//! The first cluster can have two managers. A manager sees its API server and the record late, and
//! may crash at any step. The registry may lose a write that it has acknowledged, and then gives the
//! revision of this write to the next one; it may answer a read with the state before the last
//! write; and a reply to a write may be lost.
//!
//! Which write follows is decided by `capi_ipam_protocol::block`, as in the product.
//!
//! | step of the model | implementation |
//! |---|---|
//! | `Write` | one step of `View::next` |
//! | `Reserve`, `Check` | a reservation is created, and then the slice is read, before an address is bound |
//! | `List`, `Delete` | the list of the addresses in use before a slice is deleted, and the deletion |
//! | `Look`, `DeleteRecord` | the read of the slice before a record is deleted, and the deletion |

mod day;

use capi_ipam_protocol::block::{Confirmation, Mark, Record, Slice, Step, View};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

/// The cluster of each manager.
const CLUSTER: [usize; 3] = [0, 1, 0];
const CLUSTERS: usize = 2;
const BLOCKS: usize = 2;

/// An injected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// An address is bound without a read of the slice after its reservation.
    BindWithoutCheck,
    /// A slice is deleted without a list of the addresses in use.
    DeleteWithoutList,
    /// A record is deleted without a read of the slice.
    DeleteRecordWithoutLook,
    /// A record is deleted in the revision that was read last, not in that of before the read of the
    /// slice.
    DeleteRecordAsLastRead,
    /// A slice counts as confirmed although the record was not written again.
    ConfirmWithoutRecord,
    /// A record is written whatever its revision is.
    WriteUnconditionally,
    /// The conflict of a slice has no effect.
    IgnoreConflicts,
    /// A claim that has found its block being returned does not go on when the block is kept.
    ForgetReservation,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
struct Scope {
    blocks: usize,
    managers: usize,
    /// How many claims each cluster has, one after the other.
    lives: [u32; CLUSTERS],
    crashes: u32,
    lost_replies: u32,
    lost_writes: u32,
    old_reads: u32,
    /// The highest revision of a record.
    max_revision: u32,
    /// The highest version of a slice.
    max_version: u32,
    mutation: Option<Mutation>,
}

/// A record in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stored {
    holder: usize,
    is_returning: bool,
    /// Whether the other cluster is named.
    names_other: bool,
}

/// A key of the registry: its revision, and its record or the marker of its deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Key {
    revision: u32,
    record: Option<Stored>,
}

/// A slice in the API server of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StoredSlice {
    version: u32,
    is_confirmed: bool,
    is_conflicting: bool,
    is_marked: bool,
}

impl StoredSlice {
    fn view(self, was_received: bool) -> Slice {
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
struct Objects {
    slice: Option<StoredSlice>,
    last_version: u32,
    is_reserved: bool,
    is_bound: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Task {
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
struct Known {
    slice: Option<StoredSlice>,
    is_used: bool,
    key: Option<Key>,
    /// The version of the slice for which the record was confirmed.
    received: Option<u32>,
    task: Task,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Claim {
    Waiting,
    Bound,
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    keys: [Key; BLOCKS],
    before: [Key; BLOCKS],
    clusters: [[Objects; BLOCKS]; CLUSTERS],
    claims: [Claim; CLUSTERS],
    lives: [u32; CLUSTERS],
    managers: [[Known; BLOCKS]; 3],
    crashes_left: u32,
    lost_replies_left: u32,
    lost_writes_left: u32,
    old_reads_left: u32,
    /// An address was bound in a block although the slice had a conflict.
    bound_in_conflict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    See(usize, usize),
    Read(usize, usize),
    ReadOld(usize, usize),
    Write(usize, usize),
    LoseReply(usize, usize),
    List(usize, usize),
    Delete(usize, usize),
    Look(usize, usize),
    DeleteRecord(usize, usize),
    Propose(usize, usize),
    Reserve(usize, usize),
    Check(usize, usize),
    Sweep(usize, usize),
    DeleteClaim(usize),
    CreateClaim(usize),
    Crash(usize),
    LoseWrite(usize),
}

impl State {
    /// What a manager decides from.
    fn view(&self, scope: &Scope, manager: usize, block: usize) -> View {
        let known = &self.managers[manager][block];
        let cluster = CLUSTER[manager];
        let slice = known.slice.map(|slice| {
            let was_received = known.received == Some(slice.version);
            slice.view(was_received)
        });
        View {
            record: record(known.key, cluster),
            slice,
            is_used: known.is_used || matches!(known.task, Task::Reserve | Task::Check),
            is_needed: self.needed_block(scope, manager) == Some(block),
            is_settled: true,
        }
    }

    /// The block that a manager needs for a claim that waits: the first one that no other cluster
    /// has.
    fn needed_block(&self, scope: &Scope, manager: usize) -> Option<usize> {
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
    fn is_quiet(&self, scope: &Scope) -> bool {
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
    fn write_revision(
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
    fn write_slice(&mut self, manager: usize, block: usize, change: impl FnOnce(&mut StoredSlice)) {
        let objects = &mut self.clusters[CLUSTER[manager]][block];
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
    fn perform(&mut self, scope: &Scope, manager: usize, block: usize, step: Step) {
        let holder = CLUSTER[manager];
        let ours = Stored {
            holder,
            is_returning: false,
            names_other: false,
        };
        let stored = self.managers[manager][block].key.and_then(|key| key.record);
        match step {
            Step::Wait | Step::DeleteRecord | Step::DeleteSlice => {}
            Step::CreateRecord | Step::KeepRecord => {
                let names_other = stored.is_some_and(|stored| stored.names_other);
                let record = Stored {
                    names_other,
                    ..ours
                };
                self.write_record(scope, manager, block, Some(record));
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
            Step::MarkRecord => {
                let is_returning = true;
                let record = Stored {
                    is_returning,
                    ..ours
                };
                self.write_record(scope, manager, block, Some(record));
            }
            Step::HandOver => {
                let holder = 1 - holder;
                let record = Stored { holder, ..ours };
                self.write_record(scope, manager, block, Some(record));
            }
            Step::Contend | Step::Withdraw => {
                let record = stored.map(|stored| Stored {
                    names_other: step == Step::Contend,
                    ..stored
                });
                self.write_record(scope, manager, block, record);
            }
            Step::CreateSlice => {
                let objects = &mut self.clusters[holder][block];
                if objects.slice.is_none() {
                    objects.last_version += 1;
                    objects.slice = Some(StoredSlice {
                        version: objects.last_version,
                        is_confirmed: false,
                        is_conflicting: false,
                        is_marked: false,
                    });
                }
                let slice = objects.slice;
                self.managers[manager][block].slice = slice;
                self.managers[manager][block].received = None;
            }
            Step::ConfirmSlice => {
                self.write_slice(manager, block, |slice| {
                    slice.is_confirmed = true;
                    slice.is_conflicting = false;
                });
            }
            Step::MarkConflict => {
                self.write_slice(manager, block, |slice| slice.is_conflicting = true);
            }
            Step::MarkEmpty => self.write_slice(manager, block, |slice| slice.is_marked = true),
            Step::ClearMark => self.write_slice(manager, block, |slice| slice.is_marked = false),
        }
    }

    /// Binds the reserved address, or releases it.
    fn check(&mut self, scope: &Scope, manager: usize, block: usize) {
        let cluster = CLUSTER[manager];
        let objects = &mut self.clusters[cluster][block];
        // A live read.
        let slice = objects.slice.map(|slice| slice.view(false));
        let mut is_usable = slice.is_some_and(Slice::is_usable);
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
        } else if !objects.is_bound && self.claims[cluster] != Claim::Waiting {
            objects.is_reserved = false;
        }
        let known = &mut self.managers[manager][block];
        known.slice = objects.slice;
        known.is_used = objects.is_reserved;
        known.task = Task::Idle;
    }
}

/// The record as a cluster sees it.
fn record(key: Option<Key>, cluster: usize) -> Record {
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

struct Blocks(Scope);

impl Blocks {
    fn actions_of_block(&self, state: &State, manager: usize, block: usize, add: &mut Vec<Action>) {
        let scope = &self.0;
        let cluster = CLUSTER[manager];
        let known = &state.managers[manager][block];
        let objects = &state.clusters[cluster][block];
        let step = state.view(scope, manager, block).next();
        if known.slice != objects.slice || known.is_used != objects.is_reserved {
            add.push(Action::See(manager, block));
        }
        if known.key != Some(state.keys[block]) {
            add.push(Action::Read(manager, block));
        }
        let differs = state.before[block] != state.keys[block];
        if state.old_reads_left > 0 && differs && known.key != Some(state.before[block]) {
            add.push(Action::ReadOld(manager, block));
        }
        let can_write = match step {
            Step::CreateSlice
            | Step::ConfirmSlice
            | Step::MarkConflict
            | Step::MarkEmpty
            | Step::ClearMark => objects.last_version < scope.max_version,
            _ => state.keys[block].revision < scope.max_revision,
        };
        match known.task {
            Task::Idle => match step {
                Step::Wait => {}
                Step::DeleteSlice => add.push(Action::List(manager, block)),
                Step::DeleteRecord => add.push(Action::Look(manager, block)),
                _ if can_write => {
                    add.push(Action::Write(manager, block));
                    if state.lost_replies_left > 0 {
                        add.push(Action::LoseReply(manager, block));
                    }
                }
                _ => {}
            },
            Task::Reserve => add.push(Action::Reserve(manager, block)),
            Task::Check => add.push(Action::Check(manager, block)),
            Task::Delete { .. } => add.push(Action::Delete(manager, block)),
            Task::DeleteRecord { .. } => add.push(Action::DeleteRecord(manager, block)),
        }
        let is_usable = known
            .slice
            .is_some_and(|slice| slice.view(false).is_usable());
        let is_waiting = state.claims[cluster] == Claim::Waiting;
        let has_task = state.managers[manager]
            .iter()
            .any(|known| known.task != Task::Idle);
        // A claim goes on with its reservation.
        let goes_on = scope.mutation != Some(Mutation::ForgetReservation);
        let is_free = !known.is_used || goes_on && objects.is_reserved && !objects.is_bound;
        if is_waiting && is_usable && is_free && !has_task {
            add.push(Action::Propose(manager, block));
        }
    }

    /// Whether a manager of the cluster is about to bind the address of the block.
    fn is_being_bound(&self, state: &State, cluster: usize, block: usize) -> bool {
        (0..self.0.managers).any(|manager| {
            CLUSTER[manager] == cluster && state.managers[manager][block].task == Task::Check
        })
    }
}

impl Model for Blocks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let claims = self.0.lives.map(|lives| {
            if lives > 0 {
                Claim::Waiting
            } else {
                Claim::Gone
            }
        });
        vec![State {
            keys: [Key::default(); BLOCKS],
            before: [Key::default(); BLOCKS],
            clusters: [[Objects::default(); BLOCKS]; CLUSTERS],
            claims,
            lives: self.0.lives,
            managers: [[Known::default(); BLOCKS]; 3],
            crashes_left: self.0.crashes,
            lost_replies_left: self.0.lost_replies,
            lost_writes_left: self.0.lost_writes,
            old_reads_left: self.0.old_reads,
            bound_in_conflict: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for manager in 0..self.0.managers {
            for block in 0..self.0.blocks {
                self.actions_of_block(state, manager, block, actions);
            }
            if state.crashes_left > 0 {
                actions.push(Action::Crash(manager));
            }
        }
        for cluster in 0..CLUSTERS {
            for block in 0..self.0.blocks {
                let objects = &state.clusters[cluster][block];
                let is_unbound = objects.is_reserved && !objects.is_bound;
                // The claim may go on with its reservation as long as it waits.
                let is_abandoned = is_unbound && state.claims[cluster] != Claim::Waiting;
                if is_abandoned && !self.is_being_bound(state, cluster, block) {
                    actions.push(Action::Sweep(cluster, block));
                }
            }
            if state.claims[cluster] == Claim::Bound {
                actions.push(Action::DeleteClaim(cluster));
            }
            if state.claims[cluster] == Claim::Gone && state.lives[cluster] > 0 {
                actions.push(Action::CreateClaim(cluster));
            }
        }
        for block in 0..self.0.blocks {
            if state.lost_writes_left > 0 && state.before[block] != state.keys[block] {
                actions.push(Action::LoseWrite(block));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let scope = &self.0;
        let mut state = before.clone();
        match action {
            Action::See(manager, block) => {
                let objects = state.clusters[CLUSTER[manager]][block];
                let known = &mut state.managers[manager][block];
                known.slice = objects.slice;
                known.is_used = objects.is_reserved;
            }
            Action::Read(manager, block) => {
                state.managers[manager][block].key = Some(state.keys[block]);
            }
            Action::ReadOld(manager, block) => {
                state.old_reads_left -= 1;
                state.managers[manager][block].key = Some(state.before[block]);
            }
            Action::Write(manager, block) => {
                let step = state.view(scope, manager, block).next();
                state.perform(scope, manager, block, step);
            }
            Action::LoseReply(manager, block) => {
                state.lost_replies_left -= 1;
                let known = state.managers[manager][block];
                let step = state.view(scope, manager, block).next();
                state.perform(scope, manager, block, step);
                state.managers[manager][block] = Known { key: None, ..known };
            }
            Action::List(manager, block) => {
                let objects = &state.clusters[CLUSTER[manager]][block];
                let skips_list = scope.mutation == Some(Mutation::DeleteWithoutList);
                let known = &mut state.managers[manager][block];
                let version = known.slice?.version;
                known.is_used = objects.is_reserved;
                if !objects.is_reserved || skips_list {
                    known.task = Task::Delete { version };
                }
            }
            Action::Delete(manager, block) => {
                let known = &mut state.managers[manager][block];
                let objects = &mut state.clusters[CLUSTER[manager]][block];
                if let Task::Delete { version } = known.task
                    && objects.slice.is_some_and(|slice| slice.version == version)
                {
                    objects.slice = None;
                }
                known.slice = objects.slice;
                known.task = Task::Idle;
            }
            Action::Look(manager, block) => {
                let objects = &state.clusters[CLUSTER[manager]][block];
                let skips_read = scope.mutation == Some(Mutation::DeleteRecordWithoutLook);
                let known = &mut state.managers[manager][block];
                known.slice = objects.slice;
                known.is_used = objects.is_reserved;
                let is_unused = known.slice.is_none() && !known.is_used;
                if is_unused || skips_read {
                    let revision = known.key?.revision;
                    known.task = Task::DeleteRecord { revision };
                }
            }
            Action::DeleteRecord(manager, block) => {
                let known = &mut state.managers[manager][block];
                if let Task::DeleteRecord { revision } = known.task {
                    known.task = Task::Idle;
                    let revision = match (scope.mutation, known.key) {
                        (Some(Mutation::DeleteRecordAsLastRead), Some(key)) => key.revision,
                        _ => revision,
                    };
                    state.write_revision(scope, manager, block, revision, None);
                }
            }
            Action::Propose(manager, block) => {
                state.managers[manager][block].task = Task::Reserve;
            }
            Action::Reserve(manager, block) => {
                let objects = &mut state.clusters[CLUSTER[manager]][block];
                let known = &mut state.managers[manager][block];
                known.task = if objects.is_bound {
                    Task::Idle
                } else {
                    Task::Check
                };
                objects.is_reserved = true;
                known.is_used = true;
            }
            Action::Check(manager, block) => state.check(scope, manager, block),
            Action::Sweep(cluster, block) => state.clusters[cluster][block].is_reserved = false,
            Action::DeleteClaim(cluster) => {
                for objects in &mut state.clusters[cluster] {
                    objects.is_reserved &= !objects.is_bound;
                    objects.is_bound = false;
                }
                state.lives[cluster] -= 1;
                state.claims[cluster] = Claim::Gone;
            }
            Action::CreateClaim(cluster) => state.claims[cluster] = Claim::Waiting,
            Action::Crash(manager) => {
                state.crashes_left -= 1;
                state.managers[manager] = [Known::default(); BLOCKS];
            }
            Action::LoseWrite(block) => {
                state.lost_writes_left -= 1;
                state.keys[block] = state.before[block];
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no address is in two clusters while the registry keeps its writes",
                |model: &Self, state: &State| {
                    let has_lost = state.lost_writes_left < model.0.lost_writes;
                    has_lost || !(0..BLOCKS).any(|block| is_used_twice(state, block))
                },
            ),
            Property::always(
                "a used block is ours while the registry keeps its writes",
                |model: &Self, state: &State| {
                    let has_lost = state.lost_writes_left < model.0.lost_writes;
                    has_lost || (0..BLOCKS).all(|block| has_owner(state, block))
                },
            ),
            Property::always("a used block has a slice", |_, state: &State| {
                let mut objects = state.clusters.iter().flatten();
                objects.all(|objects| !objects.is_bound || objects.slice.is_some())
            }),
            Property::always(
                "both clusters know the conflict when all is read",
                |model: &Self, state: &State| {
                    !state.is_quiet(&model.0)
                        || (0..BLOCKS).all(|block| {
                            !is_used_twice(state, block) || both_have_conflicts(state, block)
                        })
                },
            ),
            Property::always(
                "no address of a block in conflict is bound",
                |_, state: &State| !state.bound_in_conflict,
            ),
            Property::always("no block is lost", |model: &Self, state: &State| {
                let is_over = state.lives.iter().all(|lives| *lives == 0);
                !is_over || !state.is_quiet(&model.0) || is_returned(state)
            }),
            Property::always(
                "a claim waits only for a block that another cluster has",
                |model: &Self, state: &State| {
                    !state.is_quiet(&model.0)
                        || (0..CLUSTERS).all(|cluster| waits_with_reason(model, state, cluster))
                },
            ),
            Property::sometimes(
                "one cluster uses the block after the other",
                |_, state: &State| {
                    state.claims[1] == Claim::Bound
                        && state.claims[0] == Claim::Gone
                        && state.clusters[1][0].is_bound
                },
            ),
        ]
    }
}

fn is_used_twice(state: &State, block: usize) -> bool {
    state.clusters.iter().all(|cluster| cluster[block].is_bound)
}

/// Whether the record of a block with an address in use is that of the cluster that uses it.
fn has_owner(state: &State, block: usize) -> bool {
    (0..CLUSTERS).all(|cluster| {
        let holder = state.keys[block].record.map(|stored| stored.holder);
        !state.clusters[cluster][block].is_bound || holder == Some(cluster)
    })
}

fn both_have_conflicts(state: &State, block: usize) -> bool {
    state.clusters.iter().all(|cluster| {
        let slice = cluster[block].slice;
        slice.is_some_and(|slice| slice.is_conflicting)
    })
}

/// Whether no cluster has a block.
fn is_returned(state: &State) -> bool {
    let has_record = state.keys.iter().any(|key| key.record.is_some());
    let has_slice = state
        .clusters
        .iter()
        .flatten()
        .any(|objects| objects.slice.is_some());
    !has_record && !has_slice
}

/// Whether a claim is served, or no block is left for its cluster.
fn waits_with_reason(model: &Blocks, state: &State, cluster: usize) -> bool {
    if state.claims[cluster] != Claim::Waiting {
        return true;
    }
    // A manager can still propose an address.
    let goes_on = model.0.mutation != Some(Mutation::ForgetReservation);
    let can_be_served = (0..model.0.managers).any(|manager| {
        CLUSTER[manager] == cluster
            && (0..model.0.blocks).any(|block| {
                let known = &state.managers[manager][block];
                let slice = known.slice.map(|slice| slice.view(false));
                let objects = &state.clusters[cluster][block];
                let is_free = !known.is_used || goes_on && objects.is_reserved && !objects.is_bound;
                slice.is_some_and(Slice::is_usable) && is_free
            })
    });
    let all_have_others = (0..model.0.blocks).all(|block| {
        let holder = state.keys[block].record.map(|stored| stored.holder);
        holder.is_some_and(|holder| holder != cluster)
    });
    can_be_served || all_have_others
}

/// One block, and a manager in each cluster.
const SMALLEST: Scope = Scope {
    blocks: 1,
    managers: 2,
    lives: [1, 1],
    crashes: 0,
    lost_replies: 0,
    lost_writes: 0,
    old_reads: 0,
    max_revision: 12,
    max_version: 12,
    mutation: None,
};

/// Interruptions and old answers.
const INTERRUPTED: Scope = Scope {
    crashes: 1,
    lost_replies: 1,
    old_reads: 1,
    ..SMALLEST
};

/// Two managers in the first cluster.
const TWO_MANAGERS: Scope = Scope {
    managers: 3,
    max_revision: 6,
    max_version: 5,
    ..SMALLEST
};

/// The registry loses a write that it has acknowledged.
const LOST_WRITE: Scope = Scope {
    lost_writes: 1,
    ..SMALLEST
};

/// Two managers, and a claim that is created again while the block is returned.
const TAKEN_AGAIN: Scope = Scope {
    lives: [2, 1],
    ..TWO_MANAGERS
};

/// The same with two managers in the first cluster.
const LOST_WRITE_OF_TWO: Scope = Scope {
    lost_writes: 1,
    ..TWO_MANAGERS
};

/// Two blocks.
const TWO_BLOCKS: Scope = Scope {
    blocks: 2,
    max_revision: 6,
    ..SMALLEST
};

fn explore(scope: Scope) -> impl Checker<Blocks> {
    let checker = Blocks(scope)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(2);
    checker.spawn_bfs().join()
}

fn assert_holds(scope: Scope) {
    let checker = explore(scope);
    println!(
        "{} states, depth {}: {scope:?}",
        checker.unique_state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
}

#[test]
fn block_is_used_by_one_cluster_after_the_other() {
    assert_holds(SMALLEST);
}

#[test]
fn block_survives_crashes_lost_replies_and_old_reads() {
    assert_holds(INTERRUPTED);
}

#[test]
fn two_managers_of_a_cluster_share_a_block() {
    assert_holds(TWO_MANAGERS);
}

#[test]
fn block_is_taken_again_while_it_is_returned() {
    assert_holds(TAKEN_AGAIN);
}

#[test]
fn lost_write_of_the_registry_is_found() {
    assert_holds(LOST_WRITE);
}

#[test]
fn claim_is_served_from_another_block() {
    assert_holds(TWO_BLOCKS);
}

#[test]
fn each_precaution_of_sharing_a_block_is_needed() {
    for (mutation, scope) in [
        (Mutation::BindWithoutCheck, TWO_MANAGERS),
        (Mutation::DeleteWithoutList, TWO_MANAGERS),
        (Mutation::DeleteRecordWithoutLook, TWO_MANAGERS),
        (Mutation::DeleteRecordAsLastRead, TWO_MANAGERS),
        (Mutation::ConfirmWithoutRecord, TAKEN_AGAIN),
        (Mutation::WriteUnconditionally, SMALLEST),
        (Mutation::IgnoreConflicts, LOST_WRITE_OF_TWO),
        (Mutation::ForgetReservation, TAKEN_AGAIN),
    ] {
        let mutated = Scope {
            mutation: Some(mutation),
            ..scope
        };
        let checker = explore(mutated);
        let failures = checker.discoveries();
        let failed = |name: &&'static str| {
            let property = checker.model().property(name);
            property.expectation.discovery_is_failure()
        };
        assert!(
            failures.keys().any(failed),
            "{mutation:?} violates no property"
        );
    }
}
