//! The slices of a pool.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::{PoolKey, Scope, SliceOwner};
use capi_ipam_ip::{Block, SpanSet};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::contents::{Contents, capped};
use super::fact::list;
use super::finding::{Check, Finding, Subject, edit};
use crate::objects::{Kind, Objects, PoolRow, SliceRow};

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
    pub empty_since: Option<Timestamp>,
}

/// The slices of a pool that contains these addresses, in their order; `None` if they may not be read.
pub(super) fn pool_slices(
    pool: &PoolRow,
    objects: &Objects,
    contents: &Contents<'_>,
) -> Option<Vec<SliceLine>> {
    let mut rows = Vec::new();
    for row in objects.slices.iter() {
        if let Ok((Scope::Pool(key), block)) = &row.place
            && *key == pool.key
        {
            rows.push((*block, row));
        }
    }
    rows.sort_by_key(|(block, _)| (block.span().first(), block.length()));
    list(slice_lines(&rows, contents), objects.has(&[Kind::Slice]))
}

/// Describes slices of a pool.
fn slice_lines(rows: &[(Block, &SliceRow)], contents: &Contents<'_>) -> Vec<SliceLine> {
    let Some(usable) = contents.usable() else {
        return Vec::new();
    };
    let allocatable = usable.allocatable();
    let inside = contents.inside.iter();
    let used: BTreeSet<u128> = inside.filter_map(|row| usable.number(row.block)).collect();
    let held = contents.held.iter().flatten();
    let mut taken: BTreeSet<u128> = held
        .filter_map(|(block, _)| usable.number(*block))
        .collect();
    taken.retain(|number| allocatable.contains(*number));
    let mut lines = Vec::new();
    for (block, row) in rows {
        let span = usable.numbers_overlapping(*block);
        let slice = span.map(SpanSet::from).unwrap_or_default();
        let all = allocatable.intersect(&slice).len();
        let count = |numbers: &BTreeSet<u128>| match span {
            Some(span) => numbers.range(span.first()..=span.last()).count() as u128,
            None => 0,
        };
        let free = || capped(all.saturating_sub(count(&taken)));
        lines.push(SliceLine {
            name: row.name.clone(),
            block: format!("{}/{}", block.base(), block.length()),
            owner: row.owner.clone(),
            total: capped(usable.set.intersect(&slice).len()),
            used: contents.has_addresses.then(|| capped(count(&used))),
            free: contents.held.is_some().then(free),
            pinned: row.is_pinned,
            empty_since: row.empty_since,
        });
    }
    lines
}

/// The slices that have no effect. The provider returns those that it assigned itself.
pub(super) fn without_effect(objects: &Objects) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut effective: BTreeMap<&PoolKey, Vec<(Block, &SliceRow)>> = BTreeMap::new();
    for row in objects.slices.sorted() {
        let delete = format!("kubectl delete ipslices {}", row.name);
        let mut add = |problem: String, repair: String| {
            findings.push(Check::SliceWithoutEffect.finding(subject(row), problem, repair));
        };
        let (key, block) = match &row.place {
            Ok((Scope::Pool(key), block)) => (key, *block),
            // The management cluster has taken the block from a registry.
            Ok((Scope::Network(_), _)) => continue,
            Err(problem) => {
                add(
                    problem.clone(),
                    format!("create it again with correct fields: {delete}"),
                );
                continue;
            }
        };
        match objects.pool(key) {
            None if row.is_pinned => {
                add(
                    format!("{key} does not exist"),
                    format!("create the pool, or delete the slice: {delete}"),
                );
            }
            Some(pool) if row.is_pinned && pool.spec.slices().is_none() => {
                let repair = format!(
                    "set spec.slices of the pool, {}, or delete the slice: {delete}",
                    edit(key)
                );
                add(format!("{key} has no spec.slices"), repair);
            }
            Some(pool) => match &pool.usable {
                Ok(usable) if !usable.overlaps_block(block) => {
                    let repair = format!(
                        "add the addresses to the pool, {}, or delete the slice: {delete}",
                        edit(key)
                    );
                    add(format!("{key} contains none of its addresses"), repair);
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

fn subject(row: &SliceRow) -> Subject {
    let subject = Subject::from(format!("ipslice {}", row.name));
    match &row.place {
        Ok((Scope::Pool(pool), _)) => subject.of_pool(pool),
        Ok((Scope::Network(_), _)) | Err(_) => subject,
    }
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
                findings.push(Check::SliceWithoutEffect.finding(subject(idle), problem, repair));
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
        let mut objects = Objects::of(
            [
                pool("a", json!({ "size": 16, "per": "Namespace" })),
                pool("plain", serde_json::Value::Null),
            ],
            [],
            [],
            [],
        );
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
        rows.into_iter().for_each(|row| objects.add_slice(row));
        let mut found: Vec<_> = without_effect(&objects)
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
