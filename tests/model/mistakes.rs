//! The protocol with one mistake each: the model has to find out.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::protocol::{self, Mistake, Protocol, Scope};

/// One manager, two claims for one address.
const ONE: Scope = Scope {
    managers: 1,
    addresses: 1,
    lives: [1, 1],
    crashes: 0,
    lost_replies: 0,
    late_writes: 0,
    vanishings: 0,
    prompt: false,
    glimpses: 0,
    sweepers: false,
    collector: false,
    early: true,
    mistake: None,
};
/// One claim, deleted and created again.
const AGAIN: Scope = Scope { lives: [2, 0], ..ONE };
/// The same, and a second manager that sees little.
const STALE: Scope = Scope { managers: 2, prompt: true, glimpses: 1, ..AGAIN };

const TABLE: &[(Mistake, Scope, &str)] = &[
    (Mistake::BindWithoutUid, Scope { late_writes: 1, ..AGAIN }, protocol::BOUND_HAS),
    (Mistake::BindBeforeCreate, ONE, protocol::BOUND_HAS),
    (Mistake::UnreserveBeforeRemoval, Scope { lives: [1, 1], ..STALE }, protocol::ONE_BOUND),
    (Mistake::PickByCache, ONE, protocol::NO_TWO_CLAIMS),
    (
        Mistake::AdoptWithoutReservation,
        Scope { lives: [2, 1], late_writes: 1, early: false, ..ONE },
        protocol::NO_TWO_CLAIMS,
    ),
    (Mistake::AdoptWithoutReadingTheClaim, STALE, protocol::BOUND_HAS),
    (Mistake::TakeOverWithoutReadingTheClaim, STALE, protocol::NOT_FREED),
    (Mistake::ReleaseWithoutReadingTheClaim, STALE, protocol::BOUND_HAS),
    (Mistake::ReleaseByCache, STALE, protocol::NOT_LEFT),
    (Mistake::DeleteAddressWithoutUid, STALE, protocol::BOUND_HAS),
    (Mistake::DeleteAddressWithoutVersion, STALE, protocol::BOUND_HAS),
    (Mistake::UnreserveWithoutUid, Scope { late_writes: 1, ..ONE }, protocol::NOT_FREED),
    (Mistake::UnreserveWhatIsKnownNow, Scope { lost_replies: 1, ..ONE }, protocol::NOT_FREED),
    (Mistake::UnknownMeansDone, Scope { late_writes: 1, ..ONE }, protocol::BOUND_RESERVED),
    (Mistake::SweepByCache, Scope { sweepers: true, ..STALE }, protocol::NOT_FREED),
    (Mistake::SweepAddressByCache, Scope { sweepers: true, ..STALE }, protocol::BOUND_HAS),
    (Mistake::SweepUnboundClaims, Scope { sweepers: true, ..STALE }, protocol::NOT_FREED),
    (Mistake::CreateBeforeFinalizer, ONE, protocol::PROTECTED),
    (Mistake::GiveBackWithoutReadingTheClaim, STALE, protocol::NOT_FREED),
    (Mistake::LookForAFreeOneFirst, Scope { crashes: 1, ..ONE }, protocol::RECOVERS),
    (Mistake::IgnoreOwnReservation, Scope { crashes: 1, ..ONE }, protocol::RECOVERS),
    (Mistake::AcceptAnyAddress, Scope { late_writes: 1, ..AGAIN }, protocol::BOUND_HAS),
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
