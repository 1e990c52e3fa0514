//! `import`: creates and updates pools and reservations from a file.

use std::path::Path;

use crate::cli::{DryRun, Format, Global};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::Report;
use crate::output;
use crate::render::problem_lines;
use crate::transfer::import;

pub(super) async fn run(
    global: &Global,
    file: &Path,
    name: &str,
    prune: bool,
    dry_run: DryRun,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?.with_dry_run(dry_run);
    let mut loader = Loader::new(&cluster);
    let mut summary = import(&mut loader, file, name, prune, dry_run.is_dry_run()).await?;
    summary.unchecked = dry_run == DryRun::Client;
    let style = output::style(global);
    let problems = problem_lines(&summary.problems, style);
    let report = Report::ImportSummary(summary);
    let code = output::finish(&loader, &report, global.output, style)?;
    if problems.is_empty() {
        return Ok(code);
    }
    // This format has only the names of changed objects.
    if global.output == Format::Name {
        problems.iter().for_each(|problem| output::warn(problem));
    }
    Ok(Code::Findings)
}
