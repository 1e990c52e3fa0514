//! Claims that request the same address, with two managers that both serve all claims.

use support::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_claims_gets_the_requested_address() {
    let (plane, consumer) = scene().await;
    let _managers = [Manager::start(&plane, &[]), Manager::start(&plane, &[])];
    let policy = json!({"requests": true, "sticky": true});
    consumer
        .create_pool("pool", ("10.0.0.0/24", json!({"allocation": policy})))
        .await;
    let mut names: Vec<String> = numbered("c", 12);
    let request = json!({"annotations": {"ipam.cluster.x-k8s.io/requested-address": "10.0.0.77"}});
    let create = |name| consumer.create_claim_with_metadata(name, "pool", request.clone());
    join_all(names.iter().map(|name| create(name))).await;
    while !names.is_empty() {
        until_within(
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
                Some(addresses.len() == 1 && count + 1 == names.len())
            },
        )
        .await;
        let bound: Vec<String> = consumer.allocated_addresses().await.into_keys().collect();
        consumer.release(&bound[0]).await;
        names.retain(|name| *name != bound[0]);
    }
}
