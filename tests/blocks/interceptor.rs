//! A proxy between the managers and both of their API servers, which injects one fault at a write
//! for a block.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::connect;
use capi_ipam_testing::control_plane as generic;
use hyper::Request;
use hyper::body::Incoming;
use kube::Client;
use parking_lot::Mutex;
use serde_json::Value;
use support::proxy::{
    ApiRequest, Broken, Forward, ProxyResponse, ProxyServer, Verb, error_response,
};
use tokio::sync::Notify;

/// How late a write is applied whose response was a timeout.
const LATE: Duration = Duration::from_secs(1);

/// A fault at the first write of a kind by a management cluster.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) cluster: &'static str,
    pub(crate) write: String,
    pub(crate) how: How,
}

/// A fault at a write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// The manager is killed, and the write never reaches the API server.
    CrashBefore,
    /// The manager is killed after the write is applied, before it receives the response.
    CrashAfter,
    /// The write is applied, and the connection breaks before the response.
    ReplyLost,
    /// The response is 504, and the write is applied a second later.
    Late,
    /// The write is rejected with 503.
    Refused,
}

impl How {
    pub(crate) const ALL: [Self; 5] = [
        Self::CrashBefore,
        Self::CrashAfter,
        Self::ReplyLost,
        Self::Late,
        Self::Refused,
    ];
}

/// What all proxies of a site share.
#[derive(Default)]
pub(crate) struct Interceptor {
    book: Mutex<Book>,
    /// Notified when a manager must be killed.
    crashed: Notify,
}

#[derive(Default)]
struct Book {
    plan: Option<Plan>,
    has_happened: bool,
    /// The management cluster whose manager must be killed: none of its requests is forwarded.
    dead: Option<&'static str>,
    /// The kinds of writes of each management cluster.
    seen: BTreeSet<(&'static str, String)>,
}

impl Interceptor {
    /// Starts a proxy in front of an API server, for the manager of a management cluster.
    pub(crate) async fn proxy(
        self: &Arc<Self>,
        plane: &generic::ControlPlane,
        cluster: &'static str,
        is_hub: bool,
    ) -> ProxyServer {
        let upstream = if is_hub {
            let client = connect(Some(plane.kubeconfig()), "manager").await;
            client.expect("the kubeconfig is valid")
        } else {
            ProxyServer::upstream(plane).await
        };
        let shared = Arc::clone(self);
        let accept = move || {
            let shared = Arc::clone(&shared);
            let upstream = upstream.clone();
            move |request| Arc::clone(&shared).respond(upstream.clone(), cluster, request)
        };
        ProxyServer::start(plane, &format!("blocks-{cluster}"), accept).await
    }

    /// Injects a fault from now on.
    pub(crate) fn inject(&self, plan: Option<Plan>) {
        let mut book = self.book.lock();
        book.plan = plan;
        book.has_happened = false;
    }

    /// Whether the fault was injected.
    pub(crate) fn has_happened(&self) -> bool {
        self.book.lock().has_happened
    }

    /// The kinds of writes so far, by management cluster.
    pub(crate) fn seen(&self) -> BTreeSet<(&'static str, String)> {
        self.book.lock().seen.clone()
    }

    /// Waits until the manager of a management cluster must be killed.
    pub(crate) async fn crashed(&self) -> &'static str {
        loop {
            if let Some(cluster) = self.book.lock().dead {
                return cluster;
            }
            self.crashed.notified().await;
        }
    }

    /// Forwards the requests of all managers again.
    pub(crate) fn revive(&self) {
        self.book.lock().dead = None;
    }

    async fn respond(
        self: Arc<Self>,
        upstream: Client,
        cluster: &'static str,
        request: Request<Incoming>,
    ) -> Result<ProxyResponse, Broken> {
        let forward = Forward::receive(upstream, request).await?;
        let asked = ApiRequest::of(&forward.method, &forward.path);
        if self.book.lock().dead == Some(cluster) {
            return Err(Broken);
        }
        if !asked.is_write() {
            return forward.stream().await;
        }
        let fault = match kind_of(&asked, &forward.body) {
            Some(kind) => self.record(cluster, kind),
            None => None,
        };
        // In a separate task, which continues when the manager is killed.
        let write = tokio::spawn(self.write(cluster, forward, fault));
        write.await.map_err(|_| Broken)?
    }

    /// Records a write. Returns the fault to inject.
    fn record(&self, cluster: &'static str, kind: String) -> Option<How> {
        let mut book = self.book.lock();
        let hit = match &book.plan {
            Some(plan) if plan.cluster == cluster && plan.write == kind => Some(plan.how),
            _ => None,
        };
        book.seen.insert((cluster, kind));
        let fault = hit.filter(|_| !book.has_happened);
        if fault.is_some() {
            book.has_happened = true;
        }
        if matches!(fault, Some(How::CrashBefore)) {
            book.dead = Some(cluster);
        }
        fault
    }

    async fn write(
        self: Arc<Self>,
        cluster: &'static str,
        forward: Forward,
        fault: Option<How>,
    ) -> Result<ProxyResponse, Broken> {
        match fault {
            None => forward.send().await,
            Some(How::CrashBefore) => {
                self.crashed.notify_one();
                Err(Broken)
            }
            Some(How::CrashAfter) => {
                let _ = forward.send().await;
                self.book.lock().dead = Some(cluster);
                self.crashed.notify_one();
                Err(Broken)
            }
            Some(How::ReplyLost) => {
                let _ = forward.send().await;
                Err(Broken)
            }
            Some(How::Late) => {
                tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    let _ = forward.send().await;
                });
                Ok(error_response(504))
            }
            Some(How::Refused) => Ok(error_response(503)),
        }
    }
}

/// The kind of a write for a block; `None` for another write.
fn kind_of(asked: &ApiRequest, body: &[u8]) -> Option<String> {
    let verb = match asked.verb {
        Verb::Create => "create",
        Verb::Change | Verb::Replace => "change",
        Verb::Delete => "delete",
        Verb::Read | Verb::Watch => return None,
    };
    let text = String::from_utf8_lossy(body);
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    let what = match asked.resource.as_str() {
        "ipblocks" => {
            let in_body = body["metadata"]["name"].as_str().unwrap_or_default();
            let name = if asked.name.is_empty() {
                in_body
            } else {
                &asked.name
            };
            let record = name.split('.').next()?;
            let block = &body["spec"]["block"];
            match record {
                "block" if !block["contenders"].is_null() => "record with contenders",
                "block" if !block["emptySince"].is_null() => "record with mark",
                "block" => "record",
                "network" => "network record",
                "cluster" => "cluster record",
                _ => return None,
            }
        }
        "ipslices" => slice_field(&text),
        _ => return None,
    };
    Some(format!("{verb} {what}"))
}

/// What the body of a write of a slice is about. It is an object or a patch.
fn slice_field(body: &str) -> &'static str {
    if body.contains("conflict") {
        "conflict of slice"
    } else if body.contains("emptySince") {
        "mark of slice"
    } else if body.contains("confirmedAt") {
        "confirmation of slice"
    } else {
        "slice"
    }
}
