//! How large the world of the model is, and what may go wrong in it.

use capi_ipam::mistakes::Mistake;
use capi_ipam::state::{Address, ADDRESSES, Claim, MANAGERS, NAMES, Objects, Reservation, State};

/// Which claims a manager serves. The name of a claim stands for its namespace too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    Everything,
    /// The claims with the label of the manager: `--watch-filter`. Claims are created with the label `false`.
    Label(bool),
    /// The claims of one namespace: `--namespace`.
    Name(usize),
}

/// What is there at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Start {
    #[default]
    Nothing,
    /// A bound claim of the second name whose IPAddress has no reservation, as the Go provider leaves it.
    TakenOver,
    /// The same with its reservation.
    Bound,
    /// The first address was released a moment ago.
    Released,
    /// The first address was released, and then allocated to a claim of the second name by a provider that knows nothing
    /// of reservations.
    UsedAgain,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) managers: usize,
    /// How many addresses the pool has.
    pub(crate) addresses: usize,
    /// How many claims of each name are created, one after the other.
    pub(crate) lives: [u8; NAMES],
    pub(crate) start: Start,
    pub(crate) crashes: u8,
    pub(crate) lost_replies: u8,
    pub(crate) late_writes: u8,
    /// How many claims vanish although they have our finalizer.
    pub(crate) vanishings: u8,
    /// How often the label of a claim changes.
    pub(crate) relabels: u8,
    /// How often a manager lists all reservations. The answer reaches the ledger at any later time.
    pub(crate) lists: u8,
    /// A list may take longer than the ledger remembers which reservations were deleted.
    pub(crate) slow_lists: bool,
    /// The first manager always knows everything.
    pub(crate) prompt: bool,
    /// How often the watches of the second manager catch up, all of them taken together.
    pub(crate) glimpses: u8,
    pub(crate) serves: [Serves; MANAGERS],
    /// Claims are watched with a selector: a manager sees only those that it serves, and one that leaves the selector
    /// looks deleted.
    pub(crate) selector: bool,
    /// Managers clean up after claims that seem to have been deleted without having been released.
    pub(crate) clean_up: bool,
    /// Managers have a sweeper. Recovery always has one.
    pub(crate) sweepers: bool,
    /// The garbage collector strikes out owners that are gone.
    pub(crate) collector: bool,
    /// A1 and A2 are done in the same time, where no IPAddress is known.
    pub(crate) early: bool,
    /// A released address cools down before it is allocated again.
    pub(crate) cooldown: bool,
    /// The pool may be deleted.
    pub(crate) pool_deletion: bool,
    /// What is done wrong on purpose.
    pub(crate) mistake: Option<Mistake>,
}

/// One manager, one address, one claim; nothing goes wrong.
pub(crate) const SMALLEST: Scope = Scope {
    managers: 1,
    addresses: 1,
    lives: [1, 0],
    start: Start::Nothing,
    crashes: 0,
    lost_replies: 0,
    late_writes: 0,
    vanishings: 0,
    relabels: 0,
    lists: 0,
    slow_lists: false,
    prompt: false,
    glimpses: 0,
    serves: [Serves::Everything; MANAGERS],
    selector: false,
    clean_up: false,
    sweepers: false,
    collector: false,
    early: true,
    cooldown: false,
    pool_deletion: false,
    mistake: None,
};

/// Two managers with labels of their own.
pub(crate) const BY_LABEL: [Serves; MANAGERS] = [Serves::Label(false), Serves::Label(true)];
/// A manager that serves all claims, and one that serves the second namespace.
pub(crate) const LIMITED_SECOND: [Serves; MANAGERS] = [Serves::Everything, Serves::Name(1)];
/// Two managers with namespaces of their own.
pub(crate) const BY_NAMESPACE: [Serves; MANAGERS] = [Serves::Name(0), Serves::Name(1)];

impl Scope {
    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    pub(crate) fn serves(&self, manager: usize, name: usize, claim: Claim) -> bool {
        match self.serves[manager] {
            Serves::Everything => true,
            Serves::Label(label) => claim.label == label,
            Serves::Name(own) => own == name,
        }
    }

    /// Whether any manager serves a claim.
    pub(crate) fn is_served(&self, name: usize, claim: Claim) -> bool {
        (0..self.managers).any(|manager| self.serves(manager, name, claim))
    }

    /// What there is at the beginning. All managers know it: they list everything before they do anything.
    pub(crate) fn beginning(&self) -> State {
        let mut state = State {
            crashes_left: self.crashes,
            lost_replies_left: self.lost_replies,
            late_writes_left: self.late_writes,
            vanishings_left: self.vanishings,
            relabels_left: self.relabels,
            lists_left: self.lists,
            glimpses_left: self.glimpses,
            ..State::default()
        };
        let released = Reservation { released: true, ..Reservation::default() };
        if matches!(self.start, Start::TakenOver | Start::Bound | Start::UsedAgain) {
            let claim = Claim { life: 1, finalizer: true, bound: Some(0), ..Claim::default() };
            let address = Address { owner: 1, address: 0, finalizer: true, ..Address::default() };
            state.objects.claims[SECOND] = Some(claim);
            state.objects.addresses[SECOND] = Some(address);
            state.lives[SECOND] = 1;
        }
        state.objects.reservations[0] = match self.start {
            Start::Nothing | Start::TakenOver => None,
            Start::Bound => Some(Reservation { name: 1, life: 1, ..Reservation::default() }),
            Start::Released | Start::UsedAgain => Some(released),
        };
        state.cooling[0] = self.start == Start::Released;
        for manager in 0..self.managers {
            state.see_everything(self, manager);
        }
        state
    }

    /// Whether the pool may go while an address of it is being allocated: a manager that has not learned of its deletion is
    /// at work, or a reservation is made by a write that was given up.
    pub(crate) fn pool_may_be_missing(&self) -> bool {
        self.managers > 1 || self.late_writes > 0
    }

    /// Whether an IPAddress of a pool that is gone may be left until its claim goes, or a later one of its name.
    pub(crate) fn leaves_addresses(&self) -> bool {
        self.pool_may_be_missing() || self.vanishings > 0
    }

    /// Whether a claim had an address before there were reservations.
    pub(crate) fn was_taken_over(&self, name: usize, life: u8) -> bool {
        matches!(self.start, Start::TakenOver | Start::UsedAgain) && name == SECOND && life == 1
    }

    /// The addresses of the pool that some object names.
    pub(crate) fn taken(&self, objects: &Objects) -> usize {
        let in_use =
            |address: usize| objects.addresses.iter().flatten().any(|held| usize::from(held.address) == address);
        (0..self.addresses.min(ADDRESSES))
            .filter(|&address| objects.reservations[address].is_some() || in_use(address))
            .count()
    }
}

/// The name of the claim that is there at the beginning.
const SECOND: usize = 1;
