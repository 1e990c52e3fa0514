//! Claims get addresses, the right ones, and give them back.

use std::collections::HashSet;

use serde_json::json;

use crate::consumer;
use crate::support::consumer::unique;

#[tokio::test]
async fn the_lowest_address_comes_first_and_comes_back() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24, "gateway": "10.0.0.1"})).await;
    consumer.claim("a", "web").await;
    let address = consumer.bound_address("a").await;
    assert_eq!((address.spec.address.as_str(), address.spec.prefix), ("10.0.0.10", 24));
    assert_eq!(address.spec.gateway.as_deref(), Some("10.0.0.1"));
    consumer.counts("web", (3, 2, 1, 0)).await;

    consumer.claim("b", "web").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.11");
    consumer.release("a").await;
    consumer.claim("c", "web").await;
    assert_eq!(consumer.bound("c").await, "10.0.0.10");
    consumer.release("b").await;
    consumer.release("c").await;
    consumer.counts("web", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn two_namespaces_share_a_global_pool() {
    let (one, two) = (consumer().await, consumer().await);
    let pool = unique("shared");
    one.global_pool(&pool, json!({"addresses": ["fd00:1::/64"], "prefix": 64})).await;
    one.global_claim("a", &pool).await;
    two.global_claim("a", &pool).await;
    let addresses = HashSet::from([one.bound("a").await, two.bound("a").await]);
    assert_eq!(addresses, HashSet::from(["fd00:1::1".to_owned(), "fd00:1::2".to_owned()]));
    one.release("a").await;
    two.release("a").await;
}
