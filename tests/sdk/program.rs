//! A program with a manager, in a thread of the test process.

use std::{process::ExitCode, sync::mpsc, thread::JoinHandle};

use capi_ipam_controller::{
    manager::{BoxError, Identity, Manager, run_with_options},
    options::Options,
};
use clap::Parser;
use support::prelude::*;
use tokio_util::sync::CancellationToken;

use crate::control_plane;

/// How long the setup of a program and its end may take.
const TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    options: Options,
}

/// A running program. It is stopped when this value is dropped.
pub(crate) struct Program {
    stop: CancellationToken,
    thread: Option<JoinHandle<ExitCode>>,
}

impl Program {
    /// Starts a program as the administrator. Returns after its setup function.
    pub(crate) fn start(
        setup: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError> + Send + 'static,
    ) -> Self {
        Self::launch(&["--diagnostics-address=0"], async |_| Ok(()), setup)
    }

    /// Like [`Self::start`], with flags and services.
    pub(crate) fn launch(
        flags: &[&str],
        services: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError> + Send + 'static,
        setup: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError> + Send + 'static,
    ) -> Self {
        let kubeconfig = format!("--kubeconfig={}", control_plane().kubeconfig().display());
        let own = [
            "program",
            &kubeconfig,
            "--health-probe-bind-address=0",
            "--log-level=debug",
        ];
        let Flags { options } = Flags::parse_from(own.iter().chain(flags));
        let (sender, started) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let identity = Identity::new("sdk-test", "0.0.1");
            run_with_options(identity, options, services, async |manager| {
                let stop = manager.stop.clone();
                let result = setup(manager).await;
                sender.send(stop).expect("the test waits");
                result
            })
        });
        let stop = started.recv_timeout(TIMEOUT).expect("the setup ends");
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Whether the program ended without an error. It must end by itself.
    pub(crate) fn ends_well(mut self) -> bool {
        let thread = self.thread.take().expect("it is taken once");
        let patience = Patience::new(TIMEOUT);
        while !thread.is_finished() {
            assert!(!patience.is_over(), "the program does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        thread.join().expect("it does not panic") == ExitCode::SUCCESS
    }

    /// Stops the program, and asserts that it ends without an error.
    pub(crate) fn stop(self) {
        self.stop.cancel();
        assert!(self.ends_well(), "the stopped program ends with an error");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
