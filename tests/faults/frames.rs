//! Forwards a watch, event by event.

use std::io;
use std::time::Duration;

use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use tokio::sync::mpsc;

/// How long a watch is delayed.
pub const HELD_BACK: Duration = Duration::from_secs(2);

/// What happens to an event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    None,
    /// It is delayed, and all later ones.
    HoldBack,
    /// The connection breaks before it.
    Break,
    /// The API server reports an expired resource version, and ends the watch.
    Expire,
    /// Neither it nor any later event arrives, and the connection stays open.
    Swallow,
}

/// The event of an expired resource version.
const EXPIRED: &str = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;

/// The events of a watch, one per line, disturbed as `disturb` returns. It is called for everything
/// that is sent, including the end, with whether that is a change.
pub fn forward_events(
    body: kube::client::Body,
    disturb: impl Fn(bool) -> Disturbance + Send + 'static,
) -> UnsyncBoxBody<Bytes, io::Error> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = pass(body, &sender, disturb) => {}
            () = sender.closed() => {}
        }
    });
    let frames = futures::stream::unfold(receiver, |mut receiver| async {
        Some((receiver.recv().await?, receiver))
    });
    StreamBody::new(frames).boxed_unsync()
}

async fn pass(
    body: kube::client::Body,
    sender: &mpsc::Sender<io::Result<Frame<Bytes>>>,
    disturb: impl Fn(bool) -> Disturbance,
) {
    let send = async |line: Vec<u8>| sender.send(Ok(Frame::data(Bytes::from(line)))).await;
    let mut data = body.into_data_stream();
    let mut lines = Lines::default();
    while let Some(chunk) = data.next().await {
        let Ok(chunk) = chunk else {
            stay_open_if(disturb(false) == Disturbance::Swallow).await;
            return drop(
                sender
                    .send(Err(io::ErrorKind::ConnectionReset.into()))
                    .await,
            );
        };
        for line in lines.feed(&chunk) {
            // A bookmark is no change.
            match disturb(!is_bookmark(&line)) {
                Disturbance::None => {}
                Disturbance::HoldBack => tokio::time::sleep(HELD_BACK).await,
                Disturbance::Break => {
                    return drop(
                        sender
                            .send(Err(io::ErrorKind::ConnectionReset.into()))
                            .await,
                    );
                }
                Disturbance::Expire => {
                    return drop(send(format!("{EXPIRED}\n").into_bytes()).await);
                }
                Disturbance::Swallow => stay_open_if(true).await,
            }
            if send(line).await.is_err() {
                return;
            }
        }
    }
    stay_open_if(disturb(false) == Disturbance::Swallow).await;
}

/// Never returns where the connection is a black hole.
async fn stay_open_if(is_swallowed: bool) {
    if is_swallowed {
        std::future::pending::<()>().await;
    }
}

fn is_bookmark(line: &[u8]) -> bool {
    line.starts_with(br#"{"type":"BOOKMARK""#)
}

/// Joins chunks to lines.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// The lines that are complete now, with their line ends.
    fn feed(&mut self, chunk: &[u8]) -> Vec<Vec<u8>> {
        self.rest.extend_from_slice(chunk);
        let end = self
            .rest
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        let complete: Vec<u8> = self.rest.drain(..end).collect();
        complete
            .split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_to_lines() {
        let mut lines = Lines::default();
        assert!(lines.feed(b"{\"a\"").is_empty());
        assert_eq!(
            lines.feed(b":1}\n{\"b\":2}\n{"),
            [b"{\"a\":1}\n".to_vec(), b"{\"b\":2}\n".to_vec()]
        );
        assert_eq!(lines.feed(b"}\n"), [b"{}\n".to_vec()]);
    }

    #[test]
    fn bookmark_is_not_a_change() {
        assert!(
            is_bookmark(br#"{"type":"BOOKMARK","object":{}}"#) && !is_bookmark(EXPIRED.as_bytes())
        );
    }
}
