//! The formats of the output, and the terminal.

use std::io::{ErrorKind, IsTerminal, Write};

use capi_ipam_controller::clock;

use crate::cli::{Format, Global, ListFlags};
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{Document, Report};
use crate::render::{Style, clean, lines, names, nothing, text};

/// Prints the warnings and the report of a command, and returns the exit code.
pub(crate) fn finish(
    loader: &Loader<'_>,
    report: &Report,
    format: Format,
    style: Style,
) -> Result<Code, Error> {
    // Before the output: a table should not be read without its warnings.
    warn_incomplete(loader);
    print_report(report, &loader.sentences(), format, style)?;
    let has_problems = report.has_problems();
    Ok(if has_problems {
        Code::Findings
    } else {
        code(loader)
    })
}

/// Prints the warnings of a command.
pub(crate) fn warn_incomplete(loader: &Loader<'_>) {
    for text in warnings(loader) {
        warn(&text);
    }
}

/// The warnings of a command, with the permissions that the caller lacks.
pub(crate) fn warnings(loader: &Loader<'_>) -> Vec<String> {
    let mut texts = loader.warnings.clone();
    for sentence in loader.sentences() {
        texts.push(format!("the output is incomplete: {sentence}"));
    }
    texts
}

/// The exit code of a command whose output was printed: output that lacks objects because of a
/// missing permission has its own.
pub(crate) fn code(loader: &Loader<'_>) -> Code {
    if loader.missing.is_empty() {
        Code::Ok
    } else {
        Code::Forbidden
    }
}

/// Whether a report is printed as text for people.
pub(crate) fn is_text(format: Format) -> bool {
    matches!(format, Format::Table | Format::Wide)
}

/// Prints a report. `missing` are the permissions that the caller lacks.
pub(crate) fn print_report(
    report: &Report,
    missing: &[String],
    format: Format,
    style: Style,
) -> Result<(), Error> {
    if format != Format::Json {
        let text = self::format(report, missing, format, style)?;
        // As kubectl does: what reads the standard output sees no line.
        if text.is_empty() {
            note(&nothing(report));
        }
        return print(&text);
    }
    // Without the whole text in memory.
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    let document = Document::new(report, missing);
    let written =
        serde_json::to_writer_pretty(&mut output, &document).map_err(std::io::Error::from);
    end(written
        .and_then(|()| output.write_all(b"\n"))
        .and_then(|()| output.flush()))
}

/// The text of a report.
pub(crate) fn format(
    report: &Report,
    missing: &[String],
    format: Format,
    style: Style,
) -> Result<String, Error> {
    let failed = |error: &dyn std::error::Error| Error::Output(error.to_string());
    let document = Document::new(report, missing);
    Ok(match format {
        Format::Table | Format::Wide => text(report, style),
        Format::Json => {
            serde_json::to_string_pretty(&document).map_err(|error| failed(&error))? + "\n"
        }
        Format::Yaml => {
            // By way of JSON: the tag of the enumeration becomes a field.
            let value = serde_json::to_value(&document).map_err(|error| failed(&error))?;
            serde_saphyr::to_string(&value).map_err(|error| failed(&error))?
        }
        Format::Name => lines(&names(report)),
    })
}

/// The style of a command that lists objects.
pub(crate) fn list_style(flags: &Global, list: &ListFlags) -> Style {
    Style {
        headers: !list.no_headers,
        ..style(flags)
    }
}

/// The style for the standard output.
pub(crate) fn style(flags: &Global) -> Style {
    let is_terminal = std::io::stdout().is_terminal();
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    Style {
        color: !flags.no_color
            && is_terminal
            && allows_color(&variable("NO_COLOR"), &variable("TERM")),
        wide: flags.output == Format::Wide,
        namespaces: flags.all_namespaces,
        headers: true,
        now: clock::timestamp(),
    }
}

/// Whether the variables `NO_COLOR` and `TERM` allow colors.
fn allows_color(no_color: &str, term: &str) -> bool {
    no_color.is_empty() && term != "dumb"
}

/// Writes to the standard output. A closed pipe is no error.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut output = std::io::stdout().lock();
    end(output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush()))
}

/// As [`print`]. Returns whether somebody still reads.
pub(crate) fn print_while_read(text: &str) -> Result<bool, Error> {
    let mut output = std::io::stdout().lock();
    let written = output.write_all(text.as_bytes());
    match written.and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::Output(error.to_string())),
    }
}

fn end(result: std::io::Result<()>) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Output(error.to_string()))
        }
        _ => Ok(()),
    }
}

/// Writes a line to the standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Writes a warning to the standard error. It can contain what others have written.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "warning: {}", clean(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_disable_colors() {
        assert!(allows_color("", "xterm-256color") && allows_color("", ""));
        assert!(!allows_color("1", "xterm-256color") && !allows_color("", "dumb"));
    }
}
