//! The environment of a series: a control plane, the measured manager, and clients.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use support::consumer::unique;
use support::control_plane::{self, ControlPlane};
use support::manager::{Manager, manager};
use support::ports::free_port;
use tokio::task::JoinHandle;

use crate::api::Api;
use crate::baseline::Baseline;
use crate::consumer::Consumer;
use crate::measure::seconds_of;
use crate::options::Options;

/// How long a manager may take until it is ready.
const TIMEOUT: Duration = Duration::from_mins(10);
/// Seconds of processor time in 300 ms above which a process counts as busy. An idle API server
/// uses 0.02.
const BUSY: f64 = 0.055;

/// A program that is measured.
#[derive(Clone)]
pub(crate) struct Program {
    /// Another provider, or another version; `None`: this one.
    pub(crate) path: Option<PathBuf>,
    /// Additional flags, separated by spaces.
    pub(crate) flags: String,
}

/// A control plane with its clients.
pub(crate) struct Cluster<'a> {
    pub(crate) options: &'a Options,
    pub(crate) program: Program,
    pub(crate) plane: ControlPlane,
    pub(crate) api: Api,
    /// The client of the baselines, with the permissions of the manager.
    pub(crate) provider: Api,
}

impl<'a> Cluster<'a> {
    pub(crate) async fn new(options: &'a Options) -> Self {
        let plane = ControlPlane::start(control_plane::Options {
            steady: true,
            ..control_plane::Options::default()
        });
        let api = Api::new(plane.kubeconfig(), "consumer").await;
        let program = Program {
            path: options.manager.clone(),
            flags: options.manager_flags.clone(),
        };
        let provider = Api::new(kubeconfig(&program, &plane), "baseline").await;
        Self {
            options,
            program,
            plane,
            api,
            provider,
        }
    }

    /// A baseline for the claims of a consumer.
    pub(crate) async fn baseline(&self, consumer: &Consumer, reserve: bool) -> Baseline {
        let Consumer {
            namespace, pools, ..
        } = consumer;
        let baseline = Baseline::bare(&self.provider, namespace, pools);
        if !reserve {
            return baseline;
        }
        let is_complete = self.options.complete_baseline;
        baseline.with_reservations(is_complete).await
    }

    /// Starts the measured manager and does not wait.
    pub(crate) fn launch(&self, more: &[&str]) -> Manager {
        let Self { program, plane, .. } = self;
        let port = free_port();
        let own = [
            "--webhook-port=0",
            "--diagnostics-address=0",
            "--log-level=warn",
        ];
        let own = if program.path.is_none() {
            &own[..]
        } else {
            &[]
        };
        let mut arguments = vec![
            format!("--kubeconfig={}", kubeconfig(program, plane).display()),
            format!("--health-probe-bind-address=127.0.0.1:{port}"),
        ];
        arguments.extend(
            own.iter()
                .chain(more)
                .copied()
                .chain(program.flags.split_whitespace())
                .map(str::to_owned),
        );
        let path = program.path.clone().unwrap_or_else(manager);
        let started = Manager::other(plane, &path, &arguments, port);
        if program.path.is_some() {
            started
        } else {
            started.with_probe("/readyz/caches")
        }
    }

    /// Waits until a manager is ready.
    pub(crate) async fn ready(manager: &mut Manager) {
        let deadline = Instant::now() + TIMEOUT;
        while !manager.is_ready() {
            let may_wait = manager.is_running() && Instant::now() < deadline;
            assert!(
                may_wait,
                "the manager is not ready; its log:\n{}",
                manager.log()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts the measured manager, and waits until it is ready and idle.
    pub(crate) async fn start(&self) -> Manager {
        let mut manager = self.launch(&[]);
        Self::ready(&mut manager).await;
        self.quiet(Some(&manager)).await;
        manager
    }

    /// Runs the Go garbage collector of the API server before [`Self::quiet`].
    ///
    /// With 100,000 objects one collection takes the API server many times as long as 200 claims,
    /// and would happen in an arbitrary round, most often after the initial list of a manager.
    pub(crate) async fn settle(&self, manager: Option<&Manager>) {
        self.api.diagnostics("heap?gc=1&debug=1").await;
        self.quiet(manager).await;
    }

    /// Starts a CPU profile of the API server over some seconds, if profiles are wanted.
    pub(crate) fn start_profile(&self, name: &str) -> Option<JoinHandle<()>> {
        let folder = self.options.profiles.as_ref()?;
        std::fs::create_dir_all(folder).expect("the folder can be created");
        let (path, api) = (folder.join(format!("{name}.pb.gz")), self.api.clone());
        Some(tokio::spawn(async move {
            // Requests may take 10 s.
            let profile = api.diagnostics("profile?seconds=4").await;
            std::fs::write(path, profile).expect("the profile can be written");
        }))
    }

    /// Waits until neither the manager nor the control plane is busy, for at most a minute.
    pub(crate) async fn quiet(&self, manager: Option<&Manager>) {
        let busy = || {
            let all = self
                .plane
                .pids()
                .into_iter()
                .chain(manager.map(|manager| manager.pid()));
            all.map(seconds_of).sum::<f64>()
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

    /// A consumer with a new namespace.
    pub(crate) async fn consumer(&self, prefix: &str, pools: usize) -> Consumer {
        Consumer::new(&self.api, &unique(prefix), pools).await
    }
}

/// The roles of this package are not sufficient for other managers.
fn kubeconfig<'a>(program: &Program, plane: &'a ControlPlane) -> &'a Path {
    if program.path.is_some() {
        plane.kubeconfig()
    } else {
        plane.provider_kubeconfig()
    }
}
