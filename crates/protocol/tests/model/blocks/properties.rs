//! The invariants, and the condition that must be reachable.

use stateright::Property;

use super::mutations::Mutation;
use super::state::{BLOCKS, CLUSTERS, Claim, Objects, State, Stored, StoredSlice};
use super::{Blocks, Third};

pub(super) const NO_ADDRESS_TWICE: &str =
    "no address is in two clusters while the registry keeps its writes";

pub(super) fn properties() -> Vec<Property<Blocks>> {
    vec![
        Property::always(NO_ADDRESS_TWICE, |model: &Blocks, state: &State| {
            !has_order(model, state) || !(0..BLOCKS).any(|block| is_used_twice(state, block))
        }),
        Property::always(
            "no address is in two clusters after a restore of the registry",
            |model: &Blocks, state: &State| {
                !state.is_restored(&model.0)
                    || !(0..BLOCKS).any(|block| is_used_twice(state, block))
            },
        ),
        Property::always(
            "a moved address is not allocated in its former cluster",
            |_, state: &State| {
                !state.has_moved || !(0..BLOCKS).any(|block| is_used_twice(state, block))
            },
        ),
        Property::always(
            "no address is in usable blocks of two clusters while the registry keeps its writes",
            |model: &Blocks, state: &State| {
                !has_order(model, state) || !(0..BLOCKS).any(|block| are_usable(state, block))
            },
        ),
        Property::always(
            "a used block is ours while the registry keeps its writes",
            |model: &Blocks, state: &State| {
                !has_order(model, state) || (0..BLOCKS).all(|block| has_owner(model, state, block))
            },
        ),
        Property::always(
            "a used block has a slice",
            |model: &Blocks, state: &State| {
                let has_slice = |objects: &Objects| !objects.is_bound || objects.slice.is_some();
                let is_new = model.0.joins || state.has_moved || state.former.is_gone;
                is_new || all_objects(state).all(has_slice)
            },
        ),
        Property::always(
            "both clusters know the conflict when all is read",
            |model: &Blocks, state: &State| !state.is_quiet(&model.0) || conflicts_are_known(state),
        ),
        Property::always(
            "no block is usable in which another cluster uses an address when all is read",
            |model: &Blocks, state: &State| {
                !state.is_quiet(&model.0) || usable_blocks_are_exclusive(state)
            },
        ),
        Property::always(
            "no address of a block in conflict is bound",
            |_, state: &State| !state.bound_in_conflict && !state.bound_in_known_conflict,
        ),
        Property::always(
            "no address is bound in a block of another cluster, also after a restore",
            |model: &Blocks, state: &State| {
                !keeps_writes(model, state) || model.0.joins || !state.bound_without_record
            },
        ),
        Property::always("no block is lost", |model: &Blocks, state: &State| {
            let is_over = state.lives.iter().all(|lives| *lives == 0);
            let is_swept =
                all_objects(state).all(|objects| objects.is_reserved == objects.is_bound);
            !is_over || !is_swept || !state.is_quiet(&model.0) || is_returned(model, state)
        }),
        Property::always(
            "a claim waits only for a block that another cluster has or uses",
            |model: &Blocks, state: &State| {
                !state.is_quiet(&model.0)
                    || (0..CLUSTERS).all(|cluster| waits_with_reason(model, state, cluster))
            },
        ),
        Property::sometimes(
            "all clusters recover from a restore of the registry",
            |model: &Blocks, state: &State| {
                model.0.registry_restores == 0 || state.has_recovered(&model.0)
            },
        ),
        Property::sometimes(
            "a cluster that was built again uses an address",
            |model: &Blocks, state: &State| {
                let mut rebuilt = state.clusters[2].iter();
                let is_bound = rebuilt.any(|objects| objects.is_bound);
                model.0.third != Third::Rebuilt || state.former.is_gone && is_bound
            },
        ),
        Property::sometimes(
            "one cluster uses the block after the other",
            |_, state: &State| {
                state.claims[1] == Claim::Bound
                    && state.claims[0] == Claim::Gone
                    && state.clusters[1][0].is_bound
            },
        ),
    ]
}

/// Whether the registry decides who has a block: it has lost no write, and no cluster has used
/// addresses before.
fn has_order(model: &Blocks, state: &State) -> bool {
    keeps_writes(model, state) && !model.0.joins && !state.has_moved
}

/// Whether the registry has lost no write.
fn keeps_writes(model: &Blocks, state: &State) -> bool {
    state.lost_writes_left == model.0.lost_writes
        && state.lost_records_left == model.0.lost_records
        && state.registry.restores_left == model.0.registry_restores
}

fn is_used_twice(state: &State, block: usize) -> bool {
    count(|cluster| state.clusters[cluster][block].is_bound) > 1
}

/// The number of clusters of which something is true.
fn count(is_true: impl Fn(usize) -> bool) -> usize {
    (0..CLUSTERS).filter(|cluster| is_true(*cluster)).count()
}

/// Whether the record of a block with an address in use is that of the cluster that uses it.
fn has_owner(model: &Blocks, state: &State, block: usize) -> bool {
    (0..CLUSTERS).all(|cluster| {
        let record = state.keys[block].record;
        let identity = model.0.identity(cluster);
        let is_own = record.is_some_and(|stored| stored.is_of(identity));
        !state.clusters[cluster][block].is_bound || is_own
    })
}

fn all_objects(state: &State) -> impl Iterator<Item = &Objects> {
    state.clusters.iter().flatten()
}

/// Whether two clusters allocate from a block. The slices of one that was built again have no
/// effect until it is adopted.
fn are_usable(state: &State, block: usize) -> bool {
    let allocates =
        |cluster| is_usable(state, cluster, block) && (cluster != 2 || !state.former.is_copied());
    count(allocates) > 1
}

fn is_usable(state: &State, cluster: usize, block: usize) -> bool {
    let slice = state.clusters[cluster][block].slice;
    slice.is_some_and(|slice| slice.view(false).is_usable())
}

/// Whether both clusters have written down the conflict of blocks that both use.
fn conflicts_are_known(state: &State) -> bool {
    (0..BLOCKS).all(|block| {
        let has_conflict = |slice: StoredSlice| slice.is_conflicting;
        let mut users = state
            .clusters
            .iter()
            .filter(|objects| objects[block].is_bound);
        let is_known = |objects: &[Objects; BLOCKS]| objects[block].slice.is_some_and(has_conflict);
        !is_used_twice(state, block) || users.all(is_known)
    })
}

/// Whether no cluster allocates from a block in which the other one uses an address.
fn usable_blocks_are_exclusive(state: &State) -> bool {
    (0..BLOCKS).all(|block| {
        (0..CLUSTERS).all(|cluster| {
            let is_other_used = (0..CLUSTERS)
                .any(|other| other != cluster && state.clusters[other][block].is_bound);
            let is_suspended = cluster == 2 && state.former.is_copied();
            !is_usable(state, cluster, block) || !is_other_used || is_suspended
        })
    })
}

/// Whether no cluster has a block.
fn is_returned(model: &Blocks, state: &State) -> bool {
    // A process that does not know how a record without a slice came about leaves it when the
    // network shares blocks no longer. An operator releases it.
    let has_forgotten =
        state.crashes_left < model.0.crashes || state.lost_replies_left < model.0.lost_replies;
    let may_leave = |holder: usize| !state.shares(holder) && has_forgotten;
    let mut records = state.keys.iter().filter_map(|key| key.record);
    let has_record = records.any(|stored| !stored.is_returned && !may_leave(stored.holder));
    let has_slice = all_objects(state).any(|objects| objects.slice.is_some());
    !has_record && !has_slice
}

/// Whether a claim is served, or no block is left for its cluster.
fn waits_with_reason(model: &Blocks, state: &State, cluster: usize) -> bool {
    let is_served = state.shares(cluster) && !state.is_suspended(&model.0, cluster);
    if state.claims[cluster] != Claim::Waiting || !is_served {
        return true;
    }
    // The reservation of a claim that was moved is released later.
    if state.clusters[cluster]
        .iter()
        .any(|objects| objects.is_moved)
    {
        return true;
    }
    // A manager can still propose an address.
    let goes_on = model.0.mutation != Some(Mutation::ForgetReservation);
    let can_be_served = (0..model.0.managers).any(|manager| {
        model.0.cluster(manager) == cluster
            && (0..model.0.blocks).any(|block| {
                let known = &state.managers[manager][block];
                let objects = &state.clusters[cluster][block];
                known.allocates(&model.0) && objects.is_free(known, goes_on)
            })
    });
    // No address of a block in conflict is allocated in either cluster.
    let identity = model.0.identity(cluster);
    let is_other = |stored: Stored| {
        let is_theirs = stored.holder != identity && stored.is_of(stored.holder);
        is_theirs || stored.contenders != 0
    };
    let has_other = |block: usize| state.keys[block].record.is_some_and(is_other);
    can_be_served || (0..model.0.blocks).all(has_other)
}
