//! `pools`: the pools with their occupancy, once or as they change.

use std::time::Duration;

use crate::cli::{Format, Global, ListFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::{Loader, Selected};
use crate::model::{Report, pools};
use crate::objects::{ClaimRow, PoolRow};
use crate::sort::sort_by;
use crate::{output, render};

/// Time between two reads of `pools --watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn run(
    global: &Global,
    names: &[String],
    list: &ListFlags,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let report = report(&mut loader, global, names, list).await?;
    output::finish(
        &loader,
        &report,
        global.output,
        output::list_style(global, list),
    )
}

/// Prints the table, and then each line that changes.
pub(super) async fn watch(
    global: &Global,
    names: &[String],
    list: &ListFlags,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let style = output::list_style(global, list);
    let mut printed = Printed::default();
    loop {
        let mut loader = Loader::new(&cluster);
        let report = report(&mut loader, global, names, list).await?;
        let text = output::format(&report, &loader.sentences(), global.output, style)?;
        output::print(&printed.update(text, global.output))?;
        tokio::select! {
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => {
                output::warn_incomplete(&loader);
                return Ok(output::code(&loader));
            }
        }
    }
}

async fn report(
    loader: &mut Loader<'_>,
    global: &Global,
    names: &[String],
    list: &ListFlags,
) -> Result<Report, Error> {
    if let Some(labels) = &list.selector {
        loader.selected = Selected::Pools(labels.clone());
    }
    let namespace = global.listed_namespace(&loader.cluster.namespace);
    let rows = if names.is_empty() {
        loader.pools(namespace).await?.listed("pools")?
    } else {
        named(loader, names).await?
    };
    // Claims of all namespaces wait for global pools.
    let waiting = loader.claims(None, ClaimRow::is_waiting).await?;
    let lines = pools(&rows, &waiting.as_ref());
    let pools = sort_by(lines, list.sort_by.as_deref())?;
    Ok(Report::PoolList { pools })
}

/// The pools with these names, in their order.
async fn named(loader: &mut Loader<'_>, names: &[String]) -> Result<Vec<PoolRow>, Error> {
    let mut rows = Vec::new();
    for name in names {
        rows.push(loader.find_pool(name).await?);
    }
    Ok(rows)
}

/// What `--watch` has printed.
#[derive(Default)]
struct Printed(Vec<String>);

impl Printed {
    /// Takes in the present output, and returns what has to be printed: a document that changed as
    /// a whole, of a table only the lines that changed.
    fn update(&mut self, text: String, format: Format) -> String {
        let is_document = matches!(format, Format::Json | Format::Yaml);
        let lines: Vec<String> = if is_document {
            vec![text]
        } else {
            text.lines().map(str::to_owned).collect()
        };
        let is_new = |line: &&String| !self.0.contains(line);
        let new: Vec<&String> = lines.iter().filter(is_new).collect();
        // A document ends with a line break, a line of a table does not.
        let changes = if is_document {
            new.into_iter().cloned().collect()
        } else {
            render::lines(&new)
        };
        self.0 = lines;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_prints_the_lines_that_changed() {
        let mut printed = Printed::default();
        let mut update = |text: &str| printed.update(text.to_owned(), Format::Table);
        assert_eq!(update("NAME FREE\na 1\nb 2\n"), "NAME FREE\na 1\nb 2\n");
        assert_eq!(update("NAME FREE\na 1\nb 3\n"), "b 3\n");
        assert_eq!(update("NAME FREE\na 1\nb 3\n"), "");
    }

    #[test]
    fn watch_prints_a_changed_document_as_a_whole() {
        let mut printed = Printed::default();
        let mut update = |text: &str| printed.update(text.to_owned(), Format::Json);
        assert_eq!(update("{\n1\n}\n"), "{\n1\n}\n");
        assert_eq!(update("{\n1\n}\n"), "");
        assert_eq!(update("{\n2\n}\n"), "{\n2\n}\n");
    }
}
