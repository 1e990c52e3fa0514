//! Condition types and reasons: those of the Cluster API contract, and those of pools.

pub use capi_ipam_provider::api::conditions::*;

/// Condition type of pools: no address is free.
pub const EXHAUSTED: &str = "Exhausted";

/// Condition type of pools: other pools can give out the same addresses.
pub const OVERLAPPING: &str = "Overlapping";

/// Condition type of pools: addresses are in use that the pool no longer has.
pub const OUT_OF_RANGE: &str = "OutOfRange";

/// Reason of a pool without a free address.
pub const NO_FREE_ADDRESS: &str = "NoFreeAddress";

/// Reason of a pool with free addresses, or whose addresses cannot be understood.
pub const ADDRESSES_FREE: &str = "AddressesFree";

/// Reason of a pool whose addresses others have too.
pub const POOLS_OVERLAP: &str = "PoolsOverlap";

/// Reason of a pool whose addresses no other has.
pub const NO_OVERLAP: &str = "NoOverlap";

/// Reason of a pool with addresses in use that it no longer has.
pub const ADDRESSES_OUT_OF_RANGE: &str = "AddressesOutOfRange";

/// Reason of a pool that has all its addresses that are in use.
pub const ALL_IN_RANGE: &str = "AllInRange";

/// Reason of a pool that serves claims.
pub const POOL_READY: &str = "PoolReady";

/// Reason of a pool whose specification cannot be understood.
pub const INVALID_SPEC: &str = "InvalidSpec";

/// Reason of the event that tells of a reservation that reserves nothing.
pub const INVALID_RESERVATION: &str = "InvalidReservation";

/// Reason of the event about an IPAddress made by hand that no claim has.
pub const NO_CLAIM: &str = "NoClaim";

/// Reason of a pool whose finalizer the API server refuses.
pub const INITIALIZATION_FAILED: &str = "InitializationFailed";
