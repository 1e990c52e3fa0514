//! What to do about a claim: a pure function of what is known of it.
//!
//! The rules, most of them from the contract:
//!
//! - a bound claim whose objects are right is left alone, whatever its pool and Cluster are like, unless it says that
//!   something is wrong: that may be over;
//! - nothing is done while Cluster, claim or pool is paused, and nothing for a claim whose Cluster is not there, unless
//!   the claim is being deleted;
//! - an address is taken back once the claim is being deleted and ours is the only finalizer left: another's means that
//!   the machine still uses the address;
//! - a pool that is being deleted serves no claim, except to finish what was begun: the pool waits for the address that
//!   an unbound claim holds already, so the claim must not wait for the pool. What a bound claim lost is not repaired then:
//!   the garbage collector may be removing the pool from the owners of its IPAddress;
//! - an IPAddress that somebody deleted stays as long as its claim is bound to it.

/// What is known of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// The claim is being deleted.
    pub deleting: bool,
    /// The claim carries our finalizer.
    pub finalizer: bool,
    /// The claim carries finalizers of others, those of the API server's own deletion modes aside.
    pub foreign_finalizers: bool,
    /// The claim carries the annotation that pauses it.
    pub paused: bool,
    /// The claim's status names its IPAddress.
    pub bound: bool,
    /// The claim says that it is not ready.
    pub troubled: bool,
    /// The claim's Cluster.
    pub cluster: ClusterState,
    /// The IPAddress of the claim's name.
    pub address: AddressState,
    /// The claim holds an address of its pool already, by an IPAddress of its name or as the provider knows.
    pub holds: bool,
    /// The claim's pool; `None` while it has not been looked up.
    pub pool: Option<PoolState>,
}

/// The Cluster of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// The claim names none.
    None,
    /// It is there and not paused.
    Running,
    /// It is paused.
    Paused,
    /// It is not there.
    Missing,
}

/// The IPAddress of a claim's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// There is none.
    Absent,
    /// It is this claim's, and carries what it should.
    Right,
    /// It is not this claim's, or lacks something.
    Wrong,
    /// It is this claim's, and is being deleted.
    Deleting,
}

/// The pool of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// It is not there, or cannot serve claims.
    Unavailable,
    /// It is paused.
    Paused,
    /// It is being deleted.
    Deleting,
    /// It serves claims.
    Ready,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Nothing,
    /// Look up the pool and decide again.
    FetchPool,
    /// Say why nothing happens, and wait.
    Wait(Waiting),
    /// Give the claim its address.
    Bind,
    /// Take the address back and let the claim go.
    Release,
}

/// What a claim waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The Cluster is paused.
    ClusterPaused,
    /// The Cluster is not there.
    ClusterMissing,
    /// The claim itself is paused.
    ClaimPaused,
    /// The pool is paused.
    PoolPaused,
    /// The pool is not there, or cannot serve claims.
    PoolUnavailable,
    /// The pool is being deleted.
    PoolDeleting,
    /// The claim is being deleted, and others have finalizers on it.
    Finalizers,
}

/// Decides what is to be done.
pub fn decide(view: &ClaimView) -> Decision {
    if view.deleting && !view.finalizer {
        return Decision::Nothing;
    }
    let served = match view.address {
        AddressState::Right => view.finalizer && !view.troubled,
        AddressState::Deleting => view.finalizer,
        AddressState::Absent | AddressState::Wrong => false,
    };
    if !view.deleting && view.bound && served {
        return Decision::Nothing;
    }
    match view.cluster {
        ClusterState::Paused => return Decision::Wait(Waiting::ClusterPaused),
        ClusterState::Missing if !view.deleting => return Decision::Wait(Waiting::ClusterMissing),
        ClusterState::Missing | ClusterState::None | ClusterState::Running => {}
    }
    if view.paused {
        return Decision::Wait(Waiting::ClaimPaused);
    }
    if view.deleting && view.foreign_finalizers {
        return Decision::Wait(Waiting::Finalizers);
    }
    let Some(pool) = view.pool else { return Decision::FetchPool };
    match (pool, view.deleting) {
        (PoolState::Paused, _) => Decision::Wait(Waiting::PoolPaused),
        (_, true) => Decision::Release,
        (PoolState::Ready, false) => Decision::Bind,
        (PoolState::Deleting, false) if view.holds && !view.bound => Decision::Bind,
        (PoolState::Deleting, false) => Decision::Wait(Waiting::PoolDeleting),
        (PoolState::Unavailable, false) => Decision::Wait(Waiting::PoolUnavailable),
    }
}

#[cfg(test)]
mod tests;
