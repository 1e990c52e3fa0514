//! Pools: overlaps, gateways, and pools that nobody processes.

use super::*;

#[test]
fn pool_that_no_manager_has_processed_is_found() {
    let mut unprocessed = pool("p", &range("10.0.0.1"));
    unprocessed["status"] = json!({});
    let mut snapshot = with(&[unprocessed], &[], &[]);
    assert_eq!(
        found(&snapshot, Check::NotReconciled),
        ["error InClusterIPPool n/p: it has no condition: no manager has processed it"]
    );
    snapshot.is_go_provider = true;
    assert!(found(&snapshot, Check::NotReconciled).is_empty());
}

#[test]
fn overlapping_pools_are_one_finding() {
    let pools = [
        pool("a", &range("10.0.0.1-10.0.0.9")),
        pool("b", &range("10.0.0.5-10.0.0.20")),
        pool("m/c", &range("10.0.0.20-10.0.0.30")),
        pool("d", &range("10.0.0.40")),
    ];
    let text = "warning InClusterIPPool m/c: the same addresses, such as 10.0.0.20, can be allocated by InClusterIPPool \
                n/a, InClusterIPPool n/b, so two machines can get one address";
    let snapshot = with(&pools, &[], &[]);
    assert_eq!(found(&snapshot, Check::PoolsOverlap), [text]);
}

#[test]
fn address_in_use_in_two_pools_is_an_error() {
    let pools = |one: &Value, other: &Value| {
        let (mut a, mut b) = (range("10.0.0.1-10.0.0.9"), range("10.0.0.1-10.0.0.9"));
        a["network"] = one.clone();
        b["network"] = other.clone();
        [pool("a", &a), pool("m/b", &b)]
    };
    let used = [
        address("x", "a", "10.0.0.1"),
        address("y", "a", "10.0.0.2"),
        address("z", "a", "10.0.0.3"),
        address("x", "m/b", "10.0.0.1"),
        address("y", "m/b", "10.0.0.2"),
    ];
    let text = "error address 10.0.0.1: 10.0.0.1 is in use by m/x (InClusterIPPool m/b) and n/x (InClusterIPPool n/a), \
                whose pools overlap; so is 1 more of their addresses (10.0.0.2)";
    let one = json!("one");
    let snapshot = with(&pools(&Value::Null, &Value::Null), &used, &[]);
    assert_eq!(found(&snapshot, Check::DuplicateAddress), [text]);
    // In one network it is one scope. In two, the administrator has declared that they do not meet.
    let snapshot = with(&pools(&one, &json!("two")), &used, &[]);
    assert!(found(&snapshot, Check::DuplicateAddress).is_empty());
    let snapshot = with(&pools(&one, &Value::Null), &used, &[]);
    assert_eq!(found(&snapshot, Check::DuplicateAddress).len(), 1);
}

/// Without the end of the overlap, each replaced machine can get an address that is shared again.
#[test]
fn repair_of_shared_addresses_begins_with_the_overlap() {
    let of_pool = |name: &str, addresses: &str| pool(name, &range(addresses));
    let mut used = Vec::new();
    for number in 1..=6 {
        for pool in ["a", "m/b"] {
            used.push(address(
                &format!("x{number}"),
                pool,
                &format!("10.0.0.{number}"),
            ));
        }
    }
    let shared = |pools: [Value; 2]| {
        let snapshot = with(&pools, &used, &[]);
        assert_eq!(found(&snapshot, Check::DuplicateAddress).len(), 1);
        finding(&snapshot, Check::DuplicateAddress)
    };
    let found = shared([
        of_pool("a", "10.0.0.1-10.0.0.9"),
        of_pool("m/b", "10.0.0.1-10.0.0.9"),
    ]);
    let more = "; so are 5 more of their addresses (10.0.0.2, 10.0.0.3, 10.0.0.4 and 2 more)";
    assert!(found.problem.ends_with(more), "{}", found.problem);
    assert!(
        found.repair.starts_with("1. end the overlap, ") && found.repair.contains("; 2. for each"),
        "{}",
        found.repair
    );
    let edit = "kubectl edit inclusterippools b --namespace m";
    assert_eq!(found.commands, [edit, "kubectl ipam who 10.0.0.1"]);
    // The overlap has ended, and the machines are left.
    let found = shared([
        of_pool("a", "10.0.0.1-10.0.0.9"),
        of_pool("m/b", "10.0.0.10-10.0.0.19"),
    ]);
    assert!(
        found
            .repair
            .starts_with("for each of these addresses, delete the machine"),
        "{}",
        found.repair
    );
    assert_eq!(found.commands, ["kubectl ipam who 10.0.0.1"]);
}

#[test]
fn pool_that_joins_a_network_is_one_cause_with_its_undo() {
    let (mut joining, mut member) = (pool("a", &range("10.0.0.1")), pool("b", &range("10.0.0.9")));
    let in_network = |phase: &str, remaining: u32| json!({"name": "lab", "phase": phase, "remaining": remaining});
    joining["status"]["network"] = in_network("Joining", 2);
    member["status"]["network"] = in_network("Member", 0);
    let used = ["10.0.0.1", "10.0.0.2"].map(|text| {
        let names = [("x", "a"), ("y", "b")];
        names.map(|(name, pool)| address(&format!("{name}{}", text.len()), pool, text))
    });
    let mut used = used.concat();
    for (number, address) in used.iter_mut().enumerate() {
        address["metadata"]["name"] = json!(format!("x{number}"));
    }
    let snapshot = with(&[joining, member], &used, &[]);
    let findings = diagnosis(&snapshot).findings;
    let causes: Vec<_> = findings.iter().filter(|it| it.cause.is_none()).collect();
    let [cause, ..] = &causes[..] else {
        panic!("no cause")
    };
    assert_eq!(cause.check, Check::MoveStalled, "{findings:?}");
    let undo = "1. if the pool is not meant to move, undo the change, which ends it without replacing a machine: set the \
                labels of the pool back";
    assert!(cause.repair.starts_with(undo), "{}", cause.repair);
    let duplicates = findings
        .iter()
        .filter(|it| it.check == Check::DuplicateAddress);
    let of_cause =
        duplicates.filter(|it| it.cause.as_ref().is_some_and(|it| it.check == cause.check));
    assert_eq!(of_cause.count(), 2, "{findings:?}");
}

#[test]
fn condition_of_a_pool_is_found_with_its_time() {
    let edit = "kubectl edit inclusterippools p --namespace n";
    for (type_, reason, check, command) in [
        (
            "KeptInNetwork",
            "AddressesInUse",
            Check::KeptInNetwork,
            edit,
        ),
        (
            "OutOfRange",
            "AddressesOutOfRange",
            Check::AddressesOutOfRange,
            edit,
        ),
        (
            "OutOfRange",
            "AddressesInOtherBlocks",
            Check::AddressesOutOfRange,
            "kubectl ipam registry check lab",
        ),
    ] {
        let mut spec = range("10.0.0.1");
        spec["network"] = json!("lab");
        let mut reported = pool("p", &spec);
        reported["status"]["conditions"] = json!([
            {"type": type_, "status": "True", "reason": reason, "message": "about it",
             "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]);
        let snapshot = with(&[reported], &[], &[]);
        let text = "warning InClusterIPPool n/p: about it";
        assert_eq!(found(&snapshot, check), [text]);
        let finding = finding(&snapshot, check);
        assert_eq!(finding.commands, [command]);
        let since = finding.since.expect("it says since when");
        assert_eq!(since.to_string(), "2026-01-01T00:00:00Z");
    }
}

#[test]
fn gateway_outside_of_the_subnet_is_found() {
    for (gateway, expected) in [
        (json!("10.0.0.1"), None),
        (Value::Null, None),
        (
            json!("10.99.0.1"),
            Some("10.99.0.1 is outside of the subnet 10.0.0.0/24"),
        ),
        (
            json!("10.0.0.0"),
            Some("10.0.0.0 is the network address of the subnet 10.0.0.0/24"),
        ),
        (
            json!(""),
            Some("is empty: IPAddresses have no gateway; remove the field if this is intended"),
        ),
    ] {
        let mut spec = range("10.0.0.10");
        spec["gateway"] = gateway;
        let snapshot = with(&[pool("p", &spec)], &[], &[]);
        let expected: Vec<String> = expected
            .into_iter()
            .map(|text| format!("warning InClusterIPPool n/p: spec.gateway: {text}"))
            .collect();
        assert_eq!(found(&snapshot, Check::UnusableGateway), expected);
    }
}

#[test]
fn addresses_with_the_old_gateway_are_found() {
    let mut spec = range("10.0.0.10-10.0.0.20");
    spec["gateway"] = json!("10.0.0.1");
    spec["ranges"] = json!([{"addresses": ["10.1.0.10-10.1.0.20"], "prefix": 16}]);
    let with_gateway = |name: &str, text: &str, gateway: &str| {
        let mut address = address(name, "p", text);
        address["spec"]["gateway"] = json!(gateway);
        address
    };
    let mut right = address("right", "p", "10.1.0.10");
    right["spec"]["prefix"] = json!(16);
    let addresses = [
        with_gateway("a", "10.0.0.10", "10.0.0.9"),
        with_gateway("b", "10.0.0.11", "10.0.0.9"),
        with_gateway("good", "10.0.0.12", "10.0.0.1"),
        address("none", "p", "10.0.0.13"),
        // Another finding is about addresses that the pool does not contain.
        address("outside", "p", "10.9.0.1"),
        deleted(address("gone", "p", "10.0.0.14"), 5, &[]),
        right,
        address("short", "p", "10.1.0.11"),
    ];
    let snapshot = with(&[pool("p", &spec)], &addresses, &[]);
    let pool = "warning InClusterIPPool n/p";
    assert_eq!(
        found(&snapshot, Check::OutdatedGateway),
        [
            format!(
                "{pool}: 1 IPAddress has another gateway than the pool (none, the pool has 10.0.0.1): n/none"
            ),
            format!(
                "{pool}: 2 IPAddresses have another gateway than the pool (10.0.0.9, the pool has 10.0.0.1): n/a, n/b"
            ),
            format!(
                "{pool}: 1 IPAddress has another prefix length than the pool (/24, the pool has /16): n/short"
            ),
        ]
    );
}
