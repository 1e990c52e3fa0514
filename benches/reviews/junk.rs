//! `make bench-reviews ARGS=--junk`: how much memory the manager takes at most while 20 clients at once send what nobody should, and
//! whether good reviews are answered meanwhile.

use super::peak_memory;
use super::support::manager::Manager;
use super::support::webhooks::Webhooks;
use super::support::webhooks::junk::Junk;

/// Clients at the same time.
const CLIENTS: usize = 20;
/// Requests of each.
const TIMES: usize = 5;

/// Sends all junk, and prints a line for each.
pub(crate) async fn measure(manager: &Manager, webhooks: &Webhooks) {
    println!("junk from {CLIENTS} clients at once, {TIMES} times from each, with good reviews meanwhile:");
    println!("  {:<42} {:>12} {:>8} {:>8} {:>12}  answers", "", "peak memory", "good", "failed", "longest ms");
    println!("  {:<42} {:>12}", "before", peak_memory(manager.pid()));
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
            "  {:<42} {:>12} {:>8} {:>8} {:>12.0}  {}",
            junk.what,
            peak_memory(manager.pid()),
            outcome.good.answered,
            outcome.good.failed,
            outcome.good.longest.as_secs_f64() * 1000.0,
            answers.join(", ")
        );
    }
}
