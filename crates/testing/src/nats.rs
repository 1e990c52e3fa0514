//! nats-server with JetStream for tests: one node, or a cluster of three.
//!
//! `hack/control-plane/ensure.sh nats` finds or builds the program. All functions block, and need
//! no async runtime.

mod cluster;
mod link;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::Duration;

pub use self::cluster::Cluster;
use crate::control_plane::ensure;
use crate::patience::Patience;
use crate::ports::free_port;
use crate::process::{Supervised, TemporaryFolder};

/// How long a server may take to start, or to find a leader.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// What a server is like.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Runs without JetStream.
    pub without_jetstream: bool,
    /// The content of the block `authorization` of the configuration, such as `token: secret`.
    pub authorization: Option<String>,
    /// Encrypts the connections of clients.
    pub tls: Option<TlsFiles>,
    /// Requires a certificate of clients.
    pub verify_clients: bool,
    /// Writes every message to the disk before it is acknowledged, as in production. Tests that
    /// need no durability are faster without.
    pub sync_always: bool,
    /// More lines of the configuration.
    pub configuration: String,
}

/// The PEM files of a server with TLS. Its certificate has to be valid for `localhost`.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The authorities that sign the certificates of clients.
    pub authority: PathBuf,
    /// The certificate of the server.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A server. It is stopped when this value is dropped.
#[derive(Debug)]
pub struct Node {
    name: String,
    options: Options,
    port: u16,
    monitor: u16,
    /// The block `cluster` of the configuration; empty for a single node.
    cluster: String,
    process: Supervised,
    folder: Arc<TemporaryFolder>,
}

impl Node {
    /// Starts a single server.
    ///
    /// # Panics
    /// When it does not start; the message contains the end of its log.
    pub fn start(options: Options) -> Self {
        let folder = Arc::new(TemporaryFolder::new("capi-ipam-nats-"));
        let mut node = Self::launch("single", options, String::new(), folder);
        node.wait_until_healthy();
        node
    }

    /// Starts a server, and does not wait.
    fn launch(name: &str, options: Options, cluster: String, folder: Arc<TemporaryFolder>) -> Self {
        let [port, monitor] = [free_port(), free_port()];
        write_configuration(name, &options, &cluster, [port, monitor], folder.path());
        let process = spawn(name, folder.path());
        Self {
            name: name.to_owned(),
            options,
            port,
            monitor,
            cluster,
            process,
            folder,
        }
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        // The certificate is for this name.
        format!("nats://localhost:{}", self.port)
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Pauses the server with SIGSTOP, and waits until it stands still.
    ///
    /// # Panics
    /// When this takes too long.
    pub fn pause(&mut self) {
        self.process.signal("STOP");
        let patience = Patience::new(START_TIMEOUT);
        while !self.is_paused() {
            assert!(!patience.is_over(), "{} does not stop", self.name);
            sleep(Duration::from_millis(1));
        }
    }

    /// Lets a paused server go on.
    pub fn resume(&mut self) {
        self.process.signal("CONT");
    }

    /// Whether the process is stopped by a signal.
    fn is_paused(&self) -> bool {
        let path = format!("/proc/{}/stat", self.process.pid());
        // The state follows the name of the program, which is in parentheses.
        let status = fs::read_to_string(path).unwrap_or_default();
        status.contains(") T ")
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops the server, and waits for its exit.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Starts the server again on its ports with its data, and does not wait.
    pub fn start_again(&mut self) {
        let ports = [self.port, self.monitor];
        let folder = self.folder.path();
        write_configuration(&self.name, &self.options, &self.cluster, ports, folder);
        self.process = spawn(&self.name, folder);
    }

    /// Starts the server again, and waits until it is healthy.
    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
        self.wait_until_healthy();
    }

    /// Changes the options. They apply from the next start on.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// Waits until the server is healthy and knows the leader of its cluster.
    ///
    /// # Panics
    /// When this takes too long, or the server has exited.
    pub fn wait_until_healthy(&mut self) {
        let patience = Patience::new(START_TIMEOUT);
        while !self.is_healthy() {
            let is_running = self.process.is_running();
            assert!(
                is_running && !patience.is_over(),
                "nats-server {} does not start:\n{}",
                self.name,
                self.process.output_tail()
            );
            sleep(Duration::from_millis(20));
        }
    }

    /// Whether the server is healthy.
    fn is_healthy(&self) -> bool {
        self.monitored("/healthz")
            .is_ok_and(|answer| answer.starts_with("HTTP/1.0 200"))
    }

    /// The answer of the server to a request for its state, such as `/jsz?streams=true`, with the
    /// headers of HTTP.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn monitored(&self, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.monitor))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Copies the data of a stopped server into a new folder.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn back_up(&self) -> TemporaryFolder {
        let backup = TemporaryFolder::new("capi-ipam-nats-backup-");
        copy(&self.data(), backup.path()).expect("the data can be copied");
        backup
    }

    /// Replaces the data of a stopped server with a backup.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn restore(&self, backup: &TemporaryFolder) {
        fs::remove_dir_all(self.data()).expect("the data can be removed");
        copy(backup.path(), &self.data()).expect("the data can be copied");
    }

    /// The folder with the data.
    fn data(&self) -> PathBuf {
        data_of(&self.name, self.folder.path())
    }
}

fn data_of(name: &str, folder: &Path) -> PathBuf {
    folder.join(format!("{name}-data"))
}

fn configuration_of(name: &str, folder: &Path) -> PathBuf {
    folder.join(format!("{name}.conf"))
}

/// Starts the program with its configuration.
fn spawn(name: &str, folder: &Path) -> Supervised {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| PathBuf::from(ensure(&["nats"])).join("nats-server"));
    let configuration = configuration_of(name, folder);
    let log = folder.join(format!("{name}.log"));
    Supervised::spawn(program, &["--config".into(), configuration], &[], &log)
}

/// Writes the configuration of a server.
fn write_configuration(
    name: &str,
    options: &Options,
    cluster: &str,
    [port, monitor]: [u16; 2],
    folder: &Path,
) {
    let mut text = format!(
        "server_name: {name}\nlisten: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor}\"\n"
    );
    if !options.without_jetstream {
        let data = quoted(&data_of(name, folder));
        let sync = if options.sync_always { "always" } else { "2m" };
        let _ = writeln!(
            text,
            "jetstream {{ store_dir: {data}, sync_interval: {sync}, max_file_store: 1GB }}"
        );
    }
    if let Some(authorization) = &options.authorization {
        let _ = writeln!(text, "authorization {{\n{authorization}\n}}");
    }
    if let Some(files) = &options.tls {
        let [authority, certificate, key] =
            [&files.authority, &files.certificate, &files.key].map(|file| quoted(file));
        let _ = writeln!(
            text,
            "tls {{ cert_file: {certificate}, key_file: {key}, ca_file: {authority}, \
             verify: {} }}",
            options.verify_clients
        );
    }
    let _ = writeln!(text, "{cluster}\n{}", options.configuration);
    fs::write(configuration_of(name, folder), text).expect("the configuration can be written");
}

/// A path as a text of the configuration.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display())
}

/// Copies a folder into another one.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
