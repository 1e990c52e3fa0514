//! Claims that cannot be bound yet.

use serde_json::json;

use super::rules::{Violation, check_reason};
use super::scene::Scene;

/// A claim for a pool that does not exist is bound when the pool is created.
pub(super) async fn missing_pool(scene: &Scene) -> Result<(), Violation> {
    scene.create_claim("early", json!({})).await;
    scene.refused("early").await?;
    scene.create_pool(json!(null)).await;
    scene.bound("early").await.map(drop)
}

/// A claim for a pool without a free address is bound when an address is released.
pub(super) async fn exhausted_pool(scene: &Scene) -> Result<(), Violation> {
    scene.create_pool(json!(null)).await;
    let names: Vec<_> = (0..scene.pool.addresses)
        .map(|number| format!("c{number}"))
        .collect();
    scene.create_claims(&names).await;
    scene.all_bound(&names).await?;
    scene.create_claim("late", json!({})).await;
    scene.refused("late").await?;
    scene
        .always(async || {
            let (claim, _) = scene.read("late").await?;
            claim.as_ref().map_or(Ok(()), check_reason)
        })
        .await?;
    scene.release("c1").await?;
    scene.bound("late").await?;
    scene
        .all_bound(&[&names[..1], &names[2..]].concat())
        .await
        .map(drop)
}
