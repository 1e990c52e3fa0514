//! Many claims of both management clusters while servers of the registry and managers fail.

use support::prelude::*;
use support::registry::Hub;

use crate::site::Site;

/// The number of claims of each management cluster. Their range has 1,024 addresses.
const CLAIMS: usize = 500;
/// How long a disturbance lasts.
const DISTURBANCE: Duration = Duration::from_millis(700);

#[tokio::test(flavor = "multi_thread")]
async fn failing_servers_and_managers_double_no_address() {
    let blocks = json!({"registry": "site", "size": 16, "spare": 0});
    let mut site = Site::start(Hub::nats_cluster(), blocks).await;
    for cluster in [&site.west, &site.east] {
        cluster.create_pool("p", "10.0.4.0-10.0.7.255").await;
    }
    let Site { hub, west, east } = &mut site;
    let Hub::NatsCluster(servers) = hub else {
        panic!("the registry has three servers");
    };
    let disturb = async {
        for round in 0..9_usize {
            let index = round % 3;
            match round / 3 {
                0 => servers.node(index).kill(),
                1 => servers.node(index).pause(),
                _ => servers.separate(index),
            }
            let manager = if round % 2 == 0 { &*west } else { &*east };
            manager.restart();
            tokio::time::sleep(DISTURBANCE).await;
            match round / 3 {
                0 => servers.node(index).start_again(),
                1 => servers.node(index).resume(),
                _ => servers.join(index),
            }
            servers.wait_until_healthy();
        }
    };
    let (of_west, of_east) = (numbered("w-", CLAIMS), numbered("e-", CLAIMS));
    let ((), in_west, in_east) =
        futures::join!(disturb, west.bind("p", &of_west), east.bind("p", &of_east));
    let mut all = BTreeSet::new();
    for address in in_west.values().chain(in_east.values()) {
        assert!(all.insert(address), "{address} is in use twice");
    }
    assert_eq!(all.len(), 2 * CLAIMS);
}
