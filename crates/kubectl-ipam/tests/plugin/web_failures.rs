//! The page when something is broken: it says in one banner what, and since when.

use std::net::TcpListener;
use std::process::Command;

use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::browser::Browser;
use super::web::Page;
use super::{create, definitions, run};

/// Writes the lease of the manager, renewed some seconds ago.
fn renew(plane: &ControlPlane, seconds_ago: i64) {
    let renewed = Timestamp::now()
        .checked_sub(SignedDuration::from_secs(seconds_ago))
        .expect("a time");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "7bb7acb4.ipam.cluster.x-k8s.io", "namespace": "default" },
        "spec": { "holderIdentity": "manager-1", "leaseDurationSeconds": 15,
                  "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string() },
    });
    plane.kubectl_apply(&lease.to_string());
}

fn create_pools(plane: &ControlPlane) {
    for namespace in ["lab", "other"] {
        plane.kubectl(&["create", "namespace", namespace]);
        let spec = json!({ "addresses": ["10.0.0.10-10.0.0.19"], "prefix": 24 });
        create(plane, "InClusterIPPool", Some(namespace), "web", &spec);
    }
}

/// Sends a signal to the API server, which is the first program of a control plane.
fn signal_api_server(plane: &ControlPlane, signal: &str) {
    let pid = plane.pids()[0].to_string();
    let status = Command::new("kill").args([signal, &pid]).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{signal} {pid}"
    );
}

/// Waits until the badge and the only banner have these texts.
async fn tells(browser: &Browser, badge: &str, banner: &str) {
    let is_badge = format!("document.querySelector('#live').innerText === '{badge}'");
    let is_banner = format!(
        "document.querySelectorAll('.notice').length === 1 && document.querySelector('.notice').innerText.includes('{banner}')"
    );
    browser
        .wait_for(&format!("{is_badge} && {is_banner}"))
        .await;
}

const IS_WELL: &str =
    "document.querySelector('#live').innerText === 'Live' && !document.querySelector('.notice')";

#[tokio::test(flavor = "multi_thread")]
async fn page_says_what_is_broken_in_one_banner() {
    let mut plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    create_pools(&plane);
    renew(&plane, 600);
    let mut page = Page::start_with(plane.kubeconfig(), &[]).await;
    let browser = Browser::start().await;
    browser.resize(390, 844).await;

    // No manager: the states are not current.
    browser.open(&page.address).await;
    tells(&browser, "Live", "No manager runs since ").await;
    browser
        .wait_for("document.documentElement.hasAttribute('data-stale')")
        .await;
    renew(&plane, 0);
    browser.wait_for(IS_WELL).await;

    // Without an API server the page keeps what it has shown.
    plane.stop_api_server();
    tells(&browser, "Stale", "refuses connections since ").await;
    tells(&browser, "Stale", "You see the state of ").await;
    let shown = "document.querySelectorAll('.pools tbody tr').length === 2";
    browser.wait_for(shown).await;
    let height = browser
        .run("return document.querySelector('#notices').offsetHeight")
        .await;
    assert!(
        height.as_u64().is_some_and(|height| height < 844 / 4),
        "the banner takes {height} pixels of a phone"
    );
    plane.start_api_server();
    renew(&plane, 0);
    browser.wait_for(IS_WELL).await;

    // A frozen API server keeps its connections.
    signal_api_server(&plane, "-STOP");
    tells(&browser, "Stale", "does not answer since ").await;
    signal_api_server(&plane, "-CONT");
    renew(&plane, 0);
    browser.wait_for(IS_WELL).await;

    // The end of the command.
    page.process.kill();
    tells(&browser, "Ended", "Run kubectl ipam web again").await;
    browser.wait_for(shown).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_lists_missing_permissions_and_keeps_to_a_namespace() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    create_pools(&plane);
    renew(&plane, 0);
    let browser = Browser::start().await;
    let page = Page::start_with(plane.kubeconfig(), &["--as=nobody"]).await;
    browser.open(&page.address).await;
    tells(&browser, "Live", "permissions are missing").await;
    browser
        .wait_for("document.querySelectorAll('.notice li').length === 12")
        .await;
    browser
        .wait_for(
            "document.querySelector('#manager').innerText.includes('you may not list leases')",
        )
        .await;
    browser
        .wait_for("document.querySelector('.empty').innerText.includes('It is unknown whether there are pools')")
        .await;

    let page = Page::start_with(plane.kubeconfig(), &["--namespace=lab"]).await;
    browser.open(&page.address).await;
    browser
        .wait_for("document.querySelector('#scope').innerText === 'Namespace lab'")
        .await;
    browser
        .wait_for("[...document.querySelectorAll('.pools .name')].map((link) => link.innerText).join() === 'lab/web'")
        .await;
    browser.close().await;
}

#[tokio::test]
async fn port_in_use_is_reported_with_the_flag() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let flag = format!("--port={port}");
    let (code, _, errors) = run(plane.kubeconfig(), &["web", "--no-open", &flag]);
    assert_eq!(code, 2, "{errors}");
    assert!(
        errors.contains("choose another port with --port"),
        "{errors}"
    );
}
