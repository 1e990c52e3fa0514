//! Requests to etcd, through its JSON API.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long etcd may take to respond.
const TIMEOUT: Duration = Duration::from_secs(30);

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
