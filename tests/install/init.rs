//! `clusterctl init`.

use support::{
    clusterctl::{Releases, VERSION, start_core},
    prelude::*,
};

use crate::installed;

/// The arguments that the Cluster API operator adds to a manager.
const BY_THE_OPERATOR: [&str; 4] = [
    "--diagnostics-address=localhost:0",
    "--insecure-diagnostics=true",
    "--tls-min-version=VersionTLS13",
    "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
];

fn read(plane: &ControlPlane, what: &[&str]) -> Value {
    let arguments: Vec<&str> = ["get", "--output=json"]
        .iter()
        .chain(what)
        .copied()
        .collect();
    serde_json::from_str(&plane.kubectl(&arguments)).expect("kubectl writes JSON")
}

fn claim(name: &str, version: &str) -> String {
    let claim = json!({
        "apiVersion": format!("ipam.cluster.x-k8s.io/{version}"), "kind": "IPAddressClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web" } },
    });
    claim.to_string()
}

#[test]
fn clusterctl_lists_the_documented_variables() {
    let releases = Releases::write();
    let page = include_str!("../../docs/install.md");
    let generate = |flag: &str| {
        let output = releases
            .command(&["generate", "provider", "--ipam", "in-cluster", flag])
            .output()
            .expect("clusterctl can be started");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{flag}: {text}");
        text
    };
    let raw = generate("--raw");
    assert!(raw.contains("${IPAM_IN_CLUSTER_LOG_LEVEL:=info}"), "{raw}");
    let described = generate("--describe");
    let variables: Vec<&str> = described
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "))
        .filter(|variable| !variable.contains(char::is_lowercase))
        .collect();
    assert!(variables.len() > 3, "{described}");
    for variable in variables {
        assert!(page.contains(&format!("| `{variable}` |")), "{variable}");
    }
}

#[test]
fn clusterctl_init_installs_a_working_provider() {
    let plane = ControlPlane::start(Options {
        bare: true,
        ..Options::default()
    });
    let releases = Releases::write();
    let output = releases.init(&plane);
    assert!(
        output.contains(&format!(
            "Installing provider=\"ipam-in-cluster\" version=\"{VERSION}\""
        )),
        "{output}"
    );
    let provider = read(
        &plane,
        &["--namespace", NAMESPACE, "provider", "ipam-in-cluster"],
    );
    assert_eq!(
        [&provider["version"], &provider["type"]],
        [VERSION, "IPAMProvider"]
    );

    // The namespace admits the pods of the Deployment, and no pods with more privileges.
    let deployment = installed::deployment(&plane);
    let mut pod = installed::pod(&deployment);
    plane.kubectl_apply(&pod.to_string());
    pod["metadata"]["name"] = json!("privileged");
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    let file = plane.folder().join("privileged.json");
    std::fs::write(&file, pod.to_string()).expect("a file can be written");
    let refused = plane
        .try_kubectl(&["apply", "-f", &file.display().to_string()])
        .expect_err("the pod is not admitted");
    assert!(
        refused.contains("violates PodSecurity \"restricted"),
        "{refused}"
    );

    let _core = start_core(&plane);
    let _installed = installed::start(&plane, &BY_THE_OPERATOR);
    let pool = "{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterIPPool, metadata: {name: web}, \
                spec: {addresses: [10.0.0.10-10.0.0.19], prefix: 24, gateway: 10.0.0.1}}";
    plane.kubectl_apply(pool);
    for (name, version) in [("new", "v1beta2"), ("old", "v1beta1")] {
        plane.kubectl_apply(&claim(name, version));
        let wait = [
            "wait",
            "--for=condition=Ready",
            "--timeout=120s",
            "ipaddressclaim",
            name,
        ];
        plane.kubectl(&wait);
        for version in ["v1beta1", "v1beta2"] {
            let claim = read(
                &plane,
                &[
                    &format!("ipaddressclaims.{version}.ipam.cluster.x-k8s.io"),
                    name,
                ],
            );
            assert_eq!(claim["status"]["addressRef"]["name"], name);
            let address = read(
                &plane,
                &[
                    &format!("ipaddresses.{version}.ipam.cluster.x-k8s.io"),
                    name,
                ],
            );
            assert_eq!(
                [
                    &address["spec"]["gateway"],
                    &address["spec"]["claimRef"]["name"]
                ],
                ["10.0.0.1", name]
            );
            let group = &address["spec"]["poolRef"]["apiGroup"];
            assert_eq!(group, "ipam.cluster.x-k8s.io", "{address}");
        }
    }
    // The webhooks of this provider and of Cluster API are called.
    let old = read(
        &plane,
        &["inclusterippools.v1alpha1.ipam.cluster.x-k8s.io", "web"],
    );
    assert_eq!(old["apiVersion"], "ipam.cluster.x-k8s.io/v1alpha1");
    let refused = plane
        .try_kubectl(&["delete", "inclusterippool", "web"])
        .expect_err("the pool is in use");
    assert!(refused.contains("Cannot delete Pool"), "{refused}");
    let other = r#"{"spec": {"poolRef": {"name": "other"}}}"#;
    let change = [
        "patch",
        "ipaddressclaim",
        "new",
        "--type=merge",
        "--patch",
        other,
    ];
    let refused = plane
        .try_kubectl(&change)
        .expect_err("claims are immutable");
    assert!(
        refused.contains("IPAddressClaim spec is immutable"),
        "{refused}"
    );
    plane.kubectl(&["delete", "ipaddressclaim", "new", "old", "--timeout=120s"]);
    let left = read(&plane, &["ipreservations"]);
    assert_eq!(left["items"], json!([]));
}
