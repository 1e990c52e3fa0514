//! Streaming lists (KEP-3157, `sendInitialEvents`): watches that begin with all existing objects.
//!
//! The API server sends them from its cache, one object at a time. A list in pages is read and
//! decoded from etcd, which takes three to ten times the work for 300,000 objects.
//!
//! kube's own streaming lists may begin with a state of any age, and skip an object that is deleted
//! during the list. An IPAM provider has to know every address that was allocated before its start,
//! so these begin with the newest state.

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
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::{WATCH_TIMEOUT, Watchable};
use crate::client::REQUEST_TIMEOUT;
use crate::health::ReadinessGate;

/// The annotation of the bookmark after the last existing object.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Number of consecutive lists that may fail before streaming is given up.
const MAX_FAILURES: u32 = 3;

/// Limits of a streaming list. A list in pages has none.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Longest time without an event. The API server sends as fast as the client reads, and sends
    /// the end when its cache is as new as the request, which takes seconds.
    silence: Duration,
    /// Longest time for the whole list.
    total: Duration,
}

pub(super) const LIMITS: Limits = Limits {
    silence: Duration::from_secs(15),
    total: Duration::from_mins(1),
};

/// Duration in seconds of a watch that begins with a list (`timeoutSeconds`): the time for the
/// list, and for the API server to begin it. The API server ends the watch then, so a silent
/// connection is detected soon after.
const LIST_TIMEOUT: u32 = 70;

/// Watches a kind, and recovers from errors: resumes at the last resourceVersion or lists again.
/// The caller has to wait after an error before it polls again.
///
/// Ends and sets `refused` if the API server does not support streaming lists, or repeatedly does
/// not send the whole list: it closes the watch of a client that reads more slowly than others
/// write. `synced` is notified whenever the watch is opened, and `reopened` when it is opened at an
/// earlier version.
pub(super) fn streaming_list<K: Watchable>(
    limits: Limits,
    api: Api<K>,
    config: Config,
    refused: Arc<AtomicBool>,
    synced: ReadinessGate,
    reopened: Arc<Notify>,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + 'static {
    let watch = Watch {
        api,
        config,
        refused,
        synced,
        reopened,
        limits,
    };
    unfold(
        (watch, State::Unlisted { failures: 0 }),
        async |(watch, state)| {
            let (event, state) = watch.step(state).await?;
            Some((event, (watch, state)))
        },
    )
}

type Events<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

struct Watch<K> {
    api: Api<K>,
    config: Config,
    refused: Arc<AtomicBool>,
    synced: ReadinessGate,
    reopened: Arc<Notify>,
    limits: Limits,
}

/// A list in progress.
struct Listing<K> {
    /// Number of consecutive lists before that began and failed.
    failures: u32,
    since: Instant,
    events: Events<K>,
}

enum State<K> {
    Unlisted {
        /// Number of consecutive lists that began and failed.
        failures: u32,
    },
    /// The list has begun, and is requested next: what others see from now on can be later than the
    /// list.
    Begun {
        failures: u32,
    },
    Listing(Listing<K>),
    Watching {
        version: String,
        events: Events<K>,
    },
    /// The watch has ended, and has to be reopened at the version.
    Ended {
        version: String,
    },
}

impl<K: Watchable> Watch<K> {
    /// The next event or error, and the next state. `None` at the end of the stream.
    async fn step(&self, mut state: State<K>) -> Option<(Result<Event<K>, Error>, State<K>)> {
        loop {
            let (item, next) = match state {
                State::Unlisted {
                    failures: MAX_FAILURES..,
                } => return self.refuse(),
                State::Unlisted { failures } => (Some(Ok(Event::Init)), State::Begun { failures }),
                State::Begun { failures } => match self.open(None).await {
                    Ok(events) => {
                        let since = Instant::now();
                        let listing = Listing {
                            failures,
                            since,
                            events,
                        };
                        (None, State::Listing(listing))
                    }
                    Err(error) if is_refusal(&error) => return self.refuse(),
                    Err(error) => {
                        let failed = Err(Error::WatchStartFailed(error));
                        (Some(failed), State::Unlisted { failures })
                    }
                },
                State::Listing(listing) if listing.since.elapsed() >= self.limits.total => {
                    return self.refuse();
                }
                State::Listing(mut listing) => {
                    let received = timeout(self.limits.silence, listing.events.next()).await;
                    while_listing(received.ok().flatten(), listing)
                }
                State::Ended { version } => match self.open(Some(&version)).await {
                    Ok(events) => {
                        self.reopened.notify_one();
                        (None, State::Watching { version, events })
                    }
                    Err(error) => {
                        let expired =
                            matches!(&error, kube::Error::Api(status) if status.code == 410);
                        let failed = Err(Error::WatchStartFailed(error));
                        (Some(failed), State::after(version, expired))
                    }
                },
                // There is no limit here: the client fails a watch that is silent for longer than
                // it was requested.
                State::Watching {
                    version,
                    mut events,
                } => while_watching(events.next().await, version, events),
            };
            match item {
                Some(item) => return Some((item, next)),
                None => state = next,
            }
        }
    }

    /// Ends the stream, so that the caller lists in pages.
    fn refuse<T>(&self) -> Option<T> {
        self.refused.store(true, Ordering::Relaxed);
        None
    }

    /// Opens a watch at a version; without one, a watch that begins with a list.
    async fn open(&self, version: Option<&str>) -> kube::Result<Events<K>> {
        let watch_timeout = self.config.timeout.unwrap_or(WATCH_TIMEOUT);
        let parameters = WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: Some(if version.is_none() {
                LIST_TIMEOUT
            } else {
                watch_timeout
            }),
            bookmarks: true,
            send_initial_events: version.is_none(),
        };
        // An empty version means the newest: the API server reads it from etcd, and waits until its
        // cache has reached it.
        let opened = timeout(
            REQUEST_TIMEOUT,
            self.api.watch(&parameters, version.unwrap_or_default()),
        )
        .await;
        let events = opened.map_err(|elapsed| kube::Error::Service(elapsed.into()))??;
        self.synced.accepted();
        Ok(events.boxed())
    }
}

/// The item of the stream, if there is one, and the next state.
type Step<K> = (Option<Result<Event<K>, Error>>, State<K>);

/// Processes an event, or the end of the watch, during the list.
fn while_listing<K>(received: Option<kube::Result<WatchEvent<K>>>, listing: Listing<K>) -> Step<K> {
    let error = match received {
        Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
            let listed = Event::InitApply(object);
            return (Some(Ok(listed)), State::Listing(listing));
        }
        Some(Ok(WatchEvent::Deleted(object))) => {
            return (Some(Ok(Event::Delete(object))), State::Listing(listing));
        }
        Some(Ok(WatchEvent::Bookmark(bookmark))) => {
            let metadata = bookmark.metadata;
            if !metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                return (None, State::Listing(listing));
            }
            let (version, events) = (metadata.resource_version, listing.events);
            return (
                Some(Ok(Event::InitDone)),
                State::Watching { version, events },
            );
        }
        Some(Ok(WatchEvent::Error(status))) => Error::WatchError(status),
        Some(Err(error)) => Error::WatchFailed(error),
        None => {
            let incomplete = io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the watch ended before the list was complete",
            );
            Error::WatchFailed(kube::Error::ReadEvents(incomplete))
        }
    };
    let failures = listing.failures.saturating_add(1);
    (Some(Err(error)), State::Unlisted { failures })
}

/// Processes an event, or the end of the watch, after the list.
fn while_watching<K: Resource>(
    received: Option<kube::Result<WatchEvent<K>>>,
    version: String,
    events: Events<K>,
) -> Step<K> {
    let (item, version) = match received {
        Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
            let version = version_of(&object).unwrap_or(version);
            (Some(Ok(Event::Apply(object))), version)
        }
        Some(Ok(WatchEvent::Deleted(object))) => {
            let version = version_of(&object).unwrap_or(version);
            (Some(Ok(Event::Delete(object))), version)
        }
        Some(Ok(WatchEvent::Bookmark(bookmark))) => (None, bookmark.metadata.resource_version),
        // An event that cannot be read does not end the watch; a failed connection does, with the
        // next item.
        Some(Err(error)) => (Some(Err(Error::WatchFailed(error))), version),
        Some(Ok(WatchEvent::Error(status))) => {
            let expired = status.code == 410;
            let failed = Err(Error::WatchError(status));
            return (Some(failed), State::after(version, expired));
        }
        None => return (None, State::Ended { version }),
    };
    (item, State::Watching { version, events })
}

impl<K> State<K> {
    /// The state after a watch at this version has failed; `expired` if the API server no longer
    /// has the version.
    fn after(version: String, expired: bool) -> Self {
        if expired {
            Self::Unlisted { failures: 0 }
        } else {
            Self::Ended { version }
        }
    }
}

fn version_of<K: Resource>(object: &K) -> Option<String> {
    object
        .meta()
        .resource_version
        .clone()
        .filter(|version| !version.is_empty())
}

/// Whether the API server cannot stream lists (by default Kubernetes 1.31 and 1.33), or its cache
/// does not reach the newest version: an etcd before 3.5.13 may not notify it of the progress.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [422, 504].contains(&status.code))
}

#[cfg(test)]
mod tests;
