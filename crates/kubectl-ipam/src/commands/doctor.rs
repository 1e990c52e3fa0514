//! `doctor`: makes all checks, and prints what is wrong.

use super::diagnose::diagnose;
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::model::Report;
use crate::output;
use crate::render::Style;

pub(super) async fn run(global: &Global) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let found = diagnose(&cluster).await?;
    let code = found.code();
    // The text has the missing permissions.
    if !output::is_text(global.output) {
        output::warn_incomplete(&found.loader);
    }
    // Findings are of objects of all namespaces.
    let style = Style {
        namespaces: true,
        ..output::style(global)
    };
    let missing = found.loader.sentences();
    let report = Report::FindingList(found.diagnosis);
    output::print_report(&report, &missing, global.output, style)?;
    Ok(code)
}
