//! Forwards requests to the API server, and builds error responses.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Response, StatusCode};
use kube::Client;
use serde_json::json;

use crate::support::proxy::ProxyResponse;

/// No response: the connection breaks.
#[derive(Debug, thiserror::Error)]
#[error("the connection breaks on purpose")]
pub struct Broken;

/// A request to the API server.
#[derive(Clone)]
pub struct Forward {
    pub upstream: Client,
    pub method: Method,
    pub path: String,
    pub accept: Option<HeaderValue>,
    pub content: Option<HeaderValue>,
    pub body: Bytes,
}

impl Forward {
    fn request(&self) -> Option<hyper::Request<kube::client::Body>> {
        let mut request = hyper::Request::builder().method(&self.method).uri(&self.path);
        for (name, value) in [(ACCEPT, &self.accept), (CONTENT_TYPE, &self.content)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        request.body(kube::client::Body::from(self.body.to_vec())).ok()
    }

    /// Sends it and waits for the head of the response.
    pub async fn open(&self) -> Result<Response<kube::client::Body>, Broken> {
        self.upstream.send(self.request().ok_or(Broken)?).await.map_err(|_| Broken)
    }

    /// Sends it and waits for the whole response.
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
pub fn error_response(code: u16) -> ProxyResponse {
    let (reason, message) = match code {
        403 => ("Forbidden", "forbidden: the API server has not read the roles yet"),
        409 => ("Conflict", "the object has been modified; please apply your changes to the latest version"),
        429 => ("TooManyRequests", "the server has received too many requests"),
        500 => ("InternalError", "an internal error occurred"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        _ => ("Timeout", "the server was unable to return a response in time"),
    };
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code,
    });
    let mut response = Response::new(whole(Bytes::from(status.to_string())));
    *response.status_mut() = StatusCode::from_u16(code).expect("it is a code");
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if code == 429 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn whole(body: Bytes) -> UnsyncBoxBody<Bytes, std::io::Error> {
    Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
}
