#![allow(
    clippy::needless_pass_by_value,
    reason = "the values are written where they are passed"
)]

use super::*;

fn objects(value: Value) -> Objects {
    let of = |name: &str| value.get(name).cloned().unwrap_or(json!([]));
    Objects {
        pools: serde_json::from_value(of("pools")).unwrap(),
        addresses: serde_json::from_value(of("addresses")).unwrap(),
        claims: serde_json::from_value(of("claims")).unwrap(),
        contract: serde_json::from_value(of("contract")).unwrap(),
    }
}

fn pool(spec: Value) -> Value {
    json!({ "metadata": { "namespace": "m", "name": "provisioning" }, "spec": spec })
}

/// The specification of the pool that a specification becomes.
fn spec(of: Value) -> Result<Value, Vec<String>> {
    let mut converted = convert(&objects(json!({ "pools": [pool(of)] })), "metal3")?;
    assert_eq!(converted.objects.len(), 1);
    Ok(converted.objects[0]["spec"].take())
}

#[test]
fn parts_become_ranges() {
    let one = json!({
        "prefix": 24, "gateway": "10.0.0.1", "allocationStrategy": "random",
        "pools": [{ "start": "10.0.0.10", "end": "10.0.0.19" }],
    });
    let expected = json!({ "addresses": ["10.0.0.10-10.0.0.19"], "prefix": 24, "gateway": "10.0.0.1",
                           "allocation": { "order": "Random" } });
    assert_eq!(spec(one), Ok(expected));
    let several = json!({ "prefix": 24, "gateway": "10.0.0.1", "allocationStrategy": "sequential", "pools": [
        { "subnet": "10.0.0.0/24" },
        { "subnet": "10.0.1.0/24", "start": "10.0.1.200", "gateway": "10.0.1.1" },
        { "subnet": "10.0.2.0/25", "end": "10.0.2.9", "prefix": 25 },
    ] });
    let range = |addresses: &str, prefix: u8, gateway: &str| json!({ "addresses": [addresses], "prefix": prefix, "gateway": gateway });
    let expected = json!({ "addresses": ["10.0.0.0/24"], "prefix": 24, "gateway": "10.0.0.1", "ranges": [
        range("10.0.1.200-10.0.1.255", 24, "10.0.1.1"),
        range("10.0.2.1-10.0.2.9", 25, "10.0.0.1"),
    ] });
    assert_eq!(spec(several), Ok(expected));
    let without_prefix = json!({ "pools": [{ "subnet": "fd00::/112" }] });
    let expected = json!({ "addresses": ["fd00::/112"], "prefix": 112 });
    assert_eq!(spec(without_prefix), Ok(expected));
}

#[test]
fn pool_that_cannot_be_converted_is_a_problem() {
    let start =
        json!({ "pools": [{ "start": "10.0.0.1" }, { "start": "10.0.0.1", "end": "10.0.0.9" }] });
    let problems = [
        "IPPool m/provisioning: a pool in spec.pools has neither a subnet nor both start and end",
        "IPPool m/provisioning: spec.prefix is missing",
    ];
    assert_eq!(spec(start), Err(problems.map(str::to_owned).to_vec()));
    let reversed = json!({ "prefix": 24, "pools": [{ "start": "10.0.0.9", "end": "10.0.0.1" }] });
    assert_eq!(spec(reversed).map_err(|found| found.len()), Err(1));
    assert_eq!(spec(json!({})).map_err(|found| found.len()), Err(1));
}

#[test]
fn addresses_are_reserved_for_their_claims() {
    let address = |claim: &str, address: &str| {
        json!({ "metadata": { "namespace": "m", "name": address },
                "spec": { "address": address, "claim": { "name": claim }, "pool": { "name": "provisioning" } } })
    };
    let of_contract = |group: &str, claim: &str, address: &str| {
        json!({ "metadata": { "namespace": "m", "name": claim },
                "spec": { "address": address, "prefix": 24, "claimRef": { "name": claim },
                          "poolRef": { "apiGroup": group, "kind": "IPPool", "name": "provisioning" } } })
    };
    let found = objects(json!({
        "pools": [pool(json!({
            "prefix": 24, "gateway": "10.0.0.1", "dnsServers": ["10.0.0.1"],
            "pools": [{ "start": "10.0.0.10", "end": "10.0.0.19" }],
            "preAllocations": { "host-2-provisioning": "10.0.0.11", "late": "10.0.0.12", "node": "10.0.0.13",
                                "No_Claim": "10.0.0.15", "vm": "10.0.0.16" },
        }))],
        "addresses": [address("node", "10.0.0.13"), address("host-0", "10.0.0.11"), address("gone", "10.0.0.99")],
        "claims": [
            { "metadata": { "namespace": "m", "name": "node" }, "spec": { "pool": { "name": "provisioning" } } },
            { "metadata": { "namespace": "m", "name": "waits" }, "spec": { "pool": { "name": "provisioning" } } },
        ],
        "contract": [of_contract(GROUP, "vm", "10.0.0.10"), of_contract("ipam.cluster.x-k8s.io", "x", "10.0.0.14")],
    }));
    let converted = convert(&found, "metal3").unwrap();
    let reserved: Vec<String> = converted.objects[1..]
        .iter()
        .map(|it| {
            format!(
                "{} {}",
                it["metadata"]["name"], it["spec"]["claimRef"]["name"]
            )
        })
        .collect();
    assert_eq!(
        reserved,
        [
            r#""p.m.provisioning.10.0.0.10" "vm""#,
            r#""p.m.provisioning.10.0.0.11" "host-0""#,
            r#""p.m.provisioning.10.0.0.12" "late""#,
            r#""p.m.provisioning.10.0.0.13" "node""#,
        ]
    );
    assert_eq!(
        converted.warnings,
        [
            "10.0.0.99 of the claim m/gone is left out: InClusterIPPool m/provisioning cannot allocate it",
            "10.0.0.15 of the claim m/No_Claim is left out: \"No_Claim\" is not the name of a claim: at most 253 lower case \
             letters, digits, dashes and dots, with a letter or digit at both ends and beside each dot",
            "10.0.0.11 of the claim m/host-2-provisioning is left out: the claim m/host-0 has it",
            "10.0.0.16 of the claim m/vm is left out: the claim has 10.0.0.10",
            "IPClaim m/waits has no IPAddress",
        ]
    );
}
