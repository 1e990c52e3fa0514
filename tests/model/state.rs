//! What there is: the objects on the API server, what each manager believes of them, what it is doing, and what is
//! still on its way.
//!
//! There are no resource versions and no uids to count, so that the number of states is finite. A copy of an object
//! knows instead how it stands to the object on the server: see [`Age`]. Only the lives of claims are numbered.

/// How many names of claims, addresses and managers there may be. A [`crate::protocol::Scope`] may use fewer.
pub(crate) const NAMES: usize = 2;
pub(crate) const ADDRESSES: usize = 2;
pub(crate) const MANAGERS: usize = 2;
pub(crate) const LATE_WRITES: usize = 2;

/// The task of a manager that cleans up after claims that vanished; the others are one for each name.
pub(crate) const CLEAN_UP: usize = NAMES;

/// How a copy of an object stands to the object on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Age {
    /// Same uid, same resource version.
    #[default]
    Current,
    /// Same uid, older resource version.
    Changed,
    /// The object is gone; what has its name now is another one.
    Gone,
}

/// An IPAddressClaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    /// The uid: which claim of its name it is, beginning with 1.
    pub(crate) life: u8,
    pub(crate) finalizer: bool,
    pub(crate) deleting: bool,
    /// The status names the IPAddress; this is the address it had at that moment.
    pub(crate) bound: Option<u8>,
    /// The label that managers select claims by.
    pub(crate) label: bool,
    pub(crate) age: Age,
}

/// An IPAddress. It has the name of its claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    /// The life of the claim that owns it, 0 when the garbage collector has struck it out.
    pub(crate) owner: u8,
    pub(crate) address: u8,
    pub(crate) finalizer: bool,
    pub(crate) deleting: bool,
    /// It was made when its claim was being deleted or gone. Nobody reads this but the properties.
    pub(crate) posthumous: bool,
    pub(crate) age: Age,
}

/// An IPReservation. Its name is the address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reservation {
    pub(crate) name: u8,
    pub(crate) life: u8,
    /// The claim has given the address back, which cools down since.
    pub(crate) released: bool,
    pub(crate) age: Age,
}

impl Reservation {
    /// Whether that claim holds the address.
    pub(crate) fn is_for(self, name: usize, life: u8) -> bool {
        usize::from(self.name) == name && self.life == life && !self.released
    }
}

/// The pool. It is never created again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Pool {
    #[default]
    Serving,
    Deleting,
    Gone,
}

/// A write. What it was decided on is in it, as its preconditions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Write {
    /// A1.
    AddFinalizer { name: u8, age: Age },
    /// A2.
    Reserve { address: u8, name: u8, life: u8 },
    /// A3.
    CreateAddress { name: u8, life: u8, address: u8 },
    /// Adoption: owner and finalizer are set.
    RepairAddress { name: u8, life: u8, age: Age },
    /// A4.
    Bind { name: u8, address: u8, age: Age },
    /// R1, first half: the IPAddress loses our finalizer.
    StripAddress { name: u8, age: Age },
    /// R1, second half.
    DeleteAddress { name: u8, age: Age },
    /// R2, and what the sweeper and an adoption do.
    /// Carries the uid, and if `exact` the resource version too.
    Unreserve { address: u8, age: Age, exact: bool },
    /// R2 where the pool has a cool-down.
    MarkReleased { address: u8, age: Age },
    /// R3.
    LetGo { name: u8, age: Age },
    /// The pool loses our finalizer. It carries uid and resource version; nothing but its deletion changes them here.
    RemovePoolFinalizer,
}

/// What a manager is doing about one claim: the next call to the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step {
    #[default]
    Idle,
    AddFinalizer,
    /// Reads the IPAddress of the claim's name, which is known to be there.
    Look,
    /// Reads the claim: the IPAddress found is not owned by it.
    CheckBeforeAdoption,
    /// Reads a reservation that should be this claim's already.
    CheckReservation,
    Reserve,
    /// Reads the reservation after an attempt to create it.
    ReadReservation,
    /// Reads it again, for an adoption.
    ReadHolder,
    /// Reads the claim: the reservation is held by another of its name.
    CheckBeforeTakingOver,
    TakeOver,
    CreateAddress,
    /// Reads the IPAddress after an attempt to create it.
    ReadAddress,
    Repair,
    Bind,
    /// Reads the claim after a bind that was refused, or a finalizer that was not set.
    CheckAfterBind,
    /// Removal of an IPAddress, wherever it is done.
    Strip,
    Delete,
    ReleaseLook,
    /// Reads the claim: the IPAddress of a claim to be released is not owned by it.
    CheckBeforeRelease,
    Unreserve,
    /// Reads the reservation that is to be marked as released.
    ReadHeld,
    MarkReleased,
    ConfirmRelease,
    LetGo,
    /// Reads the claim that seems to have vanished.
    CheckBeforeCleanUp,
    UndoLook,
    /// Reads whether there is any claim of the name: the IPAddress found has no owner.
    UndoCheck,
}

/// What the removal of an IPAddress is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Purpose {
    #[default]
    Binding,
    Discarding,
    Releasing,
    Undoing,
}

/// One reconcile of one claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Task {
    pub(crate) step: Step,
    pub(crate) claim: Claim,
    pub(crate) existing: Option<Address>,
    /// The address that is being reserved, created or given back.
    pub(crate) address: u8,
    /// The reservation that was read, to be deleted.
    pub(crate) found: Age,
    pub(crate) purpose: Purpose,
    /// How often the IPAddress turned out to be another, and how often an adoption tried to reserve.
    pub(crate) rounds: u8,
    pub(crate) attempts: u8,
    /// The IPAddress that is being removed was not read, but is as the watch showed it.
    pub(crate) unread: bool,
    /// The IPAddress was seen to end.
    pub(crate) is_removed: bool,
    /// A1 is done along with A2, which comes first here: what A1 answers tells whether to go on.
    pub(crate) early: bool,
    /// A2 came to something.
    pub(crate) is_reserved: bool,
    /// This task has marked the address in the ledger as about to be reserved.
    pub(crate) announced: bool,
}

/// What the sweeper of a manager is doing: the next call to the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Sweep {
    #[default]
    Idle,
    /// A reservation looks abandoned. It was read and is held by this claim; next the IPAddress is read.
    ReadAddress {
        address: u8,
        name: u8,
        life: u8,
        age: Age,
    },
    /// Next the claim is read.
    ReadClaim {
        address: u8,
        name: u8,
        life: u8,
        age: Age,
        found: Option<u8>,
    },
    Unreserve {
        address: u8,
        age: Age,
    },
    /// An IPAddress looks abandoned. It was read; next its claim is read.
    CheckClaim {
        name: u8,
        found: Address,
    },
    Strip {
        name: u8,
        found: Address,
    },
    Delete {
        name: u8,
        age: Age,
    },
    /// A cool-down seems to be over. The reservation was read and is released.
    EndCooldown {
        address: u8,
        age: Age,
    },
    /// An address cools down that an IPAddress of this name seems to have. The reservation was read; next the IPAddress
    /// is.
    CheckUse {
        address: u8,
        name: u8,
        age: Age,
    },
    /// The IPAddress was read, and is owned by this claim; next the claim is read.
    CheckUser {
        address: u8,
        name: u8,
        owner: u8,
        age: Age,
    },
    /// The same in the wrong order.
    ReadReleased {
        address: u8,
    },
}

/// What a manager is doing about the deleted pool: the next call to the API server, the list of reservations aside,
/// which is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PoolStep {
    #[default]
    Idle,
    ListAddresses,
    RemoveFinalizer,
}

/// A manager. All of it is in memory only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Manager {
    pub(crate) claims: [Option<Claim>; NAMES],
    pub(crate) addresses: [Option<Address>; NAMES],
    pub(crate) ledger: [Option<Reservation>; ADDRESSES],
    pub(crate) proposed: [bool; ADDRESSES],
    pub(crate) pool: Pool,
    /// The answer to a list of reservations that is on its way.
    pub(crate) listed: Option<[Option<Reservation>; ADDRESSES]>,
    /// The watch has shown something newer than that.
    pub(crate) overtaken: [bool; ADDRESSES],
    /// The ledger shows a reservation of which the watch has already shown something newer.
    pub(crate) phantoms: [bool; ADDRESSES],
    /// One task for each name, and the clean-up.
    pub(crate) tasks: [Task; NAMES + 1],
    /// The name of the claim that is cleaned up after.
    pub(crate) cleaning: u8,
    pub(crate) sweep: Sweep,
    pub(crate) pool_step: PoolStep,
}

impl Manager {
    pub(crate) fn is_idle(&self) -> bool {
        let has_task = self.tasks.iter().any(|task| task.step != Step::Idle);
        self.sweep == Sweep::Idle && self.pool_step == PoolStep::Idle && self.listed.is_none() && !has_task
    }

    /// The tasks that are about claims of that name.
    pub(crate) fn tasks_of(&mut self, name: usize) -> impl Iterator<Item = &mut Task> {
        let cleaning = usize::from(self.cleaning);
        let is_of = move |slot: usize| slot == name || (slot == CLEAN_UP && cleaning == name);
        self.tasks.iter_mut().enumerate().filter(move |(slot, _)| is_of(*slot)).map(|(_, task)| task)
    }

    /// A reservation has been deleted: the ledger forgets it, unless it knows of a later one.
    pub(crate) fn forget(&mut self, address: usize) {
        if self.ledger[address].is_none_or(|known| known.age == Age::Gone) {
            self.learn(address, None);
        }
    }
}

/// The objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Objects {
    pub(crate) claims: [Option<Claim>; NAMES],
    pub(crate) addresses: [Option<Address>; NAMES],
    pub(crate) reservations: [Option<Reservation>; ADDRESSES],
    pub(crate) pool: Pool,
}

/// What went wrong at a write, told by who knows more than any manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Wrongs {
    /// A claim was let go with the IPAddress that it had.
    pub(crate) left_behind: bool,
    /// A reservation was deleted whose claim lived unbound, or was bound to that address.
    pub(crate) freed: bool,
    /// A claim that stays has lost or changed its address, or a dead claim's bind hit its successor.
    pub(crate) rebound: bool,
    /// A claim without finalizer got an IPAddress.
    pub(crate) unprotected: bool,
    /// An address was reserved again during its cool-down.
    pub(crate) too_early: bool,
    /// The pool went while there was an IPAddress of it.
    pub(crate) pool_missing: bool,
}

/// Everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) objects: Objects,
    pub(crate) managers: [Manager; MANAGERS],
    /// Writes that a manager gave up, and that may be applied at any time.
    pub(crate) late: [Option<Write>; LATE_WRITES],
    /// How many claims of each name have been created.
    pub(crate) lives: [u8; NAMES],
    /// The addresses that were released, and whose period is not over.
    pub(crate) cooling: [bool; ADDRESSES],
    /// How many faults of each kind may still happen.
    pub(crate) crashes_left: u8,
    pub(crate) lost_replies_left: u8,
    pub(crate) late_writes_left: u8,
    pub(crate) vanishings_left: u8,
    pub(crate) relabels_left: u8,
    pub(crate) lists_left: u8,
    pub(crate) glimpses_left: u8,
    pub(crate) wrongs: Wrongs,
}
