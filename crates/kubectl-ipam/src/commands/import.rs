//! `import`: creates and updates pools and reservations from a file.

use std::path::Path;

use crate::cli::{DryRun, Format, Global};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::Report;
use crate::output;
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
    let mut problems = Vec::new();
    for problem in &summary.problems {
        problems.push(problem.problem.clone());
    }
    let report = Report::ImportSummary(summary);
    let code = output::finish(&loader, &report, global.output, output::style(global))?;
    if problems.is_empty() {
        return Ok(code);
    }
    // This format has only the names of changed objects.
    if global.output == Format::Name {
        problems.iter().for_each(|problem| output::warn(problem));
    }
    Ok(Code::Findings)
}
