//! The API server of the first cluster is restored from a backup. Its objects are those of an earlier
//! time, and its managers go on with what they know. Versions are not used again.
//!
//! What was in use at the time of the backup is in use again. If another cluster has taken the block
//! meanwhile, that is a conflict, which both have to find. No further address of the block may be bound.

use super::state::{BLOCKS, Claim, Objects, State};
use super::{SMALLEST, Scope, assert_holds};

/// What the backup contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Backup {
    objects: [Objects; BLOCKS],
    claim: Claim,
    lives: u32,
}

impl State {
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
    lives: [2, 1],
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
