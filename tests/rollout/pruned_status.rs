//! Definitions that lack fields of the status which the manager writes: the API server does not
//! store such fields.

use support::prelude::*;

use crate::stored_versions::change_definition;

/// How often the objects are changed in a way that triggers a reconcile and does not concern their
/// status.
const CHANGES: usize = 8;

/// Serves only the version `served`, without a field of the status.
fn drop_status_field(plane: &ControlPlane, definition: &str, served: &str, field: &str) {
    change_definition(plane, definition, |versions| {
        for version in versions.as_array_mut().expect("there are versions") {
            let is_served = version["name"] == served;
            version["served"] = json!(is_served);
            version["storage"] = json!(is_served);
            let status = &mut version["schema"]["openAPIV3Schema"]["properties"]["status"];
            let schema = status.as_object_mut().expect("there is a status");
            // It must not contain a field that is not stored.
            schema.remove("default");
            let fields = status["properties"].as_object_mut();
            fields.expect("the status has fields").remove(field);
        }
    });
}

/// The number of writes of the status of an object by the manager.
fn status_writes(plane: &ControlPlane, resource: &str, name: &str) -> usize {
    let all = plane.provider_requests();
    let is_write = |verb: &str| ["patch", "update"].contains(&verb);
    all.iter()
        .filter(|one| is_write(&one.verb) && one.resource == resource && one.name == name)
        .count()
}

async fn label<K>(
    consumer: &Consumer,
    client: &capi_ipam_controller::client::ResourceClient<K>,
    name: &str,
) where
    K: capi_ipam_controller::client::ApiObject,
{
    let label = unique("l");
    consumer
        .modify(client, name, |object: &mut Value| {
            object["metadata"]["labels"] = json!({"touched": label})
        })
        .await;
}

/// Cluster API v1.16 serves only v1beta2, and without `status.deprecated`.
#[tokio::test(flavor = "multi_thread")]
async fn field_that_is_not_stored_is_written_once() {
    let plane = ControlPlane::start(Options {
        audit: true,
        ..Options::default()
    });
    drop_status_field(
        &plane,
        "ipaddressclaims.ipam.cluster.x-k8s.io",
        "v1beta2",
        "deprecated",
    );
    drop_status_field(
        &plane,
        "inclusterippools.ipam.cluster.x-k8s.io",
        "v1alpha2",
        "observedGeneration",
    );
    let _manager = Manager::start(&plane, &[]);
    let consumer = Consumer::new(&plane).await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
    consumer.claim_waits("b", "web", "PoolExhausted").await;
    consumer.wait_for_counts("web", (1, 0, 1, 0)).await;
    for _ in 0..CHANGES {
        label(&consumer, &consumer.claims(), "b").await;
        label(&consumer, &consumer.pools(), "web").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let events: Vec<_> = consumer
        .events("b")
        .await
        .into_iter()
        .filter(|event| event.1 == "PoolExhausted")
        .collect();
    // The claim is served, so its last change was observed.
    consumer.release("a").await;
    consumer.assert_address("b", "10.0.0.1").await;
    // The API server writes its audit log late. A reconcile that wrote would have written the
    // status at each change.
    until("the audit log has the writes", async || {
        Some(status_writes(&plane, "ipaddressclaims/status", "b") >= 2)
    })
    .await;
    let of_claim = status_writes(&plane, "ipaddressclaims/status", "b");
    assert!(
        of_claim <= 4,
        "{of_claim} writes of the status of a claim that waits and is bound"
    );
    assert!(events.len() <= 2, "{events:?}");
    let of_pool = status_writes(&plane, "inclusterippools/status", "web");
    assert!(
        of_pool < CHANGES,
        "{of_pool} writes of the status of the pool"
    );
}
