//! `make bench-reviews ARGS=--junk`: the peak memory of the manager while 20 clients send oversized
//! bodies concurrently, and whether valid reviews are answered meanwhile.

use support::manager::Manager;
use support::process::Memory;
use support::webhooks::Webhooks;
use support::webhooks::junk::Junk;

/// Concurrent clients.
const CLIENTS: usize = 20;
/// Requests per client.
const TIMES: usize = 5;

/// Sends all bodies, and prints a line for each.
pub(crate) async fn measure(manager: &Manager, webhooks: &Webhooks) {
    println!(
        "oversized bodies from {CLIENTS} concurrent clients, {TIMES} times each, with valid reviews meanwhile:"
    );
    println!(
        "  {:<42} {:>12} {:>8} {:>8} {:>8} {:>12}  responses",
        "", "peak MiB", "valid", "busy", "failed", "longest ms"
    );
    let peak = || Memory::of(manager.pid()).peak;
    println!("  {:<42} {:>12.0}", "before", peak());
    for junk in Junk::all() {
        let outcome = junk.send(webhooks, CLIENTS, TIMES).await;
        let answers: Vec<String> = outcome
            .statuses
            .iter()
            .map(|(status, count)| match status {
                0 => format!("{count} closed"),
                _ => format!("{count} x {status}"),
            })
            .collect();
        println!(
            "  {:<42} {:>12.0} {:>8} {:>8} {:>8} {:>12.0}  {}",
            junk.what,
            peak(),
            outcome.good.answered,
            outcome.good.busy,
            outcome.good.failed,
            outcome.good.longest.as_secs_f64() * 1000.0,
            answers.join(", ")
        );
    }
}
