//! When a pool takes addresses back although a machine may still use them, and what it reports
//! about addresses in use.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The minimum of [`TerminatingPolicy::after_seconds`].
pub const MIN_TERMINATING_SECONDS: i64 = 60;

/// Which addresses count as abandoned although their claims exist. Without it, none do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimPolicy {
    /// Releases the addresses of claims that are being deleted and that other controllers keep.
    /// Without it, an address is kept until the finalizers of all other controllers are removed
    /// from its claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminating: Option<TerminatingPolicy>,
    /// Whether the address of each claim is compared with the addresses that the Machine of the
    /// claim reports in its status. None, the default: no. Report: the condition AddressInUse of
    /// the claim shows the result. It never releases an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyMode>,
}

/// How long the claims of a pool may be terminating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminatingPolicy {
    /// Seconds after the deletion of a claim after which its address is released, even if
    /// finalizers of other controllers are left on the claim. A machine that still uses the address
    /// then shares it with another one.
    #[schemars(range(min = 60))]
    pub after_seconds: i64,
}

/// Whether the addresses of claims are compared with those of their Machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VerifyMode {
    /// They are not compared.
    #[default]
    None,
    /// A condition of each claim shows whether its Machine reports the address.
    Report,
}

impl ReclaimPolicy {
    /// How long a claim may be terminating before its address is released; `None` without a limit.
    /// A limit below the minimum is not valid and has no effect.
    pub fn terminating_limit(&self) -> Option<Duration> {
        let seconds = self.terminating?.after_seconds;
        Some(Duration::from_secs(
            u64::try_from(seconds)
                .ok()
                .filter(|_| seconds >= MIN_TERMINATING_SECONDS)?,
        ))
    }

    /// Whether the addresses of claims are compared with those of their Machines.
    pub fn verifies(&self) -> bool {
        self.verify == Some(VerifyMode::Report)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_reclaimed_by_default() {
        let policy: ReclaimPolicy = serde_json::from_value(json!({})).unwrap();
        assert_eq!(
            (policy, policy.terminating_limit(), policy.verifies()),
            (ReclaimPolicy::default(), None, false)
        );
        assert_eq!(serde_json::to_value(policy).unwrap(), json!({}));
        assert!(
            !ReclaimPolicy {
                verify: Some(VerifyMode::None),
                ..policy
            }
            .verifies()
        );
    }

    #[test]
    fn limit_below_the_minimum_has_no_effect() {
        let limit = |after_seconds| {
            let terminating = Some(TerminatingPolicy { after_seconds });
            ReclaimPolicy {
                terminating,
                verify: None,
            }
            .terminating_limit()
            .map(|limit| limit.as_secs())
        };
        assert_eq!([i64::MIN, -1, 0, 59].map(limit), [None; 4]);
        assert_eq!(
            [60, i64::MAX].map(limit),
            [Some(60), Some(i64::MAX.cast_unsigned())]
        );
    }
}
