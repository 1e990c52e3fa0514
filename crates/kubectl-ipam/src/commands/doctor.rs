//! `doctor`: makes all checks, and prints what is wrong.

use super::diagnose::diagnose;
use super::watch::{self, DIAGNOSIS_INTERVAL, Reading};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{Report, Selection};
use crate::output;
use crate::render::Style;

pub(super) async fn run(
    global: &Global,
    pool: Option<&str>,
    only_errors: bool,
    watch: bool,
) -> Result<Code, Error> {
    // Findings are of objects of all namespaces.
    let style = Style {
        namespaces: true,
        ..output::style(global)
    };
    let interval = watch.then_some(DIAGNOSIS_INTERVAL);
    watch::print(global, style, interval, async || {
        // A definition can be installed between two reads.
        let cluster = Cluster::connect(global).await?;
        let selection = selection(&cluster, global, pool, only_errors).await?;
        let mut found = diagnose(&cluster).await?;
        selection.apply(&mut found.diagnosis, &found.snapshot);
        let code = found.code();
        let report = Report::FindingList(found.diagnosis);
        let mut reading = Reading::of(&found.loader, report);
        reading.code = code;
        // The text has the missing permissions.
        if output::is_text(global.output) {
            reading.warnings.clear();
        }
        Ok(reading)
    })
    .await
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
