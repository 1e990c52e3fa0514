//! CSV: one row is a pool or a reservation.

use capi_ipam_api::{IPReservation, InClusterKind, Pool, PoolKey, PoolSpec};
use csv::{ReaderBuilder, StringRecord, Trim, Writer};
use serde_json::{Map, Value, json};

use super::record::{Entry, Parsed, Texts, Wanted, WantedPool};
use crate::input::{kind_of, parse_block, parse_claim, short};
use crate::model::ImportProblem;

/// The kind of a reservation.
const RESERVATION: &str = "IPReservation";

/// The columns. A row of a pool uses those up to the last but two; pools of prefixes write their
/// prefixes in `addresses` and the length of allocated prefixes in `prefix`.
const COLUMNS: [&str; 12] = [
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

/// Parses a table. The first row names the columns, in any order. The separator is a comma or a
/// semicolon.
pub(super) fn parse(text: &str, namespace: &str) -> Parsed {
    let mut parsed = Parsed {
        is_table: true,
        ..Parsed::default()
    };
    let header = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    let separator = if header.contains(';') && !header.contains(',') {
        b';'
    } else {
        b','
    };
    let mut reader = ReaderBuilder::new()
        .delimiter(separator)
        .flexible(true)
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    let header = match reader.headers() {
        Ok(header) => header.clone(),
        Err(error) => {
            parsed.problem(1, error.to_string());
            return parsed;
        }
    };
    let first_line = header.position().map_or(1, csv::Position::line);
    if let Some(problem) = header_problem(&header) {
        parsed.problem(first_line, problem);
        return parsed;
    }
    let columns: Vec<Option<&str>> = header.iter().map(column).collect();
    for record in reader.into_records() {
        match record {
            Ok(record) => {
                let line = record.position().map_or(0, csv::Position::line);
                if record.iter().any(|cell| !cell.is_empty()) {
                    parsed.add(
                        line,
                        Row {
                            columns: &columns,
                            record: &record,
                        }
                        .entry(namespace),
                    );
                }
            }
            Err(error) => {
                let line = error.position().map(csv::Position::line);
                parsed.problems.push(ImportProblem {
                    line,
                    problem: error.to_string(),
                });
            }
        }
    }
    parsed
}

/// What is wrong with the row that names the columns.
fn header_problem(header: &StringRecord) -> Option<String> {
    let known = COLUMNS.join(", ");
    if header.iter().any(|name| name.contains('\t')) {
        return Some(
            "the columns are separated by tabs; separate them by commas or semicolons".to_owned(),
        );
    }
    let unknown: Vec<String> = header
        .iter()
        .filter(|name| column(name).is_none())
        .map(quoted)
        .collect();
    if !unknown.is_empty() {
        return Some(format!(
            "unknown columns: {}; known are {known}",
            unknown.join(", ")
        ));
    }
    let twice = header
        .iter()
        .enumerate()
        .find(|(index, name)| header.iter().take(*index).any(|it| is_same(it, name)));
    if let Some((_, name)) = twice {
        return Some(format!("the column {name} exists twice"));
    }
    let has_kind = header.iter().any(|name| column(name) == Some("kind"));
    (!has_kind).then(|| "the first row must name the columns, with the column kind".to_owned())
}

/// The name of a column for a message; an empty one in quotes.
fn quoted(name: &str) -> String {
    if name.is_empty() {
        "\"\" (an empty name)".to_owned()
    } else {
        name.to_owned()
    }
}

fn is_same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

fn column(name: &str) -> Option<&'static str> {
    COLUMNS.into_iter().find(|column| is_same(column, name))
}

struct Row<'a> {
    columns: &'a [Option<&'a str>],
    record: &'a StringRecord,
}

impl Row<'_> {
    /// A cell; `None` if it is empty or missing.
    fn cell(&self, column: &str) -> Option<&str> {
        let index = self.columns.iter().position(|name| *name == Some(column))?;
        self.record.get(index).filter(|cell| !cell.is_empty())
    }

    fn entry(&self, namespace: &str) -> Result<Entry, Vec<String>> {
        if self.record.len() > self.columns.len() {
            let (found, expected) = (self.record.len(), self.columns.len());
            return Err(vec![format!(
                "the row has {found} cells, and the table {expected} columns"
            )]);
        }
        let kind = self
            .cell("kind")
            .ok_or_else(|| vec!["kind: is empty".to_owned()])?;
        if kind.eq_ignore_ascii_case(RESERVATION) {
            let wanted = self
                .reservation(namespace)
                .map_err(|problem| vec![problem])?;
            return Ok(Entry::Reservation(Box::new(wanted)));
        }
        let kind = kind_of(kind)
            .ok_or_else(|| vec![format!("kind: {kind} is neither a pool nor {RESERVATION}")])?;
        let wanted = self.pool(kind, namespace)?;
        Ok(Entry::Pool(Box::new(wanted)))
    }

    /// Returns all problems of a row of a pool at once.
    fn pool(&self, kind: InClusterKind, namespace: &str) -> Result<WantedPool, Vec<String>> {
        let mut problems = self.unused_cells(kind);
        let Some(name) = self.cell("name") else {
            problems.push("name: is empty".to_owned());
            return Err(problems);
        };
        let spec = self.spec(kind, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let namespace = (!kind.is_global()).then(|| self.cell("namespace").unwrap_or(namespace));
        let metadata = json!({ "name": name, "namespace": namespace });
        let pool = serde_json::from_value(
            json!({ "kind": kind.name(), "metadata": metadata, "spec": spec }),
        );
        let pool = pool.map_err(|error| vec![error.to_string()])?;
        Ok(WantedPool { pool, spec })
    }

    /// The problems of cells that a pool of this kind does not have.
    fn unused_cells(&self, kind: InClusterKind) -> Vec<String> {
        let mut problems = Vec::new();
        for column in ["pool", "claim"] {
            if self.cell(column).is_some() {
                problems.push(format!("{column}: a pool has none"));
            }
        }
        if kind.is_global() && self.cell("namespace").is_some() {
            problems.push(format!("namespace: a {} has none", kind.name()));
        }
        problems
    }

    /// The specification of a pool. Adds what is wrong to the problems.
    fn spec(&self, kind: InClusterKind, problems: &mut Vec<String>) -> Value {
        let mut spec = Map::new();
        for (column, field) in fields(kind.has_prefixes()) {
            let Some(cell) = self.cell(column) else {
                continue;
            };
            match value(column, cell) {
                Ok(value) => drop(spec.insert(field.to_owned(), value)),
                Err(problem) => problems.push(format!("{column}: {problem}")),
            }
        }
        let is_used = |column: &str| fields(kind.has_prefixes()).any(|(known, _)| known == column);
        for column in [
            "allocateReservedIPAddresses",
            "addressReuseGracePeriodSeconds",
        ] {
            if self.cell(column).is_some() && !is_used(column) {
                problems.push(format!("{column}: a {} has none", kind.name()));
            }
        }
        // The field is required, although its cell can be empty.
        let list = if kind.has_prefixes() {
            "prefixes"
        } else {
            "addresses"
        };
        spec.entry(list).or_insert_with(|| json!([]));
        if !kind.has_prefixes() && self.cell("prefix").is_none() {
            problems.push("prefix: is empty".to_owned());
        }
        Value::Object(spec)
    }

    fn reservation(&self, namespace: &str) -> Result<Wanted, String> {
        let used = ["kind", "namespace", "addresses", "pool", "claim"];
        if let Some(column) = COLUMNS
            .iter()
            .find(|column| !used.contains(column) && self.cell(column).is_some())
        {
            return Err(format!("{column}: a reservation has none"));
        }
        let pool = self.cell("pool").ok_or("pool: is empty")?;
        let (kind, name) = pool.split_once('/').unwrap_or(("InClusterIPPool", pool));
        let kind = kind_of(kind).ok_or_else(|| format!("pool: {kind} is not a kind of pool"))?;
        let namespace = self.cell("namespace").unwrap_or(namespace);
        let address = self.cell("addresses").ok_or("addresses: is empty")?;
        let block = parse_block(address).map_err(|error| format!("addresses: {error}"))?;
        let claim = self
            .cell("claim")
            .map(|claim| parse_claim(claim, namespace))
            .transpose();
        let claim = claim.map_err(|error| format!("claim: {error}"))?;
        let pool = PoolKey::new(kind, (!kind.is_global()).then_some(namespace), name);
        let (labels, annotations) = (Texts::new(), Texts::new());
        Ok(Wanted {
            pool,
            block,
            scope: None,
            claim,
            labels,
            annotations,
        })
    }
}

/// The columns of a pool, and the fields of its specification.
fn fields(has_prefixes: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    let fields = [
        ("addresses", "addresses", "prefixes"),
        ("excludedAddresses", "excludedAddresses", "excludedPrefixes"),
        ("prefix", "prefix", "allocationPrefixLength"),
        ("gateway", "gateway", "gateway"),
        ("network", "network", "network"),
        (
            "allocateReservedIPAddresses",
            "allocateReservedIPAddresses",
            "",
        ),
        (
            "addressReuseGracePeriodSeconds",
            "addressReuseGracePeriodSeconds",
            "",
        ),
    ];
    let chosen = fields.map(|(column, addresses, prefixes)| {
        (column, if has_prefixes { prefixes } else { addresses })
    });
    chosen.into_iter().filter(|(_, field)| !field.is_empty())
}

/// The fields of a specification for which a table has no column, in alphabetical order.
pub(super) fn fields_without_column(spec: &PoolSpec) -> Vec<String> {
    let has_prefixes = matches!(spec, PoolSpec::Prefixes(_));
    let is_unknown = |name: &String| !fields(has_prefixes).any(|(_, field)| field == name);
    let spec = serde_json::to_value(spec).unwrap_or_default();
    let mut names: Vec<String> = spec
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .filter(|name| is_unknown(name))
        .cloned()
        .collect();
    names.sort_unstable();
    names
}

/// Whether the columns of a table have the same values for two specifications.
pub(super) fn has_columns_of(one: &PoolSpec, other: &PoolSpec) -> bool {
    let has_prefixes = matches!(one, PoolSpec::Prefixes(_));
    let [one, other] = [one, other].map(|spec| serde_json::to_value(spec).unwrap_or_default());
    fields(has_prefixes).all(|(_, field)| one.get(field) == other.get(field))
}

fn value(column: &str, cell: &str) -> Result<Value, String> {
    match column {
        "addresses" | "excludedAddresses" => {
            let entries: Vec<&str> = cell
                .split([',', ';', ' ', '\n', '\t'])
                .filter(|entry| !entry.is_empty())
                .collect();
            if entries
                .iter()
                .any(|entry| entry.starts_with('-') || entry.ends_with('-'))
            {
                return Err(format!(
                    "{cell}: blanks separate entries; write a range without blanks"
                ));
            }
            Ok(entries.into())
        }
        "prefix" => {
            let number = cell.strip_prefix('/').unwrap_or(cell);
            let value = number
                .parse::<i64>()
                .map_err(|_| format!("{cell} is not a number"))?;
            if value.to_string() == number {
                return Ok(value.into());
            }
            Err(format!("{cell} is not a prefix length; write {value}"))
        }
        "addressReuseGracePeriodSeconds" => cell
            .parse::<i32>()
            .map(Value::from)
            .map_err(|_| format!("{cell} is not a number of seconds")),
        "allocateReservedIPAddresses" => cell
            .to_lowercase()
            .parse::<bool>()
            .map(Value::from)
            .map_err(|_| format!("{cell} is neither true nor false")),
        _ => Ok(Value::from(cell)),
    }
}

/// Writes a table that [`parse`] reads.
pub(super) fn write(pools: &[Pool], reservations: &[IPReservation]) -> Result<String, csv::Error> {
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for pool in pools {
        let namespace = pool.metadata.namespace.clone().unwrap_or_default();
        let name = pool.metadata.name.clone().unwrap_or_default();
        let spec = serde_json::to_value(&pool.spec).unwrap_or_default();
        let mut cells = vec![pool.kind.name().to_owned(), namespace, name];
        let known: Vec<_> = fields(matches!(pool.spec, PoolSpec::Prefixes(_))).collect();
        for column in COLUMNS.iter().skip(cells.len()) {
            let field = known
                .iter()
                .find(|(name, _)| name == column)
                .map(|(_, field)| *field);
            cells.push(
                field
                    .and_then(|field| spec.get(field))
                    .map(cell)
                    .unwrap_or_default(),
            );
        }
        writer.write_record(&cells)?;
    }
    for reservation in reservations {
        let Ok((slot, pool)) = reservation.slot() else {
            continue;
        };
        let claim = reservation.spec.claim_ref.as_ref();
        let claim = claim
            .map(|claim| format!("{}/{}", claim.namespace, claim.name))
            .unwrap_or_default();
        let namespace = pool.namespace.as_deref().unwrap_or_default().to_owned();
        let cells = COLUMNS.map(|column| match column {
            "kind" => RESERVATION.to_owned(),
            "namespace" => namespace.clone(),
            "addresses" => slot.block.to_string(),
            "pool" => format!("{}/{}", short(pool.kind), pool.name),
            "claim" => claim.clone(),
            _ => String::new(),
        });
        writer.write_record(&cells)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| csv::Error::from(std::io::Error::other(error.to_string())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn cell(value: &Value) -> String {
    match value {
        Value::Array(entries) => entries
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" "),
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
