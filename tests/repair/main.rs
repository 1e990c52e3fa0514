//! Manual damage is detected, and repaired or reported. Most tests of this binary share one control
//! plane and one manager, and use separate namespaces.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

mod addresses;
mod claims;
mod duplicates;
mod metrics;
mod pools;
mod pressure;
mod reservations;

use std::sync::OnceLock;

use support::{manager::scrape, ports::free_port, prelude::*};

/// The environment that most tests share. Never dropped: its processes end with the test process.
struct Environment {
    control_plane: ControlPlane,
    manager: Manager,
    metrics: u16,
}

fn environment() -> &'static Environment {
    static WORLD: OnceLock<Environment> = OnceLock::new();
    WORLD.get_or_init(|| {
        let control_plane = ControlPlane::new();
        let metrics = free_port();
        let diagnostics = format!("--diagnostics-address=127.0.0.1:{metrics}");
        let flags = [
            "--sweep-interval=1s",
            "--sweep-grace=2s",
            &diagnostics,
            "--insecure-diagnostics",
        ];
        let manager = Manager::start(&control_plane, &flags);
        Environment {
            control_plane,
            manager,
            metrics,
        }
    })
}

/// A consumer with its own namespace.
async fn consumer() -> Consumer {
    let world = environment();
    assert!(
        !world.manager.was_forbidden(),
        "the manager lacks a permission:\n{}",
        world.manager.log()
    );
    Consumer::new(&world.control_plane).await
}

/// A consumer with a pool `web` of `count` addresses and these claims, bound in order. The manager
/// has observed them.
async fn with_claims(count: u8, claims: &[&str]) -> Consumer {
    let consumer = consumer().await;
    consumer
        .create_pool("web", format!("10.0.0.1-10.0.0.{count}"))
        .await;
    for (name, number) in claims.iter().zip(1..) {
        consumer
            .bind_to(name, "web", format!("10.0.0.{number}"))
            .await;
    }
    let (total, used) = (
        i64::from(count),
        i64::try_from(claims.len()).expect("a small number"),
    );
    consumer
        .wait_for_counts("web", (total, total - used, used, 0))
        .await;
    consumer
}

/// Pauses a claim of the pool `web`, and waits until the manager has observed it: then a later
/// claim reports its pause.
async fn pause(consumer: &Consumer, name: &str) {
    consumer.set_paused(&consumer.claims(), name, true).await;
    let metadata = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
    consumer
        .create_claim_with_metadata("made-later", "web", metadata)
        .await;
    consumer.wait_for_reason("made-later", "Paused").await;
    consumer.release("made-later").await;
}

/// Waits until a claim reports that it is ready.
async fn wait_until_ready(consumer: &Consumer, name: &str) {
    until(&format!("claim {name} is ready"), async || {
        Some(ready(&consumer.claims().get(name).await.ok()??).status == "True")
    })
    .await;
}

/// The value of a metric of the shared manager.
fn metric(name: &str) -> Option<f64> {
    scrape(environment().metrics)?
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}
