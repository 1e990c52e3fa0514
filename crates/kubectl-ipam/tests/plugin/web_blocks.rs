//! The blocks of a network on the page: with the records of a real hub, without the Secret, and while
//! the hub is away.

use capi_ipam_api::installed;
use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options, embedded_kubeconfig};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use super::browser::Browser;
use super::registry::{apply, block, cluster, hub, registry_of};
use super::web::Page;
use super::{create, definitions, manager, reference};

/// What the server says about the blocks of the network.
const BLOCKS: &str = "/api/blocks?network=region";

/// A user who may read everything of the provider, and no Secret.
const VIEWER: &str = "viewer";

/// Allows a user to read what the page shows.
fn create_viewer(plane: &ControlPlane) {
    let version = "rbac.authorization.k8s.io/v1";
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": version, "kind": "ClusterRole", "metadata": {"name": VIEWER},
        "rules": [
            {"apiGroups": ["ipam.cluster.x-k8s.io"], "resources": ["*"], "verbs": ["list", "watch"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]},
        ],
    });
    let binding = json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": VIEWER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": VIEWER},
        "subjects": [{"apiGroup": group, "kind": "User", "name": VIEWER}],
    });
    plane.kubectl_apply(&format!("{role}\n---\n{binding}"));
}

/// The states of the blocks that are not free.
fn states(shown: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in shown["blocks"].as_array().expect("a list") {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        found.push((text(&line["block"]), text(&line["state"])));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_shown_with_and_without_the_secret_of_the_registry() {
    let program = manager();
    let mut hub = hub();
    let registry = registry_of(&hub).await;
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let namespace = installed::NAMESPACE;
    plane.kubectl(&["create", "namespace", namespace]);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub", "namespace": namespace},
        "stringData": {"kubeconfig": embedded_kubeconfig(hub.kubeconfig())},
    });
    plane.kubectl_apply(&secret.to_string());
    let own_namespace = format!("--leader-election-namespace={namespace}");
    let flags = ["--webhook-port=0", own_namespace.as_str()];
    let running = Manager::start_program(&plane, &program, admin, &flags);
    running.wait_until_ready();
    block(&registry, "region", "10.40.0.64", "east", &[]).await;
    cluster(&registry, "east", true).await;
    let at_hub = json!({"clusterID": "west", "kubernetes": {"secretName": "hub"}});
    apply(&plane, "IPRegistry", "site", &at_hub);
    let shared = json!({"registry": "site", "size": 64, "spare": 0});
    let spec = json!({"namespaces": {"from": "All"}, "blocks": shared});
    apply(&plane, "IPNetwork", "region", &spec);
    let consumer = Consumer::new(&plane).await;
    let team = consumer.namespace.as_str();
    let spec = json!({"addresses": ["10.40.0.0/24"], "prefix": 24, "network": "region"});
    create(&plane, "InClusterIPPool", Some(team), "machines", &spec);
    let pool = reference("InClusterIPPool", "machines");
    consumer.create_claim_for("vm", pool, json!({})).await;
    consumer.wait_for_address("vm").await;

    let page = Page::start_with(admin, &[]).await;
    let expected = [("10.40.0.0/26", "Held"), ("10.40.0.64/26", "Other")]
        .map(|(label, state)| (label.to_owned(), state.to_owned()));
    let shown = eventually("the records of the registry", async || {
        let blocks = page.json(BLOCKS);
        (blocks["read"].is_string() && states(&blocks) == expected).then_some(blocks)
    })
    .await;
    assert_eq!(
        json!([
            shown["clusterID"],
            shown["total"],
            shown["unread"],
            shown["registry"]["exists"]
        ]),
        json!(["west", "4", null, true]),
        "{shown}"
    );
    assert_eq!(shown["blocks"][0]["used"], 1, "{shown}");
    let east = &shown["clusters"][0];
    assert_eq!(json!([east["cluster"], east["blocks"]]), json!(["east", 1]));

    // The page itself, which reads the registry again and again.
    let browser = Browser::start().await;
    browser.open(&page.address).await;
    browser
        .wait_for("document.querySelector('.networks').innerText.includes('1 of 4')")
        .await;
    browser.open(&page.view("network/region")).await;
    browser
        .wait_for(
            "document.querySelectorAll('.block-list tbody tr')[1]?.innerText.includes('east')",
        )
        .await;
    block(
        &registry,
        "region",
        "10.40.0.128",
        "north",
        &["<b>east</b>"],
    )
    .await;
    browser
        .wait_for("document.querySelectorAll('.block-list [data-kind=bad]').length === 1")
        .await;
    assert_eq!(
        browser
            .run("return document.querySelectorAll('main b').length")
            .await,
        json!(0)
    );
    assert_eq!(browser.log().await, "");
    browser.close().await;

    // Without the Secret: the own block, and the other clusters that the manager has reported.
    create_viewer(&plane);
    let viewer = Page::start_with(admin, &["--as", VIEWER]).await;
    let part = eventually("the blocks without the Secret", async || {
        let blocks = viewer.json(BLOCKS);
        let has_clusters = blocks["clusters"]
            .as_array()
            .is_some_and(|it| !it.is_empty());
        (blocks["unread"].is_string() && has_clusters).then_some(blocks)
    })
    .await;
    let reason = format!("you may not list secrets in the namespace {namespace}");
    let unread = part["unread"].as_str().unwrap_or_default();
    assert!(unread.starts_with(&reason), "{part}");
    assert_eq!(part["read"], Value::Null, "{part}");
    assert_eq!(states(&part), expected[..1], "{part}");
    assert_eq!(part["clusters"][0]["cluster"], "east", "{part}");

    // A registry that is away: the last known records, with their time.
    hub.stop_api_server();
    let last = eventually("the registry is away", async || {
        let blocks = page.json(BLOCKS);
        blocks["unread"].is_string().then_some(blocks)
    })
    .await;
    assert!(last["read"].is_string(), "{last}");
    assert_eq!(states(&last).len(), 3, "{last}");
}
