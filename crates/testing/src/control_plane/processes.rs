//! Stops, starts and signals the programs of a control plane.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ControlPlane;
use super::launch::{self, with_retries};
use crate::process::Supervised;

/// The restarts of an API server since a moment.
#[derive(Debug)]
pub(crate) struct Restarts {
    count: Arc<AtomicU32>,
    before: u32,
}

impl Restarts {
    /// Whether there was one.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != self.before
    }
}

impl ControlPlane {
    /// Kills the API server, as a crash. The other programs keep running.
    pub fn stop_api_server(&mut self) {
        self.first_state = None;
        self.api_server = None;
    }

    /// Starts the API server again at its old address and waits until it is ready; does nothing
    /// when it runs.
    ///
    /// # Panics
    /// When it does not start; the message contains the end of its log.
    pub fn start_api_server(&mut self) {
        if !self.api_server.as_mut().is_some_and(Supervised::is_running) {
            // Before it accepts connections.
            self.restarts.fetch_add(1, Ordering::Relaxed);
            self.api_server = Some(with_retries("kube-apiserver", || self.launch_api_server()));
        }
    }

    /// Counts the restarts of the API server from now on.
    pub(crate) fn restarts(&self) -> Restarts {
        Restarts {
            count: Arc::clone(&self.restarts),
            before: self.restarts.load(Ordering::Relaxed),
        }
    }

    /// Kills etcd, as a crash. The other programs keep running.
    pub fn stop_etcd(&mut self) {
        self.first_state = None;
        self.etcd = None;
    }

    /// Starts etcd again with its data at its old address, and waits until it is healthy; does
    /// nothing when it runs.
    ///
    /// # Panics
    /// When it does not start; the message contains the end of its log.
    pub fn start_etcd(&mut self) {
        if !self.etcd.as_mut().is_some_and(Supervised::is_running) {
            self.etcd = Some(with_retries("etcd", || {
                launch::etcd(self.folder(), self.etcd_ports)
            }));
        }
    }

    /// Sends etcd a signal, such as `STOP` or `CONT`.
    pub fn signal_etcd(&mut self, signal: &str) {
        self.first_state = None;
        self.etcd.as_mut().expect("etcd runs").signal(signal);
    }

    /// The data folder of etcd. Copy or replace it only while etcd is stopped.
    pub fn etcd_data(&self) -> PathBuf {
        launch::etcd_data(self.folder())
    }

    /// The process ids of all programs of this control plane.
    pub fn pids(&self) -> Vec<u32> {
        [&self.api_server, &self.controller_manager, &self.etcd]
            .into_iter()
            .flatten()
            .map(Supervised::pid)
            .collect()
    }
}
