//! Watches that go on whatever happens.
//!
//! Each has a backoff of its own, so that a kind that cannot be watched holds up no other. An object that cannot be
//! read is reported and passed over. An [`Observer`] hears of every change before anything else does, and of the
//! objects that vanished while the watch was broken.

mod guard;
mod streamed;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::{FutureExt, Stream, StreamExt};
use kube::api::ListParams;
use kube::core::{ObjectMeta, Status};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{watcher as start_watch, WatchStreamExt};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use self::guard::{MaybeInvalid, Invalid};
use crate::client::{chain, status_message, within};
use crate::health::ReadinessGate;
use self::streamed::streamed;

/// Hears of every change of the objects of one kind, in order, before any reconciler runs.
///
/// A watch begins with a full listing, and does so again whenever it lost track. Objects known from before that the
/// listing does not name are gone: an observer that remembers objects has to drop them at [`Observer::listed`].
pub trait Observer<K>: Send + Sync + 'static {
    /// A full listing begins; [`Observer::applied`] is called for each object in it.
    fn listing(&self) {}
    /// The listing is complete.
    fn listed(&self) {}
    /// The object is there, new or changed.
    fn applied(&self, object: &K);
    /// The object is gone.
    fn deleted(&self, object: &K);
}

/// An [`Api`] to watch: an object that cannot be read does not fail the others.
pub type WatchApi<K> = Api<MaybeInvalid<K>>;

/// An observer that does nothing.
impl<K> Observer<K> for () {
    fn applied(&self, _: &K) {}
    fn deleted(&self, _: &K) {}
}

/// Drops what no controller reads and what takes the most memory: the field managers, and the last configuration that
/// `kubectl apply` keeps in an annotation.
pub fn trim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        if annotations.is_empty() {
            metadata.annotations = None;
        }
    }
}

/// For how many seconds the API server is asked to watch, where the configuration does not say. One that lasts 5 s longer
/// without a word is dead, and is opened again from the version that it was at. That is a request for each kind every
/// half minute, which the API server answers from its memory.
const WATCH_TIMEOUT: u32 = 30;

/// How long a kind that had been listed may be unknown to the API server before the process ends. Another version may be
/// served instead, which a new process finds.
const MAX_ABSENCE: Duration = Duration::from_mins(1);

/// How long a watch may fail for reasons that pass by themselves before that is a warning.
const PASSING: Duration = Duration::from_secs(10);

/// How often the server is asked whether its versions have gone back.
const VERSION_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// As [`guarded`], for a kind of which the observer alone is to hear: `synced` is told when the first listing is complete,
/// too.
pub fn observed<K>(
    api: WatchApi<K>,
    config: watcher::Config,
    version: &K::DynamicType,
    observer: Arc<dyn Observer<K>>,
    trim: fn(&mut K),
    synced: ReadinessGate,
) -> impl Stream<Item = ()> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Send + Sync,
{
    guarded(api, config, version, observer, trim, synced.clone()).map(move |event| {
        if matches!(event, Event::InitDone) {
            synced.done();
        }
    })
}

/// Watches a kind. `trim` makes each object smaller before it is kept; `synced` is told when the watch breaks. That the
/// first listing is complete is for the caller to tell, who has to have taken all of it then.
///
/// Ends only when a kind that had been listed is no longer served; `synced` has told why.
///
/// When the server's data are restored from a snapshot, its versions go back. A watch that goes on from a version still
/// to come hears nothing then, without an error, until that version comes, and what was changed meanwhile it never
/// hears of. So the version is asked for now and then, and the watch begins anew when it is lower than one seen before.
pub fn guarded<K>(
    api: WatchApi<K>,
    config: watcher::Config,
    version: &K::DynamicType,
    observer: Arc<dyn Observer<K>>,
    trim: fn(&mut K),
    synced: ReadinessGate,
) -> impl Stream<Item = Event<K>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Send + Sync,
{
    let kind: Arc<str> = K::kind(version).into();
    let served_as: Arc<str> = K::api_version(version).into();
    let config = watcher::Config { timeout: config.timeout.or(Some(WATCH_TIMEOUT)), ..config };
    let in_pages = Arc::new(AtomicBool::new(false));
    let gone = CancellationToken::new();
    let is_gone = gone.clone().cancelled_owned();
    let watch = move || {
        let newest = Arc::new(AtomicU64::new(0));
        let restored = versions_went_back(api.clone(), Arc::clone(&kind), Arc::clone(&newest));
        let events = if in_pages.swap(false, Ordering::Relaxed) {
            info!(%kind, "all objects cannot be had as one stream; they are listed in pages");
            start_watch(api.clone(), config.clone()).left_stream()
        } else {
            streamed(api.clone(), config.clone(), Arc::clone(&in_pages), synced.clone()).right_stream()
        };
        let events = events.backoff(WatchBackoff::default());
        let (kind, observer, synced) = (Arc::clone(&kind), Arc::clone(&observer), synced.clone());
        let (served_as, gone) = (Arc::clone(&served_as), gone.clone());
        let mut failing = Failing::default();
        events.take_until(restored.boxed()).filter_map(move |item| {
            let seen = match item {
                Ok(event) => {
                    // That a listing begins is said before the server was asked.
                    if !matches!(event, Event::Init) && failing.end() {
                        synced.works();
                    }
                    newest.fetch_max(version_in(&event), Ordering::Relaxed);
                    readable(event, &kind, trim)
                }
                Err(error) => {
                    let failure = Failure::of(&error);
                    report(&kind, &failure, failing.note(Instant::now()));
                    if failure.is_refusal() {
                        let lasted = synced.refused(&failure.text);
                        if failure.is_final(synced.is_done(), lasted) {
                            synced.failed(&format!("the API server no longer serves this kind of {served_as}"));
                            gone.cancel();
                        }
                    } else {
                        synced.broken(&failure.text);
                    }
                    None
                }
            };
            if let Some(event) = &seen {
                match event {
                    Event::Init => observer.listing(),
                    Event::InitApply(object) | Event::Apply(object) => observer.applied(object),
                    Event::Delete(object) => observer.deleted(object),
                    Event::InitDone => observer.listed(),
                }
            }
            std::future::ready(seen)
        })
    };
    futures::stream::repeat_with(watch).flatten().take_until(is_gone)
}

/// The version of the object that an event is about, 0 when there is none.
fn version_in<K: Resource>(event: &Event<K>) -> u64 {
    let (Event::InitApply(object) | Event::Apply(object) | Event::Delete(object)) = event else { return 0 };
    version_of(object.meta().resource_version.as_deref())
}

/// A version as a number. Versions grow with every write; where they are no numbers, which the API does not rule out,
/// nothing is concluded from them.
fn version_of(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Ends when the server is at a version before one that was seen.
async fn versions_went_back<K>(api: WatchApi<K>, kind: Arc<str>, newest: Arc<AtomicU64>)
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let one = ListParams::default().limit(1);
    loop {
        tokio::time::sleep(VERSION_CHECK_INTERVAL).await;
        // Read before the server is asked: what it answers is not older.
        let known = newest.load(Ordering::Relaxed);
        let Ok(list) = within(|| format!("ask for the version of {kind}"), api.list(&one)).await else { continue };
        let current = version_of(list.metadata.resource_version.as_deref());
        if (1..known).contains(&current) {
            warn!(%kind, known, current, "the API server's data are older than they were; everything is listed anew");
            return;
        }
        newest.fetch_max(current, Ordering::Relaxed);
    }
}

fn readable<K: Resource>(event: Event<MaybeInvalid<K>>, kind: &str, trim: fn(&mut K)) -> Option<Event<K>> {
    let read = |guard: MaybeInvalid<K>| match guard.0 {
        Ok(mut object) => {
            trim(&mut object);
            Some(object)
        }
        Err(invalid) => {
            warn!(
                kind,
                namespace = invalid.metadata.namespace,
                name = invalid.metadata.name,
                error = invalid.error,
                "an object cannot be read and is passed over; correct or delete it"
            );
            None
        }
    };
    Some(match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(guard) => Event::InitApply(read(guard)?),
        Event::Apply(guard) => Event::Apply(read(guard)?),
        Event::Delete(guard) => Event::Delete(read(guard)?),
    })
}

/// What a watch failed with.
struct Failure {
    /// What the API server answered, if it did.
    code: Option<u16>,
    text: String,
}

impl Failure {
    fn of(error: &watcher::Error) -> Self {
        let of_status = |status: &Status| Self { code: Some(status.code), text: status_message(status) };
        match error {
            watcher::Error::WatchError(status) => of_status(status),
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => match error {
                kube::Error::Api(status) => of_status(status),
                error => Self { code: None, text: chain(error) },
            },
            watcher::Error::NoResourceVersion => Self { code: None, text: chain(error) },
        }
    }

    /// Somebody has to act before it can work.
    fn is_refusal(&self) -> bool {
        matches!(self.code, Some(403 | 404))
    }

    /// It can never work again in this process.
    fn is_final(&self, was_listed: bool, lasted: Duration) -> bool {
        self.code == Some(404) && was_listed && lasted >= MAX_ABSENCE
    }
}

/// For how long a watch has been failing.
#[derive(Default)]
struct Failing {
    /// The first and the last failure.
    times: Option<(Instant, Instant)>,
}

impl Failing {
    /// Notes a failure. Returns the time since the first one. After half a minute without any, the watch has worked.
    fn note(&mut self, now: Instant) -> Duration {
        let recent = |(_, last): &(Instant, Instant)| now.saturating_duration_since(*last) < PASSING * 3;
        let first = self.times.filter(recent).map_or(now, |(first, _)| first);
        self.times = Some((first, now));
        now.saturating_duration_since(first)
    }

    /// The watch works. Returns whether it did not.
    fn end(&mut self) -> bool {
        self.times.take().is_some()
    }
}

fn report(kind: &str, Failure { code, text }: &Failure, lasting: Duration) {
    match code {
        // The server forgot the version the watch was at, as it does from time to time: it is listed again.
        Some(410) => debug!(kind, "the watch starts over"),
        Some(403) => warn!(kind, error = text, "not allowed to list and watch; check the cluster role"),
        Some(404) => warn!(kind, error = text, "the API server does not know the kind; install its definition"),
        _ if is_passing(*code, lasting) => {
            info!(kind, error = text, "the watch is interrupted and will be started again");
        }
        _ => warn!(kind, error = text, seconds = lasting.as_secs(), "the watch is broken and will be started again"),
    }
}

/// Whether a failure is nothing to act on: others than of permissions and definitions pass by themselves, such as those of
/// an API server that takes up a new definition.
fn is_passing(code: Option<u16>, lasting: Duration) -> bool {
    !matches!(code, Some(403 | 404)) && lasting < PASSING
}

/// Waits from 0.2 s to 10 s, doubling, each shortened at random by up to a half.
///
/// It begins anew after a success. That a listing begins is told before the server was asked, so one event does not make
/// a success.
#[derive(Default)]
struct WatchBackoff {
    failures: u32,
    events: u32,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = Duration::from_millis(200).saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        self.events = 0;
        Some(wait.min(Duration::from_secs(10)).mul_f64(rand::random_range(0.5..=1.0)))
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.events = self.events.saturating_add(1);
        if self.events > 1 {
            self.failures = 0;
        }
    }
}

/// Namespace and name of an object in one text, for logs.
pub fn display_name<K: Resource>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{json, Value};
    use tokio::sync::Notify;
    use tower::service_fn;

    use crate::health::Health;
    use super::*;

    /// What it hears, in order.
    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Heard {
        fn add(&self, text: impl Into<String>) {
            self.0.lock().unwrap().push(text.into());
        }

        fn so_far(&self) -> Vec<String> {
            self.0.lock().unwrap().clone()
        }
    }

    impl Observer<ConfigMap> for Heard {
        fn listing(&self) {
            self.add("listing");
        }
        fn listed(&self) {
            self.add("listed");
        }
        fn applied(&self, object: &ConfigMap) {
            self.add(object.name_any());
        }
        fn deleted(&self, _: &ConfigMap) {}
    }

    /// A server that lists in pages only: two of one object each. The second is sent when it is let go.
    fn two_pages(let_go: Arc<Notify>) -> Client {
        let answer = move |request: Request<Body>| {
            let let_go = Arc::clone(&let_go);
            async move {
                let query = request.uri().query().unwrap_or_default().to_owned();
                let page = |name: &str, more: Value| {
                    let item = json!({"metadata": {"name": name, "resourceVersion": "1"}});
                    let metadata = json!({"resourceVersion": "1", "continue": more});
                    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": [item]});
                    Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
                };
                if query.contains("sendInitialEvents") {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422});
                    Ok(Response::builder().status(422).body(Body::from(status.to_string().into_bytes())).unwrap())
                } else if query.contains("watch=true") {
                    std::future::pending().await
                } else if query.contains("continue=more") {
                    let_go.notified().await;
                    page("b", Value::Null)
                } else {
                    page("a", json!("more"))
                }
            }
        };
        Client::new(service_fn(answer), "default")
    }

    #[tokio::test]
    async fn a_kind_is_listed_when_the_observer_has_heard_of_all_of_it() {
        let (let_go, heard) = (Arc::new(Notify::new()), Arc::new(Heard::default()));
        let synced = Health::default().announce("ConfigMap");
        let api = WatchApi::all(two_pages(Arc::clone(&let_go)));
        let config = watcher::Config::default().page_size(1);
        let watch = observed(api, config, &(), Arc::clone(&heard) as _, |_| {}, synced.clone());
        let watch = tokio::spawn(watch.for_each(|()| std::future::ready(())));
        while heard.so_far() != ["listing", "a"] {
            tokio::task::yield_now().await;
        }
        assert!(!synced.is_done(), "half of it is to come");
        let_go.notify_one();
        synced.wait().await;
        assert_eq!(heard.so_far(), ["listing", "a", "b", "listed"]);
        watch.abort();
    }

    #[test]
    fn failures_are_counted_from_the_first_in_a_row() {
        let (mut failing, now) = (Failing::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!([0, 8, 20].map(|at| failing.note(after(at)).as_secs()), [0, 8, 20]);
        assert_eq!(failing.note(after(60)), Duration::ZERO, "it worked meanwhile");
        assert!(failing.end() && !failing.end());
        assert_eq!(failing.note(after(61)), Duration::ZERO);
    }

    #[test]
    fn only_lasting_failures_are_warnings() {
        for code in [None, Some(429), Some(500), Some(503)] {
            assert!(is_passing(code, Duration::ZERO) && !is_passing(code, PASSING), "{code:?}");
        }
        assert!(!is_passing(Some(403), Duration::ZERO) && !is_passing(Some(404), Duration::ZERO));
        let status = Status::failure("storage is (re)initializing", "TooManyRequests").with_code(429);
        let error = watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        assert_eq!(Failure::of(&error).text, "storage is (re)initializing (429 TooManyRequests)");
    }

    #[test]
    fn lasting_404_of_a_listed_kind_is_final() {
        let failure = |code| Failure { code: Some(code), text: String::new() };
        assert!(failure(404).is_final(true, MAX_ABSENCE));
        assert!(!failure(404).is_final(true, MAX_ABSENCE / 2), "its definition may be on its way");
        assert!(!failure(404).is_final(false, MAX_ABSENCE), "it may be installed later");
        assert!(!failure(403).is_final(true, MAX_ABSENCE), "it may be allowed later");
    }

    #[test]
    fn the_pause_grows_while_listings_fail_and_begins_anew_after_one_succeeds() {
        let mut backoff = WatchBackoff::default();
        let mut fails = |events: u32| {
            (0..events).for_each(|_| backoff.reset());
            backoff.next().unwrap()
        };
        // Each listing that fails has begun.
        let last = (0..10).map(|_| fails(1)).last().unwrap();
        assert!(last >= Duration::from_secs(5), "{last:?}");
        // One of no objects has begun and is complete.
        assert!(fails(2) <= Duration::from_millis(200));
        assert!(fails(0) >= Duration::from_millis(200));
    }
}
