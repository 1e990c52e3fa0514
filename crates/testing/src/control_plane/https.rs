//! HTTPS requests to the API server in this process: a start needs many, and each run of kubectl
//! costs 0.1 s of processor time.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

/// How long a request may wait for its response.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Where the requests are sent, and the token of the user.
#[derive(Clone, Debug)]
pub(super) struct Endpoint<'a> {
    pub(super) port: u16,
    /// The file with the certificate of the API server, and of the CA that signed it.
    pub(super) certificate: PathBuf,
    pub(super) token: &'a str,
}

impl Endpoint<'_> {
    /// The body of the response to a GET request.
    ///
    /// # Errors
    /// The response or the failure, when the status code is not 200.
    pub(super) fn get(&self, path: &str, accept: &str) -> Result<String, String> {
        self.send(&format!("GET {path} HTTP/1.0\r\nAccept: {accept}\r\n"), "")
    }

    /// The body of the response to a POST request.
    ///
    /// # Errors
    /// The response or the failure, when the object is not created.
    pub(super) fn create(&self, path: &str, object: &str) -> Result<String, String> {
        let length = object.len();
        let headers = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
        self.send(&format!("POST {path} HTTP/1.0\r\n{headers}"), object)
    }

    fn send(&self, head: &str, body: &str) -> Result<String, String> {
        let response = self
            .exchange(head, body)
            .map_err(|error| error.to_string())?;
        let (status, content) = response
            .split_once("\r\n\r\n")
            .ok_or("the response is incomplete")?;
        let code = status.split(' ').nth(1).unwrap_or_default();
        if ["200", "201"].contains(&code) {
            Ok(content.to_owned())
        } else {
            Err(response)
        }
    }

    /// Sends a request of HTTP 1.0, so that the response ends with the connection and is not
    /// chunked.
    fn exchange(&self, head: &str, body: &str) -> Result<String, Box<dyn std::error::Error>> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&fs::read(&self.certificate)?) {
            roots.add(certificate?)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("127.0.0.1")?;
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name)?, stream);
        write!(
            stream,
            "{head}Host: 127.0.0.1\r\nAuthorization: Bearer {}\r\n\r\n{body}",
            self.token
        )?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    }
}

/// The causes in the response to a rejected request, each in a line with its field. None if the
/// response has no causes.
pub(super) fn causes(response: &str) -> Option<String> {
    let (_, body) = response.split_once("\r\n\r\n")?;
    let status: Value = serde_json::from_str(body).ok()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = status["details"]["causes"].as_array()?.iter();
    let lines: Vec<_> = causes
        .map(|cause| format!("{}: {}", text(&cause["field"]), text(&cause["message"])))
        .collect();
    Some(lines.join("\n"))
}
