//! Free ports for programs that need a fixed port.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The ports of this process, with their locks, which the kernel releases when the process exits.
static USED: Mutex<BTreeMap<u16, File>> = Mutex::new(BTreeMap::new());

/// A free port, a different one in each call, and in each process of the tests of this machine.
///
/// The port is outside of the ephemeral range of the kernel, so no other program gets it by chance
/// before the intended program listens.
///
/// # Panics
/// When no file can be created in the folder for temporary files.
pub fn free_port() -> u16 {
    let folder = folder();
    fs::create_dir_all(&folder).expect("a folder for temporary files can be created");
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let port = rand::random_range(12_000..32_000);
        if used.contains_key(&port) {
            continue;
        }
        let path = folder.join(port.to_string());
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .expect("a file can be created");
        // Checked after the lock: the check of another process would take the port for a moment.
        if file.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            used.insert(port, file);
            return port;
        }
    }
}

/// The folder with a file for each port that a user of this machine has used.
fn folder() -> PathBuf {
    std::env::temp_dir().join(format!(
        "capi-ipam-ports-{}",
        std::env::var("USER").unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_of_another_process_is_not_used() {
        let port = free_port();
        let path = folder().join(port.to_string());
        // A lock belongs to the open file, so this is as in another process.
        let other = File::options()
            .write(true)
            .open(path)
            .expect("it is created");
        assert!(other.try_lock().is_err());
        assert_ne!(free_port(), port);
    }
}
