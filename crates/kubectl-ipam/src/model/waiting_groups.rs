use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolName;
use super::claims::{ClaimLine, claims};
use super::doctor::grouped;
use crate::objects::{ClaimRow, Objects};

/// Maximum number of claims that a group lists.
const MAX_LISTED: usize = 100;

/// The claims that wait for a pool for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct WaitingGroup {
    /// The pool.
    pub(crate) pool: PoolName,
    /// Reason of the condition Ready; omitted if no manager has processed the claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Message of the oldest claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Number of the claims.
    pub(crate) count: u64,
    /// Creation of the oldest claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest: Option<Timestamp>,
    /// The oldest claims, at most 100. A message is omitted if it is that of the group.
    pub(crate) claims: Vec<ClaimLine>,
}

impl WaitingGroup {
    /// A group of this many claims, the oldest of which are listed.
    fn of(count: usize, mut claims: Vec<ClaimLine>) -> Option<Self> {
        let ClaimLine {
            pool,
            reason,
            message,
            created: oldest,
            ..
        } = claims.first()?.clone();
        for claim in &mut claims {
            if claim.message == message {
                claim.message = None;
            }
        }
        Some(Self {
            pool,
            reason,
            message,
            count: u64::try_from(count).unwrap_or(u64::MAX),
            oldest,
            claims,
        })
    }
}

/// Groups waiting claims by pool and reason, and those that this provider does not serve by pool.
/// The group that waits longest is first.
pub(crate) fn waiting_groups(mut rows: Vec<&ClaimRow>, objects: &Objects) -> Vec<WaitingGroup> {
    rows.sort_by_key(|row| (row.created, &row.key));
    let of_reason = grouped(rows, |row| {
        let reason = row.reason.as_deref().filter(|_| row.pool.is_ok());
        (&row.pool, reason)
    });
    let mut groups = Vec::new();
    for mut rows in of_reason.into_values() {
        let count = rows.len();
        rows.truncate(MAX_LISTED);
        groups.extend(WaitingGroup::of(count, claims(rows, objects)));
    }
    groups.sort_by_key(|group| group.oldest);
    groups
}

#[cfg(test)]
mod tests {
    use capi_ipam_provider::api::IPAddressClaim;
    use serde_json::json;

    use super::*;
    use crate::objects::ServedKinds;

    fn row(name: &str, pool: &str, created: &str, reason: &str, message: &str) -> ClaimRow {
        let claim: IPAddressClaim = serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "n", "creationTimestamp": created },
            "spec": { "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": pool } },
            "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": reason, "message": message,
                                         "lastTransitionTime": created }] },
        }))
        .unwrap();
        ClaimRow::served(&claim)
    }

    #[test]
    fn claims_are_grouped_by_pool_and_reason() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let rows = [
            row("c", "full", late, "PoolExhausted", "no free address"),
            row("b", "paused", late, "Paused", "paused"),
            row("a", "full", early, "PoolExhausted", "no free address"),
            row("d", "full", late, "PoolExhausted", "another sentence"),
        ];
        let groups = waiting_groups(rows.iter().collect(), &Objects::default());
        let texts = groups.iter().map(|group| {
            let names: Vec<_> = group
                .claims
                .iter()
                .map(|claim| claim.name.as_str())
                .collect();
            format!("{} {} {}", group.pool.name, group.count, names.join(","))
        });
        assert_eq!(texts.collect::<Vec<_>>(), ["full 3 a,c,d", "paused 1 b"]);
        let messages = groups[0]
            .claims
            .iter()
            .map(|claim| claim.message.as_deref());
        assert_eq!(
            messages.collect::<Vec<_>>(),
            [None, None, Some("another sentence")],
            "a sentence stands once"
        );
    }

    #[test]
    fn claims_of_an_unknown_kind_are_grouped_by_kind_and_pool() {
        let unserved = |name: &str, kind: &str| {
            let claim: IPAddressClaim = serde_json::from_value(json!({
                "metadata": { "name": name, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z" },
                "spec": { "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": "web" } },
            }))
            .unwrap();
            let served = ServedKinds {
                groups: ["ipam.cluster.x-k8s.io".to_owned()].into(),
                own: ["InClusterIPPool".to_owned()].into(),
                ..ServedKinds::default()
            };
            ClaimRow::unserved(&claim, &served)
        };
        let later = row("c", "web", "2026-01-02T00:00:00Z", "Paused", "paused");
        let claims = [
            later,
            unserved("a", "InClusterIpPool"),
            unserved("b", "InClusterIpPool"),
            unserved("c", "IPPool"),
        ];
        let groups = waiting_groups(claims.iter().collect(), &Objects::default());
        let texts = groups.iter().map(|group| {
            let reason = group.reason.as_deref().unwrap_or_default();
            format!("{reason} {} {}", group.pool.kind, group.count)
        });
        assert_eq!(
            texts.collect::<Vec<_>>(),
            [
                "UnknownPoolKind IPPool 1",
                "UnknownPoolKind InClusterIpPool 2",
                "Paused InClusterIPPool 1"
            ]
        );
        let message = groups[1].message.as_deref();
        let expected = "kind InClusterIpPool is not served; did you mean InClusterIPPool?";
        assert_eq!(message, Some(expected));
    }
}
