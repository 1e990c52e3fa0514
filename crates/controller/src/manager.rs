//! The process around controllers: flags, logging, probes, leader election, graceful shutdown.
//!
//! ```no_run
//! use capi_ipam_controller::manager::{Identity, main};
//!
//! fn run() -> std::process::ExitCode {
//!     main(Identity::new("my-provider", env!("CARGO_PKG_VERSION")), async |manager| {
//!         manager.add("a background task", std::future::pending());
//!         Ok(())
//!     })
//! }
//! ```
//!
//! The setup function is called when the process becomes the leader, at most once in its life. A
//! process that loses the lease ends, so controllers always start with empty caches and list
//! everything before they act. What controllers need is opened by [`Manager::initialize`] in the
//! setup function, and closed by [`Manager::on_stop`] after the last reconcile.

mod background;
mod lifecycle;
mod program;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

pub use self::background::{BackgroundTask, NextRun};
pub use self::lifecycle::InitializeError;
use self::lifecycle::StopActions;
pub use self::program::{main, print_usage, run, run_with_options, run_with_services};
use crate::client::{RequestPolicy, connect_with};
use crate::controller::{ControllerBuilder, Reconciler};
use crate::diagnostics;
pub use crate::error::BoxError;
use crate::events::EventPublisher;
use crate::health::{self, Health, ReadinessGate};
pub use crate::identity::Identity;
use crate::leader::{self, holder_identity};
use crate::logging;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::priority::Priorities;
use crate::server::{listen, serve};
use crate::traces;
use crate::upgrade::{self, Step, UpgradeError};
use crate::watch::{Source, WatchSpec};
use crate::{discovery, watch};

/// Limit for tasks to stop after a signal.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// Limit for tasks that did not stop in time to be cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// Limit for the leader to release its lease after a fatal error.
const LEASE_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a manager that has started ended without a signal.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The operating system refuses threads or signal handlers.
    #[error("cannot {operation}")]
    System {
        /// The failed operation.
        operation: &'static str,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A setup function failed.
    #[error("cannot set up the program")]
    Setup(#[source] BoxError),
    /// A task ended before [`Manager::stop`] was cancelled.
    #[error("{0} ended unexpectedly")]
    Ended(String),
    /// A component reported a fatal error.
    #[error("cannot continue: {0}")]
    Fatal(String),
}

/// Two components of a manager declare the same role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are two components of the role {0:?}; a manager can have one")]
pub struct RoleTaken(pub String);

/// The argument of setup functions: the shared client, flags and registries, and the list of tasks
/// to run.
pub struct Manager {
    /// The client for all requests.
    pub client: Client,
    /// The values of the flags.
    pub options: Options,
    /// The readiness of the process: watched kinds and other requirements.
    pub health: Health,
    /// The metrics of the process.
    pub metrics: Metrics,
    /// Publishes events.
    pub events: EventPublisher,
    /// The priorities of the work of the process.
    pub priorities: Priorities,
    /// Cancelled when the tasks have to stop.
    pub stop: CancellationToken,
    tasks: Vec<(String, BoxFuture<'static, ()>)>,
    stop_actions: StopActions,
    roles: BTreeSet<String>,
}

impl Manager {
    /// Adds a task that runs until [`Manager::stop`] is cancelled. If it ends earlier, the process
    /// ends with an error.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.tasks.push((name.into(), task.boxed()));
    }

    /// Declares that a component has a role which only one component of a manager can have, such as
    /// "controller of nodes".
    ///
    /// # Errors
    /// If another component has the role.
    pub fn declare(&mut self, role: impl Into<String>) -> Result<(), RoleTaken> {
        let role = role.into();
        if self.roles.insert(role.clone()) {
            Ok(())
        } else {
            Err(RoleTaken(role))
        }
    }

    /// Runs a step of an upgrade if the cluster needs it. Call it in the setup function, before
    /// controllers are added: the process is the leader then, and no controller acts on objects
    /// that are not upgraded.
    ///
    /// # Errors
    /// If the step fails, or if a task was added before. The next start runs the rest of the step.
    pub async fn upgrade<S: Step>(&self, step: &S) -> Result<(), UpgradeError> {
        if let Some(task) = self.first_task() {
            return Err(UpgradeError::Late {
                step: step.id(),
                task: task.to_owned(),
            });
        }
        upgrade::run(step).await
    }

    /// Runs a controller of the objects of a source, with the settings that every controller has by
    /// default. [`Manager::controller`] builds one with others.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::sync::Arc;
    ///
    /// use capi_ipam_controller::controller::{Action, reconcile_fn};
    /// use capi_ipam_controller::manager::Manager;
    /// use k8s_openapi::api::core::v1::Node;
    /// use kube::Api;
    ///
    /// fn log_nodes(manager: &mut Manager) {
    ///     let nodes = manager.watch(Api::all(manager.client.clone()));
    ///     let log = reconcile_fn(async |node: Arc<Node>| {
    ///         tracing::info!(node = node.metadata.name, "it is there");
    ///         Ok::<_, Infallible>(Action::AwaitChange)
    ///     });
    ///     manager.run("nodes", nodes, log);
    /// }
    /// ```
    pub fn run<R: Reconciler>(
        &mut self,
        name: &str,
        source: impl Source<Object = R::Object>,
        reconciler: R,
    ) {
        self.run_controller(self.controller(name), source, reconciler);
    }

    /// Runs a controller until [`Manager::stop`] is cancelled.
    pub fn run_controller<R: Reconciler>(
        &mut self,
        controller: ControllerBuilder<R::Object>,
        source: impl Source<Object = R::Object>,
        reconciler: R,
    ) {
        let name = format!("{} controller", controller.settings.name);
        let task = controller.run(source, self.stop.clone(), Arc::new(reconciler));
        self.add(name, task);
    }

    /// Starts to build a controller, with the metrics and priorities of this process.
    pub fn controller<K, S>(&self, name: &str) -> ControllerBuilder<K, S>
    where
        K: watch::Keyed,
        S: Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        let mut controller = ControllerBuilder::new(name);
        let settings = &mut controller.settings;
        settings.metrics = self.metrics.controllers.of(name);
        settings.priorities = self.priorities.clone();
        settings.concurrency = self.options.concurrency;
        controller
    }

    /// Watches the objects of an [`Api`](kube::Api), and shows in the readiness of the process
    /// whether they are listed. What sees the events, and which objects are selected, are fields of
    /// the result.
    pub fn watch<K>(&self, api: watch::WatchApi<K>) -> WatchSpec<K>
    where
        K: watch::Watchable<DynamicType: Default>,
    {
        let version = K::DynamicType::default();
        let synced = self.health.register_watch(K::kind(&version));
        WatchSpec::new(api, version, Arc::new(()), synced)
    }

    /// An [`Api`](kube::Api) to watch a namespaced kind in the namespace of the flag `--namespace`,
    /// or in all namespaces if the flag has no value or several: see
    /// [`Options::watched_namespace`].
    pub fn watch_api<K>(&self, version: &K::DynamicType) -> watch::WatchApi<K>
    where
        K: kube::Resource,
        K::Scope: kube::core::NamespaceScope,
    {
        // An empty namespace means all.
        watch::WatchApi::all_with(self.client.clone(), version)
            .constrain(self.options.watched_namespace())
    }
}

fn try_run(
    identity: Identity,
    options: Options,
    services: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
    setup: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    options.validate()?;
    let system = |operation| move |source| ManagerError::System { operation, source };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(system("start the threads of the runtime"))?;
    let provider = traces::provider(&options.traces, &identity, runtime.handle())?;
    logging::init(
        options.log_format,
        &options.log_level,
        provider.as_ref().map(traces::layer),
    )?;
    info!(
        name = identity.name,
        version = identity.version,
        revision = identity.revision,
        "the program starts"
    );
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let result = runtime.block_on(run_async(identity, options, services, setup));
    if let Some(provider) = provider {
        traces::shut_down(&provider);
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run_async(
    identity: Identity,
    options: Options,
    services: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
    setup: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    let stop = CancellationToken::new();
    stop_on_signals(&stop)?;
    let process = Process::start(identity, options).await?;
    // Services stop last: the API server calls the webhooks for the last writes of the controllers.
    let services_stop = CancellationToken::new();
    let mut services = process.start_services(services, &services_stop).await?;
    tokio::select! {
        result = process.run_controllers(setup, &stop) => {
            services_stop.cancel();
            let _ = services.await;
            info!("stopped");
            result
        }
        result = &mut services => result.unwrap_or_else(|_| Err(ManagerError::Ended("a service".to_owned()).into())),
        error = fatal_error(&process.health) => Err(ManagerError::Fatal(error).into()),
    }
}

/// What all tasks of a process share.
struct Process {
    identity: Identity,
    options: Options,
    /// Name of this process in the lease and in events.
    holder: String,
    client: Client,
    health: Health,
    /// Becomes ready when the API server responds.
    connected: ReadinessGate,
    /// Becomes ready when the controllers are set up, or when the process waits for the lease.
    started: ReadinessGate,
    metrics: Metrics,
    events: EventPublisher,
    priorities: Priorities,
}

impl Process {
    /// Creates the client, and starts the probes and the publisher of events.
    async fn start(identity: Identity, options: Options) -> Result<Self, BoxError> {
        let health = Health::default();
        let connected = health.require("connection to the API server")?;
        let started = health.register("start of the manager")?;
        started.failing("waiting for the API server");
        let metrics = Metrics::with(identity.metric_prefix, identity.metric_buckets);
        metrics.add_build_info(&identity);
        let (kubeconfig, policy) = (options.kubeconfig.as_deref(), RequestPolicy::default());
        let client = connect_with(
            kubeconfig,
            &identity.user_agent(),
            policy,
            metrics.requests.clone(),
        )
        .await?;
        let probes = listen(
            &options.health_probe_bind_address,
            "--health-probe-bind-address",
        );
        if let Some(listener) = probes.await? {
            info!(address = ?listener.local_addr().ok(), "serving probes");
            let router = health::routes(health.clone());
            tokio::spawn(serve(listener, router, CancellationToken::new()));
        }
        let holder = holder_identity();
        let (events, publisher) = EventPublisher::new(client.clone(), identity.name, &holder);
        tokio::spawn(publisher);
        health.register_metrics(&metrics);
        let priorities = Priorities::default();
        Ok(Self {
            identity,
            options,
            holder,
            client,
            health,
            connected,
            started,
            metrics,
            events,
            priorities,
        })
    }

    /// Creates the argument of a setup function, whose tasks stop at `stop`.
    fn manager(&self, stop: &CancellationToken) -> Manager {
        Manager {
            client: self.client.clone(),
            options: self.options.clone(),
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            events: self.events.clone(),
            priorities: self.priorities.clone(),
            stop: stop.clone(),
            tasks: Vec::new(),
            stop_actions: StopActions::default(),
            roles: BTreeSet::new(),
        }
    }

    /// Sets up the services, and runs them in a task until `stop` is cancelled.
    async fn start_services(
        &self,
        services: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
        stop: &CancellationToken,
    ) -> Result<JoinHandle<Result<(), BoxError>>, BoxError> {
        let mut manager = self.manager(stop);
        if let Err(error) = services(&mut manager).await {
            manager.stop_actions.run().await;
            return Err(ManagerError::Setup(error).into());
        }
        if let Some(listener) = self.options.diagnostics.listen(false).await? {
            info!(address = ?listener.local_addr().ok(), "serving metrics over plain HTTP");
            let router = diagnostics::routes(self.metrics.clone());
            manager.add("diagnostics", serve(listener, router, stop.clone()));
        }
        Ok(tokio::spawn(run_to_the_end(
            manager,
            Health::default(),
            stop.clone(),
        )))
    }

    /// Sets up the controllers and runs them until `stop` is cancelled; with leader election only
    /// as the leader.
    async fn run_controllers(
        &self,
        setup: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
        stop: &CancellationToken,
    ) -> Result<(), BoxError> {
        tokio::select! {
            () = discovery::wait_for_server(&self.client, &self.connected) => {}
            () = stop.cancelled() => return Ok(()),
        }
        self.connected.ready();
        let work = async {
            // A standby was ready. As the leader it has nothing until its kinds are served and its
            // upgrades are done.
            self.started.not_ready("the controllers are being set up");
            let mut manager = self.manager(stop);
            let set_up = tokio::select! {
                result = setup(&mut manager) => Some(result),
                () = stop.cancelled() => None,
            };
            match set_up {
                Some(Ok(())) => {}
                // No task has started. What the setup has opened is closed.
                ended => {
                    manager.stop_actions.run().await;
                    ended.unwrap_or(Ok(())).map_err(ManagerError::Setup)?;
                    return Ok(());
                }
            }
            self.started.ready();
            run_to_the_end(manager, self.health.clone(), stop.clone()).await
        };
        if !self.options.leader_elect {
            return work.await;
        }
        // A standby is ready: it can take over.
        self.started.ready();
        let policy = leader::request_policy(&self.options);
        let (kubeconfig, agent) = (
            self.options.kubeconfig.as_deref(),
            self.identity.user_agent(),
        );
        let client =
            connect_with(kubeconfig, &agent, policy, self.metrics.requests.clone()).await?;
        let lease = self.identity.lease;
        self.metrics.set_leader(lease, false);
        let work = async {
            self.metrics.set_leader(lease, true);
            work.await
        };
        let client = leader::observe_lease(
            client,
            &self.options,
            &self.holder,
            self.health.detached().register_watch("Lease"),
        );
        let led = leader::run(
            client,
            &self.options,
            lease,
            &self.holder,
            stop.clone(),
            work,
        );
        led.await?.unwrap_or(Ok(()))
    }
}

/// Waits for a fatal error, and then until the leader has released its lease.
async fn fatal_error(health: &Health) -> String {
    let error = health.fatal_error().await;
    tokio::time::sleep(LEASE_RELEASE_TIMEOUT).await;
    error
}

/// Runs the tasks of a manager, and after an orderly end its stop actions.
async fn run_to_the_end(
    manager: Manager,
    health: Health,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    supervise(manager.tasks, health, stop).await?;
    manager.stop_actions.run().await;
    Ok(())
}

/// Runs all tasks until they end after `stop` was cancelled, or until the first of them or `health`
/// fails.
async fn supervise(
    tasks: Vec<(String, BoxFuture<'static, ()>)>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    if tasks.is_empty() {
        stop.cancelled().await;
        return Ok(());
    }
    let mut running = JoinSet::new();
    for (name, task) in tasks {
        running.spawn(async move {
            let panicked = std::panic::AssertUnwindSafe(task)
                .catch_unwind()
                .await
                .is_err();
            (name, panicked)
        });
    }
    let ended = tokio::select! {
        biased;
        error = health.fatal_error() => return Err(ManagerError::Fatal(error).into()),
        Some(Ok((name, panicked))) = running.join_next() => Some((name, panicked)),
        () = stop.cancelled() => None,
    };
    if let Some((name, panicked)) = ended
        && (panicked || !stop.is_cancelled())
    {
        error!(
            task = name,
            panicked, "a task ended unexpectedly; the process ends and has to be restarted"
        );
        return Err(ManagerError::Ended(name).into());
    }
    debug!("stopping");
    let finished = tokio::time::timeout(SHUTDOWN_TIMEOUT, async {
        while running.join_next().await.is_some() {}
    })
    .await;
    if finished.is_err() {
        warn!(
            seconds = SHUTDOWN_TIMEOUT.as_secs(),
            "not all tasks have stopped in time; cancelling the others"
        );
        // A task that blocks a thread cannot be cancelled.
        let _ = tokio::time::timeout(CANCEL_TIMEOUT, running.shutdown()).await;
    }
    Ok(())
}

/// Cancels the token on SIGTERM and SIGINT. A second signal ends the process immediately.
fn stop_on_signals(stop: &CancellationToken) -> Result<(), BoxError> {
    let failed = |source| ManagerError::System {
        operation: "listen for signals",
        source,
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let stop = stop.clone();
    tokio::spawn(async move {
        let mut next =
            async || tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} };
        next().await;
        stop.cancel();
        next().await;
        #[expect(clippy::exit, reason = "a second signal asks for an immediate exit")]
        std::process::exit(1);
    });
    Ok(())
}
