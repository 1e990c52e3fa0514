//! Pools of addresses.

use serde_json::{Value, json};

use crate::ControlPlane;
use crate::table::{ADDRESSES, GLOBAL_ADDRESSES, Table};

pub(super) fn pools_of_addresses(plane: &ControlPlane) {
    let mut table = Table::new(plane);
    let is = |addresses: Value| json!({"addresses": addresses, "prefix": 24});
    let with = |name: &str, value: Value| {
        let mut spec = json!({"addresses": ["10.0.0.1"], "prefix": 24});
        spec[name] = value;
        spec
    };
    let k = ADDRESSES;

    table.accepts(
        k,
        is(json!(["10.0.0.1", "10.0.0.0/25", "10.0.0.128-10.0.0.255"])),
    );
    table.accepts(
        k,
        json!({"addresses": ["fd00::1", "fd00::/96", "fd00::5-fd00::9"], "prefix": 64}),
    );
    table.accepts(k, json!({"addresses": ["::/0", "::1.2.3.4"], "prefix": 0}));
    table.accepts(k, json!({"addresses": ["0.0.0.0/0"], "prefix": 0}));
    table.accepts(k, json!({"addresses": ["10.0.0.1"], "prefix": 32}));
    table.accepts(k, json!({"addresses": ["fd00::1"], "prefix": 128}));
    table.accepts(GLOBAL_ADDRESSES, is(json!(["10.0.0.1"])));

    table.rejects(k, json!({"prefix": 24}), "spec.addresses", "Required value");
    table.rejects(
        k,
        is(json!([])),
        "spec.addresses",
        "Required value: addresses or ranges is required",
    );
    table.rejects(
        GLOBAL_ADDRESSES,
        is(json!([])),
        "spec.addresses",
        "Required value: addresses or ranges is required",
    );
    table.rejects(
        k,
        is(json!(["10.0.0.1", "web"])),
        "spec.addresses[1]",
        "\"web\": must be an IP address",
    );
    table.rejects(
        k,
        is(json!(["web", "10.0.0.1"])),
        "spec.addresses[0]",
        "must be an IP address",
    );
    table.rejects(
        k,
        is(json!(["10.0.0.1-", "10.0.0.1"])),
        "spec.addresses[0]",
        "must be an IP address",
    );
    table.leaves_to_webhooks(k, is(json!(["10.0.0.9-10.0.0.1"])), "spec.addresses[0]");
    table.rejects(k, is(json!(["1".repeat(80)])), "spec.addresses[0]", "79");
    table.leaves_to_webhooks(k, is(json!(["10.0.0.1", "fd00::1"])), "spec.addresses");
    table.leaves_to_webhooks(k, is(json!(["fd00::1", "10.0.0.1"])), "spec.addresses");

    table.leaves_to_webhooks(k, is(json!(["10.0.0.1", "10.0.1.1"])), "spec.addresses");
    table.leaves_to_webhooks(k, is(json!(["10.0.0.1-10.0.1.1"])), "spec.addresses");
    table.leaves_to_webhooks(k, is(json!(["10.0.0.0/23"])), "spec.addresses");
    table.leaves_to_webhooks(
        k,
        is(json!(["10.0.0.9-10.0.0.10", "10.0.1.0/25"])),
        "spec.addresses",
    );
    table.leaves_to_webhooks(
        k,
        json!({"addresses": ["fd00::/63"], "prefix": 64}),
        "spec.addresses",
    );
    table.leaves_to_webhooks(
        k,
        json!({"addresses": ["10.0.0.1", "10.0.0.2"], "prefix": 32}),
        "spec.addresses",
    );
    table.accepts(
        k,
        json!({"addresses": ["10.0.0.0", "10.0.0.1"], "prefix": 31}),
    );
    table.accepts(
        k,
        json!({"addresses": ["128.0.0.0-255.255.255.255"], "prefix": 1}),
    );
    table.leaves_to_webhooks(
        k,
        json!({"addresses": ["fd00::", "fd00::2"], "prefix": 127}),
        "spec.addresses",
    );
    table.leaves_to_webhooks(
        k,
        json!({"addresses": ["fd00::", "fe00::"], "prefix": 9}),
        "spec.addresses",
    );

    table.rejects(
        k,
        json!({"addresses": ["10.0.0.1"]}),
        "spec.prefix",
        "Required value",
    );
    table.rejects(
        k,
        json!({"addresses": ["10.0.0.1"], "prefix": -1}),
        "spec.prefix",
        "greater than or equal to 0",
    );
    table.leaves_to_webhooks(
        k,
        json!({"addresses": ["10.0.0.1"], "prefix": 33}),
        "spec.prefix",
    );
    table.rejects(
        k,
        json!({"addresses": ["fd00::1"], "prefix": 129}),
        "spec.prefix",
        "less than or equal to 128",
    );

    table.accepts(
        k,
        with(
            "excludedAddresses",
            json!(["10.0.0.9", "192.0.2.0/24", "10.0.0.1-10.0.0.2"]),
        ),
    );
    table.accepts(k, with("excludedAddresses", json!([])));
    table.rejects(
        k,
        with("excludedAddresses", json!(["x"])),
        "spec.excludedAddresses[0]",
        "must be an IP address",
    );
    table.leaves_to_webhooks(
        k,
        with("excludedAddresses", json!(["10.0.0.9-10.0.0.1"])),
        "spec.excludedAddresses[0]",
    );
    table.leaves_to_webhooks(
        k,
        with("excludedAddresses", json!(["10.0.0.1", "::1"])),
        "spec.excludedAddresses",
    );
    let v6 = json!({"addresses": ["fd00::1"], "prefix": 64, "excludedAddresses": ["10.0.0.1"]});
    table.leaves_to_webhooks(k, v6, "spec.excludedAddresses");

    let range = |addresses: Value, prefix: i64| json!([{"addresses": addresses, "prefix": prefix, "gateway": ""}]);
    table.accepts(
        k,
        json!({"ranges": range(json!(["10.1.0.0/24", "10.1.0.9-10.1.0.10"]), 24)}),
    );
    table.accepts(k, json!({"ranges": range(json!(["fd00::/64"]), 64), "draining": ["fd00::1"], "gateway": "fd00::1"}));
    table.accepts(k, with("ranges", range(json!(["10.1.0.1"]), 32)));
    table.rejects(
        k,
        json!({"ranges": []}),
        "spec.addresses",
        "Required value: addresses or ranges is required",
    );
    table.rejects(
        k,
        with("ranges", range(json!([]), 24)),
        "spec.ranges[0].addresses",
        "addresses is required",
    );
    table.rejects(
        k,
        with("ranges", range(json!(["x"]), 24)),
        "spec.ranges[0].addresses[0]",
        "must be an IP address",
    );
    let apart = range(json!(["10.1.0.1", "10.1.1.1"]), 24);
    table.leaves_to_webhooks(k, with("ranges", apart), "spec.ranges[0].addresses");
    table.leaves_to_webhooks(
        k,
        with("ranges", range(json!(["10.1.0.1"]), 33)),
        "spec.ranges[0].prefix",
    );
    table.rejects(
        k,
        with("ranges", range(json!(["fd00::1"]), 129)),
        "spec.ranges[0].prefix",
        "less than or equal",
    );
    table.leaves_to_webhooks(
        k,
        with("ranges", range(json!(["fd00::1"]), 64)),
        "spec.ranges",
    );
    let gateway =
        |gateway: &str| json!([{"addresses": ["10.1.0.1"], "prefix": 24, "gateway": gateway}]);
    table.rejects(
        k,
        with("ranges", gateway("x")),
        "spec.ranges[0].gateway",
        "must be an IPv4 or IPv6 address",
    );
    table.leaves_to_webhooks(k, with("ranges", gateway("fd00::1")), "spec.ranges");
    let many: Vec<Value> = (0..65)
        .map(|number| json!({"addresses": [format!("10.1.0.{number}")], "prefix": 24}))
        .collect();
    table.rejects(k, with("ranges", json!(many)), "spec.ranges", "64");
    table.accepts(k, with("draining", json!(["10.0.0.0/25", "10.9.0.1"])));
    table.rejects(
        k,
        with("draining", json!(["x"])),
        "spec.draining[0]",
        "must be an IP address",
    );
    table.leaves_to_webhooks(k, with("draining", json!(["fd00::1"])), "spec.draining");
    table.leaves_to_webhooks(
        k,
        json!({"ranges": range(json!(["fd00::/64"]), 64), "draining": ["10.0.0.1"]}),
        "spec.draining",
    );

    table.accepts(k, with("addressReuseGracePeriodSeconds", json!(0)));
    table.rejects(
        k,
        with("addressReuseGracePeriodSeconds", json!(-1)),
        "spec.addressReuseGracePeriodSeconds",
        "0",
    );
    table.done();
}
