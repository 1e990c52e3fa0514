//! What to do about a problem of a claim, in the words of conditions, events and tools.

/// About a claim that its pool does not serve. Cluster API does not allow to change the
/// specification of a claim.
pub const ANOTHER_POOL: &str =
    "delete the claim, so that its controller creates it with another pool";

/// About a claim whose pool does not exist.
pub const MISSING_POOL: &str = "create it, or delete the claim, so that its controller creates it with another pool: a claim cannot be changed";

/// About a Cluster, claim or pool that is paused.
pub const PAUSED: &str = "unpause it when the work on it is finished";

/// About a claim whose Cluster does not exist.
pub const MISSING_CLUSTER: &str =
    "create it, or delete the claim, so that its controller creates it for another Cluster";
