//! `status`: the state of each part of the provider, from the checks of `doctor`.

use std::time::Duration;

use tokio::time::Instant;

use super::alerts;
use super::diagnose::diagnose;
use crate::cli::{Global, WaitFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::model::{Report, is_usable, parts};
use crate::output;

/// Time between two attempts of `--wait`.
const WAIT_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn run(global: &Global, wait: &WaitFlags) -> Result<Code, Error> {
    let end = Instant::now().checked_add(wait.wait_duration);
    let is_over = || !wait.wait || end.is_some_and(|end| Instant::now() >= end);
    loop {
        match attempt(global).await {
            Ok(Attempt {
                report,
                missing,
                code,
                is_usable,
            }) => {
                if is_usable || is_over() {
                    let style = output::style(global);
                    output::print_report(&report, &missing, global.output, style)?;
                    return Ok(code);
                }
            }
            // An API server that starts does not answer yet.
            Err(Error::Unreachable { .. }) if !is_over() => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
}

/// A report with its exit code, and whether the provider works.
struct Attempt {
    report: Report,
    missing: Vec<String>,
    code: Code,
    is_usable: bool,
}

async fn attempt(global: &Global) -> Result<Attempt, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut found = diagnose(&cluster).await?;
    let alerts = alerts::read(&mut found.loader).await?;
    let parts = parts(&found.diagnosis, &found.snapshot, &alerts);
    Ok(Attempt {
        missing: found.loader.sentences(),
        code: found.code(),
        is_usable: is_usable(&parts),
        report: Report::StatusList { parts },
    })
}
