//! A manager whose watch of networks is late.

use capi_ipam_api::{IPRegistry, conditions};
use support::prelude::*;

use crate::lagging::Lagging;

/// A registry that only a new network names.
#[tokio::test(flavor = "multi_thread")]
async fn registry_of_a_new_network_is_kept() {
    let plane = ControlPlane::new();
    let lagging = Lagging::start(&plane).await;
    let manager = Manager::launch(&plane, lagging.kubeconfig(), &[]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let registry = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPRegistry",
        "metadata": {"name": "site"},
        "spec": {"clusterID": "west", "nats": {"servers": ["nats://127.0.0.1:1"], "bucket": "ipam"}},
    });
    plane.kubectl_apply(&registry.to_string());
    let registries: ResourceClient<IPRegistry> =
        ResourceClient::new(Api::all(consumer.client.clone()), &());
    eventually("the registry has its finalizer", || async {
        let found = registries.get("site").await.ok()??;
        (!found.finalizers().is_empty()).then_some(())
    })
    .await;

    lagging.hold_watches(&["ipnetworks"]);
    let blocks = json!({"registry": "site", "size": 64});
    let spec = json!({"namespaces": {"from": "All"}, "blocks": blocks});
    consumer.create_network("late", spec).await;
    plane.kubectl(&["delete", "ipregistries", "site", "--wait=false"]);
    let message = eventually("the status names the network", || async {
        let found = registries.get("site").await.ok()?.expect("it is kept");
        let list = found.status?.conditions;
        let ready = conditions::find(&list, conditions::READY)?;
        let is_reported = ready.reason.as_deref() == Some(conditions::DELETING);
        is_reported.then(|| ready.message.clone().unwrap_or_default())
    })
    .await;
    assert!(message.starts_with("used by IPNetwork late;"), "{message}");
}
