//! The first row of a table: the separator and the columns.

use std::collections::BTreeSet;

use capi_ipam_api::{IPPoolSpec, PrefixPoolSpec};
use csv::StringRecord;
use schemars::schema_for;
use serde_json::Value;

use super::Problem;
use crate::spelling::nearest;

/// The columns. Pools of prefixes write their prefixes in `addresses`, and the length of allocated
/// prefixes in `prefix`; networks write their excluded addresses in `excludedAddresses`.
pub(super) const COLUMNS: [&str; 12] = [
    "kind",
    "namespace",
    "name",
    "addresses",
    "excludedAddresses",
    "prefix",
    "gateway",
    "network",
    "allocateReservedIPAddresses",
    "addressReuseGracePeriodSeconds",
    "pool",
    "claim",
];

/// What the first row says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// The columns in their order; `None` for one that is ignored.
    pub(super) columns: Vec<Option<&'static str>>,
    /// The names of the columns that are ignored, with their positions.
    pub(super) ignored: Vec<(usize, String)>,
}

/// The separators of tables. Spreadsheets write each of them.
const SEPARATORS: [u8; 3] = [b'\t', b';', b','];

/// The separator of a table, and the length of the line that names it: `sep=;`, which Excel writes before
/// the first row. Without this line, it is the separator that is most frequent in the first row.
pub(super) fn separator(text: &str) -> (u8, usize) {
    let first = text.split_inclusive('\n').next().unwrap_or_default();
    let named = first.trim_matches(['\r', '\n', '"']).strip_prefix("sep=");
    if let Some(&[separator]) = named.map(str::as_bytes)
        && SEPARATORS.contains(&separator)
    {
        return (separator, first.trim_end_matches(['\r', '\n']).len());
    }
    let row = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    // Separators between quotation marks are parts of names.
    let unquoted: String = row.split('"').step_by(2).collect();
    let count = |separator: u8| unquoted.bytes().filter(|byte| *byte == separator).count();
    // Of equal counts, the last one is the maximum.
    let most = SEPARATORS.into_iter().max_by_key(|it| count(*it));
    (most.unwrap_or(b','), 0)
}

impl Header {
    /// Reads the first row. Fails with everything that is wrong with it.
    pub(super) fn of(row: &StringRecord, line: u64) -> Result<Self, Vec<Problem>> {
        let mut header = Self::default();
        let mut problems = Vec::new();
        let fields = field_names();
        for (index, name) in row.iter().enumerate() {
            let known = column(name);
            if known.is_some() && header.columns.contains(&known) {
                problems.push(format!("the column {name} exists twice"));
            }
            if known.is_none() {
                problems.extend(unknown_problem(name, &fields));
                header.ignored.push((index, name.to_owned()));
            }
            header.columns.push(known);
        }
        if !header.columns.contains(&Some("kind")) {
            let found: Vec<&str> = row.iter().collect();
            problems.insert(
                0,
                format!(
                    "the first row must name the columns, with the column kind, separated by commas, semicolons or \
                     tabs; it is: {}",
                    found.join(", ")
                ),
            );
        }
        if problems.is_empty() {
            return Ok(header);
        }
        let of_row = |text| Problem::of_row(line, text);
        Err(problems.into_iter().map(of_row).collect())
    }
}

fn column(name: &str) -> Option<&'static str> {
    COLUMNS
        .into_iter()
        .find(|column| column.eq_ignore_ascii_case(name))
}

/// Why a column that does not exist is not ignored: its values are probably meant for a pool.
fn unknown_problem(name: &str, fields: &BTreeSet<String>) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let mut fields = fields.iter();
    if let Some(field) = fields.find(|field| field.eq_ignore_ascii_case(name)) {
        return Some(format!(
            "column {name}: a table has no column for {field}; write a manifest of such a pool"
        ));
    }
    // `gateway address` or `prefix length`.
    let is_letter = |letter: char| letter.is_ascii_alphabetic();
    let first_word = name.split(|letter| !is_letter(letter)).next();
    let meant = first_word
        .and_then(column)
        .or_else(|| nearest(name, COLUMNS.into_iter()))?;
    Some(format!(
        "unknown column {name}; did you mean {meant}? If not, rename the column, so that it is ignored"
    ))
}

/// The fields of the specifications of pools.
fn field_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for schema in [schema_for!(IPPoolSpec), schema_for!(PrefixPoolSpec)] {
        if let Some(Value::Object(fields)) = schema.get("properties") {
            names.extend(fields.keys().cloned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(names: &[&str]) -> Result<Header, Vec<String>> {
        let found = Header::of(&StringRecord::from(names.to_vec()), 1);
        found.map_err(|problems| problems.into_iter().map(|it| it.text).collect())
    }

    #[test]
    fn separator_is_comma_semicolon_or_tab() {
        for (text, expected) in [
            ("kind,name\n", (b',', 0)),
            ("\nkind;name;notes, other\n", (b';', 0)),
            ("kind\tname\n", (b'\t', 0)),
            ("kind\n", (b',', 0)),
            ("kind;\"notes, more, and all\"\n", (b';', 0)),
            ("sep=;\r\nkind,name;addresses\n", (b';', 5)),
            ("sep=|\nkind,name\n", (b',', 0)),
        ] {
            assert_eq!(separator(text), expected, "{text:?}");
        }
    }

    #[test]
    fn other_columns_are_ignored_and_named() {
        let found = header(&["Kind", "comment", "NAME", "owner", ""]).unwrap();
        assert_eq!(
            found.columns,
            [Some("kind"), None, Some("name"), None, None]
        );
        let ignored: Vec<_> = found
            .ignored
            .iter()
            .map(|(_, name)| name.as_str())
            .collect();
        assert_eq!(ignored, ["comment", "owner", ""]);
        for name in ["vlan", "hostname", "site", "rack", "description", "ticket"] {
            assert!(header(&["kind", name]).is_ok(), "{name}");
        }
    }

    #[test]
    fn misspelt_column_is_a_problem() {
        for (name, meant) in [
            ("adresses", "addresses"),
            ("address", "addresses"),
            ("excluded addresses", "excludedAddresses"),
            ("excluded_addresses", "excludedAddresses"),
            ("names", "name"),
            ("gatway", "gateway"),
            ("gateway address", "gateway"),
            ("prefix length", "prefix"),
        ] {
            let problems = header(&["kind", name]).unwrap_err();
            let expected = format!("unknown column {name}; did you mean {meant}? If not, ");
            assert!(problems[0].starts_with(&expected), "{problems:?}");
        }
    }

    #[test]
    fn field_without_a_column_is_a_problem() {
        for (name, field) in [
            ("ranges", "ranges"),
            ("allowednamespaces", "allowedNamespaces"),
        ] {
            let problem = format!(
                "column {name}: a table has no column for {field}; write a manifest of such a pool"
            );
            assert_eq!(header(&["kind", name]), Err(vec![problem]));
        }
    }

    #[test]
    fn first_row_names_the_columns_once_and_the_kind() {
        assert_eq!(
            header(&["kind", "name", "Name"]),
            Err(vec!["the column Name exists twice".to_owned()])
        );
        let problems = header(&["web|10.0.0.1", "24"]).unwrap_err();
        assert!(
            problems[0].ends_with("it is: web|10.0.0.1, 24"),
            "{problems:?}"
        );
    }
}
