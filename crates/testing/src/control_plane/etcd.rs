//! Requests to etcd, through its JSON API.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// How long etcd may take to respond.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The key of the namespace whose UID is the identity of a cluster.
const IDENTITY: &str = "/registry/namespaces/kube-system";

/// Removes the identity of the cluster of which the data is a copy. The API server creates another
/// one when it starts.
pub(super) fn remove_identity(port: u16) -> io::Result<()> {
    let request = json!({ "key": ByteString(IDENTITY.into()) });
    call_etcd(port, "/v3/kv/deleterange", &request).map(drop)
}

/// Whether the cluster has an identity.
pub(super) fn has_identity(port: u16) -> io::Result<bool> {
    let request = json!({ "key": ByteString(IDENTITY.into()), "count_only": true });
    let found = call_etcd(port, "/v3/kv/range", &request)?;
    Ok(found["count"] == "1")
}

/// Calls the JSON API of etcd.
pub(super) fn call_etcd(port: u16, path: &str, request: &Value) -> io::Result<Value> {
    let body = request.to_string();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    match response.split_once("\r\n\r\n") {
        Some((status, content)) if status.contains(" 200 ") => Ok(serde_json::from_str(content)?),
        _ => Err(io::Error::other(response)),
    }
}
