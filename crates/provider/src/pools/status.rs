//! The status of a pool that [`WatchedPools`](super::WatchedPools) writes.

use capi_ipam_controller::clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::conditions::{self, Condition};

/// The status of a pool. A kind has it as its status, or embeds it in its own one:
///
/// ```
/// use capi_ipam_provider::prelude::PoolStatus;
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "RackPool", namespaced, status = "RackPoolStatus")]
/// struct RackPoolSpec {
///     racks: Vec<String>,
/// }
///
/// #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
/// struct RackPoolStatus {
///     #[serde(flatten)]
///     pool: PoolStatus,
///     /// A field of the provider itself. It is kept.
///     #[serde(default, skip_serializing_if = "Option::is_none")]
///     last_backup: Option<String>,
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Generation of the pool that counts and conditions describe.
    #[serde(
        default,
        deserialize_with = "conditions::observed_generation",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_generation: Option<i64>,
    /// Counts of the addresses of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_addresses: Option<PoolCounts>,
    /// Conditions of the pool: Ready and Exhausted, and those of the provider itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::list_schema")]
    pub conditions: Vec<Condition>,
}

/// Counts of the addresses of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolCounts {
    /// IPAddresses of the pool.
    pub used: i64,
    /// Addresses of the pool, in use or not, if the provider knows this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// Addresses that are not in use, if the provider knows the total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<i64>,
}

impl PoolCounts {
    /// The counts of a pool with `used` IPAddresses and `capacity` addresses. A count that does not
    /// fit is the greatest possible one.
    pub(super) fn new(used: usize, capacity: Option<u128>) -> Self {
        let count = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
        let used = u128::try_from(used).unwrap_or(u128::MAX);
        Self {
            used: count(used),
            total: capacity.map(count),
            free: capacity.map(|capacity| count(capacity.saturating_sub(used))),
        }
    }
}

/// The state of a pool from which its status is computed.
pub(super) struct PoolState {
    pub(super) generation: Option<i64>,
    pub(super) counts: PoolCounts,
    /// Whether the provider has no address for a waiting claim.
    pub(super) has_no_address: bool,
    /// Why the specification is not valid.
    pub(super) problem: Option<String>,
    /// Why the API server rejects our finalizer.
    pub(super) finalizer_error: Option<String>,
    /// What a pool in deletion waits for.
    pub(super) deletion: Option<String>,
    pub(super) is_paused: bool,
}

impl PoolState {
    /// The status that a pool with the status `before` gets. Other conditions are kept.
    pub(super) fn status(&self, before: PoolStatus) -> PoolStatus {
        let mut list = before.conditions;
        let observed = |condition: Condition| condition.with_observed_generation(self.generation);
        conditions::set_ready(&mut list, observed(self.ready()), clock::now());
        conditions::set(&mut list, observed(self.exhausted()), clock::now());
        PoolStatus {
            observed_generation: self.generation,
            ip_addresses: Some(self.counts),
            conditions: list,
        }
    }

    fn ready(&self) -> Condition {
        let failed = |reason, message: &str| {
            Condition::new(conditions::READY, false, reason, message.to_owned())
        };
        if self.is_paused {
            return failed(conditions::PAUSED_REASON, "the pool is paused");
        }
        if let Some(blocker) = &self.deletion {
            return failed(conditions::DELETING, blocker);
        }
        if let Some(problem) = &self.problem {
            return failed(conditions::INVALID_SPEC, problem);
        }
        if let Some(error) = &self.finalizer_error {
            return failed(conditions::INITIALIZATION_FAILED, error);
        }
        Condition::new(conditions::READY, true, conditions::POOL_READY, "")
    }

    fn exhausted(&self) -> Condition {
        let is_full = self.counts.free == Some(0) || self.has_no_address;
        if self.problem.is_some() || !is_full {
            let reason = conditions::ADDRESSES_FREE;
            return Condition::new(conditions::EXHAUSTED, false, reason, "");
        }
        let used = self.counts.used;
        let message = match self.counts.total {
            Some(total) => format!("no address is free ({total} in total, {used} in use)"),
            None => format!("no address is free ({used} in use)"),
        };
        Condition::new(
            conditions::EXHAUSTED,
            true,
            conditions::NO_FREE_ADDRESS,
            message,
        )
    }
}

/// Whether a transition to this condition is reported by a warning event.
pub(super) fn is_warning(condition: &Condition) -> bool {
    let problems = [conditions::INVALID_SPEC, conditions::INITIALIZATION_FAILED];
    let reason = condition.reason();
    match condition.type_.as_ref() {
        conditions::READY => problems.contains(&reason),
        conditions::EXHAUSTED => condition.status == "True",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(used: usize, capacity: Option<u128>) -> PoolState {
        PoolState {
            generation: Some(3),
            counts: PoolCounts::new(used, capacity),
            has_no_address: false,
            problem: None,
            finalizer_error: None,
            deletion: None,
            is_paused: false,
        }
    }

    fn states(state: &PoolState) -> Vec<String> {
        let status = state.status(PoolStatus::default());
        let all = status.conditions.iter();
        all.map(|one| format!("{}={}", one.type_, one.status))
            .collect()
    }

    #[test]
    fn conditions_follow_the_state() {
        let free = ["Ready=True", "Exhausted=False"];
        assert_eq!(states(&state(1, Some(2))), free);
        assert_eq!(states(&state(1, None)), free);
        let full = ["Ready=True", "Exhausted=True"];
        assert_eq!(states(&state(2, Some(2))), full);
        assert_eq!(states(&state(3, Some(2))), full, "the pool was reduced");
        let waiting = PoolState {
            has_no_address: true,
            ..state(1, None)
        };
        assert_eq!(states(&waiting), full);
        let invalid = PoolState {
            problem: Some("spec.racks is empty".to_owned()),
            ..state(0, Some(0))
        };
        assert_eq!(
            states(&invalid),
            ["Ready=False", "Stalled=True", "Exhausted=False"]
        );
        let rejected = PoolState {
            finalizer_error: Some("no".to_owned()),
            ..state(0, None)
        };
        assert_eq!(
            states(&rejected),
            ["Ready=False", "Reconciling=True", "Exhausted=False"]
        );
        let paused = PoolState {
            is_paused: true,
            deletion: Some("waiting".to_owned()),
            ..state(0, None)
        };
        assert_eq!(states(&paused), ["Ready=False", "Exhausted=False"]);
    }
}
