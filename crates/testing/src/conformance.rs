//! Checks that the program of a provider fulfills the IPAM provider contract.
//!
//! [`run`] starts a control plane with the objects of a [`Provider`], runs its program, and
//! executes the checks one after the other, each in its own namespace. A [`Report`] lists every
//! check with its time; for a failed check what was expected, the violated [`Rule`], what was seen,
//! and the end of the log of the program. The checks are [`Check::ALL`].
//!
//! A provider of a real IPAM system needs a system for tests: the checks allocate all addresses of
//! the pool several times, and kill the program at any time.

mod bad_input;
mod check;
mod history;
mod interruptions;
mod kill_proxy;
mod kills;
mod life_cycle;
mod pausing;
mod program;
mod provider;
mod report;
mod rules;
mod scene;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::thread;
use std::time::Instant;

use futures::FutureExt;
use tokio::runtime::Builder;

use self::bad_input::{exhausted_pool, missing_pool};
pub use self::check::Check;
use self::interruptions::{leader_election, outage, restart};
use self::kills::kills;
use self::life_cycle::{adoption, bind, foreign_finalizer, name_reuse, release};
use self::pausing::{By, pausing};
use self::program::Environment;
pub use self::provider::{Pool, Provider};
pub use self::report::{CheckResult, Report};
pub use self::rules::{Rule, Violation};
use self::scene::Scene;

/// Runs the checks of a provider. Blocks until all are done, which takes about a minute, or longer
/// if checks fail.
///
/// # Panics
/// When the control plane does not start, or the objects of the provider are invalid.
pub fn run(provider: &Provider) -> Report {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be started");
    // In a thread, so that the caller can have an async runtime.
    thread::scope(|scope| {
        let thread = scope.spawn(|| runtime.block_on(run_all(provider)));
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

async fn run_all(provider: &Provider) -> Report {
    let start = Instant::now();
    let mut environment = Environment::start(provider).await;
    let mut results = Vec::new();
    for check in provider.checks.iter().copied() {
        let start = Instant::now();
        let failure = run_check(&mut environment, check).await.err();
        let note = std::mem::take(&mut environment.note);
        results.push(CheckResult {
            check,
            took: start.elapsed(),
            note,
            failure,
        });
    }
    Report {
        results,
        took: start.elapsed(),
    }
}

/// Runs a check in a new namespace, and returns what went wrong.
async fn run_check(environment: &mut Environment<'_>, check: Check) -> Result<(), String> {
    let provider = environment.provider;
    let pool = provider
        .large_pool
        .as_ref()
        .filter(|_| check == Check::Restart)
        .unwrap_or(&provider.pool);
    let scene = environment.scene(pool).await;
    let work = async {
        environment.run().await?;
        execute(environment, &scene, check).await?;
        environment.run().await?;
        scene.end().await?;
        environment.check_running()
    };
    let result = AssertUnwindSafe(work).catch_unwind().await;
    let failure = match result {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(violation)) => violation.to_string(),
        Err(panic) => format!("the check cannot continue: {}", text_of(panic.as_ref())),
    };
    let failure = format!("{failure}\nlog:\n{}", environment.log());
    // The next check needs an API server and an idle program.
    environment.plane.start_api_server();
    environment.stop();
    let _ = AssertUnwindSafe(scene.force_end()).catch_unwind().await;
    Err(failure)
}

async fn execute(
    environment: &mut Environment<'_>,
    scene: &Scene,
    check: Check,
) -> Result<(), Violation> {
    match check {
        Check::Bind => bind(scene).await,
        Check::Release => release(scene).await,
        Check::PausedCluster => pausing(scene, By::Cluster).await,
        Check::PausedClaim => pausing(scene, By::Claim).await,
        Check::PausedPool => pausing(scene, By::Pool).await,
        Check::ForeignFinalizer => foreign_finalizer(scene).await,
        Check::Adoption => adoption(scene).await,
        Check::NameReuse => name_reuse(scene).await,
        Check::MissingPool => missing_pool(scene).await,
        Check::ExhaustedPool => exhausted_pool(scene).await,
        Check::Outage => outage(environment, scene).await,
        Check::LeaderElection => leader_election(environment, scene).await,
        Check::Restart => restart(environment, scene).await,
        Check::Kills => kills(environment, scene).await,
    }
}

/// The message of a panic.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}
