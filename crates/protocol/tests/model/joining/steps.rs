//! The steps of the managers, and what happens around them.

use stateright::{Model, Property};

use super::state::{
    ADDRESSES, CLAIMS, Claim, InNetwork, Manager, Move, Network, OF_OTHER_POOL, Request, SLOTS,
    Since, Start, State, Status, Task, index,
};
use super::{Mutation, Scope, properties};

/// A step. The first number is that of the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The pool gets the label by which the network selects it, or loses it with the annotation
    /// that says that it leaves.
    ChangeLabel,
    /// The label is removed by a writer that does not know it.
    LoseLabel,
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
    Resume(usize, usize),
    RepeatAttempt(usize),
    Reserve(usize),
    ReplyLost(usize),
    AppliedLater(usize),
    Check(usize),
    Bind(usize),
    Release,
    /// Reads a reservation to move it.
    Move(usize),
    /// The next request of the move.
    Continue,
    /// The move is given up, and starts again later: a request has failed.
    GiveUp,
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
        let may_lose = state.label_changes_left > 0 && state.pool.label;
        add(may_lose, Action::LoseLabel);
        for next in state.network.next() {
            add(state.network_changes_left > 0, Action::ChangeNetwork(*next));
        }
        add(state.late.is_some(), Action::ApplyLate);
        // Of a pool without a status, only its reservations show that it is in the network.
        let is_recorded = self.start != Start::Restored || state.pool.status == Status::Member;
        add(
            is_recorded && matches!(state.claims[0], Claim::Bound(_)),
            Action::DeleteClaim,
        );
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
                state.pool.leaves = !state.pool.label;
                state.has_said_so |= state.pool.leaves;
            }
            Action::LoseLabel => {
                state.label_changes_left -= 1;
                state.pool.label = false;
            }
            Action::ChangeNetwork(next) => {
                state.network_changes_left -= 1;
                state.network = next;
            }
            Action::ApplyLate => {
                let (scope, address, holder) = state.late.take()?;
                state.create(scope, address, holder);
            }
            Action::DeleteClaim => state.claims[0] = Claim::Releasing,
            Action::Managed(number, step) => self.manage(&mut state, number, step)?,
        }
        let (network, pool, reservations) = (state.network, state.pool, state.reservations);
        for manager in state.managers.iter_mut().take(self.current) {
            (manager.network, manager.ledger) = (network, reservations);
            manager.see_pool(self, pool);
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

    fn steps(&self, state: &State, manager: &Manager, add: &mut impl FnMut(bool, Step)) {
        add(manager.network != state.network, Step::SeeNetwork);
        add(manager.pool != state.pool, Step::SeePool);
        add(manager.ledger != state.reservations, Step::SeeReservations);
        // With the resource version of the pool as precondition.
        let records = manager.pool == state.pool && manager.status() != state.pool.status;
        add(records && self.records_status(), Step::Record);
        add(state.crashes_left > 0, Step::Crash);
        add(state.claims[0] == Claim::Releasing, Step::Release);
        (0..CLAIMS).for_each(|claim| self.steps_of_claim(state, manager, claim, add));
        if manager.mover.is_none() {
            manager
                .movable()
                .for_each(|address| add(!manager.is_conflict(address), Step::Move(address)));
        }
        add(manager.mover.is_some(), Step::Continue);
        // With more claims there are too many states.
        add(manager.mover.is_some() && self.claims == 1, Step::GiveUp);
        manager
            .abandoned(&state.claims)
            .for_each(|(scope, address)| add(true, Step::Sweep(scope, address)));
    }

    fn steps_of_claim(
        &self,
        state: &State,
        manager: &Manager,
        claim: usize,
        add: &mut impl FnMut(bool, Step),
    ) {
        let ignores_other = self.mutation == Some(Mutation::IgnoreOtherScope);
        let scope = manager.scope_of(claim);
        if state.claims[claim] == Claim::Waiting && manager.tasks[claim] == Task::Idle {
            let held: Vec<usize> = manager.held(claim).collect();
            held.iter()
                .for_each(|&address| add(manager.continues(claim), Step::Resume(claim, address)));
            let repeats = manager.attempts[claim].is_some();
            let allocates = held.is_empty() && manager.allocates(claim);
            add(allocates && repeats, Step::RepeatAttempt(claim));
            for address in 0..ADDRESSES {
                let is_free = manager.is_free(&state.claims, scope, address, ignores_other);
                add(
                    allocates && !repeats && is_free,
                    Step::Propose(claim, address),
                );
            }
        }
        let reserves = matches!(manager.tasks[claim], Task::Reserve(..));
        let may_be_unknown = reserves && state.unknown_left > 0;
        add(reserves, Step::Reserve(claim));
        add(may_be_unknown, Step::ReplyLost(claim));
        add(
            may_be_unknown && state.late.is_none(),
            Step::AppliedLater(claim),
        );
        add(
            matches!(manager.tasks[claim], Task::Check(..)),
            Step::Check(claim),
        );
        add(
            matches!(manager.tasks[claim], Task::Bind(_)),
            Step::Bind(claim),
        );
    }

    fn manage(&self, state: &mut State, number: usize, step: Step) -> Option<()> {
        self.execute(state, number, step)?;
        // What it has written decides whether a pool without its label stays in the network.
        state.managers[number].decide(self);
        Some(())
    }

    fn execute(&self, state: &mut State, number: usize, step: Step) -> Option<()> {
        match step {
            Step::SeeNetwork
            | Step::SeePool
            | Step::SeeReservations
            | Step::Record
            | Step::Crash => {
                self.observe(state, number, step);
                Some(())
            }
            Step::Release | Step::Sweep(..) => release(state, number, step),
            Step::Move(_) | Step::Continue | Step::GiveUp => {
                state.managers[number].mover = self.advance(state, number, step);
                Some(())
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
            Step::Resume(claim, address) => {
                // A live read.
                let scope = manager.scope_of(claim);
                if state.read(number, scope, address).map(usize::from) == Some(claim) {
                    state.managers[number].tasks[claim] = Task::Check(scope, address);
                }
            }
            Step::RepeatAttempt(claim) => {
                let (scope, address) = manager.attempts[claim].take()?;
                if scope == manager.scope_of(claim) {
                    manager.tasks[claim] = Task::Reserve(scope, address);
                }
            }
            Step::Reserve(claim) => {
                let Task::Reserve(scope, address) = manager.tasks[claim] else {
                    return None;
                };
                let holder = u8::try_from(claim).ok()?;
                state.create(scope, address, holder);
                let is_ours = state.read(number, scope, address) == Some(holder);
                state.managers[number].tasks[claim] = if is_ours {
                    Task::Check(scope, address)
                } else {
                    Task::Idle
                };
            }
            Step::ReplyLost(claim) | Step::AppliedLater(claim) => {
                let Task::Reserve(scope, address) = manager.tasks[claim] else {
                    return None;
                };
                let holder = u8::try_from(claim).ok()?;
                manager.attempts[claim] = Some((scope, address));
                manager.tasks[claim] = Task::Idle;
                state.unknown_left -= 1;
                if step == Step::AppliedLater(claim) {
                    state.late = Some((scope, address, holder));
                } else {
                    state.create(scope, address, holder);
                }
            }
            Step::Check(claim) => {
                let Task::Check(scope, address) = manager.tasks[claim] else {
                    return None;
                };
                let has_place = scope == manager.scope_of(claim)
                    || self.mutation == Some(Mutation::BindInFormerScope);
                manager.tasks[claim] = if has_place {
                    Task::Bind(address)
                } else {
                    Task::Idle
                };
                manager.attempts[claim] = None;
            }
            Step::Bind(claim) => {
                let Task::Bind(address) = manager.tasks[claim] else {
                    return None;
                };
                manager.tasks[claim] = Task::Idle;
                // With the resource version of the claim as precondition.
                if state.claims[claim] == Claim::Waiting {
                    state.claims[claim] = Claim::Bound(address);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// The mover of a manager sends a request. Returns the move with its next request, `None` if it
    /// has ended.
    fn advance(&self, state: &mut State, number: usize, step: Step) -> Option<Move> {
        let deletes_first = self.mutation == Some(Mutation::DeleteFirst);
        match step {
            Step::Move(address) => {
                let target = state.managers[number].is_member();
                let holder = state
                    .read(number, !target, address)
                    .filter(|holder| *holder != OF_OTHER_POOL)?;
                let next = if deletes_first {
                    Request::Delete
                } else {
                    Request::Create
                };
                Some(Move {
                    next,
                    address,
                    holder,
                    target,
                    old: Since::Unchanged,
                    has_own_copy: false,
                })
            }
            Step::Continue => {
                let it = state.managers[number].mover?;
                match it.next {
                    Request::Create => self
                        .create_copy(state, number, it)
                        .filter(|_| !deletes_first),
                    Request::Mark => mark_copy(state, number, it),
                    Request::Delete => {
                        let next = delete_old(state, number, it);
                        if deletes_first {
                            Some(Move {
                                next: Request::Create,
                                ..it
                            })
                        } else {
                            next
                        }
                    }
                    Request::Undo => {
                        if it.has_own_copy {
                            state.set(number, it.target, it.address, None);
                        }
                        None
                    }
                }
            }
            _ => None,
        }
    }

    /// Step M2: creates the reservation in the new scope, and reads it if it exists.
    fn create_copy(&self, state: &mut State, number: usize, it: Move) -> Option<Move> {
        let has_own_copy = state.create(it.target, it.address, it.holder);
        if state.read(number, it.target, it.address) != Some(it.holder) {
            return None;
        }
        let is_marked = has_own_copy || self.mutation == Some(Mutation::DeleteUnmarked);
        Some(Move {
            next: if is_marked {
                Request::Delete
            } else {
                Request::Mark
            },
            has_own_copy,
            ..it
        })
    }
}

/// A manager releases an address, or deletes the reservation of a claim that does not use it.
fn release(state: &mut State, number: usize, step: Step) -> Option<()> {
    let ledger = state.managers[number].ledger;
    match step {
        Step::Release => {
            for (scope, address) in SLOTS {
                let is_known = ledger[index(scope)][address] == Some(0);
                if is_known && state.reservations[index(scope)][address] == Some(0) {
                    state.set(number, scope, address, None);
                }
            }
            state.claims[0] = Claim::Gone;
        }
        Step::Sweep(scope, address) => {
            // Verified by live reads.
            let holder = ledger[index(scope)][address];
            if state.read(number, scope, address) == holder {
                state.set(number, scope, address, None);
            }
        }
        _ => return None,
    }
    Some(())
}

/// Step M3: writes into the reservation in the new scope which version of the old one was read,
/// unless that is written there already.
fn mark_copy(state: &mut State, number: usize, it: Move) -> Option<Move> {
    if state.read(number, it.target, it.address) != Some(it.holder) {
        return None;
    }
    let is_current = it.old == Since::Unchanged;
    let is_marked = state.marks[index(it.target)][it.address];
    if !(is_marked && is_current) {
        state.write(it.target, it.address, Some(it.holder));
        state.marks[index(it.target)][it.address] = is_current;
    }
    Some(Move {
        next: Request::Delete,
        ..it
    })
}

/// Step M4: deletes the old reservation in the version that was read.
fn delete_old(state: &mut State, number: usize, it: Move) -> Option<Move> {
    match (it.old, state.read(number, !it.target, it.address)) {
        (Since::Unchanged, Some(_)) => {
            state.set(number, !it.target, it.address, None);
            None
        }
        // A conflict with another reservation of the name: the old one counts as released.
        (Since::Deleted, Some(_)) => it.has_own_copy.then_some(Move {
            next: Request::Undo,
            ..it
        }),
        _ => None,
    }
}
