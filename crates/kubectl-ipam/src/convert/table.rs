//! The rows of a table: one is a pool, a reservation or a network.

use std::collections::HashSet;

use capi_ipam_api::{InClusterKind, Pool, PoolKey, names};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, parse_entry};
use csv::{ReaderBuilder, StringRecord, Trim};
use serde_json::{Map, Value, json};

use super::Problem;
use super::cells::value;
use super::header::{self, COLUMNS, Header};
use crate::input::{kind_of, parse_block, parse_claim};
use crate::spelling::nearest;

const RESERVATION: &str = "IPReservation";
const NETWORK: &str = "IPNetwork";

/// What a row describes.
#[derive(Debug)]
pub(super) enum Object {
    /// A network: its name and its manifest.
    Network(String, Value),
    /// A pool, and its manifest: it has only the fields of the row.
    Pool(Box<Pool>, Value),
    Reservation(Wanted),
}

/// A reservation of a user.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) pool: PoolKey,
    pub(super) block: Block,
    pub(super) claim: Option<NamespacedName>,
    /// The network of the pool, if the row names it.
    pub(super) network: Option<String>,
}

/// A table, and what is wrong in it.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The objects, with their lines.
    pub(super) rows: Vec<(u64, Object)>,
    pub(super) problems: Vec<Problem>,
    /// The columns that are ignored.
    pub(super) warnings: Vec<String>,
    /// The pools of rows with problems. Nothing is known of what refers to them.
    pub(super) unread_pools: HashSet<PoolKey>,
}

/// A row after the last one: without it, a quotation mark is open at the end of the table.
const END: &str = "\u{1}end";

/// Parses a table. The first row names the columns, in any order. The separator is a comma, a
/// semicolon or a tab.
pub(super) fn parse(text: &str, namespace: &str) -> Table {
    let mut table = Table::default();
    if text.trim().is_empty() {
        let problem = Problem::of_row(1, "the file is empty");
        table.problems.push(problem);
        return table;
    }
    let (separator, named) = header::separator(text);
    // An empty line keeps the numbers of the others.
    let text = format!("{}\n{END}\n", text.get(named..).unwrap_or_default());
    let mut lines = Lines::new(&text);
    let mut reader = ReaderBuilder::new()
        .delimiter(separator)
        .flexible(true)
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    let first_row = match reader.headers() {
        Ok(row) => row.clone(),
        Err(error) => {
            table.problems.push(Problem::of_row(1, error.to_string()));
            return table;
        }
    };
    let first_line = lines.of(first_row.position());
    if let Some(problem) = Row::open_quotation(&first_row) {
        table.problems.push(Problem::of_row(first_line, problem));
        return table;
    }
    let header = match Header::of(&first_row, first_line) {
        Ok(header) => header,
        Err(problems) => {
            table.problems = problems;
            return table;
        }
    };
    let columns = header.columns;
    let mut ignored = Vec::new();
    for (index, name) in header.ignored {
        let is_used = false;
        ignored.push(Ignored {
            index,
            name,
            is_used,
        });
    }
    for record in reader.into_records() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                let line = lines.of(error.position());
                let problem = Problem::of_row(line, error.to_string());
                table.problems.push(problem);
                continue;
            }
        };
        if record.len() == 1 && record.get(0) == Some(END) {
            break;
        }
        for column in &mut ignored {
            let cell = record.get(column.index).unwrap_or_default();
            column.is_used = column.is_used || !cell.is_empty();
        }
        if record.iter().all(str::is_empty) {
            continue;
        }
        let mut row = Row {
            line: lines.of(record.position()),
            columns: &columns,
            record: &record,
            problems: Vec::new(),
        };
        row.check_line_breaks(separator);
        match row.object(namespace) {
            Some(object) if row.problems.is_empty() => table.rows.push((row.line, object)),
            _ => table.unread_pools.extend(row.pool_key(namespace)),
        }
        table.problems.append(&mut row.problems);
    }
    table.warnings.extend(ignored_warning(&ignored));
    if table.rows.is_empty() && table.problems.is_empty() {
        let warning = "the table has no rows: no manifest is written";
        table.warnings.push(warning.to_owned());
    }
    table
}

/// Finds the lines of places in a text, in their order. The reader of CSV does not count empty lines.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u64,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            bytes: text.as_bytes(),
            at: 0,
            line: 1,
        }
    }

    /// The line of the first text at a place or after it.
    fn of(&mut self, position: Option<&csv::Position>) -> u64 {
        let place = position.map_or(0, csv::Position::byte);
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        while let Some(byte) = self.bytes.get(self.at) {
            let is_line_end = matches!(byte, b'\r' | b'\n');
            if self.at >= place && !is_line_end {
                break;
            }
            self.at = self.at.saturating_add(1);
            // `\r\n` is one end of a line.
            let is_first_half = *byte == b'\r' && self.bytes.get(self.at) == Some(&b'\n');
            if is_line_end && !is_first_half {
                self.line = self.line.saturating_add(1);
            }
        }
        self.line
    }
}

/// A column that is ignored.
struct Ignored {
    index: usize,
    name: String,
    /// Whether a row has a value in it.
    is_used: bool,
}

impl Ignored {
    /// The name, or the position of a column without a name: spreadsheets add such columns.
    fn text(&self) -> String {
        if self.name.is_empty() {
            format!("number {} (without a name)", self.index.saturating_add(1))
        } else {
            self.name.clone()
        }
    }
}

/// What the caller should know of columns that are ignored. One without a name and without values
/// contains nothing.
fn ignored_warning(ignored: &[Ignored]) -> Option<String> {
    let texts: Vec<String> = ignored
        .iter()
        .filter(|column| column.is_used || !column.name.is_empty())
        .map(Ignored::text)
        .collect();
    match texts.as_slice() {
        [] => None,
        [text] => Some(format!("the column {text} is ignored")),
        texts => Some(format!("the columns {} are ignored", texts.join(", "))),
    }
}

struct Row<'a> {
    line: u64,
    columns: &'a [Option<&'static str>],
    record: &'a StringRecord,
    problems: Vec<Problem>,
}

impl<'a> Row<'a> {
    /// A cell; `None` if it is empty or missing.
    fn cell(&self, column: &str) -> Option<&'a str> {
        let index = self.columns.iter().position(|name| *name == Some(column))?;
        self.record.get(index).filter(|cell| !cell.is_empty())
    }

    fn problem(&mut self, column: &'static str, text: impl Into<String>) {
        self.problems
            .push(Problem::of_cell(self.line, column, text));
    }

    /// Why a row is none: a quotation mark is open, so that it contains all that follows.
    fn open_quotation(record: &StringRecord) -> Option<&'static str> {
        let mut cells = record.iter();
        let is_open = cells.any(|cell| cell.contains(END));
        is_open.then_some("a quotation mark is not closed")
    }

    /// A cell with the rows that follow it is a problem, also in a column that is ignored: they would be
    /// missing.
    fn check_line_breaks(&mut self, separator: u8) {
        if let Some(problem) = Self::open_quotation(self.record) {
            self.problems.push(Problem::of_row(self.line, problem));
            return;
        }
        let text = "contains a line break: a quotation mark is missing or superfluous";
        for (index, cell) in self.record.iter().enumerate() {
            if !cell.contains(['\r', '\n']) {
                continue;
            }
            match self.columns.get(index).copied().flatten() {
                Some("addresses" | "excludedAddresses") => {}
                Some(column) => self.problem(column, text),
                None if self.has_a_row(cell, separator) => {
                    let text = format!("a cell of another column {text}");
                    self.problems.push(Problem::of_row(self.line, text));
                }
                None => {}
            }
        }
    }

    /// Whether a line of a cell has about as many separators as a row.
    fn has_a_row(&self, cell: &str, separator: u8) -> bool {
        let mut lines = cell.lines();
        lines.any(|line| {
            let separators = line.bytes().filter(|byte| *byte == separator).count();
            separators > 0 && separators.saturating_add(3) >= self.columns.len()
        })
    }

    /// A cell that must not be empty.
    fn required(&mut self, column: &'static str) -> Option<&'a str> {
        let cell = self.cell(column);
        if cell.is_none() {
            self.problem(column, "is empty");
        }
        cell
    }

    /// What the row describes. Records everything that is wrong with it.
    fn object(&mut self, namespace: &str) -> Option<Object> {
        if self.record.len() > self.columns.len() {
            let text = format!(
                "the row has {} cells, and the table {} columns",
                self.record.len(),
                self.columns.len()
            );
            self.problems.push(Problem::of_row(self.line, text));
            return None;
        }
        let kind = self.required("kind")?;
        if kind.eq_ignore_ascii_case(RESERVATION) {
            return self.reservation(namespace).map(Object::Reservation);
        }
        if kind.eq_ignore_ascii_case(NETWORK) {
            return self.network();
        }
        match kind_of(kind) {
            Some(kind) => self.pool(kind, namespace),
            None => {
                self.problem("kind", unknown_kind(kind));
                None
            }
        }
    }

    /// The pool that the row is about; `None` if it is about another object.
    fn pool_key(&self, namespace: &str) -> Option<PoolKey> {
        let kind = kind_of(self.cell("kind")?)?;
        let namespace = self.cell("namespace").unwrap_or(namespace);
        let namespace = (!kind.is_global()).then_some(namespace);
        Some(PoolKey::new(kind, namespace, self.cell("name")?))
    }

    /// A cell of a column that the object does not have is a problem.
    fn refuse_other_columns(&mut self, object: &str, used: &[&str]) {
        for column in COLUMNS {
            if self.cell(column).is_some() && !used.contains(&column) {
                self.problem(column, format!("{object} has none"));
            }
        }
    }

    fn network(&mut self) -> Option<Object> {
        self.refuse_other_columns("an IPNetwork", &["kind", "name", "excludedAddresses"]);
        let mut spec = Map::new();
        if let Some(excluded) = self.parsed("excludedAddresses") {
            for entry in excluded.as_array().into_iter().flatten() {
                let text = entry.as_str().unwrap_or_default();
                self.valid("excludedAddresses", parse_entry(text));
            }
            spec.insert("excluded".to_owned(), excluded);
        }
        let name = self.required("name")?;
        let manifest = manifest(NETWORK, &json!({ "name": name }), &spec);
        Some(Object::Network(name.to_owned(), manifest))
    }

    /// A cell as a value of a specification; `None` if it is empty or wrong.
    fn parsed(&mut self, column: &'static str) -> Option<Value> {
        self.valid(column, value(column, self.cell(column)?))
    }

    /// What a cell contains, unless it is wrong.
    fn valid<T>(&mut self, column: &'static str, read: Result<T, impl ToString>) -> Option<T> {
        if let Err(error) = &read {
            self.problem(column, error.to_string());
        }
        read.ok()
    }

    fn pool(&mut self, kind: InClusterKind, namespace: &str) -> Option<Object> {
        let mut used = vec!["kind", "name"];
        if !kind.is_global() {
            used.push("namespace");
        }
        used.extend(fields(kind.has_prefixes()).map(|(column, _)| column));
        let article = if kind.is_global() { "a" } else { "an" };
        self.refuse_other_columns(&format!("{article} {kind}"), &used);
        let mut spec = Map::new();
        for (column, field) in fields(kind.has_prefixes()) {
            if let Some(value) = self.parsed(column) {
                spec.insert(field.to_owned(), value);
            }
        }
        self.required("addresses");
        if !kind.has_prefixes() {
            self.required("prefix");
        }
        let name = self.required("name")?;
        let metadata = if kind.is_global() {
            json!({ "name": name })
        } else {
            let namespace = self.cell("namespace").unwrap_or(namespace);
            json!({ "name": name, "namespace": namespace })
        };
        let manifest = manifest(kind.name(), &metadata, &spec);
        match serde_json::from_value(manifest.clone()) {
            Ok(pool) => Some(Object::Pool(Box::new(pool), manifest)),
            Err(error) => {
                let text = error.to_string();
                self.problems.push(Problem::of_row(self.line, text));
                None
            }
        }
    }

    fn reservation(&mut self, namespace: &str) -> Option<Wanted> {
        let used = ["kind", "namespace", "addresses", "network", "pool", "claim"];
        self.refuse_other_columns("an IPReservation", &used);
        let namespace = self.cell("namespace").unwrap_or(namespace);
        let pool = self.reserved_pool(namespace);
        let has_prefixes = pool.as_ref().is_some_and(|pool| pool.kind.has_prefixes());
        let block = self.required("addresses");
        let block = block.and_then(|it| self.valid("addresses", parse_block(it, has_prefixes)));
        let claim = self.cell("claim");
        let claim = claim.and_then(|it| self.valid("claim", parse_claim(it, namespace)));
        Some(Wanted {
            pool: pool?,
            block: block?,
            claim,
            network: self.cell("network").map(str::to_owned),
        })
    }

    fn reserved_pool(&mut self, namespace: &str) -> Option<PoolKey> {
        let pool = self.required("pool")?;
        let (kind, name) = pool.split_once('/').unwrap_or(("InClusterIPPool", pool));
        let Some(kind) = kind_of(kind) else {
            self.problem("pool", format!("{kind} is not a kind of pool"));
            return None;
        };
        let namespace = (!kind.is_global()).then_some(namespace);
        Some(PoolKey::new(kind, namespace, name))
    }
}

/// What is wrong with a kind.
fn unknown_kind(kind: &str) -> String {
    let pools = InClusterKind::ALL.map(InClusterKind::name);
    let known = || pools.into_iter().chain([RESERVATION, NETWORK]);
    // `IPPool` or `prefix`.
    let has_part = |known: &&str| known.to_lowercase().contains(&kind.to_lowercase());
    let advice = match nearest(kind, known()).or_else(|| known().find(has_part)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("the kinds of pools are {}", pools.join(", ")),
    };
    format!("{kind} is neither a pool nor {RESERVATION} nor {NETWORK}; {advice}")
}

fn manifest(kind: &str, metadata: &Value, spec: &Map<String, Value>) -> Value {
    json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::POOL_VERSION),
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    })
}

/// The column of a field of a pool, such as `spec.prefixes[1]`; `None` for one without a column.
pub(super) fn column_of(field: &str, has_prefixes: bool) -> Option<&'static str> {
    let name = field.strip_prefix("spec.")?;
    let name = name.split(['[', '.']).next()?;
    let mut fields = fields(has_prefixes);
    let found = fields.find(|(_, field)| *field == name)?;
    Some(found.0)
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
