//! What can happen next, and what it changes.

use capi_ipam_protocol::block::Step;

use super::Blocks;
use super::mutations::Mutation;
use super::rebuilt::Former;
use super::registry::Registry;
use super::state::{BLOCKS, CLUSTERS, Claim, Key, Known, MANAGERS, Objects, State, Stored, Task};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    See(usize, usize),
    Read(usize, usize),
    ReadOld(usize, usize),
    Write(usize, usize),
    LoseReply(usize, usize),
    List(usize, usize),
    Delete(usize, usize),
    Look(usize, usize),
    Return(usize, usize),
    EndQuarantine(usize),
    Propose(usize, usize),
    Reserve(usize, usize),
    Check(usize, usize),
    Sweep(usize, usize),
    DeleteClaim(usize),
    CreateClaim(usize),
    Crash(usize),
    LoseWrite(usize),
    LoseRecord(usize),
    EndSharing,
    Move(usize),
    BackUp,
    Restore,
    BackUpRegistry,
    RestoreRegistry,
    ListRecords(usize),
    ShowLife(usize),
    EndRecovery(usize),
    Rebuild,
    Adopt,
}

impl Blocks {
    pub(super) fn initial_state(&self) -> State {
        let mut claims = self.0.lives.map(|lives| {
            if lives > 0 {
                Claim::Waiting
            } else {
                Claim::Gone
            }
        });
        let mut clusters = [[Objects::default(); BLOCKS]; CLUSTERS];
        if self.0.joins {
            clusters[0][0].is_reserved = true;
            clusters[0][0].is_bound = true;
            claims[0] = Claim::Bound;
        }
        State {
            keys: [Key::default(); BLOCKS],
            before: [Key::default(); BLOCKS],
            clusters,
            claims,
            lives: self.0.lives,
            has_ended: false,
            managers: [[Known::default(); BLOCKS]; MANAGERS],
            crashes_left: self.0.crashes,
            lost_replies_left: self.0.lost_replies,
            lost_writes_left: self.0.lost_writes,
            lost_records_left: self.0.lost_records,
            old_reads_left: self.0.old_reads,
            bound_in_conflict: false,
            bound_in_known_conflict: false,
            bound_without_record: false,
            backup: None,
            restores_left: self.0.restores,
            has_moved: false,
            registry: Registry::new(&self.0),
            former: Former::default(),
        }
    }

    /// Adds what can happen next.
    pub(super) fn add_actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.actions_of_registry(state, actions);
        for manager in 0..self.0.managers {
            if !state.is_running(&self.0, manager) {
                continue;
            }
            for block in 0..self.0.blocks {
                self.actions_of_block(state, manager, block, actions);
            }
            if state.crashes_left > 0 {
                actions.push(Action::Crash(manager));
            }
        }
        for cluster in 0..CLUSTERS {
            for block in 0..self.0.blocks {
                if self.is_swept(state, cluster, block) {
                    actions.push(Action::Sweep(cluster, block));
                }
                if cluster == 0 && self.can_move(state, block) {
                    actions.push(Action::Move(block));
                }
            }
            if state.claims[cluster] == Claim::Bound {
                actions.push(Action::DeleteClaim(cluster));
            }
            if state.claims[cluster] == Claim::Gone && state.lives[cluster] > 0 {
                actions.push(Action::CreateClaim(cluster));
            }
        }
        if self.0.ends && !state.has_ended {
            actions.push(Action::EndSharing);
        }
        self.actions_of_restores(state, actions);
        for block in 0..self.0.blocks {
            if state.can_end_quarantine(&self.0, block) {
                actions.push(Action::EndQuarantine(block));
            }
            if state.lost_writes_left > 0 && state.before[block] != state.keys[block] {
                actions.push(Action::LoseWrite(block));
            }
            if state.lost_records_left > 0 && state.keys[block].record.is_some() {
                actions.push(Action::LoseRecord(block));
            }
        }
    }

    /// The state after an action; `None` if it has no effect.
    pub(super) fn state_after(&self, before: &State, action: Action) -> Option<State> {
        let scope = &self.0;
        let mut state = before.clone();
        match action {
            Action::See(manager, block) => {
                let objects = state.clusters[scope.cluster(manager)][block];
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
                let step = state.step(scope, manager, block);
                state.perform(scope, manager, block, step);
            }
            Action::LoseReply(manager, block) => {
                state.lost_replies_left -= 1;
                let known = state.managers[manager][block];
                let step = state.step(scope, manager, block);
                state.perform(scope, manager, block, step);
                state.managers[manager][block] = Known { key: None, ..known };
            }
            Action::List(manager, block) => {
                let objects = &state.clusters[scope.cluster(manager)][block];
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
                let objects = &mut state.clusters[scope.cluster(manager)][block];
                if let Task::Delete { version } = known.task
                    && objects.slice.is_some_and(|slice| slice.version == version)
                {
                    objects.slice = None;
                }
                known.slice = objects.slice;
                known.task = Task::Idle;
            }
            Action::Look(manager, block) => {
                let objects = &state.clusters[scope.cluster(manager)][block];
                let skips_read = scope.mutation == Some(Mutation::ReturnWithoutLook);
                let known = &mut state.managers[manager][block];
                known.slice = objects.slice;
                known.is_used = objects.is_reserved;
                let is_unused = known.slice.is_none() && !known.is_used;
                if is_unused || skips_read {
                    let revision = known.key?.revision;
                    known.task = Task::Return { revision };
                }
            }
            Action::Return(manager, block) => {
                let known = &mut state.managers[manager][block];
                if let (Task::Return { revision }, Some(key)) = (known.task, known.key) {
                    known.task = Task::Idle;
                    let revision = match scope.mutation {
                        Some(Mutation::ReturnAsLastRead) => key.revision,
                        _ => revision,
                    };
                    let record = key.record.map(|stored| Stored {
                        is_returned: true,
                        ..stored
                    });
                    state.write_revision(scope, manager, block, revision, record);
                }
            }
            Action::EndQuarantine(block) => {
                if let Some(stored) = &mut state.keys[block].record {
                    stored.is_expired = true;
                }
            }
            Action::Propose(manager, block) => {
                state.managers[manager][block].task = Task::Reserve;
            }
            Action::Reserve(manager, block) => {
                let objects = &mut state.clusters[scope.cluster(manager)][block];
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
            Action::Sweep(cluster, block) => state.clusters[cluster][block].release(),
            Action::DeleteClaim(cluster) => {
                for objects in &mut state.clusters[cluster] {
                    if objects.is_bound {
                        objects.release();
                    }
                }
                state.lives[cluster] -= 1;
                state.claims[cluster] = Claim::Gone;
            }
            Action::CreateClaim(cluster) => state.claims[cluster] = Claim::Waiting,
            Action::Crash(manager) => {
                state.crashes_left -= 1;
                state.managers[manager] = [Known::default(); BLOCKS];
                state.registry.crash(scope, manager);
                if scope.moves {
                    state.see_use(scope, manager);
                }
            }
            Action::LoseWrite(block) => {
                state.lost_writes_left -= 1;
                state.keys[block] = state.before[block];
            }
            Action::LoseRecord(block) => {
                state.lost_records_left -= 1;
                state.before[block] = state.keys[block];
                state.keys[block].revision += 1;
                state.keys[block].record = None;
            }
            Action::EndSharing => state.has_ended = true,
            Action::Move(block) => state.move_claim(scope, block),
            Action::BackUp => state.back_up(),
            Action::Restore => state.restore(),
            Action::BackUpRegistry => state.registry.back_up(state.keys),
            Action::RestoreRegistry => state.restore_registry(scope),
            Action::ListRecords(manager) => state.list_records(scope, manager),
            Action::ShowLife(manager) => state.show_life(scope, manager),
            Action::EndRecovery(manager) => state.end_recovery(scope, manager),
            Action::Rebuild => state.rebuild(),
            Action::Adopt => state.adopt(scope),
        }
        state.notice_records(scope);
        Some(state)
    }

    fn actions_of_block(&self, state: &State, manager: usize, block: usize, add: &mut Vec<Action>) {
        let scope = &self.0;
        let cluster = scope.cluster(manager);
        let known = &state.managers[manager][block];
        let objects = &state.clusters[cluster][block];
        let step = state.step(scope, manager, block);
        if known.slice != objects.slice || known.is_used != objects.is_reserved {
            add.push(Action::See(manager, block));
        }
        let may_read = state.may_read(scope, manager);
        if may_read && known.key != Some(state.keys[block]) {
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
            | Step::AwaitQuarantine
            | Step::MarkEmpty
            | Step::ClearMark => objects.last_version < scope.max_version,
            _ => state.keys[block].revision < scope.max_revision,
        };
        match known.task {
            Task::Idle => match step {
                Step::Wait => {}
                Step::DeleteSlice => add.push(Action::List(manager, block)),
                Step::ReturnRecord => add.push(Action::Look(manager, block)),
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
            Task::Return { .. } => add.push(Action::Return(manager, block)),
        }
        let is_waiting = state.claims[cluster] == Claim::Waiting;
        let has_task = state.managers[manager]
            .iter()
            .any(|known| known.task != Task::Idle);
        // A claim goes on with its reservation.
        let goes_on = scope.mutation != Some(Mutation::ForgetReservation);
        let is_free = objects.is_free(known, goes_on);
        let allocates = known.allocates(scope) && !state.is_suspended(scope, cluster);
        if is_waiting && allocates && is_free && !has_task {
            add.push(Action::Propose(manager, block));
        }
    }

    /// Whether a reservation is released whose claim is gone.
    fn is_swept(&self, state: &State, cluster: usize, block: usize) -> bool {
        let objects = &state.clusters[cluster][block];
        if !objects.is_reserved || objects.is_bound || self.is_being_bound(state, cluster, block) {
            return false;
        }
        if objects.is_moved {
            return self.may_sweep_moved(state, cluster, block);
        }
        // The claim may go on with its reservation as long as it waits.
        state.claims[cluster] != Claim::Waiting
    }

    /// Whether a manager of the cluster is about to bind the address of the block.
    fn is_being_bound(&self, state: &State, cluster: usize, block: usize) -> bool {
        (0..self.0.managers).any(|manager| {
            self.0.cluster(manager) == cluster && state.managers[manager][block].task == Task::Check
        })
    }
}
