//! Pools of different scopes that can allocate the same address. From the specifications: the Go
//! provider writes no conditions.

use std::collections::BTreeSet;

use capi_ipam_api::{advice, conditions};
use capi_ipam_ip::{Extents, UsableBlocks};

use super::examination::Examination;
use super::names::first_names;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Subject, edit};
use crate::objects::{Kind, PoolRow};

/// A pool that allocates, with its addresses.
type Allocating<'a> = (&'a PoolRow, &'a UsableBlocks);

/// One finding for each group of pools that overlap with each other.
pub(super) fn overlaps(snapshot: &Snapshot) -> Examination {
    // An overlap of two pools is one, whatever other pools there are.
    let pools = snapshot.objects.pools();
    let mut known: Vec<Allocating<'_>> = Vec::new();
    for pool in &pools {
        if let Ok(usable) = &pool.usable
            && !is_refused(pool)
        {
            known.push((pool, usable));
        }
    }
    let findings = groups(&known).into_iter();
    Examination::complete(findings.filter_map(|group| finding(&group)))
        .with_unknown(snapshot.objects.lacking(&Kind::POOLS), !pools.is_empty())
}

/// Whether the network of a pool refuses it: then it does not allocate.
fn is_refused(pool: &PoolRow) -> bool {
    let network_problems = [
        conditions::NETWORK_NOT_FOUND,
        conditions::NETWORK_NOT_ALLOWED,
        conditions::NETWORK_NOT_READY,
        conditions::BLOCK_LENGTH_MISMATCH,
    ];
    let reason = pool.ready().and_then(|(_, reason)| reason);
    reason.is_some_and(|reason| network_problems.contains(&reason))
}

/// The connected groups of pools. A pool without overlap is in no group.
fn groups<'a>(known: &[Allocating<'a>]) -> Vec<Vec<Allocating<'a>>> {
    let mut extents = Extents::default();
    for (number, (_, usable)) in known.iter().enumerate() {
        extents.insert(usable, number);
    }
    let mut groups = Vec::new();
    let mut seen = BTreeSet::new();
    for start in 0..known.len() {
        let mut group = BTreeSet::new();
        let mut next = vec![start];
        while let Some(number) = next.pop() {
            if seen.insert(number) {
                group.insert(number);
                next.extend(neighbors(known, &extents, number));
            }
        }
        if group.len() > 1 {
            let members = group.into_iter();
            groups.push(members.filter_map(|it| known.get(it).copied()).collect());
        }
    }
    groups
}

/// The pools of other scopes that overlap with a pool.
fn neighbors(known: &[Allocating<'_>], extents: &Extents<usize>, number: usize) -> Vec<usize> {
    let Some((pool, usable)) = known.get(number) else {
        return Vec::new();
    };
    let mut near: Vec<usize> = extents.overlapping(usable).copied().collect();
    near.retain(|other| {
        known
            .get(*other)
            .is_some_and(|(other, theirs)| other.scope != pool.scope && usable.overlaps(theirs))
    });
    near
}

fn finding(members: &[Allocating<'_>]) -> Option<Finding> {
    let ((first, usable), others) = members.split_first()?;
    let names = others.iter().map(|(pool, _)| &pool.key);
    let shared = others
        .iter()
        .find_map(|(_, theirs)| usable.first_shared(theirs));
    let problem = advice::overlap_problem(shared, &first_names(names));
    let has_one_length = others
        .iter()
        .all(|(_, theirs)| theirs.length == usable.length);
    let repair = advice::overlap(&first.scope, has_one_length);
    let keys = members.iter().map(|(pool, _)| &pool.key);
    let subject = keys.fold(Subject::from(&first.key), Subject::of_pool);
    let finding = Check::PoolsOverlap.finding(subject, problem, repair);
    Some(finding.with_commands([edit(&first.key)]))
}
