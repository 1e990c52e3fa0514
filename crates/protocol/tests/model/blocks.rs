//! A model of a block that two management clusters take from a registry, use, and return.
//!
//! Each cluster has a separate API server with a slice, a reservation and a claim for each block.
//! The first cluster can have two managers. A manager sees its API server and the record late, and
//! may crash at any step. The registry may lose a write that it has acknowledged, and then gives
//! the revision of this write to the next one; it may answer a read with the state before the last
//! write; a reply to a write may be lost; and a record may be deleted by hand. The first cluster
//! may stop to share blocks, and its API server may be [restored](restore), or [built
//! again](rebuilt) as another cluster with the same identity. Its claim may be [moved](moves) to
//! the second cluster. The registry may be [restored](registry), also with a third cluster.
//!
//! Which write follows is decided by `capi_ipam_protocol::block`, as in the product.
//!
//! | step of the model | implementation |
//! |---|---|
//! | `Write` | one step of `View::next` |
//! | `Reserve`, `Check` | a reservation is created, and then the slice is read, before an address is bound |
//! | `List`, `Delete` | the list of the addresses in use before a slice is deleted, and the deletion |
//! | `Sweep` | the release of a reservation whose claim is gone |
//! | `Look`, `Return` | the read of the slice before a block is returned, and the write of its record |
//! | `EndQuarantine` | the time after which another cluster may take a block that was returned |
//! | `ListRecords`, `ShowLife`, `EndRecovery` | see [`registry`] |
//! | `Adopt` | `kubectl ipam registry adopt`, and the restore of the claims and reservations |

mod actions;
mod day;
mod moves;
mod mutations;
mod properties;
mod rebuilt;
mod registry;
mod restore;
mod state;
mod writes;

use stateright::{Model, Property};

use actions::Action;
use mutations::Mutation;
use state::{CLUSTERS, State};

use crate::checks;

/// What is explored.
#[derive(Clone, Copy, Debug)]
struct Scope {
    blocks: usize,
    managers: usize,
    /// How many claims each cluster has, one after the other.
    lives: [u32; CLUSTERS],
    crashes: u32,
    lost_replies: u32,
    lost_writes: u32,
    /// How many records are deleted by hand.
    lost_records: u32,
    old_reads: u32,
    /// The highest revision of a record.
    max_revision: u32,
    /// The highest version of a slice.
    max_version: u32,
    /// Whether the first cluster has an address in use when it begins to share blocks. It takes no
    /// block.
    joins: bool,
    /// Whether the first cluster stops to share blocks at any time, such as when its network is
    /// deleted. Afterwards its claims get addresses of the blocks that it has, or none.
    ends: bool,
    /// How often the API server of the first cluster is restored.
    restores: u32,
    /// Whether the claim of the first cluster may be moved to the second one.
    moves: bool,
    third: Third,
    /// How often the registry is restored.
    registry_restores: u32,
    mutation: Option<Mutation>,
}

/// The cluster of the third manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Third {
    /// The first one, beside its first manager.
    First,
    /// A third one.
    Other,
    /// The first one, which is built again.
    Rebuilt,
}

struct Blocks(Scope);

impl Model for Blocks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.initial_state()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.add_actions(state, actions);
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        self.state_after(before, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::properties()
    }
}

/// One block, and a manager in each cluster.
const SMALLEST: Scope = Scope {
    blocks: 1,
    managers: 2,
    lives: [1, 1, 0],
    crashes: 0,
    lost_replies: 0,
    lost_writes: 0,
    lost_records: 0,
    old_reads: 0,
    max_revision: 12,
    max_version: 12,
    joins: false,
    ends: false,
    restores: 0,
    moves: false,
    third: Third::First,
    registry_restores: 0,
    mutation: None,
};

/// Interruptions and old answers.
const INTERRUPTED: Scope = Scope {
    crashes: 1,
    lost_replies: 1,
    old_reads: 1,
    ..SMALLEST
};

/// Two managers in the first cluster.
const TWO_MANAGERS: Scope = Scope {
    managers: 3,
    max_revision: 6,
    max_version: 5,
    ..SMALLEST
};

/// The registry loses a write that it has acknowledged.
const LOST_WRITE: Scope = Scope {
    lost_writes: 1,
    ..SMALLEST
};

/// A record is deleted by hand.
const LOST_RECORD: Scope = Scope {
    lost_records: 1,
    ..SMALLEST
};

/// Two managers, and a claim that is created again while the block is returned.
const TAKEN_AGAIN: Scope = Scope {
    lives: [2, 1, 0],
    max_revision: 5,
    max_version: 5,
    ..TWO_MANAGERS
};

/// The same with two managers in the first cluster.
const LOST_WRITE_OF_TWO: Scope = Scope {
    lost_writes: 1,
    ..TWO_MANAGERS
};

/// The first cluster stops to share blocks.
const ENDING: Scope = Scope {
    ends: true,
    ..SMALLEST
};

/// The same with two managers in it.
const ENDING_OF_TWO: Scope = Scope {
    ends: true,
    ..TWO_MANAGERS
};

/// The end of sharing with interruptions and old answers.
const ENDING_INTERRUPTED: Scope = Scope {
    ends: true,
    ..INTERRUPTED
};

/// The same with a crash, and a record that is deleted by hand.
const ENDING_LOST_RECORD: Scope = Scope {
    crashes: 1,
    lost_records: 1,
    ..ENDING
};

/// Two blocks.
const TWO_BLOCKS: Scope = Scope {
    blocks: 2,
    max_revision: 5,
    ..SMALLEST
};

fn assert_holds(scope: Scope) {
    checks::assert_holds(&scope, Blocks(scope));
}

#[test]
fn block_is_used_by_one_cluster_after_the_other() {
    assert_holds(SMALLEST);
}

#[test]
fn block_survives_crashes_lost_replies_and_old_reads() {
    assert_holds(INTERRUPTED);
}

#[test]
fn two_managers_of_a_cluster_share_a_block() {
    assert_holds(TWO_MANAGERS);
}

#[test]
fn block_is_taken_again_while_it_is_returned() {
    assert_holds(TAKEN_AGAIN);
}

#[test]
fn lost_write_of_the_registry_is_found() {
    assert_holds(LOST_WRITE);
}

#[test]
fn deleted_record_is_found() {
    assert_holds(LOST_RECORD);
}

#[test]
fn both_know_the_conflict_of_a_cluster_that_joins() {
    assert_holds(Scope {
        joins: true,
        lives: [1, 2, 0],
        ..SMALLEST
    });
}

/// What is in use stays that of the cluster. What is not in use is returned.
#[test]
fn blocks_are_returned_when_a_network_shares_none_any_more() {
    assert_holds(ENDING);
    assert_holds(Scope {
        max_revision: 5,
        ..ENDING_OF_TWO
    });
}

#[test]
fn end_of_sharing_survives_crashes_and_lost_records() {
    assert_holds(ENDING_INTERRUPTED);
    assert_holds(ENDING_LOST_RECORD);
}

#[test]
fn claim_is_served_from_another_block() {
    assert_holds(TWO_BLOCKS);
}

#[test]
#[ignore = "millions of states: run with --release"]
fn larger_scopes_of_blocks_hold() {
    for scope in [
        Scope {
            max_revision: 7,
            ..TWO_MANAGERS
        },
        Scope {
            max_revision: 7,
            ..TAKEN_AGAIN
        },
        Scope {
            max_revision: 7,
            ..ENDING_OF_TWO
        },
        Scope {
            max_revision: 6,
            ..TWO_BLOCKS
        },
    ] {
        assert_holds(scope);
    }
}
