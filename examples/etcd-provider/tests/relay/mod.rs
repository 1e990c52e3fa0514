//! A relay between the provider and etcd, which can be closed or muted.

use std::net::{Ipv4Addr, SocketAddr};

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
    /// It forwards requests and drops the answers. Connections without an answer are closed when it is open again.
    Mute,
}

/// A running relay.
pub struct Relay {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
}

impl Relay {
    /// Starts a relay to an URL `http://host:port`.
    pub async fn start(url: &str) -> Self {
        let target = url.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the machine has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let (mode, modes) = watch::channel(Mode::Open);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, target.clone(), modes.clone()));
            }
        });
        Self { address, mode }
    }

    /// The URL of the relay.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes what the relay does, also with existing connections.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn relay(mut client: TcpStream, target: String, mut modes: watch::Receiver<Mode>) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let (mut request, mut answer) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    let mut has_dropped = false;
    loop {
        let mode = *modes.borrow_and_update();
        if mode == Mode::Closed || (has_dropped && mode == Mode::Open) {
            return;
        }
        tokio::select! {
            read = client.read(&mut request) => match read {
                Ok(1..) => {
                    let length = read.unwrap_or_default();
                    if server.write_all(request.get(..length).unwrap_or_default()).await.is_err() { return }
                }
                _ => return,
            },
            read = server.read(&mut answer) => match read {
                Ok(1..) => {
                    let length = read.unwrap_or_default();
                    has_dropped |= mode == Mode::Mute;
                    if !has_dropped && client.write_all(answer.get(..length).unwrap_or_default()).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
            changed = modes.changed() => if changed.is_err() { return },
        }
    }
}
