//! CSV for programs and spreadsheets, made from the same values as `-o json`.
//!
//! A column is a field of the JSON output, and has its name as `--sort-by` has it: `pool.name`,
//! `counts.free`. So numbers are numbers, and times are those of RFC 3339. A field that JSON omits
//! is an empty cell, and one that may not be read, which is `null` in JSON, is `?`.

use csv::Writer;
use serde::Serialize;
use serde_json::{Value, json};

use super::findings::unchecked_problem;
use super::grid::clean;
use super::words::UNKNOWN;
use crate::model::{FindingList, ImportSummary, RegistryCheck, RegistryLine, Report};

const POOLS: [&str; 14] = [
    "pool.kind",
    "pool.namespace",
    "pool.name",
    "network",
    "counts.total",
    "counts.used",
    "counts.free",
    "counts.coolingDown",
    "counts.drained",
    "counts.reserved",
    "counts.outOfRange",
    "waiting",
    "ready",
    "reason",
];

const NETWORKS: [&str; 12] = [
    "name",
    "pools",
    "joining",
    "leaving",
    "total",
    "used",
    "free",
    "ipv4Length",
    "ipv6Length",
    "ready",
    "reason",
    "message",
];

const CLAIMS: [&str; 12] = [
    "namespace",
    "name",
    "pool.kind",
    "pool.namespace",
    "pool.name",
    "address",
    "state",
    "created",
    "reason",
    "message",
    "cluster",
    "machine",
];

const HOLDERS: [&str; 13] = [
    "address",
    "state",
    "pool.kind",
    "pool.namespace",
    "pool.name",
    "network",
    "claim",
    "machine",
    "cluster",
    "ipAddress",
    "reservation",
    "since",
    "until",
];

/// The addresses of `free` are texts, and no objects.
const ADDRESSES: [&str; 1] = ["address"];

/// The columns of findings, and of the checks that were not possible, which have a `reason`.
const FINDINGS: [&str; 8] = [
    "severity", "check", "object", "problem", "since", "repair", "commands", "reason",
];

const PARTS: [&str; 4] = ["part", "state", "detail", "problems"];

/// A row for each management cluster and for each network of a registry.
const REGISTRIES: [&str; 15] = [
    "name",
    "clusterID",
    "ready",
    "reason",
    "message",
    "cluster",
    "blocks",
    "lastSeen",
    "state",
    "network",
    "size",
    "held",
    "spare",
    "others",
    "conflicts",
];

/// A row for each block, and one for each problem.
const CHECK: [&str; 5] = ["block", "used", "state", "cluster", "problem"];

const RELEASE: [&str; 6] = ["record", "action", "network", "block", "holder", "used"];

const RESERVATION: [&str; 9] = [
    "action",
    "dryRun",
    "name",
    "address",
    "pool.kind",
    "pool.namespace",
    "pool.name",
    "network",
    "claim",
];

/// The columns of changes, with a row for each field, and of problems, which have an `object`.
const IMPORT: [&str; 11] = [
    "line",
    "action",
    "result",
    "kind",
    "namespace",
    "name",
    "field",
    "old",
    "new",
    "object",
    "problem",
];

/// The rows of a report as CSV (RFC 4180), with lines that end with a line feed.
pub(crate) fn csv(report: &Report, has_header: bool) -> Result<String, csv::Error> {
    let (columns, rows) = table(report);
    let mut writer = Writer::from_writer(Vec::new());
    if has_header {
        writer.write_record(columns)?;
    }
    for row in rows {
        writer.write_record(columns.iter().map(|column| cell(at(&row, column))))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| csv::Error::from(std::io::Error::other(error.to_string())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The columns, and the objects with their fields.
fn table(report: &Report) -> (&'static [&'static str], Vec<Value>) {
    match report {
        Report::PoolList { pools } => (&POOLS, values(pools)),
        Report::NetworkList { networks } => (&NETWORKS, values(networks)),
        Report::ClaimList { claims } => (&CLAIMS, values(claims)),
        Report::HolderList { holders, .. } => (&HOLDERS, values(holders.iter().flatten())),
        Report::FreeList { addresses, .. } => {
            let row = |address: &String| json!({ "address": address });
            (&ADDRESSES, addresses.iter().map(row).collect())
        }
        Report::FindingList(list) => (&FINDINGS, findings(list)),
        Report::StatusList { parts } => (&PARTS, values(parts)),
        Report::PoolDetails(pool) => {
            let all = [&pool.holders, &pool.out_of_range].into_iter().flatten();
            (&HOLDERS, values(all.flatten()))
        }
        Report::ReservationChange(change) => (&RESERVATION, values([change])),
        Report::RegistryList { registries } => (&REGISTRIES, of_registries(registries)),
        Report::RegistryCheck(check) => (&CHECK, of_check(check)),
        Report::RegistryRelease(release) => (&RELEASE, values(&release.changes)),
        Report::ImportSummary(summary) => (&IMPORT, import(summary)),
    }
}

fn values<'a, T: Serialize + 'a>(items: impl IntoIterator<Item = &'a T>) -> Vec<Value> {
    let value = |item| serde_json::to_value(item).unwrap_or_default();
    items.into_iter().map(value).collect()
}

fn findings(list: &FindingList) -> Vec<Value> {
    let mut rows = values(&list.findings);
    // A cell with several commands is one command line.
    for (row, finding) in rows.iter_mut().zip(&list.findings) {
        if !finding.commands.is_empty() {
            row["commands"] = json!(finding.commands.join(" && "));
        }
    }
    for skipped in &list.unchecked {
        rows.push(json!({
            "severity": "Unknown",
            "check": skipped.check,
            "problem": unchecked_problem(skipped),
            "reason": skipped.reason,
        }));
    }
    rows
}

/// A row for each management cluster and each network, or one for a registry without any.
fn of_registries(registries: &[RegistryLine]) -> Vec<Value> {
    let mut rows = Vec::new();
    for registry in registries {
        let mut row = serde_json::to_value(registry).unwrap_or_default();
        if let Some(fields) = row.as_object_mut() {
            fields.remove("clusters");
            fields.remove("networks");
        }
        let mut parts = values(&registry.clusters);
        parts.extend(values(&registry.networks));
        if parts.is_empty() {
            rows.push(row.clone());
        }
        for part in parts {
            rows.push(joined(&row, part));
        }
    }
    rows
}

/// A row for each block, and one for each problem.
fn of_check(check: &RegistryCheck) -> Vec<Value> {
    let mut rows = values(&check.blocks);
    for problem in &check.problems {
        rows.push(json!({ "problem": problem }));
    }
    rows
}

/// The fields of a row and those of a part of it.
fn joined(row: &Value, part: Value) -> Value {
    let mut row = row.clone();
    if let (Some(row), Value::Object(part)) = (row.as_object_mut(), part) {
        row.extend(part);
    }
    row
}

/// A row for each field of a change, and one for each problem.
fn import(summary: &ImportSummary) -> Vec<Value> {
    let mut rows = Vec::new();
    for change in &summary.changes {
        let row = serde_json::to_value(change).unwrap_or_default();
        if change.fields.is_empty() {
            rows.push(row.clone());
        }
        for field in values(&change.fields) {
            rows.push(joined(&row, field));
        }
    }
    rows.extend(values(&summary.problems));
    rows
}

/// The field of a row with a path such as `pool.name`.
fn at<'a>(row: &'a Value, path: &str) -> Option<&'a Value> {
    let mut found = row;
    for name in path.split('.') {
        found = found.get(name)?;
    }
    Some(found)
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::Null) => UNKNOWN.to_owned(),
        Some(Value::String(text)) => clean(text),
        Some(Value::Array(entries)) => {
            let texts: Vec<String> = entries.iter().map(|entry| cell(Some(entry))).collect();
            texts.join(" ")
        }
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use schemars::{JsonSchema, schema_for};

    use super::*;
    use crate::model::{
        CheckedBlock, ClaimLine, ClusterLine, FieldChange, Finding, Holder, ImportChange,
        ImportProblem, NetworkBlocksLine, NetworkLine, PartLine, PoolLine, PoolName, RecordChange,
        RecordProblem, RegistryLine, ReservationChange, Unchecked,
    };

    /// Whether the schema of a type has a field with this path.
    fn has_field(root: &Value, path: &str) -> bool {
        let mut schema = root;
        for name in path.split('.') {
            let Some(field) = schema.pointer(&format!("/properties/{name}")) else {
                return false;
            };
            // The type of an optional field is one of two.
            let reference = [&field["$ref"], &field["anyOf"][0]["$ref"]]
                .into_iter()
                .find_map(Value::as_str);
            schema = match reference {
                Some(reference) => root
                    .pointer(reference.trim_start_matches('#'))
                    .expect("a reference has a target"),
                None => field,
            };
        }
        true
    }

    fn schema<T: JsonSchema>() -> Value {
        schema_for!(T).to_value()
    }

    #[test]
    fn columns_are_fields_of_the_json_output() {
        let cases: [(&[&str], Vec<Value>); 11] = [
            (&POOLS, vec![schema::<PoolLine>()]),
            (&NETWORKS, vec![schema::<NetworkLine>()]),
            (&CLAIMS, vec![schema::<ClaimLine>()]),
            (&HOLDERS, vec![schema::<Holder>()]),
            (&FINDINGS, vec![schema::<Finding>(), schema::<Unchecked>()]),
            (&PARTS, vec![schema::<PartLine>()]),
            (&RESERVATION, vec![schema::<ReservationChange>()]),
            (
                &REGISTRIES,
                vec![
                    schema::<RegistryLine>(),
                    schema::<ClusterLine>(),
                    schema::<NetworkBlocksLine>(),
                ],
            ),
            (
                &CHECK,
                vec![schema::<CheckedBlock>(), schema::<RecordProblem>()],
            ),
            (&RELEASE, vec![schema::<RecordChange>()]),
            (
                &IMPORT,
                vec![
                    schema::<ImportChange>(),
                    schema::<FieldChange>(),
                    schema::<ImportProblem>(),
                ],
            ),
        ];
        for (columns, schemas) in cases {
            for column in columns {
                let is_known = schemas.iter().any(|schema| has_field(schema, column));
                assert!(is_known, "{column}");
            }
        }
    }

    #[test]
    fn absent_values_are_empty_and_unknown_ones_are_marked() {
        let line = PoolLine {
            pool: PoolName {
                kind: "GlobalInClusterIPPool".to_owned(),
                namespace: None,
                name: "a, \"b\"".to_owned(),
            },
            network: None,
            counts: None,
            waiting: None,
            ready: "True".to_owned(),
            reason: None,
        };
        let report = Report::PoolList { pools: vec![line] };
        assert_eq!(
            csv(&report, false).unwrap(),
            "GlobalInClusterIPPool,,\"a, \"\"b\"\"\",,,,,,,,,?,True,\n"
        );
    }
}
