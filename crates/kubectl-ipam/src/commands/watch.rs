//! `--watch`: a list, and then what changes in it, until Ctrl-C.

use std::collections::HashSet;
use std::time::Duration;

use capi_ipam_controller::clock;
use serde::Serialize;

use crate::cli::{Format, Global};
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::Report;
use crate::output;
use crate::render::Style;

/// Time between two reads.
const INTERVAL: Duration = Duration::from_secs(2);

/// What a command has read.
pub(super) struct Reading {
    pub(super) report: Report,
    /// The permissions that the caller lacks, as sentences.
    pub(super) missing: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) code: Code,
}

impl Reading {
    pub(super) fn of(loader: &Loader<'_>, report: Report) -> Self {
        Self {
            report,
            missing: loader.sentences(),
            warnings: output::warnings(loader),
            code: output::code(loader),
        }
    }
}

/// Prints what a command reads: once, or again and again until Ctrl-C. Returns the exit code of the
/// last read.
pub(super) async fn print(
    global: &Global,
    style: Style,
    watch: bool,
    read: impl AsyncFn() -> Result<Reading, Error>,
) -> Result<Code, Error> {
    if !watch {
        let reading = read().await?;
        reading.warnings.iter().for_each(|text| output::warn(text));
        output::print_report(&reading.report, &reading.missing, global.output, now(style))?;
        return Ok(reading.code);
    }
    let mut code = Code::Ok;
    // Before the first read: otherwise Ctrl-C would end the program in the middle of a line.
    tokio::select! {
        ended = print_changes(global.output, style, read, &mut code) => ended?,
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(code)
}

/// The style with the time of the API server, which is known after a read.
fn now(style: Style) -> Style {
    Style {
        now: clock::timestamp(),
        ..style
    }
}

/// Reads and prints until nobody reads the output.
async fn print_changes(
    format: Format,
    style: Style,
    read: impl AsyncFn() -> Result<Reading, Error>,
    code: &mut Code,
) -> Result<(), Error> {
    let mut printed = Printed::default();
    loop {
        let reading = match read().await {
            Ok(reading) => reading,
            Err(error) => {
                if !printed.is_first() {
                    output::warn("the watch has ended; the output above can be outdated");
                }
                return Err(error);
            }
        };
        *code = reading.code;
        for text in printed.new_warnings(&reading.warnings) {
            output::warn(text);
        }
        let text = printed.update(&reading, format, now(style))?;
        if !output::print_while_read(&text)? {
            return Ok(());
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// What a watch has printed.
#[derive(Default)]
struct Printed {
    /// The rows of the list, or the whole document, in JSON.
    contents: Option<HashSet<String>>,
    warnings: Vec<String>,
}

impl Printed {
    fn is_first(&self) -> bool {
        self.contents.is_none()
    }

    /// The warnings that the last read did not have.
    fn new_warnings<'a>(&mut self, warnings: &'a [String]) -> Vec<&'a String> {
        let mut new = Vec::new();
        for text in warnings {
            if !self.warnings.contains(text) {
                new.push(text);
            }
        }
        self.warnings = warnings.to_vec();
        new
    }

    /// Takes in what was read, and returns what has to be printed: the rows that changed, or the whole
    /// document if something changed.
    fn update(&mut self, reading: &Reading, format: Format, style: Style) -> Result<String, Error> {
        let before = self.contents.take().unwrap_or_default();
        let text = output::format(&reading.report, &reading.missing, format, style)?;
        let has_rows = !matches!(format, Format::Json | Format::Yaml);
        let (Report::ClaimList { claims }, true) = (&reading.report, has_rows) else {
            let content = json(&(&reading.report, &reading.missing))?;
            let is_printed = before.contains(&content);
            self.contents = Some([content].into());
            return Ok(if is_printed { String::new() } else { text });
        };
        let mut rows = Vec::new();
        for claim in claims {
            rows.push(json(claim)?);
        }
        let lines: Vec<&str> = text.lines().collect();
        let header = lines.len().saturating_sub(rows.len());
        let mut changes: Vec<&str> = Vec::new();
        if before.is_empty() {
            changes.extend(lines.iter().take(header));
        }
        for (row, line) in rows.iter().zip(lines.iter().skip(header)) {
            if !before.contains(row) {
                changes.push(line);
            }
        }
        self.contents = Some(rows.into_iter().collect());
        Ok(crate::render::lines(&changes))
    }
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Output(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ClaimLine, ClaimState, Fact, PoolName};

    fn style() -> Style {
        Style {
            color: false,
            wide: false,
            namespaces: false,
            headers: true,
            now: "2026-01-05T03:04:05Z".parse().unwrap(),
        }
    }

    fn reading(report: Report) -> Reading {
        Reading {
            report,
            missing: Vec::new(),
            warnings: Vec::new(),
            code: Code::Ok,
        }
    }

    fn claims(waiting: &[(&str, &str)]) -> Reading {
        let line = |(name, reason): &(&str, &str)| ClaimLine {
            namespace: "a".to_owned(),
            name: (*name).to_owned(),
            pool: PoolName {
                kind: "InClusterIPPool".to_owned(),
                namespace: Some("a".to_owned()),
                name: "web".to_owned(),
            },
            address: Fact::Absent,
            state: ClaimState::Waiting,
            created: None,
            reason: Some((*reason).to_owned()),
            message: None,
            cluster: None,
            item: None,
            machine: None,
        };
        reading(Report::ClaimList {
            claims: waiting.iter().map(line).collect(),
        })
    }

    #[test]
    fn watch_prints_the_rows_that_changed() {
        let mut printed = Printed::default();
        let mut update = |waiting: &[(&str, &str)]| {
            let text = printed
                .update(&claims(waiting), Format::Table, style())
                .unwrap();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(update(&[]).is_empty(), "nothing exists yet");
        let first = update(&[("one", "A"), ("two", "A")]);
        assert_eq!(first.len(), 3, "the header and two rows: {first:?}");
        assert!(update(&[("one", "A"), ("two", "A")]).is_empty());
        let changed = update(&[("one", "A"), ("two", "B")]);
        assert_eq!(changed.len(), 1, "{changed:?}");
        assert!(
            changed[0].contains("two") && changed[0].contains('B'),
            "{changed:?}"
        );
        assert_eq!(update(&[("new", "A"), ("one", "A"), ("two", "B")]).len(), 1);
    }

    #[test]
    fn watch_prints_a_changed_document_as_a_whole() {
        let mut printed = Printed::default();
        let mut update = |reason| {
            printed
                .update(&claims(&[("one", reason)]), Format::Json, style())
                .unwrap()
        };
        let first = update("A");
        assert!(first.starts_with('{'), "{first}");
        assert_eq!(update("A"), "");
        let second = update("B");
        assert!(second.starts_with('{') && second != first, "{second}");
    }

    #[test]
    fn watch_repeats_no_warning() {
        let mut printed = Printed::default();
        let warnings = ["a".to_owned(), "b".to_owned()];
        assert_eq!(printed.new_warnings(&warnings[..1]), ["a"]);
        assert_eq!(printed.new_warnings(&warnings), ["b"]);
    }
}
