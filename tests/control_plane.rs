//! The control plane of the other tests.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
};

use capi_ipam_testing::patience::Patience;
use k8s_openapi::ByteString;
use support::{
    prelude::*,
    process::{Supervised, TemporaryFolder},
};

/// Waits until a condition holds.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let patience = Patience::new(Duration::from_mins(1));
    while !holds() {
        assert!(!patience.is_over(), "not after 60 s: {what}");
        sleep(Duration::from_millis(50));
    }
}

/// Whether a process exists.
fn exists(pid: u32) -> bool {
    let signal = Command::new("sh")
        .args(["-c", &format!("kill -s 0 {pid} 2>/dev/null")])
        .status();
    signal.is_ok_and(|status| status.success())
}

/// A config map with an optional owner.
fn config_map(name: &str, owner_uid: Option<&str>) -> String {
    let owners = owner_uid.map_or(String::new(), |uid| {
        format!(
            "  ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}}}]\n"
        )
    });
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n{owners}")
}

#[test]
fn cluster_api_kinds_are_installed() {
    let plane = ControlPlane::new();
    for crd in [
        "clusters.cluster.x-k8s.io",
        "ipaddressclaims.ipam.cluster.x-k8s.io",
        "ipaddresses.ipam.cluster.x-k8s.io",
    ] {
        let versions =
            plane.kubectl(&["get", "crd", crd, "-o", "jsonpath={.spec.versions[*].name}"]);
        assert!(
            versions.split(' ').any(|version| version == "v1beta2"),
            "{crd} has {versions}"
        );
        let (resource, group) = crd.split_once('.').expect("a CRD is named resource.group");
        assert_eq!(
            plane.kubectl(&[
                "get",
                &format!("{resource}.v1beta2.{group}"),
                "-A",
                "-o",
                "name"
            ]),
            ""
        );
    }
    let versions = plane.kubectl(&["version", "-o", "json"]);
    assert!(
        !versions.contains("v0.0.0"),
        "a program reports no version: {versions}"
    );
}

#[test]
fn data_survives_an_api_server_restart() {
    let mut plane = ControlPlane::new();
    plane.kubectl_apply(&config_map("kept", None));
    let creations = |plane: &ControlPlane| {
        let counts = plane.request_count().into_iter();
        let creations =
            counts.filter(|(key, _)| key.verb == "POST" && key.resource == "configmaps");
        creations.map(|(_, count)| count).sum::<u64>()
    };
    let before = creations(&plane);
    plane.kubectl_apply(&config_map("counted", None));
    assert_eq!(creations(&plane), before + 1);

    plane.stop_api_server();
    plane
        .try_kubectl(&["get", "configmap", "kept"])
        .expect_err("the API server is stopped");
    plane.start_api_server();
    assert_eq!(
        plane.kubectl(&["get", "configmap", "kept", "-o", "name"]),
        "configmap/kept\n"
    );
}

#[test]
fn etcd_is_read_and_written_through_its_json_api() {
    let plane = ControlPlane::new();
    let bytes = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
    let (key, value) = (bytes("/outside/key"), bytes("value"));
    let write = json!({"success": [{"requestPut": {"key": key, "value": value}}]});
    plane.call_etcd("/v3/kv/txn", &write).expect("etcd writes");
    let read = plane.call_etcd("/v3/kv/range", &json!({"key": key}));
    assert_eq!(read.expect("etcd responds")["kvs"][0]["value"], value);
    assert!(plane.call_etcd("/v3/none", &json!({})).is_err());
}

#[test]
fn service_account_has_the_permissions_of_its_role() {
    let plane = ControlPlane::new();
    plane.kubectl(&["create", "serviceaccount", "manager"]);
    plane.kubectl(&[
        "create",
        "role",
        "manager",
        "--verb=create",
        "--resource=configmaps",
    ]);
    plane.kubectl(&[
        "create",
        "rolebinding",
        "manager",
        "--role=manager",
        "--serviceaccount=default:manager",
    ]);
    let kubeconfig = plane.kubeconfig_of_account("default", "manager");
    let kubeconfig = kubeconfig.to_str().expect("the path is UTF-8");
    let as_manager = |arguments: &[&str]| {
        plane.try_kubectl(&[&["--kubeconfig", kubeconfig], arguments].concat())
    };
    eventually("the role allows it", || {
        as_manager(&["create", "configmap", "allowed"]).is_ok()
    });
    let error =
        as_manager(&["create", "namespace", "forbidden"]).expect_err("the role does not allow it");
    assert!(
        error.contains("system:serviceaccount:default:manager"),
        "{error}"
    );
}

#[test]
fn controller_manager_collects_garbage() {
    let plane = ControlPlane::start(Options {
        controller_manager: true,
        ..Options::default()
    });
    plane.kubectl_apply(&config_map("owner", None));
    let uid = plane.kubectl(&[
        "get",
        "configmap",
        "owner",
        "-o",
        "jsonpath={.metadata.uid}",
    ]);
    plane.kubectl_apply(&config_map("owned", Some(&uid)));
    plane.kubectl(&["delete", "configmap", "owner"]);
    plane.kubectl(&["create", "namespace", "short-lived"]);
    plane.kubectl(&["delete", "namespace", "short-lived", "--timeout=120s"]);
    eventually("the owned object is deleted", || {
        plane.try_kubectl(&["get", "configmap", "owned"]).is_err()
    });
}

#[test]
fn dropped_control_plane_leaves_no_process() {
    let plane = ControlPlane::start(Options {
        controller_manager: true,
        ..Options::default()
    });
    let folder = plane.folder().to_owned();
    let pids = plane.pids();
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| exists(*pid)));
    drop(plane);
    assert!(
        !pids.iter().any(|pid| exists(*pid)),
        "a program still runs of {pids:?}"
    );
    assert!(!folder.exists());
}

/// Starts control planes until one has the address of the last dropped one, which another test may
/// take first.
fn reused(prepare: impl Fn(&ControlPlane)) -> Option<ControlPlane> {
    (0..10).find_map(|_| {
        let plane = ControlPlane::new();
        prepare(&plane);
        let server = plane.server().to_owned();
        drop(plane);
        Some(ControlPlane::new()).filter(|next| next.server() == server)
    })
}

#[test]
fn reused_control_plane_has_no_objects_of_its_last_test() {
    let reservation = "apiVersion: ipam.cluster.x-k8s.io/v1alpha2\nkind: IPReservation\nmetadata:\n  name: p.team.web.10.0.0.1\n\
        spec:\n  scope: p.team.web\n  address: 10.0.0.1\n  poolRef: {kind: InClusterIPPool, namespace: team, name: web}\n";
    let objects = |plane: &ControlPlane| {
        plane.kubectl(&[
            "get",
            "namespaces,ipreservations,leases",
            "-A",
            "-o",
            "name",
        ])
    };
    let first = ControlPlane::new();
    let plane = reused(|plane| {
        plane.kubectl(&["create", "namespace", "team"]);
        plane.kubectl_apply(reservation);
        assert!(
            objects(plane).contains("ipreservation"),
            "{}",
            objects(plane)
        );
    });
    let plane = plane.expect("a control plane is used again");
    let names = |plane| {
        objects(plane)
            .lines()
            .filter(|name| !name.contains("/apiserver-"))
            .map(str::to_owned)
            .collect()
    };
    let (found, expected): (Vec<String>, Vec<String>) = (names(&plane), names(&first));
    assert_eq!(found, expected);
    plane.kubectl(&["create", "namespace", "team"]);
    plane.kubectl(&[
        "--kubeconfig",
        &plane.provider_kubeconfig().display().to_string(),
        "get",
        "ipreservations",
    ]);
}

#[test]
fn control_plane_with_a_changed_role_is_not_reused() {
    let plane = ControlPlane::new();
    plane.kubectl(&[
        "create",
        "clusterrole",
        "extra",
        "--verb=get",
        "--resource=secrets",
    ]);
    let server = plane.server().to_owned();
    drop(plane);
    assert_ne!(ControlPlane::new().server(), server);
}

/// Set for a test process that is started only to be killed.
const VICTIM: &str = "CONTROL_PLANE_TEST_VICTIM";

/// The killed process; does nothing in an ordinary run.
#[test]
fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let folder = TemporaryFolder::new("capi-ipam-victim-");
    let stubborn = ["-c", "trap '' TERM; while :; do sleep 1; done"];
    let program = Supervised::spawn(Path::new("sh"), &stubborn, &[], &folder.path().join("log"));
    println!("\nvictim {} {}", program.pid(), folder.path().display());
    sleep(Duration::from_mins(10));
}

#[test]
fn killed_test_leaves_no_process_or_folder() {
    let mut test = Command::new(std::env::current_exe().expect("a test knows its own program"))
        .args(["victim", "--exact", "--nocapture"])
        .env(VICTIM, "yes")
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can be started again");
    let mut lines = BufReader::new(test.stdout.take().expect("its output is a pipe"))
        .lines()
        .map_while(Result::ok);
    let line = lines
        .find(|line| line.starts_with("victim "))
        .expect("it prints its process id and folder");
    let mut words = line.split(' ').skip(1);
    let pid = words
        .next()
        .and_then(|pid| pid.parse().ok())
        .expect("the program's process id");
    let folder = Path::new(words.next().expect("the folder"));
    assert!(exists(pid) && folder.exists());
    test.kill().expect("it can be killed");
    test.wait().expect("it is a child of this process");
    eventually("the program is killed", || !exists(pid));
    eventually("the folder is removed", || !folder.exists());
}
