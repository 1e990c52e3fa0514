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

use super::Watchable;
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
) -> impl Stream<Item = Item<K>> + Send + 'static {
    let watch = Watch {
        api,
        config,
        refused,
        synced,
        reopened,
        limits,
        failures: 0,
        state: State::Unlisted,
    };
    unfold(watch, async |mut watch| {
        let item = watch.next().await?;
        Some((item, watch))
    })
}

type Item<K> = Result<Event<K>, Error>;
type Received<K> = Option<kube::Result<WatchEvent<K>>>;
type Events<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

struct Watch<K> {
    api: Api<K>,
    config: Config,
    refused: Arc<AtomicBool>,
    synced: ReadinessGate,
    reopened: Arc<Notify>,
    limits: Limits,
    /// Number of consecutive lists that began and failed.
    failures: u32,
    state: State<K>,
}

enum State<K> {
    Unlisted,
    /// The list has begun, and is requested next: what others see from now on can be later than the
    /// list.
    Begun,
    Listing {
        since: Instant,
        events: Events<K>,
    },
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
    /// The next event or error. `None` at the end of the stream.
    async fn next(&mut self) -> Option<Item<K>> {
        loop {
            let item = match std::mem::replace(&mut self.state, State::Unlisted) {
                State::Unlisted if self.failures >= MAX_FAILURES => return self.refuse(),
                State::Unlisted => {
                    self.state = State::Begun;
                    Some(Ok(Event::Init))
                }
                State::Begun => match self.open(None).await {
                    Ok(events) => {
                        let since = Instant::now();
                        self.state = State::Listing { since, events };
                        None
                    }
                    Err(error) if is_refusal(&error) => return self.refuse(),
                    Err(error) => Some(Err(Error::WatchStartFailed(error))),
                },
                State::Listing { since, .. } if since.elapsed() >= self.limits.total => {
                    return self.refuse();
                }
                State::Listing { since, mut events } => {
                    let received = timeout(self.limits.silence, events.next()).await;
                    self.while_listing(received.ok().flatten(), since, events)
                }
                State::Ended { version } => match self.open(Some(&version)).await {
                    Ok(events) => {
                        self.reopened.notify_one();
                        self.state = State::Watching { version, events };
                        None
                    }
                    Err(error) => {
                        let is_expired =
                            matches!(&error, kube::Error::Api(status) if status.code == 410);
                        self.end(version, is_expired);
                        Some(Err(Error::WatchStartFailed(error)))
                    }
                },
                // There is no limit here: the client fails a watch that is silent for longer than
                // it was requested.
                State::Watching {
                    version,
                    mut events,
                } => {
                    let received = events.next().await;
                    self.while_watching(received, version, events)
                }
            };
            if item.is_some() {
                return item;
            }
        }
    }

    /// Ends the stream, so that the caller lists in pages.
    fn refuse<T>(&self) -> Option<T> {
        self.refused.store(true, Ordering::Relaxed);
        None
    }

    /// Opens a watch at a version; without one, a watch that begins with a list.
    async fn open(&mut self, version: Option<&str>) -> kube::Result<Events<K>> {
        let parameters = WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: version.map_or(Some(LIST_TIMEOUT), |_| self.config.timeout),
            bookmarks: true,
            send_initial_events: version.is_none(),
        };
        // An empty version means the newest: the API server reads it from etcd, and waits until its
        // cache has reached it.
        let watch = self.api.watch(&parameters, version.unwrap_or_default());
        let opened = timeout(REQUEST_TIMEOUT, watch).await;
        let events = opened.map_err(|elapsed| kube::Error::Service(elapsed.into()))??;
        self.synced.accepted();
        Ok(events.boxed())
    }

    /// Processes an event, or the end of the watch, during the list.
    fn while_listing(
        &mut self,
        received: Received<K>,
        since: Instant,
        events: Events<K>,
    ) -> Option<Item<K>> {
        let error = match received {
            Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                let metadata = bookmark.metadata;
                if !metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                    self.state = State::Listing { since, events };
                    return None;
                }
                let version = metadata.resource_version;
                self.state = State::Watching { version, events };
                self.failures = 0;
                return Some(Ok(Event::InitDone));
            }
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                self.state = State::Listing { since, events };
                return Some(Ok(Event::InitApply(object)));
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                self.state = State::Listing { since, events };
                return Some(Ok(Event::Delete(object)));
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
        self.failures = self.failures.saturating_add(1);
        Some(Err(error))
    }

    /// Processes an event, or the end of the watch, after the list.
    fn while_watching(
        &mut self,
        received: Received<K>,
        mut version: String,
        events: Events<K>,
    ) -> Option<Item<K>> {
        let item = match received {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                version = version_of(&object).unwrap_or(version);
                Some(Ok(Event::Apply(object)))
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                version = version_of(&object).unwrap_or(version);
                Some(Ok(Event::Delete(object)))
            }
            Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                version = bookmark.metadata.resource_version;
                None
            }
            // An event that cannot be read does not end the watch; a failed connection does, with
            // the next item.
            Some(Err(error)) => Some(Err(Error::WatchFailed(error))),
            Some(Ok(WatchEvent::Error(status))) => {
                self.end(version, status.code == 410);
                return Some(Err(Error::WatchError(status)));
            }
            None => {
                self.end(version, false);
                return None;
            }
        };
        self.state = State::Watching { version, events };
        item
    }

    /// The watch at this version has ended. If the API server no longer has the version, it begins
    /// with a list again.
    fn end(&mut self, version: String, is_expired: bool) {
        if !is_expired {
            self.state = State::Ended { version };
        }
    }
}

fn version_of<K: Resource>(object: &K) -> Option<String> {
    let version = object.meta().resource_version.clone();
    version.filter(|version| !version.is_empty())
}

/// Whether the API server cannot stream lists (by default Kubernetes 1.31 and 1.33), or its cache
/// does not reach the newest version: an etcd before 3.5.13 may not notify it of the progress.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [422, 504].contains(&status.code))
}

#[cfg(test)]
mod tests;
