//! The file of an import: its text, and the format of it.

use std::io::Read;
use std::path::Path;

use super::record::Parsed;
use super::{manifest, table};
use crate::error::Error;

/// Parses a file. JSON and YAML are recognized by their first character or line.
pub(super) fn parse(text: &str, namespace: &str) -> Parsed {
    let text = text.trim_start_matches('\u{feff}');
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'));
    let is_manifest = first
        .is_some_and(|line| line.starts_with(['{', '[']) || line == "---" || line.contains(':'));
    if is_manifest {
        manifest::parse(text, namespace)
    } else {
        table::parse(text, namespace)
    }
}

/// Reads a file, or the standard input for `-`.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    let failed = |error: std::io::Error| Error::File {
        path: path.display().to_string(),
        reason: error.to_string(),
    };
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map_err(failed)?;
    } else {
        bytes = std::fs::read(path).map_err(failed)?;
    }
    String::from_utf8(bytes).map_err(|_| Error::File {
        path: path.display().to_string(),
        reason: "it is not a text in UTF-8; a spreadsheet has to be saved as CSV UTF-8".to_owned(),
    })
}
