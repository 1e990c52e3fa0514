//! `quarantine`.

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use super::{create, definitions, json_of, manager, reference, run};

#[tokio::test]
async fn addresses_are_quarantined_at_once_or_with_their_claim() {
    let program = manager();
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let manager = Manager::start_program(&plane, &program, admin, &["--webhook-port=0"]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    for (name, addresses) in [
        ("web", "10.0.0.10-10.0.0.15"),
        ("other", "10.0.0.15-10.0.0.16"),
    ] {
        let spec = json!({ "addresses": [addresses], "prefix": 24 });
        create(&plane, "InClusterIPPool", Some(namespace), name, &spec);
    }
    let bind = async |name: &str| {
        let pool = reference("InClusterIPPool", "web");
        consumer.create_claim_for(name, pool, json!({})).await;
        consumer.wait_for_address(name).await
    };
    assert_eq!(bind("one").await, "10.0.0.10");
    let call = |arguments: &[&str]| run(admin, &[arguments, &["-n", namespace]].concat());
    let quarantined = async |number: u64| {
        eventually("the quarantines count", async || {
            let shown = json_of(admin, &["pools", "web", "-n", namespace]);
            (shown["items"][0]["counts"]["quarantined"] == json!(number)).then_some(())
        })
        .await;
    };

    // A free address.
    let reason = "--reason=ARP reply of 52:54:00:12:34:56";
    let command = ["quarantine", "10.0.0.11", reason];
    let (code, output, errors) = call(&[&command[..], &["--dry-run=server"]].concat());
    let expected = format!(
        "ipreservation p.{namespace}.web.10.0.0.11 quarantined (server dry run): 10.0.0.11 is not allocated before 2"
    );
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(output.starts_with(&expected), "{output}");
    assert_eq!(call(&command).0, 0);
    quarantined(1).await;
    assert_eq!(bind("two").await, "10.0.0.12");
    let (_, output, _) = call(&["who", "10.0.0.11"]);
    for part in [": quarantined\n", "ARP reply of 52:54:00:12:34:56", "Until"] {
        assert!(output.contains(part), "{output}");
    }

    // An address in use.
    let (code, output, _) = call(&["quarantine", "10.0.0.10", "--for=2h", reason]);
    let expected = format!(
        "ipaddressclaim {namespace}/one annotated: 10.0.0.10 is in use, and is quarantined when this claim is deleted\n"
    );
    assert_eq!((code, output), (0, expected));
    let (_, output, _) = call(&["who", "10.0.0.10"]);
    assert!(
        output.contains(": allocated\n") && output.contains("ARP reply"),
        "{output}"
    );
    // The overlapping pools are findings, too.
    let findings = |arguments: &[&str]| {
        let (_, output, _) = call(&[&["doctor", "-o", "json"], arguments].concat());
        let found: Value = serde_json::from_str(&output).expect("the output is JSON");
        let items = found["items"].as_array().expect("findings").iter();
        let text = |finding: &Value, field: &str| finding[field].as_str().map(str::to_owned);
        let mut found: Vec<(String, String)> = items
            .filter_map(|finding| Some((text(finding, "check")?, text(finding, "object")?)))
            .filter(|(check, _)| check.starts_with("Address"))
            .collect();
        found.sort_unstable();
        found
    };
    let of_claim = |name: &str| {
        let claim = format!("ipaddressclaim {namespace}/{name}");
        ("AddressConflict".to_owned(), claim)
    };
    let reservation = format!("ipreservation p.{namespace}.web.10.0.0.11");
    let quarantine = ("AddressQuarantined".to_owned(), reservation);
    assert_eq!(findings(&[]), [of_claim("one"), quarantine]);

    // An address that a claim for a set of pools uses.
    let spec = json!({ "addresses": ["10.0.1.10"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(namespace), "rack", &spec);
    let spec = json!({ "pools": [{ "kind": "InClusterIPPool", "name": "rack" }] });
    create(&plane, "IPPoolSet", Some(namespace), "racks", &spec);
    let set = reference("IPPoolSet", "racks");
    consumer.create_claim_for("of-set", set, json!({})).await;
    assert_eq!(consumer.wait_for_address("of-set").await, "10.0.1.10");
    assert_eq!(call(&["quarantine", "10.0.1.10", reason]).0, 0);
    // The pool is that of the IPAddress.
    assert_eq!(findings(&["rack"]), [of_claim("of-set")]);
    let pool = "--pool=IPPoolSet/racks";
    let (code, output, _) = call(&["claims", pool, "--no-headers"]);
    assert!(code == 0 && output.starts_with("of-set "), "{output}");
    assert_eq!(output.lines().count(), 1, "{output}");
    plane.kubectl(&["delete", "ipaddressclaim", "one", "--namespace", namespace]);
    quarantined(2).await;

    // The end is replaced.
    let (code, output, _) = call(&["quarantine", "10.0.0.10", "--for=72h"]);
    assert!(code == 0 && output.contains("10.0.0.10 is not allocated before 2"));

    assert_eq!(call(&["reserve", "web", "10.0.0.14"]).0, 0);
    assert_eq!(call(&["reserve", "web", "10.0.0.13", "--for=later"]).0, 0);
    for (arguments, expected, text) in [
        (&["quarantine", "10.0.0.14"][..], 7, "is reserved already"),
        (
            &["quarantine", "10.0.0.13"],
            7,
            "is reserved for the claim NS/later",
        ),
        (
            &["quarantine", "10.0.0.15"],
            2,
            "several pools contain 10.0.0.15: InClusterIPPool NS/",
        ),
        (&["quarantine", "10.9.9.9"], 6, "no pool contains 10.9.9.9"),
        (
            &["quarantine", "10.0.0.16", "--pool=web"],
            2,
            "does not contain 10.0.0.16",
        ),
        (
            &["quarantine", "10.0.0.13", "--for=721h"],
            2,
            "is not a duration from 1s to 720h",
        ),
        (
            &["reserve", "web", "10.0.0.11"],
            7,
            "is quarantined until 2",
        ),
        (
            &["unreserve", "web", "10.0.0.11"],
            2,
            "(ARP reply of 52:54:00:12:34:56); it can be allocated at once",
        ),
    ] {
        let (code, output, errors) = call(arguments);
        assert_eq!(
            (code, output.as_str()),
            (expected, ""),
            "{arguments:?}: {errors}"
        );
        assert!(
            errors.contains(&text.replace("NS", namespace)),
            "{arguments:?}: {errors}"
        );
    }
    assert_eq!(call(&["quarantine", "10.0.0.15", "--pool=other"]).0, 0);
    assert_eq!(call(&["unreserve", "web", "10.0.0.11", "--yes"]).0, 0);
    quarantined(1).await;
    assert_eq!(bind("three").await, "10.0.0.11");
}
