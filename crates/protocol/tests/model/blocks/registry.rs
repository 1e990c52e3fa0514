//! The registry is restored from a backup: its records are those of an earlier moment, and their
//! revisions are used again. The managers go on with what they know.
//!
//! A watch ends with the registry that it watches, and the next one begins with a list. Only the
//! list shows the earlier records: until then a manager decides from what it has seen before. It
//! finds the loss there. Before, it can write one sign of life, and no further one until the list
//! has shown it.
//!
//! | step of the model | implementation |
//! |---|---|
//! | `ListRecords` | the list at the begin of a watch, and `OpenRegistry::begin_recovery` |
//! | `ShowLife` | the sign of life, `OpenRegistry::may_show_life` and its event in the watch |
//! | `EndRecovery` | `Recovery::is_over`, without its timeout |

use capi_ipam_protocol::block::{Access, Slice};

use super::actions::Action;
use super::mutations::Mutation;
use super::state::{BLOCKS, CLUSTERS, Key, Known, MANAGERS, State, Task};
use super::{Blocks, SMALLEST, Scope, Third, assert_holds};

/// What a manager knows of the registry as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Link {
    /// Nothing: its process has just started.
    Unlisted,
    /// It has listed a registry that has lost writes.
    Recovering,
    /// Its watch has not shown the last sign of life of its cluster.
    Unseen,
    /// Its watch has shown it.
    Seen,
}

/// What concerns all records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Registry {
    backup: Option<[Key; BLOCKS]>,
    pub(super) restores_left: u32,
    links: [Link; MANAGERS],
    /// The clusters that have not recovered from the restore.
    has_lost: [bool; CLUSTERS],
    /// How many signs of life each manager has written since the restore, at most two.
    signs: [u8; MANAGERS],
}

impl Registry {
    pub(super) fn new(scope: &Scope) -> Self {
        Self {
            backup: None,
            restores_left: scope.registry_restores,
            links: [Link::Seen; MANAGERS],
            has_lost: [false; CLUSTERS],
            signs: [0; MANAGERS],
        }
    }

    /// What the cluster of a manager may do.
    pub(super) fn access(&self, manager: usize) -> Access {
        match self.links[manager] {
            // No record is known.
            Link::Unlisted | Link::Unseen => Access::Unseen,
            Link::Recovering => Access::Recovering,
            Link::Seen => Access::Full,
        }
    }

    pub(super) fn back_up(&mut self, keys: [Key; BLOCKS]) {
        self.backup = Some(keys);
    }

    /// A process has ended. Signs of life are of interest only if the registry is restored.
    pub(super) fn crash(&mut self, scope: &Scope, manager: usize) {
        if scope.registry_restores > 0 {
            self.links[manager] = Link::Unlisted;
        }
    }

    /// Whether a manager with the identity of a cluster has written two signs of life.
    fn has_signed(&self, scope: &Scope, cluster: usize) -> bool {
        let needed = match scope.mutation {
            Some(Mutation::AwaitOneSign) => 1,
            _ => 2,
        };
        let identity = scope.identity(cluster);
        (0..scope.managers).any(|manager| {
            let is_same = scope.identity(scope.cluster(manager)) == identity;
            is_same && self.signs[manager] >= needed
        })
    }
}

impl Blocks {
    /// Adds what concerns the registry as a whole.
    pub(super) fn actions_of_registry(&self, state: &State, actions: &mut Vec<Action>) {
        let registry = &state.registry;
        if registry.restores_left > 0 {
            match registry.backup {
                None => actions.push(Action::BackUpRegistry),
                Some(keys) if keys != state.keys => actions.push(Action::RestoreRegistry),
                Some(_) => {}
            }
        }
        for manager in 0..self.0.managers {
            if !state.is_running(&self.0, manager) {
                continue;
            }
            actions.extend(state.steps_of_registry(&self.0, manager));
        }
    }
}

impl State {
    /// Whether a manager has to list the records before it sees any.
    fn has_to_list(&self, scope: &Scope, manager: usize) -> bool {
        let registry = &self.registry;
        match registry.links[manager] {
            Link::Unlisted => true,
            Link::Recovering => false,
            Link::Unseen | Link::Seen => registry.has_lost[scope.cluster(manager)],
        }
    }

    /// Whether a manager sees single records.
    pub(super) fn may_read(&self, scope: &Scope, manager: usize) -> bool {
        !self.has_to_list(scope, manager)
    }

    /// What a manager does next for the registry as a whole.
    pub(super) fn steps_of_registry(&self, scope: &Scope, manager: usize) -> Vec<Action> {
        let registry = &self.registry;
        let cluster = scope.cluster(manager);
        let mut steps = Vec::new();
        if self.has_to_list(scope, manager) {
            steps.push(Action::ListRecords(manager));
        }
        if self.may_show_life(scope, manager) {
            steps.push(Action::ShowLife(manager));
        }
        let is_recovering = registry.links[manager] == Link::Recovering;
        if is_recovering && self.have_others_signed(scope, cluster) {
            steps.push(Action::EndRecovery(manager));
        }
        steps
    }

    /// Whether all other clusters have written again.
    fn have_others_signed(&self, scope: &Scope, cluster: usize) -> bool {
        let mut others = (0..scope.managers).map(|manager| scope.cluster(manager));
        let own = scope.identity(cluster);
        others.all(|other| {
            let is_awaited = scope.identity(other) != own && self.is_awaited(scope, other);
            !is_awaited || self.registry.has_signed(scope, other)
        })
    }

    /// Whether a cluster is waited for. Those that have joined after the backup are, too.
    fn is_awaited(&self, scope: &Scope, cluster: usize) -> bool {
        let mut records = self.before.iter().filter_map(|key| key.record);
        scope.mutation != Some(Mutation::AwaitShownClusters)
            || records.any(|record| record.holder == scope.identity(cluster))
    }

    /// Whether a manager writes a sign of life that matters. Others conclude from it that all that
    /// the cluster has is in the registry.
    fn may_show_life(&self, scope: &Scope, manager: usize) -> bool {
        let registry = &self.registry;
        let is_due = match registry.links[manager] {
            Link::Unlisted => false,
            Link::Unseen => true,
            Link::Recovering | Link::Seen => self.is_restored(scope) && registry.signs[manager] < 2,
        };
        // The first one can be written before the loss is noticed.
        let may_write = !self.has_to_list(scope, manager)
            || registry.links[manager] == Link::Seen
            || scope.mutation == Some(Mutation::ShowLifeUnlisted);
        let is_recorded = (0..scope.blocks).all(|block| self.is_recorded(scope, manager, block));
        is_due && may_write && is_recorded && !self.is_suspended(scope, scope.cluster(manager))
    }

    /// Whether a manager finds in the registry what its cluster has of a block.
    fn is_recorded(&self, scope: &Scope, manager: usize, block: usize) -> bool {
        let view = self.view(scope, manager, block);
        match scope.mutation {
            Some(Mutation::ShowLifeUnrecorded) => true,
            Some(Mutation::ShowLifeUnmarked) if view.slice.is_some() => {
                view.record.shows_use(Some(Slice::NEW), view.is_used)
            }
            _ => view.record.shows_use(view.slice, view.is_used),
        }
    }

    /// Restores the registry. A manager that lags behind has not seen the last sign of life of its
    /// cluster: one is written more often than registries are restored.
    pub(super) fn restore_registry(&mut self, scope: &Scope) {
        let Some(backup) = self.registry.backup.take() else {
            return;
        };
        for manager in 0..scope.managers {
            let known = &self.managers[manager];
            let is_known = |block: usize| known[block].key == Some(self.keys[block]);
            let link = &mut self.registry.links[manager];
            if *link == Link::Seen && !(0..scope.blocks).all(is_known) {
                *link = Link::Unseen;
            }
        }
        self.keys = backup;
        self.before = backup;
        self.registry.restores_left -= 1;
        self.registry.has_lost = [true; CLUSTERS];
        self.registry.signs = [0; MANAGERS];
    }

    /// A manager sees all records. One that was started has seen the objects of its cluster before.
    /// A request that was on its way has ended: otherwise the revision that it names could be used
    /// again.
    pub(super) fn list_records(&mut self, scope: &Scope, manager: usize) {
        self.read_all(manager);
        let cluster = scope.cluster(manager);
        if self.registry.links[manager] == Link::Unlisted {
            let objects = &self.clusters[cluster];
            for (known, objects) in self.managers[manager].iter_mut().zip(objects) {
                known.slice = objects.slice;
                known.is_used = objects.is_reserved;
            }
        }
        for known in &mut self.managers[manager] {
            if matches!(known.task, Task::Return { .. }) {
                known.task = Task::Idle;
            }
        }
        self.registry.links[manager] = if self.registry.has_lost[cluster] {
            Link::Recovering
        } else {
            Link::Unseen
        };
    }

    /// The watch shows the sign of life after all earlier writes.
    pub(super) fn show_life(&mut self, scope: &Scope, manager: usize) {
        let signs = &mut self.registry.signs[manager];
        *signs = (*signs + 1).min(2);
        if self.has_to_list(scope, manager) {
            // The next list shows it.
            self.registry.links[manager] = Link::Unseen;
        } else if self.registry.links[manager] == Link::Unseen {
            self.read_all(manager);
            self.registry.links[manager] = Link::Seen;
        }
    }

    /// The watch has shown the signs of life of the others after all earlier writes.
    pub(super) fn end_recovery(&mut self, scope: &Scope, manager: usize) {
        self.read_all(manager);
        self.registry.links[manager] = Link::Seen;
        self.registry.has_lost[scope.cluster(manager)] = false;
    }

    fn read_all(&mut self, manager: usize) {
        let keys = self.keys;
        for (known, key) in self.managers[manager].iter_mut().zip(keys) {
            *known = Known {
                key: Some(key),
                ..*known
            };
        }
    }

    /// Whether each cluster has recovered from a restore.
    pub(super) fn has_recovered(&self, scope: &Scope) -> bool {
        let mut clusters = (0..scope.managers).map(|manager| scope.cluster(manager));
        self.is_restored(scope) && clusters.all(|cluster| !self.registry.has_lost[cluster])
    }

    /// Whether the registry was restored.
    pub(super) fn is_restored(&self, scope: &Scope) -> bool {
        self.registry.restores_left < scope.registry_restores
    }
}

pub(super) const REGISTRY_RESTORED: Scope = Scope {
    registry_restores: 1,
    max_revision: 9,
    max_version: 8,
    ..SMALLEST
};

#[test]
fn restored_registry_gives_no_block_to_two_clusters() {
    assert_holds(REGISTRY_RESTORED);
}

/// The block was that of one cluster at the time of the backup, and is that of another one since.
pub(super) const REGISTRY_RESTORED_AFTER_A_RETURN: Scope = Scope {
    lives: [2, 1, 0],
    ..REGISTRY_RESTORED
};

#[test]
fn block_that_was_returned_since_the_backup_is_not_used_twice() {
    assert_holds(REGISTRY_RESTORED_AFTER_A_RETURN);
}

#[test]
fn process_that_starts_notices_the_restore_of_the_registry() {
    assert_holds(Scope {
        crashes: 1,
        max_revision: 5,
        max_version: 5,
        ..REGISTRY_RESTORED
    });
}

/// A process that starts without the registry uses the blocks of which its cluster has a slice.
pub(super) const REGISTRY_RESTORED_AND_CRASHED: Scope = Scope {
    crashes: 1,
    max_revision: 5,
    max_version: 5,
    ..REGISTRY_RESTORED_AFTER_A_RETURN
};

#[test]
fn process_starts_with_slices_that_the_restored_registry_shows() {
    assert_holds(REGISTRY_RESTORED_AND_CRASHED);
}

const THREE_CLUSTERS: Scope = Scope {
    managers: 3,
    third: Third::Other,
    lives: [1, 1, 1],
    max_revision: 4,
    max_version: 3,
    ..REGISTRY_RESTORED
};

#[test]
fn three_clusters_wait_for_each_other_after_a_restore() {
    assert_holds(THREE_CLUSTERS);
}

#[test]
#[ignore = "millions of states: run with --release"]
fn larger_scopes_of_a_restored_registry_hold() {
    for scope in [
        Scope {
            crashes: 1,
            ..REGISTRY_RESTORED_AFTER_A_RETURN
        },
        Scope {
            lives: [2, 2, 0],
            max_revision: 7,
            ..REGISTRY_RESTORED_AFTER_A_RETURN
        },
        Scope {
            crashes: 1,
            lost_replies: 1,
            max_revision: 6,
            ..REGISTRY_RESTORED
        },
        Scope {
            lost_replies: 1,
            old_reads: 1,
            ..REGISTRY_RESTORED
        },
        Scope {
            ends: true,
            ..REGISTRY_RESTORED
        },
        Scope {
            moves: true,
            ..REGISTRY_RESTORED
        },
        Scope {
            lives: [2, 1, 1],
            max_revision: 5,
            max_version: 4,
            ..THREE_CLUSTERS
        },
    ] {
        assert_holds(scope);
    }
}
