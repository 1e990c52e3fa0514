//! The slices of a pool.

use std::collections::HashMap;

use capi_ipam_api::{PoolKey, SliceOwner};
use capi_ipam_ip::{Block, Span, SpanSet, UsableBlocks};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::contents::Contents;
use super::finding::{Check, Finding, edit, full};
use crate::objects::{PoolRow, SliceRow};

/// A slice of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SliceLine {
    /// Name of the IPSlice.
    pub name: String,
    /// Addresses of the slice in CIDR notation.
    pub block: String,
    /// The owner.
    pub owner: SliceOwner,
    /// Number of addresses of the pool in the slice.
    pub total: u64,
    /// Number of these addresses that an IPAddress has; `null` if it is unknown.
    pub used: Option<u64>,
    /// Number of these addresses that are free; `null` if it is unknown.
    pub free: Option<u64>,
    /// Whether a user created the slice: the provider never returns it.
    pub pinned: bool,
    /// Since when no address of the slice is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub empty_since: Option<Timestamp>,
}

/// Describes the slices of a pool with these addresses, in their order.
pub(super) fn slice_lines(
    usable: &UsableBlocks,
    slices: &[SliceRow],
    contents: &Contents<'_>,
) -> Vec<SliceLine> {
    let used = contents.inside.known().map(|rows| {
        let mut numbers: Vec<u128> = rows
            .iter()
            .filter_map(|row| usable.number(row.block))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    });
    let allocatable = usable.allocatable();
    let taken = contents.held.as_ref().map(|held| {
        // In the order of their addresses.
        let held = held.iter().filter_map(|(block, _)| usable.number(*block));
        held.filter(|number| allocatable.contains(*number))
            .collect::<Vec<u128>>()
    });
    let mut rows: Vec<_> = slices
        .iter()
        .filter_map(|row| Some((row.block.as_ref().ok()?.1, row)))
        .collect();
    rows.sort_by_key(|(block, _)| (block.span().first(), block.length()));
    let line = |(block, row): (Block, &SliceRow)| {
        let span = usable.numbers_overlapping(block);
        let within = |set: &SpanSet| {
            span.map(|span| set.intersect(&SpanSet::from(span)).len())
                .unwrap_or_default()
        };
        let count = |numbers: &[u128]| {
            span.map(|span| count_within(numbers, span))
                .unwrap_or_default()
        };
        SliceLine {
            name: row.name.clone(),
            block: format!("{}/{}", block.base(), block.length()),
            owner: row.owner.clone(),
            total: capped(within(&usable.set)),
            used: used.as_ref().map(|used| capped(count(used))),
            free: taken
                .as_ref()
                .map(|taken| capped(within(&allocatable).saturating_sub(count(taken)))),
            pinned: row.is_pinned,
            empty_since: row.empty_since,
        }
    };
    rows.into_iter().map(line).collect()
}

/// How many of the sorted numbers are in a span.
fn count_within(numbers: &[u128], span: Span) -> u128 {
    let before = numbers.partition_point(|number| *number < span.first());
    let until = numbers.partition_point(|number| *number <= span.last());
    until.saturating_sub(before) as u128
}

fn capped(count: u128) -> u64 {
    u64::try_from(count)
        .unwrap_or(u64::MAX)
        .min(i64::MAX.unsigned_abs())
}

/// The slices that have no effect. The provider returns those that it assigned itself.
pub(super) fn without_effect(slices: &[SliceRow], pools: &[PoolRow]) -> Vec<Finding> {
    let pools: HashMap<&PoolKey, &PoolRow> = pools.iter().map(|pool| (&pool.key, pool)).collect();
    let mut findings = Vec::new();
    let mut effective: HashMap<&PoolKey, Vec<(Block, &SliceRow)>> = HashMap::new();
    for row in slices {
        let delete = format!("kubectl delete ipslices {}", row.name);
        let mut add = |problem: String, repair: String| {
            findings.push(Check::SliceWithoutEffect.finding(
                format!("ipslice {}", row.name),
                problem,
                repair,
            ));
        };
        let (key, block) = match &row.block {
            Ok((key, block)) => (key, *block),
            Err(problem) => {
                add(
                    problem.clone(),
                    format!("create it again with correct fields: {delete}"),
                );
                continue;
            }
        };
        match pools.get(key) {
            None if row.is_pinned => {
                add(
                    format!("{} does not exist", full(key)),
                    format!("create the pool, or delete the slice: {delete}"),
                );
            }
            Some(pool) if row.is_pinned && pool.spec.slices().is_none() => {
                let repair = format!(
                    "set spec.slices of the pool, {}, or delete the slice: {delete}",
                    edit(key)
                );
                add(format!("{} has no spec.slices", full(key)), repair);
            }
            Some(pool) => match &pool.usable {
                Ok(usable) if is_outside(usable, block) => {
                    let repair = format!(
                        "add the addresses to the pool, {}, or delete the slice: {delete}",
                        edit(key)
                    );
                    add(
                        format!("{} contains none of its addresses", full(key)),
                        repair,
                    );
                }
                Ok(_) => effective.entry(key).or_default().push((block, row)),
                // Another check reports the pool.
                Err(_) => {}
            },
            None => {}
        }
    }
    effective
        .into_values()
        .for_each(|rows| findings.extend(overlaps(rows)));
    findings
}

fn is_outside(usable: &UsableBlocks, block: Block) -> bool {
    let span = usable.numbers_overlapping(block);
    span.is_none_or(|span| usable.set.intersect(&SpanSet::from(span)).is_empty())
}

/// Slices of one pool that overlap with another one. Of two, the one that was created by hand, or
/// else later, is named.
fn overlaps(mut rows: Vec<(Block, &SliceRow)>) -> Vec<Finding> {
    rows.sort_by_key(|(block, _)| (block.span().first(), block.length()));
    let mut findings: Vec<Finding> = Vec::new();
    let mut enclosing: Vec<(Block, &SliceRow)> = Vec::new();
    for (block, row) in rows {
        while enclosing
            .pop_if(|(outer, _)| outer.span().last() < block.span().first())
            .is_some()
        {}
        if let Some((_, outer)) = enclosing.last() {
            let rank = |row: &SliceRow| (row.is_pinned, row.created);
            let (idle, other) = if rank(row) >= rank(outer) {
                (row, *outer)
            } else {
                (*outer, row)
            };
            let object = format!("ipslice {}", idle.name);
            if !findings.iter().any(|finding| finding.object == object) {
                let problem = format!("it overlaps with IPSlice {} of {}", other.name, other.owner);
                let repair = format!("delete one of them: kubectl delete ipslices {}", idle.name);
                findings.push(Check::SliceWithoutEffect.finding(object, problem, repair));
            }
        }
        enclosing.push((block, row));
    }
    findings
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::Pool;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_slice_without_effect_has_a_finding() {
        let pool = |name: &str, slices: serde_json::Value| {
            let spec = json!({ "addresses": ["10.0.0.0/24"], "prefix": 24, "slices": slices });
            let pool = json!({ "kind": "GlobalInClusterIPPool", "metadata": { "name": name }, "spec": spec });
            PoolRow::from(&serde_json::from_value::<Pool>(pool).unwrap())
        };
        let pools = [
            pool("a", json!({ "size": 16, "per": "Namespace" })),
            pool("plain", serde_json::Value::Null),
        ];
        let slice = |name: &str, scope: &str, block: &str, assigned: Option<&str>| {
            let owner = json!({ "kind": "Namespace", "name": "x" });
            let spec =
                json!({ "scope": scope, "block": block, "owner": owner, "assignedAt": assigned });
            SliceRow::from(
                serde_json::from_value::<capi_ipam_api::IPSlice>(
                    json!({ "metadata": { "name": name }, "spec": spec }),
                )
                .unwrap(),
            )
        };
        let rows = [
            slice(
                "g.a.10.0.0.0-28",
                "g.a",
                "10.0.0.0/28",
                Some("2026-01-02T03:04:05Z"),
            ),
            slice("g.a.10.0.0.0-27", "g.a", "10.0.0.0/27", None),
            slice("g.a.10.0.0.32-28", "g.a", "10.0.0.32/28", None),
            slice("g.a.10.1.0.0-28", "g.a", "10.1.0.0/28", None),
            slice("wrong", "g.a", "10.0.0.64/28", None),
            slice("g.none.10.0.0.0-28", "g.none", "10.0.0.0/28", None),
            slice(
                "g.none.10.0.0.16-28",
                "g.none",
                "10.0.0.16/28",
                Some("2026-01-02T03:04:05Z"),
            ),
            slice("g.plain.10.0.0.0-28", "g.plain", "10.0.0.0/28", None),
        ];
        let mut found: Vec<_> = without_effect(&rows, &pools)
            .into_iter()
            .map(|it| (it.object, it.problem))
            .collect();
        found.sort();
        let expected = [
            (
                "ipslice g.a.10.0.0.0-27",
                "it overlaps with IPSlice g.a.10.0.0.0-28",
            ),
            (
                "ipslice g.a.10.1.0.0-28",
                "GlobalInClusterIPPool a contains none of its addresses",
            ),
            (
                "ipslice g.none.10.0.0.0-28",
                "GlobalInClusterIPPool none does not exist",
            ),
            (
                "ipslice g.plain.10.0.0.0-28",
                "GlobalInClusterIPPool plain has no spec.slices",
            ),
            ("ipslice wrong", "metadata.name: wrong does not match"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for ((object, problem), (expected, text)) in found.iter().zip(expected) {
            assert!(
                object == expected && problem.starts_with(text),
                "{object}: {problem}"
            );
        }
    }
}
