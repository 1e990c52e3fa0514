//! A watch of the claims of a namespace that records when each was bound and deleted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use kube::core::WatchEvent;
use serde::Deserialize;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::api_client::{ApiClient, claims};

/// The maximum time without events during a wait.
const TIMEOUT: Duration = Duration::from_mins(10);

/// The times of a claim.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) bound: Option<Instant>,
    pub(crate) gone: Option<Instant>,
}

/// The numbers of claims by state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) bound: usize,
    pub(crate) gone: usize,
}

/// A running watch. It counts only events after its start.
pub(crate) struct ClaimWatch {
    times: Arc<Mutex<HashMap<String, Times>>>,
    counts: watch::Receiver<Counts>,
    task: AbortHandle,
}

#[derive(Clone, Debug, Deserialize)]
struct Claim {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    address_ref: Option<AddressRef>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AddressRef {
    name: String,
}

impl ClaimWatch {
    pub(crate) async fn start(api: &ApiClient, namespace: &str) -> Self {
        let folder = claims(namespace);
        let (version, _) = api.version_and_count(&folder).await;
        let (sender, counts) = watch::channel(Counts::default());
        let times = Arc::<Mutex<HashMap<String, Times>>>::default();
        let (open, is_open) = oneshot::channel();
        let recorder = Recorder {
            times: times.clone(),
            counts: sender,
        };
        let task =
            tokio::spawn(follow(api.clone(), folder, version, recorder, open)).abort_handle();
        is_open.await.expect("the watch is running");
        Self {
            times,
            counts,
            task,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Times>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The times of a claim.
    pub(crate) fn times(&self, name: &str) -> Times {
        self.lock().get(name).copied().unwrap_or_default()
    }

    /// The current counts.
    pub(crate) fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Waits until a condition on the counts holds.
    pub(crate) async fn until(&self, what: &str, mut is_done: impl FnMut(&Counts) -> bool) {
        let mut counts = self.counts.clone();
        while !is_done(&counts.borrow_and_update()) {
            let changed = tokio::time::timeout(TIMEOUT, counts.changed()).await;
            let seen = *counts.borrow();
            changed
                .unwrap_or_else(|_| {
                    panic!("nothing happened for {TIMEOUT:?} while waiting until {what}: {seen:?}")
                })
                .expect("the watch is running");
        }
    }

    /// Waits until a claim is bound, and returns the time.
    pub(crate) async fn wait_for_bound(&self, name: &str) -> Instant {
        self.until(&format!("{name} is bound"), |_| {
            self.times(name).bound.is_some()
        })
        .await;
        self.times(name).bound.expect("the time is recorded")
    }

    /// Waits until no event happens for a while.
    pub(crate) async fn quiet(&self, pause: Duration) {
        let mut counts = self.counts.clone();
        while tokio::time::timeout(pause, counts.changed()).await.is_ok() {}
    }

    /// Stops the watch.
    pub(crate) fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for ClaimWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Recorder {
    times: Arc<Mutex<HashMap<String, Times>>>,
    counts: watch::Sender<Counts>,
}

impl Recorder {
    fn record(&self, claim: &Claim, is_gone: bool) {
        let now = Instant::now();
        let is_bound = claim
            .status
            .address_ref
            .as_ref()
            .is_some_and(|address| !address.name.is_empty());
        let (mut newly_bound, mut newly_gone) = (false, false);
        {
            let mut all = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            let times = all.entry(claim.metadata.name.clone()).or_default();
            if is_bound && times.bound.is_none() {
                (times.bound, newly_bound) = (Some(now), true);
            }
            if is_gone && times.gone.is_none() {
                (times.gone, newly_gone) = (Some(now), true);
            }
        }
        self.counts.send_modify(|counts| {
            counts.bound += usize::from(newly_bound);
            counts.gone += usize::from(newly_gone);
        });
    }
}

/// Continues the watch each time the API server ends it.
async fn follow(
    api: ApiClient,
    folder: String,
    mut version: String,
    recorder: Recorder,
    open: oneshot::Sender<()>,
) {
    let mut open = Some(open);
    loop {
        let path = format!(
            "{folder}?watch=true&allowWatchBookmarks=true&timeoutSeconds=280&resourceVersion={version}"
        );
        let request = http::Request::get(path)
            .body(Vec::new())
            .expect("the request is valid");
        let events = match api.client.request_events::<Claim>(request).await {
            Ok(events) => events,
            // A new server is not ready for it yet.
            Err(error) => {
                if open.is_none() {
                    eprintln!("the claims cannot be watched now: {error}");
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        if let Some(open) = open.take() {
            // An error means that the watch is being dropped.
            let _ = open.send(());
        }
        let mut events = std::pin::pin!(events);
        while let Ok(Some(event)) = events.try_next().await {
            match event {
                WatchEvent::Added(claim) | WatchEvent::Modified(claim) => {
                    recorder.record(&claim, false);
                    version = claim.metadata.resource_version;
                }
                WatchEvent::Deleted(claim) => {
                    recorder.record(&claim, true);
                    version = claim.metadata.resource_version;
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => panic!("the watch of claims failed: {status:?}"),
            }
        }
    }
}
