//! What happens before the first reconcile and after the last one.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{BoxError, Manager};

/// Limit for one initializer.
const INITIALIZE_TIMEOUT: Duration = Duration::from_mins(1);

/// Limit for all stop actions of a manager. Together with the limits for tasks and for the release
/// of the lease it is less than the 30 s that Kubernetes grants by default.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an initializer failed.
#[derive(Debug, thiserror::Error)]
pub enum InitializeError {
    /// A controller could already run without what is initialized.
    #[error("cannot initialize {name}: {task} was added to the manager before")]
    Late {
        /// What was to be initialized.
        name: String,
        /// The task that was added first.
        task: String,
    },
    /// The initializer failed.
    #[error("cannot initialize {name}")]
    Failed {
        /// What was to be initialized.
        name: String,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The initializer took too long, and was cancelled.
    #[error("cannot initialize {name}: it takes longer than {} s", INITIALIZE_TIMEOUT.as_secs())]
    TimedOut {
        /// What was to be initialized.
        name: String,
    },
}

impl Manager {
    /// Opens what controllers need, such as the connection to a backend, and returns it. `name`
    /// appears in the log and in errors. Call it in the setup function, before controllers are
    /// added: with leader election, the process has the lease then. It waits for one minute at
    /// most. [`Manager::on_stop`] closes what it has opened.
    ///
    /// ```no_run
    /// use capi_ipam_controller::manager::{self, Identity};
    /// use tokio::io::AsyncWriteExt;
    /// use tokio::net::TcpStream;
    ///
    /// fn main() -> std::process::ExitCode {
    ///     manager::main(Identity::new("my-provider", env!("CARGO_PKG_VERSION")), async |manager| {
    ///         let connect = TcpStream::connect("backend.example.com:443");
    ///         let mut backend = manager.initialize("the connection to the backend", connect).await?;
    ///         // Controllers are added here.
    ///         manager.on_stop("the connection to the backend", async move {
    ///             backend.shutdown().await?;
    ///             Ok(())
    ///         });
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// If the initializer fails or takes too long, or if a task was added before. The setup
    /// function returns the error, and the process ends with it.
    pub async fn initialize<T, E: Into<BoxError>>(
        &self,
        name: &str,
        initializer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, InitializeError> {
        let name = name.to_owned();
        if let Some(task) = self.first_task() {
            let task = task.to_owned();
            return Err(InitializeError::Late { name, task });
        }
        info!(name, "initializing");
        match tokio::time::timeout(INITIALIZE_TIMEOUT, initializer).await {
            Ok(Ok(opened)) => Ok(opened),
            Ok(Err(error)) => Err(InitializeError::Failed {
                name,
                source: error.into(),
            }),
            Err(_) => Err(InitializeError::TimedOut { name }),
        }
    }

    /// Adds an action for the end of the process. It runs when all tasks have ended, so after the
    /// last reconcile; with leader election, the process still has the lease. What was added last
    /// runs first, and an error is logged. All actions together have 5 seconds: those that are not
    /// done by then are dropped.
    ///
    /// Actions run after a signal, and also if the setup function fails. They do not run if the
    /// process loses the lease, if a task ends or panics, or after a
    /// [fatal error](crate::health::ReadinessGate::fatal): the next process must not rely on them.
    pub fn on_stop(
        &mut self,
        name: &str,
        action: impl Future<Output = Result<(), BoxError>> + Send + 'static,
    ) {
        self.stop_actions.0.push((name.to_owned(), action.boxed()));
    }

    /// The name of the task that was added first.
    pub(super) fn first_task(&self) -> Option<&str> {
        self.tasks.first().map(|(name, _)| name.as_str())
    }
}

/// The actions for the end of a process, by name.
#[derive(Default)]
pub(super) struct StopActions(Vec<(String, BoxFuture<'static, Result<(), BoxError>>)>);

impl StopActions {
    /// Runs all actions, the last one first.
    pub(super) async fn run(self) {
        let Self(mut actions) = self;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while let Some((name, action)) = actions.pop() {
            debug!(name, "stopping");
            // A panic must not keep the lease, or the other actions from running.
            let action = AssertUnwindSafe(action).catch_unwind();
            match tokio::time::timeout_at(deadline, action).await {
                Ok(Ok(Ok(()))) => {}
                Ok(Err(_)) => warn!(name, "a stop action panicked"),
                Ok(Ok(Err(error))) => {
                    let error = crate::client::error_chain(error.as_ref());
                    warn!(name, error, "a stop action failed");
                }
                Err(_) => warn!(
                    name,
                    seconds = STOP_TIMEOUT.as_secs(),
                    "a stop action takes too long and is dropped"
                ),
            }
        }
    }
}
