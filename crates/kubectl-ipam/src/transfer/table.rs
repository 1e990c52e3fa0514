//! CSV: one row is a pool or a reservation.

use capi_ipam_api::{IPReservation, InClusterKind, Pool, PoolKey, PoolSpec, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use csv::{ReaderBuilder, StringRecord, Trim, Writer};
use serde_json::{Map, Value, json};

use super::cells::{cell, value};
use super::header::{self, COLUMNS, Header};
use super::partial::text_problems;
use super::record::{Entry, Parsed, RESERVATION, Texts, Wanted, WantedPool};
use super::schema::unknown_kind;
use crate::input::{kind_of, parse_block, parse_claim, short};

/// Parses a table. The first row names the columns, in any order. The separator is a comma, a
/// semicolon or a tab.
pub(super) fn parse(text: &str, namespace: &str) -> Parsed {
    let mut parsed = Parsed {
        is_table: true,
        ..Parsed::default()
    };
    let mut reader = ReaderBuilder::new()
        .delimiter(header::separator(text))
        .flexible(true)
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    let first_row = match reader.headers() {
        Ok(row) => row.clone(),
        Err(error) => {
            parsed.problem(1, error.to_string());
            return parsed;
        }
    };
    let first_line = first_row.position().map_or(1, csv::Position::line);
    let header = match Header::of(&first_row) {
        Ok(header) => header,
        Err(problems) => {
            for problem in problems {
                parsed.problem(first_line, problem);
            }
            return parsed;
        }
    };
    let columns = header.columns;
    let mut ignored: Vec<Ignored> = header.ignored.into_iter().map(Ignored::from).collect();
    for record in reader.into_records() {
        match record {
            Ok(record) => {
                let line = record.position().map_or(0, csv::Position::line);
                for column in &mut ignored {
                    let cell = record.get(column.index).unwrap_or_default();
                    column.is_used = column.is_used || !cell.is_empty();
                }
                if record.iter().any(|cell| !cell.is_empty()) {
                    let row = Row {
                        columns: &columns,
                        record: &record,
                    };
                    let entry = row.entry(namespace);
                    if entry.is_err() {
                        parsed.unread_pools.extend(row.pool_key(namespace));
                    }
                    parsed.add(line, entry);
                }
            }
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                parsed.problem(line, error.to_string());
            }
        }
    }
    parsed.warnings.extend(ignored_warning(&ignored));
    parsed
}

/// A column that is ignored.
struct Ignored {
    index: usize,
    name: String,
    /// Whether a row has a value in it.
    is_used: bool,
}

impl From<(usize, String)> for Ignored {
    fn from((index, name): (usize, String)) -> Self {
        Self {
            index,
            name,
            is_used: false,
        }
    }
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
    columns: &'a [Option<&'static str>],
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
            let wanted = self.reservation(namespace)?;
            return Ok(Entry::Reservation(Box::new(wanted)));
        }
        let Some(kind) = kind_of(kind) else {
            return Err(vec![format!("kind: {}", unknown_kind(kind))]);
        };
        let wanted = self.pool(kind, namespace)?;
        Ok(Entry::Pool(Box::new(wanted)))
    }

    /// The pool that the row is about; `None` if it is about another object.
    fn pool_key(&self, namespace: &str) -> Option<PoolKey> {
        let kind = kind_of(self.cell("kind")?)?;
        let namespace = self.cell("namespace").unwrap_or(namespace);
        let namespace = (!kind.is_global()).then_some(namespace);
        Some(PoolKey::new(kind, namespace, self.cell("name")?))
    }

    /// Returns all problems of a row of a pool at once.
    fn pool(&self, kind: InClusterKind, namespace: &str) -> Result<WantedPool, Vec<String>> {
        let mut problems = self.unused_cells(kind);
        let name = self.cell("name");
        if name.is_none() {
            problems.push("name: is empty".to_owned());
        }
        let spec = self.spec(kind, &mut problems);
        if !problems.is_empty() {
            let of_texts = text_problems(kind.name(), &spec);
            problems.extend(of_texts.iter().map(ToString::to_string));
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

    /// Returns all problems of a row of a reservation at once.
    fn reservation(&self, namespace: &str) -> Result<Wanted, Vec<String>> {
        let mut problems = Vec::new();
        let used = ["kind", "namespace", "addresses", "pool", "claim"];
        for column in COLUMNS {
            if !used.contains(&column) && self.cell(column).is_some() {
                problems.push(format!("{column}: a reservation has none"));
            }
        }
        let namespace = self.cell("namespace").unwrap_or(namespace);
        let pool = self.reserved_pool(namespace);
        let has_prefixes = pool.as_ref().is_ok_and(|pool| pool.kind.has_prefixes());
        let block = self.reserved_block(has_prefixes);
        let claim = self.promised_claim(namespace);
        match (pool, block, claim) {
            (Ok(pool), Ok(block), Ok(claim)) if problems.is_empty() => Ok(Wanted {
                pool,
                block,
                scope: None,
                claim,
                labels: Texts::new(),
                annotations: Texts::new(),
            }),
            (pool, block, claim) => {
                problems.extend(pool.err());
                problems.extend(block.err());
                problems.extend(claim.err());
                Err(problems)
            }
        }
    }

    fn reserved_pool(&self, namespace: &str) -> Result<PoolKey, String> {
        let pool = self.cell("pool").ok_or("pool: is empty")?;
        let (kind, name) = pool.split_once('/').unwrap_or(("InClusterIPPool", pool));
        let Some(kind) = kind_of(kind) else {
            return Err(format!("pool: {kind} is not a kind of pool"));
        };
        let namespace = (!kind.is_global()).then_some(namespace);
        Ok(PoolKey::new(kind, namespace, name))
    }

    fn reserved_block(&self, is_prefix: bool) -> Result<Block, String> {
        let address = self.cell("addresses").ok_or("addresses: is empty")?;
        parse_block(address, is_prefix).map_err(|error| format!("addresses: {error}"))
    }

    fn promised_claim(&self, namespace: &str) -> Result<Option<NamespacedName>, String> {
        let Some(claim) = self.cell("claim") else {
            return Ok(None);
        };
        match parse_claim(claim, namespace) {
            Ok(claim) => Ok(Some(claim)),
            Err(error) => Err(format!("claim: {error}")),
        }
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
    let columns = fields(matches!(spec, PoolSpec::Prefixes(_)));
    let known: Vec<&str> = columns.map(|(_, field)| field).collect();
    let mut names = Vec::new();
    if let Ok(Value::Object(spec)) = serde_json::to_value(spec) {
        for name in spec.keys() {
            if !known.contains(&name.as_str()) {
                names.push(name.clone());
            }
        }
    }
    names.sort_unstable();
    names
}

/// Whether the columns of a table have the same values for two specifications.
pub(super) fn has_columns_of(one: &PoolSpec, other: &PoolSpec) -> bool {
    let has_prefixes = matches!(one, PoolSpec::Prefixes(_));
    let [one, other] = [one, other].map(|spec| serde_json::to_value(spec).unwrap_or_default());
    fields(has_prefixes).all(|(_, field)| one.get(field) == other.get(field))
}

/// Writes a table that [`parse`] reads.
pub(super) fn write(pools: &[Pool], reservations: &[IPReservation]) -> Result<String, csv::Error> {
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for pool in pools {
        writer.write_record(pool_cells(pool))?;
    }
    for reservation in reservations {
        if let Ok((slot, pool)) = reservation.slot() {
            writer.write_record(reservation_cells(reservation, &slot, &pool))?;
        }
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| csv::Error::from(std::io::Error::other(error.to_string())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The row of a pool.
fn pool_cells(pool: &Pool) -> Vec<String> {
    let namespace = pool.metadata.namespace.clone().unwrap_or_default();
    let name = pool.metadata.name.clone().unwrap_or_default();
    let spec = serde_json::to_value(&pool.spec).unwrap_or_default();
    let mut cells = vec![pool.kind.name().to_owned(), namespace, name];
    let known: Vec<_> = fields(matches!(pool.spec, PoolSpec::Prefixes(_))).collect();
    for column in COLUMNS.iter().skip(cells.len()) {
        let mut text = String::new();
        if let Some((_, field)) = known.iter().find(|(name, _)| name == column)
            && let Some(value) = spec.get(field)
        {
            text = cell(value);
        }
        cells.push(text);
    }
    cells
}

/// The row of a reservation.
fn reservation_cells(reservation: &IPReservation, slot: &Slot, pool: &PoolKey) -> Vec<String> {
    let mut cells = Vec::new();
    for column in COLUMNS {
        let text = match column {
            "kind" => RESERVATION.to_owned(),
            "namespace" => pool.namespace.as_deref().unwrap_or_default().to_owned(),
            "addresses" => slot.block.to_string(),
            "pool" => format!("{}/{}", short(pool.kind), pool.name),
            "claim" => match &reservation.spec.claim_ref {
                Some(claim) => format!("{}/{}", claim.namespace, claim.name),
                None => String::new(),
            },
            _ => String::new(),
        };
        cells.push(text);
    }
    cells
}
