//! `import` and `export`: pools and reservations of users as a file.
//!
//! 1. A file becomes [`Record`]s: [`table`] reads CSV, [`document`], [`schema`] and [`manifest`]
//!    JSON and YAML. What a kind does not have is a problem.
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
mod schema;
mod table;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use capi_ipam_api::{Pool, PoolKey, Scope, names};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use serde_json::Value;

pub(crate) use self::apply::import;
pub(crate) use self::export::export;
use crate::error::Error;
use crate::model::ImportProblem;

/// The label of objects that `import` creates: the name of the import.
const IMPORT_LABEL: &str = "ipam.cluster.x-k8s.io/import";

/// Labels and annotations that tools and the provider set: `import` does not read them, and
/// `export` does not write them.
const TEXTS_NOT_IMPORTED: [&str; 4] = [
    IMPORT_LABEL,
    LAST_APPLIED,
    names::MOVE_LABEL,
    names::MOVED_FROM_ANNOTATION,
];

/// The annotation in which `kubectl apply` stores the last version.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Labels or annotations.
type Texts = BTreeMap<String, String>;

/// An object of a file.
#[derive(Clone, Debug)]
struct Record {
    line: u64,
    entry: Entry,
    /// Values outside of their bounds. They matter only if the object has to be written.
    out_of_bounds: Vec<ImportProblem>,
}

#[derive(Clone, Debug)]
enum Entry {
    Pool(Box<WantedPool>),
    Reservation(Box<Wanted>),
}

/// A pool of a file.
#[derive(Clone, Debug)]
struct WantedPool {
    pool: Pool,
    /// The specification as it was read.
    spec: Value,
}

/// A reservation of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    pool: PoolKey,
    block: Block,
    /// The scope if the file states it.
    scope: Option<Scope>,
    claim: Option<NamespacedName>,
    labels: Texts,
    annotations: Texts,
}

/// The objects of a file, and what is wrong in it.
#[derive(Debug, Default)]
struct Parsed {
    records: Vec<Record>,
    problems: Vec<ImportProblem>,
    /// Fields that an import does not set, such as the status: the first line, and the number of
    /// objects that have it.
    not_imported: BTreeMap<String, (u64, u64)>,
    /// Whether the file is a table, which cannot state all fields of a pool.
    is_table: bool,
}

impl Parsed {
    fn add(&mut self, line: u64, entry: Result<Entry, Vec<String>>) {
        match entry {
            Ok(entry) => self.records.push(Record {
                line,
                entry,
                out_of_bounds: Vec::new(),
            }),
            Err(problems) => problems
                .into_iter()
                .for_each(|problem| self.problem(line, problem)),
        }
    }

    fn problem(&mut self, line: u64, problem: String) {
        self.problems.push(ImportProblem {
            line: Some(line),
            problem,
        });
    }

    /// Records that a field of an object is not imported.
    fn skip_field(&mut self, line: u64, path: &str) {
        let (_, count) = self
            .not_imported
            .entry(path.to_owned())
            .or_insert((line, 0));
        *count = count.saturating_add(1);
    }

    /// The blocks that the file reserves.
    fn reserved(&self) -> impl Iterator<Item = &Wanted> {
        self.records
            .iter()
            .filter_map(|record| match &record.entry {
                Entry::Reservation(wanted) => Some(wanted.as_ref()),
                Entry::Pool(_) => None,
            })
    }

    /// The pools of the file.
    fn pools(&self) -> impl Iterator<Item = &WantedPool> {
        self.records
            .iter()
            .filter_map(|record| match &record.entry {
                Entry::Pool(wanted) => Some(wanted.as_ref()),
                Entry::Reservation(_) => None,
            })
    }

    /// What the caller should know of fields that are not imported.
    fn warnings(&self) -> impl Iterator<Item = String> {
        self.not_imported.iter().map(|(path, (line, count))| {
            let more = count.saturating_sub(1);
            let more = if more > 0 {
                format!(" and {more} more objects")
            } else {
                String::new()
            };
            format!("line {line}{more}: {path} is not imported")
        })
    }
}

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
