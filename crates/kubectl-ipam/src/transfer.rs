//! `import` and `export`: pools and reservations of users as a file.
//!
//! 1. A file becomes records ([`record`]): [`table`] reads CSV, [`document`], [`schema`] and
//!    [`manifest`] JSON and YAML. What a kind does not have is a problem.
//! 2. [`plan`] compares them with the objects of the cluster ([`existing`]), and returns the
//!    changes, or what is wrong.
//! 3. [`apply`] lets the API server check all changes, and then makes them. Nothing is written if
//!    anything is wrong.

mod apply;
mod document;
mod existing;
mod export;
#[cfg(any(test, feature = "laws"))]
pub mod laws;
mod manifest;
mod plan;
mod record;
mod schema;
mod table;

use std::io::Read;
use std::path::Path;

pub(crate) use self::apply::import;
pub(crate) use self::export::export;
use self::record::Parsed;
use crate::error::Error;

/// Parses a file. JSON and YAML are recognized by their first character or line.
fn parse(text: &str, namespace: &str) -> Parsed {
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
fn read(path: &Path) -> Result<String, Error> {
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

#[cfg(test)]
mod tests;
