//! A watch that begins with all that is there, told by the API server as one stream.
//!
//! Kubernetes calls this a streaming list (KEP-3157, `sendInitialEvents`). It comes out of the API server's cache, one
//! object at a time. The pages of a listing the API server reads and decodes from etcd: of 300,000 objects three to ten
//! times the work.
//!
//! kube's own streaming lists begin with a state of any age, and pass over an object that is deleted while they begin.
//! A provider has to know of every address that was given out before it started, so these begin with the newest state.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::{BoxStream, unfold};
use futures::{Stream, StreamExt};
use kube::Api;
use kube::api::WatchParams;
use kube::core::{Resource, WatchEvent};
use kube::runtime::watcher::{Config, Error, Event};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use crate::client::REQUEST_TIMEOUT;
use crate::health::ReadinessGate;
use super::WATCH_TIMEOUT;

/// An annotation of the bookmark that comes after the last object there was at the beginning.
const END_OF_LISTING: &str = "k8s.io/initial-events-end";

/// After how many listings that did not come to their end it is given up.
const MAX_FAILURES: u32 = 3;

/// For how many seconds the API server is asked to watch when it is to begin with all that is there.
const LISTING_TIMEOUT: u32 = 290;

/// How long a listing may take as one stream. Pages take as long as they take.
#[derive(Clone, Copy)]
struct Limits {
    /// How long nothing may be heard. The API server sends as fast as it is read, and the end is told when its cache is
    /// known to be as new as the request, which takes seconds.
    silence: Duration,
    /// How long all of it may take.
    whole: Duration,
}

const LIMITS: Limits = Limits { silence: Duration::from_secs(15), whole: Duration::from_mins(1) };

/// How much longer than the API server was asked to watch nothing may be heard of it.
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// Watches a kind, and goes on whatever happens; begins anew where it lost track. Who polls it has to wait after an error.
///
/// Ends, and sets `refused`, where the API server does not begin a watch in this way, or does not come to the end of the
/// beginning: it breaks off whoever does not take in everything as fast as others write. `synced` is told that the watch
/// works whenever it is opened.
pub(super) fn streamed<K>(
    api: Api<K>,
    config: Config,
    refused: Arc<AtomicBool>,
    synced: ReadinessGate,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    streamed_within(LIMITS, api, config, refused, synced)
}

fn streamed_within<K>(
    limits: Limits,
    api: Api<K>,
    config: Config,
    refused: Arc<AtomicBool>,
    synced: ReadinessGate,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let watch = Watch { api, config, refused, synced, limits };
    unfold((watch, State::Unlisted { broken: 0 }), async |(watch, state)| {
        let (event, state) = watch.step(state).await?;
        Some((event, (watch, state)))
    })
}

type Events<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

struct Watch<K> {
    api: Api<K>,
    config: Config,
    refused: Arc<AtomicBool>,
    synced: ReadinessGate,
    limits: Limits,
}

enum State<K> {
    Unlisted {
        /// How many listings in a row have begun and did not come to their end.
        broken: u32,
    },
    Listing {
        broken: u32,
        since: Instant,
        events: Events<K>,
    },
    Listed {
        version: String,
        /// None where they have ended and are to go on from the version.
        events: Option<Events<K>>,
    },
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// What is heard next, and how it goes on from there.
    async fn step(&self, mut state: State<K>) -> Option<(Result<Event<K>, Error>, State<K>)> {
        loop {
            let (heard, next) = match state {
                State::Unlisted { broken: MAX_FAILURES.. } => return self.refuse(),
                State::Unlisted { broken } => match self.open(None).await {
                    Ok(events) => (Some(Ok(Event::Init)), State::Listing { broken, since: Instant::now(), events }),
                    Err(error) if is_refusal(&error) => return self.refuse(),
                    Err(error) => (Some(Err(Error::WatchStartFailed(error))), State::Unlisted { broken }),
                },
                State::Listing { since, .. } if since.elapsed() >= self.limits.whole => return self.refuse(),
                State::Listing { broken, since, mut events } => {
                    let heard = timeout(self.limits.silence, events.next()).await.ok().flatten();
                    listing(heard, broken, since, events)
                }
                State::Listed { version, events: None } => match self.open(Some(&version)).await {
                    Ok(events) => (None, State::Listed { version, events: Some(events) }),
                    Err(error) => {
                        let expired = matches!(&error, kube::Error::Api(status) if status.code == 410);
                        (Some(Err(Error::WatchStartFailed(error))), State::after(version, expired))
                    }
                },
                State::Listed { version, events: Some(mut events) } => {
                    listed(self.next(&mut events).await, version, events)
                }
            };
            match heard {
                Some(heard) => return Some((heard, next)),
                None => state = next,
            }
        }
    }

    /// Leaves it to somebody else.
    fn refuse<T>(&self) -> Option<T> {
        self.refused.store(true, Ordering::Relaxed);
        None
    }

    /// Asks for what comes after a version; without one, for all there is and what comes after.
    async fn open(&self, version: Option<&str>) -> kube::Result<Events<K>> {
        let parameters = WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: Some(if version.is_none() { LISTING_TIMEOUT } else { self.watch_timeout() }),
            bookmarks: true,
            send_initial_events: version.is_none(),
        };
        // An empty version means the newest: the API server asks etcd which that is, and waits until its cache is there.
        let opened = timeout(REQUEST_TIMEOUT, self.api.watch(&parameters, version.unwrap_or_default())).await;
        let events = opened.map_err(|elapsed| kube::Error::Service(elapsed.into()))??;
        self.synced.works();
        Ok(events.boxed())
    }

    fn watch_timeout(&self) -> u32 {
        self.config.timeout.unwrap_or(WATCH_TIMEOUT)
    }

    /// None at the end, and where nothing is heard for so long that there cannot be anybody any more.
    async fn next(&self, events: &mut Events<K>) -> Option<kube::Result<WatchEvent<K>>> {
        let longest = Duration::from_secs(self.watch_timeout().into());
        timeout(longest.saturating_add(MAX_SILENCE), events.next()).await.ok().flatten()
    }
}

/// What is told, if anything, and how it goes on.
type Turn<K> = (Option<Result<Event<K>, Error>>, State<K>);

/// After something was heard, or the end, while all there is was being told.
fn listing<K>(heard: Option<kube::Result<WatchEvent<K>>>, broken: u32, since: Instant, events: Events<K>) -> Turn<K> {
    let error = match heard {
        Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
            return (Some(Ok(Event::InitApply(object))), State::Listing { broken, since, events });
        }
        Some(Ok(WatchEvent::Deleted(object))) => {
            return (Some(Ok(Event::Delete(object))), State::Listing { broken, since, events });
        }
        Some(Ok(WatchEvent::Bookmark(mark))) if mark.metadata.annotations.contains_key(END_OF_LISTING) => {
            let version = mark.metadata.resource_version;
            return (Some(Ok(Event::InitDone)), State::Listed { version, events: Some(events) });
        }
        Some(Ok(WatchEvent::Bookmark(_))) => return (None, State::Listing { broken, since, events }),
        Some(Ok(WatchEvent::Error(status))) => Error::WatchError(status),
        Some(Err(error)) => Error::WatchFailed(error),
        None => {
            let early = io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before all was told");
            Error::WatchFailed(kube::Error::ReadEvents(early))
        }
    };
    (Some(Err(error)), State::Unlisted { broken: broken.saturating_add(1) })
}

/// After something was heard, or the end, once all there was had been told.
fn listed<K: Resource>(heard: Option<kube::Result<WatchEvent<K>>>, version: String, events: Events<K>) -> Turn<K> {
    let (told, version) = match heard {
        Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
            let version = version_of(&object).unwrap_or(version);
            (Some(Ok(Event::Apply(object))), version)
        }
        Some(Ok(WatchEvent::Deleted(object))) => {
            let version = version_of(&object).unwrap_or(version);
            (Some(Ok(Event::Delete(object))), version)
        }
        Some(Ok(WatchEvent::Bookmark(mark))) => (None, mark.metadata.resource_version),
        // One that cannot be read does not end them; a connection that broke does, and is heard of next.
        Some(Err(error)) => (Some(Err(Error::WatchFailed(error))), version),
        Some(Ok(WatchEvent::Error(status))) => {
            let expired = status.code == 410;
            return (Some(Err(Error::WatchError(status))), State::after(version, expired));
        }
        None => return (None, State::Listed { version, events: None }),
    };
    (told, State::Listed { version, events: Some(events) })
}

impl<K> State<K> {
    /// Once a watch has failed that was at this version; `expired` when the API server has forgotten it.
    fn after(version: String, expired: bool) -> Self {
        if expired { Self::Unlisted { broken: 0 } } else { Self::Listed { version, events: None } }
    }
}

fn version_of<K: Resource>(object: &K) -> Option<String> {
    object.meta().resource_version.clone().filter(|version| !version.is_empty())
}

/// The API server cannot do it (by default Kubernetes 1.31 and 1.33), or its cache does not get there: it may not hear
/// from an etcd before 3.5.13 that nothing else has happened.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [422, 504].contains(&status.code))
}

#[cfg(test)]
mod tests;
