//! `plan` and `adopt`, with the definitions of Cluster API.

use std::path::{Path, PathBuf};

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options, ensure};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::ports::free_port;
use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use super::{commands, create, definitions, json_of, manager, reference, run, shell};

const PAGE: &str = include_str!("../../../../docs/kubectl-ipam.md");

/// The definitions of what creates Machines, in the folders of Cluster API.
const WORKLOADS: [&str; 4] = [
    "core/config/crd/bases/cluster.x-k8s.io_machinedeployments.yaml",
    "core/config/crd/bases/cluster.x-k8s.io_machinepools.yaml",
    "core/config/crd/bases/cluster.x-k8s.io_machinesets.yaml",
    "controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml",
];

fn installation() -> Installation {
    let bases = PathBuf::from(ensure(&["crds"]));
    let root = bases.ancestors().nth(4).expect("the folder of Cluster API");
    let mut documents = vec![definitions()];
    for file in WORKLOADS {
        let text = std::fs::read_to_string(root.join(file));
        documents.push(text.expect("the definition can be read"));
    }
    Installation::of(documents.join("\n---\n"))
}

fn object(namespace: &str, kind: &str, name: &str, spec: &Value) -> Value {
    let group = match kind {
        "KubeadmControlPlane" => "controlplane.cluster.x-k8s.io",
        _ => "cluster.x-k8s.io",
    };
    json!({
        "apiVersion": format!("{group}/v1beta2"), "kind": kind, "spec": spec,
        "metadata": { "name": name, "namespace": namespace, "labels": { "cluster.x-k8s.io/cluster-name": "prod" } },
    })
}

fn infrastructure(name: &str) -> Value {
    json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "VSphereMachine", "name": name })
}

/// A specification with a template of Machines.
fn of_machines(spec: &Value) -> Value {
    let template = json!({ "spec": {
        "clusterName": "prod", "bootstrap": { "dataSecretName": "b" }, "infrastructureRef": infrastructure("t"),
    } });
    let mut merged = json!({ "clusterName": "prod", "template": template });
    for (name, value) in spec.as_object().expect("fields") {
        merged[name] = value.clone();
    }
    merged
}

/// A Machine of an object with this kind, and its claim.
async fn machine(
    plane: &ControlPlane,
    consumer: &Consumer,
    name: &str,
    owner: (&str, &str),
    claims: &[&str],
) {
    let namespace = &consumer.namespace;
    let spec = json!({ "clusterName": "prod", "bootstrap": { "dataSecretName": "b" },
                       "infrastructureRef": infrastructure(name) });
    let mut machine = object(namespace, "Machine", name, &spec);
    let (kind, owner) = owner;
    if kind == "MachineDeployment" {
        machine["metadata"]["labels"]["cluster.x-k8s.io/deployment-name"] = json!(owner);
    } else {
        let version = "controlplane.cluster.x-k8s.io/v1beta2";
        machine["metadata"]["ownerReferences"] = json!([{
            "apiVersion": version, "kind": kind, "name": owner, "controller": true,
            "uid": "00000000-0000-4000-8000-000000000000",
        }]);
    }
    plane.kubectl_apply(&machine.to_string());
    let owner = json!([{
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereVM", "name": name,
        "uid": "00000000-0000-4000-8000-000000000000",
    }]);
    for claim in claims {
        let metadata = json!({ "ownerReferences": owner });
        let pool = reference("InClusterIPPool", "web");
        consumer.create_claim_for(claim, pool, metadata).await;
        consumer.wait_for_address(claim).await;
    }
}

#[tokio::test]
async fn rollout_is_planned_and_addresses_are_adopted() {
    let program = manager();
    let plane = ControlPlane::start(Options::default(), &installation());
    let admin = plane.kubeconfig();
    let manager = Manager::start_program(&plane, &program, admin, &["--webhook-port=0"]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.16"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(namespace), "web", &spec);
    let kubeadm = json!({ "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "cp" });
    let selector = json!({ "matchLabels": { "a": "b" } });
    let surge =
        json!({ "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "50%" } } });
    let template = json!({ "spec": { "infrastructureRef": infrastructure("t") } });
    for (kind, name, spec) in [
        ("Cluster", "prod", json!({ "controlPlaneRef": kubeadm })),
        (
            "KubeadmControlPlane",
            "cp",
            json!({ "replicas": 1, "version": "v1.34.0", "machineTemplate": template }),
        ),
        (
            "MachineDeployment",
            "workers",
            of_machines(&json!({ "replicas": 2, "selector": selector, "rollout": surge })),
        ),
        (
            "MachineSet",
            "alone",
            of_machines(&json!({ "replicas": 4, "selector": selector })),
        ),
        (
            "MachinePool",
            "pool",
            of_machines(&json!({ "replicas": 1 })),
        ),
    ] {
        plane.kubectl_apply(&object(namespace, kind, name, &spec).to_string());
    }
    let control_plane = ("KubeadmControlPlane", "cp");
    machine(&plane, &consumer, "cp-1", control_plane, &["cp-1-0"]).await;
    let deployment = ("MachineDeployment", "workers");
    machine(&plane, &consumer, "md-1", deployment, &["md-1-0"]).await;
    machine(&plane, &consumer, "md-2", deployment, &["md-2-0"]).await;

    the_plan_counts_what_is_free(admin, namespace);
    the_manager_exports_the_plan(&plane, &program, namespace).await;
    plane.kubectl(&[
        "config",
        "set-context",
        "--current",
        "--namespace",
        namespace,
    ]);
    let documented = commands(PAGE, "## Room for a rollout");
    let (code, output) = shell(&plane, &documented[0]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("is short of 24 addresses"), "{output}");
    permissions_of_the_plan_are_named(&plane, &consumer).await;
    reported_addresses_are_adopted(&plane, &consumer).await;
}

/// A second manager, with the permissions of the component.
async fn the_manager_exports_the_plan(plane: &ControlPlane, program: &Path, namespace: &str) {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config");
    for file in ["role.yaml", "role_binding.yaml"] {
        plane.kubectl(&["apply", "-f", &format!("{config}/rollout-metrics/{file}")]);
    }
    let user = "--as=system:serviceaccount:capi-ipam-in-cluster-system:capi-ipam-in-cluster-controller-manager";
    for plural in [
        "machinepools.cluster.x-k8s.io",
        "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io",
    ] {
        let answer = plane.kubectl(&["auth", "can-i", "list", plural, "--all-namespaces", user]);
        assert_eq!(answer.trim(), "yes", "{plural}");
    }
    let address = format!("127.0.0.1:{}", free_port());
    let flags = [
        "--webhook-port=0",
        "--rollout-metrics",
        "--insecure-diagnostics",
        &format!("--diagnostics-address={address}"),
    ];
    let _second = Manager::start_program(plane, program, plane.kubeconfig(), &flags);
    let server = format!("--server=http://{address}");
    let series = |state: &str, count: u32| {
        let labels =
            format!(r#"kind="InClusterIPPool",namespace="{namespace}",pool="web",state="{state}""#);
        format!("capi_ipam_pool_planned_addresses{{{labels}}} {count}\n")
    };
    eventually("the plan is exported", async || {
        let metrics = plane
            .try_kubectl(&["get", "--raw", "/metrics", &server])
            .ok()?;
        let is_exported =
            metrics.contains(&series("needed", 2)) && metrics.contains(&series("missing", 0));
        is_exported.then_some(())
    })
    .await;
}

/// Seven addresses, three of them in use. The control plane needs one more, the deployment too.
fn the_plan_counts_what_is_free(admin: &Path, namespace: &str) {
    let (code, output, errors) = run(admin, &["plan", "-n", namespace]);
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
    let table = "\
KIND                 NAME     MACHINES  POOL                EACH  NEEDED  HELD  SHORT
KubeadmControlPlane  cp       1+1       IP/web              1     2       1     0
MachineDeployment    workers  2+1       IP/web              1     3       2     0
MachineSet           alone    4         no claims observed
MachinePool          pool     1         no claims observed
";
    assert_eq!(output, table);
    let of_deployment = [
        "plan",
        "-n",
        namespace,
        "--machine-deployment",
        "workers",
        "--replicas",
    ];
    let planned = json_of(admin, &[&of_deployment[..], &["4"]].concat());
    assert_eq!(planned["items"][0]["addresses"]["needed"], 6);
    assert_eq!(
        planned["pools"][0],
        json!({ "free": 4, "needed": 4, "short": 0, "pool": {
        "kind": "InClusterIPPool", "namespace": namespace, "name": "web" } })
    );
    let (code, output, errors) = run(admin, &[&of_deployment[..], &["10"]].concat());
    assert_eq!((code, errors.as_str()), (1, ""));
    let short =
        "InClusterIPPool NAMESPACE/web is short of 9 addresses: 13 needed in addition, 4 free";
    let short = short.replace("NAMESPACE", namespace);
    assert!(output.contains(&short), "{output}");
    let (code, _, errors) = run(
        admin,
        &["plan", "-n", namespace, "--machine-deployment", "none"],
    );
    assert_eq!(code, 6, "{errors}");
}

async fn permissions_of_the_plan_are_named(plane: &ControlPlane, consumer: &Consumer) {
    let (namespace, admin) = (&consumer.namespace, plane.kubeconfig());
    let user = ["plan", "-n", namespace, "--as", "planner"];
    let (code, output, errors) = run(admin, &user);
    assert_eq!((code, output.as_str()), (4, ""), "{errors}");
    let resources = "clusters.cluster.x-k8s.io,machinedeployments.cluster.x-k8s.io,machines.cluster.x-k8s.io,\
                     ipaddressclaims.ipam.cluster.x-k8s.io,ipaddresses.ipam.cluster.x-k8s.io,\
                     inclusterippools.ipam.cluster.x-k8s.io,ipreservations.ipam.cluster.x-k8s.io";
    let resources = format!("--resource={resources}");
    plane.kubectl(&[
        "create",
        "clusterrole",
        "planner",
        "--verb=list",
        &resources,
    ]);
    plane.kubectl(&[
        "create",
        "clusterrolebinding",
        "planner",
        "--clusterrole=planner",
        "--user=planner",
    ]);
    // The API server uses a new role with a delay. What may be read is planned.
    eventually("the deployment is planned", async || {
        let (code, output, errors) = run(admin, &user);
        let is_planned =
            output.contains("MachineDeployment") && !output.contains("KubeadmControlPlane");
        (code == 4 && is_planned && errors.contains("machinesets")).then_some(())
    })
    .await;
    let of_deployment = [&user[..], &["--machine-deployment", "workers"]].concat();
    let (code, output, errors) = run(admin, &of_deployment);
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
}

/// The IPAddress of a Machine is lost, and other Machines were created before the pool.
async fn reported_addresses_are_adopted(plane: &ControlPlane, consumer: &Consumer) {
    let (namespace, admin) = (consumer.namespace.as_str(), plane.kubeconfig());
    let deployment = ("MachineDeployment", "workers");
    machine(plane, consumer, "old-1", deployment, &[]).await;
    machine(plane, consumer, "old-2", deployment, &[]).await;
    for (name, addresses) in [
        ("md-1", ["10.0.0.11", "node.example.com"]),
        ("old-1", ["10.0.0.15", "10.9.9.9"]),
        ("old-2", ["10.0.0.14", "old-2"]),
    ] {
        let addresses = addresses.map(|it| json!({ "type": "InternalIP", "address": it }));
        let status = json!({ "status": { "addresses": addresses } }).to_string();
        let patch = [
            "patch",
            "machine",
            name,
            "-n",
            namespace,
            "--subresource=status",
            "--type=merge",
            "-p",
            &status,
        ];
        plane.kubectl(&patch);
    }
    let (code, output, errors) = run(admin, &["adopt", "-n", namespace]);
    assert_eq!((code, output.as_str()), (8, ""), "{errors}");
    assert!(errors.contains("write --claim-name"), "{errors}");
    let adopt = ["adopt", "-n", namespace, "--claim-name", "{machine}-0-0"];
    let (code, output, errors) = run(admin, &adopt);
    let unmatched =
        "warning: 10.9.9.9 of Machine NAMESPACE/old-1 is in no pool that the Machine can use\n";
    assert_eq!(
        (code, errors),
        (8, unmatched.replace("NAMESPACE", namespace))
    );
    assert_eq!(output.matches("kind: IPReservation").count(), 2, "{output}");
    let label = "ipam.cluster.x-k8s.io/source: adopt";
    assert_eq!(output.matches(label).count(), 2, "{output}");
    let status =
        json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.15" }] } });
    let patch = [
        "patch",
        "machine",
        "old-1",
        "-n",
        namespace,
        "--subresource=status",
        "--type=merge",
        "-p",
    ];
    plane.kubectl(&[&patch[..], &[&status.to_string()]].concat());
    let documented = commands(PAGE, "## Addresses without an IPAddress");
    let (code, applied) = shell(plane, &documented[0].replace("team-a", namespace));
    assert_eq!(code, Some(0), "{applied}");
    assert_eq!(applied.matches(" created\n").count(), 2, "{applied}");
    assert_eq!(run(admin, &adopt).1, "", "they are not written again");
    // The claim that comes gets the address of its Machine.
    for (claim, address) in [("old-2-0-0", "10.0.0.14"), ("old-1-0-0", "10.0.0.15")] {
        let pool = reference("InClusterIPPool", "web");
        consumer.create_claim_for(claim, pool, json!({})).await;
        assert_eq!(consumer.wait_for_address(claim).await, address);
    }
    let (code, deleted) = shell(plane, &documented[1]);
    assert_eq!(code, Some(0), "{deleted}");
    assert_eq!(deleted.matches(" deleted").count(), 2, "{deleted}");
}
