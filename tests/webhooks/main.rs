//! Admission and conversion webhooks of the manager, called by a real API server. Most tests share
//! a control plane and a manager; those that break something have their own.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "the values are written where they are passed"
)]

mod api_client;
mod certificates;
mod cluster_addressings;
mod conversion;
mod in_use;
mod junk;
mod metrics;
mod networks;
mod registries;
mod reservations;
mod robustness;
mod rules;
mod self_managed;
mod warnings;

use std::sync::OnceLock;

use support::prelude::*;

/// A control plane whose API server calls the webhooks of a running manager.
struct Environment {
    plane: ControlPlane,
    webhooks: Webhooks,
    manager: Manager,
}

impl Environment {
    fn start(flags: &[&str]) -> Self {
        Self::with_plane(ControlPlane::new(), flags)
    }

    fn with_plane(plane: ControlPlane, flags: &[&str]) -> Self {
        let webhooks = Webhooks::new(&plane);
        let manager = serving(&plane, &webhooks, flags);
        webhooks.register(&plane);
        Self {
            plane,
            webhooks,
            manager,
        }
    }
}

/// A manager that serves webhooks and is ready.
fn serving(plane: &ControlPlane, webhooks: &Webhooks, flags: &[&str]) -> Manager {
    let own = webhooks.flags();
    let flags: Vec<&str> = own
        .iter()
        .map(String::as_str)
        .chain(flags.iter().copied())
        .collect();
    Manager::start(plane, &flags)
}

/// The environment that most tests share.
fn shared() -> &'static Environment {
    static WIRED: OnceLock<Environment> = OnceLock::new();
    WIRED.get_or_init(|| Environment::start(&[]))
}
