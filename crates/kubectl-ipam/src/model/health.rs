//! What the page knows of the API server and of the manager.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::doctor::{LeaseRow, is_held, is_old, is_unprocessed};
use crate::objects::Objects;

/// Why the API server gives no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Outage {
    /// The cause.
    pub(crate) cause: OutageCause,
    /// The error.
    pub(crate) reason: String,
    /// Time of its last answer; omitted if it never gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
}

/// The cause of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) enum OutageCause {
    /// It refuses connections.
    Refused,
    /// It does not answer in time.
    Silent,
    /// It rejects the credentials of the kubeconfig.
    Credentials,
    /// Another failure.
    Failed,
}

/// What the API server answers to the request for the leases.
#[derive(Debug)]
pub(crate) enum Answer {
    Leases(Vec<LeaseRow>),
    /// It answers, but does not tell the leases.
    Refused,
    None(OutageCause, String),
}

/// Whether a manager processes the objects that the page shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Manager {
    /// The state.
    pub(crate) state: ManagerState,
    /// The holder of the lease; if there is no manager, the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<String>,
    /// If there is no manager: since when, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
}

/// The state of the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) enum ManagerState {
    /// A process holds the lease.
    Active,
    /// No process holds the lease, or objects are not processed.
    Missing,
    /// There is no lease: a manager without leader election needs none.
    WithoutLease,
    /// Leases may not be listed, or were not listed yet.
    Unknown,
}

/// Decides from the leases whether there is a manager. `unprocessed` is since when an object waits
/// that a manager would have processed.
pub(crate) fn manager(
    leases: Option<&[LeaseRow]>,
    unprocessed: Option<Timestamp>,
    now: Timestamp,
) -> Manager {
    let Some(leases) = leases else {
        return Manager {
            state: ManagerState::Unknown,
            holder: None,
            since: None,
        };
    };
    let held = leases.iter().find(|lease| is_held(lease, now));
    let lease = held.or_else(|| leases.iter().max_by_key(|lease| lease.renewed));
    let (state, since) = match (lease, unprocessed) {
        (Some(_), _) if held.is_some() => (ManagerState::Active, None),
        (Some(lease), _) => (ManagerState::Missing, lease.renewed),
        (None, Some(since)) => (ManagerState::Missing, Some(since)),
        (None, None) => (ManagerState::WithoutLease, None),
    };
    Manager {
        state,
        holder: lease.and_then(LeaseRow::holder).map(str::to_owned),
        since,
    }
}

/// Since when the oldest object waits that no manager has processed. The Go provider writes no
/// conditions of pools.
pub(crate) fn unprocessed(
    objects: &Objects,
    is_go_provider: bool,
    now: Timestamp,
) -> Option<Timestamp> {
    let mut created: Vec<Option<Timestamp>> = Vec::new();
    for pool in objects.pools() {
        if is_unprocessed(pool, is_go_provider, now) {
            created.push(pool.created);
        }
    }
    for claim in objects.claims.iter() {
        if claim.pool.is_ok()
            && claim.is_waiting()
            && claim.reason.is_none()
            && !claim.paused
            && is_old(claim.created, now)
        {
            created.push(claim.created);
        }
    }
    created.into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn lease(holder: &str, renewed_seconds_ago: i64, now: Timestamp) -> LeaseRow {
        LeaseRow {
            namespace: "n".to_owned(),
            holder: Some(holder.to_owned()),
            renewed: now
                .checked_sub(SignedDuration::from_secs(renewed_seconds_ago))
                .ok(),
            seconds: 15,
        }
    }

    #[test]
    fn manager_is_missing_if_nobody_renews_the_lease() {
        let now = Timestamp::now();
        let state =
            |leases: Option<&[LeaseRow]>, unprocessed| manager(leases, unprocessed, now).state;
        assert_eq!(state(None, Some(now)), ManagerState::Unknown);
        assert_eq!(state(Some(&[]), None), ManagerState::WithoutLease);
        assert_eq!(state(Some(&[]), Some(now)), ManagerState::Missing);
        let leases = [lease("old", 300, now), lease("new", 5, now)];
        assert_eq!(manager(Some(&leases), None, now).holder.unwrap(), "new");
        let expired = [lease("pod-1", 300, now)];
        let found = manager(Some(&expired), None, now);
        assert_eq!(found.state, ManagerState::Missing);
        assert_eq!(
            (found.holder.as_deref(), found.since),
            (Some("pod-1"), expired[0].renewed)
        );
        assert_eq!(
            state(Some(&[lease("", 1, now)]), None),
            ManagerState::Missing
        );
    }
}
