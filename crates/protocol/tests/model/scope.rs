//! The size of the model, and its possible faults.

use crate::mutations::Mutation;
use crate::state::{
    ADDRESSES, Address, Claim, MANAGERS, Member, NAMES, Objects, Pool, Reservation, State,
};

/// Which claims a manager serves. The name of a claim also represents its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    Everything,
    /// The claims with the label of the manager: `--watch-filter`. Claims are created with the
    /// label `false`.
    Label(bool),
    /// The claims of one namespace: `--namespace`.
    Name(usize),
}

/// The initial objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Start {
    #[default]
    Empty,
    /// A bound claim of the second name whose IPAddress has no reservation, as the Go provider
    /// leaves it.
    TakenOver,
    /// The same with its reservation.
    Bound,
    /// The first address was just released.
    Released,
    /// The first address was released, and then allocated to a claim of the second name by a
    /// provider without reservations.
    Reused,
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
    /// How many bound claims somebody removes without their release.
    pub(crate) forced: u8,
    /// How often the label of a claim changes.
    pub(crate) relabels: u8,
    /// How often a manager lists all reservations. The response reaches the ledger at any later
    /// time.
    pub(crate) lists: u8,
    /// A list may take longer than the ledger remembers which reservations were deleted.
    pub(crate) slow_lists: bool,
    /// The caches of the first manager are always current.
    pub(crate) first_is_current: bool,
    /// How often the watches of the second manager catch up, in total.
    pub(crate) second_updates: u8,
    pub(crate) serves: [Serves; MANAGERS],
    /// Claims are watched with a selector: a manager sees only those that it serves, and one that
    /// leaves the selector looks deleted.
    pub(crate) selector: bool,
    /// Managers clean up after claims that seem to have been deleted without having been released.
    pub(crate) clean_up: bool,
    /// Managers have a sweeper. Recovery always has one.
    pub(crate) sweepers: bool,
    /// The garbage collector removes deleted owners.
    pub(crate) collector: bool,
    /// A1 and A2 are concurrent where no IPAddress is known.
    pub(crate) early: bool,
    /// A released address cools down before it is allocated again.
    pub(crate) cooldown: bool,
    /// A claim gets the address back that the last claim of its name has released.
    pub(crate) sticky: bool,
    /// The pool is not sticky in the beginning.
    pub(crate) sticky_later: bool,
    /// All claims request the first address.
    pub(crate) requests: bool,
    /// The pool may be deleted.
    pub(crate) pool_deletion: bool,
    /// How many addresses a user promises to the claims of the first name.
    pub(crate) promises: u8,
    /// Another controller has a finalizer on each claim, and removes it after the deletion.
    pub(crate) foreign: bool,
    /// The claims name a set of two pools, each of which has one of the addresses. The pool that may
    /// be deleted is the first one.
    pub(crate) sets: bool,
    /// How often a user changes the set.
    pub(crate) set_changes: u8,
    /// How often a user edits the annotation that names the member of an IPAddress.
    pub(crate) edits: u8,
    /// What it names then.
    pub(crate) edited: Member,
    /// The injected error.
    pub(crate) mutation: Option<Mutation>,
}

/// One manager, one address, one claim; no faults.
pub(crate) const SMALLEST: Scope = Scope {
    managers: 1,
    addresses: 1,
    lives: [1, 0],
    start: Start::Empty,
    crashes: 0,
    lost_replies: 0,
    late_writes: 0,
    vanishings: 0,
    forced: 0,
    relabels: 0,
    lists: 0,
    slow_lists: false,
    first_is_current: false,
    second_updates: 0,
    serves: [Serves::Everything; MANAGERS],
    selector: false,
    clean_up: false,
    sweepers: false,
    collector: false,
    early: true,
    cooldown: false,
    sticky: false,
    sticky_later: false,
    requests: false,
    pool_deletion: false,
    promises: 0,
    foreign: false,
    sets: false,
    set_changes: 0,
    edits: 0,
    edited: Member::Missing,
    mutation: None,
};

/// Two managers with different labels.
pub(crate) const BY_LABEL: [Serves; MANAGERS] = [Serves::Label(false), Serves::Label(true)];
/// A manager that serves all claims, and one that serves the second namespace.
pub(crate) const LIMITED_SECOND: [Serves; MANAGERS] = [Serves::Everything, Serves::Name(1)];
/// Two managers with different namespaces.
pub(crate) const BY_NAMESPACE: [Serves; MANAGERS] = [Serves::Name(0), Serves::Name(1)];

impl Scope {
    pub(crate) fn has_mutation(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
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

    /// The initial state. All managers know it, since they list everything before they start to
    /// work.
    pub(crate) fn initial_state(&self) -> State {
        let mut state = State {
            crashes_left: self.crashes,
            lost_replies_left: self.lost_replies,
            late_writes_left: self.late_writes,
            vanishings_left: self.vanishings,
            forced_left: self.forced,
            relabels_left: self.relabels,
            lists_left: self.lists,
            second_updates_left: self.second_updates,
            promises_left: self.promises,
            set_changes_left: self.set_changes,
            edits_left: self.edits,
            is_sticky: self.sticky && !self.sticky_later,
            ..State::default()
        };
        let released = Reservation {
            released: true,
            ..Reservation::default()
        };
        if matches!(self.start, Start::TakenOver | Start::Bound | Start::Reused) {
            let claim = Claim {
                life: 1,
                finalizer: true,
                bound: Some(0),
                ..Claim::default()
            };
            let address = Address {
                owner: 1,
                address: 0,
                finalizer: true,
                ..Address::default()
            };
            state.objects.claims[SECOND] = Some(claim);
            state.objects.addresses[SECOND] = Some(address);
            state.lives[SECOND] = 1;
        }
        state.objects.reservations[0] = match self.start {
            Start::Empty | Start::TakenOver => None,
            Start::Bound => Some(Reservation {
                name: 1,
                life: 1,
                ..Reservation::default()
            }),
            Start::Released | Start::Reused => Some(released),
        };
        state.cooling[0] = (self.start == Start::Released).then_some(0);
        for manager in 0..self.managers {
            state.see_everything(self, manager);
        }
        state
    }

    /// Whether the pool may be removed while an address of it is being allocated: by a manager that
    /// has not observed its deletion, or by a late write that creates a reservation.
    pub(crate) fn pool_may_be_missing(&self) -> bool {
        self.managers > 1 || self.late_writes > 0
    }

    /// Whether an IPAddress of a removed pool may remain until its claim, or a later one of its
    /// name, is deleted.
    pub(crate) fn may_leave_addresses(&self) -> bool {
        self.pool_may_be_missing() || self.vanishings > 0
    }

    /// Whether a claim may have an address.
    pub(crate) fn may_have(&self, address: usize) -> bool {
        !self.requests || address == 0
    }

    /// Whether a claim had an address before there were reservations.
    pub(crate) fn was_taken_over(&self, name: usize, life: u8) -> bool {
        matches!(self.start, Start::TakenOver | Start::Reused) && name == SECOND && life == 1
    }

    /// The number of addresses that claims may have.
    pub(crate) fn allocatable(&self) -> usize {
        (0..self.addresses.min(ADDRESSES))
            .filter(|address| self.may_have(*address))
            .count()
    }

    /// Whether a pool that serves claims has an address that no object names.
    pub(crate) fn has_free_address(&self, objects: &Objects) -> bool {
        let in_use = |address: usize| {
            objects
                .addresses
                .iter()
                .flatten()
                .any(|held| usize::from(held.address) == address)
        };
        let is_offered = |address: usize| {
            let is_member = !self.sets || objects.set.members().contains(&address);
            is_member && (objects.pool == Pool::Serving || !self.is_in_pool(address))
        };
        (0..self.allocatable())
            .any(|at| is_offered(at) && objects.reservations[at].is_none() && !in_use(at))
    }

    /// Whether an address is one of the pool that may be deleted.
    pub(crate) fn is_in_pool(&self, address: usize) -> bool {
        !self.sets || address == 0
    }
}

/// The name of the initial claim.
const SECOND: usize = 1;
