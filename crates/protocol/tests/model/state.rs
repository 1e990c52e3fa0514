//! The state: the objects in the API server, the caches and pending steps of each manager, and late
//! writes.
//!
//! Resource versions and uids are not numbered, so that the number of states is finite. A copy of
//! an object knows instead its relation to the object in the API server: see [`Age`]. Only the
//! lives of claims are numbered.

use capi_ipam_protocol::abandoned::Check;
use capi_ipam_protocol::adopt::Adopt;
use capi_ipam_protocol::allocate::Allocate;
use capi_ipam_protocol::bind::Bind;
use capi_ipam_protocol::clean_up::CleanUp;
use capi_ipam_protocol::free::Free;
use capi_ipam_protocol::release::Release;

/// The maximum numbers of claim names, addresses and managers. A [`crate::scope::Scope`] may use
/// fewer.
pub(crate) const NAMES: usize = 2;
pub(crate) const ADDRESSES: usize = 2;
pub(crate) const MANAGERS: usize = 2;
pub(crate) const LATE_WRITES: usize = 2;

/// The task of a manager that cleans up after claims that vanished; the others are one for each
/// name.
pub(crate) const CLEAN_UP: usize = NAMES;

/// The relation of a copy of an object to the object in the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Age {
    /// Same uid, same resource version.
    #[default]
    Current,
    /// Same uid, older resource version.
    Changed,
    /// The object was deleted; an object with its name is another one.
    Gone,
}

/// An IPAddressClaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    /// The uid: which claim of its name it is, starting with 1.
    pub(crate) life: u8,
    pub(crate) finalizer: bool,
    pub(crate) deleting: bool,
    /// The status names the IPAddress; this is the address it had at that moment.
    pub(crate) bound: Option<u8>,
    /// The label that managers select claims by.
    pub(crate) label: bool,
    /// Another controller has a finalizer on the claim: a machine may use the address.
    pub(crate) foreign: bool,
    pub(crate) age: Age,
}

/// An IPAddress. It has the name of its claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    /// The life of the claim that owns it, 0 when the garbage collector has removed the owner.
    pub(crate) owner: u8,
    pub(crate) address: u8,
    pub(crate) finalizer: bool,
    pub(crate) deleting: bool,
    /// It was created when its claim was being deleted or did not exist. Only the properties read
    /// this.
    pub(crate) posthumous: bool,
    /// Which member of a set the annotation names.
    pub(crate) member: Member,
    pub(crate) age: Age,
}

/// An IPReservation. Its name is the address. One that a user has created, to promise the address
/// to the claims of a name, has the life 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reservation {
    pub(crate) name: u8,
    pub(crate) life: u8,
    /// The claim has released the address, which cools down since then.
    pub(crate) released: bool,
    pub(crate) age: Age,
}

impl Reservation {
    /// Whether that claim holds the address.
    pub(crate) fn is_for(self, name: usize, life: u8) -> bool {
        usize::from(self.name) == name && self.life == life && !self.released
    }

    pub(crate) fn is_promise(self) -> bool {
        self.life == 0 && !self.released
    }

    /// Whether that claim may have the address: it holds it, or a user has promised it.
    pub(crate) fn is_ours(self, name: usize, life: u8) -> bool {
        let is_promised = self.is_promise() && usize::from(self.name) == name;
        self.is_for(name, life) || is_promised
    }
}

/// What the annotation of an IPAddress names, which a user can edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Member {
    /// The member of which the address is.
    #[default]
    Right,
    Missing,
    /// The other member.
    Wrong,
}

/// The set of pools. A member has the number of its only address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PoolSet {
    #[default]
    Listed,
    /// The other member is the first choice: a user has changed the order, or counts have changed.
    Reversed,
    /// The first member has left the set.
    Left,
}

impl PoolSet {
    pub(crate) const ALL: [Self; 3] = [Self::Listed, Self::Reversed, Self::Left];

    /// The members, in the order in which they are tried.
    pub(crate) fn members(self) -> &'static [usize] {
        match self {
            Self::Listed => &[0, 1],
            Self::Reversed => &[1, 0],
            Self::Left => &[1],
        }
    }
}

/// The pool. It is never recreated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Pool {
    #[default]
    Serving,
    Deleting,
    Gone,
}

/// A write with its preconditions.
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
    /// R2, and deletions by the sweeper.
    /// Carries the uid, and if `exact` the resource version too.
    Unreserve { address: u8, age: Age, exact: bool },
    /// A claim takes over a released reservation.
    TakeReleased {
        address: u8,
        name: u8,
        life: u8,
        age: Age,
    },
    /// A later claim of the same name takes over a reservation that is not released. Carries the
    /// uid, and if `exact` the resource version too.
    TakeOver {
        address: u8,
        name: u8,
        life: u8,
        age: Age,
        exact: bool,
    },
    /// R2 where the pool has a cool-down.
    MarkReleased { address: u8, age: Age },
    /// R3.
    RemoveFinalizer { name: u8, age: Age },
    /// The pool loses our finalizer. It carries uid and resource version; nothing but its deletion
    /// changes them here.
    RemovePoolFinalizer,
}

/// The request that a manager sends next for one claim. Where a step of a machine takes several
/// requests, they follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    #[default]
    None,
    AddFinalizer,
    ReadAddress,
    ReadClaim,
    CreateAddress,
    RepairAddress,
    Commit,
    /// The removal of an IPAddress: its finalizer, then the object.
    Strip,
    Delete,
    RemoveFinalizer,
    /// A reservation that should be that of the claim.
    ReadHeld,
    Reserve,
    /// The read that decides after a creation.
    ReadCreated,
    /// Takes over a released reservation.
    TakeReleased,
    /// Takes over the reservation of an earlier claim.
    TakeOver,
    /// The read that decides after a change of a reservation.
    ReadChanged,
    /// The holder of the address of an IPAddress.
    ReadHolder,
    /// The reservation of the deleted IPAddress.
    ReadReleased,
    Unreserve,
    MarkReleased,
}

/// The operation of a reconcile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Operation {
    #[default]
    None,
    Bind(Bind),
    Release(Release),
    /// The clean-up of a claim that seems to have vanished.
    CleanUp(CleanUp),
}

/// What the provider does during an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Provider {
    #[default]
    Idle,
    Allocate(Allocate),
    Adopt(Adopt),
    Free(Free),
}

/// The result of A2, if it was concurrent with A1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Early {
    Allocated,
    Failed,
}

/// One reconcile of one claim: the machines of the product, and what their driver keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Task {
    pub(crate) operation: Operation,
    /// The clean-up during a bind or a release, which starts with a read of the claim.
    pub(crate) clean_up: Option<CleanUp>,
    pub(crate) provider: Provider,
    pub(crate) request: Request,
    pub(crate) claim: Claim,
    pub(crate) existing: Option<Address>,
    /// The address that is being checked, reserved, created or released.
    pub(crate) address: u8,
    /// The reservation of this address, as it was read or known before its change.
    pub(crate) found: Age,
    /// Where the lookup of held addresses continues.
    pub(crate) next_held: u8,
    /// The member of the set that is tried.
    pub(crate) member: u8,
    /// The number of members of the set that were tried.
    pub(crate) tried: u8,
    /// The address of the IPAddress that this task has deleted, if its reservation is looked up.
    pub(crate) deleted: Option<u8>,
    /// The change of a reservation has an unknown outcome.
    pub(crate) is_unknown: bool,
    pub(crate) early: Option<Early>,
    /// This task has marked the address in the ledger as about to be reserved.
    pub(crate) announced: bool,
}

impl Task {
    pub(crate) fn is_idle(&self) -> bool {
        self.operation == Operation::None
    }
}

/// The next request of the sweeper of a manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Sweep {
    #[default]
    Idle,
    /// A reservation seems orphaned. It was read and is held by this claim; next is the step of the
    /// check.
    Check {
        address: u8,
        name: u8,
        life: u8,
        age: Age,
        check: Check,
    },
    Unreserve {
        address: u8,
        age: Age,
    },
    /// The same where the pool has a cool-down.
    MarkReleased {
        address: u8,
        age: Age,
    },
    /// An IPAddress seems orphaned. It was read; next its claim is read.
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
    /// An address that cools down seems to be used by an IPAddress of this name. The reservation
    /// was read; next the IPAddress is read.
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
    /// The claim was read, and is bound: the reservation becomes its own.
    TakeForUse {
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

/// The next request of a manager for the deleted pool, after the list of reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PoolStep {
    #[default]
    Idle,
    ListAddresses,
    RemoveFinalizer,
}

/// The memory of a manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Manager {
    pub(crate) claims: [Option<Claim>; NAMES],
    pub(crate) addresses: [Option<Address>; NAMES],
    pub(crate) ledger: [Option<Reservation>; ADDRESSES],
    pub(crate) proposed: [bool; ADDRESSES],
    /// The claims and addresses of attempts with an unknown outcome.
    pub(crate) attempts: [Option<(u8, u8)>; NAMES],
    pub(crate) pool: Pool,
    pub(crate) set: PoolSet,
    /// The pending response to a list of reservations.
    pub(crate) listed: Option<[Option<Reservation>; ADDRESSES]>,
    /// The watch has shown a newer state than that.
    pub(crate) overtaken: [bool; ADDRESSES],
    /// The ledger shows a reservation of which the watch has already shown a newer state.
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
        let has_task = self.tasks.iter().any(|task| !task.is_idle());
        self.sweep == Sweep::Idle
            && self.pool_step == PoolStep::Idle
            && self.listed.is_none()
            && !has_task
    }

    /// The tasks for claims of that name.
    pub(crate) fn tasks_of(&mut self, name: usize) -> impl Iterator<Item = &mut Task> {
        let cleaning = usize::from(self.cleaning);
        let is_of = move |slot: usize| slot == name || (slot == CLEAN_UP && cleaning == name);
        self.tasks
            .iter_mut()
            .enumerate()
            .filter(move |(slot, _)| is_of(*slot))
            .map(|(_, task)| task)
    }

    /// A reservation was deleted: the ledger removes it, unless it contains a later one.
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
    pub(crate) set: PoolSet,
}

/// Violations at a write, detected with the global state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Violations {
    /// A claim was released although its IPAddress existed.
    pub(crate) left_behind: bool,
    /// A reservation was deleted whose claim lived unbound, or was bound to that address.
    pub(crate) freed: bool,
    /// A remaining claim has lost or changed its address, or the bind of a deleted claim affected
    /// its successor.
    pub(crate) rebound: bool,
    /// A claim without finalizer got an IPAddress.
    pub(crate) unprotected: bool,
    /// An address was reserved again during its cool-down.
    pub(crate) too_early: bool,
    /// The pool was removed while an IPAddress of it existed.
    pub(crate) pool_missing: bool,
}

/// The whole state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) objects: Objects,
    pub(crate) managers: [Manager; MANAGERS],
    /// Writes that timed out and may be applied at any time.
    pub(crate) late: [Option<Write>; LATE_WRITES],
    /// How many claims of each name have been created.
    pub(crate) lives: [u8; NAMES],
    /// The addresses whose period is not over, and the names of the claims that have released them.
    pub(crate) cooling: [Option<u8>; ADDRESSES],
    /// The pool keeps released addresses for their claims.
    pub(crate) is_sticky: bool,
    /// A claim has got the address back that the last claim of its name had.
    pub(crate) got_back: bool,
    /// How many faults of each kind may still happen.
    pub(crate) crashes_left: u8,
    pub(crate) lost_replies_left: u8,
    pub(crate) late_writes_left: u8,
    pub(crate) vanishings_left: u8,
    pub(crate) forced_left: u8,
    pub(crate) relabels_left: u8,
    pub(crate) lists_left: u8,
    pub(crate) second_updates_left: u8,
    pub(crate) promises_left: u8,
    pub(crate) set_changes_left: u8,
    pub(crate) edits_left: u8,
    pub(crate) violations: Violations,
}
