//! `status`: the state of each part of the provider, from the checks of `doctor`.

use std::time::Duration;

use tokio::time::Instant;

use super::alerts;
use super::diagnose::diagnose;
use super::watch::{self, DIAGNOSIS_INTERVAL, Reading};
use crate::cli::{Global, WaitFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::model::{Report, is_usable, parts};
use crate::output;

/// Time between two attempts of `--wait`.
const WAIT_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn run(global: &Global, watch: bool, wait: &WaitFlags) -> Result<Code, Error> {
    if watch {
        let style = output::style(global);
        let interval = Some(DIAGNOSIS_INTERVAL);
        return watch::print(global, style, interval, async || {
            Ok(attempt(global).await?.reading)
        })
        .await;
    }
    let end = Instant::now().checked_add(wait.wait_duration);
    let is_over = || !wait.wait || end.is_some_and(|end| Instant::now() >= end);
    loop {
        match attempt(global).await {
            Ok(Attempt { reading, is_usable }) => {
                if is_usable || is_over() {
                    let Reading {
                        report, missing, ..
                    } = &reading;
                    let style = output::style(global);
                    output::print_report(report, missing, global.output, style)?;
                    return Ok(reading.code);
                }
            }
            // An API server that starts does not answer yet.
            Err(Error::Unreachable { .. }) if !is_over() => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
}

/// What was read, and whether the provider works.
struct Attempt {
    reading: Reading,
    is_usable: bool,
}

async fn attempt(global: &Global) -> Result<Attempt, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut found = diagnose(&cluster).await?;
    let alerts = alerts::read(&mut found.loader).await?;
    let parts = parts(&found.diagnosis, &found.snapshot, &alerts);
    let is_usable = is_usable(&parts);
    let reading = Reading {
        report: Report::StatusList { parts },
        missing: found.loader.sentences(),
        // The table has a state for what is unknown.
        warnings: Vec::new(),
        code: found.code(),
    };
    Ok(Attempt { reading, is_usable })
}
