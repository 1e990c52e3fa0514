//! Pools of prefixes.

use serde_json::{Value, json};

use crate::ControlPlane;
use crate::table::{GLOBAL_PREFIXES, PREFIXES, Table};

pub(super) fn pools_of_prefixes(plane: &ControlPlane) {
    let mut table = Table::new(plane);
    let is = |prefixes: Value| json!({"prefixes": prefixes});
    let of = |prefixes: Value, length: Value| json!({"prefixes": prefixes, "allocationPrefixLength": length});
    let with = |excluded: Value| json!({"prefixes": ["fd00::/48"], "excludedPrefixes": excluded});
    let k = PREFIXES;

    table.accepts(k, is(json!(["fd00::/48", "fd01::/64"])));
    table.accepts(
        GLOBAL_PREFIXES,
        of(json!(["fd00::/127", "fd00::4/128"]), json!(128)),
    );
    table.accepts(k, of(json!(["10.0.0.0/8", "11.0.0.0/24"]), json!(24)));
    table.accepts(k, of(json!(["::/0"]), json!(1)));
    table.accepts(k, of(json!(["10.0.0.1/32"]), json!(32)));

    table.rejects(k, json!({}), "spec.prefixes", "Required value");
    table.rejects(
        GLOBAL_PREFIXES,
        is(json!([])),
        "spec.prefixes",
        "Required value: prefixes or ranges is required",
    );
    table.rejects(
        k,
        is(json!(["fd00::1"])),
        "spec.prefixes[0]",
        "must be a prefix in CIDR notation",
    );
    table.rejects(
        k,
        is(json!(["fd00::/48", "fd01::-fd02::"])),
        "spec.prefixes[1]",
        "must be a prefix in CIDR notation",
    );
    table.rejects(
        k,
        is(json!([""])),
        "spec.prefixes[0]",
        "must be a prefix in CIDR notation",
    );
    table.rejects(
        k,
        is(json!(["fd00::1/48"])),
        "spec.prefixes[0]",
        "must not have host bits",
    );
    table.rejects(
        k,
        of(json!(["10.0.0.1/24"]), json!(24)),
        "spec.prefixes[0]",
        "must not have host bits",
    );
    table.leaves_to_webhooks(
        k,
        of(json!(["fd00::/48", "10.0.0.0/8"]), json!(32)),
        "spec.prefixes",
    );
    table.leaves_to_webhooks(k, is(json!(["fd00::/48", "fd01::/65"])), "spec.prefixes");
    table.leaves_to_webhooks(k, of(json!(["10.0.0.0/25"]), json!(24)), "spec.prefixes");

    table.rejects(
        k,
        of(json!(["fd00::/48"]), json!(0)),
        "spec.allocationPrefixLength",
        "1",
    );
    table.rejects(
        k,
        of(json!(["fd00::/48"]), json!(129)),
        "spec.allocationPrefixLength",
        "128",
    );
    table.leaves_to_webhooks(k, is(json!(["10.0.0.0/8"])), "spec.allocationPrefixLength");
    table.leaves_to_webhooks(
        k,
        of(json!(["10.0.0.0/8"]), json!(33)),
        "spec.allocationPrefixLength",
    );

    let range = |prefixes: Value| json!({"ranges": [{"prefixes": prefixes, "gateway": "fe80::1"}]});
    table.accepts(k, range(json!(["fd00::/48"])));
    table.rejects(
        k,
        range(json!([])),
        "spec.ranges[0].prefixes",
        "prefixes is required",
    );
    table.rejects(
        k,
        range(json!(["fd00::1/48"])),
        "spec.ranges[0].prefixes[0]",
        "must not have host bits",
    );
    table.leaves_to_webhooks(k, range(json!(["fd00::/65"])), "spec.ranges");
    table.leaves_to_webhooks(k, range(json!(["fd00::/48", "10.0.0.0/8"])), "spec.ranges");

    table.accepts(
        k,
        with(json!([
            "fd00::1",
            "fd00::/64",
            "fd00::1-fd00::2",
            "2001:db8::/32"
        ])),
    );
    table.rejects(
        k,
        with(json!(["x"])),
        "spec.excludedPrefixes[0]",
        "must be an IP address",
    );
    table.leaves_to_webhooks(
        k,
        with(json!(["fd00::1", "10.0.0.1"])),
        "spec.excludedPrefixes",
    );
    table.done();
}
