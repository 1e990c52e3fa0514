//! `clusterctl init`.

use capi_ipam::installed;
use capi_ipam::support::clusterctl::{Releases, start_core, VERSION};
use capi_ipam::support::control_plane::{ControlPlane, NAMESPACE, Options};
use serde_json::{json, Value};

/// What the Cluster API operator adds to the arguments of a manager.
const BY_THE_OPERATOR: [&str; 4] = [
    "--diagnostics-address=localhost:0",
    "--insecure-diagnostics=true",
    "--tls-min-version=VersionTLS13",
    "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
];

fn read(plane: &ControlPlane, what: &[&str]) -> Value {
    let arguments: Vec<&str> = ["get", "--output=json"].iter().chain(what).copied().collect();
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
fn clusterctl_installs_a_provider_that_serves_both_versions_of_the_contract() {
    let plane = ControlPlane::start(Options { bare: true, ..Options::default() });
    let releases = Releases::new();
    let said = releases.init(&plane);
    assert!(said.contains(&format!("Installing provider=\"ipam-in-cluster\" version=\"{VERSION}\"")), "{said}");
    let provider = read(&plane, &["--namespace", NAMESPACE, "provider", "ipam-in-cluster"]);
    assert_eq!([&provider["version"], &provider["type"]], [VERSION, "IPAMProvider"]);

    // The namespace admits what the Deployment asks for, and nothing with more privileges.
    let deployment = installed::deployment(&plane);
    let mut pod = installed::pod(&deployment);
    plane.kubectl_apply(&pod.to_string());
    pod["metadata"]["name"] = json!("privileged");
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    let file = plane.folder().join("privileged.json");
    std::fs::write(&file, pod.to_string()).expect("a file can be written");
    let refused = plane.try_kubectl(&["apply", "-f", &file.display().to_string()]).expect_err("it is not admitted");
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");

    let _core = start_core(&plane);
    let _installed = installed::start(&plane, &BY_THE_OPERATOR);
    let pool = "{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterIPPool, metadata: {name: web}, \
                spec: {addresses: [10.0.0.10-10.0.0.19], prefix: 24, gateway: 10.0.0.1}}";
    plane.kubectl_apply(pool);
    for (name, version) in [("new", "v1beta2"), ("old", "v1beta1")] {
        plane.kubectl_apply(&claim(name, version));
        let wait = ["wait", "--for=condition=Ready", "--timeout=30s", "ipaddressclaim", name];
        plane.kubectl(&wait);
        for version in ["v1beta1", "v1beta2"] {
            let claim = read(&plane, &[&format!("ipaddressclaims.{version}.ipam.cluster.x-k8s.io"), name]);
            assert_eq!(claim["status"]["addressRef"]["name"], name);
            let address = read(&plane, &[&format!("ipaddresses.{version}.ipam.cluster.x-k8s.io"), name]);
            assert_eq!([&address["spec"]["gateway"], &address["spec"]["claimRef"]["name"]], ["10.0.0.1", name]);
            let group = &address["spec"]["poolRef"]["apiGroup"];
            assert_eq!(group, "ipam.cluster.x-k8s.io", "{address}");
        }
    }
    // Our webhooks are in force, and Cluster API's.
    let old = read(&plane, &["inclusterippools.v1alpha1.ipam.cluster.x-k8s.io", "web"]);
    assert_eq!(old["apiVersion"], "ipam.cluster.x-k8s.io/v1alpha1");
    let refused = plane.try_kubectl(&["delete", "inclusterippool", "web"]).expect_err("it is in use");
    assert!(refused.contains("Cannot delete Pool"), "{refused}");
    let other = r#"{"spec": {"poolRef": {"name": "other"}}}"#;
    let change = ["patch", "ipaddressclaim", "new", "--type=merge", "--patch", other];
    let refused = plane.try_kubectl(&change).expect_err("claims do not change");
    assert!(refused.contains("IPAddressClaim spec is immutable"), "{refused}");
    plane.kubectl(&["delete", "ipaddressclaim", "new", "old", "--timeout=30s"]);
    let left = read(&plane, &["ipreservations"]);
    assert_eq!(left["items"], json!([]));
}
