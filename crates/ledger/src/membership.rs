//! Pools that join or leave a network, and the networks themselves: queries of the ledger.

use std::collections::BTreeMap;

use capi_ipam_ip::{Family, Span, SpanSet};

use super::addresses::{Availability, ScopeEntry};
use super::networks::scope_rule::StatusRecord;
use super::pools::PoolEntry;
use super::{Ledger, NetworkCounts, PoolInfo, PoolKey};
use capi_ipam_api::{MemberPhase, NetworkView, Pool, PoolNetwork, Scope, Slot};

/// Whether a manager has written the status of a pool, and what it states about the network of the
/// pool.
pub(super) fn status_record(pool: &Pool) -> (bool, Option<StatusRecord>) {
    let Some(status) = &pool.status else {
        return (false, None);
    };
    let is_written = status.observed_generation.is_some();
    let Some(network) = &status.network else {
        return (is_written, None);
    };
    let name = network.name.as_str().into();
    let record = match network.phase {
        MemberPhase::Joining | MemberPhase::Member => StatusRecord::Member(name),
        MemberPhase::Leaving => StatusRecord::Left(name),
    };
    (is_written, Some(record))
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
    /// At most `limit` reservations that have to be moved to the scope of their pool, of pools for
    /// which `filter` returns true. Not those of a pool that is paused, being deleted, not valid or
    /// refused by its network.
    pub fn misplaced(&self, limit: usize, filter: impl Fn(&PoolKey) -> bool) -> Vec<Misplaced> {
        let mut found = Vec::new();
        for (pool, entry) in self.pools.iter() {
            if !filter(pool) {
                continue;
            }
            let Some(info) = entry.info() else {
                continue;
            };
            if !info.moves_reservations() {
                continue;
            }
            for (scope, _) in entry.holds() {
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
        for (block, usage) in self.addresses.usage_in(from) {
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
            let target = self.addresses.usage(&slot_in(to));
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
    pub(super) fn pool_network(&self, pool: &PoolKey) -> Option<PoolNetwork> {
        let entry = self.pools.get(pool)?;
        let scope = entry.scope(pool);
        // What it still holds elsewhere, and the network in which that is.
        let mut remaining = 0_usize;
        let mut left = None;
        for (other, count) in entry.holds() {
            if *other != scope {
                remaining = remaining.saturating_add(*count);
                if left.is_none() {
                    left = other.network();
                }
            }
        }
        let phase = match scope.network() {
            Some(_) if remaining == 0 => MemberPhase::Member,
            Some(_) => MemberPhase::Joining,
            None => MemberPhase::Leaving,
        };
        let name = scope.network().or(left)?;
        Some(PoolNetwork {
            name: name.to_owned(),
            phase,
            remaining: i64::try_from(remaining).unwrap_or(i64::MAX),
        })
    }

    /// Whether a pool waits until a network is initialized.
    pub(super) fn lacks_block_length(&self, name: &str) -> bool {
        self.networks.awaiting(name).next().is_some()
    }

    /// The state of a network. It depends on the objects only, and not on the order in which they
    /// were observed: all managers write the same status.
    pub fn network(&self, name: &str) -> NetworkView {
        let scope = Scope::Network(name.into());
        let empty = ScopeEntry::default();
        let entry = self.addresses.scope(&scope).unwrap_or(&empty);
        let mut view = NetworkView {
            members: self.members_of(&scope, entry),
            ..NetworkView::default()
        };
        let reserved = count_reservations(&mut view, entry);
        let infos = self.count_members(&mut view, entry);
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

    /// The uid of a network; `None` if it does not exist.
    pub fn network_uid(&self, name: &str) -> Option<String> {
        self.networks.uid(name)
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
    let mut most: Option<(usize, u8)> = None;
    // The shortest one comes first.
    for ((of, length), count) in counts {
        if *of != family {
            continue;
        }
        let is_more = match most {
            Some((known, _)) => *count > known,
            None => true,
        };
        if is_more {
            most = Some((*count, *length));
        }
    }
    let (_, length) = most?;
    Some(length)
}

/// Counts the reservations of a network. Returns the lengths of those that are not created by
/// users.
fn count_reservations(view: &mut NetworkView, entry: &ScopeEntry) -> LengthCounts {
    let mut lengths = LengthCounts::new();
    for (block, usage) in entry.usage.iter() {
        let Some(reservation) = &usage.reservation else {
            continue;
        };
        view.reservations = view.reservations.saturating_add(1);
        if !reservation.is_manual() {
            let length = (block.family(), block.length());
            let count = lengths.entry(length).or_default();
            *count = count.saturating_add(1);
        }
    }
    view.keeps_lengths |= view.reservations > 0;
    lengths
}

/// Whether a network has to exist as long as this pool belongs to it.
fn needs_network(pool: &PoolEntry, info: &PoolInfo) -> bool {
    !info.is_refused_alone() || pool.is_in_use() || pool.holds_in(&info.scope)
}

impl Ledger {
    /// Counts the pools of a network that need it. Returns those that it accepts.
    fn count_members(&self, view: &mut NetworkView, entry: &ScopeEntry) -> Vec<&PoolInfo> {
        let mut infos = Vec::new();
        for key in &entry.members {
            let Some(pool) = self.pools.get(key) else {
                continue;
            };
            let Some(info) = pool.info() else {
                continue;
            };
            if needs_network(pool, info) {
                view.needed_by = view.needed_by.saturating_add(1);
            }
            if !info.is_refused_alone() {
                // The lengths of the network are kept for the pools that have them.
                view.keeps_lengths = true;
                infos.push(info);
            }
        }
        infos
    }

    /// Whether a pool still has reservations or candidates outside of a scope.
    fn holds_outside_of(&self, scope: &Scope, pool: &PoolKey) -> bool {
        let Some(entry) = self.pools.get(pool) else {
            return false;
        };
        entry.holds().iter().any(|(other, _)| other != scope)
    }

    /// The pools that belong to a network, and those that still have reservations in it, ordered.
    fn members_of(&self, scope: &Scope, entry: &ScopeEntry) -> Vec<(PoolKey, MemberPhase)> {
        let mut members = Vec::new();
        for key in &entry.members {
            let phase = if self.holds_outside_of(scope, key) {
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
            let Some(info) = entry.info_in(network) else {
                continue;
            };
            if info.is_refused_alone() {
                continue;
            }
            let Ok(usable) = &info.usable else {
                continue;
            };
            let candidate = (info.created, key, usable.length);
            if usable.family == family && oldest.is_none_or(|oldest| candidate < oldest) {
                oldest = Some(candidate);
            }
        }
        let (_, _, length) = oldest?;
        Some(length)
    }
}

/// The number of numbers that more than one set contains.
fn shared<'a>(sets: impl Iterator<Item = &'a SpanSet>) -> u128 {
    let mut spans: Vec<Span> = sets.flat_map(SpanSet::spans).copied().collect();
    spans.sort_unstable_by_key(|span| span.first());
    let mut repeated = Vec::new();
    // The last number of all spans so far. What a span has below it is in another set, too.
    let mut end: Option<u128> = None;
    for span in spans {
        let Some(before) = end else {
            end = Some(span.last());
            continue;
        };
        repeated.extend(Span::new(span.first(), before.min(span.last())));
        end = Some(before.max(span.last()));
    }
    SpanSet::from_iter(repeated).len()
}

/// Adds the counts of the addresses of a family.
fn count(view: &mut NetworkView, family: Family, members: &[&PoolInfo], entry: &ScopeEntry) {
    let mut pools = Vec::new();
    for info in members {
        if let Some(usable) = info.blocks()
            && usable.family == family
        {
            pools.push(usable);
        }
    }
    // All pools of a family have the same length, and so the same numbers.
    let Some(usable) = pools.first() else { return };
    let all: SpanSet = pools.iter().map(|usable| &usable.set).collect();
    let mut used = 0_u128;
    let mut taken = 0_u128;
    for (block, usage) in entry.usage.iter() {
        let Some(number) = usable.number(block) else {
            continue;
        };
        if !all.contains(number) {
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
    let sets = pools.iter().map(|usable| &usable.set);
    view.shared = view.shared.saturating_add(shared(sets));
    view.used = view.used.saturating_add(used);
    view.free = view.free.saturating_add(all.len().saturating_sub(taken));
}
