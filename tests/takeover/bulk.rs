//! Many more claims and addresses, for 2,000 addresses in total, in four fragmented pools.

use std::net::Ipv4Addr;

use capi_ipam_api::names::{PROTECT_POOL, RELEASE_ADDRESS};
use futures::StreamExt as _;
use support::prelude::*;

use crate::go_provider::{GoProvider, claim, ip_address};
use crate::store::{CONSUMER, GO_PROVIDER, OPERATOR, RESTORE, Store, add_finalizer};

/// The number of addresses in use in these pools.
pub(crate) const COUNT: usize = 1986;
/// The number of addresses in use in the fixture.
pub(crate) const BESIDE: usize = 14;
/// The number of concurrent requests.
const AT_ONCE: usize = 32;
/// Every tenth address is free.
const FULL: usize = 9;

/// The addresses without owners and finalizer in a Cluster that is not paused.
pub(crate) const RESTORED: [usize; 3] = [3, 103, 203];
/// The address without owners and finalizer in a paused Cluster.
const RESTORED_AND_PAUSED: usize = 1;

/// A pool with many addresses in use.
struct Full {
    kind: &'static str,
    namespace: &'static str,
    name: &'static str,
    spec: fn() -> Value,
    claims_in: &'static [&'static str],
    count: usize,
    address: fn(usize) -> String,
}

const POOLS: [Full; 4] = [
    Full {
        kind: "InClusterIPPool",
        namespace: "site-a",
        name: "racks-a",
        spec: || json!({"addresses": ["10.64.0.2-10.64.3.200"], "prefix": 22, "gateway": "10.64.0.1"}),
        claims_in: &["site-a"],
        count: 700,
        address: |place| ipv4([10, 64, 0, 2], place),
    },
    Full {
        kind: "InClusterIPPool",
        namespace: "site-b",
        name: "racks-b",
        spec: || json!({"addresses": ["10.65.0.0/22"], "prefix": 22, "gateway": "10.65.3.254"}),
        claims_in: &["site-b"],
        count: 600,
        address: |place| ipv4([10, 65, 0, 1], place),
    },
    Full {
        kind: "GlobalInClusterIPPool",
        namespace: "",
        name: "racks",
        spec: || json!({"addresses": ["10.66.0.10-10.66.3.200"], "prefix": 22, "gateway": "10.66.0.1"}),
        claims_in: &["site-a", "site-b"],
        count: 500,
        address: |place| ipv4([10, 66, 0, 10], place),
    },
    Full {
        kind: "InClusterPrefixPool",
        namespace: "site-b",
        name: "blocks",
        spec: || json!({"prefixes": ["fd40::/48"], "allocationPrefixLength": 64}),
        claims_in: &["site-b"],
        count: 186,
        address: |place| {
            if place == 0 {
                "fd40::".to_owned()
            } else {
                format!("fd40:0:0:{place:x}::")
            }
        },
    },
];

/// The pools, the namespace of a new claim for each, and the lowest free address of each.
pub(crate) fn lowest_free() -> Vec<(&'static str, &'static str, &'static str, String)> {
    let lowest = |pool: &Full| {
        (
            pool.kind,
            pool.name,
            pool.claims_in[0],
            (pool.address)(FULL),
        )
    };
    POOLS.iter().map(lowest).collect()
}

/// Creates all objects.
pub(crate) async fn load(store: &Store) {
    assert_eq!(POOLS.iter().map(|pool| pool.count).sum::<usize>(), COUNT);
    for (namespace, cluster, paused) in [("site-a", "moving", false), ("site-b", "resting", true)] {
        store.namespace(namespace).await;
        store.create_cluster(namespace, cluster, paused).await;
    }
    let mut all = Vec::new();
    for pool in &POOLS {
        let made = create(store, pool).await;
        all.extend((0..pool.count).map(|number| (pool, made.clone(), number)));
    }
    futures::stream::iter(all)
        .for_each_concurrent(AT_ONCE, |(pool, made, number)| async move {
            fill(store, pool, &made, number).await
        })
        .await;
}

async fn create(store: &Store, pool: &Full) -> Value {
    let mut made = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": pool.kind, "metadata": {"name": pool.name},
        "spec": (pool.spec)(),
    });
    if !pool.namespace.is_empty() {
        made["metadata"]["namespace"] = json!(pool.namespace);
    }
    let mut made = store.create(OPERATOR, &made).await;
    add_finalizer(&mut made, PROTECT_POOL);
    store.replace(GO_PROVIDER, &made).await
}

async fn fill(store: &Store, pool: &Full, made: &Value, number: usize) {
    let namespace = pool.claims_in[number % pool.claims_in.len()];
    let version = if number.is_multiple_of(2) {
        "v1beta2"
    } else {
        "v1beta1"
    };
    let mut wanted = claim(
        version,
        namespace,
        &format!("{}-{number}", pool.name),
        (pool.kind, pool.name),
    );
    if number % 5 == 1 {
        let cluster = if namespace == "site-a" {
            "moving"
        } else {
            "resting"
        };
        wanted["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": cluster});
    }
    // One write less than the Go provider needs; the field manager of the finalizer does not
    // matter.
    add_finalizer(&mut wanted, RELEASE_ADDRESS);
    let claim = store.create(CONSUMER, &wanted).await;
    let mut address = ip_address(&claim, made, &(pool.address)(number + number / FULL));
    let is_restored = match pool.name {
        "racks-a" => RESTORED.contains(&number),
        "racks-b" => number == RESTORED_AND_PAUSED,
        _ => false,
    };
    if is_restored {
        (
            address["metadata"]["ownerReferences"],
            address["metadata"]["finalizers"],
        ) = (Value::Null, Value::Null);
    }
    store
        .create(if is_restored { RESTORE } else { GO_PROVIDER }, &address)
        .await;
    GoProvider::new(store).commit(&claim).await;
}

fn ipv4(base: [u8; 4], place: usize) -> String {
    let base = u32::from(Ipv4Addr::from(base));
    Ipv4Addr::from(base + u32::try_from(place).expect("a small number")).to_string()
}
