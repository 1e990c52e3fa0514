//! The program fulfills the IPAM provider contract of Cluster API.

use capi_ipam_testing::conformance::{self, Pool, Provider};
use capi_ipam_testing::control_plane::{Installation, ServiceAccount};

const OBJECTS: &str = concat!(
    include_str!("../config/crd.yaml"),
    "---\n",
    include_str!("../config/rbac.yaml")
);
const POOL: &str = "
apiVersion: example.com/v1
kind: ListPool
metadata: {name: list}
spec:
  addresses: [10.1.0.5, 10.1.0.7, 10.1.0.9, 10.1.0.11, 10.1.0.13]
  prefix: 24
";

#[test]
fn provider_conforms() {
    let account = ServiceAccount {
        namespace: "list-provider-system".into(),
        name: "list-provider".into(),
    };
    let provider = Provider::new(env!("CARGO_BIN_EXE_list-provider"), Pool::new(POOL, 5))
        .installation(Installation {
            account: Some(account),
            ..Installation::of(OBJECTS)
        })
        .leader_election([
            "--leader-elect",
            "--leader-elect-lease-duration=8s",
            "--leader-elect-renew-deadline=7s",
            "--leader-elect-retry-period=500ms",
        ]);
    conformance::run(&provider).assert_passed();
}
