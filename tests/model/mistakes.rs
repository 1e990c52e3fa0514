//! The protocol with one mistake each: the model has to find out.

use std::time::Instant;

use capi_ipam::properties;
use capi_ipam::protocol::Protocol;
use capi_ipam::scope::{BY_LABEL, BY_NAMESPACE, LIMITED_SECOND, Scope, SMALLEST, Start};
use stateright::{Checker, HasDiscoveries, Model};

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
    /// What a claim held is taken back when its watch says that it was deleted, without asking whether it is there.
    CleanUpWithoutReadingTheClaim,
    /// Free addresses are looked for by a manager that sees the IPAddresses of its own namespace only.
    SeeOwnAddressesOnly,
    /// A manager that does not know the pool takes every cool-down for over.
    EndCooldownOfUnknownPool,
    /// Whether a cool-down is over is decided by the ledger alone, not by the reservation that was read.
    EndCooldownAsKnown,
    /// What cools down and seems to be in use is freed without reading the IPAddress.
    EndCooldownInUseByCache,
    /// It is freed if there is an IPAddress, without asking whether that is the one of a bound claim.
    EndCooldownForLeftover,
    /// It is freed although the bound claim is being deleted, and about to release it.
    EndCooldownDuringRelease,
    /// There the IPAddress is read before the reservation.
    ReadTheUseFirst,
    /// The sweeper deletes a reservation by its uid alone, also when it was released in the meantime.
    SweepByUid,
    /// An adoption deletes the reservation of an earlier claim by its uid alone.
    TakeOverByUid,
    /// The ledger takes in whatever was read or listed, however old it is.
    LateReadWins,
    /// The sweeper finds that a reservation is not what the ledger shows, and leaves the ledger as it is.
    SweepLeavesTheLedger,
    /// The pool goes when the cache shows no IPAddress of it.
    RemovePoolByCache,
    /// The pool goes although an address of it has been proposed to a claim.
    RemovePoolBesideProposals,
    /// Claims get addresses from a pool that is being deleted.
    AllocateFromDeletingPool,
    /// A claim waits for a pool that is being deleted although it holds a reservation.
    WaitForDeletingPool,
    /// A claim waits for it although there is an IPAddress of its name, which an earlier claim has left.
    WaitBesideLeftover,
}

/// One manager, two claims for one address.
const ONE: Scope = Scope { lives: [1, 1], ..SMALLEST };
/// One claim, deleted and created again.
const AGAIN: Scope = Scope { lives: [2, 0], ..ONE };
/// The same, and a second manager that sees little.
const STALE: Scope = Scope { managers: 2, prompt: true, glimpses: 1, ..AGAIN };

/// Two namespaces, of which the second has an IPAddress without reservation.
const TAKEN_OVER: Scope =
    Scope { start: Start::TakenOver, lives: [1, 1], addresses: 2, serves: BY_NAMESPACE, ..SMALLEST };
/// A released address, and a second manager that sees little.
const COOLING: Scope =
    Scope { start: Start::Released, cooldown: true, sweepers: true, lives: [1, 1], serves: LIMITED_SECOND, ..STALE };
const DELETED_POOL: Scope = Scope { pool_deletion: true, ..SMALLEST };

const TABLE: &[(Mistake, Scope, &str)] = &[
    (Mistake::BindWithoutUid, Scope { late_writes: 1, ..AGAIN }, properties::BOUND_HAS),
    (Mistake::BindBeforeCreate, ONE, properties::BOUND_HAS),
    (Mistake::UnreserveBeforeRemoval, Scope { lives: [1, 1], ..STALE }, properties::ONE_BOUND),
    (Mistake::PickByCache, ONE, properties::NO_TWO_CLAIMS),
    (
        Mistake::AdoptWithoutReservation,
        Scope { lives: [2, 1], late_writes: 1, early: false, ..ONE },
        properties::NO_TWO_CLAIMS,
    ),
    (Mistake::AdoptWithoutReadingTheClaim, STALE, properties::BOUND_HAS),
    (Mistake::TakeOverWithoutReadingTheClaim, STALE, properties::NOT_FREED),
    (Mistake::ReleaseWithoutReadingTheClaim, STALE, properties::BOUND_HAS),
    (Mistake::ReleaseByCache, STALE, properties::NOT_LEFT),
    (Mistake::DeleteAddressWithoutUid, STALE, properties::BOUND_HAS),
    (Mistake::DeleteAddressWithoutVersion, STALE, properties::BOUND_HAS),
    (Mistake::UnreserveWithoutUid, Scope { late_writes: 1, ..ONE }, properties::NOT_FREED),
    (Mistake::UnreserveWhatIsKnownNow, Scope { lost_replies: 1, ..ONE }, properties::NOT_FREED),
    (Mistake::UnknownMeansDone, Scope { late_writes: 1, ..ONE }, properties::BOUND_RESERVED),
    (Mistake::SweepByCache, Scope { sweepers: true, ..STALE }, properties::NOT_FREED),
    (Mistake::SweepAddressByCache, Scope { sweepers: true, ..STALE }, properties::BOUND_HAS),
    (Mistake::SweepUnboundClaims, Scope { sweepers: true, ..STALE }, properties::NOT_FREED),
    (Mistake::CreateBeforeFinalizer, ONE, properties::PROTECTED),
    (Mistake::GiveBackWithoutReadingTheClaim, STALE, properties::NOT_FREED),
    (Mistake::LookForAFreeOneFirst, Scope { crashes: 1, ..ONE }, properties::RECOVERS),
    (Mistake::IgnoreOwnReservation, Scope { crashes: 1, ..ONE }, properties::RECOVERS),
    (Mistake::AcceptAnyAddress, Scope { late_writes: 1, ..AGAIN }, properties::BOUND_HAS),
    (
        Mistake::CleanUpWithoutReadingTheClaim,
        Scope { serves: BY_LABEL, selector: true, relabels: 1, clean_up: true, ..SMALLEST },
        properties::BOUND_HAS,
    ),
    (Mistake::SeeOwnAddressesOnly, TAKEN_OVER, properties::NO_TWO_CLAIMS),
    (Mistake::EndCooldownOfUnknownPool, COOLING, properties::COOLED_DOWN),
    (Mistake::EndCooldownAsKnown, COOLING, properties::COOLED_DOWN),
    (Mistake::EndCooldownInUseByCache, Scope { start: Start::Bound, ..COOLING }, properties::COOLED_DOWN),
    (Mistake::ReadTheUseFirst, Scope { start: Start::UsedAgain, glimpses: 0, ..COOLING }, properties::COOLED_DOWN),
    (
        Mistake::EndCooldownForLeftover,
        Scope { cooldown: true, sweepers: true, late_writes: 1, ..AGAIN },
        properties::COOLED_DOWN,
    ),
    (
        Mistake::EndCooldownDuringRelease,
        Scope { cooldown: true, sweepers: true, late_writes: 1, ..AGAIN },
        properties::COOLED_DOWN,
    ),
    (
        Mistake::TakeOverByUid,
        Scope { cooldown: true, clean_up: true, vanishings: 1, crashes: 1, ..AGAIN },
        properties::COOLED_DOWN,
    ),
    (Mistake::SweepByUid, Scope { cooldown: true, sweepers: true, ..STALE }, properties::COOLED_DOWN),
    (Mistake::LateReadWins, Scope { lists: 1, ..SMALLEST }, properties::NEWEST_WINS),
    (Mistake::SweepLeavesTheLedger, Scope { lists: 1, slow_lists: true, ..SMALLEST }, properties::RECOVERS),
    (Mistake::RemovePoolByCache, DELETED_POOL, properties::POOL_LAST),
    (Mistake::RemovePoolBesideProposals, Scope { early: false, ..DELETED_POOL }, properties::POOL_LAST),
    (Mistake::AllocateFromDeletingPool, DELETED_POOL, properties::POOL_LAST),
    (Mistake::WaitForDeletingPool, Scope { crashes: 1, ..DELETED_POOL }, properties::RECOVERS),
    (Mistake::WaitBesideLeftover, Scope { lives: [2, 0], late_writes: 1, ..DELETED_POOL }, properties::RECOVERS),
];

#[test]
fn every_mistake_is_found() {
    let mut missed = Vec::new();
    for (mistake, scope, expected) in TABLE {
        let start = Instant::now();
        let scope = Scope { mistake: Some(*mistake), ..*scope };
        let checker = Protocol::new(scope).checker().target_state_count(1_500_000);
        let checker = checker.finish_when(HasDiscoveries::AnyOf([*expected].into())).spawn_bfs().join();
        let found = checker.discovery(expected);
        let steps = found.as_ref().map_or(0, |path| path.clone().into_actions().len());
        let (states, took) = (checker.unique_state_count(), start.elapsed().as_secs_f64());
        println!("{mistake:?}: \"{expected}\" broken in {steps} steps, {states} states, {took:.1} s");
        if found.is_none() {
            let others: Vec<_> = checker.discoveries().into_keys().collect();
            missed.push((mistake, others));
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
