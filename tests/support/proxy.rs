//! A plain HTTP server between a manager and the API server.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use capi_ipam_controller::client::connect;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::control_plane::{ControlPlane, NAMESPACE};

/// A response of a proxy.
pub type ProxyResponse = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// A running proxy. It stops when this value is dropped.
pub struct ProxyServer {
    kubeconfig: PathBuf,
    task: JoinHandle<()>,
}

impl ProxyServer {
    /// Starts a proxy. `name` is part of the name of its kubeconfig. `accept` returns the handler of the requests of a
    /// new connection.
    pub async fn start<A, H, F, E>(plane: &ControlPlane, name: &str, accept: A) -> Self
    where
        A: Fn() -> H + Send + 'static,
        H: Fn(Request<Incoming>) -> F + Send + 'static,
        F: Future<Output = Result<ProxyResponse, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the machine has a free port");
        let port = listener.local_addr().expect("a listener has an address").port();
        let kubeconfig = plane.folder().join(format!("kubeconfig-{name}.json"));
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": NAMESPACE } }],
        });
        std::fs::write(&kubeconfig, content.to_string()).expect("a file can be written");
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(accept()));
                // An error means that the connection broke, which faults do on purpose.
                tokio::spawn(connection);
            }
        });
        Self { kubeconfig, task }
    }

    /// A client of the API server with the permissions of the provider.
    pub async fn upstream(plane: &ControlPlane) -> Client {
        connect(Some(plane.provider_kubeconfig()), "manager").await.expect("the kubeconfig is valid")
    }

    /// The kubeconfig with which a manager uses the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
