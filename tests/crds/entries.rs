//! Validation by the CRDs of the entries of lists of addresses.

use capi_ipam_ip::{Family, parse_entry};
use serde_json::json;

use super::table::{ADDRESSES, PREFIXES, Table, make};
use super::{ControlPlane, object};

/// The maximum number of entries of a list.
const MAX_ENTRIES: usize = 4096;

/// Valid and invalid entries of a list of addresses.
const ENTRIES: &[&str] = &[
    "10.0.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "10.0.0.0/24",
    "10.0.0.5/24",
    "10.0.0.0/0",
    "10.0.0.0/32",
    "10.0.0.1-10.0.0.9",
    "10.0.0.9-10.0.0.9",
    "9.255.255.255-10.0.0.0",
    "fd00::1",
    "::",
    "FD00::A",
    "::1.2.3.4",
    "64:ff9b::192.0.2.1",
    "fd00:0000:0000:0000:0000:0000:0000:0001",
    "fd00::/64",
    "fd00::5/64",
    "::/0",
    "::1/128",
    "fd00::1-fd00::ffff",
    "2001:0db8:0000:0000:0000:0000:0000:0001-2001:0db8:0000:0000:0000:0000:0000:ffff",
    "",
    " ",
    "-",
    "/",
    "%",
    ".",
    ":",
    "--",
    "nonsense",
    "10",
    "10.0.0",
    "10.0.0.0.0",
    "10.0.0.256",
    "10.0.0.01",
    "010.0.0.1",
    "10.0.0.1 ",
    " 10.0.0.1",
    "10.0.0.1\n",
    "+10.0.0.1",
    "0x0a.0.0.1",
    "10.0.0.0/",
    "/24",
    "10.0.0.0/33",
    "10.0.0.0/024",
    "10.0.0.0/+24",
    "10.0.0.0/-1",
    "10.0.0.0/24/24",
    "10.0.0.0/255.255.255.0",
    "10.0.0.1-",
    "-10.0.0.1",
    "10.0.0.1-9",
    "10.0.0.1--10.0.0.9",
    "10.0.0.1 - 10.0.0.9",
    "10.0.0.1-10.0.0.5-10.0.0.9",
    "10.0.0.0/24-10.0.1.0/24",
    "10.0.0.1-10.0.0.0/24",
    "10.0.0.1-fd00::1",
    "fd00::1-10.0.0.1",
    "fd00::1%eth0",
    "fe80::%1/64",
    "fd00:::1",
    "fd00::1::",
    "fd00::12345",
    "[fd00::1]",
    "::ffff:10.0.0.1",
    "::ffff:a00:1",
    "::ffff:0:0/96",
    "::ffff:10.0.0.1-::ffff:10.0.0.9",
    "::-::ffff:10.0.0.9",
    "fd00::/129",
    "fd00::1-fd00::%eth0",
    "１０.0.0.1",
];

/// Ranges that end before they begin: only the webhooks reject them.
const LEFT_TO_THE_WEBHOOKS: &[&str] = &[
    "fd00::9-fd00::1",
    "10.0.0.9-10.0.0.1",
    "10.0.1.0-10.0.0.255",
];

/// The API server and the parser of the provider reject the same entries.
pub(super) fn entries_are_read_as_by_the_provider(plane: &ControlPlane) {
    let excluded: Vec<_> = ENTRIES.iter().chain(LEFT_TO_THE_WEBHOOKS).collect();
    let spec = json!({"addresses": ["10.0.0.1"], "prefix": 24, "excludedAddresses": excluded});
    let output =
        make(plane, &object(ADDRESSES, "case", &spec)).expect_err("some of them are invalid");
    for (index, text) in excluded.iter().enumerate() {
        let is_refused = output.contains(&format!("spec.excludedAddresses[{index}]: "));
        let is_left = LEFT_TO_THE_WEBHOOKS.contains(text);
        assert_eq!(
            is_refused,
            parse_entry(text).is_err() && !is_left,
            "{text:?}: {output}"
        );
    }
    // One by one, the valid entries are also accepted in a spec of their family.
    let mut table = Table::new(plane);
    for text in ENTRIES {
        if let Ok(entry) = parse_entry(text) {
            let gateway = if entry.family == Family::V4 {
                "10.0.0.1"
            } else {
                "fd00::1"
            };
            table.accepts(
                ADDRESSES,
                json!({"addresses": [text, text], "prefix": 0, "gateway": gateway}),
            );
        }
    }
    table.done();
}

/// The most expensive lists stay within the cost limit of the API server for rules.
pub(super) fn the_longest_lists_are_accepted(plane: &ControlPlane) {
    let address = |number: usize| {
        format!(
            "2001:0db8:0000:0000:0000:0000:{:04x}:{:04x}",
            number >> 16,
            number & 0xffff
        )
    };
    let ranges = |count: usize| -> Vec<String> {
        (0..count)
            .map(|at| format!("{}-{}", address(2 * at), address(2 * at + 1)))
            .collect()
    };
    let prefixes: Vec<String> = (0..MAX_ENTRIES)
        .map(|at| format!("{}/128", address(at)))
        .collect();
    let gateway = address(1);
    let mut table = Table::new(plane);
    let most = ranges(MAX_ENTRIES);
    table.accepts(
        ADDRESSES,
        json!({"addresses": most, "excludedAddresses": most, "prefix": 64, "gateway": gateway, "network": "lab"}),
    );
    table.accepts(
        PREFIXES,
        json!({"prefixes": prefixes, "allocationPrefixLength": 128, "excludedPrefixes": most, "gateway": gateway}),
    );
    let more = json!({"addresses": ranges(MAX_ENTRIES + 1), "prefix": 64});
    table.rejects(
        ADDRESSES,
        more,
        "spec.addresses",
        "must have at most 4096 items",
    );
    let range = |number| json!({"addresses": [format!("10.1.0.{number}")], "prefix": 24});
    let ranges: Vec<_> = (0..65).map(range).collect();
    let spec = json!({"addresses": ["10.0.0.1"], "prefix": 24, "ranges": ranges});
    table.rejects(ADDRESSES, spec, "spec.ranges", "64");
    let metadata = json!({"annotations": {"a": "x".repeat(4097)}});
    let field = "spec.addressMetadata.annotations.a";
    for (kind, mut spec) in [
        (ADDRESSES, json!({"addresses": ["fd00::1"], "prefix": 64})),
        (PREFIXES, json!({"prefixes": ["fd00::/48"]})),
    ] {
        spec["addressMetadata"] = metadata.clone();
        table.rejects(kind, spec, field, "4096");
    }
    table.done();
}
