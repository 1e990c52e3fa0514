//! Where a series plays: a control plane of its own, the manager that is measured, and who else writes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use capi_ipam::calls::Calls;
use capi_ipam::consumer::Consumer;
use capi_ipam::meter::seconds_of;
use capi_ipam::options::Options;
use capi_ipam::support::control_plane::{self, ControlPlane};
use capi_ipam::support::manager::{built, Manager};
use capi_ipam::support::ports::free_port;

/// How long a manager may take until it is ready.
const PATIENCE: Duration = Duration::from_mins(10);

/// Seconds of processor time in 300 ms, above which somebody is at work. A quiet API server takes 0.02.
const BUSY: f64 = 0.055;

/// A control plane, and what runs on it.
pub(crate) struct Cluster<'a> {
    pub(crate) options: &'a Options,
    pub(crate) plane: ControlPlane,
    pub(crate) consumer: Calls,
    /// Who writes for the floors: with the permissions that the manager has.
    pub(crate) provider: Calls,
}

impl<'a> Cluster<'a> {
    pub(crate) async fn new(options: &'a Options) -> Self {
        let plane = ControlPlane::start(control_plane::Options { steady: true, ..control_plane::Options::default() });
        let consumer = Calls::new(plane.kubeconfig(), "consumer").await;
        let provider = Calls::new(kubeconfig(options, &plane), "floor").await;
        Self { options, plane, consumer, provider }
    }

    /// Starts the manager that is measured and does not wait for anything.
    pub(crate) fn launch(&self) -> Manager {
        let flags: Vec<String> = self.options.manager_flags.split_whitespace().map(str::to_owned).collect();
        let port = free_port();
        let mut arguments = vec![
            format!("--kubeconfig={}", kubeconfig(self.options, &self.plane).display()),
            format!("--health-probe-bind-address=127.0.0.1:{port}"),
        ];
        let program = self.options.manager.clone().unwrap_or_else(|| {
            arguments.extend(["--webhook-port=0", "--diagnostics-address=0", "--log-level=warn"].map(str::to_owned));
            std::env::var_os("CAPI_IPAM_MANAGER").map_or_else(|| built("manager"), PathBuf::from)
        });
        arguments.extend(flags);
        let manager = Manager::other(&self.plane, &program, &arguments, port);
        if self.options.manager.is_some() { manager } else { manager.with_cache_probe() }
    }

    /// Waits until a manager is ready.
    pub(crate) async fn ready(manager: &mut Manager) {
        let deadline = Instant::now() + PATIENCE;
        while !manager.is_ready() {
            assert!(manager.is_running(), "the manager has ended; it said:\n{}", manager.log());
            assert!(Instant::now() < deadline, "the manager is not ready; it said:\n{}", manager.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts the manager that is measured, and waits until it is ready and has nothing more to do.
    pub(crate) async fn start(&self) -> Manager {
        let mut manager = self.launch();
        Self::ready(&mut manager).await;
        self.quiet(Some(&manager)).await;
        manager
    }

    /// Has the API server collect its garbage before [`Self::quiet`].
    ///
    /// With 100,000 objects one collection takes the API server many times as long as 200 claims, and begins in whichever
    /// round the last of the memory happens to be used, most often after the listing that a start begins with.
    pub(crate) async fn settle(&self, manager: Option<&Manager>) {
        self.consumer.collect_garbage().await;
        self.quiet(manager).await;
    }

    /// Waits until neither the manager nor the control plane is busy; a minute at most.
    pub(crate) async fn quiet(&self, manager: Option<&Manager>) {
        let busy = || {
            let all = self.plane.pids().into_iter().chain(manager.map(Manager::pid));
            all.map(|pid| seconds_of(&pid.to_string())).sum::<f64>()
        };
        let (mut before, mut quiet) = (busy(), 0);
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = busy();
            quiet = if now - before < BUSY { quiet + 1 } else { 0 };
            before = now;
            if quiet == 2 {
                return;
            }
        }
    }

    /// Somebody who makes claims in a namespace of their own.
    pub(crate) async fn consumer(&self, namespace: &str, pools: usize) -> Consumer {
        Consumer::new(&self.consumer, namespace, pools, self.options.at_once).await
    }
}

fn kubeconfig<'a>(options: &Options, plane: &'a ControlPlane) -> &'a Path {
    // The roles of this package are no other manager's.
    if options.manager.is_some() { plane.kubeconfig() } else { plane.provider_kubeconfig() }
}
