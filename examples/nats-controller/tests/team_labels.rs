//! The controller of namespaces against a real API server.

use std::path::Path;

use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;

#[tokio::test]
async fn annotation_becomes_a_label() {
    let plane = ControlPlane::start(Options::default(), &Installation::default());
    let program = Path::new(env!("CARGO_BIN_EXE_team-labels"));
    let manager = Manager::start_program(&plane, program, plane.kubeconfig(), &["--leader-elect"]);
    manager.wait_until_ready();
    plane.kubectl(&["create", "namespace", "web"]);
    let wait_for = async |team: &str| {
        eventually("the namespace has the label", || async {
            let label = "-o=jsonpath={.metadata.labels.example\\.com/team}";
            let found = plane.kubectl(&["get", "namespace", "web", label]);
            (found == team).then_some(())
        })
        .await;
    };
    for (annotation, team) in [("=red", "red"), ("=blue", "blue"), ("-", "")] {
        let annotation = format!("example.com/team{annotation}");
        plane.kubectl(&["annotate", "--overwrite", "namespace", "web", &annotation]);
        wait_for(team).await;
    }
}
