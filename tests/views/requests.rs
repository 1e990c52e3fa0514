//! Claims that request the same address, with two managers that both serve all claims.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use support::consumer::{Consumer, ready};
use support::control_plane::{ControlPlane, Options};
use support::manager::Manager;
use support::wait::eventually_within;

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_claims_gets_the_requested_address() {
    let plane = ControlPlane::start(Options::default());
    let consumer = Consumer::new(&plane).await;
    let _managers = [Manager::start(&plane, &[]), Manager::start(&plane, &[])];
    let policy = json!({"requests": true, "sticky": true});
    let spec = json!({"addresses": ["10.0.0.0/24"], "prefix": 24, "allocation": policy});
    consumer.create_pool("pool", spec).await;
    let mut names: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
    let request = json!({"annotations": {"ipam.cluster.x-k8s.io/requested-address": "10.0.0.77"}});
    let create =
        |name| consumer.create_claim_with(name, "InClusterIPPool", "pool", request.clone());
    join_all(names.iter().map(|name| create(name))).await;
    while !names.is_empty() {
        eventually_within(
            Duration::from_mins(3),
            "one claim is bound, and the others wait",
            || async {
                let addresses = consumer.allocated_addresses().await;
                assert!(
                    addresses.len() <= 1
                        && addresses.values().all(|address| address == "10.0.0.77"),
                    "{addresses:?}"
                );
                let claims = consumer.claims().list().await.ok()?;
                let waiting = |claim: &&_| {
                    ready(claim).reason.as_deref() == Some("RequestedAddressUnavailable")
                };
                let count = claims.iter().filter(waiting).count();
                (addresses.len() == 1 && count + 1 == names.len()).then_some(())
            },
        )
        .await;
        let bound: Vec<String> = consumer.allocated_addresses().await.into_keys().collect();
        consumer.release(&bound[0]).await;
        names.retain(|name| *name != bound[0]);
    }
}
