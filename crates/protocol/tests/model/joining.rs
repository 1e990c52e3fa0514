//! A model of a pool that joins and leaves a network while its addresses are allocated and
//! released, and while the network is deleted, removed by force, made invalid, repaired and
//! restored.
//!
//! One or two managers, the pool, another pool that always belongs to the network, and two
//! addresses that both have. The network selects the pool by its label. Each manager observes the
//! network, the pool and the reservations late, and independently of each other. It may crash at
//! any step. The creation of a reservation may have an unknown outcome: its reply is lost, or it is
//! applied at any later time.
//!
//! | step of the model | implementation |
//! |---|---|
//! | `Manager::{decide, with_evidence}` | `scope_rule::{decide, with_evidence}` |
//! | `Manager::see_pool` | `PoolEntry::set_status_record` |
//! | `Record`, `Manager::status` | the status of a pool, with `Ledger::pool_network` |
//! | `propose`, `is_free` | `Ledger::propose`, and the counts `AddressUsage::elsewhere` |
//! | `Reserve`, `attempt` | `InClusterHandler::{allocate, reserve}`, `Ledger::attempt` |
//! | `Check` | `Allocating::check_pool` |
//! | `Bind` | A3 and A4 |
//! | `Release` | `in_cluster/release.rs` |
//! | `Move`, `Continue`, `GiveUp` | `scope_changes::move_one` |
//! | `Sweep` | `AbandonedReservations::release` |

mod properties;
mod state;
mod steps;

use state::{CLAIMS, Start};

use crate::checks::{assert_holds, assert_violated};

/// An injected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// The mover deletes the old reservation before it creates the new one.
    DeleteFirst,
    /// The mover deletes the old reservation although it has not written the new one, which
    /// existed.
    DeleteUnmarked,
    /// A claim is bound although the pool has changed its scope since its address was proposed.
    BindInFormerScope,
    /// An address that is reserved in another scope counts as free.
    IgnoreOtherScope,
    /// A network that is being deleted selects no pools.
    LeaveDeleted,
    /// A network whose specification is not valid selects no pools.
    LeaveInvalid,
    /// A network that does not exist selects no pools.
    LeaveMissing,
    /// A manager that starts while the network does not exist knows no member of it.
    ForgetAtStart,
    /// The same if the pool has no reservation in the network.
    IgnoreStatusAtStart,
    /// The same if the status of the pool does not name the network.
    IgnoreReservationsAtStart,
    /// A pool with another block length belongs to the network that selects it.
    JoinWithOtherLength,
    /// A pool with addresses in use leaves the network when its label is removed.
    LeaveUnlabelled,
    /// A manager that starts decides before it has listed the reservations.
    DecideBeforeList,
}

/// The size of the model, and its possible faults.
#[derive(Clone, Copy, Debug)]
struct Scope {
    start: Start,
    managers: usize,
    /// How often the label of the pool is added or removed, with or without an explicit word.
    label_changes: u8,
    /// How often the network changes.
    network_changes: u8,
    crashes: u8,
    /// How many reservations have an unknown outcome.
    unknown: u8,
    /// How many claims exist: the one that is bound at the start, one of its pool that waits, and
    /// one of the other pool.
    claims: usize,
    /// The pool has another block length than the network.
    has_other_length: bool,
    /// How many managers, from the first one, have caches that are always current.
    current: usize,
    mutation: Option<Mutation>,
}

/// One manager, and a network that does not change.
const STABLE: Scope = Scope {
    start: Start::Outside,
    managers: 1,
    label_changes: 2,
    network_changes: 0,
    crashes: 1,
    unknown: 1,
    claims: CLAIMS,
    has_other_length: false,
    current: 0,
    mutation: None,
};

/// A member of a network that changes. Nobody changes the pool.
const MEMBER: Scope = Scope {
    start: Start::Member,
    label_changes: 0,
    network_changes: 3,
    unknown: 0,
    ..STABLE
};

/// A pool that joins or leaves a network that changes.
const CHANGING: Scope = Scope {
    label_changes: 1,
    network_changes: 2,
    unknown: 0,
    ..STABLE
};

/// A pool with another block length that asks to join.
const OTHER_LENGTH: Scope = Scope {
    has_other_length: true,
    network_changes: 1,
    ..STABLE
};

/// Two managers that observe the label of the pool at different times.
const TWO: Scope = Scope {
    managers: 2,
    label_changes: 1,
    unknown: 0,
    claims: 1,
    ..STABLE
};

/// Two managers that observe everything at once. The requests of each are sent later.
const TWO_CURRENT: Scope = Scope {
    claims: CLAIMS,
    crashes: 0,
    current: 2,
    ..TWO
};

fn holds(scope: Scope) {
    assert_holds(&scope, scope);
}

#[test]
fn pool_joins_and_leaves_a_network() {
    holds(STABLE);
}

#[test]
fn network_keeps_its_pool_until_the_pool_leaves() {
    for start in [Start::Outside, Start::Member] {
        holds(Scope { start, ..CHANGING });
    }
}

#[test]
fn changed_network_keeps_its_unchanged_pool() {
    for start in [Start::Member, Start::Restored] {
        holds(Scope {
            start,
            unknown: 1,
            ..MEMBER
        });
    }
}

#[test]
fn two_managers_that_see_a_network_change_keep_its_pool() {
    let two = Scope {
        managers: 2,
        current: 1,
        ..MEMBER
    };
    holds(Scope {
        network_changes: 2,
        ..two
    });
    holds(Scope {
        start: Start::Restored,
        network_changes: 1,
        ..two
    });
}

#[test]
fn two_managers_that_see_a_label_and_a_network_change_agree() {
    for start in [Start::Outside, Start::Member] {
        holds(Scope {
            start,
            network_changes: 1,
            crashes: 0,
            current: 1,
            ..TWO
        });
    }
}

#[test]
fn two_managers_that_see_a_label_change_keep_reservations() {
    holds(TWO);
    holds(Scope {
        start: Start::Member,
        ..TWO
    });
}

#[test]
fn pool_with_another_block_length_does_not_join() {
    holds(OTHER_LENGTH);
}

#[test]
fn each_precaution_of_joining_is_needed() {
    let joining = [Mutation::DeleteFirst, Mutation::IgnoreOtherScope].map(|it| (it, STABLE));
    let restored = Scope {
        start: Start::Restored,
        ..MEMBER
    };
    let unlabelled = Scope {
        start: Start::Member,
        ..CHANGING
    };
    let keeping = [
        (Mutation::LeaveDeleted, MEMBER),
        (Mutation::LeaveInvalid, MEMBER),
        (Mutation::LeaveMissing, MEMBER),
        (Mutation::ForgetAtStart, MEMBER),
        (Mutation::IgnoreStatusAtStart, MEMBER),
        (Mutation::IgnoreReservationsAtStart, restored),
        (Mutation::JoinWithOtherLength, OTHER_LENGTH),
        (Mutation::LeaveUnlabelled, unlabelled),
        (Mutation::DecideBeforeList, unlabelled),
    ];
    let leaving = Scope {
        start: Start::Member,
        ..TWO
    };
    let moving = [
        (Mutation::DeleteUnmarked, leaving),
        (Mutation::BindInFormerScope, TWO_CURRENT),
    ];
    for (mutation, scope) in joining.into_iter().chain(keeping).chain(moving) {
        let mutated = Scope {
            mutation: Some(mutation),
            ..scope
        };
        assert_violated(&mutation, mutated);
    }
}

#[test]
#[ignore = "millions of states: run with --release"]
fn larger_scopes_of_joining_hold() {
    holds(Scope {
        label_changes: 2,
        ..CHANGING
    });
    holds(Scope {
        network_changes: 3,
        unknown: 1,
        ..CHANGING
    });
    holds(Scope {
        has_other_length: true,
        ..CHANGING
    });
    for start in [Start::Member, Start::Restored] {
        holds(Scope {
            start,
            managers: 2,
            current: 1,
            unknown: 1,
            ..MEMBER
        });
        holds(Scope {
            start,
            managers: 2,
            network_changes: 2,
            ..MEMBER
        });
    }
    for start in [Start::Outside, Start::Member] {
        holds(Scope {
            start,
            ..TWO_CURRENT
        });
    }
    for start in [Start::Outside, Start::Member] {
        holds(Scope {
            start,
            label_changes: 2,
            ..TWO
        });
        holds(Scope {
            start,
            network_changes: 1,
            current: 1,
            ..TWO
        });
        holds(Scope {
            start,
            claims: 2,
            current: 1,
            ..TWO
        });
    }
}
