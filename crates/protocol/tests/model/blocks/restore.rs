//! The API server of the first cluster is restored from a backup. Its objects are those of an
//! earlier time, and its managers go on with what they know. Versions are not used again.
//!
//! What was in use at the time of the backup is in use again, in blocks that this cluster had then.
//! Another one has not taken them since: the quarantine of a block that was returned is longer than
//! the age of the backup, and than the time in which the restored cluster takes it back.

use super::actions::Action;
use super::state::{BLOCKS, Claim, Objects, State};
use super::{Blocks, SMALLEST, Scope, Third, assert_holds};

/// What the backup contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Backup {
    pub(super) objects: [Objects; BLOCKS],
    claim: Claim,
    lives: u32,
}

impl Blocks {
    /// Adds what restores a cluster, or builds it again.
    pub(super) fn actions_of_restores(&self, state: &State, actions: &mut Vec<Action>) {
        let is_rebuilt = self.0.third == Third::Rebuilt;
        if state.restores_left > 0 {
            match state.backup {
                None => actions.push(Action::BackUp),
                Some(_) if is_rebuilt => {}
                Some(_) => actions.push(Action::Restore),
            }
        }
        if is_rebuilt && !state.former.is_built_again {
            actions.push(Action::Rebuild);
        }
        if state.former.is_copied() {
            actions.push(Action::Adopt);
        }
    }
}

impl State {
    /// Whether another cluster may take a block that was returned.
    pub(super) fn can_end_quarantine(&self, scope: &Scope, block: usize) -> bool {
        let Some(stored) = self.keys[block].record else {
            return false;
        };
        let slices = [
            self.backup.and_then(|backup| backup.objects[block].slice),
            self.clusters[0][block].slice,
            self.clusters[2][block].slice,
        ];
        let mut confirmed = slices.iter().flatten().filter(|slice| slice.is_confirmed);
        let may_be_restored =
            scope.restores > 0 && stored.holder == 0 && confirmed.next().is_some();
        stored.is_returned && !stored.is_expired && !may_be_restored
    }

    pub(super) fn back_up(&mut self) {
        self.backup = Some(Backup {
            objects: self.clusters[0],
            claim: self.claims[0],
            lives: self.lives[0],
        });
    }

    pub(super) fn restore(&mut self) {
        let Some(backup) = self.backup.take() else {
            return;
        };
        self.restores_left -= 1;
        self.claims[0] = backup.claim;
        self.lives[0] = backup.lives;
        for (objects, restored) in self.clusters[0].iter_mut().zip(backup.objects) {
            let last_version = objects.last_version;
            *objects = Objects {
                last_version,
                ..restored
            };
        }
    }
}

pub(super) const RESTORED: Scope = Scope {
    lives: [2, 1, 0],
    restores: 1,
    ..SMALLEST
};

#[test]
fn restored_cluster_binds_no_address_of_another() {
    assert_holds(RESTORED);
}

#[test]
fn restore_and_a_crash_bind_no_address_of_another_cluster() {
    assert_holds(Scope {
        crashes: 1,
        ..RESTORED
    });
}
