//! The API server is stopped, and the program is stopped or killed while it is idle.

use std::time::{Duration, Instant};

use serde_json::json;

use super::program::{Environment, wait_until_ready};
use super::rules::{Rule, Violation, describe_address};
use super::scene::Scene;
use crate::control_plane::ProviderRequest;
use crate::patience::Patience;

/// How long the API server is stopped, without its start.
const OUTAGE: Duration = Duration::from_secs(2);
/// How long no write happens before a restart. On a loaded machine there can be seconds between two
/// writes.
const SETTLED: Duration = Duration::from_secs(5);
/// How long no write may happen after a restart.
const QUIET: Duration = Duration::from_secs(2);
/// How often the writes are counted meanwhile.
const INTERVAL: Duration = Duration::from_millis(300);
/// The maximum time until no write happens.
const QUIET_TIMEOUT: Duration = Duration::from_mins(2);
/// The maximum time until a standby is ready. Some programs are not ready as standbys.
const STANDBY_TIMEOUT: Duration = Duration::from_secs(3);

/// The provider continues after an outage of the API server.
pub(super) async fn outage(
    environment: &mut Environment<'_>,
    scene: &Scene,
) -> Result<(), Violation> {
    scene.create_pool(json!(null)).await;
    scene.create_claim("before", json!({})).await;
    let before = scene.bound("before").await?;
    // They are in progress when the API server is killed.
    let during = ["during-0", "during-1"].map(str::to_owned);
    scene.create_claims(&during).await;
    environment.plane.stop_api_server();
    tokio::time::sleep(OUTAGE).await;
    environment.check_running()?;
    environment.plane.start_api_server();
    scene.all_bound(&during).await?;
    scene.create_claim("after", json!({})).await;
    scene.bound("after").await?;
    let now = scene.bound("before").await?;
    if now.spec != before.spec {
        let expected = format!("claim before keeps the address {}", before.spec.address);
        return Err(Violation::new(
            Rule::Lasting,
            expected,
            describe_address(&now),
        ));
    }
    scene.release("before").await?;
    environment.check_running()
}

/// A standby continues after the leader was killed.
pub(super) async fn leader_election(
    environment: &mut Environment<'_>,
    scene: &Scene,
) -> Result<(), Violation> {
    environment.stop();
    scene.create_pool(json!(null)).await;
    let flags = &environment.provider.leader_election;
    let launch = || environment.launch(environment.plane.provider_kubeconfig(), flags);
    let mut leader = launch();
    wait_until_ready(&mut leader, environment.provider.timeout).await?;
    scene.create_claim("one", json!({})).await;
    scene.bound("one").await?;
    let mut standby = launch();
    let patience = Patience::new(STANDBY_TIMEOUT);
    while !standby.is_ready() && standby.is_running() && !patience.is_over() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if !standby.is_running() {
        return Err(Violation::new(
            Rule::Program,
            "a standby runs beside the leader",
            standby.log(),
        ));
    }
    scene.create_claim("two", json!({})).await;
    scene.bound("two").await?;
    leader.kill();
    scene.create_claim("three", json!({})).await;
    scene.consumer.delete("one").await;
    scene.bound("three").await?;
    scene.released("one").await?;
    scene
        .all_bound(&["two", "three"].map(str::to_owned))
        .await?;
    scene.end().await?;
    standby.stop();
    Ok(())
}

/// A restart causes no write while all claims are bound.
pub(super) async fn restart(
    environment: &mut Environment<'_>,
    scene: &Scene,
) -> Result<(), Violation> {
    scene.create_pool(json!(null)).await;
    let count = environment.provider.claims.min(scene.pool.addresses);
    let names: Vec<_> = (0..count).map(|number| format!("c{number}")).collect();
    scene.create_claims(&names).await;
    let before = scene.all_bound(&names).await?;
    environment.note = format!("{count} claims");
    wait_until_quiet(environment).await?;
    environment.stop();
    let known = writes(environment).len();
    environment.run().await?;
    tokio::time::sleep(QUIET).await;
    let all = writes(environment);
    let new: Vec<_> = all
        .iter()
        .skip(known)
        .map(|write| format!("{} {}", write.verb, write.uri))
        .collect();
    if !new.is_empty() {
        let expected = format!("no write after a restart with {count} bound claims");
        return Err(Violation::new(
            Rule::Quiet,
            expected,
            format!("{} writes:\n{}", new.len(), new.join("\n")),
        ));
    }
    let after = scene.all_bound(&names).await?;
    if after != before {
        let seen = "other addresses after the restart";
        return Err(Violation::new(
            Rule::Lasting,
            "all claims keep their addresses",
            seen,
        ));
    }
    Ok(())
}

async fn wait_until_quiet(environment: &Environment<'_>) -> Result<(), Violation> {
    let patience = Patience::new(QUIET_TIMEOUT);
    let (mut count, mut since) = (0, Instant::now());
    while since.elapsed() < SETTLED {
        let all = writes(environment);
        if all.len() != count {
            (count, since) = (all.len(), Instant::now());
        }
        if patience.is_over() {
            let seen = all
                .last()
                .map(|write| format!("{} {}", write.verb, write.uri))
                .unwrap_or_default();
            return Err(Violation::new(
                Rule::Quiet,
                "no write happens when all claims are bound",
                seen,
            ));
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}

/// The writes of the provider so far, except for leases and reviews of permissions.
fn writes(environment: &Environment<'_>) -> Vec<ProviderRequest> {
    let is_write = |request: &ProviderRequest| {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&request.verb.as_str())
            && request.resource != "leases"
            && !request.resource.ends_with("reviews")
    };
    environment
        .plane
        .provider_requests()
        .into_iter()
        .filter(is_write)
        .collect()
}
