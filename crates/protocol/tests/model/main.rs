//! A model of the allocation protocol, and a model checker that explores all its states.
//!
//! The model has an API server with claims, IPAddress objects, reservations and one pool; a
//! consumer that creates claims, relabels them, deletes them and creates others of the same name;
//! the garbage collector; and one or two active managers. Each manager has a separate cache of each
//! kind, which lags behind for any time and then jumps to the current state. One request to the API
//! server, with its effect in memory, is one step; anything may happen between two steps. A manager
//! may crash at any step, the reply to a write may be lost, a write may be applied long after its
//! timeout, and the response to a list may reach the ledger after newer events.
//!
//! The order of the requests of bind, release, clean-up, allocation, adoption and the release of
//! reservations is that of the product: [`tasks`] drives the machines of `crates/protocol`, and
//! [`sweeper`] that of the reads before the release of an abandoned reservation. What an answer to
//! the write of a reservation means is decided by `capi_ipam_protocol::write`, and what a claim
//! needs by `capi_ipam_protocol::decision`. The rest is written here once more:
//!
//! | step of the model | implementation |
//! |---|---|
//! | [`scope::Scope::serves`] | `--namespace` and `--watch-filter` |
//! | [`state::State::suspects`] | `AbandonedReservations::find`, `UnclaimedAddresses::find`, `CreateMissingReservations::keeper` |
//! | `reserve_missing` | `CreateMissingReservations::create` |
//! | `CheckClaim`, `MarkReleased`, `Unreserve` | `UnclaimedAddresses::release`, `AbandonedReservations::release` |
//! | `begin_to_end_cooldown`, `EndCooldown` | `end_cooldown` in `in_cluster/cooldown.rs` |
//! | `begin_to_end_for_use`, `CheckUse`, `CheckUser`, `TakeForUse` | `EndStaleCooldowns::end` |
//! | `learn`, `forget`, `propose` | the ledger |
//! | `Strip`, `Delete` | `finalizer::delete` |
//! | `List`, `InsertList` | `ReservationStore::for_each`, and all other reads that the ledger takes in |
//! | [`pool::holds_address`], [`pool::proposes`] | `PoolView::holds_address`, `PoolInfo::can_allocate` |
//! | `work_on_pool`, `RemovePoolFinalizer` | `find_blocker` and its caller in `in_cluster/pools.rs` |
//! | `allocate_from_set`, `refused` | `in_cluster/set_allocation.rs` |
//! | `is_right_member`, `is_used_by` | `member_of`, `Ledger::known_block` |
//!
//! A change there must be followed here. The mutations show that each precaution is needed: see
//! `mutations.rs`. Not in the model:
//!
//! - pausing, pools that change or are recreated, restored claims, addresses that users exclude,
//!   and promises that they delete;
//! - IPAddress objects that are created, changed or deleted manually or by another running
//!   provider;
//! - statuses and conditions, and managers that write them alternately;
//! - the queue of waiting claims (any claim may be the next), and time: there are no expectations
//!   of own writes (a manager may act on a stale cache immediately), no grace period of the
//!   sweeper, and a cool-down ends at any time;
//! - the read before R3 after a creation with an unknown outcome: the protocol holds without it;
//! - more than one clean-up of a manager at a time, more than one list, more than two managers;
//! - more than one pool, but for a set of two pools, each with one address: pools of a set that have
//!   the same address in different scopes, the deletion of a set, failure domains, and an IPAddress
//!   of an earlier claim whose annotation a user has changed to another member.
//!
//! Pools that join and leave a network, and slices, have separate models, see `joining.rs` and
//! `slices.rs`.
//!
//! The index of addresses and the ledger share one cache. A cache skips the states between an old
//! one and the current one.
//!
//! The scopes of the ordinary tests are small and complete: all states are visited. Larger ones are
//! not complete:
//!
//! ```sh
//! MODEL_SECONDS=600 cargo test --release --package capi-ipam-protocol --test model -- --ignored --nocapture
//! ```
//!
//! visits some larger scopes completely, and explores two managers with late writes and separate
//! caches, breadth first and with random walks, for the given number of seconds each.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "test code: a failure ends the test"
)]
#![allow(clippy::match_same_arms, reason = "the steps are in their order")]
#![allow(
    clippy::struct_field_names,
    reason = "the field of an address is named as in the API"
)]

mod ages;
mod blocks;
mod checks;
mod cooldown;
mod joining;
mod mutations;
mod pool;
mod properties;
mod protocol;
mod recovery;
mod scope;
mod server;
mod sets;
mod slices;
mod state;
mod sweeper;
mod tasks;
mod views;

use std::time::{Duration, Instant};

use stateright::{Checker, UniformChooser};

use checks::{assert_holds, assert_no_violation, checker};
use protocol::Protocol;
use scope::{BY_LABEL, BY_NAMESPACE, LIMITED_SECOND, SMALLEST, Scope, Start};
use state::Member;

/// One manager, one address, two claims, of which one is deleted and created again.
const ONE_MANAGER: Scope = Scope {
    lives: [2, 1],
    ..SMALLEST
};

/// One manager with current caches, and one with stale caches, as after a suspension.
const TWO_MANAGERS: Scope = Scope {
    managers: 2,
    lives: [2, 0],
    first_is_current: true,
    second_updates: 1,
    ..SMALLEST
};

/// Two managers with caches of any age, and late writes.
const UNBOUNDED: Scope = Scope {
    managers: 2,
    addresses: 2,
    lives: [2, 1],
    crashes: 1,
    lost_replies: 1,
    late_writes: 2,
    vanishings: 1,
    second_updates: u8::MAX,
    sweepers: true,
    collector: true,
    ..SMALLEST
};

/// The same, with relabelled claims, cool-downs, late lists, and a deleted pool.
const UNBOUNDED_WITH_VIEWS: Scope = Scope {
    late_writes: 1,
    relabels: 2,
    lists: 1,
    serves: BY_LABEL,
    selector: true,
    clean_up: true,
    cooldown: true,
    pool_deletion: true,
    ..UNBOUNDED
};

/// Both for the in-cluster provider and for one that allocates only when the claim has its
/// finalizer.
fn assert_holds_in_both_modes(scope: Scope) {
    for early in [true, false] {
        let scope = Scope { early, ..scope };
        assert_holds(&scope, Protocol::new(scope));
    }
}

#[test]
fn protocol_survives_a_crash() {
    assert_holds_in_both_modes(Scope {
        addresses: 2,
        crashes: 1,
        ..ONE_MANAGER
    });
}

#[test]
fn protocol_survives_lost_replies_while_claims_wait() {
    assert_holds_in_both_modes(Scope {
        crashes: 1,
        lost_replies: 1,
        lives: [1, 1],
        ..ONE_MANAGER
    });
}

#[test]
fn protocol_survives_late_writes() {
    assert_holds_in_both_modes(Scope {
        late_writes: 1,
        lives: [2, 0],
        lost_replies: 1,
        ..ONE_MANAGER
    });
}

#[test]
fn protocol_survives_a_vanished_claim_during_a_sweep() {
    let again = Scope {
        lives: [2, 0],
        ..ONE_MANAGER
    };
    assert_holds_in_both_modes(Scope {
        crashes: 1,
        vanishings: 1,
        sweepers: true,
        collector: true,
        ..again
    });
}

#[test]
fn protocol_survives_a_stale_second_manager() {
    assert_holds_in_both_modes(Scope {
        second_updates: 2,
        ..TWO_MANAGERS
    });
}

#[test]
fn protocol_survives_a_stale_manager_and_a_lost_reply() {
    assert_holds_in_both_modes(Scope {
        lost_replies: 1,
        ..TWO_MANAGERS
    });
}

#[test]
fn relabelled_claim_keeps_its_address() {
    let relabelled = Scope {
        serves: BY_LABEL,
        selector: true,
        relabels: 2,
        clean_up: true,
        ..SMALLEST
    };
    assert_holds_in_both_modes(Scope {
        sweepers: true,
        vanishings: 1,
        ..relabelled
    });
    assert_holds_in_both_modes(Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 2,
        relabels: 1,
        ..relabelled
    });
}

#[test]
fn addresses_of_other_namespaces_are_not_allocated() {
    let limited = Scope {
        start: Start::TakenOver,
        lives: [1, 1],
        serves: BY_NAMESPACE,
        ..SMALLEST
    };
    assert_holds_in_both_modes(Scope {
        addresses: 2,
        sweepers: true,
        crashes: 1,
        ..limited
    });
    assert_holds_in_both_modes(Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 1,
        sweepers: true,
        ..limited
    });
}

#[test]
fn released_addresses_cool_down() {
    let cooling = Scope {
        cooldown: true,
        sweepers: true,
        ..SMALLEST
    };
    assert_holds_in_both_modes(Scope {
        lives: [2, 0],
        crashes: 1,
        lost_replies: 1,
        ..cooling
    });
    assert_holds_in_both_modes(Scope {
        lives: [2, 0],
        late_writes: 1,
        ..cooling
    });
    let two = Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 1,
        serves: BY_NAMESPACE,
        ..cooling
    };
    for start in [Start::Released, Start::Bound, Start::Reused] {
        assert_holds_in_both_modes(Scope {
            start,
            lives: [1, 1],
            ..two
        });
    }
}

#[test]
fn addresses_of_force_removed_claims_cool_down() {
    let forced = Scope {
        cooldown: true,
        sweepers: true,
        forced: 1,
        ..SMALLEST
    };
    assert_holds_in_both_modes(Scope {
        lives: [1, 1],
        ..forced
    });
    assert_holds_in_both_modes(Scope {
        lives: [2, 0],
        crashes: 1,
        lost_replies: 1,
        ..forced
    });
    assert_holds_in_both_modes(Scope {
        lives: [2, 0],
        sticky: true,
        ..forced
    });
}

#[test]
fn sticky_addresses_return_to_their_claims() {
    let sticky = Scope {
        sticky: true,
        sweepers: true,
        lives: [2, 0],
        ..SMALLEST
    };
    for cooldown in [false, true] {
        let sticky = Scope { cooldown, ..sticky };
        assert_holds_in_both_modes(Scope {
            addresses: 2,
            crashes: 1,
            lost_replies: 1,
            ..sticky
        });
        assert_holds_in_both_modes(Scope {
            late_writes: 1,
            sticky_later: !cooldown,
            ..sticky
        });
        assert_holds_in_both_modes(Scope {
            lives: [2, 1],
            ..sticky
        });
    }
    let two = Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 1,
        serves: BY_NAMESPACE,
        ..sticky
    };
    assert_holds_in_both_modes(Scope {
        cooldown: true,
        lives: [2, 1],
        ..two
    });
}

#[test]
fn requested_address_is_allocated_to_one_claim() {
    let requests = Scope {
        requests: true,
        addresses: 2,
        sweepers: true,
        lives: [1, 1],
        ..SMALLEST
    };
    for sticky in [false, true] {
        let requests = Scope { sticky, ..requests };
        assert_holds_in_both_modes(Scope {
            crashes: 1,
            lost_replies: 1,
            ..requests
        });
    }
    assert_holds_in_both_modes(Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 1,
        serves: BY_NAMESPACE,
        late_writes: 1,
        ..requests
    });
}

#[test]
fn promised_address_is_for_the_claims_of_its_name() {
    let promised = Scope {
        promises: 1,
        lives: [2, 0],
        ..SMALLEST
    };
    assert_holds_in_both_modes(Scope {
        crashes: 1,
        lost_replies: 1,
        sweepers: true,
        ..promised
    });
    assert_holds_in_both_modes(Scope {
        lives: [1, 1],
        late_writes: 1,
        ..promised
    });
    assert_holds_in_both_modes(Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 1,
        lives: [1, 0],
        ..promised
    });
}

#[test]
fn claim_that_another_controller_keeps_is_not_released() {
    let kept = Scope {
        foreign: true,
        lives: [2, 0],
        ..SMALLEST
    };
    assert_holds_in_both_modes(Scope {
        crashes: 1,
        lost_replies: 1,
        sweepers: true,
        ..kept
    });
    assert_holds_in_both_modes(Scope {
        late_writes: 1,
        cooldown: true,
        ..kept
    });
    assert_holds_in_both_modes(Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 1,
        lives: [1, 0],
        ..kept
    });
}

#[test]
fn late_list_does_not_restore_deleted_reservations() {
    let listing = Scope {
        lives: [2, 0],
        lists: 1,
        sweepers: true,
        ..SMALLEST
    };
    for cooldown in [false, true] {
        assert_holds_in_both_modes(Scope {
            crashes: 1,
            cooldown,
            ..listing
        });
        assert_holds_in_both_modes(Scope {
            slow_lists: true,
            cooldown,
            ..listing
        });
    }
    assert_holds_in_both_modes(Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 1,
        lists: 1,
        ..SMALLEST
    });
}

#[test]
fn deleted_pool_and_its_claims_do_not_deadlock() {
    let deleted = Scope {
        pool_deletion: true,
        ..SMALLEST
    };
    assert_holds_in_both_modes(Scope {
        lives: [2, 0],
        crashes: 1,
        lost_replies: 1,
        ..deleted
    });
    assert_holds_in_both_modes(Scope {
        lives: [1, 1],
        crashes: 1,
        ..deleted
    });
    assert_holds_in_both_modes(Scope {
        lives: [2, 0],
        late_writes: 1,
        ..deleted
    });
    assert_holds_in_both_modes(Scope {
        lives: [2, 0],
        cooldown: true,
        sweepers: true,
        ..deleted
    });
    assert_holds_in_both_modes(Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 2,
        ..deleted
    });
}

/// Claims for a set of two pools, each with one address.
const SET: Scope = Scope {
    sets: true,
    addresses: 2,
    lives: [1, 1],
    sweepers: true,
    ..SMALLEST
};

#[test]
fn claim_for_a_set_keeps_its_member() {
    let changed = Scope {
        set_changes: 1,
        ..SET
    };
    assert_holds_in_both_modes(Scope {
        lives: [2, 0],
        crashes: 1,
        lost_replies: 1,
        ..changed
    });
    assert_holds_in_both_modes(changed);
    assert_holds_in_both_modes(Scope {
        lives: [1, 0],
        late_writes: 1,
        ..changed
    });
}

#[test]
fn two_managers_choose_different_members() {
    assert_holds_in_both_modes(Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 1,
        lives: [1, 0],
        set_changes: 1,
        ..SET
    });
}

#[test]
fn reservation_decides_which_member_has_an_address() {
    for edited in [Member::Missing, Member::Wrong] {
        let edited = Scope {
            edits: 1,
            edited,
            ..SET
        };
        assert_holds_in_both_modes(edited);
        assert_holds_in_both_modes(Scope {
            lives: [2, 0],
            crashes: 1,
            lost_replies: 1,
            ..edited
        });
        assert_holds_in_both_modes(Scope {
            managers: 2,
            first_is_current: true,
            second_updates: 1,
            lives: [1, 0],
            ..edited
        });
    }
}

#[test]
fn address_without_a_reservation_is_of_the_member_with_it() {
    for edited in [Member::Missing, Member::Wrong] {
        let edited = Scope {
            edits: 1,
            edited,
            lives: [2, 0],
            ..SET
        };
        assert_holds_in_both_modes(Scope {
            late_writes: 1,
            ..edited
        });
        assert_holds_in_both_modes(Scope {
            vanishings: 1,
            forced: 1,
            ..edited
        });
    }
}

#[test]
fn deleted_member_is_replaced() {
    let deleted = Scope {
        pool_deletion: true,
        ..SET
    };
    assert_holds_in_both_modes(deleted);
    assert_holds_in_both_modes(Scope {
        lives: [2, 0],
        crashes: 1,
        ..deleted
    });
    assert_holds_in_both_modes(Scope {
        lives: [1, 0],
        late_writes: 1,
        ..deleted
    });
    assert_holds_in_both_modes(Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 1,
        lives: [1, 0],
        ..deleted
    });
}

#[test]
#[ignore = "millions of states: run with --release"]
fn larger_scopes_hold() {
    assert_holds_in_both_modes(Scope {
        addresses: 2,
        crashes: 1,
        lost_replies: 1,
        ..ONE_MANAGER
    });
    assert_holds_in_both_modes(Scope {
        late_writes: 1,
        ..ONE_MANAGER
    });
    assert_holds_in_both_modes(Scope {
        late_writes: 1,
        ..TWO_MANAGERS
    });
    assert_holds_in_both_modes(Scope {
        lives: [1, 1],
        ..TWO_MANAGERS
    });
    assert_holds_in_both_modes(Scope {
        lives: [1, 1],
        addresses: 2,
        ..TWO_MANAGERS
    });
}

#[test]
#[ignore = "millions of states: run with --release"]
fn larger_scopes_of_single_features_hold() {
    let one = Scope {
        lives: [2, 0],
        sweepers: true,
        ..SMALLEST
    };
    let two = Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 1,
        ..one
    };
    let clean_up = Scope {
        clean_up: true,
        vanishings: 1,
        crashes: 1,
        ..one
    };
    assert_holds_in_both_modes(Scope {
        cooldown: true,
        ..clean_up
    });
    assert_holds_in_both_modes(Scope {
        cooldown: true,
        late_writes: 1,
        lost_replies: 1,
        crashes: 1,
        ..one
    });
    assert_holds_in_both_modes(Scope {
        cooldown: true,
        ..two
    });
    let labels = Scope {
        serves: BY_LABEL,
        selector: true,
        relabels: 1,
        clean_up: true,
        ..two
    };
    assert_holds_in_both_modes(Scope {
        cooldown: true,
        ..labels
    });
    let limited = Scope {
        cooldown: true,
        serves: LIMITED_SECOND,
        lives: [1, 1],
        ..two
    };
    for start in [Start::Released, Start::Bound, Start::Reused] {
        assert_holds_in_both_modes(Scope { start, ..limited });
    }
    for cooldown in [false, true] {
        assert_holds_in_both_modes(Scope {
            sticky: true,
            cooldown,
            late_writes: 1,
            sticky_later: cooldown,
            ..one
        });
    }
    assert_holds_in_both_modes(Scope {
        requests: true,
        sticky: true,
        addresses: 2,
        lives: [1, 1],
        serves: BY_NAMESPACE,
        late_writes: 1,
        ..two
    });
    assert_holds_in_both_modes(Scope {
        lists: 1,
        slow_lists: true,
        ..two
    });
    assert_holds_in_both_modes(Scope {
        pool_deletion: true,
        collector: true,
        ..clean_up
    });
    assert_holds_in_both_modes(Scope {
        pool_deletion: true,
        start: Start::TakenOver,
        lives: [1, 1],
        addresses: 2,
        ..one
    });
    assert_holds_in_both_modes(Scope {
        pool_deletion: true,
        start: Start::TakenOver,
        lives: [1, 1],
        ..two
    });
}

#[test]
#[ignore = "millions of states: run with --release"]
fn larger_scopes_of_sets_hold() {
    let two = Scope {
        managers: 2,
        first_is_current: true,
        second_updates: 1,
        lives: [2, 0],
        ..SET
    };
    assert_holds_in_both_modes(two);
    assert_holds_in_both_modes(Scope { sets: false, ..two });
    assert_holds_in_both_modes(Scope { edits: 1, ..two });
    assert_holds_in_both_modes(Scope {
        set_changes: 1,
        crashes: 1,
        lost_replies: 1,
        ..SET
    });
    assert_holds_in_both_modes(Scope {
        pool_deletion: true,
        crashes: 1,
        ..SET
    });
}

fn time() -> Duration {
    let seconds = std::env::var("MODEL_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

#[test]
#[ignore = "runs for MODEL_SECONDS, and is not complete"]
fn two_managers_breadth_first() {
    for scope in [UNBOUNDED, UNBOUNDED_WITH_VIEWS] {
        let started = Instant::now();
        let checker = checker(Protocol::new(scope)).timeout(time());
        assert_no_violation(&scope, &checker.spawn_bfs().join(), started);
    }
}

#[test]
#[ignore = "runs for MODEL_SECONDS, and is not complete"]
fn two_managers_random_walk() {
    let seed = std::env::var("MODEL_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    println!("seed {seed}");
    for scope in [UNBOUNDED, UNBOUNDED_WITH_VIEWS] {
        let started = Instant::now();
        let protocol = Protocol {
            only_enabled: true,
            ..Protocol::new(scope)
        };
        let checker = checker(protocol).timeout(time());
        let checker = checker.spawn_simulation(seed, UniformChooser).join();
        assert_no_violation(&scope, &checker, started);
    }
}
