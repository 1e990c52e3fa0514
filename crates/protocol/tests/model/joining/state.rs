//! The objects, and what each manager knows of them.

use super::{Mutation, Scope};

pub(super) const ADDRESSES: usize = 2;
/// Two claims of the pool, of which the first is bound in the initial state, and one of the other
/// pool.
pub(super) const CLAIMS: usize = 3;
pub(super) const OF_OTHER_POOL: u8 = 2;

/// The initial objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The pool does not belong to the network.
    Outside,
    /// The pool belongs to the network.
    Member,
    /// The pool belonged to the network. It was restored without its status, and before the
    /// network.
    Restored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Network {
    Valid,
    /// Its specification is not valid.
    Invalid,
    /// It has a deletionTimestamp; its finalizer waits for the pools.
    Deleting,
    /// Its finalizer was removed by force, or it is not restored yet.
    Missing,
}

impl Network {
    /// What can happen to the network next.
    pub(super) fn next(self) -> &'static [Self] {
        match self {
            Self::Valid => &[Self::Invalid, Self::Deleting],
            Self::Invalid => &[Self::Valid, Self::Deleting],
            Self::Deleting => &[Self::Missing],
            Self::Missing => &[Self::Valid],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Claim {
    Waiting,
    Bound(usize),
    /// Its IPAddress is deleted, and its reservations are not.
    Releasing,
    Gone,
}

/// A scope: that of the network, or that of the pool.
pub(super) type InNetwork = bool;

pub(super) fn index(scope: InNetwork) -> usize {
    usize::from(scope)
}

/// What the status of the pool states about the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Status {
    /// Nothing.
    None,
    /// The pool belongs to it.
    Member,
    /// The pool has left it, and still has reservations in it.
    Left,
}

/// What a manager has recorded of the scope of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Record {
    /// Nothing: the pool never was in the network, as far as is known.
    Unknown,
    /// The pool has left the network by an explicit change.
    Left,
    /// The pool is in the network. It may be known only from its status or its reservations.
    Network { is_inherited: bool },
}

/// The object of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pool {
    /// The network selects it.
    pub(super) label: bool,
    /// Its annotation says that it leaves the network.
    pub(super) leaves: bool,
    pub(super) status: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    Idle,
    Reserve(InNetwork, usize),
    /// Compares the scope of the reservation with that of the pool.
    Check(InNetwork, usize),
    Bind(usize),
}

/// The next request of a mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// Creates the reservation in the new scope.
    Create,
    /// Writes into the one that exists there which version of the old one was read.
    Mark,
    /// Deletes the old reservation in the version that was read.
    Delete,
    /// Deletes the new reservation in the version that was created.
    Undo,
}

/// What has happened to a reservation since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Since {
    Unchanged,
    Changed,
    /// Another one may have its name.
    Deleted,
}

/// The move of a reservation to the other scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Move {
    pub(super) next: Request,
    pub(super) address: usize,
    pub(super) holder: u8,
    pub(super) target: InNetwork,
    /// The old reservation.
    pub(super) old: Since,
    /// The move has created the new reservation, which has not changed since.
    pub(super) has_own_copy: bool,
}

/// The holder of each address in the scope of the pool, and in that of the network.
pub(super) type Reservations = [[Option<u8>; ADDRESSES]; 2];

/// All addresses of both scopes.
pub(super) const SLOTS: [(InNetwork, usize); 4] = [(false, 0), (false, 1), (true, 0), (true, 1)];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Manager {
    /// The network and the pool as last observed.
    pub(super) network: Network,
    pub(super) pool: Pool,
    /// What the status of the pool has shown: that the network disappears from it shows that the
    /// pool has left.
    pub(super) shown: Status,
    pub(super) record: Record,
    /// Whether the network refuses the pool, which keeps its scope and does not allocate then.
    pub(super) is_refused: bool,
    pub(super) ledger: Reservations,
    pub(super) tasks: [Task; CLAIMS],
    pub(super) attempts: [Option<(InNetwork, usize)>; CLAIMS],
    pub(super) mover: Option<Move>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) network: Network,
    pub(super) pool: Pool,
    pub(super) reservations: Reservations,
    /// The reservations that name the one of the other scope in its present version.
    pub(super) marks: [[bool; ADDRESSES]; 2],
    pub(super) claims: [Claim; CLAIMS],
    /// A write that is applied later.
    pub(super) late: Option<(InNetwork, usize, u8)>,
    pub(super) managers: Vec<Manager>,
    /// Whether an address was last proposed for a claim when it was recorded that the pool is a
    /// member.
    pub(super) is_informed: [[bool; ADDRESSES]; CLAIMS],
    /// Whether the pool ever said that it leaves the network.
    pub(super) has_said_so: bool,
    pub(super) label_changes_left: u8,
    pub(super) network_changes_left: u8,
    pub(super) crashes_left: u8,
    pub(super) unknown_left: u8,
}

impl Manager {
    /// A manager that has just listed all objects.
    pub(super) fn start(
        model: &Scope,
        network: Network,
        pool: Pool,
        reservations: Reservations,
    ) -> Self {
        let mut manager = Self {
            network,
            pool,
            shown: pool.status,
            record: Record::Unknown,
            is_refused: false,
            ledger: reservations,
            tasks: [Task::Idle; CLAIMS],
            attempts: [None; CLAIMS],
            mover: None,
        };
        if model.mutation == Some(Mutation::DecideBeforeList) {
            manager.ledger = Reservations::default();
            manager.decide(model);
            manager.ledger = reservations;
        }
        manager.decide(model);
        manager
    }

    /// The manager observes the object of the pool.
    pub(super) fn see_pool(&mut self, model: &Scope, pool: Pool) {
        self.pool = pool;
        let before = self.shown;
        self.shown = match (pool.status, before) {
            (Status::None, Status::Member | Status::Left) => Status::Left,
            (status, _) => status,
        };
        // Only another manager states that the pool is no longer in the network in which this one
        // has it.
        if let Record::Network { is_inherited } = &mut self.record
            && before == Status::Member
            && self.shown != before
        {
            *is_inherited = true;
        }
        self.decide(model);
    }

    /// Whether the pool is in the network.
    pub(super) fn is_member(&self) -> InNetwork {
        matches!(self.record, Record::Network { .. })
    }

    /// Decides on the scope of the pool. Only a valid network that does not select the pool any
    /// more is left.
    pub(super) fn decide(&mut self, model: &Scope) {
        let is_open = match self.network {
            Network::Valid => false,
            Network::Deleting => model.mutation == Some(Mutation::LeaveDeleted),
            Network::Invalid => model.mutation == Some(Mutation::LeaveInvalid),
            Network::Missing => model.mutation == Some(Mutation::LeaveMissing),
        };
        let selects = self.pool.label && self.network != Network::Missing && !is_open;
        let is_valid = matches!(self.network, Network::Valid | Network::Deleting) || is_open;
        let may_join =
            !model.has_other_length || model.mutation == Some(Mutation::JoinWithOtherLength);
        let accepts = self.network == Network::Valid && may_join;
        let record = self.with_evidence(model);
        let is_known = matches!(record, Record::Network { .. });
        let may_leave = self.pool.leaves || !self.uses_network(model);
        let leaves = is_known && !selects && is_valid && may_leave;
        (self.record, self.is_refused) = if (is_known && !leaves) || selects {
            let joined = Record::Network {
                is_inherited: false,
            };
            if accepts {
                (joined, false)
            } else {
                (record, true)
            }
        } else {
            (if leaves { Record::Left } else { record }, false)
        };
        // Another manager has observed that the pool joined.
        if self.is_refused && self.shown == Status::Member && !self.is_member() {
            self.record = Record::Network {
                is_inherited: false,
            };
        }
    }

    /// Whether the pool has addresses in the network that are reserved or proposed.
    fn uses_network(&self, model: &Scope) -> bool {
        let of_pool = |holder: &Option<u8>| holder.is_some_and(|holder| holder != OF_OTHER_POOL);
        let pool_claims = self.tasks.iter().take(usize::from(OF_OTHER_POOL));
        let mut tasks = pool_claims.filter(|task| matches!(task, Task::Reserve(true, _)));
        let is_used = self.ledger[index(true)].iter().any(of_pool) || tasks.next().is_some();
        is_used && model.mutation != Some(Mutation::LeaveUnlabelled)
    }

    /// The record, with what the status and the reservations of the pool show about the time before
    /// this process.
    fn with_evidence(&self, model: &Scope) -> Record {
        let of_pool = |holder: &Option<u8>| holder.is_some_and(|holder| holder != OF_OTHER_POOL);
        let has_reservations = self.ledger[index(true)].iter().any(of_pool);
        let (status, has_reservations) = match model.mutation {
            Some(Mutation::ForgetAtStart) => (Status::None, false),
            Some(Mutation::IgnoreStatusAtStart) => (Status::None, has_reservations),
            Some(Mutation::IgnoreReservationsAtStart) => (self.shown, false),
            _ => (self.shown, has_reservations),
        };
        let inherited = Record::Network { is_inherited: true };
        match (self.record, status) {
            (Record::Unknown, Status::Member) => inherited,
            (Record::Unknown, Status::Left) => Record::Left,
            (Record::Unknown, Status::None) if has_reservations => inherited,
            (Record::Network { is_inherited: true }, Status::Left) => Record::Left,
            (record, _) => record,
        }
    }

    /// What the manager writes into the status of the pool.
    pub(super) fn status(&self) -> Status {
        let of_pool = |holder: &Option<u8>| holder.is_some_and(|holder| holder != OF_OTHER_POOL);
        match (
            self.is_member(),
            self.ledger[index(true)].iter().any(of_pool),
        ) {
            (true, _) => Status::Member,
            (false, true) => Status::Left,
            (false, false) => Status::None,
        }
    }

    /// The scope of a claim's pool.
    pub(super) fn scope_of(&self, claim: usize) -> InNetwork {
        claim == usize::from(OF_OTHER_POOL) || self.is_member()
    }

    /// Whether the pool of a claim allocates addresses.
    pub(super) fn allocates(&self, claim: usize) -> bool {
        if claim == usize::from(OF_OTHER_POOL) {
            self.network == Network::Valid
        } else {
            !self.is_refused
        }
    }

    /// Whether a claim is bound to an address that is reserved for it.
    pub(super) fn continues(&self, claim: usize) -> bool {
        self.allocates(claim) || self.network == Network::Deleting
    }

    /// Whether the manager considers an address free in a scope.
    pub(super) fn is_free(
        &self,
        claims: &[Claim; CLAIMS],
        scope: InNetwork,
        address: usize,
        ignores_other: bool,
    ) -> bool {
        let of_pool = |holder: &u8| *holder != OF_OTHER_POOL;
        let is_candidate = |scope: InNetwork, only_pool: bool| {
            let tasks = self.tasks.iter().enumerate();
            tasks
                .filter(|(claim, _)| !only_pool || *claim != usize::from(OF_OTHER_POOL))
                .any(|(_, task)| *task == Task::Reserve(scope, address))
        };
        let mut claims = claims.iter().enumerate();
        let in_use = claims
            .any(|(claim, state)| self.scope_of(claim) == scope && *state == Claim::Bound(address));
        let other = !scope;
        let elsewhere = !ignores_other
            && self.is_member() == scope
            && (self.ledger[index(other)][address].is_some_and(|holder| of_pool(&holder))
                || is_candidate(other, true));
        self.ledger[index(scope)][address].is_none()
            && !in_use
            && !is_candidate(scope, false)
            && !elsewhere
    }

    /// The reservations of a claim in the scope of its pool.
    pub(super) fn held(&self, claim: usize) -> impl Iterator<Item = usize> + use<> {
        let held = self.ledger[index(self.scope_of(claim))];
        (0..ADDRESSES).filter(move |&address| {
            held[address].is_some_and(|holder| usize::from(holder) == claim)
        })
    }

    /// The addresses that the pool has reserved in the scope that it does not belong to. A refused
    /// pool keeps them.
    pub(super) fn movable(&self) -> impl Iterator<Item = usize> + use<> {
        let (other, is_refused) = (self.ledger[index(!self.is_member())], self.is_refused);
        let is_of_pool =
            move |address: usize| other[address].is_some_and(|holder| holder != OF_OTHER_POOL);
        (0..ADDRESSES).filter(move |&address| !is_refused && is_of_pool(address))
    }

    pub(super) fn is_conflict(&self, address: usize) -> bool {
        let scope = self.is_member();
        let present = self.ledger[index(scope)][address];
        present.is_some() && present != self.ledger[index(!scope)][address]
    }

    /// The reservations whose claims are gone or bound to other addresses.
    pub(super) fn abandoned(
        &self,
        claims: &[Claim; CLAIMS],
    ) -> impl Iterator<Item = (InNetwork, usize)> + use<> {
        let (ledger, claims) = (self.ledger, *claims);
        SLOTS.into_iter().filter(move |(scope, address)| {
            let holder = ledger[index(*scope)][*address];
            holder.is_some_and(|holder| match claims[usize::from(holder)] {
                Claim::Gone => true,
                Claim::Bound(own) => own != *address,
                Claim::Waiting | Claim::Releasing => false,
            })
        })
    }

    /// Whether nothing remains to be done, and all is observed.
    fn is_settled(&self, model: &Scope, state: &State) -> bool {
        let is_done = |claim: usize| match state.claims[claim] {
            Claim::Releasing => false,
            Claim::Waiting => self.held(claim).next().is_none(),
            Claim::Bound(_) | Claim::Gone => true,
        };
        self.ledger == state.reservations
            && self.network == state.network
            && self.pool == state.pool
            && (!model.records_status() || self.status() == state.pool.status)
            && self.mover.is_none()
            && self.tasks.iter().all(|task| *task == Task::Idle)
            && (0..CLAIMS).all(is_done)
            && self.abandoned(&state.claims).next().is_none()
            && self.movable().all(|address| self.is_conflict(address))
    }
}

impl State {
    pub(super) fn initial(model: &Scope) -> Self {
        let is_member = model.start != Start::Outside;
        let network = if model.start == Start::Restored {
            Network::Missing
        } else {
            Network::Valid
        };
        let status = if model.start == Start::Member {
            Status::Member
        } else {
            Status::None
        };
        let pool = Pool {
            label: is_member,
            leaves: false,
            status,
        };
        let mut reservations = Reservations::default();
        reservations[index(is_member)][0] = Some(0);
        let manager = Manager::start(model, network, pool, reservations);
        let waiting = |claim: usize| {
            if claim < model.claims {
                Claim::Waiting
            } else {
                Claim::Gone
            }
        };
        Self {
            network,
            pool,
            reservations,
            marks: Default::default(),
            claims: [Claim::Bound(0), waiting(1), waiting(2)],
            late: None,
            managers: vec![manager; model.managers],
            is_informed: [[false; ADDRESSES]; CLAIMS],
            has_said_so: false,
            label_changes_left: model.label_changes,
            network_changes_left: model.network_changes,
            crashes_left: model.crashes,
            unknown_left: model.unknown,
        }
    }

    /// Whether nothing remains to be done, and all is observed.
    pub(super) fn is_settled(&self, model: &Scope) -> bool {
        self.late.is_none()
            && self
                .managers
                .iter()
                .all(|manager| manager.is_settled(model, self))
    }

    /// A reservation is created, changed or deleted. It has another version then.
    pub(super) fn write(&mut self, scope: InNetwork, address: usize, holder: Option<u8>) {
        self.reservations[index(scope)][address] = holder;
        self.marks
            .iter_mut()
            .for_each(|marks| marks[address] = false);
        let moves = self
            .managers
            .iter_mut()
            .filter_map(|manager| manager.mover.as_mut());
        for it in moves.filter(|it| it.address == address) {
            if it.target == scope {
                it.has_own_copy = false;
            } else if holder.is_none() {
                it.old = Since::Deleted;
            } else if it.old == Since::Unchanged {
                it.old = Since::Changed;
            }
        }
    }

    /// A manager changes or deletes a reservation, and knows the result.
    pub(super) fn set(
        &mut self,
        manager: usize,
        scope: InNetwork,
        address: usize,
        holder: Option<u8>,
    ) {
        self.write(scope, address, holder);
        self.managers[manager].ledger[index(scope)][address] = holder;
    }

    /// A manager reads a reservation.
    pub(super) fn read(&mut self, manager: usize, scope: InNetwork, address: usize) -> Option<u8> {
        let present = self.reservations[index(scope)][address];
        self.managers[manager].ledger[index(scope)][address] = present;
        present
    }

    /// A reservation is created if its name does not exist. Returns whether it was created.
    pub(super) fn create(&mut self, scope: InNetwork, address: usize, holder: u8) -> bool {
        let is_free = self.reservations[index(scope)][address].is_none();
        if is_free {
            self.write(scope, address, Some(holder));
        }
        is_free
    }
}
