//! What a management cluster may write at the API server of a registry.

use capi_ipam_controller::client::error_chain;
use capi_ipam_registry::{
    BlockRecord, ClusterRecord, Created, Entry, NetworkRecord, Record, Registry, RegistryError,
    RegistryRecord,
};
use capi_ipam_testing::wait::eventually;

use crate::hub::{self, World};
use crate::support::{World as _, assert_one_line, block_key, block_record, create, read};

/// The registry as the administrator and as two management clusters use it.
struct Hub {
    world: World,
    west: Registry,
    east: Registry,
}

impl Hub {
    async fn start() -> Self {
        let world = World::start().await;
        let west = account(&world, "west").await;
        let east = account(&world, "east").await;
        let hub = Self { world, west, east };
        hub.wait_for_policy().await;
        hub
    }

    /// The API server applies a policy some time after its creation.
    async fn wait_for_policy(&self) {
        let (key, record) = (block_key(999), block_record(&block_key(999), "north"));
        eventually("the policy is applied", || async {
            match self.west.create(&key, &record).await {
                Err(RegistryError::Forbidden { .. }) => Some(()),
                Ok(Created::Ours(entry)) => {
                    let administrator = self.world.open().await.ok()?;
                    let _ = administrator.delete(&entry).await;
                    None
                }
                _ => None,
            }
        })
        .await;
    }
}

/// The registry as a management cluster uses it.
async fn account(world: &World, id: &str) -> Registry {
    let namespace = "capi-ipam-registry";
    world
        .plane
        .kubectl(&["create", "serviceaccount", id, "--namespace", namespace]);
    let kubeconfig = world.plane.kubeconfig_of_account(namespace, id);
    let opened = hub::open_with(&kubeconfig).await;
    opened.unwrap_or_else(|error| panic!("{}", error_chain(&error)))
}

fn assert_denied<T: std::fmt::Debug>(result: Result<T, RegistryError>, why: &str) {
    let error = result.expect_err(why);
    assert!(
        matches!(error, RegistryError::Forbidden { .. }),
        "{why}: {error:?}"
    );
    assert_one_line(&error_chain(&error));
}

/// The record of a block that a change has been applied to.
fn changed(entry: &Entry, change: impl FnOnce(&mut BlockRecord)) -> Record {
    let Some(Record::Block(record)) = entry.record() else {
        panic!("{entry:?}")
    };
    let mut record = record.clone();
    change(&mut record);
    Record::Block(record)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_writes_only_blocks_of_its_own_id() {
    let hub = Hub::start().await;
    let (west, east, key) = (&hub.west, &hub.east, block_key(1));
    assert_denied(
        west.create(&key, &block_record(&key, "east")).await,
        "other id",
    );
    let held = create(west, &key, "west").await;
    let used = changed(&held, |record| record.used = Some(3));
    let held = west.update(&held, &used).await.expect("it is its own");
    assert_denied(
        west.update(&held, &block_record(&key, "east")).await,
        "handed over",
    );
    assert_denied(
        east.update(&held, &block_record(&key, "east")).await,
        "taken away",
    );
    assert_denied(east.delete(&held).await, "deleted by another one");
    for change in [
        (|record: &mut BlockRecord| record.used = None) as fn(&mut BlockRecord),
        |record| record.since = None,
        |record| record.returned_at = serde_json::from_str("\"2026-01-01T12:00:00Z\"").ok(),
        |record| record.contenders = vec!["north".to_owned()],
    ] {
        assert_denied(
            east.update(&held, &changed(&held, change)).await,
            "another field",
        );
    }
    // A contender adds itself, and removes itself, and nobody else.
    let with_east = changed(&held, |record| record.contenders = vec!["east".to_owned()]);
    let held = east.update(&held, &with_east).await.expect("its own id");
    let both = changed(&held, |record| {
        record.contenders = vec!["east".to_owned(), "north".to_owned()];
    });
    let held = west
        .update(&held, &both)
        .await
        .expect("it is its own block");
    let without = changed(&held, |record| record.contenders = vec!["east".to_owned()]);
    assert_denied(east.update(&held, &without).await, "another contender");
    let left = changed(&held, |record| record.contenders = vec!["north".to_owned()]);
    let held = east.update(&held, &left).await.expect("its own id");

    // Nobody takes a block that its holder has not returned, and nobody deletes one.
    let to_east = changed(&held, |record| record.cluster = "east".to_owned());
    assert_denied(west.update(&held, &to_east).await, "given away");
    assert_denied(east.update(&held, &to_east).await, "taken away");
    assert_denied(west.delete(&held).await, "deleted");
    let alone = changed(&held, |record| record.contenders.clear());
    assert_denied(west.update(&held, &alone).await, "another contender");
    let at = serde_json::from_str("\"2026-01-01T12:00:00Z\"").ok();
    let returned = changed(&held, |record| record.returned_at = at);
    let held = west.update(&held, &returned).await.expect("it is its own");
    let taken = changed(&held, |record| {
        record.cluster = "east".to_owned();
        record.returned_at = None;
    });
    let without = changed(&held, |record| {
        record.cluster = "east".to_owned();
        record.contenders.clear();
    });
    assert_denied(east.update(&held, &without).await, "another contender");
    let held = east.update(&held, &taken).await.expect("it was returned");
    let back = changed(&held, |record| record.cluster = "west".to_owned());
    assert_denied(west.update(&held, &back).await, "it is used again");
    let administrator = hub.world.open().await.expect("it is opened");
    let deleted = administrator.delete(&held).await;
    deleted.expect("an administrator may do everything");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_of_a_network_are_only_extended() {
    let hub = Hub::start().await;
    let (west, east, key) = (&hub.west, &hub.east, "network.lab");
    let with_quarantine = |size: u64, size_of: &str, quarantine_seconds: Option<i64>| {
        Record::Network(NetworkRecord {
            network: "lab".to_owned(),
            size,
            size_of: size_of.to_owned(),
            quarantine_seconds,
        })
    };
    let network = |size, size_of| with_quarantine(size, size_of, None);
    assert_denied(
        west.create(key, &network(64, "east")).await,
        "size of another one",
    );
    let created = west.create(key, &network(64, "west")).await;
    assert!(matches!(created, Ok(Created::Ours(_))), "{created:?}");
    let held = read(east, key).await;
    for cluster in [west, east] {
        for record in [network(32, "west"), network(64, "east")] {
            assert_denied(cluster.update(&held, &record).await, "another size");
        }
        assert_denied(cluster.delete(&held).await, "a network is shared");
    }
    // A week is the default.
    let shorter = with_quarantine(64, "west", Some(604_799));
    assert_denied(east.update(&held, &shorter).await, "a shorter quarantine");
    let longer = with_quarantine(64, "west", Some(604_801));
    let extended = east.update(&held, &longer).await;
    extended.expect("a longer quarantine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_writes_only_its_own_records_of_other_kinds() {
    let hub = Hub::start().await;
    let (west, east) = (&hub.west, &hub.east);
    let cluster = |id: &str| {
        Record::Cluster(ClusterRecord {
            cluster: id.to_owned(),
            process: "a".to_owned(),
            ..ClusterRecord::default()
        })
    };
    assert_denied(
        west.create("cluster.east", &cluster("east")).await,
        "another one",
    );
    let created = west.create("cluster.west", &cluster("west")).await;
    assert!(matches!(created, Ok(Created::Ours(_))), "{created:?}");
    let held = read(west, "cluster.west").await;
    assert_denied(east.update(&held, &cluster("west")).await, "another one");
    assert_denied(east.delete(&held).await, "another one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identity_of_the_registry_is_written_once() {
    let hub = Hub::start().await;
    let (west, east) = (&hub.west, &hub.east);
    let registry = |id: &str| Record::Registry(RegistryRecord { id: id.to_owned() });
    let created = west.create("registry", &registry("a")).await;
    assert!(matches!(created, Ok(Created::Ours(_))), "{created:?}");
    let found = east.create("registry", &registry("b")).await;
    let Ok(Created::Theirs(held)) = found else {
        panic!("{found:?}");
    };
    assert_eq!(held.record(), Some(&registry("a")));
    for cluster in [west, east] {
        assert_denied(cluster.update(&held, &registry("b")).await, "it is fixed");
        assert_denied(cluster.delete(&held).await, "it is fixed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_allows_ip_blocks_only() {
    let hub = Hub::start().await;
    let kubeconfig = hub
        .world
        .plane
        .kubeconfig_of_account("capi-ipam-registry", "west");
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let can = |verb: &str, kind: &str| {
        let arguments = [&kubeconfig, "auth", "can-i", verb, kind, "--all-namespaces"];
        hub.world.plane.try_kubectl(&arguments).is_ok()
    };
    for verb in ["get", "list", "watch", "create", "update", "delete"] {
        assert!(can(verb, "ipblocks.ipam.cluster.x-k8s.io"), "{verb}");
    }
    for (verb, kind) in [
        ("patch", "ipblocks.ipam.cluster.x-k8s.io"),
        ("deletecollection", "ipblocks.ipam.cluster.x-k8s.io"),
        ("get", "secrets"),
        ("list", "ipaddressclaims.ipam.cluster.x-k8s.io"),
        ("create", "ipaddresses.ipam.cluster.x-k8s.io"),
        (
            "get",
            "validatingadmissionpolicies.admissionregistration.k8s.io",
        ),
        ("create", "serviceaccounts"),
    ] {
        assert!(!can(verb, kind), "{verb} {kind}");
    }
}
