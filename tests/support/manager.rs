//! The manager of this product, as a separate process.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use capi_ipam_testing::manager as generic;
pub use capi_ipam_testing::process::built;

use super::control_plane::ControlPlane;

/// The flags of all managers: no webhooks unless other flags enable them, and more log messages.
const FLAGS: [&str; 2] = ["--webhook-port=0", LOG_LEVEL];
const LOG_LEVEL: &str = "--log-level=info,capi_ipam=debug";

/// The manager under test: the program in the variable `CAPI_IPAM_MANAGER`, for example that of an
/// image, or else the one that was built with the tests.
pub fn manager() -> PathBuf {
    std::env::var_os("CAPI_IPAM_MANAGER").map_or_else(|| built("manager"), PathBuf::from)
}

/// A running manager, see [`generic::Manager`].
#[derive(Debug)]
pub struct Manager(generic::Manager);

impl Deref for Manager {
    type Target = generic::Manager;

    fn deref(&self) -> &generic::Manager {
        &self.0
    }
}

impl DerefMut for Manager {
    fn deref_mut(&mut self) -> &mut generic::Manager {
        &mut self.0
    }
}

impl Manager {
    /// Starts a manager with the provider's permissions and waits until it is ready.
    pub fn start(control_plane: &ControlPlane, flags: &[&str]) -> Self {
        let manager = Self::launch(control_plane, control_plane.provider_kubeconfig(), flags);
        manager.wait_until_ready();
        manager
    }

    /// Starts a manager with the permissions of `kubeconfig` and does not wait. It serves no
    /// webhooks unless `flags` enable them.
    pub fn launch(control_plane: &ControlPlane, kubeconfig: &Path, flags: &[&str]) -> Self {
        Self::start_with(
            control_plane,
            &manager(),
            kubeconfig,
            &[&FLAGS[..], flags].concat(),
        )
    }

    /// Starts a program that accepts the flags of a manager, and does not wait.
    pub fn start_program(
        control_plane: &ControlPlane,
        program: &Path,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Self {
        Self::start_with(
            control_plane,
            program,
            kubeconfig,
            &[&[LOG_LEVEL], flags].concat(),
        )
    }

    fn start_with(
        control_plane: &ControlPlane,
        program: &Path,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Self {
        let manager = generic::Manager::start_program(control_plane, program, kubeconfig, flags);
        Self(manager.must_have_permissions())
    }

    /// Starts a manager of another package, with its probes on `port`.
    pub fn other(
        control_plane: &ControlPlane,
        program: &Path,
        arguments: &[String],
        port: u16,
    ) -> Self {
        Self(generic::Manager::other(
            control_plane,
            program,
            arguments,
            port,
        ))
    }

    /// Uses another probe, see [`generic::Manager::with_probe`].
    #[must_use]
    pub fn with_probe(self, path: &'static str) -> Self {
        Self(self.0.with_probe(path))
    }

    /// Disables the check for missing permissions when this value is dropped.
    #[must_use]
    pub fn may_lack_permissions(self) -> Self {
        Self(self.0.may_lack_permissions())
    }
}

/// The metrics that a manager serves over plain HTTP, if it responds.
pub fn scrape(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
