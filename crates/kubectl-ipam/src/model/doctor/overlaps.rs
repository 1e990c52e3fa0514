//! Pools of different scopes that can allocate the same address. From the specifications: the Go
//! provider writes no conditions.

use std::collections::BTreeSet;

use capi_ipam_api::{advice, conditions};
use capi_ipam_ip::{Extents, UsableBlocks};

use super::examination::Examination;
use super::names::first_names;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Subject, edit, full};
use crate::objects::{Kind, PoolRow};

/// A pool that allocates, with its addresses.
type Allocating<'a> = (&'a PoolRow, &'a UsableBlocks);

/// One finding for each group of pools that overlap with each other.
pub(super) fn overlaps(snapshot: &Snapshot) -> Examination {
    // An overlap of two pools is one, whatever other pools there are.
    let pools = snapshot.objects.pools();
    let known: Vec<Allocating<'_>> = pools
        .iter()
        .copied()
        .filter(|pool| !is_refused(pool))
        .filter_map(|pool| Some((pool, pool.usable.as_ref().ok()?)))
        .collect();
    let findings = groups(&known).into_iter().filter_map(|group| {
        let members: Vec<Allocating<'_>> = group
            .iter()
            .filter_map(|number| known.get(*number).copied())
            .collect();
        finding(&members)
    });
    Examination::complete(findings)
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

/// The connected groups of pools, by their numbers. A pool without overlap is in no group.
fn groups(known: &[Allocating<'_>]) -> Vec<BTreeSet<usize>> {
    let mut extents = Extents::default();
    for (number, (_, usable)) in known.iter().enumerate() {
        extents.insert(usable, number);
    }
    let mut groups: Vec<BTreeSet<usize>> = Vec::new();
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
            groups.push(group);
        }
    }
    groups
}

/// The pools of other scopes that overlap with a pool.
fn neighbors(known: &[Allocating<'_>], extents: &Extents<usize>, number: usize) -> Vec<usize> {
    let Some((pool, usable)) = known.get(number) else {
        return Vec::new();
    };
    let near: BTreeSet<usize> = extents.overlapping(usable).copied().collect();
    let overlaps = |other: &usize| {
        known
            .get(*other)
            .is_some_and(|(other, theirs)| other.scope != pool.scope && usable.overlaps(theirs))
    };
    near.into_iter().filter(overlaps).collect()
}

fn finding(members: &[Allocating<'_>]) -> Option<Finding> {
    let ((first, usable), others) = members.split_first()?;
    let names = others.iter().map(|(pool, _)| full(&pool.key));
    let shared = others
        .iter()
        .find_map(|(_, theirs)| usable.first_shared(theirs));
    let problem = advice::overlap_problem(shared, &first_names(names));
    let has_one_length = others
        .iter()
        .all(|(_, theirs)| theirs.length == usable.length);
    let repair = advice::overlap(&first.scope, has_one_length).to_owned();
    let keys = members.iter().map(|(pool, _)| &pool.key);
    let subject = keys.fold(Subject::from(full(&first.key)), Subject::of_pool);
    Some(
        Check::PoolsOverlap
            .finding(subject, problem, repair)
            .with_commands(vec![edit(&first.key)]),
    )
}
