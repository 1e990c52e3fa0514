//! The first cluster is built again with its identity: its IPSlices are those of a backup, or there
//! are none. The former one may still run. The registry shows another UID under the identity, so
//! the new one is suspended until it is adopted: then the former one is gone, and its claims with
//! their addresses are restored in the new one.

use super::state::{BLOCKS, Claim, Known, Objects, State};
use super::{SMALLEST, Scope, Third, assert_holds};

/// The cluster that was built again.
const REBUILT: usize = 2;

/// The first cluster, when it is built again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Former {
    pub(super) is_built_again: bool,
    /// Whether it does not exist any more. The new one was adopted.
    pub(super) is_gone: bool,
}

impl Former {
    /// Whether both exist.
    pub(super) fn is_copied(self) -> bool {
        self.is_built_again && !self.is_gone
    }
}

impl State {
    /// Whether the process of a manager runs.
    pub(super) fn is_running(&self, scope: &Scope, manager: usize) -> bool {
        match scope.cluster(manager) {
            0 => !self.former.is_gone,
            REBUILT if scope.third == Third::Rebuilt => self.former.is_built_again,
            _ => true,
        }
    }

    /// Whether a cluster uses and takes no block, since its identity is that of another one.
    pub(super) fn is_suspended(&self, scope: &Scope, cluster: usize) -> bool {
        let is_rebuilt = scope.third == Third::Rebuilt && cluster == REBUILT;
        is_rebuilt && !self.former.is_gone && !scope.ignores_identity()
    }

    /// Builds the first cluster again, with the IPSlices of the backup.
    pub(super) fn rebuild(&mut self) {
        self.former.is_built_again = true;
        self.restores_left = 0;
        let backup = self.backup.take();
        for block in 0..BLOCKS {
            let restored = backup.map(|backup| backup.objects[block]);
            self.clusters[REBUILT][block] = Objects {
                slice: restored.and_then(|objects| objects.slice),
                last_version: self.clusters[0][block].last_version,
                ..Objects::default()
            };
        }
    }

    /// The former cluster is gone, and its claims and reservations are restored.
    pub(super) fn adopt(&mut self, scope: &Scope) {
        self.former.is_gone = true;
        let [former, _, rebuilt] = &mut self.clusters;
        for (from, to) in former.iter_mut().zip(rebuilt) {
            to.is_reserved = from.is_reserved;
            to.is_bound = from.is_bound;
            *from = Objects::default();
        }
        if self.claims[0] == Claim::Bound {
            self.claims[REBUILT] = Claim::Bound;
            self.lives[REBUILT] += 1;
        }
        self.claims[0] = Claim::Gone;
        self.lives[0] = 0;
        self.managers[0] = [Known::default(); BLOCKS];
        self.see_use(scope, REBUILT);
    }
}

pub(super) const REBUILT_CLUSTER: Scope = Scope {
    managers: 3,
    third: Third::Rebuilt,
    lives: [1, 1, 1],
    restores: 1,
    max_revision: 8,
    max_version: 6,
    ..SMALLEST
};

#[test]
fn cluster_built_again_uses_no_address_of_its_former_instance() {
    assert_holds(REBUILT_CLUSTER);
}

#[test]
#[ignore = "millions of states: run with --release"]
fn larger_scopes_of_a_cluster_built_again_hold() {
    for scope in [
        Scope {
            lives: [2, 2, 1],
            ..REBUILT_CLUSTER
        },
        Scope {
            crashes: 1,
            lives: [2, 1, 1],
            ..REBUILT_CLUSTER
        },
        Scope {
            old_reads: 1,
            lost_replies: 1,
            ..REBUILT_CLUSTER
        },
    ] {
        assert_holds(scope);
    }
}
