//! The environment of a series: a control plane, the measured manager, and clients.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::api_client::ApiClient;
use crate::consumer::Consumer;
use crate::meter::seconds_of;
use crate::options::Options;
use support::control_plane::{self, ControlPlane};
use support::manager::{Manager, built};
use support::ports::free_port;

/// How long a manager may take until it is ready.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Seconds of processor time in 300 ms above which a process counts as busy. An idle API server
/// uses 0.02.
const BUSY: f64 = 0.055;

/// The length of a profile.
const PROFILE_SECONDS: u32 = 4;

/// A program that is measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    /// Another provider, or another version; `None`: this one.
    pub(crate) path: Option<PathBuf>,
    /// Additional flags, separated by spaces.
    pub(crate) flags: String,
}

/// A control plane with its clients.
pub(crate) struct Cluster<'a> {
    pub(crate) options: &'a Options,
    /// What the series measures.
    pub(crate) program: Program,
    pub(crate) plane: ControlPlane,
    pub(crate) consumer: ApiClient,
    /// The client of the baselines, with the permissions of the manager.
    pub(crate) provider: ApiClient,
}

impl<'a> Cluster<'a> {
    pub(crate) async fn new(options: &'a Options) -> Self {
        let plane = ControlPlane::start(control_plane::Options {
            steady: true,
            ..control_plane::Options::default()
        });
        let consumer = ApiClient::new(plane.kubeconfig(), "consumer").await;
        let program = Program {
            path: options.manager.clone(),
            flags: options.manager_flags.clone(),
        };
        let provider = ApiClient::new(kubeconfig(&program, &plane), "baseline").await;
        Self {
            options,
            program,
            plane,
            consumer,
            provider,
        }
    }

    /// Starts the measured manager and does not wait.
    pub(crate) fn launch(&self) -> Manager {
        self.launch_with(&[])
    }

    /// Like [`Self::launch`], with more flags.
    pub(crate) fn launch_with(&self, more: &[String]) -> Manager {
        let flags: Vec<String> = self
            .program
            .flags
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let port = free_port();
        let mut arguments = vec![
            format!(
                "--kubeconfig={}",
                kubeconfig(&self.program, &self.plane).display()
            ),
            format!("--health-probe-bind-address=127.0.0.1:{port}"),
        ];
        let program = self.program.path.clone().unwrap_or_else(|| {
            arguments.extend(
                [
                    "--webhook-port=0",
                    "--diagnostics-address=0",
                    "--log-level=warn",
                ]
                .map(str::to_owned),
            );
            std::env::var_os("CAPI_IPAM_MANAGER").map_or_else(|| built("manager"), PathBuf::from)
        });
        arguments.extend(flags.into_iter().chain(more.iter().cloned()));
        let manager = Manager::other(&self.plane, &program, &arguments, port);
        if self.program.path.is_some() {
            manager
        } else {
            manager.with_probe("/readyz/caches")
        }
    }

    /// Waits until a manager is ready.
    pub(crate) async fn ready(manager: &mut Manager) {
        let deadline = Instant::now() + TIMEOUT;
        while !manager.is_ready() {
            assert!(
                manager.is_running(),
                "the manager has exited; its log:\n{}",
                manager.log()
            );
            assert!(
                Instant::now() < deadline,
                "the manager is not ready; its log:\n{}",
                manager.log()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts the measured manager, and waits until it is ready and idle.
    pub(crate) async fn start(&self) -> Manager {
        let mut manager = self.launch();
        Self::ready(&mut manager).await;
        self.quiet(Some(&manager)).await;
        manager
    }

    /// Runs the Go garbage collector of the API server before [`Self::quiet`].
    ///
    /// With 100,000 objects one collection takes the API server many times as long as 200 claims,
    /// and would happen in an arbitrary round, most often after the initial list of a manager.
    pub(crate) async fn settle(&self, manager: Option<&Manager>) {
        self.consumer.collect_garbage().await;
        self.quiet(manager).await;
    }

    /// Starts a CPU profile of the API server, if profiles are wanted.
    pub(crate) fn start_profile(&self, name: &str) -> Option<tokio::task::JoinHandle<()>> {
        let folder = self.options.profiles.as_ref()?;
        std::fs::create_dir_all(folder).expect("the folder can be created");
        let (path, api) = (folder.join(format!("{name}.pb.gz")), self.consumer.clone());
        Some(tokio::spawn(async move {
            let profile = api.profile(PROFILE_SECONDS).await;
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

    /// A consumer with a new namespace.
    pub(crate) async fn consumer(&self, namespace: &str, pools: usize) -> Consumer {
        Consumer::new(&self.consumer, namespace, pools, self.options.at_once).await
    }
}

fn kubeconfig<'a>(program: &Program, plane: &'a ControlPlane) -> &'a Path {
    // The roles of this package are not sufficient for other managers.
    if program.path.is_some() {
        plane.kubeconfig()
    } else {
        plane.provider_kubeconfig()
    }
}
