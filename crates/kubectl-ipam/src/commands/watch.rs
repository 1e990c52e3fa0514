//! `--watch`: the output of a command, and then what changes in it, until Ctrl-C.

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

/// Time between two reads of a list.
pub(super) const LIST_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two reads of everything that `doctor` checks.
pub(super) const DIAGNOSIS_INTERVAL: Duration = Duration::from_secs(5);

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

/// Prints what a command reads: once, or with an interval until Ctrl-C. Returns the exit code of
/// the last read.
pub(super) async fn print(
    global: &Global,
    style: Style,
    interval: Option<Duration>,
    read: impl AsyncFn() -> Result<Reading, Error>,
) -> Result<Code, Error> {
    let Some(interval) = interval else {
        let reading = read().await?;
        reading.warnings.iter().for_each(|text| output::warn(text));
        output::print_report(&reading.report, &reading.missing, global.output, now(style))?;
        return Ok(reading.code);
    };
    let mut code = Code::Ok;
    // Before the first read: otherwise Ctrl-C would end the program in the middle of a line.
    tokio::select! {
        ended = print_changes(global.output, style, interval, read, &mut code) => ended?,
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
    interval: Duration,
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
        tokio::time::sleep(interval).await;
    }
}

/// What a watch has printed.
#[derive(Default)]
struct Printed {
    /// The rows of a list, or the whole report, in JSON without ages.
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

    /// Takes in what was read, and returns what has to be printed: of a list the rows that changed,
    /// otherwise everything if something changed.
    fn update(&mut self, reading: &Reading, format: Format, style: Style) -> Result<String, Error> {
        let is_first = self.is_first();
        let before = self.contents.take().unwrap_or_default();
        let text = output::format(&reading.report, &reading.missing, format, style)?;
        let has_rows = !matches!(format, Format::Json | Format::Yaml);
        let rows = if has_rows {
            rows(&reading.report)?
        } else {
            None
        };
        let lines: Vec<&str> = text.lines().collect();
        let header = rows
            .as_ref()
            .and_then(|rows| lines.len().checked_sub(rows.len()));
        // Without rows, or if a row has several lines, everything is printed.
        let (Some(rows), Some(header @ 0..=1)) = (rows, header) else {
            let content = json(&(&reading.report, &reading.missing))?;
            let content = without_ages(&content);
            let is_printed = before.contains(&content);
            self.contents = Some([content].into());
            return Ok(match (is_printed, is_first || !output::is_text(format)) {
                (true, _) => String::new(),
                (false, true) => text,
                (false, false) => format!("\n{}\n{text}", style.now),
            });
        };
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

/// The rows of a list, each as JSON; `None` if a report is no list.
fn rows(report: &Report) -> Result<Option<Vec<String>>, Error> {
    Ok(Some(match report {
        Report::PoolList { pools } => all_json(pools)?,
        Report::NetworkList { networks } => all_json(networks)?,
        Report::ClaimList { claims } => all_json(claims)?,
        _ => return Ok(None),
    }))
}

fn all_json<T: Serialize>(items: &[T]) -> Result<Vec<String>, Error> {
    items.iter().map(json).collect()
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Output(error.to_string()))
}

/// A text without the ages such as `2s ago`, which change with each read.
fn without_ages(text: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in text.split(' ') {
        if word.starts_with("ago") {
            words.pop();
        }
        words.push(word);
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Part, PartLine, PartState, PoolLine, PoolName};

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

    fn pools(waiting: &[(&str, u64)]) -> Reading {
        let line = |(name, waiting): &(&str, u64)| PoolLine {
            pool: PoolName {
                kind: "InClusterIPPool".to_owned(),
                namespace: Some("a".to_owned()),
                name: (*name).to_owned(),
            },
            network: None,
            counts: None,
            waiting: Some(*waiting),
            ready: "True".to_owned(),
            reason: None,
        };
        reading(Report::PoolList {
            pools: waiting.iter().map(line).collect(),
        })
    }

    fn status(detail: &str) -> Reading {
        let line = PartLine {
            part: Part::Lease,
            state: PartState::Ok,
            detail: detail.to_owned(),
            problems: Vec::new(),
        };
        reading(Report::StatusList { parts: vec![line] })
    }

    #[test]
    fn watch_prints_the_rows_that_changed() {
        let mut printed = Printed::default();
        let mut update = |waiting: &[(&str, u64)]| {
            let text = printed
                .update(&pools(waiting), Format::Table, style())
                .unwrap();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(update(&[]).is_empty(), "nothing exists yet");
        let first = update(&[("one", 0), ("two", 0)]);
        assert_eq!(first.len(), 3, "the header and two rows: {first:?}");
        assert!(update(&[("one", 0), ("two", 0)]).is_empty());
        let changed = update(&[("one", 0), ("two", 7)]);
        assert_eq!(changed.len(), 1, "{changed:?}");
        assert!(
            changed[0].contains("two") && changed[0].contains('7'),
            "{changed:?}"
        );
        assert_eq!(update(&[("new", 0), ("one", 0), ("two", 7)]).len(), 1);
    }

    #[test]
    fn watch_prints_a_changed_document_as_a_whole() {
        let mut printed = Printed::default();
        let mut update = |waiting| {
            printed
                .update(&pools(&[("one", waiting)]), Format::Json, style())
                .unwrap()
        };
        let first = update(0);
        assert!(first.starts_with('{'), "{first}");
        assert_eq!(update(0), "");
        let second = update(1);
        assert!(second.starts_with('{') && second != first, "{second}");
    }

    #[test]
    fn watch_does_not_repeat_a_report_whose_ages_grow() {
        let mut printed = Printed::default();
        let mut update = |detail: &str| {
            printed
                .update(&status(detail), Format::Table, style())
                .unwrap()
        };
        assert!(update("pod-1, renewed 2s ago").starts_with("PART"));
        assert_eq!(update("pod-1, renewed 4s ago"), "");
        let changed = update("pod-2, renewed 1s ago");
        assert!(
            changed.starts_with("\n2026-01-05T03:04:05Z\nPART"),
            "{changed}"
        );
    }

    #[test]
    fn watch_repeats_no_warning() {
        let mut printed = Printed::default();
        let warnings = ["a".to_owned(), "b".to_owned()];
        assert_eq!(printed.new_warnings(&warnings[..1]), ["a"]);
        assert_eq!(printed.new_warnings(&warnings), ["b"]);
    }
}
