//! A plain HTTP server between the program of a provider and the API server.

mod forward;
mod request;

use std::error::Error;
use std::future::Future;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use capi_ipam_provider::controller::client::connect;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use self::forward::{Broken, Forward, ProxyResponse, error_response};
pub use self::request::{Request as ApiRequest, Verb};
use crate::control_plane::ControlPlane;

/// A running proxy. It stops when this value is dropped.
#[derive(Debug)]
pub struct ProxyServer {
    kubeconfig: PathBuf,
    task: JoinHandle<()>,
}

impl ProxyServer {
    /// Starts a proxy. `name` is part of the name of its kubeconfig. `accept` returns the handler
    /// of the requests of a new connection.
    ///
    /// # Panics
    /// When the machine has no free port.
    pub async fn start<A, H, F, E>(plane: &ControlPlane, name: &str, accept: A) -> Self
    where
        A: Fn() -> H + Send + 'static,
        H: Fn(Request<Incoming>) -> F + Send + 'static,
        F: Future<Output = Result<ProxyResponse, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("the machine has a free port");
        let port = listener
            .local_addr()
            .expect("a listener has an address")
            .port();
        let kubeconfig = plane.folder().join(format!("kubeconfig-{name}.json"));
        let namespace = plane.provider_namespace();
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": namespace } }],
        });
        std::fs::write(&kubeconfig, content.to_string()).expect("a file can be written");
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    continue;
                };
                let connection = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(accept()));
                // An error means that the connection broke, which faults do on purpose.
                tokio::spawn(connection);
            }
        });
        Self { kubeconfig, task }
    }

    /// A client of the API server with the permissions of the provider.
    ///
    /// # Panics
    /// When the kubeconfig of the provider is invalid.
    pub async fn upstream(plane: &ControlPlane) -> Client {
        connect(Some(plane.provider_kubeconfig()), "manager")
            .await
            .expect("the kubeconfig is valid")
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
