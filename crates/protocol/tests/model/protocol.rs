//! The model: the enabled actions of each state.

use std::collections::HashMap;
use std::sync::Mutex;

use capi_ipam_protocol::decision::Decision;
use stateright::{Model, Property};

use crate::properties;
use crate::recovery::Settled;
use crate::scope::Scope;
use crate::server::Outcome;
use crate::state::{ADDRESSES, CLEAN_UP, Manager, Member, NAMES, Pool, PoolSet, State, Sweep};
use crate::sweeper::{Suspect, all_suspects};
use crate::tasks::{Worker, decide};

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    CreateClaim(usize),
    DeleteClaim(usize),
    /// The API server deletes a claim while it gets its finalizer.
    ClaimVanishes(usize),
    /// Somebody removes a bound claim without its release.
    ForceRemove(usize),
    /// The garbage collector removes a deleted owner.
    Collect(usize),
    /// The label of a claim changes.
    Relabel(usize),
    /// The cool-down of an address ends.
    Elapse(usize),
    /// A user promises an address to the claims of the first name.
    Promise(usize),
    /// Another controller removes its finalizer from a claim that is being deleted.
    RemoveForeign(usize),
    MakeSticky,
    DeletePool,
    /// A user changes the set of pools.
    ChangeSet(PoolSet),
    /// A user edits the annotation that names the member of an IPAddress.
    EditMember(usize),
    /// A watch catches up.
    SeeClaims(usize),
    SeeAddresses(usize),
    SeeReservations(usize),
    SeePool(usize),
    SeeSet(usize),
    /// The API server responds to a list of all reservations, and the ledger takes in the response.
    List(usize),
    InsertList(usize),
    Work {
        manager: usize,
        name: usize,
        outcome: Outcome,
    },
    CleanUp {
        manager: usize,
        outcome: Outcome,
    },
    WorkOnPool {
        manager: usize,
        outcome: Outcome,
    },
    BeginSweep {
        manager: usize,
        suspect: Suspect,
        outcome: Outcome,
    },
    Sweep {
        manager: usize,
        outcome: Outcome,
    },
    /// The manager restarts.
    Crash(usize),
    ApplyLateWrite(usize),
}

/// The model.
pub(crate) struct Protocol {
    pub(crate) scope: Scope,
    /// Only enabled actions are listed. The simulation of the checker needs that to replay a path.
    pub(crate) only_enabled: bool,
    /// Whether recovery succeeds, for states without pending steps in which all caches are current.
    pub(crate) settled: Mutex<HashMap<Settled, bool>>,
}

impl Protocol {
    pub(crate) fn new(scope: Scope) -> Self {
        Self {
            scope,
            only_enabled: false,
            settled: Mutex::default(),
        }
    }
}

impl State {
    /// Applies an action. `false` when it is not enabled.
    pub(crate) fn apply_action(&mut self, scope: &Scope, action: Action) -> bool {
        match action {
            Action::CreateClaim(name) => {
                self.lives[name] += 1;
                let claim = crate::state::Claim {
                    life: self.lives[name],
                    foreign: scope.foreign,
                    ..Default::default()
                };
                self.objects.claims[name] = Some(claim);
                true
            }
            Action::DeleteClaim(name) => self.delete_claim(name),
            Action::ClaimVanishes(name) => {
                self.vanishings_left -= 1;
                self.remove_claim(name);
                true
            }
            Action::ForceRemove(name) => {
                self.forced_left -= 1;
                self.remove_claim(name);
                true
            }
            Action::Collect(name) => self.collect(name),
            Action::SeeClaims(manager) => {
                self.second_updates_left -= u8::from(manager > 0);
                self.see_claims(scope, manager);
                true
            }
            Action::SeeAddresses(manager) => {
                self.second_updates_left -= u8::from(manager > 0);
                self.see_addresses(scope, manager);
                true
            }
            Action::SeeReservations(manager) => {
                self.second_updates_left -= u8::from(manager > 0);
                self.see_reservations(manager);
                true
            }
            Action::SeePool(manager) => {
                self.second_updates_left -= u8::from(manager > 0);
                self.managers[manager].pool = self.objects.pool;
                true
            }
            Action::SeeSet(manager) => {
                self.second_updates_left -= u8::from(manager > 0);
                self.managers[manager].set = self.objects.set;
                true
            }
            Action::Relabel(name) => self.relabel(name),
            Action::Elapse(address) => self.elapse(address),
            Action::Promise(address) => self.promise(address),
            Action::RemoveForeign(name) => self.remove_foreign(name),
            Action::MakeSticky => {
                self.is_sticky = true;
                true
            }
            Action::DeletePool => self.delete_pool(),
            Action::ChangeSet(set) => self.change_set(set),
            Action::EditMember(name) => self.edit_member(scope, name),
            Action::List(manager) => self.list(manager),
            Action::InsertList(manager) => self.insert_list(scope, manager),
            Action::Work {
                manager,
                name,
                outcome,
            } => Worker::new(scope, self, manager, name).run(outcome),
            Action::CleanUp { manager, outcome } => {
                Worker::new(scope, self, manager, CLEAN_UP).run(outcome)
            }
            Action::WorkOnPool { manager, outcome } => self.work_on_pool(scope, manager, outcome),
            Action::BeginSweep {
                manager,
                suspect,
                outcome,
            } => self.begin_sweep(scope, manager, suspect, outcome),
            Action::Sweep { manager, outcome } => self.sweep_on(scope, manager, outcome),
            Action::Crash(manager) => {
                self.crashes_left -= 1;
                self.managers[manager] = Manager::default();
                self.see_everything(scope, manager);
                true
            }
            Action::ApplyLateWrite(index) => {
                let Some(write) = self.late[index].take() else {
                    return false;
                };
                self.late.sort_unstable();
                self.apply(scope, write);
                true
            }
        }
    }

    /// The fates that the next write of a manager may have.
    fn fates(&self) -> impl Iterator<Item = Outcome> + use<> {
        let (lost, late) = (self.lost_replies_left > 0, self.late_writes_left > 0);
        [
            Some(Outcome::Answered),
            lost.then_some(Outcome::ReplyLost),
            late.then_some(Outcome::Late),
        ]
        .into_iter()
        .flatten()
    }

    fn watches_of_manager(&self, scope: &Scope, manager: usize, actions: &mut Vec<Action>) {
        if self.claims_are_behind(scope, manager) {
            actions.push(Action::SeeClaims(manager));
        }
        if self.addresses_are_behind(scope, manager) {
            actions.push(Action::SeeAddresses(manager));
        }
        if self.reservations_are_behind(manager) {
            actions.push(Action::SeeReservations(manager));
        }
        if self.managers[manager].pool != self.objects.pool {
            actions.push(Action::SeePool(manager));
        }
        if self.managers[manager].set != self.objects.set {
            actions.push(Action::SeeSet(manager));
        }
    }

    fn actions_of_manager(&self, scope: &Scope, manager: usize, actions: &mut Vec<Action>) {
        let known = &self.managers[manager];
        let blind = manager > 0 && self.second_updates_left == 0;
        if !blind {
            self.watches_of_manager(scope, manager, actions);
        }
        for name in 0..NAMES {
            if !known.tasks[name].is_idle()
                || decide(scope, self, manager, name) != Decision::Nothing
            {
                actions.extend(self.fates().map(|outcome| Action::Work {
                    manager,
                    name,
                    outcome,
                }));
            }
        }
        if !known.tasks[CLEAN_UP].is_idle() {
            actions.extend(
                self.fates()
                    .map(|outcome| Action::CleanUp { manager, outcome }),
            );
        }
        if known.may_work_on_pool(scope) {
            actions.extend(
                self.fates()
                    .map(|outcome| Action::WorkOnPool { manager, outcome }),
            );
        }
        if known.listed.is_some() {
            actions.push(Action::InsertList(manager));
        } else if self.lists_left > 0 {
            actions.push(Action::List(manager));
        }
        if known.sweep != Sweep::Idle {
            actions.extend(
                self.fates()
                    .map(|outcome| Action::Sweep { manager, outcome }),
            );
        } else if scope.sweepers {
            for suspect in
                all_suspects(scope).filter(|suspect| self.suspects(scope, manager, *suspect))
            {
                actions.extend(self.fates().map(|outcome| Action::BeginSweep {
                    manager,
                    suspect,
                    outcome,
                }));
            }
        }
        if self.crashes_left > 0 && !known.is_idle() {
            actions.push(Action::Crash(manager));
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.scope.initial_state()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for name in 0..NAMES {
            match state.objects.claims[name] {
                None if state.lives[name] < self.scope.lives[name] => {
                    actions.push(Action::CreateClaim(name))
                }
                None => {}
                Some(claim) => {
                    if !claim.deleting {
                        actions.push(Action::DeleteClaim(name));
                    }
                    if claim.finalizer && claim.bound.is_none() && state.vanishings_left > 0 {
                        actions.push(Action::ClaimVanishes(name));
                    }
                    if claim.bound.is_some() && state.forced_left > 0 {
                        actions.push(Action::ForceRemove(name));
                    }
                    if state.relabels_left > 0 {
                        actions.push(Action::Relabel(name));
                    }
                    if claim.foreign && claim.deleting {
                        actions.push(Action::RemoveForeign(name));
                    }
                }
            }
            if self.scope.collector {
                actions.push(Action::Collect(name));
            }
            let found = state.objects.addresses[name];
            if state.edits_left > 0 && found.is_some_and(|found| found.member == Member::Right) {
                actions.push(Action::EditMember(name));
            }
        }
        actions.extend(
            (0..ADDRESSES)
                .filter(|address| state.cooling[*address].is_some())
                .map(Action::Elapse),
        );
        if state.promises_left > 0 {
            let unreserved = |address: &usize| state.objects.reservations[*address].is_none();
            let addresses = (0..self.scope.addresses).filter(unreserved);
            actions.extend(addresses.map(Action::Promise));
        }
        if self.scope.sticky && !state.is_sticky {
            actions.push(Action::MakeSticky);
        }
        if self.scope.pool_deletion && state.objects.pool == Pool::Serving {
            actions.push(Action::DeletePool);
        }
        if state.set_changes_left > 0 {
            let others = PoolSet::ALL.into_iter();
            let others = others.filter(|set| *set != state.objects.set);
            actions.extend(others.map(Action::ChangeSet));
        }
        for manager in 0..self.scope.managers {
            state.actions_of_manager(&self.scope, manager, actions);
        }
        for (index, late) in state.late.iter().enumerate() {
            if late.is_some() {
                actions.push(Action::ApplyLateWrite(index));
            }
        }
        if self.only_enabled {
            actions.retain(|action| self.next_state(state, *action).is_some());
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        if !state.apply_action(&self.scope, action) {
            return None;
        }
        if self.scope.first_is_current {
            state.see_everything(&self.scope, 0);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.scope)
    }
}
