//! The program of a provider, as a separate process.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::control_plane::{ControlPlane, Restarts};
use crate::patience::Patience;
use crate::ports::free_port;
use crate::process::{Supervised, TemporaryFolder};

/// The text of the API server for a missing permission; status code 403 has other reasons too.
const FORBIDDEN: &str = "is forbidden: User";

static STARTED: AtomicU32 = AtomicU32::new(0);

/// A running manager. It is killed when this value is dropped and when this process exits for any
/// reason.
#[derive(Debug)]
pub struct Manager {
    process: Supervised,
    port: u16,
    log: PathBuf,
    /// Has the log, which is read when a test fails.
    _folder: Arc<TemporaryFolder>,
    may_lack_permissions: bool,
    /// Of its API server.
    restarts: Restarts,
    /// The probe that succeeds when the program is ready.
    ready_path: &'static str,
}

impl Manager {
    /// Starts a manager of the SDK, and does not wait. It gets the flags `--kubeconfig`,
    /// `--health-probe-bind-address` and `--diagnostics-address`, and those in `flags`. It is ready
    /// when `/readyz/caches` succeeds: its controllers are set up, or it waits for the lease.
    pub fn start_program(
        control_plane: &ControlPlane,
        program: &Path,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Self {
        let port = free_port();
        let own = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--health-probe-bind-address=127.0.0.1:{port}"),
            "--diagnostics-address=0".to_owned(),
        ];
        let arguments: Vec<String> = own
            .into_iter()
            .chain(flags.iter().map(ToString::to_string))
            .collect();
        Self::spawn(control_plane, program, &arguments, port, "/readyz/caches")
    }

    /// Starts a program with its own flags, and with its probes on `port`. It is ready when
    /// `/readyz` succeeds.
    pub fn other(
        control_plane: &ControlPlane,
        program: &Path,
        arguments: &[String],
        port: u16,
    ) -> Self {
        Self::spawn(control_plane, program, arguments, port, "/readyz")
    }

    fn spawn(
        control_plane: &ControlPlane,
        program: &Path,
        arguments: &[String],
        port: u16,
        ready_path: &'static str,
    ) -> Self {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let log = control_plane.folder().join(format!("manager-{number}.log"));
        let process = Supervised::spawn(program, arguments, &[], &log);
        Self {
            process,
            port,
            log,
            _folder: control_plane.shared_folder(),
            may_lack_permissions: true,
            restarts: control_plane.restarts(),
            ready_path,
        }
    }

    /// Uses another probe: `/readyz/caches`, which only a manager of the SDK serves, or `/readyz`.
    #[must_use]
    pub fn with_probe(mut self, path: &'static str) -> Self {
        self.ready_path = path;
        self
    }

    /// Waits until the program is ready.
    ///
    /// # Panics
    /// When it is not ready within a minute, or longer on a busy machine, or when it exits.
    pub fn wait_until_ready(&self) {
        let patience = Patience::new(Duration::from_mins(1));
        while !self.is_ready() {
            assert!(
                self.process.exists() && !patience.is_over(),
                "the manager is not ready; its log ends:\n{}",
                self.process.output_tail()
            );
            sleep(Duration::from_millis(20));
        }
    }

    /// Whether the program is ready, see [`Self::start_program`] and [`Self::other`].
    pub fn is_ready(&self) -> bool {
        self.probe(self.ready_path)
            .is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// The whole HTTP response to a probe.
    pub fn probe(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// The log of the manager so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log contains a text.
    ///
    /// # Panics
    /// When it does not within a minute, or longer on a busy machine, or when the program exits
    /// before.
    pub fn wait_for_log(&self, text: &str) {
        let patience = Patience::new(Duration::from_mins(1));
        loop {
            // Read before the log: a program that has exited writes nothing more.
            let exists = self.process.exists();
            if self.log().contains(text) {
                return;
            }
            assert!(
                exists && !patience.is_over(),
                "no {text:?} in the log, which ends:\n{}",
                self.process.output_tail()
            );
            sleep(Duration::from_millis(20));
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether the process runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Kills the process at once (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Sends the process a signal, such as `STOP` or `CONT`.
    pub fn signal(&mut self, signal: &str) {
        self.process.signal(signal);
    }

    /// Stops the process with SIGTERM and waits for its exit.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Panics when this value is dropped, if the API server denied a request because of a missing
    /// permission. An API server that was restarted meanwhile may do so: immediately after its
    /// start it does not know all roles.
    #[must_use]
    pub fn must_have_permissions(mut self) -> Self {
        self.may_lack_permissions = false;
        self
    }

    /// Disables the check for missing permissions when this value is dropped.
    #[must_use]
    pub fn may_lack_permissions(mut self) -> Self {
        self.accept_missing_permissions();
        self
    }

    /// Disables the check for missing permissions when this value is dropped.
    pub fn accept_missing_permissions(&mut self) {
        self.may_lack_permissions = true;
    }

    /// Whether the API server denied a request because of a missing permission.
    pub fn was_forbidden(&self) -> bool {
        self.log().contains(FORBIDDEN)
    }

    /// The exit status of the process, if it has exited.
    pub fn exit_status(&mut self) -> Option<std::process::ExitStatus> {
        self.process.exit_status()
    }
}

impl Drop for Manager {
    #[allow(clippy::print_stdout, reason = "it is shown when the test fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let state = match self.exit_status() {
                Some(status) => status.to_string(),
                None => "running".into(),
            };
            let end = self.process.output_tail();
            println!("the manager ({state}) has a log that ends:\n{end}");
        } else if !self.may_lack_permissions && !self.restarts.any() {
            assert!(
                !self.was_forbidden(),
                "the manager lacks a permission:\n{}",
                self.log()
            );
        }
    }
}
