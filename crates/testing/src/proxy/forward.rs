//! Forwards requests to the API server, and builds error responses.

use std::convert::Infallible;
use std::io;

use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use kube::Client;
use serde_json::json;

/// A response of a proxy.
pub type ProxyResponse = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// No response: the connection breaks.
#[derive(Debug, thiserror::Error)]
#[error("the connection breaks on purpose")]
pub struct Broken;

/// A request to the API server.
#[derive(Clone)]
pub struct Forward {
    /// The client of the API server.
    pub upstream: Client,
    /// The method of the request.
    pub method: Method,
    /// The path with its query.
    pub path: String,
    /// The header `Accept`.
    pub accept: Option<HeaderValue>,
    /// The header `Content-Type`.
    pub content: Option<HeaderValue>,
    /// The body; empty for none.
    pub body: Bytes,
}

impl Forward {
    /// Receives a request of a program.
    ///
    /// # Errors
    /// When its connection breaks.
    pub async fn receive(upstream: Client, request: Request<Incoming>) -> Result<Self, Broken> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
        let path = head
            .uri
            .path_and_query()
            .map(ToString::to_string)
            .unwrap_or_default();
        let header = |name| head.headers.get(name).cloned();
        let (accept, content) = (header(ACCEPT), header(CONTENT_TYPE));
        Ok(Self {
            upstream,
            method: head.method,
            path,
            accept,
            content,
            body,
        })
    }

    fn request(&self) -> Option<hyper::Request<kube::client::Body>> {
        let mut request = hyper::Request::builder()
            .method(&self.method)
            .uri(&self.path);
        for (name, value) in [(ACCEPT, &self.accept), (CONTENT_TYPE, &self.content)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        request
            .body(kube::client::Body::from(self.body.to_vec()))
            .ok()
    }

    /// Sends it and waits for the head of the response.
    ///
    /// # Errors
    /// When no response arrives.
    pub async fn open(&self) -> Result<Response<kube::client::Body>, Broken> {
        self.upstream
            .send(self.request().ok_or(Broken)?)
            .await
            .map_err(|_| Broken)
    }

    /// Sends it, and passes the body of the response on while it arrives, as a watch requires.
    ///
    /// # Errors
    /// When no response arrives.
    pub async fn stream(&self) -> Result<ProxyResponse, Broken> {
        let (head, body) = self.open().await?.into_parts();
        let frames = body
            .into_data_stream()
            .map(|chunk| chunk.map(Frame::data).map_err(io::Error::other));
        let mut response = Response::builder().status(head.status);
        if let Some(content) = head.headers.get(CONTENT_TYPE) {
            response = response.header(CONTENT_TYPE, content);
        }
        response
            .body(StreamBody::new(frames).boxed_unsync())
            .map_err(|_| Broken)
    }

    /// Sends it and waits for the whole response.
    ///
    /// # Errors
    /// When no response arrives.
    pub async fn send(&self) -> Result<ProxyResponse, Broken> {
        let (head, body) = self.open().await?.into_parts();
        let body = body.collect_bytes().await.map_err(|_| Broken)?;
        let mut response = Response::builder().status(head.status);
        if let Some(content) = head.headers.get(CONTENT_TYPE) {
            response = response.header(CONTENT_TYPE, content);
        }
        response.body(whole(body)).map_err(|_| Broken)
    }
}

/// An error response of the API server.
///
/// # Panics
/// When `code` is no HTTP status code.
pub fn error_response(code: u16) -> ProxyResponse {
    let (reason, message) = match code {
        403 => (
            "Forbidden",
            "forbidden: the API server has not read the roles yet",
        ),
        409 => (
            "Conflict",
            "the object has been modified; please apply your changes to the latest version",
        ),
        429 => (
            "TooManyRequests",
            "the server has received too many requests",
        ),
        500 => ("InternalError", "an internal error occurred"),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        _ => (
            "Timeout",
            "the server was unable to return a response in time",
        ),
    };
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code,
    });
    let mut response = Response::new(whole(Bytes::from(status.to_string())));
    *response.status_mut() = StatusCode::from_u16(code).expect("it is a code");
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if code == 429 {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn whole(body: Bytes) -> UnsyncBoxBody<Bytes, io::Error> {
    Full::new(body)
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}
