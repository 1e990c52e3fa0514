//! Two management clusters with blocks of different sizes: two blocks of the first one are one block
//! of the second one.
//!
//! The record of a network says which size all clusters use. When it is lost or edited, two of them
//! can take blocks of different sizes. The records of blocks that overlap have different names, so
//! the registry accepts both. In these scopes each cluster takes blocks of its size at any time: the
//! record of the network is lost at the worst moment.
//!
//! | step of the model | implementation |
//! |---|---|
//! | `Watch` | the watch of the registry, which shows all records in the order of their writes |
//! | `Read` | the read of a record whose last write has an unknown outcome |
//! | [`State::shows_overlap`] | `Driver::overlapping_holder` |
//! | [`State::needed_block`] | `Situation::needs` |
//!
//! What is checked: while the registry keeps the records of blocks, no address is in two clusters,
//! and of two blocks that overlap at most one is usable. Otherwise both clusters know the conflict
//! when they have read all records. From then on neither allocates an address of these blocks, until
//! one of them uses none.

use std::ops::Range;

#[cfg(doc)]
use super::state::State;
use super::{SMALLEST, Scope, assert_holds};

/// The block of twice the size.
pub(super) const LARGE: usize = 2;

/// The addresses of a block.
pub(super) fn addresses(block: usize) -> Range<usize> {
    if block == LARGE {
        0..2
    } else {
        block..block + 1
    }
}

/// Whether an address is in both blocks.
pub(super) fn overlap(block: usize, other: usize) -> bool {
    addresses(block).any(|address| addresses(other).contains(&address))
}

impl Scope {
    /// Whether the second cluster has blocks of twice the size.
    pub(super) fn has_two_sizes(&self) -> bool {
        self.halves > 0
    }

    /// The blocks of the size of a cluster.
    pub(super) fn blocks_of(&self, cluster: usize) -> Range<usize> {
        match (self.halves, cluster) {
            (0, _) => 0..self.blocks,
            (halves, 0) => 0..halves,
            (_, _) => LARGE..LARGE + 1,
        }
    }

    /// Whether a cluster takes blocks.
    pub(super) fn takes_blocks(&self, cluster: usize) -> bool {
        !self.joins || cluster != 0
    }
}

/// A block, and one of twice the size.
pub(super) const ONE_HALF: Scope = Scope {
    blocks: 3,
    halves: 1,
    max_revision: 7,
    max_version: 4,
    ..SMALLEST
};

/// Two blocks, and one that consists of both.
pub(super) const TWO_HALVES: Scope = Scope {
    halves: 2,
    ..ONE_HALF
};

/// The first cluster has an address in use when it begins to share blocks.
pub(super) const JOINING: Scope = Scope {
    joins: true,
    lives: [1, 2],
    ..ONE_HALF
};

#[test]
fn blocks_that_overlap_have_one_user() {
    assert_holds(TWO_HALVES);
}

#[test]
fn blocks_that_overlap_survive_crashes() {
    assert_holds(Scope {
        crashes: 1,
        ..ONE_HALF
    });
}

#[test]
fn blocks_that_overlap_survive_lost_replies() {
    assert_holds(Scope {
        lost_replies: 1,
        ..ONE_HALF
    });
}

#[test]
fn both_sizes_know_the_conflict_of_a_cluster_that_joins() {
    assert_holds(Scope {
        crashes: 1,
        ..JOINING
    });
    assert_holds(Scope {
        lost_records: 1,
        ..JOINING
    });
}

#[test]
#[ignore = "millions of states: run with --release"]
fn larger_scopes_of_two_sizes_hold() {
    assert_holds(Scope {
        max_revision: 12,
        max_version: 8,
        ..TWO_HALVES
    });
    assert_holds(Scope {
        lives: [2, 2],
        ..TWO_HALVES
    });
    assert_holds(Scope {
        crashes: 1,
        ..TWO_HALVES
    });
    assert_holds(Scope {
        lost_replies: 1,
        old_reads: 1,
        ..TWO_HALVES
    });
    assert_holds(Scope {
        crashes: 1,
        lost_replies: 1,
        old_reads: 1,
        ..ONE_HALF
    });
    assert_holds(Scope {
        lost_writes: 1,
        ..TWO_HALVES
    });
    assert_holds(Scope {
        lost_records: 1,
        ..TWO_HALVES
    });
    assert_holds(Scope {
        crashes: 1,
        lost_replies: 1,
        lost_writes: 1,
        ..JOINING
    });
}
