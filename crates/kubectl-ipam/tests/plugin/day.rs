//! A day of a management cluster, and what its users see.
//!
//! The scripts `day/*.sh` change the cluster as users, administrators and accidents do. After each
//! of them, the output of the commands that read, all conditions, objects, events and metrics are
//! compared with the recordings in `day/recordings`. `UPDATE_RECORDINGS=1` writes them instead.

mod normalize;
mod recordings;
mod views;

use std::process::Command;

use capi_ipam_testing::control_plane::embedded_kubeconfig;
use capi_ipam_testing::ports::free_port;

use self::recordings::Recordings;
use self::views::views;
use crate::night::system::System;

/// A day with its own flags of the manager: a sweep deletes nothing that a script leaves behind.
struct Day {
    system: System,
    /// The port of the metrics.
    metrics: u16,
}

#[tokio::test]
async fn scripted_day_matches_its_recordings() {
    let day = Day::start().await;
    let recordings = Recordings::new(day.system.plane.folder());
    for moment in ["morning", "noon", "evening", "night"] {
        let transcript = day.run_script(moment);
        recordings.add(moment, "script.txt", &transcript);
        let has_json = moment == "noon";
        recordings.record(moment, &views(&day, has_json)).await;
    }
    recordings.compare();
}

impl Day {
    async fn start() -> Self {
        let metrics = free_port();
        let flags = [
            &format!("--diagnostics-address=127.0.0.1:{metrics}"),
            "--insecure-diagnostics",
            "--sweep-interval=1s",
            "--sweep-grace=1h",
            "--verify-interval=1s",
        ];
        let system = System::start_with(&flags).await;
        let hub = embedded_kubeconfig(system.admin());
        std::fs::write(system.plane.folder().join("hub"), hub).expect("the folder is writable");
        Self { system, metrics }
    }

    /// Runs a script, and returns what it prints.
    fn run_script(&self, moment: &str) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plugin/day");
        let output = Command::new("sh")
            .args([
                "-euc",
                "exec 2>&1; . \"$1/functions.sh\"; . \"$1/$2.sh\"",
                "sh",
                folder,
                moment,
            ])
            .env("PLUGIN", env!("CARGO_BIN_EXE_kubectl-ipam"))
            .env("KUBECTL", self.system.plane.kubectl_program())
            .env("KUBECONFIG_FILE", self.system.admin())
            .env("MANAGER", self.system.manager.pid().to_string())
            .env("FOLDER", self.system.plane.folder())
            .env("ROOT", concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .output()
            .expect("a shell can be started");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{moment}.sh: {text}");
        text
    }
}
