//! `doctor`: makes all checks, and prints the state of each part and what is wrong.

use std::time::Duration;

use tokio::time::Instant;

use super::diagnose::{Diagnosed, diagnose};
use crate::cli::{Global, WaitFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{Report, Selection, health, parts};
use crate::output;
use crate::render::Style;

/// Time between two attempts of `--wait`.
const WAIT_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn run(
    global: &Global,
    pool: Option<&str>,
    only_errors: bool,
    wait: &WaitFlags,
) -> Result<Code, Error> {
    let end = Instant::now().checked_add(wait.wait_duration);
    let is_over = || !wait.wait || end.is_some_and(|end| Instant::now() >= end);
    loop {
        match examine(global, pool, only_errors, is_over).await {
            Ok(Some(code)) => return Ok(code),
            Ok(None) => {}
            // An API server that starts does not answer yet, and objects are created after it.
            Err(Error::Unreachable { .. } | Error::NoPool { .. } | Error::NoNamespace { .. })
                if !is_over() => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
}

/// Makes all checks, and prints what they find if the provider works, or if the time is over.
async fn examine(
    global: &Global,
    pool: Option<&str>,
    only_errors: bool,
    is_over: impl Fn() -> bool,
) -> Result<Option<Code>, Error> {
    // A definition can be installed between two attempts.
    let cluster = Cluster::connect(global).await?;
    let selection = selection(&cluster, global, pool, only_errors).await?;
    let mut found = diagnose(&cluster).await?;
    found.diagnosis.parts = parts(&found.diagnosis, &found.snapshot);
    found.diagnosis.healthy = health(&found.diagnosis.parts);
    if found.diagnosis.healthy == Some(false) && !is_over() {
        return Ok(None);
    }
    selection.apply(&mut found.diagnosis, &found.snapshot);
    print(global, found).map(Some)
}

fn print(global: &Global, found: Diagnosed<'_>) -> Result<Code, Error> {
    // Findings are of objects of all namespaces.
    let style = Style {
        namespaces: true,
        ..output::style(global)
    };
    let code = found.code();
    // The text has the missing permissions.
    if !output::is_text(global.output) {
        output::warn_incomplete(&found.loader);
    }
    let missing = found.loader.sentences();
    let report = Report::FindingList(found.diagnosis);
    output::print_report(&report, &missing, global.output, style)?;
    Ok(code)
}

/// What the flags select. A namespace or a pool that does not exist is an error: nothing would be
/// found in it.
async fn selection(
    cluster: &Cluster,
    global: &Global,
    pool: Option<&str>,
    only_errors: bool,
) -> Result<Selection, Error> {
    let mut loader = Loader::new(cluster);
    if let Some(namespace) = &global.namespace {
        loader.require_namespace(namespace).await?;
    }
    let mut selection = Selection {
        only_errors,
        ..Selection::default()
    };
    match pool {
        Some(pool) => selection.pool = Some(loader.find_pool(pool).await?.key),
        None => selection.namespace.clone_from(&global.namespace),
    }
    Ok(selection)
}
