//! The commands for operators in README.md, run as they stand there: install, take over, upgrade, uninstall.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use capi_ipam::api::{InClusterIPPool, Pool};
use capi_ipam::installed;
use capi_ipam::support::clusterctl::{CLUSTER_API, clusterctl, CORE, documents, manifest, Releases, stand_in_for_cert_manager, VERSION};
use capi_ipam::support::consumer::{Consumer, eventually, eventually_within, object};
use capi_ipam::support::control_plane::{ControlPlane, NAMESPACE, Options};
use capi_ipam::support::webhooks::Webhooks;
use kube::ResourceExt;
use serde_json::{json, Value};

/// What `make release` writes.
const CONFIGURATION: &str = "target/release-files/clusterctl.yaml";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shell commands in a section of README.md, block by block.
fn blocks(section: &str) -> Vec<String> {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md can be read");
    let (_, after) = readme.split_once(&format!("\n{section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let section = after.split("\n## ").next().unwrap_or_default();
    let parts = section.split("\n```sh\n").skip(1);
    parts.map(|part| part.split("\n```").next().unwrap_or_default().to_owned()).collect()
}

/// An operator at a shell, with kubectl, clusterctl, and a cluster that has Cluster API but nobody to run its webhooks.
struct Operator {
    plane: ControlPlane,
    releases: Releases,
    programs: PathBuf,
}

impl Operator {
    /// Installs Cluster API and, if there is one, a release of this provider.
    fn start(release: Option<(&str, &str)>) -> Self {
        let plane = ControlPlane::start(Options { bare: true, controller_manager: true, ..Options::default() });
        let programs = plane.folder().join("bin");
        fs::create_dir(&programs).expect("a folder can be made");
        symlink(plane.kubectl_program(), programs.join("kubectl")).expect("a link can be made");
        symlink(clusterctl(), programs.join("clusterctl")).expect("a link can be made");
        stand_in_for_cert_manager(&plane);
        let releases = Releases::new();
        let core = format!("{CORE}:{CLUSTER_API}");
        let mut flags = vec!["init", "--core", &core, "--bootstrap", "-", "--control-plane", "-"];
        let ipam = release.map(|(version, _)| format!("in-cluster:{version}"));
        if let Some((version, components)) = release {
            releases.add(version, components);
            flags.extend(["--ipam", ipam.as_deref().unwrap_or_default()]);
        }
        releases.clusterctl(&plane, &flags).unwrap_or_else(|error| panic!("{error}"));
        let selector = format!("--selector=cluster.x-k8s.io/provider={CORE}");
        for kind in ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"] {
            plane.kubectl(&["delete", kind, &selector]);
        }
        Self { plane, releases, programs }
    }

    /// Runs a block of commands in the root of the tree.
    ///
    /// The releases of Cluster API, which clusterctl looks up beside ours, are taken from this machine.
    fn run(&self, block: &str) {
        let configuration = self.releases.with_core_beside(&root().join(CONFIGURATION));
        let block = &block.replace(CONFIGURATION, &configuration.display().to_string());
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", block])
            .current_dir(root())
            .env("PATH", format!("{}:{path}", self.programs.display()))
            .env("KUBECONFIG", self.plane.kubeconfig())
            .env("XDG_CONFIG_HOME", self.releases.home())
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
            .output()
            .expect("bash can be started");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{block}\n{said}");
    }

    fn version(&self) -> String {
        let what = ["--namespace", NAMESPACE, "get", "provider", "ipam-in-cluster", "--output=jsonpath={.version}"];
        self.plane.kubectl(&what)
    }
}

async fn a_pool_serves(consumer: &Consumer, pool: &str, claim: &str) {
    consumer.pool(pool, json!({"addresses": ["10.0.0.10-10.0.0.19"], "prefix": 24})).await;
    consumer.claim(claim, pool).await;
    assert_eq!(consumer.bound(claim).await, "10.0.0.10");
}

/// What is released from this tree, as it was when `version` was the newest.
fn earlier(version: &str) -> String {
    manifest("ipam-components.yaml").replace(VERSION, version)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_installed_upgraded_and_uninstalled_with_clusterctl() {
    let [install, ..] = &blocks("## Install")[..] else { panic!("there is a block") };
    let [upgrade, uninstall] = &blocks("## Upgrade, move, uninstall")[..] else { panic!("there are two blocks") };
    let before = "v2.0.0-alpha.0";
    let operator = Operator::start(Some((before, &earlier(before))));
    let consumer = Consumer::new(&operator.plane).await;
    {
        let _running = installed::start(&operator.plane, &[]);
        a_pool_serves(&consumer, "web", "a").await;
    }
    Webhooks::unwire_definitions(&operator.plane);
    assert_eq!(operator.version(), before);
    operator.run("make release");
    operator.run(upgrade);
    assert_eq!(operator.version(), VERSION);
    let address = consumer.addresses().get("a").await.expect("addresses can be read").expect("it is there");
    {
        let (running, _webhooks) = installed::start(&operator.plane, &[]);
        // Its roles go before it does.
        let _running = running.may_lack_permissions();
        consumer.claim("b", "web").await;
        assert_eq!(consumer.bound("b").await, "10.0.0.11");
        let now = consumer.addresses().get("a").await.expect("addresses can be read");
        assert_eq!(now.as_ref(), Some(&address), "it is not even written");
        for name in ["a", "b"] {
            consumer.release(name).await;
        }
        operator.run(uninstall);
        operator.gone().await;
    }
    // And again from nothing.
    operator.run(install);
    let _running = installed::start(&operator.plane, &[]);
    a_pool_serves(&Consumer::new(&operator.plane).await, "web", "a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_installed_and_uninstalled_with_kubectl() {
    let [_, install] = &blocks("## Install")[..] else { panic!("there are two blocks") };
    let operator = Operator::start(None);
    operator.run(install);
    // Somebody who keeps the files in git applies them again and again.
    let version =
        || operator.plane.kubectl(&["get", "deployments", "-A", "--output=jsonpath={.items[*].metadata.generation}"]);
    let before = version();
    operator.run(install);
    assert_eq!(version(), before);
    let (running, _webhooks) = installed::start(&operator.plane, &[]);
    let _running = running.may_lack_permissions();
    let consumer = Consumer::new(&operator.plane).await;
    a_pool_serves(&consumer, "web", "a").await;
    consumer.release("a").await;
    consumer.remove_unused(&consumer.pools(), "web").await;
    operator.run("kubectl delete -f manifests/install.yaml");
    operator.gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_installed_without_cert_manager() {
    let [install] = &blocks("### Without cert-manager")[..] else { panic!("there is a block") };
    let operator = Operator::start(None);
    operator.run(install);
    let _running = installed::start_self_managed(&operator.plane);
    a_pool_serves(&Consumer::new(&operator.plane).await, "web", "a").await;
}

impl Operator {
    /// Waits until nothing of the provider is left.
    async fn gone(&self) {
        eventually_within(Duration::from_mins(2), "nothing is left", || async {
            let kinds =
                "customresourcedefinitions,clusterroles,clusterrolebindings,validatingwebhookconfigurations,namespaces";
            let selector = "--selector=cluster.x-k8s.io/provider=ipam-in-cluster";
            let left = self.plane.kubectl(&["get", kinds, selector, "--output=name"]);
            left.is_empty().then_some(())
        })
        .await;
    }
}

/// The Go provider as far as clusterctl is concerned: other objects under the same names, no reservations.
fn of_the_go_provider() -> String {
    let mut objects = documents(&manifest("install.yaml").replace(VERSION, "v1.1.0"));
    objects.retain(|object| object["metadata"]["name"] != "ipreservations.ipam.cluster.x-k8s.io");
    for object in &mut objects {
        match object["kind"].as_str() {
            Some("Deployment") => {
                object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("500m");
            }
            Some("ValidatingWebhookConfiguration") => {
                object["webhooks"][0]["name"] = json!("validation.of-old.ipam.cluster.x-k8s.io");
            }
            _ => {}
        }
    }
    objects.push(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": "capi-ipam-in-cluster-mutating-webhook-configuration",
            "labels": {"cluster.x-k8s.io/provider": "ipam-in-cluster"},
        },
        "webhooks": [{
            "name": "default.inclusterippool.ipam.cluster.x-k8s.io", "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {
                "namespace": NAMESPACE, "name": "capi-ipam-in-cluster-webhook-service",
                "path": "/mutate-ipam-cluster-x-k8s-io-v1alpha2-inclusterippool"}},
            "rules": [{"apiGroups": ["ipam.cluster.x-k8s.io"], "apiVersions": ["v1alpha2"], "operations": ["CREATE"],
                       "resources": ["inclusterippools"]}],
        }],
    }));
    objects.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")
}

/// Binds a claim as the Go provider does.
async fn bound_by_go(operator: &Operator, consumer: &Consumer) {
    let selector = "--selector=cluster.x-k8s.io/provider=ipam-in-cluster";
    for kind in ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"] {
        // They would ask the Go provider.
        operator.plane.kubectl(&[
            "patch",
            kind,
            "--type=json",
            "--patch",
            r#"[{"op": "remove", "path": "/webhooks"}]"#,
            &operator.plane.kubectl(&["get", kind, selector, "--output=jsonpath={.items[0].metadata.name}"]),
        ]);
    }
    let pool = object(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool",
        "metadata": {"name": "web", "namespace": consumer.namespace},
        "spec": {"addresses": ["10.0.0.10-10.0.0.19"], "prefix": 24},
    }));
    let pool = eventually("no webhook is asked any more", || async { consumer.pools().create(&pool).await.ok() }).await;
    let finalizers = |name: &str| json!([format!("ipam.cluster.x-k8s.io/{name}")]);
    let claim = consumer
        .claim_with("a", InClusterIPPool::KIND.name(), "web", json!({"finalizers": finalizers("ReleaseAddress")}))
        .await;
    let owner = |kind: &str, name: &str, version: &str, uid: Option<String>, controller: bool| {
        json!({"apiVersion": format!("ipam.cluster.x-k8s.io/{version}"), "kind": kind, "name": name, "uid": uid,
               "controller": controller, "blockOwnerDeletion": true})
    };
    let address: Value = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": {"name": "a", "namespace": consumer.namespace, "finalizers": finalizers("ProtectAddress"),
            "ownerReferences": [owner("IPAddressClaim", "a", "v1beta2", claim.uid(), true),
                                owner("InClusterIPPool", "web", "v1alpha2", pool.uid(), false)]},
        "spec": {"claimRef": {"name": "a"}, "address": "10.0.0.15", "prefix": 24,
                 "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"}},
    });
    consumer.addresses().create(&object(address)).await.expect("it can be made");
    let namespace = format!("--namespace={}", consumer.namespace);
    let bound = r#"{"status": {"addressRef": {"name": "a"}}}"#;
    operator.plane.kubectl(&[
        "patch",
        "ipaddressclaim",
        "a",
        &namespace,
        "--subresource=status",
        "--type=merge",
        "--patch",
        bound,
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_takes_the_place_of_the_go_provider() {
    let commands = blocks("## Take over from the Go provider");
    assert_eq!(commands.len(), 2);
    for take_over in &commands {
        let operator = Operator::start(Some(("v1.1.0", &of_the_go_provider())));
        let consumer = Consumer::new(&operator.plane).await;
        bound_by_go(&operator, &consumer).await;
        let before = consumer.claims().get("a").await.expect("claims can be read");
        operator.run("make release");
        operator.run(take_over);
        let container = &installed::deployment(&operator.plane)["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], format!("localhost/capi-ipam:{VERSION}"));
        assert!(container["resources"]["limits"].get("cpu").is_none(), "{container}");
        let webhooks = operator.plane.kubectl(&["get", "validatingwebhookconfigurations", "--output=yaml"]);
        assert!(!webhooks.contains("of-old"), "{webhooks}");
        assert_eq!(operator.plane.kubectl(&["get", "mutatingwebhookconfigurations", "--output=name"]), "");
        let _running = installed::start(&operator.plane, &[]);
        eventually("the address is reserved", || async { consumer.reservation("web", "10.0.0.15").await }).await;
        assert_eq!(consumer.claims().get("a").await.expect("claims can be read"), before, "it sees no change");
        consumer.claim("b", "web").await;
        assert_eq!(consumer.bound("b").await, "10.0.0.10");
    }
}
