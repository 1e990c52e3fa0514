//! Mutation tests of the model: the protocol with one error each, which the checker must detect.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::properties;
use crate::protocol::Protocol;
use crate::scope::{BY_LABEL, BY_NAMESPACE, LIMITED_SECOND, SMALLEST, Scope, Start};

/// An error in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A4 without uid and resource version.
    BindWithoutUid,
    /// A4 before A3.
    BindBeforeCreate,
    /// R2 before R1.
    UnreserveBeforeRemoval,
    /// No reservations: the address is one that the cache does not show as used.
    PickByCache,
    /// An IPAddress with the name of the claim is adopted without a reservation.
    AdoptWithoutReservation,
    /// An IPAddress with another owner and its reservation are taken over without reading the
    /// claim.
    AdoptWithoutReadingTheClaim,
    /// Only the reservation is taken over without reading the claim.
    TakeOverWithoutReadingTheClaim,
    /// An IPAddress with another owner is removed at a release without reading the claim.
    ReleaseWithoutReadingTheClaim,
    /// R1 and R3 rely on the cache.
    ReleaseByCache,
    /// R1 deletes any IPAddress with the name.
    DeleteAddressWithoutUid,
    /// R1 deletes the IPAddress with the uid even if it was adopted meanwhile.
    DeleteAddressWithoutVersion,
    /// R2 without uid.
    UnreserveWithoutUid,
    /// R2 deletes the reservation that the ledger shows at that time, also if another claim holds
    /// it.
    UnreserveByLedger,
    /// A2 with an unknown outcome counts as done.
    TreatUnknownAsDone,
    /// The sweeper frees reservations without live reads.
    SweepByCache,
    /// The sweeper deletes the reservation of a claim that does not exist, without a cool-down.
    SweepWithoutCooldown,
    /// The sweeper removes an IPAddress without reading the claim.
    SweepAddressByCache,
    /// The sweeper frees the reservation of an existing unbound claim.
    SweepUnboundClaims,
    /// The sweeper does not read the IPAddress of a bound claim again after the claim.
    SweepByFirstRead,
    /// A3 before A1.
    CreateBeforeFinalizer,
    /// The reservation is deleted when A1 fails, without reading the claim.
    UnreserveWithoutReadingTheClaim,
    /// A free address is allocated before the lookup of the IPAddress with the name of the claim.
    AllocateBeforeLookup,
    /// An existing reservation for the claim is ignored.
    IgnoreOwnReservation,
    /// A3 continues when the name is taken.
    AcceptAnyAddress,
    /// The address of a claim is released when the watch reports the deletion of the claim, without
    /// reading the claim.
    CleanUpWithoutReadingTheClaim,
    /// A manager allocates with a cache of the IPAddresses of its namespace only.
    SeeOwnAddressesOnly,
    /// A manager that does not know the pool considers every cool-down over.
    EndCooldownOfUnknownPool,
    /// The ledger alone decides whether a cool-down is over, not the live reservation.
    EndCooldownByLedger,
    /// The cool-down of an address that seems to be in use is ended without reading the IPAddress.
    EndCooldownInUseByCache,
    /// It is ended if an IPAddress exists, without checking that it belongs to a bound claim.
    EndCooldownForLeftover,
    /// It is ended although the bound claim is being deleted and will release it.
    EndCooldownDuringRelease,
    /// The IPAddress is read before the reservation.
    ReadUseBeforeReservation,
    /// The sweeper deletes a reservation by its uid only, even if it was released meanwhile.
    SweepByUid,
    /// An adoption deletes the reservation of a previous claim by its uid only.
    TakeOverByUid,
    /// A released reservation is taken over by its uid only, even if another claim has taken it
    /// over meanwhile.
    TakeReleasedByUid,
    /// R2 deletes a reservation by its uid only, even if it was released and taken over meanwhile.
    UnreserveByUid,
    /// A claim gets the address that a claim of another name has released, before its cool-down is
    /// over.
    TakeCoolingAddress,
    /// The ledger takes in every read and listed object, however old.
    LateReadWins,
    /// The sweeper finds that a reservation differs from the ledger, and does not correct the
    /// ledger.
    SweepKeepsLedger,
    /// The pool is removed when the cache shows no IPAddress of it.
    RemovePoolByCache,
    /// The pool is removed although an address of it is proposed to a claim.
    RemovePoolDespiteProposals,
    /// Claims get addresses from a pool that is being deleted.
    AllocateFromDeletingPool,
    /// A claim waits for a pool that is being deleted although it holds a reservation.
    WaitForDeletingPool,
    /// A claim waits for a pool that is being deleted although an IPAddress of a previous claim
    /// with its name exists.
    WaitDespiteLeftover,
    /// The address of a claim is released although another controller has a finalizer on it.
    ReleaseDespiteFinalizers,
    /// R2 releases what a user has promised to the name of the claim.
    ReleasePromises,
    /// The sweeper releases the reservation of a claim whose IPAddress names another member of the
    /// set, or none, in its annotation.
    SweepByAnnotation,
    /// A member of a set is chosen without looking at the reservations and attempts of the claim.
    ChooseAgain,
    /// A claim waits for the member in which it has a reservation although the member is gone.
    WaitForMissingMember,
}

/// One manager, two claims for one address.
const ONE: Scope = Scope {
    lives: [1, 1],
    ..SMALLEST
};
/// One claim, deleted and recreated.
const RECREATED: Scope = Scope {
    lives: [2, 0],
    ..ONE
};
/// The same, with a second manager with stale caches.
const STALE: Scope = Scope {
    managers: 2,
    first_is_current: true,
    second_updates: 1,
    ..RECREATED
};

/// Two namespaces, of which the second has an IPAddress without reservation.
const TAKEN_OVER: Scope = Scope {
    start: Start::TakenOver,
    lives: [1, 1],
    addresses: 2,
    serves: BY_NAMESPACE,
    ..SMALLEST
};
/// A released address, and a second manager with stale caches.
const COOLING: Scope = Scope {
    start: Start::Released,
    cooldown: true,
    sweepers: true,
    lives: [1, 1],
    serves: LIMITED_SECOND,
    ..STALE
};
/// One manager that serves all claims, and a released address.
const ONE_COOLING: Scope = Scope {
    start: Start::Released,
    sweepers: true,
    lives: [1, 1],
    ..SMALLEST
};
/// Two managers of different namespaces and a pool that keeps released addresses for their claims.
const STICKY: Scope = Scope {
    sticky: true,
    lives: [2, 1],
    serves: BY_NAMESPACE,
    ..STALE
};
const DELETED_POOL: Scope = Scope {
    pool_deletion: true,
    ..SMALLEST
};
/// A set of two pools.
const SET: Scope = Scope {
    sets: true,
    addresses: 2,
    ..SMALLEST
};

const TABLE: &[(Mutation, Scope, &str)] = &[
    (
        Mutation::BindWithoutUid,
        Scope {
            late_writes: 1,
            ..RECREATED
        },
        properties::BOUND_HAS,
    ),
    (Mutation::BindBeforeCreate, ONE, properties::BOUND_HAS),
    (
        Mutation::UnreserveBeforeRemoval,
        Scope {
            lives: [1, 1],
            ..STALE
        },
        properties::ONE_BOUND,
    ),
    (Mutation::PickByCache, ONE, properties::NO_TWO_CLAIMS),
    (
        Mutation::AdoptWithoutReservation,
        Scope {
            lives: [2, 1],
            late_writes: 1,
            early: false,
            ..ONE
        },
        properties::NO_TWO_CLAIMS,
    ),
    (
        Mutation::AdoptWithoutReadingTheClaim,
        STALE,
        properties::BOUND_HAS,
    ),
    (
        Mutation::TakeOverWithoutReadingTheClaim,
        STALE,
        properties::NOT_FREED,
    ),
    (
        Mutation::ReleaseWithoutReadingTheClaim,
        STALE,
        properties::BOUND_HAS,
    ),
    (Mutation::ReleaseByCache, STALE, properties::NOT_LEFT),
    (
        Mutation::DeleteAddressWithoutUid,
        STALE,
        properties::BOUND_HAS,
    ),
    (
        Mutation::DeleteAddressWithoutVersion,
        STALE,
        properties::BOUND_HAS,
    ),
    (
        Mutation::UnreserveWithoutUid,
        Scope {
            late_writes: 1,
            ..ONE
        },
        properties::NOT_FREED,
    ),
    (
        Mutation::UnreserveByLedger,
        Scope {
            forced: 1,
            sweepers: true,
            ..ONE
        },
        properties::NOT_FREED,
    ),
    (
        Mutation::TreatUnknownAsDone,
        Scope {
            late_writes: 1,
            ..ONE
        },
        properties::BOUND_RESERVED,
    ),
    (
        Mutation::SweepByCache,
        Scope {
            sweepers: true,
            ..STALE
        },
        properties::NOT_FREED,
    ),
    (
        Mutation::SweepAddressByCache,
        Scope {
            sweepers: true,
            ..STALE
        },
        properties::BOUND_HAS,
    ),
    (
        Mutation::SweepUnboundClaims,
        Scope {
            sweepers: true,
            ..STALE
        },
        properties::NOT_FREED,
    ),
    (
        Mutation::SweepByFirstRead,
        Scope {
            addresses: 2,
            sweepers: true,
            ..STALE
        },
        properties::NOT_FREED,
    ),
    (Mutation::CreateBeforeFinalizer, ONE, properties::PROTECTED),
    (
        Mutation::UnreserveWithoutReadingTheClaim,
        STALE,
        properties::NOT_FREED,
    ),
    (
        Mutation::AllocateBeforeLookup,
        Scope { crashes: 1, ..ONE },
        properties::RECOVERS,
    ),
    (
        Mutation::IgnoreOwnReservation,
        Scope { crashes: 1, ..ONE },
        properties::RECOVERS,
    ),
    (
        Mutation::AcceptAnyAddress,
        Scope {
            late_writes: 1,
            ..RECREATED
        },
        properties::BOUND_HAS,
    ),
    (
        Mutation::CleanUpWithoutReadingTheClaim,
        Scope {
            serves: BY_LABEL,
            selector: true,
            relabels: 1,
            clean_up: true,
            ..SMALLEST
        },
        properties::BOUND_HAS,
    ),
    (
        Mutation::SeeOwnAddressesOnly,
        TAKEN_OVER,
        properties::NO_TWO_CLAIMS,
    ),
    (
        Mutation::EndCooldownOfUnknownPool,
        COOLING,
        properties::COOLED_DOWN,
    ),
    (
        Mutation::EndCooldownByLedger,
        COOLING,
        properties::COOLED_DOWN,
    ),
    (
        Mutation::EndCooldownInUseByCache,
        Scope {
            start: Start::Bound,
            ..COOLING
        },
        properties::COOLED_DOWN,
    ),
    (
        Mutation::ReadUseBeforeReservation,
        Scope {
            start: Start::Reused,
            second_updates: 0,
            ..COOLING
        },
        properties::COOLED_DOWN,
    ),
    (
        Mutation::EndCooldownForLeftover,
        Scope {
            cooldown: true,
            sweepers: true,
            late_writes: 1,
            ..RECREATED
        },
        properties::COOLED_DOWN,
    ),
    (
        Mutation::EndCooldownDuringRelease,
        Scope {
            cooldown: true,
            sweepers: true,
            late_writes: 1,
            ..RECREATED
        },
        properties::COOLED_DOWN,
    ),
    (
        Mutation::TakeOverByUid,
        Scope {
            cooldown: true,
            clean_up: true,
            vanishings: 1,
            crashes: 1,
            ..RECREATED
        },
        properties::COOLED_DOWN,
    ),
    (
        Mutation::SweepByUid,
        Scope {
            cooldown: true,
            sweepers: true,
            ..STALE
        },
        properties::COOLED_DOWN,
    ),
    (
        Mutation::SweepWithoutCooldown,
        Scope {
            cooldown: true,
            sweepers: true,
            forced: 1,
            lives: [1, 1],
            ..SMALLEST
        },
        properties::COOLED_DOWN,
    ),
    (Mutation::TakeReleasedByUid, STICKY, properties::NOT_FREED),
    (
        Mutation::TakeCoolingAddress,
        Scope {
            sticky: true,
            cooldown: true,
            ..ONE_COOLING
        },
        properties::COOLED_DOWN,
    ),
    (
        Mutation::UnreserveByUid,
        Scope {
            managers: 1,
            late_writes: 1,
            sticky_later: true,
            lives: [2, 0],
            ..STICKY
        },
        properties::NOT_FREED,
    ),
    (
        Mutation::LateReadWins,
        Scope {
            lists: 1,
            ..SMALLEST
        },
        properties::NEWEST_WINS,
    ),
    (
        Mutation::SweepKeepsLedger,
        Scope {
            lists: 1,
            slow_lists: true,
            ..SMALLEST
        },
        properties::RECOVERS,
    ),
    (
        Mutation::RemovePoolByCache,
        DELETED_POOL,
        properties::POOL_LAST,
    ),
    (
        Mutation::RemovePoolDespiteProposals,
        Scope {
            early: false,
            ..DELETED_POOL
        },
        properties::POOL_LAST,
    ),
    (
        Mutation::AllocateFromDeletingPool,
        DELETED_POOL,
        properties::POOL_LAST,
    ),
    (
        Mutation::WaitForDeletingPool,
        Scope {
            crashes: 1,
            ..DELETED_POOL
        },
        properties::RECOVERS,
    ),
    (
        Mutation::WaitDespiteLeftover,
        Scope {
            lives: [2, 0],
            late_writes: 1,
            ..DELETED_POOL
        },
        properties::RECOVERS,
    ),
    (
        Mutation::ReleaseDespiteFinalizers,
        Scope {
            foreign: true,
            ..SMALLEST
        },
        properties::NOT_FREED,
    ),
    (
        Mutation::ReleasePromises,
        Scope {
            promises: 1,
            ..SMALLEST
        },
        properties::NOT_FREED,
    ),
    (
        Mutation::SweepByAnnotation,
        Scope {
            edits: 1,
            sweepers: true,
            managers: 2,
            first_is_current: true,
            second_updates: 1,
            ..SET
        },
        properties::NOT_FREED,
    ),
    (
        Mutation::ChooseAgain,
        Scope {
            set_changes: 1,
            crashes: 1,
            ..SET
        },
        properties::ONE_CHOICE,
    ),
    (
        Mutation::WaitForMissingMember,
        Scope {
            pool_deletion: true,
            crashes: 1,
            managers: 2,
            first_is_current: true,
            second_updates: 1,
            ..SET
        },
        properties::RECOVERS,
    ),
];

#[test]
fn every_mutation_is_detected() {
    let mut missed = Vec::new();
    for (mutation, scope, expected) in TABLE {
        let start = Instant::now();
        let scope = Scope {
            mutation: Some(*mutation),
            ..*scope
        };
        let checker = Protocol::new(scope).checker().target_state_count(1_500_000);
        let checker = checker
            .finish_when(HasDiscoveries::AnyOf([*expected].into()))
            .spawn_bfs()
            .join();
        let found = checker.discovery(expected);
        let steps = found
            .as_ref()
            .map_or(0, |path| path.clone().into_actions().len());
        let (states, took) = (checker.unique_state_count(), start.elapsed().as_secs_f64());
        println!(
            "{mutation:?}: \"{expected}\" violated in {steps} steps, {states} states, {took:.1} s"
        );
        if found.is_none() {
            let others: Vec<_> = checker.discoveries().into_keys().collect();
            missed.push((mutation, others));
        }
    }
    assert!(missed.is_empty(), "not detected: {missed:?}");
}
