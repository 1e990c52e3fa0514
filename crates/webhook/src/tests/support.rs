//! A webhook server with generated certificates, and a client that trusts them.

use std::io::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use capi_ipam_controller::health::Health;
use capi_ipam_controller::metrics::Metrics;
use clap::Parser;
use futures::StreamExt;
use http_body_util::BodyExt;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::denial;
use crate::endpoints::Endpoints;
use crate::https::Limits;
use crate::https::certificate::Certificates;
use crate::https::tls::TlsOptions;
use crate::options::WebhookOptions;
use crate::review::AdmissionRequest;
use crate::server::listen_on;

const ALL: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12, &rustls::version::TLS13];

/// Allows things of size 10 and less. Panics for size 666; takes as many milliseconds as the size
/// from 1000 on.
pub(crate) fn things(endpoints: Endpoints) -> Endpoints {
    let review = |request: &AdmissionRequest| {
        let size = request.object.as_ref().unwrap()["spec"]["size"].clone();
        match size.as_u64().unwrap() {
            666 => panic!("666"),
            time @ 1000.. => std::thread::sleep(Duration::from_millis(time)),
            11.. => {
                let causes = vec![denial::invalid_value("spec.size", &size, "too big")];
                return Err(denial::invalid("example.com", "Thing", "a", causes));
            }
            _ => {}
        }
        Ok(Vec::new())
    };
    let convert = |mut object: Value, desired: &str| {
        object["apiVersion"] = desired.into();
        Ok(object)
    };
    endpoints
        .review("/validate", review)
        .convert("/convert", convert)
}

/// An admission review of a thing of that size.
pub(crate) fn review(size: u64) -> Bytes {
    let kind = json!({"group": "example.com", "version": "v1", "kind": "Thing"});
    let object = json!({"spec": {"size": size}});
    let request =
        json!({"uid": format!("u-{size}"), "kind": kind, "operation": "CREATE", "object": object});
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    review.to_string().into()
}

pub(crate) fn tls() -> TlsOptions {
    TlsOptions::default()
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    webhooks: WebhookOptions,
}

/// The CA of the certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

/// A certificate and its key, in PEM format.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) der: Vec<u8>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    pub(crate) fn issue(&self) -> Pair {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["webhooks.test".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().to_vec(),
        }
    }

    pub(crate) fn trusted(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }
}

impl Pair {
    pub(crate) fn write(&self, folder: &Path) {
        std::fs::write(folder.join("tls.crt"), &self.certificate).unwrap();
        std::fs::write(folder.join("tls.key"), &self.key).unwrap();
    }
}

/// A running server with a directory for its certificate.
pub(crate) struct Server {
    pub(crate) folder: TempDir,
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
    pub(crate) certificates: Certificates,
    pub(crate) stopping: CancellationToken,
    pub(crate) running: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(endpoints: fn(Endpoints) -> Endpoints) -> Self {
        Self::start_with(endpoints, Limits::default(), tls()).await
    }

    pub(crate) async fn start_with(
        endpoints: fn(Endpoints) -> Endpoints,
        limits: Limits,
        tls: TlsOptions,
    ) -> Self {
        let server = Self::start_without_certificate(endpoints, limits, tls).await;
        server.authority.issue().write(server.folder.path());
        server.ready().await;
        server
    }

    pub(crate) async fn start_without_certificate(
        endpoints: fn(Endpoints) -> Endpoints,
        limits: Limits,
        tls: TlsOptions,
    ) -> Self {
        let (folder, health, metrics) = (
            TempDir::new().unwrap(),
            Health::default(),
            Metrics::default(),
        );
        let flags = Flags::parse_from([
            "test".into(),
            format!("--webhook-cert-dir={}", folder.path().display()),
        ]);
        let options = WebhookOptions {
            tls,
            ..flags.webhooks
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listen_on(listener, &options, &health, &metrics, limits).unwrap();
        let (address, certificates, stopping) = (
            server.address().unwrap(),
            server.certificates(),
            CancellationToken::new(),
        );
        let router = endpoints(Endpoints::new(&metrics)).router();
        let running = tokio::spawn(server.serve(router, stopping.clone()));
        Self {
            folder,
            authority: Authority::new(),
            address,
            health,
            metrics,
            certificates,
            stopping,
            running,
        }
    }

    /// Waits for the certificate.
    pub(crate) async fn ready(&self) {
        while !self.health.pending().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until that number of requests is in flight.
    pub(crate) async fn wait_until_in_flight(&self, requests: u32) {
        let line = format!("webhook_reviews_in_flight {requests}\n");
        while !self.metrics.encode().unwrap().contains(&line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn stop(self) {
        self.stopping.cancel();
        tokio::time::timeout(Duration::from_secs(30), self.running)
            .await
            .expect("the server ends")
            .unwrap();
    }

    /// Opens a connection without a request.
    pub(crate) async fn connect(&self, http2: bool) -> Result<TlsStream<TcpStream>, Error> {
        self.connect_with(ALL, http2).await
    }

    pub(crate) async fn connect_with(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        http2: bool,
    ) -> Result<TlsStream<TcpStream>, Error> {
        let mut config = self.authority.trusted(versions);
        config.alpn_protocols = vec![if http2 {
            b"h2".to_vec()
        } else {
            b"http/1.1".to_vec()
        }];
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from("webhooks.test").unwrap(), stream)
            .await
    }

    /// The certificate that the server presents.
    pub(crate) async fn presented(&self) -> Result<Vec<u8>, Error> {
        let stream = self.connect(true).await?;
        Ok(stream.get_ref().1.peer_certificates().unwrap()[0].to_vec())
    }

    pub(crate) async fn client(&self, http2: bool) -> Result<Client, Error> {
        let stream = TokioIo::new(self.connect(http2).await?);
        if http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream)
                .await
                .map_err(Error::other)?;
            tokio::spawn(connection);
            return Ok(Client::Http2(sender));
        }
        let (sender, connection) = http1::handshake(stream).await.map_err(Error::other)?;
        tokio::spawn(connection);
        Ok(Client::Http1(sender))
    }

    /// Sends a request over a new connection.
    pub(crate) async fn ask(&self, request: Request) -> Result<(u16, String), Error> {
        self.client(false).await?.send(request).await
    }
}

/// A request of the test client.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    /// Sends the body without its length.
    pub(crate) chunked: bool,
}

impl Request {
    pub(crate) fn review(size: u64) -> Self {
        let content_type = "application/json";
        Self {
            method: "POST",
            path: "/validate",
            content_type,
            body: review(size),
            chunked: false,
        }
    }
}

/// A connection.
pub(crate) enum Client {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl Client {
    pub(crate) async fn send(&mut self, request: Request) -> Result<(u16, String), Error> {
        let body = if request.chunked {
            let parts: Vec<Result<Bytes, Error>> = request
                .body
                .chunks(64 * 1024)
                .map(|part| Ok(Bytes::copy_from_slice(part)))
                .collect();
            Body::from_stream(futures::stream::iter(parts).boxed())
        } else {
            Body::from(request.body)
        };
        let message = http::Request::builder()
            .method(request.method)
            .uri(format!("https://webhooks.test{}", request.path))
            .header("host", "webhooks.test")
            .header("content-type", request.content_type)
            .body(body)
            .unwrap();
        let answer = match self {
            Self::Http1(sender) => sender.send_request(message).await,
            Self::Http2(sender) => sender.send_request(message).await,
        };
        let answer = answer.map_err(Error::other)?;
        let status = answer.status().as_u16();
        let body = answer
            .into_body()
            .collect()
            .await
            .map_err(Error::other)?
            .to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

/// An API server that authenticates tokens that begin with "good" or "other", authorizes the former
/// to get `/metrics`, and fails for "broken". Counts the reviews of tokens.
pub(crate) fn reviewing_client(reviews: Arc<AtomicUsize>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let reviews = Arc::clone(&reviews);
        async move {
            let body = request.into_body().collect_bytes().await?;
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            let text = |pointer| review.pointer(pointer).and_then(Value::as_str);
            let mut code = 201;
            review["status"] = match text("/spec/token") {
                Some(token) => {
                    reviews.fetch_add(1, Ordering::Relaxed);
                    if token == "broken" {
                        code = 500;
                    }
                    let is_known = token.starts_with("good") || token.starts_with("other");
                    json!({"authenticated": is_known, "user": {"username": token}})
                }
                None => {
                    let path = text("/spec/nonResourceAttributes/path");
                    let is_good = text("/spec/user").is_some_and(|user| user.starts_with("good"));
                    json!({"allowed": is_good && path == Some("/metrics")})
                }
            };
            let body = kube::client::Body::from(serde_json::to_vec(&review).unwrap());
            Ok::<_, kube::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    kube::Client::new(service, "default")
}
