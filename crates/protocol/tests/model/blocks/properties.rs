//! The invariants, and the condition that must be reachable.

use capi_ipam_protocol::block::Slice;
use stateright::Property;

use super::Blocks;
use super::mutations::Mutation;
use super::state::{BLOCKS, CLUSTER, CLUSTERS, Claim, State};

pub(super) fn properties() -> Vec<Property<Blocks>> {
    vec![
        Property::always(
            "no address is in two clusters while the registry keeps its writes",
            |model: &Blocks, state: &State| {
                let has_lost = state.lost_writes_left < model.0.lost_writes;
                has_lost || !(0..BLOCKS).any(|block| is_used_twice(state, block))
            },
        ),
        Property::always(
            "a used block is ours while the registry keeps its writes",
            |model: &Blocks, state: &State| {
                let has_lost = state.lost_writes_left < model.0.lost_writes;
                has_lost || (0..BLOCKS).all(|block| has_owner(state, block))
            },
        ),
        Property::always("a used block has a slice", |_, state: &State| {
            let mut objects = state.clusters.iter().flatten();
            objects.all(|objects| !objects.is_bound || objects.slice.is_some())
        }),
        Property::always(
            "both clusters know the conflict when all is read",
            |model: &Blocks, state: &State| {
                !state.is_quiet(&model.0)
                    || (0..BLOCKS).all(|block| {
                        !is_used_twice(state, block) || both_have_conflicts(state, block)
                    })
            },
        ),
        Property::always(
            "no address of a block in conflict is bound",
            |_, state: &State| !state.bound_in_conflict,
        ),
        Property::always("no block is lost", |model: &Blocks, state: &State| {
            let is_over = state.lives.iter().all(|lives| *lives == 0);
            !is_over || !state.is_quiet(&model.0) || is_returned(state)
        }),
        Property::always(
            "a claim waits only for a block that another cluster has",
            |model: &Blocks, state: &State| {
                !state.is_quiet(&model.0)
                    || (0..CLUSTERS).all(|cluster| waits_with_reason(model, state, cluster))
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

fn is_used_twice(state: &State, block: usize) -> bool {
    state.clusters.iter().all(|cluster| cluster[block].is_bound)
}

/// Whether the record of a block with an address in use is that of the cluster that uses it.
fn has_owner(state: &State, block: usize) -> bool {
    (0..CLUSTERS).all(|cluster| {
        let holder = state.keys[block].record.map(|stored| stored.holder);
        !state.clusters[cluster][block].is_bound || holder == Some(cluster)
    })
}

fn both_have_conflicts(state: &State, block: usize) -> bool {
    state.clusters.iter().all(|cluster| {
        let slice = cluster[block].slice;
        slice.is_some_and(|slice| slice.is_conflicting)
    })
}

/// Whether no cluster has a block.
fn is_returned(state: &State) -> bool {
    let has_record = state.keys.iter().any(|key| key.record.is_some());
    let has_slice = state
        .clusters
        .iter()
        .flatten()
        .any(|objects| objects.slice.is_some());
    !has_record && !has_slice
}

/// Whether a claim is served, or no block is left for its cluster.
fn waits_with_reason(model: &Blocks, state: &State, cluster: usize) -> bool {
    if state.claims[cluster] != Claim::Waiting {
        return true;
    }
    // A manager can still propose an address.
    let goes_on = model.0.mutation != Some(Mutation::ForgetReservation);
    let can_be_served = (0..model.0.managers).any(|manager| {
        CLUSTER[manager] == cluster
            && (0..model.0.blocks).any(|block| {
                let known = &state.managers[manager][block];
                let slice = known.slice.map(|slice| slice.view(false));
                let objects = &state.clusters[cluster][block];
                let is_free = !known.is_used || goes_on && objects.is_reserved && !objects.is_bound;
                slice.is_some_and(Slice::is_usable) && is_free
            })
    });
    let all_have_others = (0..model.0.blocks).all(|block| {
        let holder = state.keys[block].record.map(|stored| stored.holder);
        holder.is_some_and(|holder| holder != cluster)
    });
    can_be_served || all_have_others
}
