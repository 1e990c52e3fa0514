//! What the tests share: a registry of either backend, and records.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::watch::Change;
use capi_ipam_registry::{
    BlockRecord, Created, Entry, Key, Record, RecordCache, Registry, RegistryError,
};
use capi_ipam_testing::wait::eventually;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// Runs each of these tests, functions that are generic over the [`World`], for both backends.
macro_rules! both {
    ($($test:ident),* $(,)?) => {
        mod nats {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test::<crate::nats::World>().await;
            })*
        }

        mod kubernetes {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test::<crate::hub::World>().await;
            })*
        }
    };
}

pub(crate) use both;

/// The server of a registry.
pub(crate) trait World: Send + Sized {
    /// Starts a server with an empty registry.
    async fn start() -> Self;

    /// Opens the registry with new connections.
    async fn open(&self) -> Result<Registry, RegistryError>;

    /// Opens the registry with credentials that the server does not accept.
    async fn open_denied() -> RegistryError;

    /// Kills the server.
    fn kill(&mut self);

    /// Starts the server again, with its data.
    fn start_again(&mut self);

    /// Names and texts that are no records.
    fn bad_records() -> Vec<(String, String)>;

    /// Writes a text that is no record, as another program would.
    async fn write_bad(&self, key: &str, text: &str);

    /// Runs an operation whose writes are applied and not answered.
    async fn without_answers<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &mut self,
        operation: impl FnOnce(Registry) -> F + Send,
    ) -> T;
}

/// A server with its registry.
pub(crate) async fn start<W: World>() -> (W, Registry) {
    let world = W::start().await;
    let registry = open(&world).await;
    (world, registry)
}

/// A registry that has to open.
pub(crate) async fn open<W: World>(world: &W) -> Registry {
    let opened = world.open().await;
    opened.unwrap_or_else(|error| panic!("{}", error_chain(&error)))
}

/// The name of a block of the network `lab`.
pub(crate) fn block_key(number: u32) -> String {
    let address = (0x0a00_0000 + number * 64).into();
    let block = capi_ipam_ip::Block::new(std::net::IpAddr::V4(address), 26);
    let network = "lab".into();
    Key::Block { network, block }.to_string()
}

/// The record of a block.
pub(crate) fn block_record(key: &str, cluster: &str) -> Record {
    let Some(Key::Block { network, block }) = Key::parse(key) else {
        panic!("{key} is no block")
    };
    Record::Block(BlockRecord {
        network: network.into(),
        block: capi_ipam_registry::cidr(block),
        cluster: cluster.to_owned(),
        since: serde_json::from_str("\"2026-01-01T12:00:00Z\"").ok(),
        ..BlockRecord::default()
    })
}

/// Creates the record of a block that does not exist.
pub(crate) async fn create(registry: &Registry, key: &str, cluster: &str) -> Entry {
    match registry.create(key, &block_record(key, cluster)).await {
        Ok(Created::Ours(entry)) => entry,
        Ok(Created::Theirs(entry)) => panic!("{key} exists: {entry:?}"),
        Err(error) => panic!("{}", error_chain(&error)),
    }
}

/// The record of a block that exists.
pub(crate) async fn read(registry: &Registry, key: &str) -> Entry {
    let read = registry.read(key).await.expect("it answers");
    read.expect("it exists")
}

/// Replaces the record of a block, whose version is the current one.
pub(crate) async fn update(registry: &Registry, held: &Entry, cluster: &str) -> Entry {
    let record = block_record(&held.key, cluster);
    let updated = registry.update(held, &record).await;
    updated.unwrap_or_else(|error| panic!("{}", error_chain(&error)))
}

/// The id of the cluster that holds a block.
pub(crate) fn holder(entry: &Entry) -> &str {
    match entry.record() {
        Some(Record::Block(record)) => &record.cluster,
        other => panic!("{other:?}"),
    }
}

/// Asserts that a text is one line.
pub(crate) fn assert_one_line(text: &str) {
    println!("{text}");
    assert!(!text.contains('\n') && text.len() < 600, "{text}");
}

/// A cache that a watch fills, until it is dropped.
pub(crate) struct Watched {
    pub(crate) cache: Arc<RecordCache>,
    /// The reason of the last failure.
    pub(crate) failure: Arc<Mutex<Option<String>>>,
    task: JoinHandle<()>,
}

impl Watched {
    pub(crate) fn start(registry: &Registry) -> Self {
        let cache = Arc::new(RecordCache::default());
        let failure = Arc::new(Mutex::new(None));
        let changes = registry.watch(Arc::clone(&cache) as _);
        let mut changes = changes.unwrap_or_else(|error| panic!("{}", error_chain(&error)));
        let failed = Arc::clone(&failure);
        let task = tokio::spawn(async move {
            while let Some(change) = changes.next().await {
                if let Change::Failed(reason) = change {
                    *failed.lock() = Some(reason);
                }
            }
        });
        Self {
            cache,
            failure,
            task,
        }
    }

    /// Starts, and waits until the list is complete.
    pub(crate) async fn complete(registry: &Registry) -> Self {
        let watched = Self::start(registry);
        while !watched.cache.is_complete() {
            let changed = tokio::time::timeout(Duration::from_mins(1), watched.cache.changed());
            changed.await.expect("the list is complete within a minute");
        }
        watched
    }

    /// Waits until the watch shows exactly these holders of blocks of the network `lab`.
    pub(crate) async fn until_holders(&self, expected: &[&str]) {
        eventually(&format!("the holders are {expected:?}"), || async {
            let mut found = Vec::new();
            for (_, entry) in self.cache.blocks("lab") {
                match entry.record() {
                    Some(Record::Block(record)) => found.push(record.cluster.clone()),
                    // One that is no record may still be deleted or replaced.
                    _ => return None,
                }
            }
            (found == expected).then_some(())
        })
        .await;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}
