//! The last finalizer, taken off by several at once.

use capi_ipam::support::consumer::Consumer;
use capi_ipam_controller::client::CallError;
use capi_ipam_controller::finalizer;
use capi_ipam_provider::api::IPAddressClaim;
use futures::future::join_all;
use kube::ResourceExt;
use serde_json::{json, Value};

const FINALIZER: &str = "example.com/held";
const ROUNDS: usize = 50;

/// A claim that nobody here serves.
async fn claim(consumer: &Consumer, metadata: Value) -> Result<IPAddressClaim, CallError> {
    let pool = json!({"apiGroup": "example.com", "kind": "OtherPool", "name": "web"});
    consumer.try_claim_for("c", pool, metadata).await
}

/// The API server finds that no finalizer is left, and then deletes. Who comes late must not hit what was made between
/// the two.
#[tokio::test(flavor = "multi_thread")]
async fn a_successor_is_left_alone_by_who_comes_late() {
    let consumer = crate::consumer().await;
    let claims = consumer.claims();
    for round in 0..ROUNDS {
        claim(&consumer, json!({"finalizers": [FINALIZER]})).await.expect("a claim can be made");
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
        assert_eq!(there, successor, "the successor was deleted in round {round}");
        consumer.delete("c").await;
        consumer.gone("c").await;
    }
}
