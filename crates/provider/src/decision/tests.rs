use super::*;

const BOOLS: [bool; 2] = [false, true];
const CLUSTERS: [ClusterState; 4] =
    [ClusterState::None, ClusterState::Running, ClusterState::Paused, ClusterState::Missing];
const ADDRESSES: [AddressState; 4] =
    [AddressState::Absent, AddressState::Right, AddressState::Wrong, AddressState::Deleting];
const POOLS: [Option<PoolState>; 5] =
    [None, Some(PoolState::Unavailable), Some(PoolState::Paused), Some(PoolState::Deleting), Some(PoolState::Ready)];

/// Every view there is: 2^7 · 4 · 4 · 5.
fn every_view() -> impl Iterator<Item = ClaimView> {
    let flags = (0..128_u8).map(|bits| [0, 1, 2, 3, 4, 5, 6].map(|bit| BOOLS[usize::from(bits >> bit & 1)]));
    flags.flat_map(|[deleting, finalizer, foreign_finalizers, paused, bound, troubled, holds]| {
        CLUSTERS.into_iter().flat_map(move |cluster| {
            ADDRESSES.into_iter().flat_map(move |address| {
                POOLS.into_iter().map(move |pool| ClaimView {
                    deleting,
                    finalizer,
                    foreign_finalizers,
                    paused,
                    bound,
                    troubled,
                    cluster,
                    address,
                    holds,
                    pool,
                })
            })
        })
    })
}

fn for_each(law: impl Fn(ClaimView, Decision) -> bool) {
    let mut count = 0;
    for view in every_view() {
        let decision = decide(&view);
        assert!(law(view, decision), "{view:?} -> {decision:?}");
        count += 1;
    }
    assert_eq!(count, 128 * 4 * 4 * 5);
}

fn acts(decision: Decision) -> bool {
    matches!(decision, Decision::Bind | Decision::Release)
}

#[test]
fn nothing_is_touched_while_something_is_paused() {
    for_each(|view, decision| {
        let paused = view.paused || view.cluster == ClusterState::Paused || view.pool == Some(PoolState::Paused);
        !paused || !acts(decision)
    });
}

#[test]
fn only_a_deleting_claim_outlives_its_cluster() {
    for_each(|view, decision| view.cluster != ClusterState::Missing || view.deleting || !acts(decision));
}

#[test]
fn an_address_in_use_is_not_taken_back() {
    for_each(|view, decision| {
        decision != Decision::Release || (view.deleting && view.finalizer && !view.foreign_finalizers)
    });
}

#[test]
fn a_deleting_claim_is_not_bound() {
    for_each(|view, decision| decision != Decision::Bind || !view.deleting);
}

#[test]
fn addresses_come_from_pools_that_are_ready() {
    for_each(|view, decision| {
        let completes = view.holds && !view.bound && view.pool == Some(PoolState::Deleting);
        decision != Decision::Bind || completes || view.pool == Some(PoolState::Ready)
    });
}

#[test]
fn unbound_claim_with_address_never_waits_for_deleting_pool() {
    for_each(|view, decision| !view.holds || view.bound || decision != Decision::Wait(Waiting::PoolDeleting));
}

#[test]
fn a_bound_claim_that_is_right_is_left_alone_without_a_look_at_its_pool() {
    for_each(|view, decision| {
        let right = view.bound && view.address == AddressState::Right && view.finalizer && !view.deleting;
        !right || view.troubled || decision == Decision::Nothing
    });
}

#[test]
fn every_claim_gets_on_once_nothing_stands_in_its_way() {
    for_each(|view, decision| {
        let free = !view.paused
            && matches!(view.cluster, ClusterState::None | ClusterState::Running)
            && view.pool == Some(PoolState::Ready)
            && !view.foreign_finalizers;
        let served = view.bound && view.address == AddressState::Right;
        let unserved = !view.deleting && !served;
        let waits = view.bound && view.address == AddressState::Deleting && view.finalizer;
        !free || !unserved || waits || decision == Decision::Bind
    });
}

#[test]
fn a_deleting_claim_goes_with_or_without_pool_and_cluster() {
    for_each(|view, decision| {
        let free = view.deleting
            && view.finalizer
            && !view.foreign_finalizers
            && !view.paused
            && view.cluster != ClusterState::Paused
            && matches!(view.pool, Some(PoolState::Unavailable | PoolState::Deleting | PoolState::Ready));
        !free || decision == Decision::Release
    });
}
