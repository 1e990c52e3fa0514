//! Calls the webhooks of a manager directly, as the API server does: over TLS, trusting only the
//! CA.

use std::io::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Webhooks;

/// A keep-alive connection.
pub enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// An HTTP response.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    pub body: String,
}

impl HttpResponse {
    /// The `response` of the review.
    ///
    /// # Panics
    /// When the body is no review.
    pub fn response(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        let mut review: Value = serde_json::from_str(&self.body).expect("the body is JSON");
        review["response"].take()
    }
}

impl Webhooks {
    /// A TLS connection for `h2` or `http/1.1`.
    pub async fn stream(&self, protocol: &str) -> Result<TlsStream<TcpStream>, Error> {
        self.stream_to(self.port(), protocol).await
    }

    /// Like [`Self::stream`], to another port with the same certificate.
    pub async fn stream_to(
        &self,
        port: u16,
        protocol: &str,
    ) -> Result<TlsStream<TcpStream>, Error> {
        connect_trusting(&self.authority(), port, protocol).await
    }

    /// The whole response to a GET request to a port with the same certificate; empty when no
    /// server listens.
    pub async fn get(&self, port: u16, path: &str, authorization: &str) -> String {
        let Ok(mut stream) = self.stream_to(port, "http/1.1").await else {
            return String::new();
        };
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: x\r\n{authorization}connection: close\r\n\r\n");
        let mut response = String::new();
        if stream.write_all(request.as_bytes()).await.is_ok() {
            // The part of the response before the connection broke is more specific than the error.
            let _ = stream.read_to_string(&mut response).await;
        }
        response
    }

    /// A connection with HTTP/1.1.
    pub async fn connect(&self) -> Result<Connection, Error> {
        let stream = TokioIo::new(self.stream("http/1.1").await?);
        let (sender, connection) = http1::handshake(stream).await.map_err(Error::other)?;
        tokio::spawn(connection);
        Ok(Connection::Http1(sender))
    }

    /// A connection with HTTP/2, as the API server has.
    pub async fn connect_http2(&self) -> Result<Connection, Error> {
        let stream = TokioIo::new(self.stream("h2").await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream)
            .await
            .map_err(Error::other)?;
        tokio::spawn(connection);
        Ok(Connection::Http2(sender))
    }

    /// Posts a review on a new connection.
    ///
    /// # Panics
    /// When no response arrives.
    pub async fn post_review(&self, path: &str, review: &Value) -> HttpResponse {
        let mut connection = self.connect().await.expect("a connection can be created");
        connection
            .post(path, review.to_string())
            .await
            .expect("a response is received")
    }

    /// The certificate that the manager serves.
    pub async fn served_certificate(&self) -> Result<Vec<u8>, Error> {
        let stream = self.stream("h2").await?;
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Ok(certificates
            .first()
            .map(|certificate| certificate.to_vec())
            .unwrap_or_default())
    }
}

/// A TLS connection to 127.0.0.1 that trusts only these CAs (in PEM).
pub async fn connect_trusting(
    authorities: &str,
    port: u16,
    protocol: &str,
) -> Result<TlsStream<TcpStream>, Error> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots
            .add(authority.expect("the CAs are PEM"))
            .expect("the CA is valid");
    }
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the crypto provider supports them")
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::from(Ipv4Addr::LOCALHOST).to_owned(), stream)
        .await
}

impl Connection {
    /// A second handle for concurrent requests; only HTTP/2 supports it.
    pub fn another(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
        }
    }

    /// Posts JSON.
    pub async fn post(
        &mut self,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<HttpResponse, Error> {
        self.send("POST", path, "application/json", body).await
    }

    /// Sends any request.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<HttpResponse, Error> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("https://127.0.0.1{path}"))
            .header("host", "127.0.0.1")
            .header("content-type", content_type)
            .body(Full::new(body.into()))
            .expect("the test writes valid requests");
        let response = match self {
            Self::Http1(sender) => {
                sender.ready().await.map_err(Error::other)?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => sender.send_request(request).await,
        };
        let response = response.map_err(Error::other)?;
        let status = response.status().as_u16();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(Error::other)?
            .to_bytes();
        Ok(HttpResponse {
            status,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}

/// An AdmissionReview for an old and a new object, either of which may be null.
pub fn review(operation: &str, kind: &str, old: &Value, new: &Value) -> Value {
    let object = if new.is_null() { old } else { new };
    let metadata = |field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": operation,
            "kind": { "group": "ipam.cluster.x-k8s.io", "version": "v1alpha2", "kind": kind },
            "name": metadata("name"), "namespace": metadata("namespace"), "oldObject": old, "object": new,
        },
    })
}

/// A ConversionReview of objects to a version of this API group.
pub fn conversion(desired: &str, objects: &[Value]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800003",
            "desiredAPIVersion": format!("ipam.cluster.x-k8s.io/{desired}"), "objects": objects,
        },
    })
}
