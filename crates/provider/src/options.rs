//! The options of the controller of claims and of the sweep.

use std::time::Duration;

use capi_ipam_controller::retry::RetryPolicy;

/// How the claims of a provider are reconciled. The defaults suit a provider with a backend outside
/// of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimOptions {
    /// How often a claim that waits for its pool is reconciled without a trigger. A provider that
    /// enqueues its waiting claims
    /// ([`ProviderSetup::trigger`](crate::advanced::ProviderSetup::trigger)) can set a long
    /// interval. Default: 30 seconds.
    pub resync_interval: Duration,
    /// How long a claim that was moved or restored to this cluster waits for its IPAddress to be
    /// restored too, counted from the creation of the claim. After that it gets a new address.
    /// Default: one hour.
    pub restored_claim_timeout: Duration,
    /// How long one call of a [`ClaimHandler`](crate::advanced::ClaimHandler) may take. A call that
    /// takes longer is cancelled, and the attempt fails. Default: one minute.
    pub handler_timeout: Duration,
    /// The delay after failed attempts, for a backend that must not be asked often. If many claims
    /// fail, the longest delay grows with their number up to five minutes. `None`: from 50 ms to 10
    /// seconds, and longer while the API server does not respond. Default: `None`.
    pub retry: Option<RetryPolicy>,
    /// How many claims are reconciled at the same time at most, if the flag `--concurrency` permits
    /// more: for a backend that serves few requests at a time. Default: `None`.
    pub concurrency: Option<u16>,
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
            retry: None,
            concurrency: None,
            verify_interval: None,
            allocate_before_finalizer: false,
        }
    }
}

/// What [`WatchedPools`](crate::prelude::WatchedPools) does for the pools themselves. By default
/// nothing: it only watches them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// The finalizer of a pool, such as `example.com/protect-pool`: a pool that is deleted stays
    /// until a list shows no IPAddress of it. [`WatchedPools::with_options`] describes what this
    /// does not cover. It is added before the first address of the pool is allocated. Needs
    /// `update` and `patch` on the pools. Default: `None`.
    ///
    /// [`WatchedPools::with_options`]: crate::prelude::WatchedPools::with_options
    pub finalizer: Option<&'static str>,
    /// Whether the status of a pool is written: its kind has a [`PoolStatus`] and the status
    /// subresource. Needs `patch` on the status of the pools. Default: `false`.
    ///
    /// [`PoolStatus`]: crate::prelude::PoolStatus
    pub status: bool,
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
