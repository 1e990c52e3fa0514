//! The invariants, and the conditions that must be reachable.

use stateright::Property;

use crate::protocol::Protocol;
use crate::scope::Scope;
use crate::state::{CLEAN_UP, Manager, Member, NAMES, Pool, Request, State};
use crate::tasks::lives;

/// The properties of a scope. Each costs time in each state, so those that do not concern the scope
/// are left out.
pub(crate) fn of(scope: &Scope) -> Vec<Property<Protocol>> {
    let mut properties = vec![
        Property::always(ONE_BOUND, |_, state| one_bound_object_of_an_address(state)),
        Property::always(NO_TWO_CLAIMS, |_, state| {
            no_two_claims_have_one_address(state)
        }),
        Property::always(BOUND_HAS, |_, state| bound_claims_have_their_address(state)),
        Property::always(BOUND_RESERVED, bound_claims_have_their_reservation),
        Property::always(NOT_REBOUND, |_, state: &State| !state.violations.rebound),
        Property::always(NOT_FREED, |_, state: &State| !state.violations.freed),
        Property::always(NOT_LEFT, |_, state: &State| !state.violations.left_behind),
        Property::always(PROTECTED, |_, state: &State| !state.violations.unprotected),
        Property::always(RECOVERS, Protocol::recovers),
        Property::sometimes("all claims are bound", all_are_bound),
        Property::sometimes("the last claims are bound", the_last_are_bound),
    ];
    if scope.relabels > 0 {
        properties.push(Property::sometimes(
            "a claim with another label is bound",
            |_, state| relabelled_claim_is_bound(state),
        ));
    }
    if scope.clean_up {
        properties.push(Property::sometimes(
            "a clean-up releases something",
            |_, state| clean_up_releases(state),
        ));
    }
    if scope.promises > 0 {
        properties.push(Property::sometimes(
            "a claim has the promised address",
            |_, state| promise_is_kept(state),
        ));
    }
    if scope.foreign {
        properties.push(Property::sometimes(
            "another controller keeps a claim",
            |_, state: &State| {
                let mut claims = state.objects.claims.iter().flatten();
                claims.any(|claim| claim.deleting && claim.foreign && claim.bound.is_some())
            },
        ));
    }
    if scope.cooldown {
        properties.push(Property::always(COOLED_DOWN, |_, state: &State| {
            !state.violations.too_early
        }));
        properties.push(Property::sometimes(
            "an address cools down",
            |_, state: &State| state.cooling.iter().any(Option::is_some),
        ));
    }
    if scope.sticky && scope.cooldown {
        properties.push(Property::sometimes(
            "a claim gets an address back",
            |_, state: &State| state.got_back,
        ));
    }
    if scope.lists > 0 {
        properties.push(Property::sometimes(
            "a watch overtakes a list",
            |_, state: &State| {
                state
                    .managers
                    .iter()
                    .any(|manager| manager.overtaken.contains(&true))
            },
        ));
        properties.push(if scope.slow_lists {
            Property::sometimes("a slow list brings a reservation back", |_, state| {
                !newest_reservation_wins(state)
            })
        } else {
            Property::always(NEWEST_WINS, |_, state| newest_reservation_wins(state))
        });
    }
    // A member that is deleted is replaced, whatever an earlier attempt may have reserved of it.
    if scope.sets && scope.managers == 1 && !scope.pool_deletion {
        properties.push(Property::always(ONE_CHOICE, |_, state: &State| {
            !state.has_two_choices()
        }));
    }
    if scope.managers > 1 && scope.set_changes > 0 {
        properties.push(Property::sometimes(
            "two managers choose different members",
            |_, state: &State| state.has_two_choices(),
        ));
    }
    if scope.edits > 0 {
        properties.push(Property::sometimes(
            "the annotation of an address in use does not name its member",
            |_, state| misread_address_is_in_use(state),
        ));
    }
    if scope.pool_deletion {
        properties.push(Property::sometimes(
            "the deleted pool is removed",
            |_, state: &State| state.objects.pool == Pool::Gone,
        ));
        properties.push(if scope.pool_may_be_missing() {
            Property::sometimes(POOL_MISSING, |_, state: &State| {
                state.violations.pool_missing
            })
        } else {
            Property::always(POOL_LAST, |_, state: &State| !state.violations.pool_missing)
        });
    }
    properties
}

/// I1.
pub(crate) const ONE_BOUND: &str =
    "of two IPAddress objects with one address at most one is a bound claim's";
/// I2.
pub(crate) const NO_TWO_CLAIMS: &str = "no two bound claims have one address";
/// I3.
pub(crate) const BOUND_HAS: &str =
    "a bound claim has its IPAddress, with the address it was bound to";
pub(crate) const BOUND_RESERVED: &str = "the address of a bound claim is reserved for it";
pub(crate) const NOT_REBOUND: &str = "the address of a bound claim never changes";
pub(crate) const NOT_FREED: &str =
    "no reservation is freed while its claim lives unbound or is bound to it";
/// I7.
pub(crate) const NOT_LEFT: &str = "a released claim leaves no IPAddress behind";
pub(crate) const PROTECTED: &str = "no IPAddress is created for a claim without our finalizer";
pub(crate) const COOLED_DOWN: &str = "no address is reserved again before its cool-down is over";
pub(crate) const NEWEST_WINS: &str =
    "no ledger shows a reservation that is older than what its watch has shown";
pub(crate) const POOL_LAST: &str = "the pool is not removed while an IPAddress of it exists";
pub(crate) const ONE_CHOICE: &str = "no claim has reserved addresses of two members of a set";
/// The alternative when a manager has not observed the deletion or a write is late. The claim keeps
/// its address, which no other claim gets, until it is released.
pub(crate) const POOL_MISSING: &str =
    "the pool is removed while an address of it is being allocated";
pub(crate) const RECOVERS: &str =
    "after the last fault all claims are bound and nothing is left over";

fn one_bound_object_of_an_address(state: &State) -> bool {
    let used_by_bound = |name: usize| {
        let (claim, address) = (state.objects.claims[name]?, state.objects.addresses[name]?);
        // A late A3 may recreate the IPAddress of a claim that is being released: it is not used.
        (claim.bound.is_some() && claim.life == address.owner && !address.posthumous)
            .then_some(address.address)
    };
    used_by_bound(0).is_none() || used_by_bound(0) != used_by_bound(1)
}

fn bound_to(state: &State, name: usize) -> Option<u8> {
    state.objects.claims[name]
        .filter(|claim| !claim.deleting)?
        .bound
}

fn no_two_claims_have_one_address(state: &State) -> bool {
    bound_to(state, 0).is_none() || bound_to(state, 0) != bound_to(state, 1)
}

fn bound_claims_have_their_address(state: &State) -> bool {
    (0..NAMES).all(|name| {
        let (Some(bound), Some(claim)) = (bound_to(state, name), state.objects.claims[name]) else {
            return true;
        };
        state.objects.addresses[name]
            .is_some_and(|found| found.owner == claim.life && found.address == bound)
    })
}

fn bound_claims_have_their_reservation(protocol: &Protocol, state: &State) -> bool {
    (0..NAMES).all(|name| {
        let (Some(bound), Some(claim)) = (bound_to(state, name), state.objects.claims[name]) else {
            return true;
        };
        let is_reserved = state.objects.reservations[usize::from(bound)]
            .is_some_and(|held| held.is_ours(name, claim.life));
        is_reserved || protocol.scope.was_taken_over(name, claim.life)
    })
}

fn newest_reservation_wins(state: &State) -> bool {
    state
        .managers
        .iter()
        .all(|manager| !manager.phantoms.contains(&true))
}

fn all_are_bound(protocol: &Protocol, state: &State) -> bool {
    (0..NAMES)
        .filter(|name| bound_to(state, *name).is_some())
        .count()
        == protocol.scope.allocatable().min(
            protocol
                .scope
                .lives
                .iter()
                .filter(|lives| **lives > 0)
                .count(),
        )
}

fn the_last_are_bound(protocol: &Protocol, state: &State) -> bool {
    (0..NAMES).any(|name| {
        let last = protocol.scope.lives[name];
        last > 1 && lives(state.objects.claims[name], last) && bound_to(state, name).is_some()
    }) || protocol.scope.lives.iter().all(|lives| *lives < 2)
}

fn relabelled_claim_is_bound(state: &State) -> bool {
    (0..NAMES).any(|name| {
        bound_to(state, name)
            .and(state.objects.claims[name])
            .is_some_and(|claim| claim.label)
    })
}

fn promise_is_kept(state: &State) -> bool {
    (0..NAMES).any(|name| {
        let bound = bound_to(state, name).map(usize::from);
        let held = bound.and_then(|address| state.objects.reservations[address]);
        held.is_some_and(|held| held.is_promise() && usize::from(held.name) == name)
    })
}

fn misread_address_is_in_use(state: &State) -> bool {
    (0..NAMES).any(|name| {
        let found = state.objects.addresses[name];
        bound_to(state, name).is_some() && found.is_some_and(|found| found.member != Member::Right)
    })
}

fn clean_up_releases(state: &State) -> bool {
    state.managers.iter().any(|manager: &Manager| {
        matches!(
            manager.tasks[CLEAN_UP].request,
            Request::Strip | Request::Delete | Request::Unreserve | Request::MarkReleased
        )
    })
}
