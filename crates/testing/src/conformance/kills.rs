//! The program is killed before and after each of its writes.

use std::pin::pin;

use serde_json::json;

use super::history::Recorder;
use super::kill_proxy::{KillProxy, Moment};
use super::program::{Environment, wait_until_ready};
use super::rules::{Rule, Violation, describe_address};
use super::scene::Scene;
use crate::manager::Manager;

/// The maximum number of writes that bind and release one claim. More would be a loop.
const MAX_WRITES: usize = 60;

/// Binds and releases a claim again and again, and kills the program once each time: before and
/// after its first write, its second one, and so on, until it finishes before it is killed.
pub(super) async fn kills(
    environment: &mut Environment<'_>,
    scene: &Scene,
) -> Result<(), Violation> {
    environment.stop();
    scene.create_pool(json!(null)).await;
    let proxy = KillProxy::start(&environment.plane).await;
    let mut program = environment.launch(proxy.kubeconfig(), &[]);
    wait_until_ready(&mut program, environment.provider.timeout).await?;
    scene.create_claim("kept", json!({})).await;
    let kept = scene.bound("kept").await?;
    let recorder = Recorder::start(scene, "kept");
    let mut count = 0;
    'writes: for nth in 1..=MAX_WRITES {
        for moment in [Moment::Before, Moment::After] {
            let result = run_killed(environment, scene, &proxy, &mut program, (nth, moment)).await;
            let killed = proxy.end();
            let context = |violation: Violation| {
                let write = killed.as_deref().unwrap_or("none yet");
                let expected = format!(
                    "{}; the program was killed {moment} write {nth}: {write}",
                    violation.expected
                );
                Violation {
                    expected,
                    seen: format!("{}\nlog:\n{}", violation.seen, program.log()),
                    ..violation
                }
            };
            result.and_then(|()| recorder.check()).map_err(context)?;
            if killed.is_none() {
                break 'writes;
            }
            count += 1;
        }
    }
    environment.note = format!("{count} kills");
    if !(1..2 * MAX_WRITES).contains(&count) {
        let expected = format!("1 to {MAX_WRITES} writes bind and release a claim");
        return Err(Violation::new(
            Rule::Program,
            expected,
            format!("the program was killed {count} times"),
        ));
    }
    let now = scene.bound("kept").await?;
    if now.spec != kept.spec {
        let expected = format!("claim kept keeps the address {}", kept.spec.address);
        return Err(Violation::new(
            Rule::Lasting,
            expected,
            describe_address(&now),
        ));
    }
    scene.fill(1).await?;
    recorder.check()?;
    scene.end().await
}

/// Binds and releases a claim. The program is killed at one of its writes, and started again.
async fn run_killed(
    environment: &Environment<'_>,
    scene: &Scene,
    proxy: &KillProxy,
    program: &mut Manager,
    (nth, moment): (usize, Moment),
) -> Result<(), Violation> {
    proxy.kill_at(nth, moment);
    let mut restart = || {
        program.kill();
        proxy.revive();
        *program = environment.launch(proxy.kubeconfig(), &[]);
    };
    let mut cycle = pin!(async {
        scene.create_claim("killed", json!({})).await;
        scene.bound("killed").await?;
        scene.release("killed").await
    });
    let result = loop {
        tokio::select! {
            result = &mut cycle => break result,
            () = proxy.crashed() => restart(),
        }
    };
    if proxy.is_dead() {
        restart();
    }
    result
}
