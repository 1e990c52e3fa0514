//! A model of a slice that is assigned, used, returned, and assigned to another owner.
//!
//! Two managers, a pool with one slice of one address, and a claim of each of two owners. Each
//! manager observes the slice and the reservation late, and may crash at any step. The creation of
//! a reservation may be applied at any later time.
//!
//! | step of the model | implementation |
//! |---|---|
//! | `Propose` | `Ledger::propose` |
//! | `Assign`, `Resume` | `InClusterHandler::{assign_slice, resume_slice}` |
//! | `Reserve` | `InClusterHandler::reserve` |
//! | `Mark` | `SliceReturn::mark` |
//! | `BeginReturn`, `Delete` | `Ledger::begin_slice_return`, `SliceReturn::return_slice` |
//!
//! The grace period is longer than the delay of a watch and the time of a request: a slice is
//! returned only when all managers have observed its mark.

use stateright::{Model, Property};

use crate::checks::{assert_holds, assert_violated};

/// The claims. Each one has another owner.
const CLAIMS: usize = 2;
const MANAGERS: usize = 2;

/// An injected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// A slice without addresses in use is returned without a mark.
    ReturnWithoutMark,
    /// An address of a marked slice is allocated although the mark is not removed.
    UseMarked,
    /// The deletion of a slice has no resource version as precondition.
    DeleteUnconditionally,
    /// A marked slice is returned before all managers have observed the mark.
    NoGracePeriod,
    /// A slice is returned although the same manager is reserving an address of it.
    IgnoreCandidates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slice {
    owner: usize,
    version: u8,
    is_marked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Claim {
    Waiting,
    Bound,
    Releasing,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    Idle,
    Assign,
    Resume,
    Reserve,
    Bind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Manager {
    slice: Option<Slice>,
    reservation: Option<usize>,
    tasks: [Task; CLAIMS],
    /// The version of the slice that is about to be deleted.
    returning: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    slice: Option<Slice>,
    reservation: Option<usize>,
    claims: [Claim; CLAIMS],
    last_version: u8,
    managers: [Manager; MANAGERS],
    /// The claim whose reservation is created later.
    late: Option<usize>,
    had_late_write: bool,
    crashes_left: u8,
    late_left: u8,
    /// How often the slice can be marked or resumed.
    marks_left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    SeeSlice(usize),
    SeeReservation(usize),
    Propose(usize, usize),
    Assign(usize, usize),
    Resume(usize, usize),
    Reserve(usize, usize),
    AppliedLater(usize, usize),
    ApplyLate,
    /// Continues with a reservation that the claim has.
    Continue(usize, usize),
    Bind(usize, usize),
    DeleteClaim(usize),
    Release(usize),
    Mark(usize),
    BeginReturn(usize),
    Delete(usize),
    Crash(usize),
}

struct Slices {
    mutation: Option<Mutation>,
}

impl Slices {
    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// What a claim does next, as a manager knows it.
    fn proposal(&self, manager: &Manager, claim: usize) -> Task {
        let is_candidate = manager
            .tasks
            .iter()
            .any(|task| matches!(task, Task::Reserve | Task::Bind));
        match manager.slice {
            _ if manager.reservation.is_some() || is_candidate || manager.returning.is_some() => {
                Task::Idle
            }
            None => Task::Assign,
            Some(slice) if slice.owner != claim => Task::Idle,
            Some(slice) if slice.is_marked && !self.has(Mutation::UseMarked) => Task::Resume,
            Some(_) => Task::Reserve,
        }
    }

    /// Whether a manager returns the slice that it knows.
    fn is_returned(&self, state: &State, index: usize) -> bool {
        let manager = &state.managers[index];
        let Some(slice) = manager.slice else {
            return false;
        };
        let is_marked = slice.is_marked || self.has(Mutation::ReturnWithoutMark);
        let is_candidate = manager
            .tasks
            .iter()
            .any(|task| matches!(task, Task::Reserve | Task::Bind))
            && !self.has(Mutation::IgnoreCandidates);
        let reserves = |manager: &Manager| {
            manager
                .tasks
                .iter()
                .any(|task| matches!(task, Task::Reserve | Task::Bind))
        };
        let others_know =
            state.managers.iter().enumerate().all(|(other, known)| {
                other == index || known.slice == state.slice && !reserves(known)
            });
        let is_over = others_know && manager.reservation == state.reservation
            || self.has(Mutation::NoGracePeriod);
        is_marked
            && manager.reservation.is_none()
            && !is_candidate
            && is_over
            && manager.returning.is_none()
    }
}

impl Model for Slices {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let manager = Manager {
            slice: None,
            reservation: None,
            tasks: [Task::Idle; CLAIMS],
            returning: None,
        };
        vec![State {
            slice: None,
            reservation: None,
            claims: [Claim::Waiting; CLAIMS],
            last_version: 0,
            managers: [manager; MANAGERS],
            late: None,
            had_late_write: false,
            crashes_left: 1,
            late_left: 1,
            marks_left: 2,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut add = |is_enabled: bool, action| {
            if is_enabled {
                actions.push(action);
            }
        };
        add(state.late.is_some(), Action::ApplyLate);
        for (index, manager) in state.managers.iter().enumerate() {
            add(manager.slice != state.slice, Action::SeeSlice(index));
            add(
                manager.reservation != state.reservation,
                Action::SeeReservation(index),
            );
            add(state.crashes_left > 0, Action::Crash(index));
            for claim in 0..CLAIMS {
                let is_waiting = state.claims[claim] == Claim::Waiting;
                let is_idle = manager.tasks[claim] == Task::Idle;
                let holds = manager.reservation == Some(claim);
                add(
                    is_waiting && is_idle && holds,
                    Action::Continue(index, claim),
                );
                let proposes = self.proposal(manager, claim) != Task::Idle;
                add(
                    is_waiting && is_idle && !holds && proposes,
                    Action::Propose(index, claim),
                );
                match manager.tasks[claim] {
                    Task::Idle => {}
                    Task::Assign => add(true, Action::Assign(index, claim)),
                    Task::Resume => add(state.marks_left > 0, Action::Resume(index, claim)),
                    Task::Reserve => {
                        add(true, Action::Reserve(index, claim));
                        add(state.late_left > 0, Action::AppliedLater(index, claim));
                    }
                    Task::Bind => add(true, Action::Bind(index, claim)),
                }
            }
            let is_empty = manager.reservation.is_none()
                && manager.tasks.iter().all(|task| *task != Task::Reserve);
            let is_unmarked = manager.slice.is_some_and(|slice| !slice.is_marked);
            add(
                state.marks_left > 0 && is_empty && is_unmarked,
                Action::Mark(index),
            );
            add(self.is_returned(state, index), Action::BeginReturn(index));
            add(manager.returning.is_some(), Action::Delete(index));
        }
        for claim in 0..CLAIMS {
            add(
                state.claims[claim] == Claim::Bound,
                Action::DeleteClaim(claim),
            );
            add(
                state.claims[claim] == Claim::Releasing,
                Action::Release(claim),
            );
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::SeeSlice(index) => state.managers[index].slice = state.slice,
            Action::SeeReservation(index) => state.managers[index].reservation = state.reservation,
            Action::Propose(index, claim) => {
                let task = self.proposal(&state.managers[index], claim);
                state.managers[index].tasks[claim] = task;
            }
            Action::Assign(index, owner) => {
                if state.slice.is_none() {
                    state.last_version += 1;
                    state.slice = Some(Slice {
                        owner,
                        version: state.last_version,
                        is_marked: false,
                    });
                }
                state.managers[index].slice = state.slice;
                state.managers[index].tasks[owner] = Task::Idle;
            }
            Action::Resume(index, claim) => {
                if let Some(slice) = state
                    .slice
                    .as_mut()
                    .filter(|slice| slice.is_marked && slice.owner == claim)
                {
                    state.last_version += 1;
                    state.marks_left -= 1;
                    (slice.is_marked, slice.version) = (false, state.last_version);
                }
                state.managers[index].slice = state.slice;
                state.managers[index].tasks[claim] = Task::Idle;
            }
            Action::Reserve(index, claim) => {
                let present = *state.reservation.get_or_insert(claim);
                state.managers[index].reservation = Some(present);
                state.managers[index].tasks[claim] = if present == claim {
                    Task::Bind
                } else {
                    Task::Idle
                };
            }
            Action::AppliedLater(index, claim) => {
                state.late_left -= 1;
                state.had_late_write = true;
                state.late = Some(claim);
                state.managers[index].tasks[claim] = Task::Idle;
            }
            Action::ApplyLate => {
                let claim = state.late.take()?;
                state.reservation.get_or_insert(claim);
            }
            Action::Continue(index, claim) => {
                // A live read.
                state.managers[index].reservation = state.reservation;
                if state.reservation == Some(claim) {
                    state.managers[index].tasks[claim] = Task::Bind;
                }
            }
            Action::Bind(index, claim) => {
                state.managers[index].tasks[claim] = Task::Idle;
                if state.claims[claim] == Claim::Waiting {
                    state.claims[claim] = Claim::Bound;
                }
            }
            Action::DeleteClaim(claim) => state.claims[claim] = Claim::Releasing,
            Action::Release(claim) => {
                if state.reservation == Some(claim) {
                    state.reservation = None;
                }
                state.claims[claim] = Claim::Gone;
            }
            Action::Mark(index) => {
                let known = state.managers[index].slice;
                if let Some(slice) = state.slice.as_mut().filter(|slice| Some(**slice) == known) {
                    state.last_version += 1;
                    state.marks_left -= 1;
                    (slice.is_marked, slice.version) = (true, state.last_version);
                }
                state.managers[index].slice = state.slice;
            }
            Action::BeginReturn(index) => {
                state.managers[index].returning =
                    state.managers[index].slice.map(|slice| slice.version);
            }
            Action::Delete(index) => {
                let version = state.managers[index].returning.take()?;
                let is_same = state.slice.is_some_and(|slice| slice.version == version);
                if is_same || self.has(Mutation::DeleteUnconditionally) {
                    state.slice = None;
                }
                state.managers[index].slice = state.slice;
            }
            Action::Crash(index) => {
                state.crashes_left -= 1;
                let (slice, reservation) = (state.slice, state.reservation);
                state.managers[index] = Manager {
                    slice,
                    reservation,
                    tasks: [Task::Idle; CLAIMS],
                    returning: None,
                };
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no address is bound twice", |_, state: &State| {
                state
                    .claims
                    .iter()
                    .filter(|claim| **claim == Claim::Bound)
                    .count()
                    < 2
            }),
            Property::always(
                "the address of a bound claim is reserved",
                |_, state: &State| {
                    let bound = (0..CLAIMS).filter(|claim| state.claims[*claim] == Claim::Bound);
                    bound
                        .into_iter()
                        .all(|claim| state.reservation == Some(claim))
                },
            ),
            Property::always(
                "an address is in a slice of its owner",
                |_, state: &State| {
                    let bound = (0..CLAIMS).filter(|claim| state.claims[*claim] == Claim::Bound);
                    // A reservation that is created after its timeout can be in a slice that was
                    // returned meanwhile.
                    state.had_late_write
                        || bound
                            .into_iter()
                            .all(|claim| state.slice.is_some_and(|slice| slice.owner == claim))
                },
            ),
            Property::sometimes(
                "the slice is used by one owner after the other",
                |_, state: &State| {
                    state.claims.contains(&Claim::Bound) && state.claims.contains(&Claim::Gone)
                },
            ),
            Property::sometimes("a marked slice is resumed", |_, state: &State| {
                state.marks_left == 0 && state.slice.is_some_and(|slice| !slice.is_marked)
            }),
        ]
    }
}

#[test]
fn slice_is_returned_and_assigned_to_another_owner() {
    assert_holds(&"slices", Slices { mutation: None });
}

#[test]
fn each_precaution_of_returning_a_slice_is_needed() {
    for mutation in [
        Mutation::ReturnWithoutMark,
        Mutation::UseMarked,
        Mutation::DeleteUnconditionally,
        Mutation::NoGracePeriod,
        Mutation::IgnoreCandidates,
    ] {
        let mutated = Slices {
            mutation: Some(mutation),
        };
        assert_violated(&mutation, mutated);
    }
}
