//! `convert` and `export`, with the commands of kubectl that docs/kubectl-ipam.md shows.

use std::path::Path;
use std::process::Command;

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use serde_json::{Value, json};

use super::{definitions, json_of, manager, reference, run};

const TABLE: &str = "\
kind,name,addresses,excludedAddresses,prefix,gateway,network,pool,claim,comment
InClusterIPPool,rack-2,10.0.2.10-10.0.2.99 10.0.2.120,10.0.2.15,24,10.0.2.1,lab,,,
GlobalPrefix,pods,fd00::/56,,64,,,,,of all racks
IPNetwork,lab,,10.0.2.200-10.0.2.254,,,,,,
IPReservation,,10.0.2.20,,,,,rack-2,,printer
IPReservation,,10.0.2.77,,,,,rack-2,load-balancer,
";

/// The kinds that `kubectl apply --prune` deletes.
const PRUNED: [&str; 3] = [
    "--prune-allowlist=ipam.cluster.x-k8s.io/v1alpha2/InClusterIPPool",
    "--prune-allowlist=ipam.cluster.x-k8s.io/v1alpha2/GlobalInClusterPrefixPool",
    "--prune-allowlist=ipam.cluster.x-k8s.io/v1alpha2/IPReservation",
];

/// A folder with a table and its manifests.
struct Racks<'a> {
    plane: &'a ControlPlane,
    namespace: &'a str,
}

impl Racks<'_> {
    fn path(&self, name: &str) -> String {
        self.plane.folder().join(name).display().to_string()
    }

    /// Converts a table; it must be right.
    fn convert(&self, table: &str) {
        std::fs::write(self.path("racks.csv"), table).expect("the table can be written");
        let table = self.path("racks.csv");
        let arguments = ["convert", &table, "-n", self.namespace];
        let (code, output, errors) = run(self.plane.kubeconfig(), &arguments);
        assert_eq!(code, 0, "{errors}");
        std::fs::write(self.path("racks.yaml"), output).expect("the manifests can be written");
    }

    /// Runs kubectl with the manifests, and returns its exit code and its output.
    fn kubectl(&self, arguments: &[&str]) -> (Option<i32>, String) {
        kubectl(self.plane, arguments, &self.path("racks.yaml"))
    }

    fn apply(&self) -> String {
        let selected = [
            "apply",
            "--prune",
            "--selector=ipam.cluster.x-k8s.io/source=racks",
        ];
        let (code, output) = self.kubectl(&[&selected[..], &PRUNED].concat());
        assert_eq!(code, Some(0), "{output}");
        output
    }
}

fn kubectl(plane: &ControlPlane, arguments: &[&str], file: &str) -> (Option<i32>, String) {
    let output = Command::new(plane.kubectl_program())
        .args(arguments)
        .args(["--filename", file])
        .env("KUBECONFIG", plane.kubeconfig())
        .output()
        .expect("kubectl can be started");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

#[tokio::test]
async fn table_is_applied_and_pruned_with_kubectl() {
    let program = manager();
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let manager = Manager::start_program(&plane, &program, admin, &["--webhook-port=0"]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let racks = Racks {
        plane: &plane,
        namespace,
    };
    racks.convert(TABLE);

    let (code, output) = racks.kubectl(&["apply", "--dry-run=server"]);
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(
        output.matches("created (server dry run)").count(),
        5,
        "{output}"
    );
    assert_eq!(racks.kubectl(&["diff"]).0, Some(1));
    let output = racks.apply();
    assert_eq!(output.matches(" created\n").count(), 5, "{output}");
    assert_eq!(racks.kubectl(&["diff"]), (Some(0), String::new()));

    // The network does not allow the namespace of the pool yet.
    let allowed = json!({ "spec": { "namespaces": { "from": "All" } } }).to_string();
    plane.kubectl(&[
        "patch",
        "ipnetwork",
        "lab",
        "--type=merge",
        "--patch",
        &allowed,
    ]);
    let pool = || reference("InClusterIPPool", "rack-2");
    consumer
        .create_claim_for("load-balancer", pool(), json!({}))
        .await;
    assert_eq!(
        consumer.wait_for_address("load-balancer").await,
        "10.0.2.77"
    );
    let reserve = ["reserve", "rack-2", "10.0.2.99", "-n", namespace];
    assert_eq!(run(admin, &reserve).0, 0);

    // What the table no longer contains is deleted, and what others have created stays.
    let mut shorter: Vec<&str> = TABLE.lines().collect();
    shorter.retain(|line| !line.contains("10.0.2.20,") && !line.contains("pods"));
    racks.convert(&(shorter.join("\n").replace("10.0.2.15", "10.0.2.16") + "\n"));
    let output = racks.apply();
    assert_eq!(output.matches(" pruned\n").count(), 2, "{output}");
    let shown = json_of(admin, &["show", "rack-2", "-n", namespace]);
    assert_eq!(shown["excluded"], json!(["10.0.2.16"]));
    let holders = shown["holders"].as_array().expect("a list");
    let held: Vec<&Value> = holders.iter().map(|it| &it["address"]).collect();
    assert_eq!(held, ["10.0.2.77", "10.0.2.99"]);

    exported_objects_are_those_of_the_cluster(&plane, namespace);
}

/// The pool has two reservations of users. A claim has one of these addresses.
fn exported_objects_are_those_of_the_cluster(plane: &ControlPlane, namespace: &str) {
    for (format, file) in [("yaml", "exported.yaml"), ("json", "exported.json")] {
        let export = ["export", "rack-2", "-n", namespace, "-o", format];
        let (code, output, errors) = run(plane.kubeconfig(), &export);
        assert_eq!((code, errors.as_str()), (0, ""));
        assert_eq!(output.matches("IPReservation").count(), 2, "{output}");
        assert!(!output.contains("status"), "{output}");
        let path = plane.folder().join(file);
        std::fs::write(&path, output).expect("the file can be written");
        let path = path.display().to_string();
        assert_eq!(kubectl(plane, &["diff"], &path), (Some(0), String::new()));
    }
    let named = format!("{namespace}/rack-2");
    let (code, output, errors) = run(plane.kubeconfig(), &["export", &named, "-n", "default"]);
    assert!(
        code == 0 && output.contains("name: rack-2"),
        "{output}{errors}"
    );
    let (code, output, errors) = run(plane.kubeconfig(), &["export", "none", "-n", namespace]);
    assert_eq!((code, output.as_str()), (6, ""), "{errors}");
}

#[test]
fn wrong_table_is_refused_without_a_cluster() {
    let folder = tempfile::tempdir().expect("a folder can be created");
    let path = folder.path().join("racks.csv");
    let convert = |table: &str, flags: &[&str]| {
        std::fs::write(&path, table).expect("the table can be written");
        let path = path.display().to_string();
        run(
            Path::new("/dev/null"),
            &[&["convert", &path], flags].concat(),
        )
    };
    let wrong = TABLE.replace("10.0.2.77", "10.0.9.77");
    let (code, output, errors) = convert(&wrong, &["-n", "default"]);
    assert_eq!((code, output.as_str()), (1, ""));
    let problem = "line 6, column addresses: InClusterIPPool default/rack-2 does not contain 10.0.9.77\n1 problem\n";
    assert_eq!(errors, problem);
    let (code, output, errors) = convert(TABLE, &["-n", "default", "-o", "json"]);
    assert_eq!(code, 0, "{errors}");
    let list: Value = serde_json::from_str(&output).expect("the output is JSON");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(5));
    assert_eq!(errors, "warning: the column comment is ignored\n");
    let (code, _, errors) = convert(TABLE, &["-n", "default", "--source", "a b"]);
    assert!(code == 2 && errors.contains("write --source"), "{errors}");
    let (code, _, errors) = run(Path::new("/dev/null"), &["convert", "-", "-n", "default"]);
    assert!(code == 2 && errors.contains("write --source"), "{errors}");
}
