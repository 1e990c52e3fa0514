//! The policies of pools: allocation, reclaim, and access to global pools.

use serde_json::{Value, json};

use crate::table::{ADDRESSES, GLOBAL_ADDRESSES, GLOBAL_PREFIXES, PREFIXES, Table};
use crate::{ControlPlane, object};

pub(super) fn access_of_global_pools(plane: &ControlPlane) {
    let mut table = Table::new(plane);
    let pool = |kind: &str, access: &Value| {
        let mut spec = if kind.contains("Prefix") {
            json!({"prefixes": ["fd00::/48"]})
        } else {
            json!({"addresses": ["10.0.0.1"], "prefix": 24})
        };
        json_patch::merge(&mut spec, access);
        object(kind, "case", &spec)
    };
    for kind in [ADDRESSES, PREFIXES, GLOBAL_ADDRESSES, GLOBAL_PREFIXES] {
        for order in ["LowestFirst", "RoundRobin", "Random"] {
            table.accepts_object(&pool(kind, &json!({"allocation": {"order": order}})));
        }
        for policy in [
            json!({}),
            json!({"terminating": {"afterSeconds": 60}, "verify": "Report"}),
        ] {
            table.accepts_object(&pool(kind, &json!({"reclaim": policy})));
        }
        let seconds = "spec.reclaim.terminating.afterSeconds";
        for (policy, field, text) in [
            (
                json!({"terminating": {"afterSeconds": 59}}),
                seconds,
                "greater than or equal to 60",
            ),
            (json!({"terminating": {}}), seconds, "Required value"),
            (
                json!({"verify": "Release"}),
                "spec.reclaim.verify",
                "Unsupported value",
            ),
        ] {
            table.rejects_object(&pool(kind, &json!({"reclaim": policy})), field, text);
        }
        let unknown = json!({"allocation": {"order": "HighestFirst"}});
        table.rejects_object(
            &pool(kind, &unknown),
            "spec.allocation.order",
            "Unsupported value",
        );
    }
    let selector = json!({"matchLabels": {"a": "b"}});
    for kind in [GLOBAL_ADDRESSES, GLOBAL_PREFIXES] {
        for good in [
            json!({"allowedNamespaces": {"from": "None"}, "limits": {}}),
            json!({"allowedNamespaces": {"from": "Selector", "selector": selector}}),
            json!({"limits": {"perNamespace": 1, "perCluster": 1_000_000}}),
            json!({"headroom": {"addresses": 5, "for": selector}}),
        ] {
            table.accepts_object(&pool(kind, &good));
        }
        let unselective = "must select some claims";
        for (bad, field, text) in [
            (
                json!({"allowedNamespaces": {}}),
                "spec.allowedNamespaces.from",
                "Required value",
            ),
            (
                json!({"allowedNamespaces": {"from": "Selector"}}),
                "spec.allowedNamespaces.selector",
                "must be set with from: Selector",
            ),
            (
                json!({"allowedNamespaces": {"from": "All", "names": ["a"]}}),
                "spec.allowedNamespaces.names",
                "unless from is Names",
            ),
            (
                json!({"limits": {"perNamespace": 0}}),
                "spec.limits.perNamespace",
                "greater than or equal to 1",
            ),
            (
                json!({"limits": {"perCluster": -1}}),
                "spec.limits.perCluster",
                "greater than or equal to 1",
            ),
            (
                json!({"headroom": {"addresses": 0, "for": selector}}),
                "spec.headroom.addresses",
                "equal to 1",
            ),
            (
                json!({"headroom": {"addresses": 1}}),
                "spec.headroom.for",
                "Required value",
            ),
            (
                json!({"headroom": {"addresses": 1, "for": {}}}),
                "spec.headroom.for",
                unselective,
            ),
        ] {
            table.rejects_object(&pool(kind, &bad), field, text);
        }
    }
    table.done();
}
