//! Validation by the CRDs when an object is created.

use serde_json::{Value, json};

use super::entries::{entries_are_read_as_by_the_provider, the_longest_lists_are_accepted};
use super::{COMMITTED, ControlPlane, Options, data, object, with_file};

pub(super) const ADDRESSES: &str = "InClusterIPPool";
pub(super) const GLOBAL_ADDRESSES: &str = "GlobalInClusterIPPool";
pub(super) const PREFIXES: &str = "InClusterPrefixPool";
pub(super) const GLOBAL_PREFIXES: &str = "GlobalInClusterPrefixPool";

/// Collects unexpected results, so that all of them are reported at once.
pub(super) struct Table<'a> {
    plane: &'a ControlPlane,
    wrong: Vec<String>,
}

impl<'a> Table<'a> {
    pub(super) fn new(plane: &'a ControlPlane) -> Self {
        Self {
            plane,
            wrong: Vec::new(),
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "the lines of a table are more readable without ampersands"
    )]
    pub(super) fn accepts(&mut self, kind: &str, spec: Value) {
        self.accepts_object(&object(kind, "case", &spec));
    }

    /// `field` and `text` are parts of the error about one field.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the lines of a table are more readable without ampersands"
    )]
    pub(super) fn rejects(&mut self, kind: &str, spec: Value, field: &str, text: &str) {
        self.rejects_object(&object(kind, "case", &spec), field, text);
    }

    pub(super) fn accepts_object(&mut self, object: &Value) {
        if let Err(output) = make(self.plane, object) {
            self.wrong.push(format!("{object} is refused: {output}"));
        }
    }

    pub(super) fn rejects_object(&mut self, object: &Value, field: &str, text: &str) {
        match make(self.plane, object) {
            Ok(()) => self.wrong.push(format!("{object} is accepted")),
            Err(output) => {
                let reported = output
                    .lines()
                    .any(|line| line.contains(&format!("{field}: ")) && line.contains(text));
                // The error for a rule that could not be evaluated.
                let failed = ["evaluating rule", "cost", "no such"]
                    .iter()
                    .any(|text| output.contains(text));
                if !reported || failed {
                    self.wrong
                        .push(format!("{object}: {field}: {text} is not in: {output}"));
                }
            }
        }
    }

    pub(super) fn done(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

pub(super) fn make(plane: &ControlPlane, object: &Value) -> Result<(), String> {
    plane.dry_create(object)
}

#[test]
fn api_server_validates_objects_by_the_crd_rules() {
    let plane = ControlPlane::start(Options::default());
    assert_crds_accepted(&plane);
    pools_of_addresses(&plane);
    pools_of_prefixes(&plane);
    what_pools_have_in_common(&plane);
    networks(&plane);
    access_of_global_pools(&plane);
    reservations(&plane);
    entries_are_read_as_by_the_provider(&plane);
    the_longest_lists_are_accepted(&plane);
    pools_of_the_go_provider_are_accepted(&plane);
}

fn assert_crds_accepted(plane: &ControlPlane) {
    let file = format!("--filename={COMMITTED}");
    let answer = plane.try_kubectl(&["replace", "--dry-run=server", "--warnings-as-errors", &file]);
    assert!(answer.is_ok(), "the API server warns: {answer:?}");
    let definitions = plane.kubectl(&["get", "--output=json", &file]);
    let definitions: Value = serde_json::from_str(&definitions).expect("a list");
    let definitions = definitions["items"].as_array().expect("items");
    assert_eq!(definitions.len(), 8);
    for definition in definitions {
        let conditions = definition["status"]["conditions"]
            .as_array()
            .expect("conditions");
        let is = |name: &str| {
            conditions
                .iter()
                .any(|all| all["type"] == name && all["status"] == "True")
        };
        assert!(
            is("Established") && is("NamesAccepted") && !is("NonStructuralSchema"),
            "{conditions:?}"
        );
    }
}

fn pools_of_addresses(plane: &ControlPlane) {
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
    table.rejects(
        k,
        is(json!(["10.0.0.9-10.0.0.1"])),
        "spec.addresses[0]",
        "ends before it begins",
    );
    table.rejects(k, is(json!(["1".repeat(80)])), "spec.addresses[0]", "79");
    table.rejects(
        k,
        is(json!(["10.0.0.1", "fd00::1"])),
        "spec.addresses",
        "same IP family",
    );
    table.rejects(
        k,
        is(json!(["fd00::1", "10.0.0.1"])),
        "spec.addresses",
        "same IP family",
    );

    table.rejects(
        k,
        is(json!(["10.0.0.1", "10.0.1.1"])),
        "spec.addresses",
        "within one subnet",
    );
    table.rejects(
        k,
        is(json!(["10.0.0.1-10.0.1.1"])),
        "spec.addresses",
        "within one subnet",
    );
    table.rejects(
        k,
        is(json!(["10.0.0.0/23"])),
        "spec.addresses",
        "within one subnet",
    );
    table.rejects(
        k,
        is(json!(["10.0.0.9-10.0.0.10", "10.0.1.0/25"])),
        "spec.addresses",
        "within one subnet",
    );
    table.rejects(
        k,
        json!({"addresses": ["fd00::/63"], "prefix": 64}),
        "spec.addresses",
        "within one subnet",
    );
    table.rejects(
        k,
        json!({"addresses": ["10.0.0.1", "10.0.0.2"], "prefix": 32}),
        "spec.addresses",
        "one subnet",
    );
    table.accepts(
        k,
        json!({"addresses": ["10.0.0.0", "10.0.0.1"], "prefix": 31}),
    );
    table.accepts(
        k,
        json!({"addresses": ["128.0.0.0-255.255.255.255"], "prefix": 1}),
    );
    table.rejects(
        k,
        json!({"addresses": ["fd00::", "fd00::2"], "prefix": 127}),
        "spec.addresses",
        "one subnet",
    );
    table.rejects(
        k,
        json!({"addresses": ["fd00::", "fe00::"], "prefix": 9}),
        "spec.addresses",
        "one subnet",
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
    table.rejects(
        k,
        json!({"addresses": ["10.0.0.1"], "prefix": 33}),
        "spec.prefix",
        "at most 32 for IPv4",
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
    table.rejects(
        k,
        with("excludedAddresses", json!(["10.0.0.9-10.0.0.1"])),
        "spec.excludedAddresses[0]",
        "ends before",
    );
    table.rejects(
        k,
        with("excludedAddresses", json!(["10.0.0.1", "::1"])),
        "spec.excludedAddresses",
        "must have the IP family",
    );
    let v6 = json!({"addresses": ["fd00::1"], "prefix": 64, "excludedAddresses": ["10.0.0.1"]});
    table.rejects(k, v6, "spec.excludedAddresses", "must have the IP family");

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
    table.rejects(
        k,
        with("ranges", apart),
        "spec.ranges[0].addresses",
        "within one subnet",
    );
    table.rejects(
        k,
        with("ranges", range(json!(["10.1.0.1"]), 33)),
        "spec.ranges[0].prefix",
        "at most 32 for IPv4",
    );
    table.rejects(
        k,
        with("ranges", range(json!(["fd00::1"]), 129)),
        "spec.ranges[0].prefix",
        "less than or equal",
    );
    table.rejects(
        k,
        with("ranges", range(json!(["fd00::1"]), 64)),
        "spec.ranges",
        "must have the IP family",
    );
    let gateway =
        |gateway: &str| json!([{"addresses": ["10.1.0.1"], "prefix": 24, "gateway": gateway}]);
    table.rejects(
        k,
        with("ranges", gateway("x")),
        "spec.ranges[0].gateway",
        "must be an IPv4 or IPv6 address",
    );
    table.rejects(
        k,
        with("ranges", gateway("fd00::1")),
        "spec.ranges",
        "must have the IP family",
    );
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
    table.rejects(
        k,
        with("draining", json!(["fd00::1"])),
        "spec.draining",
        "must have the IP family",
    );
    table.rejects(
        k,
        json!({"ranges": range(json!(["fd00::/64"]), 64), "draining": ["10.0.0.1"]}),
        "spec.draining",
        "must have the IP family",
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

fn pools_of_prefixes(plane: &ControlPlane) {
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
    table.rejects(
        k,
        of(json!(["fd00::/48", "10.0.0.0/8"]), json!(32)),
        "spec.prefixes",
        "same IP family",
    );
    table.rejects(
        k,
        is(json!(["fd00::/48", "fd01::/65"])),
        "spec.prefixes",
        "must be at most allocationPrefixLength",
    );
    table.rejects(
        k,
        of(json!(["10.0.0.0/25"]), json!(24)),
        "spec.prefixes",
        "must be at most allocationPrefixLength",
    );

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
    table.rejects(
        k,
        is(json!(["10.0.0.0/8"])),
        "spec.allocationPrefixLength",
        "at most 32 for IPv4",
    );
    table.rejects(
        k,
        of(json!(["10.0.0.0/8"]), json!(33)),
        "spec.allocationPrefixLength",
        "at most 32 for IPv4",
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
    table.rejects(
        k,
        range(json!(["fd00::/65"])),
        "spec.ranges",
        "must be at most allocationPrefixLength",
    );
    table.rejects(
        k,
        range(json!(["fd00::/48", "10.0.0.0/8"])),
        "spec.ranges",
        "must have the IP family",
    );

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
    table.rejects(
        k,
        with(json!(["fd00::1", "10.0.0.1"])),
        "spec.excludedPrefixes",
        "must have the IP family",
    );
    table.done();
}

fn what_pools_have_in_common(plane: &ControlPlane) {
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
        table.rejects(
            kind,
            with("gateway", json!("10.0.0.1")),
            "spec.gateway",
            "must have the IP family",
        );
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

fn reservations(plane: &ControlPlane) {
    let mut table = Table::new(plane);
    let reservation = |name: &str, change: Value| {
        let pool = json!({"kind": ADDRESSES, "namespace": "a", "name": "b"});
        let mut spec = json!({"scope": "p.a.b", "address": "10.0.0.5", "poolRef": pool});
        json_patch::merge(&mut spec, &change);
        object("IPReservation", name, &spec)
    };
    table.accepts_object(&reservation("p.a.b.10.0.0.5", json!({})));
    table.accepts_object(&reservation("h.0123abcd.10.0.0.5", json!({})));
    let prefix = json!({"address": "fd00::", "prefixLength": 8});
    table.accepts_object(&reservation(
        "p.a.b.fd00-0000-0000-0000-0000-0000-0000-0000-8",
        prefix,
    ));

    table.rejects_object(
        &reservation("p.a.c.10.0.0.5", json!({})),
        "metadata",
        "the name must be spec.scope",
    );
    table.rejects_object(
        &reservation("p.a.b", json!({})),
        "metadata",
        "the name must be spec.scope",
    );
    let name = "p.a.b.10.0.0.5";
    table.rejects_object(
        &reservation(name, json!({"address": "nonsense"})),
        "spec.address",
        "must be an IPv4 or IPv6",
    );
    let outside = "must be the first one of a prefix";
    for (address, length) in [
        ("10.0.0.5", 24),
        ("10.0.0.5", 33),
        ("10.0.0.5", 127),
        ("fd00::1", 120),
        ("fd00::", 7),
    ] {
        let change = json!({"address": address, "prefixLength": length});
        table.rejects_object(&reservation(name, change), "spec.prefixLength", outside);
    }
    table.done();
}

fn networks(plane: &ControlPlane) {
    let mut table = Table::new(plane);
    let network = |name: &str, spec: Value| object("IPNetwork", name, &spec);
    let labels = json!({"matchLabels": {"a": "b"}});
    for good in [
        json!({}),
        json!({"namespaces": {"from": "All"}, "pools": {}}),
        json!({"namespaces": {"from": "None"}, "pools": labels}),
        json!({"namespaces": {"from": "Names", "names": ["a", "b"]}}),
        json!({"namespaces": {"from": "Selector", "selector": labels}}),
        json!({"excluded": ["10.0.0.1", "fd00::/64", "10.0.0.2-10.0.0.9"]}),
        json!({"blockLengths": {"ipv4": 32, "ipv6": 64}}),
    ] {
        table.accepts_object(&network("lab", good));
    }
    for bad in ["a.b", &"x".repeat(64)] {
        table.rejects_object(&network(bad, json!({})), "metadata", "must be a DNS label");
    }
    let selector = "must be set with from: Selector";
    for (namespaces, field, text) in [
        (
            json!({"from": "Some"}),
            "spec.namespaces.from",
            "Unsupported value",
        ),
        (
            json!({"from": "Selector"}),
            "spec.namespaces.selector",
            selector,
        ),
        (
            json!({"from": "All", "selector": labels}),
            "spec.namespaces.selector",
            "unless from is Selector",
        ),
        (
            json!({"from": "All", "names": ["a"]}),
            "spec.namespaces.names",
            "unless from is Names",
        ),
        (
            json!({"names": ["a"]}),
            "spec.namespaces.from",
            "Required value",
        ),
    ] {
        table.rejects_object(
            &network("lab", json!({"namespaces": namespaces})),
            field,
            text,
        );
    }
    for bad in ["x", "10.0.0.300", "10.0.0.9-10.0.0.1"] {
        table.rejects_object(
            &network("lab", json!({"excluded": ["10.0.0.1", bad]})),
            "spec.excluded[1]",
            "",
        );
    }
    let lengths = json!({"blockLengths": {"ipv4": 33}});
    table.rejects_object(&network("lab", lengths), "spec.blockLengths.ipv4", "32");
    table.done();
}

fn access_of_global_pools(plane: &ControlPlane) {
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

fn pools_of_the_go_provider_are_accepted(plane: &ControlPlane) {
    let mut seen = 0;
    let stored = data("takeover/objects.json");
    let is_pool = |object: &&Value| {
        object["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("Pool"))
    };
    for stored in stored["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter(is_pool)
    {
        let metadata = &stored["metadata"];
        if let Some(namespace) = metadata["namespace"].as_str() {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            plane.kubectl_apply(&namespace.to_string());
        }
        let mut pool = stored.clone();
        pool["metadata"] = json!({
            "name": metadata["name"], "namespace": metadata["namespace"],
            "annotations": metadata["annotations"], "finalizers": metadata["finalizers"],
        });
        with_file(plane, &["create"], &pool).unwrap_or_else(|error| panic!("{error}\n{pool}"));
        let answer = with_file(plane, &["replace", "--subresource=status"], &pool);
        answer.unwrap_or_else(|error| panic!("{error}\n{pool}"));
        seen += 1;
    }
    assert_eq!(seen, 8);
    let pools =
        "inclusterippools,globalinclusterippools,inclusterprefixpools,globalinclusterprefixpools";
    let pools = plane.kubectl(&["get", pools, "--all-namespaces", "--output=json"]);
    let pools: Value = serde_json::from_str(&pools).expect("a list");
    let has_counts = |pool: &&Value| pool["status"]["ipAddresses"]["total"].is_u64();
    assert_eq!(
        pools["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter(has_counts)
            .count(),
        seen
    );
}
