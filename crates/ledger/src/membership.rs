//! Pools that join or leave a network, and the networks themselves: queries of the ledger.

use std::collections::BTreeMap;

use capi_ipam_ip::{Family, Span, SpanSet};

use super::pool::PoolEntry;
use super::scope_rule::StatusRecord;
use super::usage::{Availability, ScopeEntry};
use super::{Ledger, NetworkCounts, PoolInfo, PoolKey};
use capi_ipam_api::{MemberPhase, NetworkRefusal, NetworkView, Pool, PoolNetwork, Scope, Slot};

/// Whether a manager has written the status of a pool, and what it states about the network of the
/// pool.
pub(super) fn status_record(pool: &Pool) -> (bool, Option<StatusRecord>) {
    let Some(status) = &pool.status else {
        return (false, None);
    };
    let record = status.network.as_ref().map(|network| {
        let name = network.name.as_str().into();
        match network.phase {
            MemberPhase::Joining | MemberPhase::Member => StatusRecord::Member(name),
            MemberPhase::Leaving => StatusRecord::Left(name),
        }
    });
    (status.observed_generation.is_some(), record)
}

/// A reservation in a scope to which its pool no longer belongs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Misplaced {
    /// The pool of the reservation.
    pub pool: PoolKey,
    /// The reserved address.
    pub slot: Slot,
    /// The scope of the pool.
    pub scope: Scope,
    /// The uid of the reservation.
    pub uid: String,
    /// Whether an IPAddress has the address.
    pub is_in_use: bool,
}

impl Ledger {
    /// At most `limit` reservations that have to be moved to the scope of their pool. Pools that
    /// are paused, deleted, undecodable or refused by their network keep their reservations.
    pub fn misplaced(&self, limit: usize) -> Vec<Misplaced> {
        let mut found = Vec::new();
        for (pool, entry) in &self.pools {
            let Some(info) = &entry.info else {
                continue;
            };
            let is_kept = info.paused || info.deleting || info.is_undecodable;
            if is_kept || info.network_problem.is_some() {
                continue;
            }
            for (scope, _) in &entry.holds {
                if *scope == info.scope {
                    continue;
                }
                self.find_misplaced(pool, scope, &info.scope, limit, &mut found);
                if found.len() >= limit {
                    return found;
                }
            }
        }
        found
    }

    /// Finds the reservations of a pool in a scope that have to be moved to another one.
    fn find_misplaced(
        &self,
        pool: &PoolKey,
        from: &Scope,
        to: &Scope,
        limit: usize,
        found: &mut Vec<Misplaced>,
    ) {
        for (block, usage) in self.usage_in(from) {
            let Some(reservation) = &usage.reservation else {
                continue;
            };
            if reservation.pool != *pool {
                continue;
            }
            let slot_in = |scope: &Scope| Slot {
                scope: scope.clone(),
                block,
            };
            let target = self.usage(&slot_in(to));
            found.push(Misplaced {
                pool: pool.clone(),
                slot: slot_in(from),
                scope: to.clone(),
                uid: reservation.uid.to_string(),
                is_in_use: target.is_some_and(|usage| !usage.owners.is_empty()),
            });
            if found.len() >= limit {
                return;
            }
        }
    }

    /// The network to which a pool belongs, or which it leaves.
    pub fn pool_network(&self, pool: &PoolKey) -> Option<PoolNetwork> {
        let entry = self.pools.get(pool)?;
        let scope = entry.scope(pool);
        // What it still holds elsewhere, and the network in which that is.
        let (mut remaining, mut left) = (0_usize, None);
        for (other, count) in &entry.holds {
            if *other != scope {
                remaining = remaining.saturating_add(*count);
                left = left.or(other.network());
            }
        }
        let (name, phase) = match (scope.network(), left) {
            (Some(name), _) if remaining == 0 => (name, MemberPhase::Member),
            (Some(name), _) => (name, MemberPhase::Joining),
            (None, Some(name)) => (name, MemberPhase::Leaving),
            (None, None) => return None,
        };
        Some(PoolNetwork {
            name: name.to_owned(),
            phase,
            remaining: i64::try_from(remaining).unwrap_or(i64::MAX),
        })
    }

    /// Whether a pool waits until a network is initialized.
    pub fn lacks_block_length(&self, name: &str) -> bool {
        self.networks.awaiting(name).next().is_some()
    }

    /// The state of a network. It depends on the objects only, and not on the order in which they
    /// were observed: all managers write the same status.
    pub fn network(&self, name: &str) -> NetworkView {
        let scope = Scope::Network(name.into());
        let empty = ScopeEntry::default();
        let entry = self.scopes.get(&scope).unwrap_or(&empty);
        let mut view = NetworkView {
            members: self.members_of(&scope, entry),
            ..NetworkView::default()
        };
        let mut reserved = LengthCounts::new();
        for (block, usage) in entry.usage.iter() {
            let Some(reservation) = &usage.reservation else {
                continue;
            };
            view.reservations = view.reservations.saturating_add(1);
            if !reservation.is_manual() {
                let count = reserved
                    .entry((block.family(), block.length()))
                    .or_default();
                *count = count.saturating_add(1);
            }
        }
        view.keeps_lengths = view.reservations > 0;
        let mut infos: Vec<&PoolInfo> = Vec::new();
        for key in &entry.members {
            let (Some(pool), Some(info)) = (self.pools.get(key), self.info(key)) else {
                continue;
            };
            if needs_network(pool, info) {
                view.needed_by = view.needed_by.saturating_add(1);
            }
            let has_other_length = matches!(
                info.network_problem,
                Some(NetworkRefusal::LengthMismatch { .. })
            );
            view.keeps_lengths |= !has_other_length;
            infos.push(info);
        }
        for family in [Family::V4, Family::V6] {
            if let Some(length) = most_frequent(&reserved, family) {
                view.reserved_lengths.set(family, length);
            }
            if let Some(length) = self.oldest_length(name, &entry.members, family) {
                view.oldest_lengths.set(family, length);
            }
            count(&mut view, family, &infos, entry);
        }
        view
    }

    /// The counts of all networks, from the status that the watch has reported.
    pub fn network_counts(&self) -> Vec<NetworkCounts> {
        self.networks.counts()
    }
}

/// How many reservations there are of each family and length.
type LengthCounts = BTreeMap<(Family, u8), usize>;

/// The length that most blocks of a family have; of several such lengths the shortest one.
fn most_frequent(counts: &LengthCounts, family: Family) -> Option<u8> {
    let of_family = counts.iter().filter(|((of, _), _)| *of == family);
    of_family
        .max_by_key(|((_, length), count)| (**count, std::cmp::Reverse(*length)))
        .map(|((_, length), _)| *length)
}

/// Whether a network has to exist as long as this pool belongs to it.
fn needs_network(pool: &PoolEntry, info: &PoolInfo) -> bool {
    let is_refused = info
        .network_problem
        .as_ref()
        .is_some_and(NetworkRefusal::is_of_the_pool);
    !is_refused || pool.is_in_use() || pool.holds.iter().any(|(scope, _)| *scope == info.scope)
}

impl Ledger {
    /// The pools that belong to a network, and those that still have reservations in it, ordered.
    fn members_of(&self, scope: &Scope, entry: &ScopeEntry) -> Vec<(PoolKey, MemberPhase)> {
        let is_elsewhere = |key: &PoolKey| {
            let holds = self.pools.get(key).map(|pool| &pool.holds);
            holds.is_some_and(|holds| holds.iter().any(|(other, _)| other != scope))
        };
        let mut members = Vec::new();
        for key in &entry.members {
            let phase = if is_elsewhere(key) {
                MemberPhase::Joining
            } else {
                MemberPhase::Member
            };
            members.push((key.clone(), phase));
        }
        for key in &entry.holders {
            if entry.members.binary_search(key).is_err() {
                members.push((key.clone(), MemberPhase::Leaving));
            }
        }
        members.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        members
    }

    /// The length of the blocks of the oldest pool of a network, or of those that join it when it
    /// is initialized.
    fn oldest_length(&self, network: &str, members: &[PoolKey], family: Family) -> Option<u8> {
        let mut oldest: Option<(i64, &PoolKey, u8)> = None;
        for key in members.iter().chain(self.networks.awaiting(network)) {
            let Some(entry) = self.pools.get(key) else {
                continue;
            };
            // A member with another length has no usable blocks in the network.
            let is_awaiting = entry.awaited.as_deref() == Some(network);
            let info = if is_awaiting {
                entry.declared.as_ref()
            } else {
                entry.info.as_ref()
            };
            let Some((info, usable)) =
                info.and_then(|info| Some((info, info.usable.as_ref().ok()?)))
            else {
                continue;
            };
            let candidate = (info.created, key, usable.length);
            if usable.family == family && oldest.is_none_or(|oldest| candidate < oldest) {
                oldest = Some(candidate);
            }
        }
        oldest.map(|(_, _, length)| length)
    }
}

/// The number of numbers that more than one set contains.
fn shared<'a>(sets: impl Iterator<Item = &'a SpanSet>) -> u128 {
    let mut spans: Vec<Span> = sets.flat_map(SpanSet::spans).copied().collect();
    spans.sort_unstable_by_key(|span| span.first());
    let mut end: Option<u128> = None;
    let repeated = spans.into_iter().filter_map(|span| {
        let before = end.replace(end.map_or(span.last(), |end| end.max(span.last())));
        Span::new(span.first(), before?.min(span.last()))
    });
    repeated.collect::<SpanSet>().len()
}

/// Adds the counts of the addresses of a family.
fn count(view: &mut NetworkView, family: Family, members: &[&PoolInfo], entry: &ScopeEntry) {
    let usable = members.iter().filter_map(|info| info.usable.as_ref().ok());
    let pools: Vec<_> = usable.filter(|usable| usable.family == family).collect();
    // All pools of a family have the same length, and so the same numbers.
    let Some(usable) = pools.first() else { return };
    let all: SpanSet = pools
        .iter()
        .flat_map(|usable| usable.set.spans().iter().copied())
        .collect();
    let (mut used, mut taken) = (0_u128, 0_u128);
    for (block, usage) in entry.usage.iter() {
        let number = usable.number(block);
        if !number.is_some_and(|number| all.contains(number)) {
            continue;
        }
        if !usage.owners.is_empty() {
            used = used.saturating_add(1);
        }
        // A remembered address is free for others.
        if !matches!(usage.availability(), Availability::Remembered(_)) {
            taken = taken.saturating_add(1);
        }
    }
    view.total = view.total.saturating_add(all.len());
    view.shared = view
        .shared
        .saturating_add(shared(pools.iter().map(|usable| &usable.set)));
    view.used = view.used.saturating_add(used);
    view.free = view.free.saturating_add(all.len().saturating_sub(taken));
}
