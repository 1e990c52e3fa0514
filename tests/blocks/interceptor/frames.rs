//! Messages of the protocol of NATS between a client and a server.
//! <https://docs.nats.io/reference/reference-protocols/nats-protocol>

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::tcp::OwnedReadHalf;

use super::kind_of_record;

/// The prefix of the subjects of the keys of a bucket.
const KEYS: &str = "$KV.";
/// The end of a line.
const CRLF: &str = "\r\n";

/// A message: a line, and a payload with the operations that have one.
#[derive(Debug)]
pub(super) struct Frame {
    /// The line, without its end.
    line: String,
    /// The headers and the payload.
    body: Vec<u8>,
}

impl Frame {
    /// Reads the next message; `None` at the end of the connection.
    pub(super) async fn read(from: &mut BufReader<OwnedReadHalf>) -> Option<Self> {
        let mut line = String::new();
        let length = from.read_line(&mut line).await.ok()?;
        if length == 0 {
            return None;
        }
        let line = line.trim_end_matches(CRLF).to_owned();
        let mut frame = Self {
            line,
            body: Vec::new(),
        };
        if matches!(frame.operation(), "PUB" | "HPUB" | "MSG" | "HMSG") {
            let length: usize = frame.fields().last()?.parse().ok()?;
            frame.body.resize(length + CRLF.len(), 0);
            from.read_exact(&mut frame.body).await.ok()?;
        }
        Some(frame)
    }

    /// A message of the server that nobody answers requests to a subject, as the server sends it.
    pub(super) fn no_responders(reply: &str, subscription: &str) -> Self {
        let headers = "NATS/1.0 503\r\n\r\n";
        let length = headers.len();
        Self {
            line: format!("HMSG {reply} {subscription} {length} {length}"),
            body: format!("{headers}{CRLF}").into_bytes(),
        }
    }

    /// What is sent.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}{CRLF}", self.line).into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    pub(super) fn operation(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    /// What follows the operation.
    fn fields(&self) -> Vec<&str> {
        self.line.split_ascii_whitespace().skip(1).collect()
    }

    /// The subject of a message that is published or delivered.
    pub(super) fn subject(&self) -> &str {
        self.fields().first().copied().unwrap_or_default()
    }

    /// The subject and the number of a subscription.
    pub(super) fn subscription(&self) -> Option<(String, String)> {
        let fields = self.fields();
        match (self.operation(), fields.as_slice()) {
            ("SUB", [subject, .., number]) => Some(((*subject).to_owned(), (*number).to_owned())),
            _ => None,
        }
    }

    /// A write to a bucket; `None` for another message.
    pub(super) fn write(&self) -> Option<Write> {
        let fields = self.fields();
        let (subject, reply, headers) = match (self.operation(), fields.as_slice()) {
            ("HPUB", [subject, reply, headers, _]) => (*subject, *reply, headers.parse().ok()?),
            _ => return None,
        };
        let key = subject.strip_prefix(KEYS)?.split_once('.')?.1;
        let (headers, payload) = self.body.split_at_checked(headers)?;
        let headers = String::from_utf8_lossy(headers);
        let verb = if headers.contains("KV-Operation") {
            "delete"
        } else if headers.contains("Nats-Expected-Last-Subject-Sequence: 0\r\n") {
            "create"
        } else {
            "change"
        };
        let record: Value = serde_json::from_slice(payload).unwrap_or_default();
        let what = kind_of_record(key, &record)?;
        Some(Write {
            kind: format!("{verb} {what}"),
            reply: reply.to_owned(),
        })
    }
}

/// A write to a bucket.
pub(super) struct Write {
    /// What it does to which kind of record.
    pub(super) kind: String,
    /// The subject of the answer.
    pub(super) reply: String,
}
