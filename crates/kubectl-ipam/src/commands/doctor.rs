//! `doctor`: makes all checks, and prints what is wrong.

use super::diagnose::diagnose;
use super::watch::{self, DIAGNOSIS_INTERVAL, Reading};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::model::Report;
use crate::output;
use crate::render::Style;

pub(super) async fn run(global: &Global, watch: bool) -> Result<Code, Error> {
    // Findings are of objects of all namespaces.
    let style = Style {
        namespaces: true,
        ..output::style(global)
    };
    let interval = watch.then_some(DIAGNOSIS_INTERVAL);
    watch::print(global, style, interval, async || {
        // A definition can be installed between two reads.
        let cluster = Cluster::connect(global).await?;
        let found = diagnose(&cluster).await?;
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
