//! Detects writes by uids and resource versions.

use capi_ipam_api::Pool;
use capi_ipam_controller::client::ApiObject;
use kube::Resource;
use support::prelude::*;

/// How long no write may happen at rest.
const QUIET: Duration = Duration::from_secs(10);
/// The maximum time until the cluster is at rest.
const SETTLING: Duration = Duration::from_mins(3);

/// Kind, namespace and name of objects, each with its uid and resource version.
pub(crate) type Versions = BTreeMap<String, String>;

/// The uid and the resource version of an object.
pub(crate) fn version<K: Resource>(object: &K) -> String {
    format!(
        "{} at {}",
        object.uid().unwrap_or_default(),
        object.resource_version().unwrap_or_default()
    )
}

async fn add<K: ApiObject>(all: &mut Versions, kind: &str, calls: ResourceClient<K>) {
    for object in retry_unanswered(|| calls.list())
        .await
        .expect("objects can be listed")
    {
        let key = format!(
            "{kind} {}/{}",
            object.namespace().unwrap_or_default(),
            object.name_any()
        );
        all.insert(key, version(&object));
    }
}

/// All claims, IPAddresses and reservations of the cluster.
pub(crate) async fn holdings(consumer: &Consumer) -> Versions {
    let everywhere = consumer.in_namespace("");
    let mut all = Versions::new();
    add(&mut all, "claim", everywhere.claims()).await;
    add(&mut all, "IPAddress", everywhere.addresses()).await;
    add(&mut all, "reservation", everywhere.reservations()).await;
    all
}

/// All pools of single addresses, claims, IPAddresses and reservations of the cluster.
async fn everything(consumer: &Consumer) -> Versions {
    let mut all = holdings(consumer).await;
    add(&mut all, "global pool", consumer.global_pools()).await;
    let kind = InClusterKind::IPPool;
    let pools: ResourceClient<Pool> =
        ResourceClient::new(Api::all_with(consumer.client.clone(), &kind), &kind);
    add(&mut all, "pool", pools).await;
    all
}

/// What differs between two states of the cluster.
fn difference(before: &Versions, after: &Versions) -> Vec<String> {
    let describe = |key: &String| {
        let version = |all: &Versions| all.get(key).cloned().unwrap_or_else(|| "absent".to_owned());
        (before.get(key) != after.get(key))
            .then(|| format!("{key}: {} -> {}", version(before), version(after)))
    };
    let keys = before
        .keys()
        .chain(after.keys().filter(|key| !before.contains_key(*key)));
    keys.filter_map(describe).collect()
}

/// Waits until no object of this provider has been written for ten seconds.
///
/// # Panics
/// When writing does not end within three minutes; the text has what was written last.
pub(crate) async fn at_rest(consumer: &Consumer) -> Versions {
    let patience = Patience::new(SETTLING);
    let mut before = everything(consumer).await;
    loop {
        tokio::time::sleep(QUIET).await;
        let after = everything(consumer).await;
        let written = difference(&before, &after);
        if written.is_empty() {
            return after;
        }
        assert!(
            !patience.is_over(),
            "still written after {SETTLING:?}, within {QUIET:?}: {written:#?}"
        );
        before = after;
    }
}

/// Asserts that no claim, IPAddress or reservation was created, changed or deleted.
///
/// # Panics
/// When one was.
pub(crate) fn assert_same(what: &str, before: &Versions, after: &Versions) {
    let written = difference(before, after);
    assert!(
        written.is_empty(),
        "{what}: {} objects were written: {written:#?}",
        written.len()
    );
}
