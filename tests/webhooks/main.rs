//! Webhooks that a real API server asks: admission and conversion, with the manager behind them. Most tests share a
//! control plane with a manager; those that break something have their own.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "test code: a failure ends the test")]
#![allow(clippy::needless_pass_by_value, reason = "the values are written where they are passed")]

#[path = "../support/mod.rs"]
mod support;

mod ask;
mod certificates;
mod conversion;
mod in_use;
mod junk;
mod metrics;
mod reservations;
mod robustness;
mod rules;
mod self_managed;
mod warnings;

use std::sync::OnceLock;

use support::control_plane::{ControlPlane, Options};
use support::manager::Manager;
use support::webhooks::Webhooks;

/// A control plane whose API server asks the webhooks of a running manager.
struct Wired {
    plane: ControlPlane,
    webhooks: Webhooks,
    manager: Manager,
}

impl Wired {
    fn start(flags: &[&str]) -> Self {
        Self::with_plane(ControlPlane::start(Options::default()), flags)
    }

    fn with_plane(plane: ControlPlane, flags: &[&str]) -> Self {
        let webhooks = Webhooks::new(&plane);
        let manager = serving(&plane, &webhooks, flags);
        webhooks.wire(&plane);
        Self { plane, webhooks, manager }
    }
}

/// A manager that serves webhooks and is ready.
fn serving(plane: &ControlPlane, webhooks: &Webhooks, flags: &[&str]) -> Manager {
    let own = webhooks.flags();
    let flags: Vec<&str> = own.iter().map(String::as_str).chain(flags.iter().copied()).collect();
    Manager::start(plane, &flags)
}

/// The one that most tests share.
fn wired() -> &'static Wired {
    static WIRED: OnceLock<Wired> = OnceLock::new();
    WIRED.get_or_init(|| Wired::start(&[]))
}
