//! `reserve` and `unreserve`.

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;
use serde_json::json;

use super::{create, definitions, json_of, manager, reference, run};

#[tokio::test]
async fn addresses_are_reserved_for_nobody_or_for_a_claim() {
    let program = manager();
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let manager = Manager::start_program(&plane, &program, admin, &["--webhook-port=0"]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.15"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(namespace), "web", &spec);
    let bind = async |name: &str| {
        consumer
            .create_claim_for(name, reference("InClusterIPPool", "web"), json!({}))
            .await;
        consumer.wait_for_address(name).await
    };
    assert_eq!(bind("one").await, "10.0.0.10");
    let call = |arguments: &[&str]| run(admin, &[arguments, &["-n", namespace]].concat());

    let (code, output, errors) = call(&["reserve", "web", "--dry-run=server"]);
    let expected = format!(
        "ipreservation p.{namespace}.web.10.0.0.11 created (server dry run): 10.0.0.11 is excluded"
    );
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(output.starts_with(&expected), "{output}");
    assert_eq!(
        call(&["reserve", "web", "--dry-run=server"]).1,
        output,
        "nothing was reserved"
    );
    assert_eq!(call(&["reserve", "web"]).0, 0);
    assert_eq!(call(&["reserve", "web", "10.0.0.14", "--for", "vm"]).0, 0);
    let (code, output, _) = call(&["show", "web"]);
    assert!(
        code == 0 && output.contains("  Next         10.0.0.12"),
        "{output}"
    );
    // The manager has seen the reservations once they count.
    eventually("the reservations count", async || {
        let shown = json_of(admin, &["pools", "-n", namespace]);
        (shown["items"][0]["counts"]["reserved"] == json!(2)).then_some(())
    })
    .await;
    assert_eq!(bind("two").await, "10.0.0.12");
    assert_eq!(bind("vm").await, "10.0.0.14");

    for (arguments, expected, text) in [
        (
            &["reserve", "web", "10.0.0.10"][..],
            7,
            "is held by the claim NS/one; delete the claim to release it",
        ),
        (&["reserve", "web", "10.0.0.11"], 7, "is reserved already"),
        (
            &["reserve", "web", "10.0.0.99"],
            2,
            "does not contain 10.0.0.99",
        ),
        (&["reserve", "none"], 6, "does not exist"),
        (
            &["unreserve", "web", "10.0.0.10"],
            7,
            "is held by the claim NS/one",
        ),
        (&["unreserve", "web", "10.0.0.13"], 6, "is not reserved"),
        (
            &["unreserve", "web", "10.0.0.14"],
            2,
            "in use by the claim NS/vm",
        ),
    ] {
        let (code, output, errors) = call(arguments);
        assert_eq!(
            (code, output.as_str(), errors.lines().count()),
            (expected, "", 1),
            "{arguments:?}: {errors}"
        );
        assert!(
            errors.contains(&text.replace("NS", namespace)),
            "{arguments:?}: {errors}"
        );
    }
    // Why the pool cannot allocate an address.
    let edge = json!({ "addresses": ["10.0.3.0/28"], "prefix": 28, "gateway": "10.0.3.1",
                       "excludedAddresses": ["10.0.3.2"] });
    create(&plane, "InClusterIPPool", Some(namespace), "edge", &edge);
    for (address, text) in [
        (
            "10.0.3.0",
            "10.0.3.0 is a network, broadcast or router address of the subnet of",
        ),
        ("10.0.3.1", "10.0.3.1 is the gateway of"),
        ("10.0.3.2", "10.0.3.2 is excluded by the specification of"),
        ("10.0.3.4/30", "10.0.3.4/30 is not a block that"),
        ("10.0.4.1", "does not contain 10.0.4.1"),
    ] {
        let (code, _, errors) = call(&["reserve", "edge", address]);
        assert!(code == 2 && errors.contains(text), "{address}: {errors}");
    }
    // An address in use is refused, and no flag changes that.
    let (code, output, errors) = call(&["reserve", "web", "10.0.0.10", "--yes"]);
    assert_eq!((code, output.as_str()), (2, ""));
    assert!(errors.contains("unexpected argument '--yes'"), "{errors}");
    assert_eq!(call(&["unreserve", "web", "10.0.0.11"]).0, 0);
    assert_eq!(call(&["unreserve", "web", "10.0.0.14", "--yes"]).0, 0);
    assert_eq!(consumer.wait_for_address("vm").await, "10.0.0.14");
    // Others get the rest, not the address of the claim.
    for (name, address) in [
        ("three", "10.0.0.11"),
        ("four", "10.0.0.13"),
        ("five", "10.0.0.15"),
    ] {
        assert_eq!(bind(name).await, address);
    }
    let (code, _, errors) = call(&["reserve", "web"]);
    assert_eq!(
        (code, errors.contains("has no free address")),
        (7, true),
        "{errors}"
    );

    // A reservation outlives its pool.
    let gone = json!({ "addresses": ["10.0.5.10"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(namespace), "gone", &gone);
    assert_eq!(call(&["reserve", "gone", "10.0.5.10"]).0, 0);
    plane.kubectl(&[
        "delete",
        "inclusterippool",
        "gone",
        "--namespace",
        namespace,
    ]);
    let (_, output, _) = run(admin, &["doctor"]);
    let problem =
        format!("InClusterIPPool {namespace}/gone does not exist; 10.0.5.10 stays reserved");
    assert!(output.contains(&problem), "{output}");
    assert_eq!(call(&["unreserve", "gone", "10.0.5.10"]).0, 0);
    let (code, _, errors) = call(&["unreserve", "gone", "10.0.5.10"]);
    assert!(
        code == 6 && errors.contains("pool gone does not exist"),
        "{code} {errors}"
    );

    // What an administrator promises does not depend on the rules of a global pool, only on whether
    // the claim can exist.
    let rules = json!({ "addresses": ["10.0.2.10-10.0.2.12"], "prefix": 24, "allowedNamespaces": { "from": "None" } });
    create(&plane, "GlobalInClusterIPPool", None, "shared", &rules);
    assert_eq!(
        call(&["reserve", "shared", "10.0.2.11", "--for", "vip"]).0,
        0
    );
    consumer
        .create_claim_for(
            "vip",
            reference("GlobalInClusterIPPool", "shared"),
            json!({}),
        )
        .await;
    assert_eq!(consumer.wait_for_address("vip").await, "10.0.2.11");
    for (arguments, field) in [
        (
            ["reserve", "shared", "10.0.2.12", "--for", "Bad_Name"],
            "spec.claimRef.name: ",
        ),
        (
            ["reserve", "web", "10.0.0.14", "--for", "kube-system/vm"],
            "spec.claimRef.namespace: ",
        ),
    ] {
        let (code, _, errors) = call(&arguments);
        assert!(
            code == 2 && errors.contains(field),
            "{arguments:?}: {code} {errors}"
        );
    }

    plane.kubectl(&[
        "create",
        "serviceaccount",
        "viewer",
        "--namespace",
        namespace,
    ]);
    let account = format!("--serviceaccount={namespace}:viewer");
    let rules = [
        "ipreservations",
        "inclusterippools",
        "globalinclusterippools",
        "ipaddresses",
    ]
    .map(|name| format!("{name}.ipam.cluster.x-k8s.io"))
    .join(",");
    plane.kubectl(&[
        "create",
        "clusterrole",
        "viewer",
        "--verb=list",
        &format!("--resource={rules}"),
    ]);
    plane.kubectl(&[
        "create",
        "clusterrolebinding",
        "viewer",
        "--clusterrole=viewer",
        &account,
    ]);
    create(
        &plane,
        "InClusterIPPool",
        Some(namespace),
        "db",
        &json!({ "addresses": ["10.0.1.10"], "prefix": 24 }),
    );
    let viewer = plane.kubeconfig_of_account(namespace, "viewer");
    // The API server uses a new role with a delay.
    eventually("only the right to create is missing", async || {
        let (code, _, errors) = run(&viewer, &["reserve", "db", "10.0.1.10"]);
        assert_eq!(code, 4, "{errors}");
        let text = "you may not create ipreservations.ipam.cluster.x-k8s.io in all namespaces: ask for a ClusterRole";
        errors.contains(text).then_some(())
    })
    .await;
}
