//! The control plane of all checks, and the program of the provider in it.

use std::path::Path;
use std::time::Duration;

use capi_ipam_provider::controller::client::connect;
use kube::Client;

use super::provider::{Pool, Provider};
use super::rules::{Rule, Violation};
use super::scene::Scene;
use crate::control_plane::{ControlPlane, Options};
use crate::manager::Manager;
use crate::patience::Patience;
use crate::wait::TIMEOUT;

/// The number of lines of the log in a failure.
const LOG_LINES: usize = 25;

/// A control plane with the program of a provider.
pub(super) struct Environment<'a> {
    pub(super) provider: &'a Provider,
    pub(super) plane: ControlPlane,
    pub(super) client: Client,
    /// What the current check has done, for the report.
    pub(super) note: String,
    /// The running program.
    program: Option<Manager>,
    /// The log of the program that ran last.
    log: String,
}

impl<'a> Environment<'a> {
    /// Starts a control plane.
    pub(super) async fn start(provider: &'a Provider) -> Self {
        let plane = ControlPlane::start(
            Options {
                audit: true,
                ..Options::default()
            },
            &provider.installation,
        );
        let client = connect(Some(plane.kubeconfig()), "conformance")
            .await
            .expect("the kubeconfig is valid");
        Self {
            provider,
            plane,
            client,
            note: String::new(),
            program: None,
            log: String::new(),
        }
    }

    /// A namespace for a check, without a pool.
    pub(super) async fn scene(&self, pool: &Pool) -> Scene {
        Scene::new(&self.client, pool, self.provider.timeout).await
    }

    /// Starts a program, and does not wait. It can run beside the one that [`Self::run`] starts.
    pub(super) fn launch(&self, kubeconfig: &Path, more: &[String]) -> Manager {
        let arguments: Vec<&str> = self
            .provider
            .arguments
            .iter()
            .chain(more)
            .map(String::as_str)
            .collect();
        Manager::start_program(&self.plane, &self.provider.program, kubeconfig, &arguments)
            .with_probe("/readyz")
    }

    /// Runs the program without leader election until [`Self::stop`], and waits until it is ready.
    /// Does nothing if it runs.
    pub(super) async fn run(&mut self) -> Result<(), Violation> {
        if self
            .program
            .as_mut()
            .is_none_or(|program| !program.is_running())
        {
            let mut program = self.launch(self.plane.provider_kubeconfig(), &[]);
            let ready = wait_until_ready(&mut program, self.provider.timeout).await;
            self.program = Some(program);
            ready?;
        }
        Ok(())
    }

    /// Stops the program by SIGTERM.
    pub(super) fn stop(&mut self) {
        if let Some(mut program) = self.program.take() {
            program.stop();
            self.log = program.log();
        }
    }

    /// Checks that the program has not exited.
    pub(super) fn check_running(&mut self) -> Result<(), Violation> {
        let Some(status) = self.program.as_mut().and_then(Manager::exit_status) else {
            return Ok(());
        };
        Err(Violation::new(
            Rule::Program,
            "the program runs",
            format!("it has exited with {status}"),
        ))
    }

    /// The end of the log of the program.
    pub(super) fn log(&self) -> String {
        last_lines(
            &self
                .program
                .as_ref()
                .map_or_else(|| self.log.clone(), Manager::log),
        )
    }
}

/// Waits until a program is ready. A start takes longer than the reaction to a change, so it has at
/// least [`TIMEOUT`].
pub(super) async fn wait_until_ready(
    program: &mut Manager,
    timeout: Duration,
) -> Result<(), Violation> {
    let timeout = timeout.max(TIMEOUT);
    let patience = Patience::new(timeout);
    while !program.is_ready() {
        if let Some(status) = program.exit_status() {
            let seen = format!(
                "it has exited with {status}; its log ends:\n{}",
                last_lines(&program.log())
            );
            return Err(Violation::new(Rule::Program, "the program starts", seen));
        }
        if patience.is_over() {
            let seen = format!("it is not; its log ends:\n{}", last_lines(&program.log()));
            return Err(Violation::new(
                Rule::Program,
                format!("/readyz succeeds within {timeout:?}"),
                seen,
            ));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn last_lines(log: &str) -> String {
    let skipped = log.lines().count().saturating_sub(LOG_LINES);
    log.lines().skip(skipped).collect::<Vec<_>>().join("\n")
}
