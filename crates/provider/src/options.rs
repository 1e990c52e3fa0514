//! The options of the controller of claims and of the sweep.

use std::time::Duration;

/// How the claims of a provider are reconciled. The defaults suit a provider with a backend outside
/// of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimOptions {
    /// How often a claim that waits for its pool is reconciled without a trigger. A provider that
    /// enqueues its waiting claims ([`ProviderSetup::trigger`](crate::advanced::ProviderSetup::trigger)) can
    /// set a long interval. Default: 30 seconds.
    pub resync_interval: Duration,
    /// How long a claim that was moved or restored to this cluster waits for its IPAddress to be
    /// restored too, counted from the creation of the claim. After that it gets a new address.
    /// Default: one hour.
    pub restored_claim_timeout: Duration,
    /// How long one call of a [`ClaimHandler`](crate::advanced::ClaimHandler) may take. A call that takes
    /// longer is cancelled, and the attempt fails. Default: one minute.
    pub handler_timeout: Duration,
    /// In which time every bound claim is verified once ([`verify`]), spread evenly. `None`: a
    /// bound claim causes no call. Default: `None`.
    ///
    /// [`verify`]: crate::advanced::ClaimHandler::verify
    pub verify_interval: Option<Duration>,
    /// Whether an address may be allocated at the same time as the finalizer is added to the claim,
    /// and not only afterwards. This saves the latency of one write. Default: `false`.
    ///
    /// Set it only if the provider itself finds and frees addresses of claims that no longer exist:
    /// if the program ends between the two writes and the claim is deleted, [`release_address`] is
    /// not called.
    ///
    /// [`release_address`]: crate::advanced::ClaimHandler::release_address
    pub allocate_before_finalizer: bool,
}

impl Default for ClaimOptions {
    fn default() -> Self {
        Self {
            resync_interval: Duration::from_secs(30),
            restored_claim_timeout: Duration::from_hours(1),
            handler_timeout: Duration::from_mins(1),
            verify_interval: None,
            allocate_before_finalizer: false,
        }
    }
}

/// How abandoned objects, such as IPAddresses without a claim, are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepOptions {
    /// The time between two passes. Default: one minute.
    pub interval: Duration,
    /// How long an object must be abandoned before it is released. Default: one minute.
    pub grace: Duration,
    /// Only report abandoned objects, by an event, and release none. Default: `false`.
    pub report_only: bool,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_mins(1),
            grace: Duration::from_mins(1),
            report_only: false,
        }
    }
}
