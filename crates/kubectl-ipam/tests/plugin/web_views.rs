//! Views of the page: networks, slices, pools of IPv6, and parts of addresses.

use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use serde_json::json;

use super::browser::Browser;
use super::web::Page;
use super::{create, definitions};

#[tokio::test(flavor = "multi_thread")]
async fn networks_slices_and_large_pools_are_shown() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let version = "ipam.cluster.x-k8s.io/v1alpha2";
    let namespaces = json!({ "from": "All" });
    let network = json!({ "apiVersion": version, "kind": "IPNetwork", "metadata": { "name": "lan" },
                          "spec": { "namespaces": namespaces } });
    plane.kubectl_apply(&network.to_string());
    let slices = json!({ "size": 16, "per": "Label", "label": "rack" });
    let spec = json!({ "addresses": ["10.50.0.0/26"], "prefix": 24, "network": "lan", "slices": slices,
                       "allocation": { "order": "Random" } });
    create(&plane, "InClusterIPPool", Some("default"), "racks", &spec);
    let slice = json!({
           "apiVersion": version, "kind": "IPSlice", "metadata": { "name": "p.default.racks.10.50.0.32-28" },
           "spec": { "scope": "p.default.racks", "block": "10.50.0.32/28", "owner": { "kind": "Label", "name": "r2" },
    },
       });
    plane.kubectl_apply(&slice.to_string());
    let spec =
        json!({ "addresses": ["fd00::/64"], "prefix": 64, "allocateReservedIPAddresses": true });
    create(&plane, "GlobalInClusterIPPool", None, "six", &spec);
    let page = Page::start_with(plane.kubeconfig(), &[]).await;
    let browser = Browser::start().await;

    browser.open(&page.address).await;
    browser
        .wait_for("document.querySelector('.networks .name').innerText === 'lan'")
        .await;
    browser
        .run("document.querySelector('.networks .name').click()")
        .await;
    browser
        .wait_for("document.querySelector('.network .pools .name').innerText === 'default/racks'")
        .await;
    browser
        .run("document.querySelector('.network .pools .name').click()")
        .await;
    browser
        .wait_for("document.querySelector('.slices').textContent.includes('Label r2')")
        .await;
    browser
        .wait_for("document.querySelectorAll('.map .cell.slice').length === 4")
        .await;
    for fact in [
        "Order",
        "random",
        "Slices",
        "16 addresses for each value of the label rack",
        "Network",
        "lan",
    ] {
        browser
            .wait_for(&format!(
                "document.querySelector('.facts').innerText.includes('{fact}')"
            ))
            .await;
    }

    // A pool that no map could show: its numbers are exact.
    browser
        .open(&page.view("pool/GlobalInClusterIPPool/-/six"))
        .await;
    browser
        .wait_for("document.querySelector('.counts').innerText.includes('2⁶⁴')")
        .await;
    browser
        .wait_for("[...document.querySelectorAll('.row-label')].every((label) => label.scrollWidth <= label.clientWidth)")
        .await;

    // A part of an address finds pools while it is typed.
    browser.press("/10.50").await;
    browser
        .wait_for("document.querySelector('.matches').innerText.includes('default/racks')")
        .await;
    assert_eq!(browser.log().await, "");
    browser.close().await;
}
