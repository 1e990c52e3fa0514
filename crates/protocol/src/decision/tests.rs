use super::*;

const BOOLS: [bool; 2] = [false, true];
const CLUSTERS: [ClusterState; 4] = [
    ClusterState::None,
    ClusterState::Running,
    ClusterState::Paused,
    ClusterState::Missing,
];
const ADDRESSES: [AddressState; 4] = [
    AddressState::Absent,
    AddressState::Valid,
    AddressState::Invalid,
    AddressState::Deleting,
];
const EARLY_RELEASES: [EarlyRelease; 3] = [
    EarlyRelease::No,
    EarlyRelease::Requested,
    EarlyRelease::TimedOut,
];
const POOLS: [Option<PoolState>; 5] = [
    None,
    Some(PoolState::Unavailable),
    Some(PoolState::Paused),
    Some(PoolState::Deleting),
    Some(PoolState::Ready),
];

/// All possible views: 2^8 · 4 · 4 · 3 · 5.
fn every_view() -> impl Iterator<Item = ClaimView> {
    let bits =
        |number: u8| [0, 1, 2, 3, 4, 5, 6, 7].map(|bit| BOOLS[usize::from(number >> bit & 1)]);
    let others = CLUSTERS.into_iter().flat_map(|cluster| {
        ADDRESSES.into_iter().flat_map(move |address| {
            EARLY_RELEASES.into_iter().flat_map(move |early| {
                POOLS
                    .into_iter()
                    .map(move |pool| (cluster, address, early, pool))
            })
        })
    });
    others.flat_map(move |(cluster, address, early_release, pool)| {
        (0..=u8::MAX).map(move |number| {
            let [
                deleting,
                has_finalizer,
                has_foreign_finalizers,
                paused,
                bound,
                not_ready,
                holds_address,
                released_early,
            ] = bits(number);
            ClaimView {
                deleting,
                has_finalizer,
                has_foreign_finalizers,
                paused,
                bound,
                not_ready,
                cluster,
                address,
                holds_address,
                early_release,
                released_early,
                pool,
            }
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
    assert_eq!(count, 256 * 4 * 4 * 3 * 5);
}

/// Whether the IPAddress was created again after the early release of the claim.
fn is_left_over(view: &ClaimView) -> bool {
    let owned = matches!(view.address, AddressState::Valid | AddressState::Deleting);
    view.deleting && !view.has_finalizer && view.released_early && owned
}

fn acts(decision: Decision) -> bool {
    matches!(
        decision,
        Decision::Bind | Decision::Release | Decision::ReleaseEarly
    )
}

#[test]
fn paused_objects_are_not_changed() {
    for_each(|view, decision| {
        let paused = view.paused
            || view.cluster == ClusterState::Paused
            || view.pool == Some(PoolState::Paused);
        !paused || !acts(decision)
    });
}

#[test]
fn missing_cluster_blocks_only_claims_not_deleting() {
    for_each(|view, decision| {
        view.cluster != ClusterState::Missing || view.deleting || !acts(decision)
    });
}

#[test]
fn address_in_use_is_not_released() {
    for_each(|view, decision| {
        let is_ours = view.has_finalizer || is_left_over(&view);
        decision != Decision::Release || (view.deleting && is_ours && !view.has_foreign_finalizers)
    });
}

#[test]
fn finalizers_are_passed_over_only_on_request_or_timeout() {
    for_each(|view, decision| {
        let is_permitted =
            view.has_finalizer && view.early_release != EarlyRelease::No || is_left_over(&view);
        decision != Decision::ReleaseEarly
            || view.deleting && view.has_foreign_finalizers && is_permitted
    });
}

#[test]
fn without_early_release_foreign_finalizers_block() {
    for_each(|view, decision| {
        let is_blocked =
            view.deleting && view.has_foreign_finalizers && view.early_release == EarlyRelease::No;
        !is_blocked || !acts(decision) || is_left_over(&view)
    });
}

#[test]
fn requested_release_needs_no_pool() {
    for_each(|view, decision| {
        let unblocked = view.deleting
            && view.has_finalizer
            && view.has_foreign_finalizers
            && view.early_release != EarlyRelease::No
            && !view.paused
            && view.cluster != ClusterState::Paused
            && matches!(
                view.pool,
                Some(PoolState::Unavailable | PoolState::Deleting | PoolState::Ready)
            );
        !unblocked || decision == Decision::ReleaseEarly
    });
}

#[test]
fn early_release_does_not_affect_other_claims() {
    for_each(|view, decision| {
        let is_affected = view.deleting && (view.has_foreign_finalizers || !view.has_finalizer);
        let plain = ClaimView {
            early_release: EarlyRelease::No,
            released_early: false,
            ..view
        };
        is_affected || decision == decide(&plain)
    });
}

#[test]
fn deleting_claim_is_not_bound() {
    for_each(|view, decision| decision != Decision::Bind || !view.deleting);
}

#[test]
fn only_ready_pools_serve_new_claims() {
    for_each(|view, decision| {
        let completes = view.holds_address && !view.bound && view.pool == Some(PoolState::Deleting);
        decision != Decision::Bind || completes || view.pool == Some(PoolState::Ready)
    });
}

#[test]
fn unbound_claim_with_address_never_waits_for_deleting_pool() {
    for_each(|view, decision| {
        !view.holds_address || view.bound || decision != Decision::Wait(WaitReason::PoolDeleting)
    });
}

#[test]
fn valid_bound_claim_is_skipped_without_its_pool() {
    for_each(|view, decision| {
        let is_valid = view.bound
            && view.address == AddressState::Valid
            && view.has_finalizer
            && !view.deleting;
        !is_valid || view.not_ready || decision == Decision::Nothing
    });
}

#[test]
fn unblocked_claim_is_bound() {
    for_each(|view, decision| {
        let unblocked = !view.paused
            && matches!(view.cluster, ClusterState::None | ClusterState::Running)
            && view.pool == Some(PoolState::Ready)
            && !view.has_foreign_finalizers;
        let served = view.bound && view.address == AddressState::Valid;
        let unserved = !view.deleting && !served;
        let waits = view.bound && view.address == AddressState::Deleting && view.has_finalizer;
        !unblocked || !unserved || waits || decision == Decision::Bind
    });
}

#[test]
fn deleting_claim_is_released_without_pool_or_cluster() {
    for_each(|view, decision| {
        let unblocked = view.deleting
            && view.has_finalizer
            && !view.has_foreign_finalizers
            && !view.paused
            && view.cluster != ClusterState::Paused
            && matches!(
                view.pool,
                Some(PoolState::Unavailable | PoolState::Deleting | PoolState::Ready)
            );
        !unblocked || decision == Decision::Release
    });
}
