//! A model of a pool that joins and leaves a network while its addresses are allocated and released.
//!
//! One manager, the pool, another pool that always belongs to the network, and two addresses that both have. The manager
//! observes the membership and the reservations late. It may crash at any step. The creation of a reservation may have an
//! unknown outcome: its reply is lost, or it is applied at any later time.
//!
//! | step of the model | implementation |
//! |---|---|
//! | `propose`, `is_free` | `Ledger::propose`, and the counts `AddressUsage::elsewhere` |
//! | `Reserve`, `attempt` | `InClusterHandler::{allocate, reserve}`, `Ledger::attempt` |
//! | `Release` | `in_cluster/release.rs` |
//! | `Create`, `Delete` of the mover | `scope_changes::move_one` |
//! | `Sweep` | `Sweeper::delete_reservation` |

use stateright::{Checker, HasDiscoveries, Model, Property};

const ADDRESSES: usize = 2;
/// Two claims of the pool, of which the first is bound in the initial state, and one of the other pool.
const CLAIMS: usize = 3;
const OF_OTHER_POOL: u8 = 2;

/// An injected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// The mover deletes the old reservation before it creates the new one.
    DeleteFirst,
    /// A reservation with an unknown outcome is requested again in the scope that the pool has left.
    RepeatAttempt,
    /// An address that is reserved in another scope counts as free.
    IgnoreOtherScope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Claim {
    Waiting,
    Bound(usize),
    /// Its IPAddress is deleted, and its reservations are not.
    Releasing,
    Gone,
}

/// A scope: that of the network, or that of the pool.
type InNetwork = bool;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    Idle,
    Reserve(InNetwork, usize),
    Bind(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mover {
    Idle,
    /// Moves the address of a claim to this scope.
    Create(usize, u8, InNetwork),
    Delete(usize, u8, InNetwork),
}

/// The holder of each address in the scope of the pool, and in that of the network.
type Reservations = [[Option<u8>; ADDRESSES]; 2];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    is_member: InNetwork,
    reservations: Reservations,
    claims: [Claim; CLAIMS],
    /// A write that is applied later.
    late: Option<(InNetwork, usize, u8)>,
    // The manager.
    sees_member: InNetwork,
    ledger: Reservations,
    tasks: [Task; CLAIMS],
    attempts: [Option<(InNetwork, usize)>; CLAIMS],
    mover: Mover,
    /// Whether an address was last proposed for a claim when the manager knew that the pool is a member.
    is_informed: [[bool; ADDRESSES]; CLAIMS],
    changes_left: u8,
    crashes_left: u8,
    unknown_left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The pool joins or leaves the network.
    ChangeNetwork,
    SeePool,
    SeeReservations,
    Propose(usize, usize),
    /// Continues with a reservation that the claim has.
    Continue(usize, usize),
    RepeatAttempt(usize),
    Reserve(usize),
    ReplyLost(usize),
    AppliedLater(usize),
    ApplyLate,
    Bind(usize),
    DeleteClaim,
    Release,
    Move(usize),
    Create,
    Delete,
    Sweep(InNetwork, usize),
    Crash,
}

struct Joining {
    mutation: Option<Mutation>,
}

fn index(scope: InNetwork) -> usize {
    usize::from(scope)
}

impl State {
    /// The scope of a claim's pool, as the manager knows it.
    fn scope(&self, claim: usize) -> InNetwork {
        claim == usize::from(OF_OTHER_POOL) || self.sees_member
    }

    /// Whether the manager considers an address free in a scope.
    fn is_free(&self, scope: InNetwork, address: usize, ignores_other: bool) -> bool {
        let of_pool = |holder: &u8| *holder != OF_OTHER_POOL;
        let is_candidate = |scope: InNetwork, only_pool: bool| {
            let tasks = self.tasks.iter().enumerate();
            tasks
                .filter(|(claim, _)| !only_pool || *claim != usize::from(OF_OTHER_POOL))
                .any(|(_, task)| *task == Task::Reserve(scope, address))
        };
        let in_use = self
            .claims
            .iter()
            .enumerate()
            .any(|(claim, state)| self.scope(claim) == scope && *state == Claim::Bound(address));
        let other = !scope;
        let elsewhere = !ignores_other
            && self.sees_member == scope
            && (self.ledger[index(other)][address].is_some_and(|holder| of_pool(&holder)) || is_candidate(other, true));
        self.ledger[index(scope)][address].is_none() && !in_use && !is_candidate(scope, false) && !elsewhere
    }

    /// The reservations of a claim in the scope of its pool, as the manager knows them.
    fn held(&self, claim: usize) -> impl Iterator<Item = usize> {
        let held = self.ledger[index(self.scope(claim))];
        (0..ADDRESSES).filter(move |&address| held[address].is_some_and(|holder| usize::from(holder) == claim))
    }

    fn set(&mut self, scope: InNetwork, address: usize, holder: Option<u8>) {
        self.reservations[index(scope)][address] = holder;
        self.ledger[index(scope)][address] = holder;
    }

    /// Whether nothing remains to be done and all is observed.
    fn is_settled(&self) -> bool {
        let is_done = |claim: usize| match self.claims[claim] {
            Claim::Releasing => false,
            Claim::Waiting => self.held(claim).next().is_none(),
            Claim::Bound(_) | Claim::Gone => true,
        };
        self.ledger == self.reservations
            && self.sees_member == self.is_member
            && self.late.is_none()
            && self.mover == Mover::Idle
            && self.tasks.iter().all(|task| *task == Task::Idle)
            && (0..CLAIMS).all(is_done)
            && self.abandoned().next().is_none()
            && self.movable().all(|address| self.is_conflict(address))
    }

    /// The addresses that the pool has reserved in the scope that it does not belong to.
    fn movable(&self) -> impl Iterator<Item = usize> {
        let other = self.ledger[index(!self.sees_member)];
        (0..ADDRESSES).filter(move |&address| other[address].is_some_and(|holder| holder != OF_OTHER_POOL))
    }

    /// The reservations whose claims are gone or bound to other addresses.
    fn abandoned(&self) -> impl Iterator<Item = (InNetwork, usize)> {
        let all = [(false, 0), (false, 1), (true, 0), (true, 1)].into_iter();
        all.filter(|(scope, address)| {
            let holder = self.ledger[index(*scope)][*address];
            holder.is_some_and(|holder| match self.claims[usize::from(holder)] {
                Claim::Gone => true,
                Claim::Bound(own) => own != *address,
                Claim::Waiting | Claim::Releasing => false,
            })
        })
    }

    fn is_conflict(&self, address: usize) -> bool {
        let present = self.ledger[index(self.sees_member)][address];
        present.is_some() && present != self.ledger[index(!self.sees_member)][address]
    }
}

impl Model for Joining {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            is_member: false,
            reservations: Reservations::default(),
            claims: [Claim::Bound(0), Claim::Waiting, Claim::Waiting],
            late: None,
            sees_member: false,
            ledger: Reservations::default(),
            tasks: [Task::Idle; CLAIMS],
            attempts: [None; CLAIMS],
            mover: Mover::Idle,
            is_informed: [[false; ADDRESSES]; CLAIMS],
            changes_left: 2,
            crashes_left: 1,
            unknown_left: 1,
        };
        state.set(false, 0, Some(0));
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut add = |is_enabled: bool, action| {
            if is_enabled {
                actions.push(action);
            }
        };
        add(state.changes_left > 0, Action::ChangeNetwork);
        add(state.sees_member != state.is_member, Action::SeePool);
        add(state.ledger != state.reservations, Action::SeeReservations);
        add(state.late.is_some(), Action::ApplyLate);
        add(state.crashes_left > 0, Action::Crash);
        add(matches!(state.claims[0], Claim::Bound(_)), Action::DeleteClaim);
        add(state.claims[0] == Claim::Releasing, Action::Release);
        let ignores_other = self.mutation == Some(Mutation::IgnoreOtherScope);
        for claim in 0..CLAIMS {
            let is_ready = state.claims[claim] == Claim::Waiting && state.tasks[claim] == Task::Idle;
            if is_ready {
                let held: Vec<usize> = state.held(claim).collect();
                held.iter().for_each(|&address| add(true, Action::Continue(claim, address)));
                let repeats = state.attempts[claim].is_some();
                add(held.is_empty() && repeats, Action::RepeatAttempt(claim));
                for address in 0..ADDRESSES {
                    let is_free = state.is_free(state.scope(claim), address, ignores_other);
                    add(held.is_empty() && !repeats && is_free, Action::Propose(claim, address));
                }
            }
            let reserves = matches!(state.tasks[claim], Task::Reserve(..));
            add(reserves, Action::Reserve(claim));
            add(reserves && state.unknown_left > 0, Action::ReplyLost(claim));
            add(reserves && state.unknown_left > 0 && state.late.is_none(), Action::AppliedLater(claim));
            add(matches!(state.tasks[claim], Task::Bind(_)), Action::Bind(claim));
        }
        if state.mover == Mover::Idle {
            state.movable().for_each(|address| add(!state.is_conflict(address), Action::Move(address)));
        }
        add(matches!(state.mover, Mover::Create(..)), Action::Create);
        add(matches!(state.mover, Mover::Delete(..)), Action::Delete);
        state.abandoned().for_each(|(scope, address)| add(true, Action::Sweep(scope, address)));
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each action")]
    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::ChangeNetwork => {
                state.changes_left -= 1;
                state.is_member = !state.is_member;
            }
            Action::SeePool => state.sees_member = state.is_member,
            Action::SeeReservations => state.ledger = state.reservations,
            Action::Propose(claim, address) => {
                state.is_informed[claim][address] = state.sees_member;
                state.tasks[claim] = Task::Reserve(state.scope(claim), address);
            }
            Action::Continue(claim, address) => {
                // A live read.
                let scope = index(state.scope(claim));
                state.ledger[scope][address] = state.reservations[scope][address];
                if state.ledger[scope][address].map(usize::from) == Some(claim) {
                    state.tasks[claim] = Task::Bind(address);
                }
            }
            Action::RepeatAttempt(claim) => {
                let (scope, address) = state.attempts[claim].take()?;
                let is_valid = scope == state.scope(claim) || self.mutation == Some(Mutation::RepeatAttempt);
                if is_valid {
                    state.tasks[claim] = Task::Reserve(scope, address);
                }
            }
            Action::Reserve(claim) => {
                let Task::Reserve(scope, address) = state.tasks[claim] else { return None };
                let holder = u8::try_from(claim).ok()?;
                let present = *state.reservations[index(scope)][address].get_or_insert(holder);
                state.ledger[index(scope)][address] = Some(present);
                state.tasks[claim] = if present == holder { Task::Bind(address) } else { Task::Idle };
            }
            Action::ReplyLost(claim) | Action::AppliedLater(claim) => {
                let Task::Reserve(scope, address) = state.tasks[claim] else { return None };
                let holder = u8::try_from(claim).ok()?;
                state.unknown_left -= 1;
                state.attempts[claim] = Some((scope, address));
                state.tasks[claim] = Task::Idle;
                if action == Action::AppliedLater(claim) {
                    state.late = Some((scope, address, holder));
                } else {
                    state.reservations[index(scope)][address].get_or_insert(holder);
                }
            }
            Action::ApplyLate => {
                let (scope, address, holder) = state.late.take()?;
                state.reservations[index(scope)][address].get_or_insert(holder);
            }
            Action::Bind(claim) => {
                let Task::Bind(address) = state.tasks[claim] else { return None };
                state.tasks[claim] = Task::Idle;
                state.attempts[claim] = None;
                state.claims[claim] = Claim::Bound(address);
            }
            Action::DeleteClaim => state.claims[0] = Claim::Releasing,
            Action::Release => {
                for (scope, address) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
                    if state.ledger[index(scope)][address] == Some(0)
                        && state.reservations[index(scope)][address] == Some(0)
                    {
                        state.set(scope, address, None);
                    }
                }
                state.claims[0] = Claim::Gone;
            }
            Action::Move(address) => {
                let (target, holder) = (state.sees_member, state.ledger[index(!state.sees_member)][address]?);
                let deletes_first = self.mutation == Some(Mutation::DeleteFirst);
                state.mover = if deletes_first {
                    Mover::Delete(address, holder, target)
                } else {
                    Mover::Create(address, holder, target)
                };
            }
            Action::Create => {
                let Mover::Create(address, holder, target) = state.mover else { return None };
                let present = *state.reservations[index(target)][address].get_or_insert(holder);
                state.ledger[index(target)][address] = Some(present);
                let is_moved = present == holder && self.mutation != Some(Mutation::DeleteFirst);
                state.mover = if is_moved { Mover::Delete(address, holder, target) } else { Mover::Idle };
            }
            Action::Delete => {
                let Mover::Delete(address, holder, target) = state.mover else { return None };
                if state.reservations[index(!target)][address] == Some(holder) {
                    state.set(!target, address, None);
                } else {
                    state.ledger[index(!target)][address] = state.reservations[index(!target)][address];
                }
                let creates = self.mutation == Some(Mutation::DeleteFirst);
                state.mover = if creates { Mover::Create(address, holder, target) } else { Mover::Idle };
            }
            Action::Sweep(scope, address) => {
                // Verified by live reads.
                let holder = state.ledger[index(scope)][address];
                if state.reservations[index(scope)][address] == holder {
                    state.set(scope, address, None);
                } else {
                    state.ledger[index(scope)][address] = state.reservations[index(scope)][address];
                }
            }
            Action::Crash => {
                state.crashes_left -= 1;
                (state.ledger, state.sees_member) = (state.reservations, state.is_member);
                (state.tasks, state.attempts, state.mover) = ([Task::Idle; CLAIMS], [None; CLAIMS], Mover::Idle);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // An address that both pools had in use when the manager observed that they are in one network is reported.
            Property::always("no address is allocated twice in a network", |_, state: &State| {
                let is_unique = |address: usize| {
                    let has_it = |claim: &usize| state.claims[*claim] == Claim::Bound(address);
                    let holders: Vec<usize> = (0..CLAIMS).filter(has_it).collect();
                    let is_informed = holders.iter().any(|&claim| state.is_informed[claim][address]);
                    let is_shared = holders.contains(&usize::from(OF_OTHER_POOL));
                    holders.len() < 2 || is_shared && !(state.is_member && state.sees_member && is_informed)
                };
                (0..ADDRESSES).all(is_unique)
            }),
            Property::always("the address of a bound claim is reserved", |_, state: &State| {
                state.claims.iter().zip(0..).all(|(claim, holder)| match claim {
                    Claim::Bound(address) => state.reservations.iter().any(|scope| scope[*address] == Some(holder)),
                    _ => true,
                })
            }),
            Property::always("in the end each reservation is in the scope of its pool", |_, state: &State| {
                !state.is_settled()
                    || state.claims.iter().zip(0..).all(|(claim, holder)| {
                        let Claim::Bound(address) = claim else { return true };
                        let present = state.reservations[index(state.scope(usize::from(holder)))][*address];
                        present.is_some_and(|present| {
                            present == holder || state.claims[usize::from(present)] == Claim::Bound(*address)
                        })
                    })
            }),
            Property::sometimes("the pool joins with an address in use", |_, state: &State| {
                state.is_settled() && state.is_member && matches!(state.claims[0], Claim::Bound(_))
            }),
            Property::sometimes("all claims are bound or gone", |_, state: &State| {
                state.is_settled() && state.claims.iter().all(|claim| *claim != Claim::Waiting)
            }),
        ]
    }
}

fn explore(mutation: Option<Mutation>) -> impl Checker<Joining> {
    let checker = Joining { mutation }.checker().finish_when(HasDiscoveries::AnyFailures).threads(2);
    checker.spawn_bfs().join()
}

#[test]
fn pool_joins_and_leaves_a_network() {
    let checker = explore(None);
    println!("{} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

#[test]
fn each_precaution_of_joining_is_needed() {
    for mutation in [Mutation::DeleteFirst, Mutation::RepeatAttempt, Mutation::IgnoreOtherScope] {
        let checker = explore(Some(mutation));
        let failures = checker.discoveries();
        let failed = |name: &&'static str| checker.model().property(name).expectation.discovery_is_failure();
        assert!(failures.keys().any(failed), "{mutation:?} violates no property");
    }
}
