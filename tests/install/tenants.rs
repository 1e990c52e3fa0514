//! The permissions of namespace users, and network access to the webhooks: the roles and the
//! optional components.

use std::{fs, path::Path};

use support::{clusterctl::documents, control_plane::kustomize, prelude::*};
use tempfile::TempDir;

const POOLS: [&str; 2] = ["inclusterippools", "inclusterprefixpools"];

/// A temporary kustomization with `config` beside it, as in the examples in `config`.
pub(super) fn overlay(kustomization: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder can be created");
    let root = folder.path();
    let overlay = root.join("overlay");
    fs::create_dir_all(&overlay).expect("a folder can be created");
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    for folder in fs::read_dir(config).expect("config can be read") {
        let folder = folder.expect("config can be read").path();
        let copy = root.join(folder.file_name().expect("a folder has a name"));
        fs::create_dir(&copy).expect("a folder can be created");
        for file in fs::read_dir(&folder).expect("config can be read") {
            let file = file.expect("config can be read").path();
            fs::copy(
                &file,
                copy.join(file.file_name().expect("a file has a name")),
            )
            .expect("a file can be copied");
        }
    }
    fs::write(overlay.join("kustomization.yaml"), kustomization).expect("a file can be written");
    folder
}

fn may(plane: &ControlPlane, user: &str, verb: &str, resource: &str, namespace: &str) -> bool {
    let (user, namespace) = (format!("--as={user}"), format!("--namespace={namespace}"));
    let resource = format!("{resource}.ipam.cluster.x-k8s.io");
    plane
        .try_kubectl(&["auth", "can-i", verb, &resource, &user, &namespace])
        .is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_editors_write_pools_only_after_opt_in() {
    let plane = ControlPlane::start(Options {
        controller_manager: true,
        ..Options::default()
    });
    for (role, user) in [("view", "viewer"), ("edit", "editor"), ("admin", "owner")] {
        plane.kubectl(&[
            "create",
            "rolebinding",
            role,
            &format!("--clusterrole={role}"),
            &format!("--user={user}"),
        ]);
    }
    let own_role = [
        "create",
        "rolebinding",
        "pools",
        "--clusterrole=capi-ipam-in-cluster-editor-role",
        "--user=keeper",
    ];
    plane.kubectl(&own_role);
    for user in ["viewer", "editor", "owner"] {
        eventually(
            "the roles are aggregated into those of Kubernetes",
            || async { may(&plane, user, "list", "inclusterippools", "default").then_some(()) },
        )
        .await;
        for pools in POOLS {
            assert!(may(&plane, user, "watch", pools, "default"));
            for verb in ["create", "update", "patch", "delete"] {
                assert!(
                    !may(&plane, user, verb, pools, "default"),
                    "{user} may {verb} {pools}"
                );
            }
        }
    }
    for verb in ["create", "update", "patch", "delete"] {
        assert!(
            POOLS
                .iter()
                .all(|pools| may(&plane, "keeper", verb, pools, "default")),
            "{verb}"
        );
        assert!(
            !may(&plane, "keeper", verb, "globalinclusterippools", "default"),
            "{verb}"
        );
    }

    let opted_in = overlay("resources: [../rbac]\ncomponents: [../pool-editors]\n");
    plane.kubectl(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "-k",
        &opted_in.path().join("overlay").display().to_string(),
    ]);
    for (user, pools) in [("editor", POOLS[0]), ("owner", POOLS[1])] {
        eventually("editors may write pools", || async {
            may(&plane, user, "create", pools, "default").then_some(())
        })
        .await;
    }
    assert!(!may(&plane, "viewer", "create", POOLS[0], "default"));
    assert!(!may(&plane, "editor", "create", POOLS[0], "kube-system"));
}

#[test]
fn network_policy_allows_only_api_servers_to_the_webhooks() {
    let component =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("config/network-policy/kustomization.yaml");
    let text = fs::read_to_string(component).expect("the component can be read");
    // The example in its comment.
    let example: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("#   "))
        .collect();
    let example = example.join("\n");
    let objects = documents(&kustomize(&overlay(&example).path().join("overlay")));
    let find = |kind: &str| -> Vec<&Value> {
        objects
            .iter()
            .filter(|object| object["kind"] == kind)
            .collect()
    };
    let ([policy], [deployment]) = (&find("NetworkPolicy")[..], &find("Deployment")[..]) else {
        panic!("the manifest has one policy and one Deployment")
    };
    let template = &deployment["spec"]["template"];
    let selector = policy["spec"]["podSelector"]["matchLabels"]
        .as_object()
        .expect("it selects");
    assert!(
        selector
            .iter()
            .all(|(label, value)| template["metadata"]["labels"][label] == *value),
        "{selector:?}"
    );
    let ports = template["spec"]["containers"][0]["ports"]
        .as_array()
        .expect("the container has ports");
    let ingress = policy["spec"]["ingress"]
        .as_array()
        .expect("the policy has rules");
    for rule in ingress {
        assert!(
            ports
                .iter()
                .any(|known| known["name"] == rule["ports"][0]["port"]),
            "{rule}"
        );
        assert!(
            rule["from"].as_array().is_some_and(|from| !from.is_empty()),
            "{rule} lets everybody in"
        );
    }
    assert_eq!(ingress[0]["ports"][0]["port"], "webhook-server");
    assert_eq!(
        ingress[0]["from"][1]["ipBlock"]["cidr"], "10.0.0.12/32",
        "the example replaces the addresses"
    );
    let plane = ControlPlane::new();
    plane.kubectl_apply(&policy.to_string());
    plane.kubectl(&[
        "-n",
        NAMESPACE,
        "get",
        "networkpolicy",
        "capi-ipam-in-cluster-controller-manager",
    ]);
}
