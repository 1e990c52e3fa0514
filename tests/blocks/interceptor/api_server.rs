//! The proxy in front of an API server.

use std::sync::Arc;

use capi_ipam_controller::client::connect;
use capi_ipam_testing::control_plane as generic;
use hyper::Request;
use hyper::body::Incoming;
use kube::Client;
use serde_json::Value;
use support::proxy::{
    ApiRequest, Broken, Forward, ProxyResponse, ProxyServer, Verb, error_response,
};

use super::{Harm, Held, How, Interceptor, LATE, kind_of_record};

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

    async fn respond(
        self: Arc<Self>,
        upstream: Client,
        cluster: &'static str,
        request: Request<Incoming>,
    ) -> Result<ProxyResponse, Broken> {
        let forward = Forward::receive(upstream, request).await?;
        let asked = ApiRequest::of(&forward.method, &forward.path);
        if self.is_dead(cluster) {
            return Err(Broken);
        }
        if asked.verb == Verb::Read && asked.resource == "ipreservations" && asked.name.is_empty() {
            self.released(Held::Lists).await;
        }
        if !asked.is_write() && asked.resource == "ipblocks" && asked.name.is_empty() {
            self.released(Held::RecordLists).await;
        }
        if asked.is_write() && asked.resource == "ipslices" {
            self.released(Held::Slices).await;
        }
        if asked.is_write() && asked.resource == "ipaddressclaims" {
            self.released(Held::Claims).await;
        }
        if !asked.is_write() {
            return forward.stream().await;
        }
        let kind = kind_of(&asked, &forward.body);
        let fault = kind.clone().and_then(|kind| self.record(cluster, kind));
        for (end, held) in [
            ("cluster record", Held::ClusterRecords),
            ("network record", Held::NetworkRecords),
        ] {
            if kind.as_ref().is_some_and(|kind| kind.ends_with(end)) {
                self.released(held).await;
            }
        }
        // In a separate task, which continues when the manager is killed.
        let write = tokio::spawn(self.write(cluster, forward, fault));
        write.await.map_err(|_| Broken)?
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
                self.kill(cluster);
                Err(Broken)
            }
            Some(How::CrashAfter) => {
                let _ = forward.send().await;
                self.kill(cluster);
                Err(Broken)
            }
            Some(How::Pause) => {
                self.harm(cluster, Harm::Pause);
                forward.send().await
            }
            Some(How::Reopened) => {
                self.harm(cluster, Harm::Reopen);
                tokio::time::sleep(LATE).await;
                forward.send().await
            }
            Some(How::Aborted) => {
                self.harm(cluster, Harm::Reopen);
                tokio::time::sleep(LATE).await;
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
            Some(how) => panic!("{how:?} is no fault of an API server"),
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
            kind_of_record(name, &body["spec"]["block"])?
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
