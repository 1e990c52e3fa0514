//! The steps of the managers, and what happens around them.

use stateright::{Model, Property};

use super::state::{
    ADDRESSES, CLAIMS, Claim, InNetwork, Manager, Mover, Network, SLOTS, Start, State, Status, Task, index,
};
use super::{Mutation, Scope, properties};

/// A step. The first number is that of the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The pool gets or loses the label by which the network selects it.
    ChangeLabel,
    ChangeNetwork(Network),
    ApplyLate,
    DeleteClaim,
    Managed(usize, Step),
}

/// A step of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    SeeNetwork,
    SeePool,
    SeeReservations,
    /// Writes the status of the pool.
    Record,
    Propose(usize, usize),
    /// Continues with a reservation that the claim has.
    Continue(usize, usize),
    RepeatAttempt(usize),
    Reserve(usize),
    ReplyLost(usize),
    AppliedLater(usize),
    Bind(usize),
    Release,
    Move(usize),
    Create,
    Delete,
    Sweep(InNetwork, usize),
    Crash,
}

impl Model for Scope {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut add = |is_enabled: bool, action| {
            if is_enabled {
                actions.push(action);
            }
        };
        add(state.label_changes_left > 0, Action::ChangeLabel);
        for next in state.network.next() {
            add(state.network_changes_left > 0, Action::ChangeNetwork(*next));
        }
        add(state.late.is_some(), Action::ApplyLate);
        // Of a pool without a status, only its reservations show that it is in the network.
        let is_recorded = self.start != Start::Restored || state.pool.status == Status::Member;
        add(is_recorded && matches!(state.claims[0], Claim::Bound(_)), Action::DeleteClaim);
        for (number, manager) in state.managers.iter().enumerate() {
            let mut add = |is_enabled: bool, step| add(is_enabled, Action::Managed(number, step));
            self.steps(state, manager, &mut add);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::ChangeLabel => {
                state.label_changes_left -= 1;
                state.pool.label = !state.pool.label;
            }
            Action::ChangeNetwork(next) => {
                state.network_changes_left -= 1;
                state.network = next;
            }
            Action::ApplyLate => {
                let (scope, address, holder) = state.late.take()?;
                state.reservations[index(scope)][address].get_or_insert(holder);
            }
            Action::DeleteClaim => state.claims[0] = Claim::Releasing,
            Action::Managed(number, step) => self.manage(&mut state, number, step)?,
        }
        if self.first_is_current {
            let (network, pool, reservations) = (state.network, state.pool, state.reservations);
            let first = &mut state.managers[0];
            (first.network, first.ledger) = (network, reservations);
            first.see_pool(self, pool);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}

impl Scope {
    /// A network that is always valid decides without the status of the pool.
    pub(super) fn records_status(&self) -> bool {
        self.network_changes > 0
    }

    /// Two managers that observe a label at different times: each can move a reservation to where the other one has taken
    /// it from. The address is reserved again then, which this model does not contain. So it contains no allocations,
    /// and only what the managers record of the scope is checked.
    pub(super) fn checks_agreement_only(&self) -> bool {
        self.managers > 1 && self.label_changes > 0
    }

    fn steps(&self, state: &State, manager: &Manager, add: &mut impl FnMut(bool, Step)) {
        add(manager.network != state.network, Step::SeeNetwork);
        add(manager.pool != state.pool, Step::SeePool);
        add(manager.ledger != state.reservations, Step::SeeReservations);
        // With the resource version of the pool as precondition.
        let records = manager.pool == state.pool && manager.status() != state.pool.status;
        add(records && self.records_status(), Step::Record);
        add(state.crashes_left > 0, Step::Crash);
        add(state.claims[0] == Claim::Releasing, Step::Release);
        if !self.checks_agreement_only() {
            (0..CLAIMS).for_each(|claim| self.steps_of_claim(state, manager, claim, add));
        }
        if manager.mover == Mover::Idle {
            manager.movable().for_each(|address| add(!manager.is_conflict(address), Step::Move(address)));
        }
        add(matches!(manager.mover, Mover::Create(..)), Step::Create);
        add(matches!(manager.mover, Mover::Delete(..)), Step::Delete);
        manager.abandoned(&state.claims).for_each(|(scope, address)| add(true, Step::Sweep(scope, address)));
    }

    fn steps_of_claim(&self, state: &State, manager: &Manager, claim: usize, add: &mut impl FnMut(bool, Step)) {
        let ignores_other = self.mutation == Some(Mutation::IgnoreOtherScope);
        let scope = manager.scope_of(claim);
        if state.claims[claim] == Claim::Waiting && manager.tasks[claim] == Task::Idle {
            let held: Vec<usize> = manager.held(claim).collect();
            held.iter().for_each(|&address| add(manager.continues(claim), Step::Continue(claim, address)));
            let repeats = manager.attempts[claim].is_some();
            let allocates = held.is_empty() && manager.allocates(claim);
            add(allocates && repeats, Step::RepeatAttempt(claim));
            for address in 0..ADDRESSES {
                let is_free = manager.is_free(&state.claims, scope, address, ignores_other);
                add(allocates && !repeats && is_free, Step::Propose(claim, address));
            }
        }
        let reserves = matches!(manager.tasks[claim], Task::Reserve(..));
        let may_be_unknown = reserves && state.unknown_left > 0;
        add(reserves, Step::Reserve(claim));
        add(may_be_unknown, Step::ReplyLost(claim));
        add(may_be_unknown && state.late.is_none(), Step::AppliedLater(claim));
        add(matches!(manager.tasks[claim], Task::Bind(_)), Step::Bind(claim));
    }

    fn manage(&self, state: &mut State, number: usize, step: Step) -> Option<()> {
        match step {
            Step::SeeNetwork | Step::SeePool | Step::SeeReservations | Step::Record | Step::Crash => {
                self.observe(state, number, step);
                Some(())
            }
            Step::Release | Step::Move(_) | Step::Create | Step::Delete | Step::Sweep(..) => {
                self.release_or_move(state, number, step)
            }
            _ => self.allocate(state, number, step),
        }
    }

    /// A manager observes something, or records the scope of the pool.
    fn observe(&self, state: &mut State, number: usize, step: Step) {
        let (network, pool, reservations) = (state.network, state.pool, state.reservations);
        let manager = &mut state.managers[number];
        match step {
            Step::SeeNetwork => {
                manager.network = network;
                manager.decide(self);
            }
            Step::SeePool => manager.see_pool(self, pool),
            Step::SeeReservations => {
                manager.ledger = reservations;
                manager.decide(self);
            }
            Step::Record => {
                state.pool.status = manager.status();
                manager.see_pool(self, state.pool);
            }
            _ => {
                state.crashes_left -= 1;
                state.managers[number] = Manager::start(self, network, pool, reservations);
            }
        }
    }

    /// A manager allocates an address, or binds a claim.
    fn allocate(&self, state: &mut State, number: usize, step: Step) -> Option<()> {
        let manager = &mut state.managers[number];
        match step {
            Step::Propose(claim, address) => {
                let is_recorded = !self.records_status() || manager.pool.status == Status::Member;
                manager.tasks[claim] = Task::Reserve(manager.scope_of(claim), address);
                state.is_informed[claim][address] = manager.is_member() && is_recorded;
            }
            Step::Continue(claim, address) => {
                // A live read.
                let scope = manager.scope_of(claim);
                if state.read(number, scope, address).map(usize::from) == Some(claim) {
                    state.managers[number].tasks[claim] = Task::Bind(address);
                }
            }
            Step::RepeatAttempt(claim) => {
                let (scope, address) = manager.attempts[claim].take()?;
                let is_valid = scope == manager.scope_of(claim) || self.mutation == Some(Mutation::RepeatAttempt);
                if is_valid {
                    manager.tasks[claim] = Task::Reserve(scope, address);
                }
            }
            Step::Reserve(claim) => {
                let Task::Reserve(scope, address) = manager.tasks[claim] else { return None };
                let holder = u8::try_from(claim).ok()?;
                let is_ours = state.create(number, scope, address, holder) == holder;
                state.managers[number].tasks[claim] = if is_ours { Task::Bind(address) } else { Task::Idle };
            }
            Step::ReplyLost(claim) | Step::AppliedLater(claim) => {
                let Task::Reserve(scope, address) = manager.tasks[claim] else { return None };
                let holder = u8::try_from(claim).ok()?;
                manager.attempts[claim] = Some((scope, address));
                manager.tasks[claim] = Task::Idle;
                state.unknown_left -= 1;
                if step == Step::AppliedLater(claim) {
                    state.late = Some((scope, address, holder));
                } else {
                    state.reservations[index(scope)][address].get_or_insert(holder);
                }
            }
            Step::Bind(claim) => {
                let Task::Bind(address) = manager.tasks[claim] else { return None };
                manager.tasks[claim] = Task::Idle;
                manager.attempts[claim] = None;
                // With the resource version of the claim as precondition.
                if state.claims[claim] == Claim::Waiting {
                    state.claims[claim] = Claim::Bound(address);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// A manager releases an address, or moves or deletes a reservation.
    fn release_or_move(&self, state: &mut State, number: usize, step: Step) -> Option<()> {
        let deletes_first = self.mutation == Some(Mutation::DeleteFirst);
        let manager = &mut state.managers[number];
        match step {
            Step::Release => {
                for (scope, address) in SLOTS {
                    let is_known = state.managers[number].ledger[index(scope)][address] == Some(0);
                    if is_known && state.reservations[index(scope)][address] == Some(0) {
                        state.set(number, scope, address, None);
                    }
                }
                state.claims[0] = Claim::Gone;
            }
            Step::Move(address) => {
                let target = manager.is_member();
                let holder = manager.ledger[index(!target)][address]?;
                manager.mover = if deletes_first {
                    Mover::Delete(address, holder, target)
                } else {
                    Mover::Create(address, holder, target)
                };
            }
            Step::Create => {
                let Mover::Create(address, holder, target) = manager.mover else { return None };
                let is_moved = state.create(number, target, address, holder) == holder && !deletes_first;
                let next = if is_moved { Mover::Delete(address, holder, target) } else { Mover::Idle };
                state.managers[number].mover = next;
            }
            Step::Delete => {
                let Mover::Delete(address, holder, target) = manager.mover else { return None };
                manager.mover = if deletes_first { Mover::Create(address, holder, target) } else { Mover::Idle };
                if state.read(number, !target, address) == Some(holder) {
                    state.set(number, !target, address, None);
                }
            }
            Step::Sweep(scope, address) => {
                // Verified by live reads.
                let holder = manager.ledger[index(scope)][address];
                if state.read(number, scope, address) == holder {
                    state.set(number, scope, address, None);
                }
            }
            _ => return None,
        }
        Some(())
    }
}
