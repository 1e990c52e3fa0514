//! The flags that kubectl has: each has an effect.

use std::process::Command;

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use serde_json::{Value, json};

use super::{create, definitions, json_of, reference, run};

#[tokio::test]
async fn flags_of_kubectl_have_their_effect() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    for (name, addresses) in [
        ("b", "10.0.0.0/29"),
        ("a", "10.0.1.0/24"),
        ("c", "10.0.2.0/25"),
    ] {
        create(
            &plane,
            "InClusterIPPool",
            Some(namespace),
            name,
            &json!({ "addresses": [addresses], "prefix": 24 }),
        );
    }
    plane.kubectl(&[
        "label",
        "inclusterippool",
        "a",
        "c",
        "tier=web",
        "--namespace",
        namespace,
    ]);
    for name in ["x", "y"] {
        let labels = json!({ "labels": { "app": name } });
        consumer
            .create_claim_for(name, reference("InClusterIPPool", "a"), labels)
            .await;
    }
    let ask = |arguments: &[&str]| run(admin, &[arguments, &["-n", namespace]].concat());

    let names = |output: &Value| -> Vec<String> {
        let pools = output["items"].as_array().expect("a list");
        pools
            .iter()
            .map(|line| line["pool"]["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    let pools = |arguments: &[&str]| {
        names(&json_of(
            admin,
            &[&["pools", "-n", namespace], arguments].concat(),
        ))
    };
    assert_eq!(pools(&["-l", "tier=web"]), ["a", "c"]);
    assert_eq!(pools(&["--selector=tier!=web"]), ["b"]);
    assert_eq!(
        ask(&["claims", "-l", "app=x", "-o", "name"]).1,
        "ipaddressclaim.ipam.cluster.x-k8s.io/x\n"
    );
    let (_, with_header, _) = ask(&["claims"]);
    let (_, without_header, _) = ask(&["claims", "--no-headers"]);
    assert_eq!(
        (with_header.lines().count(), without_header.lines().count()),
        (3, 2),
        "{without_header}"
    );
    assert!(
        with_header.starts_with("NAME") && !without_header.contains("NAME"),
        "{without_header}"
    );
    assert_eq!(
        ask(&["who", "10.0.0.1", "-l", "a=b"]).0,
        2,
        "a selector that has no effect is refused"
    );

    // The identity.
    let (code, _, errors) = ask(&["pools", "--as=jane"]);
    assert!(code == 4 && errors.contains("inclusterippools"), "{errors}");
    assert_eq!(
        ask(&[
            "pools",
            "--as=jane",
            "--as-group=system:masters",
            "--as-uid=7"
        ])
        .0,
        0
    );
    assert_eq!(
        ask(&["pools", "--as-group=system:masters"]).0,
        2,
        "kubectl needs --as too"
    );
    let (code, _, errors) = ask(&["pools", "--token=wrong"]);
    assert!(
        code == 4 && errors.contains("rejects the credentials"),
        "{errors}"
    );
    assert_eq!(ask(&["pools", "--user=none"]).0, 3);

    // The connection.
    assert_eq!(ask(&["pools", "--cluster=none"]).0, 3);
    let (code, _, errors) = ask(&["pools", "--server=https://127.0.0.1:1"]);
    assert!(code == 3 && errors.contains("127.0.0.1:1"), "{errors}");
    assert_eq!(ask(&["pools", "--tls-server-name=example.invalid"]).0, 3);
    assert_eq!(
        ask(&[
            "pools",
            "--tls-server-name=example.invalid",
            "--insecure-skip-tls-verify"
        ])
        .0,
        0
    );
    let other = plane.folder().join("other-authority");
    std::fs::write(&other, "").expect("the folder is writable");
    let authority = format!("--certificate-authority={}", other.display());
    assert_eq!(
        ask(&["pools", &authority]).0,
        3,
        "the certificate is verified with the file"
    );
    let (code, _, errors) = ask(&["pools", "--request-timeout=1ms"]);
    assert!(
        code == 3 && errors.contains("no answer within 1ms"),
        "{errors}"
    );
    assert_eq!(ask(&["pools", "--request-timeout=30"]).0, 0);
    assert_eq!(ask(&["pools", "--request-timeout=0"]).0, 0);
    assert_eq!(ask(&["pools", "--request-timeout=soon"]).0, 2);
    let (_, output, errors) = ask(&["pools", "--v=6"]);
    assert!(errors.contains("/apis/ipam.cluster.x-k8s.io"), "{errors}");
    assert_eq!(
        (output, String::new()),
        (ask(&["pools"]).1, ask(&["pools"]).2),
        "the log is not part of the output"
    );

    // KUBECONFIG is a list, in which files may be absent.
    let program = |list: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ipam"));
        let output = command
            .env("KUBECONFIG", list)
            .args(["pools", "-n", namespace])
            .output();
        output.expect("the program can be started").status.code()
    };
    assert_eq!(
        program(&format!("/nonexistent/config:{}", admin.display())),
        Some(0)
    );
    assert_eq!(program("/nonexistent/config:/nonexistent/other"), Some(3));
}
