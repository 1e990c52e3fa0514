//! The manager against a real API server. All tests share one control plane and one manager, and
//! use separate namespaces. Tests with invalid pools share another control plane, whose API server
//! accepts such pools.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

mod access;
mod adoption;
mod allocation_log;
mod bad_input;
mod bind;
mod conflicts;
mod draining;
mod exhaustion;
mod finalizers;
mod kstatus;
mod lifecycle;
mod name_servers;
mod networks;
mod pausing;
mod pool_sets;
mod pools;
mod prefixes;
mod quarantine;
mod ranges;
mod reclaim;
mod refusals;
mod reporting;
mod requests;
mod restore;
mod slices;
mod sticky;
mod sweeping;
mod tenants;

use std::sync::OnceLock;

use support::prelude::*;

/// The environment that all tests share. Never dropped: its processes end with the test process.
struct Environment {
    control_plane: ControlPlane,
    manager: Manager,
}

fn environment() -> &'static Environment {
    static WORLD: OnceLock<Environment> = OnceLock::new();
    WORLD.get_or_init(|| start(|_| {}))
}

/// An environment without the validation rules of the CRDs, as in releases without rules.
fn lenient_environment() -> &'static Environment {
    static WORLD: OnceLock<Environment> = OnceLock::new();
    WORLD.get_or_init(|| start(ControlPlane::drop_rules))
}

fn start(prepare: impl FnOnce(&ControlPlane)) -> Environment {
    start_with(&[], prepare)
}

fn start_with(flags: &[&str], prepare: impl FnOnce(&ControlPlane)) -> Environment {
    let control_plane = ControlPlane::start(Options {
        controller_manager: true,
        ..Options::default()
    });
    prepare(&control_plane);
    let all = [
        "--sweep-interval=1s",
        "--sweep-grace=2s",
        "--verify-interval=1s",
    ];
    let manager = Manager::start(&control_plane, &[&all, flags].concat());
    Environment {
        control_plane,
        manager,
    }
}

/// A consumer with its own namespace.
async fn consumer() -> Consumer {
    let world = environment();
    assert!(
        !world.manager.was_forbidden(),
        "the manager lacks a permission:\n{}",
        world.manager.log()
    );
    let consumer = Consumer::new(&world.control_plane).await;
    consumer.with_log_of(&world.manager)
}

/// A consumer whose API server accepts invalid pools.
async fn lenient_consumer() -> Consumer {
    let world = lenient_environment();
    let consumer = Consumer::new(&world.control_plane).await;
    consumer.with_log_of(&world.manager)
}
