//! The rules detect wrong objects.

use serde_json::{Value, json};

use super::*;

fn claim(change: impl FnOnce(&mut Value)) -> IPAddressClaim {
    let ready = json!({ "type": "Ready", "status": "True", "reason": "AddressAllocated" });
    let mut claim = json!({
        "metadata": {
            "name": "a", "namespace": "n", "uid": "claim-uid", "finalizers": [names::RELEASE_ADDRESS],
            "labels": { names::CLUSTER_NAME_LABEL: "alpha" },
        },
        "spec": { "poolRef": { "apiGroup": "example.com", "kind": "ListPool", "name": "list" } },
        "status": {
            "addressRef": { "name": "a" }, "conditions": [ready],
            "deprecated": { "v1beta1": { "conditions": [{ "type": "Ready", "status": "True" }] } },
        },
    });
    change(&mut claim);
    serde_json::from_value(claim).unwrap()
}

fn address(change: impl FnOnce(&mut Value)) -> IPAddress {
    let owner = |kind: &str, name: &str, controller: bool| {
        json!({
            "apiVersion": "v1", "kind": kind, "name": name, "uid": if controller { "claim-uid" } else { "pool-uid" },
            "controller": controller, "blockOwnerDeletion": true,
        })
    };
    let mut address = json!({
        "metadata": {
            "name": "a", "namespace": "n", "finalizers": [names::PROTECT_ADDRESS],
            "labels": { names::CLUSTER_NAME_LABEL: "alpha" },
            "ownerReferences": [owner("IPAddressClaim", "a", true), owner("ListPool", "list", false)],
        },
        "spec": {
            "address": "10.0.0.1", "prefix": 24, "claimRef": { "name": "a" },
            "poolRef": { "apiGroup": "example.com", "kind": "ListPool", "name": "list" },
        },
    });
    change(&mut address);
    serde_json::from_value(address).unwrap()
}

fn unchanged(_: &mut Value) {}

/// The rule that a wrong IPAddress violates.
fn wrong_address(change: impl FnOnce(&mut Value)) -> Option<Rule> {
    check_bound(&claim(unchanged), Some(&address(change)))
        .err()
        .map(|violation| violation.rule)
}

/// The rule that a wrong claim violates.
fn wrong_claim(change: impl FnOnce(&mut Value)) -> Option<Rule> {
    check_bound(&claim(change), Some(&address(unchanged)))
        .err()
        .map(|violation| violation.rule)
}

#[test]
fn correct_objects_violate_no_rule() {
    assert_eq!(wrong_claim(unchanged), None);
    assert_eq!(
        check_owned(&[claim(unchanged)], &[address(unchanged)]),
        Ok(())
    );
    assert_eq!(check_unique([&address(unchanged)]), Ok(()));
}

#[test]
fn wrong_claims_are_detected() {
    assert_eq!(
        wrong_claim(|claim| claim["status"] = Value::Null),
        Some(Rule::Served)
    );
    assert_eq!(
        wrong_claim(|claim| claim["status"]["addressRef"]["name"] = json!("b")),
        Some(Rule::Names)
    );
    assert_eq!(
        wrong_claim(|claim| claim["metadata"]["finalizers"] = json!(["x/y"])),
        Some(Rule::Finalizers)
    );
    assert_eq!(
        wrong_claim(|claim| claim["status"]["conditions"] = json!([])),
        Some(Rule::Status)
    );
    assert_eq!(
        wrong_claim(|claim| claim["status"]["conditions"][0]["reason"] = json!("")),
        Some(Rule::Status)
    );
    assert_eq!(
        wrong_claim(|claim| claim["status"]["deprecated"] = Value::Null),
        Some(Rule::OldConditions)
    );
    assert_eq!(
        check_bound(&claim(unchanged), None).map_err(|violation| violation.rule),
        Err(Rule::Served)
    );
}

#[test]
fn wrong_addresses_are_detected() {
    let owners = |address: &mut Value| address["metadata"]["ownerReferences"].take();
    assert_eq!(
        wrong_address(|address| drop(owners(address))),
        Some(Rule::Owners)
    );
    for index in [0, 1] {
        let set = |field: &'static str, value: bool| {
            move |address: &mut Value| {
                address["metadata"]["ownerReferences"][index][field] = json!(value)
            }
        };
        assert_eq!(
            wrong_address(set("blockOwnerDeletion", false)),
            Some(Rule::Owners)
        );
        assert_eq!(
            wrong_address(set("controller", index == 1)),
            Some(Rule::Owners)
        );
    }
    assert_eq!(
        wrong_address(|address| address["metadata"]["finalizers"] = json!([])),
        Some(Rule::Finalizers)
    );
    assert_eq!(
        wrong_address(|address| address["metadata"]["labels"] = json!({})),
        Some(Rule::ClusterLabel)
    );
    assert_eq!(
        wrong_address(|address| address["spec"]["claimRef"]["name"] = json!("b")),
        Some(Rule::Names)
    );
    assert_eq!(
        wrong_address(|address| address["spec"]["poolRef"]["name"] = json!("b")),
        Some(Rule::Names)
    );
    assert_eq!(
        wrong_address(|address| address["spec"]["prefix"] = json!(33)),
        Some(Rule::Specification)
    );
    assert_eq!(
        wrong_address(|address| address["spec"]["address"] = json!("10.0.0.1/24")),
        Some(Rule::Specification)
    );
    assert_eq!(
        wrong_address(|address| address["spec"]["gateway"] = json!("")),
        Some(Rule::Specification)
    );
}

#[test]
fn duplicates_are_detected_in_any_form() {
    let of = |name: &str, ip: &str, pool: &str| {
        address(|address| {
            address["metadata"]["name"] = json!(name);
            address["spec"]["address"] = json!(ip);
            address["spec"]["poolRef"]["name"] = json!(pool);
        })
    };
    let all = [
        of("a", "fd00::1", "one"),
        of("b", "fd00::2", "one"),
        of("c", "fd00::1", "two"),
    ];
    assert_eq!(check_unique(&all), Ok(()));
    let twice = [of("a", "fd00::1", "one"), of("b", "fd00:0::1", "one")];
    let violation = check_unique(&twice).unwrap_err();
    assert_eq!(violation.rule, Rule::Unique);
    assert!(
        violation
            .to_string()
            .contains("the IPAddresses a and b have different addresses"),
        "{violation}"
    );
}

#[test]
fn leaked_addresses_are_detected() {
    let leaked = |claims: &[IPAddressClaim]| {
        check_owned(claims, &[address(unchanged)])
            .err()
            .map(|found| found.rule)
    };
    assert_eq!(leaked(&[]), Some(Rule::NoLeak));
    let recreated = claim(|claim| claim["metadata"]["uid"] = json!("other-uid"));
    assert_eq!(leaked(&[recreated]), Some(Rule::NoLeak));
}

#[test]
fn unbound_claim_needs_reason_and_message() {
    let with = |ready: Value| claim(|claim| claim["status"] = json!({ "conditions": [ready] }));
    let ready = json!({ "type": "Ready", "status": "False", "reason": "PoolExhausted", "message": "no free address" });
    assert_eq!(check_reason(&with(ready.clone())), Ok(()));
    for (field, value) in [("status", "True"), ("reason", ""), ("message", "")] {
        let mut wrong = ready.clone();
        wrong[field] = json!(value);
        assert_eq!(
            check_reason(&with(wrong)).map_err(|violation| violation.rule),
            Err(Rule::Reason)
        );
    }
    assert!(check_reason(&claim(unchanged)).is_err());
    assert!(!reports_paused(&with(ready)));
    assert!(reports_paused(&with(
        json!({ "type": "Paused", "status": "True" })
    )));
}
