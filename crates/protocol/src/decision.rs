//! Decides what to do for a claim: a pure function of the observed state.
//!
//! The rules, most of them from the Cluster API contract:
//!
//! - A bound claim whose objects are valid is not changed, whatever the state of its pool and its
//!   Cluster. The exception is a claim that reports `Ready=False`: the problem may be solved.
//! - Nothing is changed while the Cluster, the claim or the pool is paused. Nothing is changed for
//!   a claim whose Cluster does not exist, unless the claim is being deleted.
//! - A bound claim that lacks its finalizer or its IPAddress is a part of a move, if its Cluster is
//!   paused: `clusterctl move` pauses the Cluster, and then removes both. The cache of Clusters can
//!   be late, so the Cluster is read then ([`may_be_moved`]).
//! - An address is released only if the claim is being deleted and no other finalizer is left on
//!   it. Another finalizer means that the machine still uses the address. It is released
//!   nevertheless if a user requests it for this claim, or if the claim has been terminating for
//!   longer than its pool permits.
//! - A pool that is being deleted serves no new claim. It does complete a claim that already holds
//!   an address but is not bound: the pool waits for this address to be released, so the claim must
//!   not wait for the pool. The IPAddress of a bound claim is not repaired in this state, since the
//!   garbage collector may be removing the pool from its owners.
//! - An IPAddress that a user deletes keeps its finalizer as long as its claim is bound to it.

/// The observed state of a claim and of the objects that it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// The claim is being deleted.
    pub deleting: bool,
    /// The claim has our finalizer.
    pub has_finalizer: bool,
    /// The claim has other finalizers, apart from those of the API server's deletion propagation.
    pub has_foreign_finalizers: bool,
    /// The claim has the annotation `cluster.x-k8s.io/paused`.
    pub paused: bool,
    /// The status of the claim names its IPAddress.
    pub bound: bool,
    /// The claim reports `Ready=False`.
    pub not_ready: bool,
    /// The Cluster of the claim.
    pub cluster: ClusterState,
    /// The IPAddress with the name of the claim.
    pub address: AddressState,
    /// The claim already holds an address of its pool: an IPAddress with its name exists, or the
    /// provider reports it.
    pub holds_address: bool,
    /// Whether the address may be released although the claim has other finalizers.
    pub early_release: EarlyRelease,
    /// The claim reports that its address was released although it had other finalizers.
    pub released_early: bool,
    /// The pool of the claim; `None` before it is looked up.
    pub pool: Option<PoolState>,
}

/// Whether and why the address of a claim that is being deleted may be released although the claim
/// has finalizers of other controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyRelease {
    /// It must not.
    #[default]
    No,
    /// A user requests it for this claim.
    Requested,
    /// The claim has been terminating for longer than its pool permits.
    TimedOut,
}

/// The state of the Cluster of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// The claim names no Cluster.
    None,
    /// The Cluster exists and is not paused.
    Running,
    /// The Cluster is paused.
    Paused,
    /// The Cluster does not exist.
    Missing,
}

/// The state of the IPAddress with the name of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// No IPAddress with this name exists.
    Absent,
    /// It belongs to this claim and is complete: finalizer and owner references are set.
    Valid,
    /// It belongs to another claim, or is incomplete.
    Invalid,
    /// It belongs to this claim and is being deleted.
    Deleting,
}

/// The state of the pool of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// The pool does not exist, or cannot serve claims.
    Unavailable,
    /// The pool is paused.
    Paused,
    /// The pool is being deleted.
    Deleting,
    /// The pool serves claims.
    Ready,
}

/// The action to take for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Change nothing.
    Nothing,
    /// Look up the pool and decide again.
    FetchPool,
    /// Report the reason on the claim, and wait.
    Wait(WaitReason),
    /// Allocate an address if necessary, and bind the claim to it.
    Bind,
    /// Release the address and remove our finalizer from the claim.
    Release,
    /// Report that the finalizers of other controllers are passed over, and do the same.
    ReleaseEarly,
}

/// Why a claim waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The Cluster is paused.
    ClusterPaused,
    /// The Cluster does not exist.
    ClusterMissing,
    /// The claim is paused.
    ClaimPaused,
    /// The pool is paused.
    PoolPaused,
    /// The pool does not exist, or cannot serve claims.
    PoolUnavailable,
    /// The pool is being deleted.
    PoolDeleting,
    /// The claim is being deleted, and has finalizers of other controllers.
    ForeignFinalizers,
}

/// Decides which action to take.
///
/// Returns [`Decision::FetchPool`] if the pool matters and [`ClaimView::pool`] is `None`: look it
/// up and call again.
pub fn decide(view: &ClaimView) -> Decision {
    if view.deleting && !view.has_finalizer && !is_left_over(view) {
        return Decision::Nothing;
    }
    if !view.deleting && view.bound && is_complete(view) {
        return Decision::Nothing;
    }
    if let Some(reason) = paused_or_missing(view) {
        return Decision::Wait(reason);
    }
    let is_early = view.deleting && view.has_foreign_finalizers;
    let may_be_early = is_left_over(view) || view.early_release != EarlyRelease::No;
    // Whether the time that the pool permits is over is known after the pool is looked up.
    if is_early && !may_be_early && view.pool.is_some() {
        return Decision::Wait(WaitReason::ForeignFinalizers);
    }
    match view.pool {
        None => Decision::FetchPool,
        Some(PoolState::Paused) => Decision::Wait(WaitReason::PoolPaused),
        Some(_) if is_early => Decision::ReleaseEarly,
        Some(_) if view.deleting => Decision::Release,
        Some(pool) => bind_from(pool, view),
    }
}

/// Whether another process has removed what only a move removes from a bound claim. Then the state
/// of its Cluster has to be that of a read.
pub fn may_be_moved(view: &ClaimView) -> bool {
    let lacks_something = !view.has_finalizer || view.address == AddressState::Absent;
    let is_running = view.cluster == ClusterState::Running;
    view.bound && !view.deleting && lacks_something && is_running
}

/// Whether a process with a stale cache has created the IPAddress again after an early release,
/// which leaves the claim.
fn is_left_over(view: &ClaimView) -> bool {
    let is_released = view.deleting && !view.has_finalizer && view.released_early;
    is_released && matches!(view.address, AddressState::Valid | AddressState::Deleting)
}

/// Whether the objects of a bound claim need no change.
fn is_complete(view: &ClaimView) -> bool {
    match view.address {
        AddressState::Valid => view.has_finalizer && !view.not_ready,
        AddressState::Deleting => view.has_finalizer,
        AddressState::Absent | AddressState::Invalid => false,
    }
}

/// Why nothing is changed for a claim, whatever the state of its pool.
fn paused_or_missing(view: &ClaimView) -> Option<WaitReason> {
    match view.cluster {
        ClusterState::Paused => Some(WaitReason::ClusterPaused),
        ClusterState::Missing if !view.deleting => Some(WaitReason::ClusterMissing),
        _ if view.paused => Some(WaitReason::ClaimPaused),
        ClusterState::Missing | ClusterState::None | ClusterState::Running => None,
    }
}

/// Decides for a claim that needs an address of a pool which is not paused.
fn bind_from(pool: PoolState, view: &ClaimView) -> Decision {
    match pool {
        PoolState::Ready => Decision::Bind,
        // The pool waits for this address to be released.
        PoolState::Deleting if view.holds_address && !view.bound => Decision::Bind,
        PoolState::Deleting => Decision::Wait(WaitReason::PoolDeleting),
        PoolState::Paused => Decision::Wait(WaitReason::PoolPaused),
        PoolState::Unavailable => Decision::Wait(WaitReason::PoolUnavailable),
    }
}

#[cfg(test)]
mod tests;
