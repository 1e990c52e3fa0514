//! Secondaries of keys that a watch has shown, with a real API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capi_ipam_controller::client::connect as connect_to_api_server;
use capi_ipam_controller::controller::{Action, Attempt, ControllerBuilder, Reconciler};
use capi_ipam_controller::health::Health;
use capi_ipam_controller::watch::EventHandler;
use capi_ipam_nats::{Bucket, Garbage, KvObject, Secondaries, SecondaryError};
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options as PlaneOptions};
use capi_ipam_testing::nats::Node;
use capi_ipam_testing::wait::eventually;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::support::{Item, Watched, create, item, node_with_bucket};

/// The number of keys.
const KEYS: usize = 1000;

/// Writes a ConfigMap for each key.
struct Maps {
    secondaries: Arc<Secondaries<Item, ConfigMap>>,
    reconciled: Mutex<BTreeSet<String>>,
}

impl Reconciler for Maps {
    type Object = KvObject<Item>;
    type State = ();
    type Error = SecondaryError;

    async fn reconcile(
        &self,
        object: Arc<KvObject<Item>>,
        _: &mut Attempt<()>,
    ) -> Result<Action, SecondaryError> {
        self.secondaries
            .apply(&object.key, &object, fill(1))
            .await?;
        let mut reconciled = self.reconciled.lock().expect("no panic");
        reconciled.insert(object.key.clone());
        Ok(Action::AwaitChange)
    }
}

/// Sets the data of a ConfigMap.
fn fill(number: u64) -> impl Fn(&mut ConfigMap) {
    move |map| {
        let data = map.data.get_or_insert_default();
        data.insert("number".to_owned(), number.to_string());
    }
}

struct World {
    plane: ControlPlane,
    _node: Node,
    client: Client,
    bucket: Bucket<Item>,
}

impl World {
    async fn start() -> Self {
        let options = PlaneOptions {
            audit: true,
            ..PlaneOptions::default()
        };
        let plane = ControlPlane::start(options, &Installation::default());
        let client = connect_to_api_server(Some(plane.provider_kubeconfig()), "test/1").await;
        let (node, bucket) = node_with_bucket().await;
        Self {
            plane,
            _node: node,
            client: client.expect("the kubeconfig is valid"),
            bucket,
        }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Secondaries that no watch shows.
    fn secondaries(&self) -> Arc<Secondaries<Item, ConfigMap>> {
        let controller: ControllerBuilder<KvObject<Item>> = ControllerBuilder::new("items");
        Secondaries::new(&self.bucket, self.maps(), (), controller.trigger())
    }

    /// Runs a controller until it has reconciled all keys.
    async fn run_controller(&self) {
        let mut controller = ControllerBuilder::new("items");
        let secondaries = Secondaries::new(&self.bucket, self.maps(), (), controller.trigger());
        let health = Health::default();
        let watched = Api::namespaced(self.client.clone(), "default");
        controller.watch(secondaries.watch(watched, health.register_watch("ConfigMap")));
        let keys = self
            .bucket
            .source("", Arc::new(()), health.register_watch("Item"));
        let keys = keys.expect("it is a prefix");
        let maps = Arc::new(Maps {
            secondaries,
            reconciled: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let running = tokio::spawn(controller.concurrency(16).run(
            keys,
            stop.clone(),
            Arc::clone(&maps),
        ));
        eventually("all keys are reconciled", || async {
            let reconciled = maps.reconciled.lock().expect("no panic");
            (reconciled.len() == KEYS).then_some(())
        })
        .await;
        stop.cancel();
        running.await.expect("no panic");
    }

    /// The number of requests for single secondaries by verb.
    fn requests(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in self.plane.provider_requests() {
            if request.resource == "configmaps" && !request.name.is_empty()
                || request.verb == "create"
            {
                *counts.entry(request.verb).or_default() += 1;
            }
        }
        counts
    }

    fn number(&self, name: &str) -> String {
        let data = "-o=jsonpath={.data.number}";
        self.plane.kubectl(&["get", "configmap", name, data])
    }
}

/// A secondary that is as wanted costs no request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_with_correct_secondaries_sends_no_request() {
    let world = World::start().await;
    let created = futures::stream::iter(0..KEYS)
        .map(|number| {
            let bucket = world.bucket.clone();
            async move { bucket.create(&format!("block.{number}"), &item(1)).await }
        })
        .buffer_unordered(64)
        .try_for_each(|_| std::future::ready(Ok(())));
    created.await.expect("they are created");
    world.run_controller().await;
    let first = world.requests();
    println!("requests for the secondaries of {KEYS} keys: {first:?} at the first start");
    assert_eq!(first.get("create").copied(), Some(KEYS));
    assert_eq!(world.number("block.7"), "1");
    world.run_controller().await;
    assert_eq!(world.requests(), first, "the second start sends none");
}

/// A watch that is late costs a conflict, and the next attempt reads the secondary.
#[tokio::test]
async fn late_watch_never_overwrites_a_secondary() {
    let world = World::start().await;
    create(&world.bucket, "a", 1).await;
    let watched = Watched::start(&world.bucket, "").await;
    let primary = watched.objects.get("a").expect("it exists");
    let secondaries = world.secondaries();
    // The watch shows nothing, but the ConfigMap exists.
    let first = secondaries.apply("a", primary, fill(1)).await;
    first.expect("it is created");
    secondaries.init();
    secondaries.init_done();
    let found = secondaries.apply("a", primary, fill(2)).await;
    found.expect("the API server has it, so it is read");
    assert_eq!(world.number("a"), "2");

    // The watch shows an earlier state.
    let maps = capi_ipam_controller::client::ResourceClient::new(world.maps(), &());
    let stale = maps.get("a").await.expect("it answers").expect("it exists");
    secondaries.init();
    EventHandler::apply(secondaries.as_ref(), &stale);
    secondaries.init_done();
    let patch = r#"{"data": {"number": "3", "other": "x"}}"#;
    let patched = ["patch", "configmap", "a", "--type=merge", "-p", patch];
    world.plane.kubectl(&patched);
    let late = secondaries.apply("a", primary, fill(4)).await;
    assert!(
        matches!(&late, Err(SecondaryError::Kubernetes(error)) if error.is_conflict()),
        "{late:?}"
    );
    assert_eq!(world.number("a"), "3");
    let again = secondaries.apply("a", primary, fill(4)).await;
    again.expect("it is read");
    assert_eq!(world.number("a"), "4");

    // The watch shows a ConfigMap that is gone.
    EventHandler::apply(secondaries.as_ref(), &stale);
    world.plane.kubectl(&["delete", "configmap", "a"]);
    let gone = secondaries.apply("a", primary, fill(5)).await;
    assert!(gone.is_err());
    let again = secondaries.apply("a", primary, fill(5)).await;
    again.expect("it is created");
    assert_eq!(world.number("a"), "5");

    // Somebody else has created a ConfigMap without the labels that the watch selects.
    world.plane.kubectl(&["create", "configmap", "foreign"]);
    let taken = secondaries.apply("foreign", primary, fill(6)).await;
    assert!(
        matches!(taken, Err(SecondaryError::Taken { .. })),
        "{taken:?}"
    );
}

/// No event of the watch follows a write that the API server refuses.
#[tokio::test]
async fn refused_writes_leave_nothing_to_be_read() {
    let world = World::start().await;
    create(&world.bucket, "a", 1).await;
    let watched = Watched::start(&world.bucket, "").await;
    let primary = watched.objects.get("a").expect("it exists");
    let secondaries = world.secondaries();
    secondaries.init();
    secondaries.init_done();
    world.plane.kubectl(&["create", "configmap", "foreign"]);
    for name in ["foreign", "Invalid"] {
        let refused = secondaries.apply(name, primary, fill(1)).await;
        assert!(refused.is_err(), "{name}");
    }
    let mut garbage = Garbage::new(&world.bucket, secondaries, Duration::ZERO);
    garbage.pass().await.expect("the bucket answers");
    let requests = world.plane.provider_requests();
    let lists = requests.iter().filter(|request| request.verb == "list");
    assert_eq!(lists.count(), 0, "{requests:?}");
}

/// The watch shows the deletion of an earlier object of the name.
#[tokio::test]
async fn late_deletion_hides_no_secondary() {
    let world = World::start().await;
    let held = create(&world.bucket, "a", 1).await;
    let watched = Watched::start(&world.bucket, "").await;
    let primary = watched.objects.get("a").expect("it exists");
    let secondaries = world.secondaries();
    secondaries.init();
    secondaries.init_done();
    let first = secondaries.apply("a", primary, fill(1)).await;
    first.expect("it is created");
    let maps = capi_ipam_controller::client::ResourceClient::new(world.maps(), &());
    let mut earlier = maps.get("a").await.expect("it answers").expect("it exists");
    earlier.metadata.uid = Some("earlier".to_owned());
    EventHandler::delete(secondaries.as_ref(), &earlier);
    world.bucket.delete(&held).await.expect("it is ours");
    let watched = Watched::start(&world.bucket, "").await;
    let marker = watched.markers.first().expect("it was deleted");
    let deleted = secondaries.delete("a", marker).await;
    deleted.expect("it is deleted");
    assert!(maps.get("a").await.expect("it answers").is_none());
}
