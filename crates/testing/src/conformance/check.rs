//! The checks.

/// A check, which runs in its own namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Claims are bound: names, finalizers, owner references, labels, conditions, different
    /// addresses.
    Bind,
    /// A deleted claim is removed with its IPAddress, and all addresses of the pool can be
    /// allocated again.
    Release,
    /// A Cluster pauses its claims.
    PausedCluster,
    /// The annotation on a claim pauses it.
    PausedClaim,
    /// The annotation on a pool pauses its claims.
    PausedPool,
    /// A deleted claim with the finalizer of another controller keeps its address until the
    /// finalizer is removed.
    ForeignFinalizer,
    /// A claim without a status and an IPAddress of its name, as after a restore, are bound with
    /// this address.
    Adoption,
    /// A claim is deleted and created with the same name 20 times; no address leaks.
    NameReuse,
    /// A claim for a pool that does not exist reports it, and is bound when the pool is created.
    MissingPool,
    /// A claim for a pool without a free address reports it, and is bound when another claim
    /// releases its address.
    ExhaustedPool,
    /// The API server is killed and started again.
    Outage,
    /// Two programs with leader election: one is killed, and the other continues.
    LeaderElection,
    /// A restart while many claims are bound causes no write.
    Restart,
    /// The program is killed before and after each of its writes while a claim is bound and
    /// released.
    Kills,
}

impl Check {
    /// All checks.
    pub const ALL: [Self; 14] = [
        Self::Bind,
        Self::Release,
        Self::PausedCluster,
        Self::PausedClaim,
        Self::PausedPool,
        Self::ForeignFinalizer,
        Self::Adoption,
        Self::NameReuse,
        Self::MissingPool,
        Self::ExhaustedPool,
        Self::Outage,
        Self::LeaderElection,
        Self::Restart,
        Self::Kills,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Release => "release",
            Self::PausedCluster => "paused Cluster",
            Self::PausedClaim => "paused claim",
            Self::PausedPool => "paused pool",
            Self::ForeignFinalizer => "foreign finalizer",
            Self::Adoption => "adoption",
            Self::NameReuse => "name reuse",
            Self::MissingPool => "missing pool",
            Self::ExhaustedPool => "exhausted pool",
            Self::Outage => "API server outage",
            Self::LeaderElection => "leader election",
            Self::Restart => "restart",
            Self::Kills => "kills",
        }
    }
}
