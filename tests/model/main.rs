//! The allocation protocol as a model.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout, reason = "test code: a failure ends the test")]

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
    let checker = Protocol::new(scope).checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{what}: {} states, {} unique, depth {}, {:.1} s", checker.state_count(), checker.unique_state_count(), checker.max_depth(), start.elapsed().as_secs_f64());
    for (name, path) in checker.discoveries() {
        if checker.model().property(name).expectation.discovery_is_failure() {
            println!("VIOLATED {name}");
            for (state, action) in path.into_vec() {
                println!("   {:?}\n        -> {action:?}", state.objects);
            }
        }
    }
    checker.assert_properties();
}

#[test]
fn one() {
    let scope: Vec<u8> = std::env::var("SCOPE").unwrap().bytes().map(|b| b - b'0').collect();
    check("env", Scope { managers: scope[0].into(), addresses: scope[1].into(), lives: [scope[2], scope[3]], crashes: scope[4], lost_replies: scope[5], late_writes: scope[6], sweepers: scope[7] > 0, vanishings: scope[8], collector: scope[9] > 0, mistake: None });
}
