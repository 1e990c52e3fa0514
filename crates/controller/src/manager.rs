//! The program around controllers: flags, logging, probes, leader election, shutdown.
//!
//! ```no_run
//! use capi_ipam_controller::manager::{Identity, main};
//!
//! fn run() -> std::process::ExitCode {
//!     main(Identity { name: "my-provider", lease: "my-provider.example.com" }, async |manager| {
//!         manager.add("a task that lasts", std::future::pending());
//!         Ok(())
//!     })
//! }
//! ```
//!
//! The factory is called once this process leads, and every time it is called the process is new: controllers find
//! their caches empty and fill them before they act.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use tokio::signal::unix::{signal, SignalKind};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::client::{chain, ClientError, connect, connect_with};
use crate::diagnostics::{self, DiagnosticsError};
use crate::events::EventPublisher;
use crate::health::{Health, HealthError, listen};
use crate::leader::{self, identity};
use crate::logging::{self, LoggingError};
use crate::metrics::Metrics;
use crate::options::{Options, OptionsError};
use crate::{discovery, watch};

/// How long controllers get to finish what they are doing after a signal.
const GRACE: Duration = Duration::from_secs(20);

/// How long a leader that cannot go on gets to give its lease back.
const RELEASE_TIME: Duration = Duration::from_secs(2);

/// Any error, as factories return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What distinguishes one manager from another.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Name of the program, in help texts and as the source of events.
    pub name: &'static str,
    /// Name of the Lease that managers of this kind compete for.
    pub lease: &'static str,
}

/// Why a manager ended other than by a signal.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// Flags do not go together.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Logging cannot start.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// There is no client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Probes cannot be served.
    #[error(transparent)]
    Health(#[from] HealthError),
    /// Metrics cannot be served.
    #[error(transparent)]
    Diagnostics(#[from] DiagnosticsError),
    /// The operating system refuses threads or signal handlers.
    #[error("cannot {operation}")]
    System {
        /// What was to be done.
        operation: &'static str,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The parts of the program could not be put together.
    #[error("cannot set up the program")]
    Setup(#[source] BoxError),
    /// A controller ended though nobody asked it to.
    #[error("{0} ended unexpectedly")]
    Ended(String),
    /// A part can never work again in this process.
    #[error("cannot go on: {0}")]
    Failed(String),
    /// Another process may lead now.
    #[error("the lease was lost; another process may lead now, so this one ends")]
    LeaseLost,
}

/// What a factory works with: the client, the flags, and the list of what is to run.
pub struct Manager {
    /// The client for all calls.
    pub client: Client,
    /// The flags.
    pub options: Options,
    /// What is watched and has to be listed, and what the process needs to be ready.
    pub health: Health,
    /// What the process counts and measures.
    pub metrics: Metrics,
    /// Publishes events.
    pub events: EventPublisher,
    /// Cancelled when the process is to end.
    pub stop: CancellationToken,
    tasks: Vec<(String, BoxFuture<'static, ()>)>,
}

impl Manager {
    /// Adds something to run until [`Manager::stop`] is cancelled. If it ends before, so does the process.
    pub fn add(&mut self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push((name.into(), task.boxed()));
    }

    /// An [`Api`](kube::Api) to watch a namespaced kind in the namespace given by flag, or in all.
    pub fn watched<K>(&self, version: &K::DynamicType) -> watch::WatchApi<K>
    where
        K: kube::Resource,
        K::Scope: kube::core::NamespaceScope,
    {
        // An empty namespace means all.
        watch::WatchApi::all_with(self.client.clone(), version).constrain(&self.options.namespace)
    }
}

#[derive(Parser)]
#[command(version, about = None, args_override_self = true)]
struct Flags {
    #[command(flatten)]
    options: Options,
}

/// A whole program: reads the flags, runs until a signal, and says in one line why it ended otherwise.
pub fn main<F>(settings: Identity, factory: F) -> ExitCode
where
    F: AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
{
    let matches = Flags::command().name(settings.name).try_get_matches();
    match matches.and_then(|matches| Flags::from_arg_matches(&matches)) {
        Ok(flags) => {
            let services = async |manager: &mut Manager| {
                manager.options.diagnostics.warn_without_certificate();
                Ok(())
            };
            start(settings, flags.options, services, factory)
        }
        Err(error) => explain(&error),
    }
}

/// Says in one line what is wrong with the flags, or prints the help that was asked for.
pub fn explain(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        let _ = writeln!(std::io::stderr(), "{line} (--help lists the flags)");
        return ExitCode::from(2);
    }
    let _ = error.print();
    ExitCode::SUCCESS
}

/// Runs until a signal, and says in one line why it ended otherwise. `services` adds what runs from the beginning to the
/// very end, whether this process leads or not; `factory` adds what runs while it leads.
pub fn start<S, F>(settings: Identity, options: Options, services: S, factory: F) -> ExitCode
where
    S: AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
    F: AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
{
    match try_run(settings, options, services, factory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn try_run<S, F>(settings: Identity, options: Options, services: S, factory: F) -> Result<(), ManagerError>
where
    S: AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
    F: AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
{
    options.check()?;
    logging::start(options.log_format, &options.log_level)?;
    // An error says that another part of the process has chosen a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let system = |operation| move |source| ManagerError::System { operation, source };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(system("start the threads of the program"))?;
    let ended = runtime.block_on(run(settings, options, services, factory));
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

async fn run<S, F>(settings: Identity, options: Options, services: S, factory: F) -> Result<(), ManagerError>
where
    S: AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
    F: AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
{
    let stop = CancellationToken::new();
    stop_on_signals(&stop)?;
    let health = Health::default();
    let reached = health.require("connection to the API server");
    let starting = health.announce("start of the program");
    let kubeconfig = options.kubeconfig.as_deref();
    let client = connect(kubeconfig, settings.name).await?;
    if let Some(probes) = listen(&options.health_probe_bind_address, health.clone()).await? {
        info!(address = ?probes.address(), "probes are served");
        tokio::spawn(probes.serve(CancellationToken::new()));
    }
    let identity = identity();
    let (events, publisher) = EventPublisher::new(client.clone(), settings.name, &identity);
    tokio::spawn(publisher);
    let metrics = Metrics::default();
    metrics.register_collector(health.clone());
    let manager = |stop: &CancellationToken| Manager {
        client: client.clone(),
        options: options.clone(),
        health: health.clone(),
        metrics: metrics.clone(),
        events: events.clone(),
        stop: stop.clone(),
        tasks: Vec::new(),
    };

    // Services stop last: the API server asks webhooks about what controllers write in their last moments.
    let services_stop = CancellationToken::new();
    let mut services_manager = manager(&services_stop);
    services(&mut services_manager).await.map_err(ManagerError::Setup)?;
    if let Some(diagnostics) = diagnostics::listen_insecure(&options.diagnostics, metrics.clone()).await? {
        info!(address = ?diagnostics.address(), "metrics are served over plain HTTP");
        services_manager.add("diagnostics", diagnostics.serve(services_stop.clone()));
    }
    let mut running = tokio::spawn(supervise(services_manager.tasks, Health::default(), services_stop.clone()));

    let work = async {
        tokio::select! {
            () = discovery::wait_for_server(&client) => {}
            () = stop.cancelled() => return Ok(()),
        }
        reached.done();
        if options.leader_elect {
            // Who waits for the lease is ready: to take over.
            starting.done();
        }
        let mut manager = manager(&stop);
        let work = async {
            tokio::select! {
                built = factory(&mut manager) => built.map_err(ManagerError::Setup)?,
                () = stop.cancelled() => return Ok(()),
            }
            starting.done();
            supervise(manager.tasks, health.clone(), stop.clone()).await
        };
        if !options.leader_elect {
            return work.await;
        }
        let own_connection = connect_with(kubeconfig, settings.name, leader::patience(&options)).await?;
        match leader::run(own_connection, &options, settings.lease, &identity, stop.clone(), work).await {
            leader::Outcome::Finished(ended) => ended,
            leader::Outcome::Lost => Err(ManagerError::LeaseLost),
            leader::Outcome::NeverLed => Ok(()),
        }
    };
    tokio::select! {
        ended = work => {
            services_stop.cancel();
            let _ = running.await;
            info!("stopped");
            ended
        }
        ended = &mut running => ended.unwrap_or_else(|_| Err(ManagerError::Ended("a service".to_owned()))),
        why = failed_for_good(&health) => Err(ManagerError::Failed(why)),
    }
}

/// Waits until the process has to end, and for as long as a leader takes to give its lease back.
async fn failed_for_good(health: &Health) -> String {
    let why = health.failure().await;
    tokio::time::sleep(RELEASE_TIME).await;
    why
}

/// Runs all tasks until they end after `stop` was cancelled, or until the first ends or `health` fails before.
async fn supervise(
    tasks: Vec<(String, BoxFuture<'static, ()>)>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), ManagerError> {
    if tasks.is_empty() {
        stop.cancelled().await;
        return Ok(());
    }
    let mut running = JoinSet::new();
    for (name, task) in tasks {
        running.spawn(async move {
            let panicked = std::panic::AssertUnwindSafe(task).catch_unwind().await.is_err();
            (name, panicked)
        });
    }
    let ended = tokio::select! {
        biased;
        why = health.failure() => return Err(ManagerError::Failed(why)),
        Some(Ok((name, panicked))) = running.join_next() => Some((name, panicked)),
        () = stop.cancelled() => None,
    };
    if let Some((name, panicked)) = ended
        && (panicked || !stop.is_cancelled())
    {
        error!(task = name, panicked, "a part of the program ended; so does the program, to be started anew");
        return Err(ManagerError::Ended(name));
    }
    debug!("stopping");
    let finished = tokio::time::timeout(GRACE, async { while running.join_next().await.is_some() {} }).await;
    if finished.is_err() {
        warn!(seconds = GRACE.as_secs(), "not everything has stopped in time; what is left is broken off");
    }
    Ok(())
}

/// Cancels the token at SIGTERM and SIGINT. A second signal ends the process at once.
fn stop_on_signals(stop: &CancellationToken) -> Result<(), ManagerError> {
    let failed = |source| ManagerError::System { operation: "listen for signals", source };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let stop = stop.clone();
    tokio::spawn(async move {
        let mut next = async || tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} };
        next().await;
        stop.cancel();
        next().await;
        #[expect(clippy::exit, reason = "whoever signals twice does not want to wait")]
        std::process::exit(1);
    });
    Ok(())
}
