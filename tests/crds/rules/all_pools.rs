//! Fields that pools of addresses and pools of prefixes have in common.

use serde_json::{Value, json};

use crate::table::{ADDRESSES, PREFIXES, Table};
use crate::{ControlPlane, object};

pub(super) fn what_pools_have_in_common(plane: &ControlPlane) {
    let mut table = Table::new(plane);
    let pools = [
        (ADDRESSES, json!({"addresses": ["fd00::1"], "prefix": 64})),
        (PREFIXES, json!({"prefixes": ["fd00::/48"]})),
    ];
    for (kind, spec) in pools {
        let with = |name: &str, value: Value| {
            let mut spec = spec.clone();
            spec[name] = value;
            spec
        };
        for good in [
            "",
            "fd00::1",
            "2001:db8::1",
            "0000:0000:0000:0000:0000:0000:255.255.255.255",
        ] {
            table.accepts(kind, with("gateway", json!(good)));
        }
        for bad in [
            "x",
            " ",
            "fd00::/64",
            "fd00::1%eth0",
            "::ffff:10.0.0.1",
            "10.0.0.01",
            "fd00::1-fd00::2",
        ] {
            table.rejects(
                kind,
                with("gateway", json!(bad)),
                "spec.gateway",
                "must be an IPv4 or IPv6 address",
            );
        }
        table.leaves_to_webhooks(kind, with("gateway", json!("10.0.0.1")), "spec.gateway");
        table.rejects(
            kind,
            with("gateway", json!("0".repeat(46))),
            "spec.gateway",
            "45",
        );
        let metadata =
            |map: &str, key: &str, value: &str| with("addressMetadata", json!({map: {key: value}}));
        table.accepts(kind, metadata("labels", "example.com/vlan", "120"));
        table.accepts(
            kind,
            metadata("annotations", "example.com/dns", "10.0.0.53, 10.0.1.53"),
        );
        for key in [
            "ipam.cluster.x-k8s.io/a",
            "cluster.x-k8s.io/cluster-name",
            "clusterctl.cluster.x-k8s.io/move",
        ] {
            table.rejects(
                kind,
                metadata("labels", key, ""),
                "spec.addressMetadata.labels",
                "are reserved",
            );
            table.rejects(
                kind,
                metadata("annotations", key, ""),
                "spec.addressMetadata.annotations",
                "are reserved",
            );
        }
        table.rejects(
            kind,
            metadata("labels", "a", "-"),
            "spec.addressMetadata.labels[a]",
            "begin and end with a letter",
        );
        table.rejects(
            kind,
            metadata("labels", "a", &"x".repeat(64)),
            "spec.addressMetadata.labels.a",
            "63",
        );
        table.rejects(
            kind,
            metadata("annotations", "a", &"x".repeat(4097)),
            "spec.addressMetadata.annotations.a",
            "4096",
        );
        for good in ["", "a", "lab", "lab-1", "0", &"x".repeat(63)] {
            table.accepts(kind, with("network", json!(good)));
        }
        for bad in ["-a", "a-", "A", "a.b", "a_b", " ", "ü", "a\n"] {
            table.rejects(
                kind,
                with("network", json!(bad)),
                "spec.network",
                "lower case letters",
            );
        }
        table.rejects(
            kind,
            with("network", json!("x".repeat(64))),
            "spec.network",
            "63",
        );
        let mut empty = object(kind, "case", &json!({}));
        empty.as_object_mut().expect("an object").remove("spec");
        table.rejects_object(&empty, "spec", "Required value: spec is required");
    }
    table.done();
}
