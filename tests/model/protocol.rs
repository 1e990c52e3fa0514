//! The model: who may do what next, and what must always hold.

use std::collections::HashMap;
use std::sync::Mutex;

use stateright::{Model, Property};

use crate::server::Fate;
use crate::state::{ADDRESSES, Manager, NAMES, Objects, State, Sweep};
use crate::sweeper::Suspect;
use crate::tasks::{Decision, Worker, decide, lives};

/// How large the world is, and what may go wrong in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) managers: usize,
    /// How many addresses the pool has.
    pub(crate) addresses: usize,
    /// How many claims of each name are created, one after the other.
    pub(crate) lives: [u8; NAMES],
    pub(crate) crashes: u8,
    pub(crate) lost_replies: u8,
    pub(crate) late_writes: u8,
    /// How many claims vanish although they have our finalizer.
    pub(crate) vanishings: u8,
    /// The first manager always knows everything.
    pub(crate) prompt: bool,
    /// How often the watches of the second manager catch up, all of them taken together.
    pub(crate) glimpses: u8,
    /// Managers have a sweeper. Recovery always has one.
    pub(crate) sweepers: bool,
    /// The garbage collector strikes out owners that are gone.
    pub(crate) collector: bool,
    /// A1 and A2 are done in the same time, where no IPAddress is known.
    pub(crate) early: bool,
    /// What is done wrong on purpose.
    pub(crate) mistake: Option<Mistake>,
}

impl Scope {
    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }
}

/// Ways to get the protocol wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A4 without uid and resource version.
    BindWithoutUid,
    /// A4 before A3.
    BindBeforeCreate,
    /// R2 before R1.
    UnreserveBeforeRemoval,
    /// No reservations: the address is one that the cache does not show as used.
    PickByCache,
    /// An IPAddress of the claim's name is adopted as it is.
    AdoptWithoutReservation,
    /// An IPAddress with another owner, and its reservation, are taken over without asking whether the claim is there.
    AdoptWithoutReadingTheClaim,
    /// Only the reservation is.
    TakeOverWithoutReadingTheClaim,
    /// An IPAddress with another owner is removed at a release without asking that.
    ReleaseWithoutReadingTheClaim,
    /// R1 and R3 go by the cache.
    ReleaseByCache,
    /// R1 deletes whatever has the name of the IPAddress.
    DeleteAddressWithoutUid,
    /// R1 deletes the IPAddress of that uid, also when it was adopted in the meantime.
    DeleteAddressWithoutVersion,
    UnreserveWithoutUid,
    /// R2 deletes what the ledger shows when it is the address's turn, whoever holds it then.
    UnreserveWhatIsKnownNow,
    /// A2 with an unknown outcome counts as done.
    UnknownMeansDone,
    /// The sweeper frees reservations by what is in memory.
    SweepByCache,
    /// The sweeper removes an IPAddress without asking whether there is a claim.
    SweepAddressByCache,
    /// The sweeper frees the reservation of a claim that lives and is not bound yet.
    SweepUnboundClaims,
    /// A3 before A1.
    CreateBeforeFinalizer,
    /// What was reserved is given back when A1 fails, without asking whether the claim is there.
    GiveBackWithoutReadingTheClaim,
    /// A free address is looked for before the IPAddress of the claim's name.
    LookForAFreeOneFirst,
    /// An address that is reserved for the claim already is not looked for.
    IgnoreOwnReservation,
    /// A3 finds the name taken and goes on.
    AcceptAnyAddress,
}

/// Something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    CreateClaim(usize),
    DeleteClaim(usize),
    /// The API server removes a claim in the moment in which it gets its finalizer.
    ClaimVanishes(usize),
    /// The garbage collector strikes out an owner that is gone.
    Collect(usize),
    /// A watch catches up.
    SeeClaims(usize),
    SeeAddresses(usize),
    SeeReservations(usize),
    Work {
        manager: usize,
        name: usize,
        fate: Fate,
    },
    BeginSweep {
        manager: usize,
        suspect: Suspect,
        fate: Fate,
    },
    Sweep {
        manager: usize,
        fate: Fate,
    },
    /// The manager starts again.
    Crash(usize),
    ApplyLateWrite(usize),
}

/// The model.
pub(crate) struct Protocol {
    pub(crate) scope: Scope,
    /// Whether all ends well, for states in which nothing is under way and all managers know everything.
    pub(crate) settled: Mutex<HashMap<(Objects, [bool; ADDRESSES]), bool>>,
}

impl Protocol {
    pub(crate) fn new(scope: Scope) -> Self {
        Self { scope, settled: Mutex::default() }
    }
}

impl State {
    pub(crate) fn see_everything(&mut self, manager: usize) {
        let known = &mut self.managers[manager];
        known.claims = self.objects.claims;
        known.addresses = self.objects.addresses;
        known.ledger = self.objects.reservations;
    }

    /// Lets it happen. `false` when it cannot.
    pub(crate) fn happen(&mut self, scope: &Scope, action: Action) -> bool {
        match action {
            Action::CreateClaim(name) => {
                self.lives[name] += 1;
                let claim = crate::state::Claim { life: self.lives[name], ..Default::default() };
                self.objects.claims[name] = Some(claim);
                true
            }
            Action::DeleteClaim(name) => self.delete_claim(name),
            Action::ClaimVanishes(name) => {
                self.vanishings_left -= 1;
                self.remove_claim(name);
                true
            }
            Action::Collect(name) => self.collect(name),
            Action::SeeClaims(manager) => {
                self.glimpses_left -= u8::from(manager > 0);
                self.managers[manager].claims = self.objects.claims;
                true
            }
            Action::SeeAddresses(manager) => {
                self.glimpses_left -= u8::from(manager > 0);
                self.managers[manager].addresses = self.objects.addresses;
                true
            }
            Action::SeeReservations(manager) => {
                self.glimpses_left -= u8::from(manager > 0);
                self.managers[manager].ledger = self.objects.reservations;
                true
            }
            Action::Work { manager, name, fate } => {
                let task = self.managers[manager].tasks[name];
                Worker { scope, state: self, manager, name, task }.run(fate)
            }
            Action::BeginSweep { manager, suspect, fate } => self.begin_sweep(scope, manager, suspect, fate),
            Action::Sweep { manager, fate } => self.sweep_on(scope, manager, fate),
            Action::Crash(manager) => {
                self.crashes_left -= 1;
                self.managers[manager] = Manager::default();
                self.see_everything(manager);
                true
            }
            Action::ApplyLateWrite(index) => {
                let Some(write) = self.late[index].take() else { return false };
                self.late.sort_unstable();
                self.apply(scope, write);
                true
            }
        }
    }

    /// The fates that the next write of a manager may have.
    fn fates(&self) -> impl Iterator<Item = Fate> + use<> {
        let (lost, late) = (self.lost_replies_left > 0, self.late_writes_left > 0);
        [Some(Fate::Answered), lost.then_some(Fate::ReplyLost), late.then_some(Fate::Late)].into_iter().flatten()
    }

    fn watches_of_manager(&self, manager: usize, actions: &mut Vec<Action>) {
        let known = &self.managers[manager];
        if known.claims != self.objects.claims {
            actions.push(Action::SeeClaims(manager));
        }
        if known.addresses != self.objects.addresses {
            actions.push(Action::SeeAddresses(manager));
        }
        if known.ledger != self.objects.reservations {
            actions.push(Action::SeeReservations(manager));
        }
    }

    fn actions_of_manager(&self, scope: &Scope, manager: usize, actions: &mut Vec<Action>) {
        let known = &self.managers[manager];
        let blind = manager > 0 && self.glimpses_left == 0;
        if !blind {
            self.watches_of_manager(manager, actions);
        }
        for name in 0..NAMES {
            if known.tasks[name].step != crate::state::Step::Idle || decide(known, name) != Decision::Nothing {
                actions.extend(self.fates().map(|fate| Action::Work { manager, name, fate }));
            }
        }
        if known.sweep != Sweep::Idle {
            actions.extend(self.fates().map(|fate| Action::Sweep { manager, fate }));
        } else if scope.sweepers {
            for suspect in all_suspects().filter(|suspect| known.suspects(*suspect)) {
                actions.extend(self.fates().map(|fate| Action::BeginSweep { manager, suspect, fate }));
            }
        }
        if self.crashes_left > 0 && !known.is_idle() {
            actions.push(Action::Crash(manager));
        }
    }
}

pub(crate) fn all_suspects() -> impl Iterator<Item = Suspect> {
    let addresses = (0..2).map(Suspect::Reservation);
    addresses.chain((0..2).map(Suspect::Address)).chain((0..2).map(Suspect::Unreserved))
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Scope { crashes, lost_replies, late_writes, vanishings, .. } = self.scope;
        vec![State {
            crashes_left: crashes,
            lost_replies_left: lost_replies,
            late_writes_left: late_writes,
            vanishings_left: vanishings,
            glimpses_left: self.scope.glimpses,
            ..State::default()
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for name in 0..NAMES {
            match state.objects.claims[name] {
                None if state.lives[name] < self.scope.lives[name] => actions.push(Action::CreateClaim(name)),
                None => {}
                Some(claim) => {
                    if !claim.deleting {
                        actions.push(Action::DeleteClaim(name));
                    }
                    if claim.finalizer && claim.bound.is_none() && state.vanishings_left > 0 {
                        actions.push(Action::ClaimVanishes(name));
                    }
                }
            }
            if self.scope.collector {
                actions.push(Action::Collect(name));
            }
        }
        for manager in 0..self.scope.managers {
            state.actions_of_manager(&self.scope, manager, actions);
        }
        for (index, late) in state.late.iter().enumerate() {
            if late.is_some() {
                actions.push(Action::ApplyLateWrite(index));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        if !state.happen(&self.scope, action) {
            return None;
        }
        if self.scope.prompt {
            state.see_everything(0);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_BOUND, |_, state| one_bound_object_of_an_address(state)),
            Property::always(NO_TWO_CLAIMS, |_, state| no_two_claims_have_one_address(state)),
            Property::always(BOUND_HAS, |_, state| bound_claims_have_their_address(state)),
            Property::always(BOUND_RESERVED, |_, state| bound_claims_have_their_reservation(state)),
            Property::always(NOT_REBOUND, |_, state: &State| !state.wrongs.rebound),
            Property::always(NOT_FREED, |_, state: &State| !state.wrongs.freed),
            Property::always(NOT_LEFT, |_, state: &State| !state.wrongs.left_behind),
            Property::always(PROTECTED, |_, state: &State| !state.wrongs.unprotected),
            Property::always(RECOVERS, Protocol::recovers),
            Property::sometimes("all claims are bound", all_are_bound),
            Property::sometimes("the last claims are bound", the_last_are_bound),
        ]
    }
}

/// I1.
pub(crate) const ONE_BOUND: &str = "of two IPAddress objects with one address at most one is a bound claim's";
/// I2.
pub(crate) const NO_TWO_CLAIMS: &str = "no two bound claims have one address";
/// I3.
pub(crate) const BOUND_HAS: &str = "a bound claim has its IPAddress, with the address it was bound to";
pub(crate) const BOUND_RESERVED: &str = "the address of a bound claim is reserved for it";
pub(crate) const NOT_REBOUND: &str = "the address of a bound claim never changes";
pub(crate) const NOT_FREED: &str = "no reservation is freed while its claim lives unbound or is bound to it";
/// I7.
pub(crate) const NOT_LEFT: &str = "a claim that is let go leaves no IPAddress behind";
pub(crate) const PROTECTED: &str = "no IPAddress is made for a claim without our finalizer";
pub(crate) const RECOVERS: &str = "once nothing goes wrong any more, all claims are served and nothing is left over";

fn one_bound_object_of_an_address(state: &State) -> bool {
    let used_by_bound = |name: usize| {
        let (claim, address) = (state.objects.claims[name]?, state.objects.addresses[name]?);
        // A late A3 may put back what a claim that is being let go has given up: nobody uses that any more.
        (claim.bound.is_some() && claim.life == address.owner && !address.posthumous).then_some(address.address)
    };
    used_by_bound(0).is_none() || used_by_bound(0) != used_by_bound(1)
}

fn bound_to(state: &State, name: usize) -> Option<u8> {
    state.objects.claims[name].filter(|claim| !claim.deleting)?.bound
}

fn no_two_claims_have_one_address(state: &State) -> bool {
    bound_to(state, 0).is_none() || bound_to(state, 0) != bound_to(state, 1)
}

fn bound_claims_have_their_address(state: &State) -> bool {
    (0..NAMES).all(|name| {
        let (Some(bound), Some(claim)) = (bound_to(state, name), state.objects.claims[name]) else { return true };
        state.objects.addresses[name].is_some_and(|found| found.owner == claim.life && found.address == bound)
    })
}

fn bound_claims_have_their_reservation(state: &State) -> bool {
    (0..NAMES).all(|name| {
        let (Some(bound), Some(claim)) = (bound_to(state, name), state.objects.claims[name]) else { return true };
        state.objects.reservations[usize::from(bound)].is_some_and(|held| held.is_for(name, claim.life))
    })
}

fn all_are_bound(protocol: &Protocol, state: &State) -> bool {
    (0..NAMES).filter(|name| bound_to(state, *name).is_some()).count()
        == protocol.scope.addresses.min(protocol.scope.lives.iter().filter(|lives| **lives > 0).count())
}

fn the_last_are_bound(protocol: &Protocol, state: &State) -> bool {
    (0..NAMES).any(|name| {
        let last = protocol.scope.lives[name];
        last > 1 && lives(state.objects.claims[name], last) && bound_to(state, name).is_some()
    }) || protocol.scope.lives.iter().all(|lives| *lives < 2)
}
