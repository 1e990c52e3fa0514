//! `convert`: a table of pools, reservations and networks as manifests.
//!
//! [`file`] reads the text, [`header`] the first row, [`table`] and [`cells`] the other ones, and [`check`]
//! compares the rows with each other. No cluster is read: the API server and the webhooks check the
//! manifests when they are applied.

mod cells;
mod check;
pub(crate) mod file;
mod header;
pub(crate) mod metal3;
mod table;

use std::fmt;

use serde_json::{Value, json};

/// The label of the objects of a table: its name.
pub(crate) const SOURCE_LABEL: &str = "ipam.cluster.x-k8s.io/source";

/// The manifests of a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Networks, then pools, then reservations: each object after those that it refers to.
    pub objects: Vec<Value>,
    /// What is left out of the manifests, and what they assume.
    pub warnings: Vec<String>,
}

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Number of the line in the file.
    pub line: u64,
    /// The column; `None` if the problem is one of the whole row.
    pub column: Option<&'static str>,
    /// What is wrong.
    pub text: String,
}

impl Problem {
    fn of_row(line: u64, text: impl Into<String>) -> Self {
        Self {
            line,
            column: None,
            text: text.into(),
        }
    }

    fn of_cell(line: u64, column: &'static str, text: impl Into<String>) -> Self {
        Self {
            line,
            column: Some(column),
            text: text.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}", self.line)?;
        if let Some(column) = self.column {
            write!(formatter, ", column {column}")?;
        }
        write!(formatter, ": {}", self.text)
    }
}

/// Converts a table. Pools without a namespace get `namespace`, and all objects the label of the
/// source, if it has a name.
///
/// # Errors
/// Everything that is wrong with the table, by line.
pub fn convert(
    text: &str,
    namespace: &str,
    source: Option<&str>,
) -> Result<Converted, Vec<Problem>> {
    let table = table::parse(text, namespace);
    let mut problems = table.problems;
    let checked = check::check(table.rows, &table.unread_pools);
    problems.extend(checked.problems);
    if !problems.is_empty() {
        problems.sort();
        return Err(problems);
    }
    let mut objects = checked.objects;
    if let Some(source) = source {
        for object in &mut objects {
            set_source(object, source);
        }
    }
    let mut warnings = table.warnings;
    warnings.extend(checked.warnings);
    Ok(Converted { objects, warnings })
}

/// Sets the label of the source, by which manifests are pruned or deleted.
pub(crate) fn set_source(object: &mut Value, source: &str) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        metadata.insert("labels".to_owned(), json!({ SOURCE_LABEL: source }));
    }
}

#[cfg(test)]
mod tests;
