//! Watches that recover from every error, and other sources of objects ([`Source`]).
//!
//! Each watch has its own backoff, so a kind that cannot be watched does not delay others. An
//! invalid object is logged and skipped. An [`EventHandler`] sees every change before a reconciler
//! does, and can detect objects that were deleted while the watch was interrupted.

mod failures;
mod fan_out;
mod observed_cache;
mod source;
mod streaming_list;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use kube::api::ListParams;
use kube::core::ObjectMeta;
use kube::runtime::watcher as start_watch;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::failures::Failure;
pub use self::failures::SourceFailures;
pub use self::fan_out::FanOut;
pub use self::observed_cache::ObservedCache;
pub(crate) use self::source::Fingerprint;
pub use self::source::{Change, Keyed, Opened, Source};
use self::streaming_list::{LIMITS, streaming_list};
use crate::client::with_timeout;
use crate::discovery;
use crate::health::ReadinessGate;
use crate::resource_version::ResourceVersion;
pub use crate::restores::{Epoch, RestoreDetector};
pub use capi_ipam_objects::maybe_invalid::{Invalid, MaybeInvalid};

/// Sees every change of the objects of one source, in order, before any reconciler runs. The
/// methods correspond to [`Change`]. Sources of the same kind have a handler each: the end of a
/// list says nothing about the objects of another source.
///
/// A watch begins with a list, and lists again after an interruption. An object that a new list
/// does not contain was deleted meanwhile. A controller reports these objects of its main kind with
/// [`EventHandler::delete`], since it has them in its cache. For other kinds, a handler that stores
/// objects has to remove them in [`EventHandler::init_done`], for which it has an
/// [`Observed`](crate::observed::Observed).
pub trait EventHandler<K>: Send + Sync + 'static {
    /// A list begins, and is requested next. [`EventHandler::apply`] is called for each object in
    /// it. Another one can begin before it is complete.
    fn init(&self) {}
    /// The list is complete.
    fn init_done(&self) {}
    /// The object was listed, created or changed.
    fn apply(&self, object: &K);
    /// The object was deleted.
    fn delete(&self, object: &K);
    /// etcd was restored to an earlier state. A handler that compares resourceVersions, or
    /// remembers deletions, has to accept any state from now on. A list follows. Called for all
    /// kinds at once, whichever watch or read has seen it.
    fn restored(&self) {}
    /// An object that cannot be decoded was listed, created or changed. It exists, and may be a
    /// changed state of an object that is known: a handler that removes unlisted objects in
    /// [`EventHandler::init_done`] has to keep it.
    ///
    /// There is no default: what is not decodable must not be taken for deleted by accident.
    fn apply_invalid(&self, object: &Invalid);
    /// An object whose last state cannot be decoded was deleted.
    fn delete_invalid(&self, object: &Invalid);
}

/// An [`Api`] to watch, in which an invalid object does not fail the whole list.
pub type WatchApi<K> = Api<MaybeInvalid<K>>;

/// A handler that does nothing.
impl<K> EventHandler<K> for () {
    fn apply(&self, _: &K) {}
    fn delete(&self, _: &K) {}
    fn apply_invalid(&self, _: &Invalid) {}
    fn delete_invalid(&self, _: &Invalid) {}
}

/// Removes large metadata that no controller reads: `managedFields`, and the annotation of `kubectl
/// apply` with the last applied configuration.
pub fn trim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        if annotations.is_empty() {
            metadata.annotations = None;
        }
    }
}

/// Default duration of a watch in seconds (`timeoutSeconds`). A watch that is silent for 5 s longer
/// is dead, and is reopened at its resourceVersion. This costs one request per kind every 30 s,
/// which the API server answers from memory.
const WATCH_TIMEOUT: u32 = 30;

/// Interval of the check whether the resourceVersion of the server has decreased. It is checked at
/// once when a watch is interrupted or opened again: the API server does not survive a restore.
const VERSION_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Delay before a failed check is repeated.
const VERSION_CHECK_RETRY_DELAY: Duration = Duration::from_secs(1);

/// An object that can be watched.
pub trait Watchable:
    Resource<DynamicType: Clone + Debug + Send + Sync>
    + Clone
    + DeserializeOwned
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Watchable for K
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Send + Sync,
{
}

/// What to watch, and what sees the events.
pub struct WatchSpec<K: Resource> {
    /// The objects to watch: all, or those of one namespace.
    pub api: WatchApi<K>,
    /// Selectors and page size.
    pub config: watcher::Config,
    /// The dynamic type of the kind, `()` for static types.
    pub version: K::DynamicType,
    /// Removes unneeded fields of each object before `handler` sees it.
    pub trim: fn(&mut K),
    /// Sees every change before any reconciler does.
    pub handler: Arc<dyn EventHandler<K>>,
    /// Gets the failures of the watch, and becomes ready when the initial list is complete.
    pub synced: ReadinessGate,
}

impl<K: Resource> WatchSpec<K> {
    /// Watches all objects of `api`, of which [`trim`] removes metadata.
    pub fn new(
        api: WatchApi<K>,
        version: K::DynamicType,
        handler: Arc<dyn EventHandler<K>>,
        synced: ReadinessGate,
    ) -> Self {
        let trim = |object: &mut K| trim(object.meta_mut());
        Self {
            api,
            config: watcher::Config::default(),
            version,
            trim,
            handler,
            synced,
        }
    }

    /// With something that sees every change before any reconciler does.
    #[must_use]
    pub fn handler(mut self, handler: Arc<dyn EventHandler<K>>) -> Self {
        self.handler = handler;
        self
    }

    /// Only objects that a label selector matches.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }
}

impl<K: Watchable> Source for WatchSpec<K> {
    type Object = K;

    fn open(self) -> Opened<K> {
        let (handler, synced) = (Arc::clone(&self.handler), self.synced.clone());
        Opened {
            changes: watch_stream(self).boxed(),
            handler,
            synced,
        }
    }
}

/// Reads a source that only its handler needs. The gate becomes ready when the initial list is
/// complete. The stream ends if the source does: a watch ends only if the API server no longer
/// serves a kind that was listed.
pub fn watch_into(source: impl Source) -> impl Stream<Item = ()> + Send + 'static {
    read(source.open(), |_| {})
}

/// Reads a source that is open, see [`watch_into`]. `failed` is called with each of its failures.
pub(crate) fn read<K: Keyed>(
    opened: Opened<K>,
    failed: impl Fn(&str) + Send + 'static,
) -> impl Stream<Item = ()> + Send + 'static {
    let Opened {
        changes, synced, ..
    } = opened;
    changes.map(move |change| match change {
        Change::InitDone => synced.ready(),
        Change::Failed(error) => failed(&error),
        _ => {}
    })
}

/// Watches a kind. Failures are reported to the gate; the caller calls [`ReadinessGate::ready`]
/// after it has processed the initial list.
///
/// The stream ends only if the API server no longer serves a kind that was listed; the gate has
/// reported a fatal error then.
///
/// If etcd is restored from a snapshot, resourceVersions decrease. A watch at a version from before
/// the restore then gets no events and no error until the server reaches that version, and it
/// misses all changes up to there. So the version is read periodically and after each interruption.
/// If it is lower than before, all watches of the process list everything again, see
/// [`RestoreDetector`].
fn watch_stream<K: Watchable>(
    spec: WatchSpec<K>,
) -> impl Stream<Item = Change<K>> + Send + 'static {
    let WatchSpec {
        api,
        config,
        version,
        trim,
        handler,
        synced,
    } = spec;
    let kind: Arc<str> = K::kind(&version).into();
    let served_as: Arc<str> = K::api_version(&version).into();
    let if_unserved: Arc<str> = discovery::unserved(
        &K::group(&version),
        &K::plural(&version),
        &[&K::version(&version)],
    )
    .into();
    let config = watcher::Config {
        timeout: config.timeout.or(Some(WATCH_TIMEOUT)),
        ..config
    };
    let in_pages = Arc::new(AtomicBool::new(false));
    let unserved = CancellationToken::new();
    let no_longer_served = unserved.clone().cancelled_owned();
    let restores = synced.restores().clone();
    // The subscription ends with the stream, also if others keep the handler.
    let subscription = Arc::new(Arc::clone(&handler));
    let weak = Arc::downgrade(&subscription);
    restores.subscribe(move || {
        let Some(handler) = weak.upgrade() else {
            return false;
        };
        handler.restored();
        true
    });
    let watch = move || {
        let newest = Arc::new(AtomicU64::new(0));
        let interrupted = Arc::new(Notify::new());
        let check = VersionCheck {
            api: api.clone(),
            kind: Arc::clone(&kind),
            newest: Arc::clone(&newest),
            interrupted: Arc::clone(&interrupted),
        };
        let epoch_ended = wait_for_restore(check, restores.clone(), restores.epoch());
        let events = if in_pages.swap(false, Ordering::Relaxed) {
            info!(%kind, "the API server cannot stream the initial list; the objects are listed in pages");
            start_watch(api.clone(), config.clone()).left_stream()
        } else {
            let reopened = Arc::clone(&interrupted);
            streaming_list(
                LIMITS,
                api.clone(),
                config.clone(),
                Arc::clone(&in_pages),
                synced.clone(),
                reopened,
            )
            .right_stream()
        };
        let (kind, synced) = (Arc::clone(&kind), synced.clone());
        let handler = Arc::clone(subscription.as_ref());
        let (served_as, unserved) = (Arc::clone(&served_as), unserved.clone());
        let if_unserved = Arc::clone(&if_unserved);
        let mut failures = SourceFailures::new(Arc::clone(&kind), synced.clone());
        events.take_until(epoch_ended.boxed()).then(move |item| {
            let mut delay = None;
            let seen = match item {
                Ok(event) => {
                    // `Init` is sent before the request.
                    if !matches!(event, Event::Init) {
                        failures.ended();
                    }
                    newest.fetch_max(version_in(&event), Ordering::Relaxed);
                    change_of(event, &kind, trim)
                }
                Err(error) => {
                    interrupted.notify_one();
                    let failure = Failure::of(&error).explain_unserved(&if_unserved);
                    let refused_for = failures.report(&failure);
                    delay = Some(failures.delay());
                    if failure.is_permanent(synced.is_ready(), refused_for) {
                        synced.fatal(&format!(
                            "the API server no longer serves this kind in {served_as}"
                        ));
                        unserved.cancel();
                    }
                    Change::Failed(failure.text)
                }
            };
            seen.pass_to(handler.as_ref());
            async move {
                if let Some(delay) = delay {
                    tokio::time::sleep(delay).await;
                }
                seen
            }
        })
    };
    futures::stream::repeat_with(watch)
        .flatten()
        .take_until(no_longer_served)
}

/// The resourceVersion of the object of an event, 0 if there is none.
fn version_in<K: Resource>(event: &Event<K>) -> u64 {
    let (Event::InitApply(object) | Event::Apply(object) | Event::Delete(object)) = event else {
        return 0;
    };
    as_number(object.meta().resource_version.as_deref())
}

/// A resourceVersion as a number; 0 if it is no number, so that it is never compared.
fn as_number(text: Option<&str>) -> u64 {
    text.and_then(ResourceVersion::parse)
        .map_or(0, ResourceVersion::get)
}

/// Returns when etcd was restored, according to this or another watch of the process.
async fn wait_for_restore<K: Watchable>(
    check: VersionCheck<K>,
    restores: RestoreDetector,
    epoch: Epoch,
) {
    tokio::select! {
        () = check.version_decreased() => restores.report(epoch),
        () = restores.ended(epoch) => {}
    }
}

/// Checks whether the resourceVersion of the server is lower than one that a watch has seen.
struct VersionCheck<K> {
    api: WatchApi<K>,
    kind: Arc<str>,
    /// The highest version that was seen.
    newest: Arc<AtomicU64>,
    /// Notified when the watch is interrupted or opened again.
    interrupted: Arc<Notify>,
}

impl<K: Watchable> VersionCheck<K> {
    /// Returns when the resourceVersion of the server is lower than one that was seen.
    async fn version_decreased(&self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(VERSION_CHECK_INTERVAL) => {}
                () = self.interrupted.notified() => {}
            }
            // Read before the request: the response is not older.
            let known = self.newest.load(Ordering::Relaxed);
            if known == 0 {
                continue;
            }
            let current = self.read_version().await;
            if (1..known).contains(&current) {
                warn!(
                    kind = %self.kind,
                    known,
                    current,
                    "the resourceVersion has decreased, etcd was probably restored from a snapshot; listing again"
                );
                return;
            }
            self.newest.fetch_max(current, Ordering::Relaxed);
        }
    }

    /// The current resourceVersion of the server. Repeated until it succeeds: after a restore,
    /// other clients write, and the version grows again.
    async fn read_version(&self) -> u64 {
        let one = ListParams::default().limit(1);
        loop {
            let operation = || format!("read the resourceVersion of {}", self.kind);
            match with_timeout(operation, self.api.list(&one)).await {
                Ok(list) => return as_number(list.metadata.resource_version.as_deref()),
                Err(_) => tokio::time::sleep(VERSION_CHECK_RETRY_DELAY).await,
            }
        }
    }
}

/// The change that an event of kube reports. Logs an object that cannot be decoded.
fn change_of<K: Resource>(
    event: Event<MaybeInvalid<K>>,
    kind: &str,
    trim: fn(&mut K),
) -> Change<K> {
    let (object, is_deleted, wrap): (_, _, fn(K) -> Change<K>) = match event {
        Event::Init => return Change::Init,
        Event::InitDone => return Change::InitDone,
        Event::InitApply(object) => (object, false, Change::InitApply),
        Event::Apply(object) => (object, false, Change::Apply),
        Event::Delete(object) => (object, true, Change::Delete),
    };
    match object.0 {
        Ok(mut object) => {
            trim(&mut object);
            wrap(object)
        }
        Err(invalid) if is_deleted => Change::DeleteInvalid(invalid),
        Err(mut invalid) => {
            self::trim(&mut invalid.metadata);
            warn!(
                kind,
                namespace = invalid.metadata.namespace,
                name = invalid.metadata.name,
                error = invalid.error,
                "skipping an invalid object; correct or delete it"
            );
            Change::ApplyInvalid(invalid)
        }
    }
}

#[cfg(test)]
mod tests;
