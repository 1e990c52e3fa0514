//! `import` and `export`: pools and reservations of users as a file.
//!
//! A file becomes [`Record`]s ([`table`], [`manifest`]). [`plan`] compares them with the objects of the cluster, and
//! returns the changes or what is wrong. Nothing is written if a line is wrong.

mod apply;
mod export;
mod manifest;
mod plan;
mod table;

use std::io::Read;
use std::path::Path;

use capi_ipam::api::{Pool, PoolKey, Scope};
use capi_ipam_ip::Block;

pub(crate) use self::apply::import;
pub(crate) use self::export::export;
use crate::error::Error;
use crate::model::ImportProblem;
use crate::objects::Key;

/// An object of a file.
#[derive(Clone, Debug)]
struct Record {
    line: u64,
    entry: Entry,
}

#[derive(Clone, Debug)]
enum Entry {
    Pool(Box<Pool>),
    Reservation(Wanted),
}

/// A reservation of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    pool: PoolKey,
    block: Block,
    /// The scope if the file states it; otherwise that of the pool.
    scope: Option<Scope>,
    claim: Option<Key>,
}

/// The objects of a file, and what is wrong in it.
#[derive(Debug, Default)]
struct Parsed {
    records: Vec<Record>,
    problems: Vec<ImportProblem>,
    /// Whether the file is a table, which cannot state all fields of a pool.
    is_table: bool,
}

impl Parsed {
    fn add(&mut self, line: u64, entry: Result<Entry, Vec<String>>) {
        match entry {
            Ok(entry) => self.records.push(Record { line, entry }),
            Err(problems) => {
                let problem = |problem| ImportProblem { line: Some(line), problem };
                self.problems.extend(problems.into_iter().map(problem));
            }
        }
    }
}

/// Parses a file. JSON and YAML are recognized by their first character or line.
fn parse(text: &str, namespace: &str) -> Parsed {
    let text = text.trim_start_matches('\u{feff}');
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let is_manifest = first.is_some_and(|line| line.starts_with(['{', '[']) || line == "---" || line.contains(':'));
    if is_manifest { manifest::parse(text, namespace) } else { table::parse(text, namespace) }
}

/// Reads a file, or the standard input for `-`.
fn read(path: &Path) -> Result<String, Error> {
    let failed = |error: std::io::Error| Error::File { path: path.display().to_string(), reason: error.to_string() };
    if path.as_os_str() != "-" {
        return std::fs::read_to_string(path).map_err(failed);
    }
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
