//! Concurrent removals of the last finalizer.

use capi_ipam_controller::{client::CallError, finalizer};
use support::prelude::*;

const FINALIZER: &str = "example.com/held";
const ROUNDS: usize = 50;

/// Creates a claim that no manager serves.
async fn claim(consumer: &Consumer, metadata: Value) -> Result<IPAddressClaim, CallError> {
    let pool = json!({"apiGroup": "example.com", "kind": "OtherPool", "name": "web"});
    consumer.try_create_claim_for("c", pool, metadata).await
}

/// The API server finds that no finalizer is left, and then deletes the object. A late request must
/// not affect an object that was created between the two steps.
#[tokio::test(flavor = "multi_thread")]
async fn late_finalizer_removal_does_not_delete_a_new_claim() {
    let consumer = crate::consumer().await;
    let claims = consumer.claims();
    for round in 0..ROUNDS {
        claim(&consumer, json!({"finalizers": [FINALIZER]}))
            .await
            .expect("a claim can be created");
        consumer.delete("c").await;
        let deleted = claims.get("c").await.unwrap().expect("the claim is held");
        let at_once = (0..4).map(|_| finalizer::remove(&claims, &deleted, FINALIZER));
        let successor = async {
            loop {
                if let Ok(made) = claim(&consumer, json!({})).await {
                    return made.uid();
                }
            }
        };
        let (_, successor) = futures::join!(join_all(at_once), successor);
        let there = claims.get("c").await.unwrap().and_then(|claim| claim.uid());
        assert_eq!(
            there, successor,
            "the successor was deleted in round {round}"
        );
        consumer.delete("c").await;
        consumer.wait_until_deleted("c").await;
    }
}
