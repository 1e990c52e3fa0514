//! Free ports for programs that need a fixed port.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// A free port, a different one in each call.
///
/// The port is outside of the ephemeral range of the kernel, so no other program gets it by chance before the intended
/// program listens.
pub fn free_port() -> u16 {
    static USED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = rand::random_range(12_000..32_000);
        let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if is_free && USED.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return port;
        }
    }
}
