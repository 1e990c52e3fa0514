//! `status` shows the alerts that fire in a real Prometheus behind a service of the cluster.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options, ensure};
use capi_ipam_testing::ports::free_port;
use capi_ipam_testing::process::Supervised;
use capi_ipam_testing::wait::eventually_ok;
use serde_json::{Value, json};

use crate::{definitions, run};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/prometheus");

/// An address of this machine that the API server accepts as an endpoint: not that of the loopback
/// interface. No packet is sent.
fn address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket can be created");
    socket
        .connect("192.0.2.1:9")
        .expect("the machine has a network");
    socket.local_addr().expect("a socket has an address").ip()
}

/// The shipped rules, which fire at once.
fn rules() -> Value {
    let text = fs::read_to_string(format!("{FOLDER}/rules.yaml")).expect("the rules can be read");
    let rule: Value = serde_saphyr::from_str(&text).expect("the rules are YAML");
    let mut spec = rule["spec"].clone();
    for group in spec["groups"].as_array_mut().into_iter().flatten() {
        for rule in group["rules"].as_array_mut().into_iter().flatten() {
            rule["for"] = json!("0s");
        }
    }
    spec
}

/// A Prometheus with the shipped rules that scrapes nothing, so no replica.
fn start_prometheus(folder: &Path, address: IpAddr, port: u16) -> Supervised {
    let configuration = json!({
        "global": {"evaluation_interval": "1s"}, "rule_files": ["rules.yaml"],
    });
    fs::write(folder.join("rules.yaml"), rules().to_string()).expect("the folder is writable");
    let file = folder.join("prometheus.yaml");
    fs::write(&file, configuration.to_string()).expect("the folder is writable");
    let data = folder.join("prometheus");
    let arguments = [
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={}", data.display()),
        format!("--web.listen-address={address}:{port}"),
    ];
    let program = Path::new(&ensure(&["prometheus"])).join("prometheus");
    Supervised::spawn(&program, &arguments, &[], &folder.join("prometheus.log"))
}

/// The definition of a kind of the Prometheus operator.
fn definition(kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// Creates the service that the operator creates for a Prometheus. The API server forwards requests
/// to pods only.
fn create_service(plane: &ControlPlane, address: IpAddr, port: u16) {
    let labels = json!({"operated-prometheus": "true"});
    let name = "prometheus-operated";
    let ports = json!([{"name": "web", "port": 9090, "protocol": "TCP"}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"clusterIP": "None", "ports": ports},
    });
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": "default"},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "prometheus-0", "namespace": "default"},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "prometheus", "image": "prometheus"}],
        },
    });
    let target = json!({"kind": "Pod", "name": "prometheus-0", "namespace": "default"});
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": name, "namespace": "default"},
        "subsets": [{
            "addresses": [{"ip": address.to_string(), "targetRef": target}],
            "ports": [{"name": "web", "port": port, "protocol": "TCP"}],
        }],
    });
    for object in [service, account, pod, endpoints] {
        plane.kubectl_apply(&object.to_string());
    }
    let address = address.to_string();
    let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}}).to_string();
    let patch = ["patch", "pod", "prometheus-0", "--namespace=default"];
    let content = ["--subresource=status", "--type=merge", "--patch", &status];
    plane.kubectl(&[&patch[..], &content[..]].concat());
}

/// The line of the alerts in the output of `status`.
fn line(plane: &ControlPlane) -> String {
    let (_, output, errors) = run(plane.kubeconfig(), &["status"]);
    let line = output.lines().find(|line| line.starts_with("Alerts"));
    line.unwrap_or_else(|| panic!("{output}{errors}"))
        .to_owned()
}

async fn wait_for_line(plane: &ControlPlane, state: &str, text: &str) {
    eventually_ok(&format!("the alerts are {state}: {text}"), async || {
        let line = line(plane);
        if line.contains(state) && line.contains(text) {
            Ok(())
        } else {
            Err(line)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_the_alerts_of_prometheus() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let text = line(&plane);
    assert!(
        text.contains("unknown") && text.contains("no Prometheus operator"),
        "{text}"
    );

    for kind in ["PrometheusRule", "ServiceMonitor"] {
        plane.kubectl_apply(&definition(kind).to_string());
        plane.wait_until_served(&format!("{}s.monitoring.coreos.com", kind.to_lowercase()));
    }
    wait_for_line(&plane, "unknown", "apply config/prometheus").await;
    let namespace = "capi-ipam-in-cluster-system";
    plane.kubectl(&["create", "namespace", namespace]);
    plane.kubectl(&["apply", "--kustomize", FOLDER]);
    wait_for_line(&plane, "unknown", "no service").await;

    let address = address();
    let port = free_port();
    create_service(&plane, address, port);
    wait_for_line(
        &plane,
        "unknown",
        "default/prometheus-operated does not answer",
    )
    .await;
    let prometheus = start_prometheus(plane.folder(), address, port);
    wait_for_line(&plane, "error", "CapiIpamDown").await;
    drop(prometheus);
    wait_for_line(&plane, "unknown", "does not answer").await;
}
