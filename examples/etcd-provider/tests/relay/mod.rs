//! A relay between the provider and etcd, which can be closed or muted, or delay requests.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capi_ipam_testing::wait::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the relay does with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It forwards everything.
    Open,
    /// It closes them: etcd is down.
    Closed,
    /// It forwards requests and drops the answers. Connections without an answer are closed when it
    /// is open again.
    Mute,
    /// It forwards the requests of a connection until one contains this text. It holds that one and
    /// all later ones, and forwards them when it is open again, even if the client has closed the
    /// connection.
    Held(&'static str),
}

/// A running relay.
pub struct Relay {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    is_holding: Arc<AtomicBool>,
}

impl Relay {
    /// Starts a relay to an URL `http://host:port`.
    pub async fn start(url: &str) -> Self {
        let target = url.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("the machine has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let (mode, modes) = watch::channel(Mode::Open);
        let is_holding = Arc::new(AtomicBool::new(false));
        let holding = Arc::clone(&is_holding);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(
                    client,
                    target.clone(),
                    modes.clone(),
                    Arc::clone(&holding),
                ));
            }
        });
        Self {
            address,
            mode,
            is_holding,
        }
    }

    /// The URL of the relay.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes what the relay does, also with existing connections.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Waits until the relay holds a request.
    pub async fn wait_until_holding(&self) {
        eventually("the relay holds a request", || async {
            self.is_holding.load(Ordering::Relaxed).then_some(())
        })
        .await;
    }
}

async fn relay(
    mut client: TcpStream,
    target: String,
    mut modes: watch::Receiver<Mode>,
    is_holding: Arc<AtomicBool>,
) {
    let Ok(mut server) = TcpStream::connect(target).await else {
        return;
    };
    let (mut request, mut answer) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    let mut held = Vec::new();
    let (mut has_dropped, mut is_client_open) = (false, true);
    loop {
        let mode = *modes.borrow_and_update();
        if mode == Mode::Closed || (has_dropped && mode == Mode::Open) {
            return;
        }
        if mode == Mode::Open
            && !held.is_empty()
            && server.write_all(&std::mem::take(&mut held)).await.is_err()
        {
            return;
        }
        tokio::select! {
            read = client.read(&mut request), if is_client_open => match read {
                Ok(1..) => {
                    let bytes = request.get(..read.unwrap_or_default()).unwrap_or_default();
                    if !held.is_empty() || must_hold(mode, bytes) {
                        held.extend_from_slice(bytes);
                        is_holding.store(true, Ordering::Relaxed);
                    } else if server.write_all(bytes).await.is_err() {
                        return;
                    }
                }
                _ if held.is_empty() => return,
                _ => is_client_open = false,
            },
            read = server.read(&mut answer) => match read {
                Ok(1..) => {
                    let bytes = answer.get(..read.unwrap_or_default()).unwrap_or_default();
                    has_dropped |= mode == Mode::Mute;
                    if is_client_open && !has_dropped && client.write_all(bytes).await.is_err() {
                        if held.is_empty() {
                            return;
                        }
                        is_client_open = false;
                    }
                }
                _ => return,
            },
            changed = modes.changed() => if changed.is_err() { return },
        }
    }
}

fn must_hold(mode: Mode, request: &[u8]) -> bool {
    let Mode::Held(text) = mode else { return false };
    request
        .windows(text.len())
        .any(|bytes| bytes == text.as_bytes())
}
