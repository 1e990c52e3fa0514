//! The claim of the first cluster is moved to the second one with its address, as `clusterctl move`
//! does it. The second one reports in the record that it uses the block. In the first one a
//! reservation is left, whose address must not be allocated again.

use super::mutations::Mutation;
use super::state::{Claim, State, bit};
use super::{Blocks, SMALLEST, Scope, assert_holds};

pub(super) const MOVED: Scope = Scope {
    lives: [2, 0, 0],
    moves: true,
    ..SMALLEST
};

impl Blocks {
    /// Whether the claim can be moved that uses a block.
    pub(super) fn can_move(&self, state: &State, block: usize) -> bool {
        let record = state.keys[block].record;
        self.0.moves
            && !state.has_moved
            && state.clusters[0][block].is_bound
            && record.is_some_and(|record| record.holder == 0)
    }

    /// Whether a manager of a cluster may release the reservation of a moved claim. It has seen the
    /// record in its last revision: it has written a sign of life after it has found the claim
    /// missing, and its watch has shown it. If another cluster uses the block, its slice says so: a
    /// process that starts without the registry knows it, too.
    pub(super) fn may_sweep_moved(&self, state: &State, cluster: usize, block: usize) -> bool {
        let sees = |manager: usize| {
            let known = &state.managers[manager][block];
            let is_seen = known.key == Some(state.keys[block]);
            let has_conflict = known.slice.is_none_or(|slice| slice.is_conflicting);
            let is_marked = known.is_ours_alone == Some(true) || has_conflict;
            match self.0.mutation {
                Some(Mutation::SweepUnseen) => true,
                Some(Mutation::SweepUnmarked) => is_seen,
                _ => is_seen && is_marked,
            }
        };
        (0..self.0.managers).any(|manager| self.0.cluster(manager) == cluster && sees(manager))
    }
}

impl State {
    /// A manager sees which addresses are in use: it decides on no block before.
    pub(super) fn see_use(&mut self, scope: &Scope, manager: usize) {
        let objects = &self.clusters[scope.cluster(manager)];
        for (known, objects) in self.managers[manager].iter_mut().zip(objects) {
            known.is_used = objects.is_reserved;
        }
    }

    pub(super) fn move_claim(&mut self, scope: &Scope, block: usize) {
        self.has_moved = true;
        let [source, target, _] = &mut self.clusters;
        target[block].is_reserved = true;
        target[block].is_bound = true;
        source[block].is_bound = false;
        source[block].is_moved = true;
        self.claims[0] = Claim::Gone;
        self.claims[1] = Claim::Bound;
        self.lives[0] -= 1;
        self.lives[1] += 1;
        let key = &mut self.keys[block];
        self.before[block] = *key;
        key.revision += 1;
        if let Some(record) = &mut key.record {
            record.contenders |= bit(1);
        }
        // It has named its cluster because it sees the address.
        self.see_use(scope, 1);
    }
}

#[test]
fn moved_address_is_not_allocated_again() {
    assert_holds(MOVED);
}

/// Not with old answers of the registry: of two states of a record, a manager takes the later one.
pub(super) const MOVED_AND_CRASHED: Scope = Scope {
    crashes: 1,
    lost_replies: 1,
    ..MOVED
};

#[test]
fn moved_address_is_not_allocated_after_a_crash() {
    assert_holds(MOVED_AND_CRASHED);
}
