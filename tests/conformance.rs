//! The manager fulfills the IPAM provider contract.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "test code: a failure ends the test with a message"
)]

use std::time::Duration;

use capi_ipam_testing::conformance::{self, Check, Pool, Provider, Rule};

use support::control_plane::installation;
use support::manager::manager;

/// Short leases, for the check that kills the leader. A loaded API server can take seconds to
/// answer.
const LEADER_ELECTION: [&str; 4] = [
    "--leader-elect",
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=7s",
    "--leader-elect-retry-period=500ms",
];

/// The manager with a pool of 6 addresses, and with a large one for the restart.
fn in_cluster() -> Provider {
    let pool = |addresses: &str| {
        format!(
            "{{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterIPPool, metadata: {{name: pool}}, \
             spec: {{addresses: [{addresses}], prefix: 16, gateway: 10.1.255.254}}}}"
        )
    };
    Provider::new(manager(), Pool::new(&pool("10.1.0.10-10.1.0.15"), 6))
        .restart_with(Pool::new(&pool("10.1.4.0-10.1.7.255"), 1024), 300)
        .installation(installation().clone())
        .arguments([
            "--webhook-port=0",
            "--sweep-interval=500ms",
            "--sweep-grace=500ms",
        ])
        .leader_election(LEADER_ELECTION)
}

#[test]
fn in_cluster_provider_conforms() {
    let report = conformance::run(&in_cluster());
    println!("{report}");
    report.assert_passed();
}

/// A provider of other claims only: it is ready, and binds nothing.
#[test]
fn report_explains_what_is_wrong() {
    let provider = in_cluster()
        .arguments(["--webhook-port=0", "--watch-filter=nothing"])
        .timeout(Duration::from_secs(2))
        .checks([Check::Bind, Check::PausedClaim]);
    let report = conformance::run(&provider);
    assert_eq!(report.failed().count(), 2, "{report}");
    let text = report.to_string();
    let expected = [
        "bind               FAILED",
        "expected: claim plain: it is bound (within 2s)",
        "seen:     claim plain, finalizers []",
        "paused claim       FAILED",
        "expected: claim paused has the condition Paused=True (within 2s)",
        Rule::Paused.text(),
        "0 of 2 checks passed",
    ];
    for part in expected {
        assert!(
            text.contains(part),
            "{part} is missing in the report:\n{text}"
        );
    }
}

/// A program that exits.
#[test]
fn report_contains_the_log_of_a_program_that_exits() {
    let provider = in_cluster()
        .arguments(["--unknown-flag"])
        .checks([Check::Release]);
    let text = conformance::run(&provider).to_string();
    for part in [
        Rule::Program.text(),
        "it has exited with exit status: 2",
        "--unknown-flag",
    ] {
        assert!(
            text.contains(part),
            "{part} is missing in the report:\n{text}"
        );
    }
}
