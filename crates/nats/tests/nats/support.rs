//! What the tests share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::health::Health;
use capi_ipam_controller::watch::{Change, Source};
use capi_ipam_nats::{Bucket, BucketOptions, Connection, Created, Deadlines, KvObject, Settings};
use capi_ipam_testing::nats::{Node, Options};
use capi_ipam_testing::wait::TIMEOUT;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

/// The name of the bucket of a test.
pub(crate) const BUCKET: &str = "ipam";

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Item {
    pub(crate) cluster: String,
    pub(crate) number: u64,
}

/// A value with a number.
pub(crate) fn item(number: u64) -> Item {
    Item {
        cluster: "west-1".to_owned(),
        number,
    }
}

/// Settings with deadlines that are long enough for a busy machine.
pub(crate) fn settings(servers: Vec<String>) -> Settings {
    Settings {
        servers,
        name: "test".to_owned(),
        deadlines: Deadlines {
            connect: Duration::from_secs(10),
            request: Duration::from_secs(10),
        },
        ..Settings::default()
    }
}

/// Settings with a short deadline for requests, for tests in which there is no answer.
pub(crate) fn impatient(servers: Vec<String>) -> Settings {
    let mut settings = settings(servers);
    settings.deadlines.request = Duration::from_secs(1);
    settings
}

/// Options of a bucket with one replica, whose watches notice everything soon.
pub(crate) fn single() -> BucketOptions {
    BucketOptions {
        single: true,
        ..replicated()
    }
}

/// Options of a bucket with three replicas, whose watches notice everything soon.
pub(crate) fn replicated() -> BucketOptions {
    BucketOptions {
        create: true,
        heartbeat: Duration::from_millis(500),
        check_interval: Duration::from_millis(500),
        ..BucketOptions::default()
    }
}

/// A connection that has to succeed.
pub(crate) async fn connect(settings: &Settings) -> Connection {
    let opened = Connection::open(settings).await;
    opened.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

/// A server with an empty bucket.
pub(crate) async fn node_with_bucket() -> (Node, Bucket<Item>) {
    let node = Node::start(Options::default());
    let connection = connect(&settings(vec![node.url()])).await;
    let bucket = open(&connection, &single()).await;
    (node, bucket)
}

/// A bucket that has to open.
pub(crate) async fn open(connection: &Connection, options: &BucketOptions) -> Bucket<Item> {
    let opened = Bucket::open(connection, BUCKET, options).await;
    opened.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

/// Creates a key that does not exist.
pub(crate) async fn create(bucket: &Bucket<Item>, key: &str, number: u64) -> KvObject<Item> {
    match bucket.create(key, &item(number)).await {
        Ok(Created::Now(object)) => object,
        Ok(Created::Taken(object)) => panic!("{key} exists: {object:?}"),
        Err(error) => panic!("{}", chain(&error)),
    }
}

/// An error with its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

/// What a store knows that applies the changes of a watch.
pub(crate) struct Watched {
    changes: BoxStream<'static, Change<KvObject<Item>>>,
    /// Shows why the watch is interrupted.
    pub(crate) health: Health,
    /// The objects that exist and can be decoded, by key.
    pub(crate) objects: BTreeMap<String, KvObject<Item>>,
    /// The objects of a list that is not complete.
    listing: Option<BTreeMap<String, KvObject<Item>>>,
    /// The number of complete lists.
    pub(crate) lists: usize,
    /// The markers that were seen.
    pub(crate) markers: Vec<KvObject<Item>>,
    /// The keys whose values cannot be decoded.
    pub(crate) invalid: BTreeSet<String>,
}

impl Watched {
    /// A watch that has completed its first list.
    pub(crate) async fn start(bucket: &Bucket<Item>, prefix: &str) -> Self {
        let mut watched = Self::open(bucket, prefix);
        watched
            .until("the list is complete", |watched| watched.lists > 0)
            .await;
        watched
    }

    /// A watch that has not started.
    pub(crate) fn open(bucket: &Bucket<Item>, prefix: &str) -> Self {
        let health = Health::default();
        let source = bucket.source(prefix, Arc::new(()), health.register_watch("Item"));
        Self {
            changes: source.expect("it is a prefix").open().changes,
            health,
            objects: BTreeMap::new(),
            listing: None,
            lists: 0,
            markers: Vec::new(),
            invalid: BTreeSet::new(),
        }
    }

    /// Applies changes until a condition holds.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let reached = async {
            while !holds(self) {
                let change = self.changes.next().await.expect("a watch never ends");
                self.apply(change);
            }
        };
        let in_time = timeout(TIMEOUT, reached).await.is_ok();
        assert!(in_time, "{what}: {:?}", self.numbers());
    }

    /// Whether a list has begun that is not complete.
    pub(crate) fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    fn apply(&mut self, change: Change<KvObject<Item>>) {
        match change {
            Change::Init => self.listing = Some(BTreeMap::new()),
            Change::InitApply(object) => {
                let listing = self.listing.as_mut().expect("a list has begun");
                listing.insert(object.key.clone(), object);
            }
            Change::InitDone => {
                self.objects = self.listing.take().expect("a list has begun");
                self.lists += 1;
            }
            Change::Apply(object) => {
                assert!(self.listing.is_none(), "a change is part of a list");
                self.invalid.remove(&object.key);
                self.objects.insert(object.key.clone(), object);
            }
            Change::Delete(object) => {
                self.objects.remove(&object.key);
                self.invalid.remove(&object.key);
                self.markers.push(object);
            }
            Change::ApplyInvalid(object) => {
                let key = object.metadata.name.expect("it has a name");
                self.objects.remove(&key);
                self.invalid.insert(key);
            }
            Change::DeleteInvalid(object) => panic!("{object:?}"),
            // The watch goes on with the next list.
            Change::Failed(_) => {}
        }
    }

    /// The keys whose markers were seen.
    pub(crate) fn deleted(&self) -> Vec<&str> {
        let markers = self.markers.iter();
        markers.map(|marker| marker.key.as_str()).collect()
    }

    /// The keys and their values.
    pub(crate) fn numbers(&self) -> BTreeMap<&str, u64> {
        let number = |object: &KvObject<Item>| object.value.as_ref().map_or(0, |item| item.number);
        self.objects
            .iter()
            .map(|(key, object)| (key.as_str(), number(object)))
            .collect()
    }
}
