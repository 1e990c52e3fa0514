//! Secondaries of keys in another bucket.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::controller::ControllerBuilder;
use capi_ipam_nats::{Bucket, Created, Garbage, KvObject, Pass, SecondaryError, SecondaryKeys};
use capi_ipam_testing::nats::{Node, Options};

use crate::support::{Item, Watched, connect, create, open, settings, single};
use crate::writes::delete_bucket;

struct World {
    node: Node,
    primaries: Bucket<Item>,
    bucket: Bucket<u64>,
    keys: Arc<SecondaryKeys<Item, u64>>,
    garbage: Garbage<Item, SecondaryKeys<Item, u64>>,
}

impl World {
    async fn start() -> Self {
        let node = Node::start(Options::default());
        let connection = connect(&settings(vec![node.url()])).await;
        let primaries = open(&connection, &single()).await;
        let bucket = Bucket::open(&connection, "other", &single()).await;
        let bucket = bucket.expect("it is created");
        let controller: ControllerBuilder<KvObject<Item>> = ControllerBuilder::new("items");
        let keys = SecondaryKeys::new(&primaries, &bucket, controller.trigger());
        let garbage = Garbage::new(&primaries, keys.clone(), Duration::from_secs(1));
        Self {
            node,
            primaries,
            bucket,
            keys,
            garbage,
        }
    }

    /// Creates a key with a secondary of the same name, as a reconcile does.
    async fn create(&self, key: &str) -> KvObject<Item> {
        create(&self.primaries, key, 1).await;
        let primary = self.primary(key).await;
        let applied = self.keys.apply(key, &primary, &1).await;
        applied.expect("it can be written");
        primary
    }

    async fn primary(&self, key: &str) -> KvObject<Item> {
        let watched = Watched::start(&self.primaries, "").await;
        watched.objects.get(key).expect("it exists").clone()
    }

    async fn read(&self, key: &str) -> Option<KvObject<u64>> {
        let read = self.bucket.read(key).await.expect("it answers");
        read.filter(|found| !found.is_deleted())
    }

    async fn pass(&mut self) -> Pass {
        self.garbage.pass().await.expect("the server answers")
    }
}

fn pass(deleted: usize, kept: usize) -> Pass {
    Pass { deleted, kept }
}

#[tokio::test]
async fn secondary_is_written_only_if_it_differs() {
    let world = World::start().await;
    let primary = world.create("a").await;
    let first = world.read("a").await.expect("it is written");
    let owner = first.owner.as_ref().expect("it is recorded");
    assert_eq!(
        (owner.key.as_str(), owner.revision),
        ("a", primary.revision)
    );
    let apply = async |value: u64| world.keys.apply("a", &primary, &value).await;
    apply(1).await.expect("nothing differs");
    let same = world.read("a").await.expect("it is written");
    assert_eq!(same.revision, first.revision);
    apply(2).await.expect("it is ours");
    // A write of its value by a program that has read it keeps the owner.
    let held = world.read("a").await.expect("it is written");
    let updated = world.bucket.update(&held, &3).await;
    updated.expect("it is the last revision");
    apply(2).await.expect("it is still ours");
    let last = world.read("a").await.expect("it is written");
    assert_eq!((last.value, last.owner), (Some(2), first.owner));
}

#[tokio::test]
async fn key_of_somebody_else_is_not_changed() {
    let world = World::start().await;
    let created = world.bucket.create("a", &7).await;
    assert!(matches!(created, Ok(Created::Now(_))));
    create(&world.primaries, "a", 1).await;
    let primary = world.primary("a").await;
    let taken = world.keys.apply("a", &primary, &1).await;
    assert!(
        matches!(taken, Err(SecondaryError::Taken { .. })),
        "{taken:?}"
    );
    world.primaries.delete(&primary).await.expect("it is ours");
    let watched = Watched::start(&world.primaries, "").await;
    let marker = watched.markers.first().expect("it was deleted");
    let deleted = world.keys.delete("a", marker).await;
    deleted.expect("the server answers");
    assert_eq!(world.read("a").await.and_then(|found| found.value), Some(7));
}

#[tokio::test]
async fn secondary_of_a_deleted_key_is_deleted() {
    let mut world = World::start().await;
    let [reconciled, missed] = [world.create("a").await, world.create("b").await];
    world.create("c").await;
    for primary in [&reconciled, &missed] {
        let deleted = world.primaries.delete(primary).await;
        deleted.expect("it is ours");
    }
    let watched = Watched::start(&world.primaries, "").await;
    let marker = watched.markers.iter().find(|marker| marker.key == "a");
    for key in ["a", "a", "c", "missing"] {
        let marker = marker.expect("it was deleted");
        let deleted = world.keys.delete(key, marker).await;
        deleted.expect("the server answers");
    }
    assert!(world.read("a").await.is_none());
    assert_eq!(world.pass().await, pass(0, 0));
    assert_eq!(world.pass().await, pass(1, 0));
    assert_eq!(world.pass().await, pass(0, 0));
    assert!(world.read("b").await.is_none() && world.read("c").await.is_some());
}

#[tokio::test]
async fn secondary_of_a_lost_bucket_stays_without_opt_in() {
    let mut world = World::start().await;
    world.create("a").await;
    delete_bucket(&world.node).await;
    let connection = connect(&settings(vec![world.node.url()])).await;
    open(&connection, &single()).await;
    for _ in 0..3 {
        assert_eq!(world.pass().await, pass(0, 1));
    }
    world.garbage = world.garbage.missing_after(Duration::ZERO);
    assert_eq!(world.pass().await, pass(1, 0));
    assert!(world.read("a").await.is_none());
}
