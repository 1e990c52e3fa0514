//! Pools that join or leave a network, and the networks themselves: queries of the ledger.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_ip::{Family, Span, SpanSet};

use super::pool::PoolEntry;
use super::usage::{Availability, ScopeEntry};
use super::{Ledger, LengthRecord, PoolKey};
use kube::ResourceExt;

use crate::api::{BlockLengths, IPNetwork, IPNetworkStatus, MemberPhase, PoolNetwork, Scope, Slot};

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

/// The counts of a network, as its status shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// The name of the network.
    pub name: String,
    /// Its addresses in total, in use and free.
    pub addresses: [(&'static str, i64); 3],
    /// Its pools by phase.
    pub pools: [(&'static str, i64); 3],
}

impl NetworkCounts {
    /// The counts of the status of a network.
    pub(super) fn of(network: &IPNetwork) -> Self {
        let status = network.status.as_ref();
        let number = |field: fn(&IPNetworkStatus) -> i64| status.map(field).unwrap_or_default();
        let in_phase = |phase: MemberPhase| {
            let members = status.into_iter().flat_map(|status| &status.members);
            i64::try_from(members.filter(|member| member.phase == phase).count()).unwrap_or(i64::MAX)
        };
        let joining = in_phase(MemberPhase::Joining);
        Self {
            name: network.name_any(),
            addresses: [
                ("total", number(|status| status.total)),
                ("used", number(|status| status.used)),
                ("free", number(|status| status.free)),
            ],
            pools: [
                ("joining", joining),
                ("member", number(|status| status.pools).saturating_sub(joining)),
                ("leaving", in_phase(MemberPhase::Leaving)),
            ],
        }
    }
}

/// The state of a network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkView {
    /// Addresses that its pools can allocate, each counted once.
    pub total: u128,
    /// Addresses that more than one of its pools contains.
    pub shared: u128,
    /// Addresses of the pools that are in use by an IPAddress.
    pub used: u128,
    /// Addresses that can be allocated now.
    pub free: u128,
    /// The pools that belong to it, and those that still have reservations in it, ordered.
    pub members: Vec<(PoolKey, MemberPhase)>,
    /// The number of reservations in it.
    pub reservations: usize,
    /// The block lengths of its reservations.
    pub reserved_lengths: BlockLengths,
    /// The block lengths of its oldest pools.
    pub oldest_lengths: BlockLengths,
}

impl Ledger {
    /// At most `limit` reservations that have to be moved to the scope of their pool. Pools that are paused, deleted or
    /// refused by their network keep their reservations where they are.
    pub fn misplaced(&self, limit: usize) -> Vec<Misplaced> {
        let state = self.state.lock();
        let mut found = Vec::new();
        for (pool, entry) in &state.pools {
            let Some(info) = entry.info.as_ref() else { continue };
            if info.paused || info.deleting || info.network_problem.is_some() {
                continue;
            }
            for (scope, _) in entry.holds.iter().filter(|(scope, _)| *scope != info.scope) {
                for (block, usage) in state.scopes.get(scope).into_iter().flat_map(|scope| scope.usage.iter()) {
                    let reservation = usage.reservation.as_ref().filter(|reservation| reservation.pool == *pool);
                    let Some(reservation) = reservation else { continue };
                    let target = Slot { scope: info.scope.clone(), block: *block };
                    found.push(Misplaced {
                        pool: pool.clone(),
                        slot: Slot { scope: scope.clone(), block: *block },
                        uid: reservation.uid.to_string(),
                        is_in_use: state.usage(&target).is_some_and(|usage| !usage.owners.is_empty()),
                        scope: info.scope.clone(),
                    });
                    if found.len() >= limit {
                        return found;
                    }
                }
            }
        }
        found
    }

    /// The network to which a pool belongs, or which it leaves.
    pub fn pool_network(&self, pool: &PoolKey) -> Option<PoolNetwork> {
        let state = self.state.lock();
        let entry = state.pools.get(pool)?;
        let scope = entry.scope(pool);
        let elsewhere = || entry.holds.iter().filter(|(other, _)| *other != scope);
        let remaining = elsewhere().map(|(_, count)| *count).fold(0, usize::saturating_add);
        let remaining = i64::try_from(remaining).unwrap_or(i64::MAX);
        let left = elsewhere().find_map(|(other, _)| other.network());
        match (scope.network(), left) {
            (Some(name), _) if remaining == 0 => Some((name, MemberPhase::Member)),
            (Some(name), _) => Some((name, MemberPhase::Joining)),
            (None, Some(name)) => Some((name, MemberPhase::Leaving)),
            (None, None) => None,
        }
        .map(|(name, phase)| PoolNetwork { name: name.to_owned(), phase, remaining })
    }

    /// Whether a pool of a network waits for the block length of the network.
    pub fn lacks_block_length(&self, name: &str) -> bool {
        let state = self.state.lock();
        let members = state.scopes.get(&Scope::Network(name.into())).into_iter().flat_map(|scope| &scope.members);
        let infos = members.filter_map(|key| state.pools.get(key)?.info.as_ref());
        let mut families = infos.filter_map(|info| Some(info.usable.as_ref().ok()?.family));
        families.any(|family| state.networks.block_length(name, family).is_none())
    }

    /// The state of a network.
    pub fn network(&self, name: &str) -> NetworkView {
        let state = self.state.lock();
        let scope = Scope::Network(name.into());
        let empty = ScopeEntry::default();
        let entry = state.scopes.get(&scope).unwrap_or(&empty);
        let mut members = BTreeMap::new();
        for (key, pool) in &state.pools {
            let is_member = pool.info.as_ref().is_some_and(|info| info.scope == scope);
            let elsewhere = pool.holds.iter().any(|(other, _)| *other != scope);
            let inside = pool.holds.iter().any(|(other, _)| *other == scope);
            match (is_member, elsewhere, inside) {
                (true, true, _) => drop(members.insert(key.clone(), MemberPhase::Joining)),
                (true, false, _) => drop(members.insert(key.clone(), MemberPhase::Member)),
                (false, _, true) => drop(members.insert(key.clone(), MemberPhase::Leaving)),
                (false, _, false) => {}
            }
        }
        let mut view = NetworkView { members: members.into_iter().collect(), ..NetworkView::default() };
        for family in [Family::V4, Family::V6] {
            let pools: Vec<_> = entry
                .members
                .iter()
                .filter_map(|key| state.pools.get(key)?.info.as_ref())
                .filter_map(|info| Some((info, info.usable.as_ref().ok()?)))
                .filter(|(_, usable)| usable.family == family)
                .collect();
            let reserved = entry.usage.iter().filter(|(_, usage)| usage.reservation.is_some());
            let length = reserved.map(|(block, _)| block).find(|block| block.family() == family).map(|it| it.length());
            let oldest = pools.iter().min_by_key(|(info, usable)| (info.created, usable.length));
            if let Some(length) = length {
                view.reserved_lengths.set(family, length);
            }
            if let Some((_, usable)) = oldest {
                view.oldest_lengths.set(family, usable.length);
            }
            // All pools of a family have the same length, and so the same numbers.
            let all: SpanSet = pools.iter().flat_map(|(_, usable)| usable.set.spans().iter().copied()).collect();
            let Some((_, usable)) = pools.first() else { continue };
            let numbers = |is_counted: &dyn Fn(&super::usage::AddressUsage) -> bool| {
                let counted = entry.usage.iter().filter(|(_, usage)| is_counted(usage));
                counted.filter_map(|(block, _)| usable.number(*block)).filter(|number| all.contains(*number)).count()
            };
            let taken = numbers(&|usage| !matches!(usage.availability(), Availability::Remembered(_))) as u128;
            view.total = view.total.saturating_add(all.len());
            view.shared = view.shared.saturating_add(shared(pools.iter().map(|(_, usable)| &usable.set)));
            view.used = view.used.saturating_add(numbers(&|usage| !usage.owners.is_empty()) as u128);
            view.free = view.free.saturating_add(all.len().saturating_sub(taken));
        }
        view.reservations = entry.usage.values().filter(|usage| usage.reservation.is_some()).count();
        view
    }

    /// The counts of all networks, from the status that the watch has reported.
    pub fn network_counts(&self) -> Vec<NetworkCounts> {
        self.state.lock().networks.counts()
    }

    /// What earlier versions have stored of networks, and whether the object of the network exists.
    pub fn length_records(&self) -> Vec<(LengthRecord, bool)> {
        let state = self.state.lock();
        state.networks.records().map(|record| (record.clone(), state.networks.contains(&record.network))).collect()
    }

    /// The namespaces of the pools that name a network.
    pub fn namespaces_naming(&self, network: &str) -> BTreeSet<String> {
        let state = self.state.lock();
        let names = |(key, entry): (&PoolKey, &PoolEntry)| {
            entry.declared.as_ref().filter(|info| info.network.as_deref() == Some(network))?;
            key.namespace.as_deref().map(str::to_owned)
        };
        state.pools.iter().filter_map(names).collect()
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
