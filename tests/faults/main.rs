//! Fault injection: each plan injects one fault, or two in a row at one object, between the manager
//! and a real API server. The invariants are checked at every revision, at rest, and over the whole
//! run.
//!
//! By default a few plans run that cover every write and every fault once. The variable
//! `CAPI_IPAM_FAULTS` selects `many` (every fault at every kind of write) or `all` of them.
//! `CAPI_IPAM_FAULT_PLAN` is one plan, or several lines of plans, as printed by a failure.
//! `CAPI_IPAM_FAULT_LANES` is the number of control planes that run concurrently.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    reason = "test code: a failure ends the test, and a long test prints its progress"
)]

mod black_holes;
mod fault;
mod frames;
mod mutants;
mod observer;
mod oracle;
mod plans;
mod proxy;
mod request;
mod run;
mod workload;
mod world;

use std::{
    collections::VecDeque,
    env,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use fault::Plan;
use plans::Recording;
use run::Report;
use support::prelude::*;
use workload::Workload;

/// After this number of failures no more plans are started.
const MAX_FAILURES: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn single_faults_are_tolerated() {
    let lanes = env::var("CAPI_IPAM_FAULT_LANES")
        .ok()
        .and_then(|lanes| lanes.parse().ok())
        .unwrap_or(3);
    let start = || {
        let plane = ControlPlane::new();
        plane.permit("cluster-addressing");
        Arc::new(plane)
    };
    let launch = || tokio::task::spawn_blocking(start);
    let planes = futures::future::join_all((0..lanes).map(|_| launch())).await;
    let planes: Vec<_> = planes
        .into_iter()
        .map(|plane| plane.expect("a control plane starts"))
        .collect();

    if let Ok(lines) = env::var("CAPI_IPAM_FAULT_PLAN") {
        let plan = |line: &str| {
            serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("invalid plan: {line}: {error}"))
        };
        let wanted = lines
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(plan)
            .collect();
        return assert_passed(&run_plans(&planes, wanted, 1).await);
    }
    let references = Workload::ALL.into_iter().map(Plan::reference).collect();
    let references = run_plans(&planes, references, 1).await;
    assert_passed(&references);
    let all = plans::all(&references.iter().map(recorded).collect::<Vec<_>>());
    let wanted = match env::var("CAPI_IPAM_FAULTS").as_deref() {
        Ok("all") => all.clone(),
        Ok("many") => plans::many(&all),
        _ => plans::few(&all),
    };
    println!(
        "{} plans; `many` are {}, all are {}",
        wanted.len(),
        plans::many(&all).len(),
        all.len()
    );
    assert_passed(&run_plans(&planes, wanted, MAX_FAILURES).await);
}

fn recorded(report: &Report) -> Recording {
    let mut writes = BTreeMap::new();
    report
        .journal
        .iter()
        .for_each(|entry| *writes.entry(entry.write).or_default() += 1);
    let watched = report.changes.keys().cloned().collect();
    Recording {
        workload: report.plan.workload,
        writes,
        watched,
        reads: report.reads.clone().into_iter().collect(),
    }
}

/// Runs plans, one at a time in each control plane, since a manager serves everything in it.
async fn run_plans(
    planes: &[Arc<ControlPlane>],
    wanted: Vec<Plan>,
    most_failures: usize,
) -> Vec<Report> {
    let start = Instant::now();
    let count = wanted.len();
    let waiting = Arc::new(Mutex::new(VecDeque::from(wanted)));
    let done = Arc::new(Mutex::new(Vec::<Report>::new()));
    let lane = |plane: &Arc<ControlPlane>| {
        let (plane, waiting, done) = (Arc::clone(plane), Arc::clone(&waiting), Arc::clone(&done));
        tokio::spawn(async move {
            loop {
                let Some(plan) = locked(&waiting).pop_front() else {
                    return;
                };
                let report = Box::pin(run::run(&plane, plan)).await;
                let mut done = locked(&done);
                print(&report, done.len() + 1, count);
                done.push(report);
                if done
                    .iter()
                    .filter(|report| !report.failures.is_empty())
                    .count()
                    >= most_failures
                {
                    locked(&waiting).clear();
                }
            }
        })
    };
    for lane in planes.iter().map(lane).collect::<Vec<_>>() {
        lane.await.expect("a plan ends");
    }
    let done = std::mem::take(&mut *locked(&done));
    let longest = done
        .iter()
        .map(|report| report.converged)
        .max()
        .unwrap_or_default();
    let missed = done.iter().filter(|report| !report.happened).count();
    println!(
        "{} plans in {:.0?}; idle at most {longest:.1?} after the workload; {missed} faults did not happen",
        done.len(),
        start.elapsed(),
    );
    done
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn print(report: &Report, number: usize, count: usize) {
    let Report {
        plan,
        failures,
        happened,
        took,
        converged,
        story,
        ..
    } = report;
    let missed = if *happened {
        ""
    } else {
        " (the fault did not happen)"
    };
    println!(
        "{number}/{count} {}{missed}: {took:.1?}, at rest after {converged:.1?}",
        plan.line()
    );
    if failures.is_empty() {
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("faults");
    let file = folder.join(format!("{number}.log"));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, story));
    println!("FAILED: {}", failures.join("\n        "));
    println!("full report: {} {written:?}", file.display());
}

/// Fails when a plan failed, with the plans to reproduce it.
fn assert_passed(reports: &[Report]) {
    let failed = reports.iter().filter(|report| !report.failures.is_empty());
    let texts: Vec<String> = failed
        .map(|report| {
            let Report { plan, failures, .. } = report;
            format!(
                "{}\nagain: CAPI_IPAM_FAULT_PLAN='{}'",
                failures.join("\n"),
                plan.line()
            )
        })
        .collect();
    assert!(texts.is_empty(), "\n{}", texts.join("\n\n"));
    let missed = reports.iter().filter(|report| !report.happened).count();
    assert!(
        missed * 5 <= reports.len(),
        "the faults of {missed} of {} plans did not happen",
        reports.len()
    );
}
