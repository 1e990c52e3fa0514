//! When claims are bound and gone, as a client sees it that watches them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use kube::core::WatchEvent;
use serde::Deserialize;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::api::{Api, folder};

/// How long nothing may happen before a measurement fails.
const TIMEOUT: Duration = Duration::from_mins(10);

/// What happens to a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Bound,
    Gone,
}

/// The time of each change of each claim, by its name.
type Times = Arc<Mutex<HashMap<String, [Option<Instant>; 2]>>>;

pub(crate) struct ClaimWatch {
    times: Times,
    /// The number of claims with each change.
    counts: watch::Receiver<[usize; 2]>,
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
    address_ref: AddressRef,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AddressRef {
    name: String,
}

impl ClaimWatch {
    pub(crate) async fn start(api: &Api, namespace: &str) -> Self {
        let folder = folder(namespace, "ipaddressclaims");
        let (version, _) = api
            .version_and_count(&folder)
            .await
            .expect("claims can be read");
        let (sender, counts) = watch::channel([0; 2]);
        let times = Times::default();
        let (open, is_open) = oneshot::channel();
        let follower = Follower {
            api: api.clone(),
            folder,
            times: times.clone(),
            counts: sender,
        };
        let task = tokio::spawn(follower.follow(version, open)).abort_handle();
        is_open.await.expect("the watch is running");
        Self {
            times,
            counts,
            task,
        }
    }

    /// When a change of a claim was seen.
    pub(crate) fn time(&self, name: &str, change: Change) -> Option<Instant> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.get(name)?[change as usize]
    }

    pub(crate) fn count(&self, change: Change) -> usize {
        self.counts.borrow()[change as usize]
    }

    pub(crate) async fn until(&self, what: &str, mut is_done: impl FnMut() -> bool) {
        let mut counts = self.counts.clone();
        while !is_done() {
            let changed = tokio::time::timeout(TIMEOUT, counts.changed()).await;
            let changed =
                changed.unwrap_or_else(|_| panic!("nothing happened for {TIMEOUT:?} until {what}"));
            changed.expect("the watch is running");
        }
    }

    pub(crate) async fn wait_for_bound(&self, name: &str) -> Instant {
        self.until(name, || self.time(name, Change::Bound).is_some())
            .await;
        self.time(name, Change::Bound)
            .expect("the time is recorded")
    }

    pub(crate) fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for ClaimWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Follower {
    api: Api,
    folder: String,
    times: Times,
    counts: watch::Sender<[usize; 2]>,
}

impl Follower {
    fn record(&self, claim: &Claim, change: Change) {
        let is_new = {
            let mut all = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            let time = &mut all.entry(claim.metadata.name.clone()).or_default()[change as usize];
            time.is_none() && time.replace(Instant::now()).is_none()
        };
        self.counts
            .send_modify(|counts| counts[change as usize] += usize::from(is_new));
    }

    /// Follows the watch from a version on, also across restarts of the API server.
    async fn follow(self, mut version: String, open: oneshot::Sender<()>) {
        let mut open = Some(open);
        loop {
            let path = format!(
                "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds=280&resourceVersion={version}",
                self.folder
            );
            let request = http::Request::get(path)
                .body(Vec::new())
                .expect("the request is valid");
            let Ok(events) = self.api.0.request_events::<Claim>(request).await else {
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            };
            open.take().map(|open| open.send(()));
            let mut events = std::pin::pin!(events);
            while let Ok(Some(event)) = events.try_next().await {
                let (claim, is_gone) = match event {
                    WatchEvent::Added(claim) | WatchEvent::Modified(claim) => (claim, false),
                    WatchEvent::Deleted(claim) => (claim, true),
                    WatchEvent::Bookmark(bookmark) => {
                        version = bookmark.metadata.resource_version;
                        continue;
                    }
                    WatchEvent::Error(status) => panic!("the watch of claims failed: {status:?}"),
                };
                if !claim.status.address_ref.name.is_empty() {
                    self.record(&claim, Change::Bound);
                }
                if is_gone {
                    self.record(&claim, Change::Gone);
                }
                version = claim.metadata.resource_version;
            }
        }
    }
}
