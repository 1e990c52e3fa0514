//! A TCP connection between two programs that can be cut and restored.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A port that forwards connections to another one.
#[derive(Debug)]
pub(super) struct Link {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    /// The sockets of the connections.
    sockets: Vec<TcpStream>,
}

impl Link {
    /// Forwards the connections of a new port to `target`, until this process exits.
    pub(super) fn new(target: u16) -> Self {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port can be listened on");
        let port = listener.local_addr().expect("it has an address").port();
        let state = Arc::new(Mutex::new(State::default()));
        let accepting = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A connection that cannot be forwarded is closed.
                let _ = forward(client, target, &accepting);
            }
        });
        Self { port, state }
    }

    /// The port to connect to.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections, and refuses new ones.
    pub(super) fn cut(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_cut = true;
        for socket in state.sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Accepts connections again.
    pub(super) fn restore(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_cut = false;
    }
}

/// Copies between a client and the target in both directions.
fn forward(client: TcpStream, target: u16, state: &Mutex<State>) -> io::Result<()> {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    if state.is_cut {
        return Ok(());
    }
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target))?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
        state.sockets.push(socket.try_clone()?);
    }
    let back = (server.try_clone()?, client.try_clone()?);
    for (mut from, mut to) in [(client, server), back] {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
