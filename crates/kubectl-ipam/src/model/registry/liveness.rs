//! Whether a management cluster is alive, by its last sign of life.

use capi_ipam_api::LAST_SEEN_PRECISION;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

/// How long after its last sign of life a management cluster counts as alive. It gives one each
/// minute.
pub(crate) const STALE_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Whether a management cluster is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ClusterState {
    /// It was seen in the last 10 minutes.
    Alive,
    /// It was not.
    Stale,
    /// It is not known when it was seen.
    Unknown,
}

/// The state of a management cluster that was last seen at this time. By a clock that is late, that
/// can be in the future.
pub(super) fn state(seen: Option<Timestamp>, now: Timestamp) -> ClusterState {
    match seen {
        None => ClusterState::Unknown,
        Some(seen) if now.duration_since(seen) > STALE_AFTER => ClusterState::Stale,
        Some(_) => ClusterState::Alive,
    }
}

/// As [`state`], by the time in the status of a registry, which is rounded down.
pub(super) fn state_by_status(rounded: Option<Timestamp>, now: Timestamp) -> ClusterState {
    let precision = SignedDuration::from_secs(LAST_SEEN_PRECISION);
    // The latest time that is rounded to this one.
    let latest = rounded.and_then(|time| time.checked_add(precision).ok());
    state(latest, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_is_stale_ten_minutes_after_its_last_sign_of_life() {
        let now: Timestamp = "2026-01-05T03:34:05Z".parse().unwrap();
        let ago = |seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok();
        assert_eq!(state(None, now), ClusterState::Unknown);
        for (seconds, expected) in [
            (-60, ClusterState::Alive),
            (600, ClusterState::Alive),
            (601, ClusterState::Stale),
        ] {
            assert_eq!(state(ago(seconds), now), expected, "{seconds}");
            // Up to ten minutes more have been cut off.
            assert_eq!(state_by_status(ago(seconds + 600), now), expected);
        }
    }
}
