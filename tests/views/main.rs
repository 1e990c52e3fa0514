//! Several managers that serve different parts of one cluster, by namespace or by label. The flags
//! select what a manager serves, not what it observes: no manager frees, counts or reports anything
//! wrong because of a restricted view. Each test starts its own control plane.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: a failure ends the test with a message"
)]

mod cooldown;
mod deletion;
mod labels;
mod lagging;
mod late_clusters;
mod late_networks;
mod late_reads;
mod limits;
mod namespaces;
mod predecessor;
mod queue;
mod requests;
mod scale;
mod slices;
mod sweeping;
mod unserved;
mod versions;
mod waiting;

use std::fmt::Debug;

use support::{prelude::*, wait::TIMEOUT};

/// The kind of the global pools in these tests.
const GLOBAL: InClusterKind = InClusterKind::GlobalIPPool;

/// Starts a manager that sweeps every second, with these flags.
fn serving(plane: &ControlPlane, flags: &[&str]) -> Manager {
    let sweeps = ["--sweep-interval=1s", "--sweep-grace=1s"];
    Manager::start(plane, &[&sweeps, flags].concat())
}

/// Starts a manager that serves the namespace of a consumer, and sweeps every second.
fn serving_namespace(plane: &ControlPlane, consumer: &Consumer) -> Manager {
    serving(plane, &[&format!("--namespace={}", consumer.namespace)])
}

/// Two consumers, and a manager for the namespace of each.
async fn two_tenants() -> (ControlPlane, [Manager; 2], Consumer, Consumer) {
    let plane = ControlPlane::new();
    let (one, two) = two_consumers(&plane).await;
    let managers = [
        serving_namespace(&plane, &one),
        serving_namespace(&plane, &two),
    ];
    (plane, managers, one, two)
}

/// Waits until a number has not changed for three seconds, and returns it. The API server writes
/// the last lines of its audit log after it has responded.
///
/// # Panics
/// When it still changes after a minute.
async fn settled(what: &str, count: impl Fn() -> usize) -> usize {
    let patience = Patience::new(TIMEOUT);
    let mut before = count();
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = count();
        if now == before {
            return now;
        }
        assert!(
            !patience.is_over(),
            "{what} increase for {TIMEOUT:?}: {now}"
        );
        before = now;
    }
}

/// Asserts that a value stays equal for some time. It polls four times a second.
///
/// # Panics
/// When it changes.
async fn unchanged<T: PartialEq + Debug, F: Future<Output = T>>(
    what: &str,
    duration: Duration,
    expected: &T,
    mut look: impl FnMut() -> F,
) {
    let started = Instant::now();
    while started.elapsed() < duration {
        let found = look().await;
        assert_eq!(
            &found,
            expected,
            "{what} changed after {:?}",
            started.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
