//! The manager against a real API server: one control plane and one manager for all tests of this binary, a namespace
//! for each. Those that make broken pools share another one, whose API server lets such pools through.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a text that says what went wrong"
)]

#[path = "../support/mod.rs"]
mod support;

mod adoption;
mod restore;
mod bad_input;
mod bind;
mod exhaustion;
mod finalizers;
mod lifecycle;
mod networks;
mod pausing;
mod pools;
mod prefixes;
mod refusals;
mod reporting;
mod sweeping;

use std::sync::OnceLock;

use support::consumer::Consumer;
use support::control_plane::{ControlPlane, Options};
use support::manager::Manager;

/// What all tests share. Never dropped: its processes end with this one.
struct World {
    control_plane: ControlPlane,
    manager: Manager,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| start(|_| {}))
}

/// A world without the rules of the definitions, as pools were made in before there were any.
fn lenient_world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| start(ControlPlane::drop_rules))
}

fn start(prepare: impl FnOnce(&ControlPlane)) -> World {
    let control_plane = ControlPlane::start(Options { controller_manager: true, ..Options::default() });
    prepare(&control_plane);
    let manager = Manager::start(&control_plane, &["--sweep-interval=1s", "--sweep-grace=2s"]);
    World { control_plane, manager }
}

/// A machine controller with a namespace of its own.
async fn consumer() -> Consumer {
    let world = world();
    assert!(!world.manager.was_forbidden(), "it lacks a permission:\n{}", world.manager.log());
    Consumer::new(&world.control_plane).await
}

/// The same, where the API server lets broken pools through.
async fn lenient_consumer() -> Consumer {
    Consumer::new(&lenient_world().control_plane).await
}
