//! What is damaged by hand is found, and mended or told: one control plane and one manager for most tests of this
//! binary, a namespace for each.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a text that says what went wrong"
)]

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod claims;
mod duplicates;
mod pools;
mod pressure;
mod reservations;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::OnceLock;

use serde_json::json;

use support::consumer::{Consumer, eventually, ready};
use support::control_plane::{ControlPlane, Options};
use support::manager::Manager;
use support::ports::free_port;

/// What most tests share. Never dropped: its processes end with this one.
struct World {
    control_plane: ControlPlane,
    manager: Manager,
    metrics: u16,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let control_plane = ControlPlane::start(Options::default());
        let metrics = free_port();
        let diagnostics = format!("--diagnostics-address=127.0.0.1:{metrics}");
        let flags = ["--sweep-interval=1s", "--sweep-grace=2s", &diagnostics, "--insecure-diagnostics"];
        let manager = Manager::start(&control_plane, &flags);
        World { control_plane, manager, metrics }
    })
}

/// A machine controller with a namespace of its own.
async fn consumer() -> Consumer {
    let world = world();
    assert!(!world.manager.was_forbidden(), "it lacks a permission:\n{}", world.manager.log());
    Consumer::new(&world.control_plane).await
}

/// The same, with a pool `web` of so many addresses and these claims bound, in order. The manager knows what they have.
async fn with_claims(count: u8, claims: &[&str]) -> Consumer {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": [format!("10.0.0.1-10.0.0.{count}")], "prefix": 24})).await;
    for (name, number) in claims.iter().zip(1..) {
        consumer.claim(name, "web").await;
        assert_eq!(consumer.bound(name).await, format!("10.0.0.{number}"));
    }
    let (total, used) = (i64::from(count), i64::try_from(claims.len()).expect("a small number"));
    consumer.counts("web", (total, total - used, used, 0)).await;
    consumer
}

/// Waits until a claim says that it is ready.
async fn is_ready(consumer: &Consumer, name: &str) {
    eventually(&format!("claim {name} is ready"), || async {
        (ready(&consumer.claims().get(name).await.ok()??).status == "True").then_some(())
    })
    .await;
}

/// The value of a metric of the manager that all share.
fn metric(name: &str) -> Option<f64> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, world().metrics)).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}
