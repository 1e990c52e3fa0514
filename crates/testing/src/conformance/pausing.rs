//! Nothing is allocated or released while the claim, its pool or its Cluster is paused.

use std::time::Instant;

use serde_json::{Value, json};

use super::life_cycle::check_kept;
use super::rules::{Rule, Violation, describe, reports_paused};
use super::scene::Scene;
use crate::wait::pause;

/// The object that is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// `spec.paused` of the Cluster.
    Cluster,
    /// The annotation on the claim.
    Claim,
    /// The annotation on the pool.
    Pool,
}

/// A claim is not bound while it is paused from the start, and a bound claim is not released while
/// it is paused.
pub(super) async fn pausing(scene: &Scene, by: By) -> Result<(), Violation> {
    let annotation = json!({ "cluster.x-k8s.io/paused": "true" });
    // Paused before the claim is created, so that no provider can bind it in time.
    scene
        .consumer
        .create_cluster("alpha", by == By::Cluster)
        .await;
    scene
        .create_pool(if by == By::Pool {
            annotation.clone()
        } else {
            json!(null)
        })
        .await;
    let mut metadata = metadata_of_claim();
    if by == By::Claim {
        metadata["annotations"] = annotation;
    }
    scene.create_claim("paused", metadata).await;
    reported(scene, "paused").await?;
    scene
        .always(async || check_untouched(scene, "paused").await)
        .await?;
    set_paused(scene, by, false).await;
    let address = scene.bound("paused").await?;

    set_paused(scene, by, true).await;
    if by != By::Claim {
        wait_until_observed(scene).await?;
    }
    scene.consumer.delete("paused").await;
    scene
        .always(async || check_kept(scene, "paused", Rule::Paused).await)
        .await?;
    let (_, kept) = scene.read("paused").await?;
    if kept.is_none_or(|kept| kept.spec != address.spec) {
        return Err(Violation::new(
            Rule::Paused,
            "the IPAddress of the claim does not change",
            "it has changed",
        ));
    }
    set_paused(scene, by, false).await;
    scene.released("paused").await
}

fn metadata_of_claim() -> Value {
    json!({ "clusterName": "alpha", "labels": { "cluster.x-k8s.io/cluster-name": "alpha" } })
}

async fn set_paused(scene: &Scene, by: By, paused: bool) {
    let consumer = &scene.consumer;
    match by {
        By::Cluster => {
            let change = |cluster: &mut Value| cluster["spec"]["paused"] = json!(paused);
            consumer.modify(&consumer.clusters(), "alpha", change).await;
        }
        By::Claim => {
            consumer
                .set_paused(&consumer.claims(), "paused", paused)
                .await
        }
        By::Pool => {
            consumer
                .set_paused(&scene.pools(), &scene.pool_name(), paused)
                .await
        }
    }
}

/// Waits until a claim reports that it is paused.
async fn reported(scene: &Scene, name: &str) -> Result<(), Violation> {
    scene
        .until(async || {
            let expected = || format!("claim {name} has the condition Paused=True");
            let (claim, _) = scene.read(name).await?;
            match claim {
                Some(claim) if reports_paused(&claim) => Ok(()),
                claim => {
                    let seen = claim
                        .as_ref()
                        .map_or_else(|| "no claim".to_owned(), describe);
                    Err(Violation::new(Rule::Paused, expected(), seen))
                }
            }
        })
        .await
}

/// Checks that nothing is allocated for a claim.
async fn check_untouched(scene: &Scene, name: &str) -> Result<(), Violation> {
    let expected = || format!("claim {name} is not bound while it is paused");
    let (claim, address) = scene.read(name).await?;
    match claim {
        Some(claim) if claim.bound_address().is_none() && address.is_none() => Ok(()),
        claim => {
            let seen = claim
                .as_ref()
                .map_or_else(|| "no claim".to_owned(), describe);
            Err(Violation::new(
                Rule::Paused,
                expected(),
                format!("{seen}, IPAddress: {}", address.is_some()),
            ))
        }
    }
}

/// Waits until the provider has observed that the Cluster or the pool is paused: a new claim
/// reports it. A claim that the provider binds before is released again.
async fn wait_until_observed(scene: &Scene) -> Result<(), Violation> {
    for number in 0.. {
        let name = format!("probe-{number}");
        scene.create_claim(&name, metadata_of_claim()).await;
        let start = Instant::now();
        let is_paused = scene
            .until(async || {
                let expected = format!("claim {name} has the condition Paused=True");
                let (claim, _) = scene.read(&name).await?;
                match claim {
                    Some(claim) if reports_paused(&claim) => Ok(true),
                    Some(claim) if claim.bound_address().is_some() => Ok(false),
                    claim => {
                        let seen = claim
                            .as_ref()
                            .map_or_else(|| "no claim".to_owned(), describe);
                        Err(Violation::new(Rule::Paused, expected, seen))
                    }
                }
            })
            .await?;
        if is_paused {
            break;
        }
        // It may be deleted after the provider has observed the pause: it is removed later.
        scene.consumer.delete(&name).await;
        if number > 50 {
            let expected = "the provider observes that the Cluster or the pool is paused";
            return Err(Violation::new(
                Rule::Paused,
                expected,
                "it binds new claims",
            ));
        }
        pause(start).await;
    }
    Ok(())
}
