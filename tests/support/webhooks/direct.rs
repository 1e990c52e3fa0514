//! Asks the webhooks of a manager as the API server does, without one: over TLS, trusting the authority alone.

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
use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Webhooks;

/// A connection, kept open from one request to the next.
pub enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    /// The response in the review.
    ///
    /// # Panics
    /// When the answer is no review.
    pub fn response(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        let mut review: Value = serde_json::from_str(&self.body).expect("the answer is JSON");
        review["response"].take()
    }
}

impl Webhooks {
    /// A connection on which nothing is said yet, for `h2` or `http/1.1`.
    pub async fn stream(&self, protocol: &str) -> Result<TlsStream<TcpStream>, Error> {
        self.stream_to(self.port(), protocol).await
    }

    /// The same to another port that is served with the certificate.
    pub async fn stream_to(&self, port: u16, protocol: &str) -> Result<TlsStream<TcpStream>, Error> {
        trusting(&self.authority(), port, protocol).await
    }

    /// The whole answer to a GET at a port that is served with the certificate; empty when there is no server.
    pub async fn get(&self, port: u16, path: &str, authorization: &str) -> String {
        let Ok(mut stream) = self.stream_to(port, "http/1.1").await else { return String::new() };
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{authorization}connection: close\r\n\r\n");
        let mut answer = String::new();
        if stream.write_all(request.as_bytes()).await.is_ok() {
            // What was answered before the connection broke tells more than the error.
            let _ = stream.read_to_string(&mut answer).await;
        }
        answer
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
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.map_err(Error::other)?;
        tokio::spawn(connection);
        Ok(Connection::Http2(sender))
    }

    /// Asks on a connection of its own.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn ask(&self, path: &str, review: &Value) -> Answer {
        let mut connection = self.connect().await.expect("a connection can be made");
        connection.post(path, review.to_string()).await.expect("there is an answer")
    }

    /// The certificate that the manager shows.
    pub async fn shown(&self) -> Result<Vec<u8>, Error> {
        let stream = self.stream("h2").await?;
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Ok(certificates.first().map(|certificate| certificate.to_vec()).unwrap_or_default())
    }
}

/// A connection on which nothing is said yet, to whom one of these authorities (in PEM) trusts as 127.0.0.1.
pub async fn trusting(authorities: &str, port: u16, protocol: &str) -> Result<TlsStream<TcpStream>, Error> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority.expect("the authorities are PEM")).expect("an authority can be trusted");
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider speaks them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::from(Ipv4Addr::LOCALHOST).to_owned(), stream).await
}

impl Connection {
    /// The same connection once more, for requests at the same time; only HTTP/2 can do that.
    pub fn another(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
        }
    }

    /// Sends JSON.
    pub async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Result<Answer, Error> {
        self.send("POST", path, "application/json", body).await
    }

    /// Sends anything.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, Error> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("https://127.0.0.1{path}"))
            .header("host", "127.0.0.1")
            .header("content-type", content_type)
            .body(Full::new(body.into()))
            .expect("the test writes requests as they should be");
        let answer = match self {
            Self::Http1(sender) => {
                sender.ready().await.map_err(Error::other)?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => sender.send_request(request).await,
        };
        let answer = answer.map_err(Error::other)?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(Error::other)?.to_bytes();
        Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

/// An AdmissionReview about an object as it was and as it is to be, either of which may be null.
pub fn review(operation: &str, kind: &str, old: &Value, new: &Value) -> Value {
    let object = if new.is_null() { old } else { new };
    let metadata = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": operation,
            "kind": { "group": "ipam.cluster.x-k8s.io", "version": "v1alpha2", "kind": kind },
            "name": metadata("name"), "namespace": metadata("namespace"), "oldObject": old, "object": new,
        },
    })
}

/// A ConversionReview of objects to a version of ours.
pub fn conversion(desired: &str, objects: &[Value]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800003",
            "desiredAPIVersion": format!("ipam.cluster.x-k8s.io/{desired}"), "objects": objects,
        },
    })
}
