//! The allocation protocol as a model.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout, reason = "test code: a failure ends the test")]

mod mistakes;
mod protocol;
mod recovery;
mod server;
mod state;
mod sweeper;
mod tasks;

use std::time::Instant;

use protocol::{Protocol, Scope};
use stateright::{Checker, HasDiscoveries, Model};

fn check(what: &str, scope: Scope) {
    let start = Instant::now();
    let checker = Protocol::new(scope).checker().threads(1).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.timeout(std::time::Duration::from_secs(std::env::var("LIMIT").map_or(1000, |limit| limit.parse().unwrap())));
    let checker = checker.spawn_bfs().join();
    println!("{what}: {} states, {} unique, depth {}, {:.1} s done {}", checker.state_count(), checker.unique_state_count(), checker.max_depth(), start.elapsed().as_secs_f64(), checker.is_done());
    for (name, path) in checker.discoveries() {
        if checker.model().property(name).expectation.discovery_is_failure() {
            println!("VIOLATED {name}");
            for (state, action) in path.into_vec() {
                println!("   {:?}\n        -> {action:?}", state.objects);
            }
            panic!("violated");
        }
    }
}

#[test]
#[ignore = "development"]
fn one() {
    let scope: Vec<u8> = std::env::var("SCOPE").unwrap().bytes().map(|b| b - b'0').collect();
    check("env", Scope { managers: scope[0].into(), addresses: scope[1].into(), lives: [scope[2], scope[3]], crashes: scope[4], lost_replies: scope[5], late_writes: scope[6], sweepers: scope[7] > 0, vanishings: scope[8], collector: scope[9] > 0, prompt: scope[10] > 0, glimpses: scope[11], mistake: None });
}
