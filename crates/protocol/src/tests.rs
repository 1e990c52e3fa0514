//! Laws of the order of requests, checked for all sequences of results.
//!
//! A walk follows a machine through all results that its driver may report, and keeps what is known
//! from them. The model in `tests/model` checks what the order is for: that no address is lost or
//! doubled. These tests name the single rules.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

use crate::{ClaimRead, FoundAddress, Owner, adopt, allocate, bind, clean_up, free, release};

const CLAIMS: [ClaimRead; 2] = [ClaimRead::Exists, ClaimRead::Gone];

/// All IPAddresses that a read may show, and none.
fn addresses() -> Vec<Option<FoundAddress>> {
    let mut found = vec![None];
    for owner in [Owner::ThisClaim, Owner::OtherClaim, Owner::NoClaim] {
        for (is_deleting, is_for_claim) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            found.push(Some(FoundAddress {
                is_deleting,
                is_for_claim,
                owner,
            }));
        }
    }
    found
}

/// Visits all states that a machine reaches, each with what is known then. `next` returns the
/// states after each possible result.
fn walk<S: Copy + Debug + Eq + Hash>(start: Vec<S>, next: impl Fn(S) -> Vec<S>) {
    let mut visited: HashSet<S> = HashSet::new();
    let mut pending = start;
    while let Some(state) = pending.pop() {
        if visited.insert(state) {
            pending.extend(next(state));
        }
    }
}

/// What is known during a bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Binding {
    bind: bind::Bind,
    is_bound: bool,
    has_finalizer: bool,
    is_allocated: bool,
    /// The IPAddress is created or repaired for this claim.
    is_complete: bool,
    /// The IPAddress of another owner was found, and the claim not read since.
    is_unchecked: bool,
}

fn binding_events(step: bind::Step) -> Vec<bind::Event> {
    use bind::{Event, Step};
    match step {
        Step::AddFinalizer | Step::AddFinalizerAndAllocate => {
            vec![Event::FinalizerSet, Event::FinalizerNotSet]
        }
        Step::ReadAddress(_) => addresses().into_iter().map(Event::Address).collect(),
        Step::CheckRestore => vec![Event::Served, Event::Waits],
        Step::CheckClaim(_) => CLAIMS.map(Event::Claim).to_vec(),
        Step::Allocate => vec![Event::Allocated, Event::AddressRejected],
        Step::RemoveAddress(_) => vec![Event::Removed],
        Step::CreateAddress => vec![Event::Created, Event::NotCreated],
        Step::RepairAddress => vec![Event::Repaired],
        Step::Commit => vec![Event::Committed, Event::NotCommitted],
        Step::Done(_) => Vec::new(),
    }
}

fn bound_on(mut state: Binding, event: bind::Event) -> Binding {
    use bind::Event;
    match event {
        Event::FinalizerSet => state.has_finalizer = true,
        Event::Allocated => state.is_allocated = true,
        Event::Created | Event::Repaired => state.is_complete = true,
        Event::Address(found) => {
            state.is_allocated = false;
            state.is_unchecked = found.is_some_and(|found| found.owner != Owner::ThisClaim);
        }
        Event::Claim(_) | Event::Removed => state.is_unchecked = false,
        _ => {}
    }
    state.bind.next(event);
    state
}

#[test]
fn claim_is_bound_in_order() {
    let mut start = Vec::new();
    for bits in 0..16_u8 {
        let is_set = |bit: u8| bits & (1 << bit) != 0;
        let facts = bind::Facts {
            has_finalizer: is_set(0),
            address_is_known: is_set(1),
            is_bound: is_set(2),
            allocates_early: is_set(3),
        };
        start.push(Binding {
            bind: bind::Bind::start(facts),
            is_bound: facts.is_bound,
            has_finalizer: facts.has_finalizer,
            is_allocated: false,
            is_complete: false,
            is_unchecked: false,
        });
    }
    walk(start, |state| {
        use bind::{End, RemovalReason, Step};
        let step = state.bind.step();
        match step {
            Step::CreateAddress | Step::RepairAddress => {
                assert!(state.has_finalizer && state.is_allocated, "{state:?}");
            }
            Step::Commit => assert!(state.is_complete, "{state:?}"),
            Step::Allocate => assert!(!state.is_unchecked, "{state:?}"),
            Step::RemoveAddress(RemovalReason::Rejected) => assert!(!state.is_bound, "{state:?}"),
            Step::Done(end) => assert_ne!(end, End::UnexpectedEvent, "{state:?}"),
            _ => {}
        }
        let events = binding_events(step).into_iter();
        events.map(|event| bound_on(state, event)).collect()
    });
}

/// What is known during a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Releasing {
    release: release::Release,
    /// The API server has confirmed that the claim has no IPAddress.
    is_absent: bool,
    /// The IPAddress that was read has another owner, and the claim was not read since.
    is_unchecked: bool,
    /// The provider has released the address, while there was no IPAddress.
    is_released: bool,
}

fn releasing_events(step: release::Step) -> Vec<release::Event> {
    use release::{Event, Step};
    match step {
        Step::RemoveKnownAddress => vec![Event::Removed, Event::Blocked, Event::AddressChanged],
        Step::ReadAddress | Step::ReadLateAddress => {
            addresses().into_iter().map(Event::Address).collect()
        }
        Step::CheckClaim => CLAIMS.map(Event::Claim).to_vec(),
        Step::RemoveAddress => vec![Event::Removed, Event::Blocked],
        Step::Release => vec![
            Event::Released {
                creation_may_apply: true,
            },
            Event::Released {
                creation_may_apply: false,
            },
            Event::Later,
        ],
        Step::Report => vec![
            Event::Reported { is_written: true },
            Event::Reported { is_written: false },
        ],
        Step::RemoveFinalizer => vec![Event::FinalizerRemoved],
        Step::Done(_) => Vec::new(),
    }
}

fn released_on(mut state: Releasing, event: release::Event) -> Releasing {
    use release::Event;
    match event {
        Event::Removed => state.is_absent = true,
        Event::Address(found) => {
            let ours = found.filter(|found| found.is_for_claim);
            state.is_absent = ours.is_none();
            state.is_unchecked = ours.is_some_and(|found| found.owner != Owner::ThisClaim);
        }
        Event::Claim(_) => state.is_unchecked = false,
        Event::Released { creation_may_apply } => {
            state.is_released = state.is_absent;
            state.is_absent &= !creation_may_apply;
        }
        _ => {}
    }
    state.release.next(event);
    state
}

#[test]
fn claim_is_released_in_order() {
    let mut start = Vec::new();
    for bits in 0..8_u8 {
        let is_set = |bit: u8| bits & (1 << bit) != 0;
        let facts = release::Facts {
            address_is_known: is_set(0),
            has_finalizer: is_set(1),
            is_early: is_set(2),
        };
        start.push(Releasing {
            release: release::Release::start(facts),
            is_absent: false,
            is_unchecked: false,
            is_released: false,
        });
    }
    walk(start, |state| {
        use release::{End, Step};
        let step = state.release.step();
        match step {
            Step::RemoveAddress => assert!(!state.is_unchecked, "{state:?}"),
            Step::Release => assert!(state.is_absent, "{state:?}"),
            Step::RemoveFinalizer | Step::Done(End::Released) => {
                assert!(state.is_absent && state.is_released, "{state:?}");
            }
            Step::Done(end) => assert_ne!(end, End::UnexpectedEvent, "{state:?}"),
            _ => {}
        }
        let events = releasing_events(step).into_iter();
        events.map(|event| released_on(state, event)).collect()
    });
}

#[test]
fn clean_up_changes_nothing_of_a_claim_that_exists() {
    use clean_up::{CleanUp, End, Event, Step};
    // With whether the claim was read as gone, and whether the IPAddress may be deleted.
    walk(
        vec![(CleanUp::start(), false, false)],
        |(clean_up, is_gone, is_leftover)| {
            let events: Vec<Event> = match clean_up.step() {
                Step::CheckClaim => CLAIMS.map(Event::Claim).to_vec(),
                Step::ReadAddress => addresses().into_iter().map(Event::Address).collect(),
                Step::CheckSuccessor => {
                    vec![
                        Event::Successor { exists: true },
                        Event::Successor { exists: false },
                    ]
                }
                Step::RemoveAddress => {
                    assert!(is_gone && is_leftover, "{clean_up:?}");
                    vec![Event::Removed, Event::AddressChanged]
                }
                Step::Release => {
                    assert!(is_gone, "{clean_up:?}");
                    vec![Event::Released, Event::Later]
                }
                Step::Done(end) => {
                    assert_ne!(end, End::UnexpectedEvent, "{clean_up:?}");
                    assert_eq!(end == End::ClaimExists, !is_gone, "{clean_up:?}");
                    Vec::new()
                }
            };
            let follow = |event: Event| {
                let mut next = clean_up;
                next.next(event);
                let is_ours = |found: FoundAddress| found.owner == Owner::ThisClaim;
                let is_leftover = match event {
                    Event::Address(found) => found.is_some_and(is_ours),
                    Event::Successor { exists } => !exists,
                    _ => is_leftover,
                };
                (
                    next,
                    is_gone || event == Event::Claim(ClaimRead::Gone),
                    is_leftover,
                )
            };
            events.into_iter().map(follow).collect()
        },
    );
}

fn held_addresses() -> Vec<Option<allocate::HeldAddress>> {
    let mut found = vec![None];
    for bits in 0..32_u8 {
        let is_set = |bit: u8| bits & (1 << bit) != 0;
        found.push(Some(allocate::HeldAddress {
            is_misplaced: is_set(0),
            is_promise: is_set(1),
            is_in_pool: is_set(2),
            is_draining: is_set(3),
            is_used_by_other: is_set(4),
        }));
    }
    found
}

fn allocation_events(step: allocate::Step) -> Vec<allocate::Event> {
    use allocate::{EarlierAttempt, Event, Proposed, Step};
    match step {
        Step::FindHeld => held_addresses().into_iter().map(Event::Held).collect(),
        Step::MoveHeld => {
            let moved = held_addresses().into_iter().flatten();
            let moved = moved
                .filter(|held| !held.is_misplaced)
                .map(|held| Event::Held(Some(held)));
            moved.chain([Event::Taken, Event::Changed]).collect()
        }
        Step::CheckHeld => [true, false]
            .map(|is_ours| Event::HeldRead { is_ours })
            .to_vec(),
        Step::FindAttempt => [
            EarlierAttempt::None,
            EarlierAttempt::Unreserved,
            EarlierAttempt::Released,
        ]
        .map(Event::Attempt)
        .to_vec(),
        Step::CheckPermission | Step::CheckLimits | Step::CheckBlock => vec![Event::Permitted],
        Step::CheckPool => vec![Event::Permitted, Event::AskAgain],
        Step::Propose => {
            let proposed = [Proposed::Unreserved, Proposed::Released].map(Event::Proposed);
            proposed.into_iter().chain([Event::AskAgain]).collect()
        }
        Step::TakeOver(_) => vec![Event::Reserved, Event::Taken, Event::Gone],
        Step::Reserve(_) => vec![Event::Reserved, Event::Taken],
        Step::CatchUp => vec![Event::CaughtUp],
        Step::Done(_) => Vec::new(),
    }
}

#[test]
fn allocated_address_is_reserved_for_the_claim() {
    use allocate::{Allocate, End, Event, HeldAddress, Step};
    let start = [true, false].map(|is_bound| (Allocate::start(is_bound), false, None));
    walk(start.to_vec(), |(allocate, is_reserved, held)| {
        let step = allocate.step();
        match step {
            Step::CheckLimits | Step::CheckBlock | Step::CheckPool | Step::Done(End::Allocated) => {
                assert!(is_reserved, "{allocate:?}");
            }
            Step::CheckHeld => {
                let is_used = held.is_none_or(|held: HeldAddress| held.is_used_by_other);
                assert!(!is_used, "{allocate:?}");
            }
            Step::Done(end) => assert_ne!(end, End::UnexpectedEvent, "{allocate:?}"),
            _ => {}
        }
        let follow = |event: Event| {
            let mut next = allocate;
            next.next(event);
            let is_reserved =
                is_reserved || matches!(event, Event::Reserved | Event::HeldRead { is_ours: true });
            let held = if let Event::Held(found) = event {
                found
            } else {
                held
            };
            (next, is_reserved, held)
        };
        allocation_events(step).into_iter().map(follow).collect()
    });
}

#[test]
fn reservation_is_taken_over_after_a_read_of_the_claim() {
    use adopt::{Adopt, End, Event, Holder, Step};
    let start = [true, false].map(|is_held| (Adopt::start(is_held), false));
    walk(start.to_vec(), |(adopt, is_checked)| {
        let events: Vec<Event> = match adopt.step() {
            Step::CheckHeld => [true, false]
                .map(|is_ours| Event::HeldRead { is_ours })
                .to_vec(),
            Step::Reserve => vec![Event::Reserved, Event::Taken],
            Step::ReadHolder => {
                let holders = [Holder::EarlierClaim, Holder::Released, Holder::Other];
                let holders = holders.map(Some).into_iter().chain([None]);
                holders.map(Event::Holder).collect()
            }
            Step::CheckClaim(_) => CLAIMS.map(Event::Claim).to_vec(),
            Step::TakeOver(holder) => {
                assert!(is_checked && holder != Holder::Other, "{adopt:?}");
                vec![Event::Reserved, Event::Taken]
            }
            Step::Done(end) => {
                assert_ne!(end, End::UnexpectedEvent, "{adopt:?}");
                Vec::new()
            }
        };
        let follow = |event: Event| {
            let mut next = adopt;
            next.next(event);
            let is_checked = match event {
                Event::Claim(read) => read == ClaimRead::Exists,
                // The claim is read after the reservation.
                Event::Holder(_) => false,
                _ => is_checked,
            };
            (next, is_checked)
        };
        events.into_iter().map(follow).collect()
    });
}

#[test]
fn only_reservations_of_the_claim_are_released() {
    use free::{End, Event, Free, Step};
    walk(vec![(Free::start(), false)], |(free, is_ours)| {
        let events: Vec<Event> = match free.step() {
            Step::FindHeld | Step::FindScope => {
                [true, false].map(|exists| Event::Found { exists }).to_vec()
            }
            Step::ReadReservation => [true, false]
                .map(|is_ours| Event::Read { is_ours })
                .to_vec(),
            Step::Release(_) => {
                assert!(is_ours, "{free:?}");
                let changed = [true, false].map(|is_ours| Event::Changed { is_ours });
                changed.into_iter().chain([Event::Released]).collect()
            }
            Step::Done(end) => {
                assert_ne!(end, End::UnexpectedEvent, "{free:?}");
                Vec::new()
            }
        };
        let follow = |event: Event| {
            let mut next = free;
            next.next(event);
            let is_ours = match event {
                // What the ledger shows is released in the version that it shows.
                Event::Found { exists } => exists && free.step() == Step::FindHeld,
                Event::Read { is_ours } | Event::Changed { is_ours } => is_ours,
                Event::Released => false,
            };
            (next, is_ours)
        };
        events.into_iter().map(follow).collect()
    });
}

#[test]
fn unexpected_event_ends_each_machine() {
    let facts = bind::Facts {
        has_finalizer: false,
        address_is_known: false,
        is_bound: false,
        allocates_early: false,
    };
    let bound = bind::Bind::start(facts).next(bind::Event::Committed);
    assert_eq!(bound, bind::Step::Done(bind::End::UnexpectedEvent));
    let freed = free::Free::start().next(free::Event::Released);
    assert_eq!(freed, free::Step::Done(free::End::UnexpectedEvent));
    let adopted = adopt::Adopt::start(true).next(adopt::Event::Taken);
    assert_eq!(adopted, adopt::Step::Done(adopt::End::UnexpectedEvent));
}

#[test]
fn address_that_was_not_in_use_has_its_place_in_the_pool() {
    use allocate::{Allocate, End, Event, HeldAddress, Step};
    let start = [true, false].map(|is_bound| (Allocate::start(is_bound), is_bound, false, false));
    walk(
        start.to_vec(),
        |(allocate, is_bound, is_held, is_checked)| {
            let step = allocate.step();
            if step == Step::Done(End::Allocated) {
                // A bound claim had its address before, unless it was promised since.
                assert!(is_checked || is_bound && is_held, "{allocate:?}");
            }
            let follow = |event: Event| {
                let mut next = allocate;
                next.next(event);
                let is_held = match event {
                    Event::Held(found) => found.is_some_and(|held: HeldAddress| !held.is_promise),
                    _ => is_held,
                };
                // The block was checked before.
                let is_checked = is_checked || step == Step::CheckPool;
                (next, is_bound, is_held, is_checked)
            };
            allocation_events(step).into_iter().map(follow).collect()
        },
    );
}
