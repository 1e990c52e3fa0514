//! A proxy between a manager and the API server that can silence the watches and lists of one kind.

use std::{future::ready, io, path::Path, sync::Arc};

use futures::{StreamExt, stream};
use http_body_util::{BodyExt, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request,
    body::{Bytes, Incoming},
};
use kube::Client;
use parking_lot::Mutex;
use support::{
    prelude::*,
    proxy::{ApiRequest, Broken, Forward, ProxyResponse, ProxyServer, Verb},
};
use tokio::sync::watch;

/// A running proxy for one manager.
pub(crate) struct Proxy {
    server: ProxyServer,
    is_silent: watch::Sender<bool>,
    watched: Arc<Mutex<BTreeSet<String>>>,
}

impl Proxy {
    /// Starts a proxy that can silence the watches and lists of a kind, by its plural.
    pub(crate) async fn start(plane: &ControlPlane, resource: &'static str) -> Self {
        let (is_silent, receiver) = watch::channel(false);
        let watched = Arc::default();
        let upstream = ProxyServer::upstream(plane).await;
        let handler = Handler {
            upstream,
            resource,
            is_silent: receiver,
            watched: Arc::clone(&watched),
        };
        let accept = move || {
            let handler = handler.clone();
            move |request| handler.clone().respond(request)
        };
        Self {
            server: ProxyServer::start(plane, resource, accept).await,
            is_silent,
            watched,
        }
    }

    /// The kubeconfig for the manager.
    pub(crate) fn kubeconfig(&self) -> &Path {
        self.server.kubeconfig()
    }

    /// While watches and lists are silent, they stay open and deliver nothing: no object, no error
    /// and no end. New ones are silent, too. Everything is delivered later.
    pub(crate) fn set_silent(&self, is_silent: bool) {
        self.is_silent.send_replace(is_silent);
    }

    /// The plurals of all kinds that the manager has watched.
    pub(crate) fn watched(&self) -> BTreeSet<String> {
        self.watched.lock().clone()
    }
}

#[derive(Clone)]
struct Handler {
    upstream: Client,
    resource: &'static str,
    is_silent: watch::Receiver<bool>,
    watched: Arc<Mutex<BTreeSet<String>>>,
}

impl Handler {
    async fn respond(self, request: Request<Incoming>) -> Result<ProxyResponse, Broken> {
        let forward = Forward::receive(self.upstream, request).await?;
        let asked = ApiRequest::of(&forward.method, &forward.path);
        let is_list = matches!(asked.verb, Verb::Read | Verb::Watch) && asked.name.is_empty();
        let is_of_kind = asked.resource == self.resource;
        if asked.verb == Verb::Watch {
            self.watched.lock().insert(asked.resource);
        }
        let response = forward.stream().await?;
        if !(is_list && is_of_kind) {
            return Ok(response);
        }
        Ok(response.map(|body| hold_back(body, self.is_silent)))
    }
}

/// Delivers the frames of a body, and its end, as soon as it is not silent.
fn hold_back(
    body: UnsyncBoxBody<Bytes, io::Error>,
    is_silent: watch::Receiver<bool>,
) -> UnsyncBoxBody<Bytes, io::Error> {
    let end = stream::once(ready(None));
    let delivered = BodyStream::new(body)
        .map(Some)
        .chain(end)
        .then(move |item| {
            let mut is_silent = is_silent.clone();
            async move {
                // It fails when the proxy has ended.
                let _ = is_silent.wait_for(|is_silent| !is_silent).await;
                item
            }
        });
    StreamBody::new(delivered.filter_map(ready)).boxed_unsync()
}
