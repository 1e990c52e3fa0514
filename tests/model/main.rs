//! The allocation protocol as a model, and a checker that tries everything that can happen in it.
//!
//! The model has an API server with claims, IPAddress objects, reservations and one pool; a consumer that creates claims,
//! relabels them, deletes them and creates others of the same name; the garbage collector; and one or two managers, both
//! active. Each manager sees each kind in a view of its own that lags behind for any time and then jumps to what is
//! current. One call to the API server, with what follows from its answer in memory, is one step; anything may happen
//! between two. A manager may crash at any of them, the reply to a write may be lost, a write may be applied long after it
//! was given up, and the answer to a list may reach the ledger after newer events.
//!
//! | step of the model | what does it |
//! |---|---|
//! | [`tasks::decide`] | `provider::decision::decide`, for claims that are not paused |
//! | `AddFinalizer` (A1), also along with A2 | `ClaimReconciler::{bind, add_finalizer}` in `provider/bind.rs` |
//! | `Look`, `CheckBeforeAdoption` | `ClaimReconciler::bind`, before and in its loop |
//! | `allocate`, `propose`, `CheckReservation` | `Allocator::{allocate, reserved_already, is_ours}`, `Ledger::{reserved_for, propose}` |
//! | `Reserve`, `ReadReservation` (A2) | `Allocator::reserve` in `in_cluster/allocate.rs` |
//! | `adopt`, `ReadHolder`, `CheckBeforeTakingOver`, `TakeOver` | `Allocator::adopt`, `Ledger::announce` |
//! | `CreateAddress`, `ReadAddress` (A3) | `ClaimReconciler::create_address` |
//! | `Repair` | `ClaimReconciler::adopt` in `provider/bind.rs` |
//! | `Bind`, `CheckAfterBind` (A4) | `ClaimReconciler::{commit, is_there}` |
//! | `Strip`, `Delete` (R1) | `ClaimReconciler::{remove_as_seen, remove_address}`, `finalizer::{delete, delete_as_seen}` |
//! | `ReleaseLook`, `CheckBeforeRelease`, `ConfirmRelease`, `LetGo` (R3) | `ClaimReconciler::release` in `provider/release.rs` |
//! | `give_back`, `Unreserve` (R2) | `delete` in `in_cluster/release.rs`, `Ledger::reservation_uid` |
//! | `ReadHeld`, `MarkReleased` (R2 with a cool-down) | `rest` in `in_cluster/release.rs` |
//! | `begin_clean_up`, `CheckBeforeCleanUp` | `Vanished` in `provider/reconciler.rs`, the live read in `provider/release.rs` |
//! | `UndoLook`, `UndoCheck` | the clean-up after a claim that is gone, in `provider/release.rs` |
//! | [`scope::Scope::serves`] | `--namespace` and `--watch-filter` |
//! | [`state::State::begin_sweep`], [`state::State::sweep_on`] | `Sweeper::{confirmed, free, remove_address, reserve}` |
//! | `begin_to_end_cooldown`, `EndCooldown` | `Sweeper::{end_rests, end_rest}`, `Ledger::rested` |
//! | `begin_to_end_for_use`, `CheckUse`, `CheckUser` | `Sweeper::end_pointless_rests`, `Ledger::resting_in_use` |
//! | `learn`, `forget`, `announce`, `withdraw` | `Ledger::{insert_reservation, remove_reservation, announce, withdraw}` |
//! | `List`, `InsertList` | `Allocator::allocate` after too many taken proposals, and any other read that the ledger takes in |
//! | [`pool::admits`], [`pool::proposes`] | what a claim of a deleting pool does: `provider::decision`, `PoolInfo::serves` |
//! | `work_on_pool`, `RemovePoolFinalizer` | `obstacle` and what follows it in `in_cluster/pools.rs` |
//!
//! A change there is to be followed here. What the model does more carefully than the program is marked by a mistake in
//! `mistakes.rs`. Not in the model:
//!
//! - pausing, pools that change or are created again, promises, foreign finalizers, claims that were moved here;
//! - IPAddress objects made, changed or deleted by hand, or by another provider that is still running;
//! - an address whose manager skips R2 because its ledger lags: the sweeper frees it later, without a cool-down;
//! - statuses and conditions, and managers that write them in turns;
//! - the line of waiting claims (any claim may be the next), and time: own writes are not waited for (a manager may go by
//!   an old view at once), the sweeper has no time of grace (it may look at once), a cool-down ends at any time;
//! - more than one clean-up of a manager at a time, more than one list, more than one pool, more than two managers.
//!
//! The index of addresses and the ledger share one view of them. A view does not stop at states between an old one and
//! the current one.
//!
//! The scopes of the ordinary tests are small, and complete: all states have been visited. Larger ones are not:
//!
//! ```sh
//! MODEL_SECONDS=600 cargo test --release --test model -- --ignored --nocapture
//! ```
//!
//! visits some larger scopes whole, and looks at two managers with late writes, both of them with views of their own,
//! breadth first and by random courses of events, for that many seconds each.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "test code: a failure ends the test"
)]
#![allow(clippy::match_same_arms, reason = "the steps stand in their order")]
#![allow(clippy::struct_field_names, reason = "an address has an address, as it has in the API")]

mod ages;
mod cooldown;
mod mistakes;
mod pool;
mod properties;
mod protocol;
mod recovery;
mod scope;
mod server;
mod state;
mod sweeper;
mod tasks;
mod views;

use std::time::{Duration, Instant};

use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model, UniformChooser};

use protocol::{Action, Protocol};
use scope::{BY_LABEL, BY_NAMESPACE, LIMITED_SECOND, Scope, SMALLEST, Start};
use state::State;

/// One manager, one address, two claims, of which one is deleted and created again.
const ONE_MANAGER: Scope = Scope { lives: [2, 1], ..SMALLEST };

/// One manager that knows everything, and one that sees little, as one does that was stopped for a while.
const TWO_MANAGERS: Scope = Scope { managers: 2, lives: [2, 0], prompt: true, glimpses: 1, ..SMALLEST };

/// Two managers that see whatever they like, and writes that are applied late.
const WITHOUT_END: Scope = Scope {
    managers: 2,
    addresses: 2,
    lives: [2, 1],
    crashes: 1,
    lost_replies: 1,
    late_writes: 2,
    vanishings: 1,
    glimpses: u8::MAX,
    sweepers: true,
    collector: true,
    ..SMALLEST
};

/// The same, with claims that go from one manager to the other, cool-downs, late lists, and a pool that is deleted.
const WITHOUT_END_IN_PARTS: Scope = Scope {
    late_writes: 1,
    relabels: 2,
    lists: 1,
    serves: BY_LABEL,
    selector: true,
    clean_up: true,
    cooldown: true,
    pool_deletion: true,
    ..WITHOUT_END
};

fn checker(scope: Scope) -> CheckerBuilder<Protocol> {
    Protocol::new(scope).checker().finish_when(HasDiscoveries::AnyFailures)
}

/// Says how much was seen, and fails with the shortest way to what is broken.
fn report(scope: &Scope, checker: &impl Checker<Protocol>, started: Instant) {
    let (all, unique, depth) = (checker.state_count(), checker.unique_state_count(), checker.max_depth());
    println!("{all} states, {unique} of them different, depth {depth}, {:.1?}: {scope:?}", started.elapsed());
    for (name, path) in checker.discoveries() {
        if checker.model().property(name).expectation.discovery_is_failure() {
            let steps: Vec<(State, Option<Action>)> = path.into_vec();
            for (state, action) in &steps {
                println!("{:?}\n    {action:?}", state.objects);
            }
            panic!("broken: {name}");
        }
    }
}

/// Both for the in-cluster provider, and for one that allocates only when the claim has its finalizer.
fn holds_everywhere(scope: Scope) {
    for early in [true, false] {
        holds(Scope { early, ..scope });
    }
}

fn holds(scope: Scope) {
    let started = Instant::now();
    let checker = checker(scope).spawn_bfs().join();
    report(&scope, &checker, started);
    assert!(checker.is_done());
    // What is never reached proves nothing.
    for property in checker.model().properties() {
        let reached = checker.discovery(property.name).is_some();
        assert_eq!(reached, property.expectation == stateright::Expectation::Sometimes, "{}", property.name);
    }
}

#[test]
fn one_manager_may_crash() {
    holds_everywhere(Scope { addresses: 2, crashes: 1, ..ONE_MANAGER });
}

#[test]
fn replies_may_be_lost_while_claims_wait_for_an_address() {
    holds_everywhere(Scope { crashes: 1, lost_replies: 1, lives: [1, 1], ..ONE_MANAGER });
}

#[test]
fn a_write_may_be_applied_late() {
    holds_everywhere(Scope { late_writes: 1, lives: [2, 0], lost_replies: 1, ..ONE_MANAGER });
}

#[test]
fn a_claim_may_vanish_while_the_sweeper_is_at_work() {
    let again = Scope { lives: [2, 0], ..ONE_MANAGER };
    holds_everywhere(Scope { crashes: 1, vanishings: 1, sweepers: true, collector: true, ..again });
}

#[test]
fn a_second_manager_may_be_far_behind() {
    holds_everywhere(Scope { glimpses: 2, ..TWO_MANAGERS });
}

#[test]
fn a_second_manager_may_be_far_behind_when_a_reply_is_lost() {
    holds_everywhere(Scope { lost_replies: 1, ..TWO_MANAGERS });
}

#[test]
fn a_relabelled_claim_keeps_its_address() {
    let relabelled = Scope { serves: BY_LABEL, selector: true, relabels: 2, clean_up: true, ..SMALLEST };
    holds_everywhere(Scope { sweepers: true, vanishings: 1, ..relabelled });
    holds_everywhere(Scope { managers: 2, prompt: true, glimpses: 2, relabels: 1, ..relabelled });
}

#[test]
fn addresses_of_other_namespaces_are_not_allocated() {
    let limited = Scope { start: Start::TakenOver, lives: [1, 1], serves: BY_NAMESPACE, ..SMALLEST };
    holds_everywhere(Scope { addresses: 2, sweepers: true, crashes: 1, ..limited });
    holds_everywhere(Scope { managers: 2, prompt: true, glimpses: 1, sweepers: true, ..limited });
}

#[test]
fn released_addresses_cool_down() {
    let cooling = Scope { cooldown: true, sweepers: true, ..SMALLEST };
    holds_everywhere(Scope { lives: [2, 0], crashes: 1, lost_replies: 1, ..cooling });
    holds_everywhere(Scope { lives: [2, 0], late_writes: 1, ..cooling });
    let two = Scope { managers: 2, prompt: true, glimpses: 1, serves: BY_NAMESPACE, ..cooling };
    for start in [Start::Released, Start::Bound, Start::UsedAgain] {
        holds_everywhere(Scope { start, lives: [1, 1], ..two });
    }
}

#[test]
fn a_late_list_does_not_bring_reservations_back() {
    let listing = Scope { lives: [2, 0], lists: 1, sweepers: true, ..SMALLEST };
    for cooldown in [false, true] {
        holds_everywhere(Scope { crashes: 1, cooldown, ..listing });
        holds_everywhere(Scope { slow_lists: true, cooldown, ..listing });
    }
    holds_everywhere(Scope { managers: 2, prompt: true, glimpses: 1, lists: 1, ..SMALLEST });
}

#[test]
fn a_deleted_pool_and_its_claims_do_not_wait_for_each_other() {
    let deleted = Scope { pool_deletion: true, ..SMALLEST };
    holds_everywhere(Scope { lives: [2, 0], crashes: 1, lost_replies: 1, ..deleted });
    holds_everywhere(Scope { lives: [1, 1], crashes: 1, ..deleted });
    holds_everywhere(Scope { lives: [2, 0], late_writes: 1, ..deleted });
    holds_everywhere(Scope { lives: [2, 0], cooldown: true, sweepers: true, ..deleted });
    holds_everywhere(Scope { managers: 2, prompt: true, glimpses: 2, ..deleted });
}

#[test]
#[ignore = "millions of states: to be run with --release"]
fn larger_scopes_hold_too() {
    holds_everywhere(Scope { addresses: 2, crashes: 1, lost_replies: 1, ..ONE_MANAGER });
    holds_everywhere(Scope { late_writes: 1, ..ONE_MANAGER });
    holds_everywhere(Scope { late_writes: 1, ..TWO_MANAGERS });
    holds_everywhere(Scope { lives: [1, 1], ..TWO_MANAGERS });
    holds_everywhere(Scope { lives: [1, 1], addresses: 2, ..TWO_MANAGERS });
}

#[test]
#[ignore = "millions of states: to be run with --release"]
fn larger_scopes_of_parts_hold_too() {
    let one = Scope { lives: [2, 0], sweepers: true, ..SMALLEST };
    let two = Scope { managers: 2, prompt: true, glimpses: 1, ..one };
    let clean_up = Scope { clean_up: true, vanishings: 1, crashes: 1, ..one };
    holds_everywhere(Scope { cooldown: true, ..clean_up });
    holds_everywhere(Scope { cooldown: true, late_writes: 1, lost_replies: 1, crashes: 1, ..one });
    holds_everywhere(Scope { cooldown: true, ..two });
    let labels = Scope { serves: BY_LABEL, selector: true, relabels: 1, clean_up: true, ..two };
    holds_everywhere(Scope { cooldown: true, ..labels });
    let limited = Scope { cooldown: true, serves: LIMITED_SECOND, lives: [1, 1], ..two };
    for start in [Start::Released, Start::Bound, Start::UsedAgain] {
        holds_everywhere(Scope { start, ..limited });
    }
    holds_everywhere(Scope { lists: 1, slow_lists: true, ..two });
    holds_everywhere(Scope { pool_deletion: true, collector: true, ..clean_up });
    holds_everywhere(Scope { pool_deletion: true, start: Start::TakenOver, lives: [1, 1], addresses: 2, ..one });
    holds_everywhere(Scope { pool_deletion: true, start: Start::TakenOver, lives: [1, 1], ..two });
}

fn time() -> Duration {
    let seconds = std::env::var("MODEL_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

#[test]
#[ignore = "takes as long as MODEL_SECONDS says, and is not complete"]
fn two_managers_breadth_first() {
    for scope in [WITHOUT_END, WITHOUT_END_IN_PARTS] {
        let started = Instant::now();
        let checker = checker(scope).timeout(time()).threads(2).spawn_bfs().join();
        report(&scope, &checker, started);
    }
}

#[test]
#[ignore = "takes as long as MODEL_SECONDS says, and is not complete"]
fn two_managers_by_chance() {
    let seed = std::env::var("MODEL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    for scope in [WITHOUT_END, WITHOUT_END_IN_PARTS] {
        let started = Instant::now();
        let protocol = Protocol { only_possible: true, ..Protocol::new(scope) };
        let checker = protocol.checker().finish_when(HasDiscoveries::AnyFailures).timeout(time()).threads(2);
        let checker = checker.spawn_simulation(seed, UniformChooser).join();
        report(&scope, &checker, started);
    }
}
