//! Webhooks that a real API server asks: admission and conversion, with the manager behind them. The tests of one file
//! share a control plane with a manager.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "test code: a failure ends the test")]

#[path = "../support/mod.rs"]
mod support;

mod conversion;

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
        let plane = ControlPlane::start(Options::default());
        let webhooks = Webhooks::new(&plane);
        let own = webhooks.flags();
        let flags: Vec<&str> = own.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        let manager = Manager::start(&plane, &flags);
        webhooks.wire(&plane);
        Self { plane, webhooks, manager }
    }
}

/// The one that most tests share.
fn wired() -> &'static Wired {
    static WIRED: OnceLock<Wired> = OnceLock::new();
    WIRED.get_or_init(|| Wired::start(&[]))
}
