//! The counts of a network, and what the status of a pool states about it.

use std::collections::BTreeMap;

use capi_ipam_api::{MemberPhase, NetworkView, Pool};
use capi_ipam_ip::{Family, Span, SpanSet};

use crate::PoolInfo;
use crate::addresses::{Availability, ScopeEntry};
use crate::networks::scope_rule::StatusRecord;
use crate::pools::PoolEntry;

/// How many reservations there are of each family and length.
type LengthCounts = BTreeMap<(Family, u8), usize>;

/// Whether a manager has written the status of a pool, and what it states about the network of the
/// pool.
pub(crate) fn status_record(pool: &Pool) -> (bool, Option<StatusRecord>) {
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

/// The length that most blocks of a family have; of several such lengths the shortest one.
pub(crate) fn most_frequent(counts: &LengthCounts, family: Family) -> Option<u8> {
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
pub(crate) fn count_reservations(view: &mut NetworkView, entry: &ScopeEntry) -> LengthCounts {
    let mut lengths = LengthCounts::new();
    for (block, usage) in entry.usage.iter() {
        let Some(reservation) = &usage.reservation else {
            continue;
        };
        view.reservations += 1;
        if !reservation.is_manual() {
            let length = (block.family(), block.length());
            let count = lengths.entry(length).or_default();
            *count += 1;
        }
    }
    view.keeps_lengths |= view.reservations > 0;
    lengths
}

/// Whether a network has to exist as long as this pool belongs to it.
pub(crate) fn needs_network(pool: &PoolEntry, info: &PoolInfo) -> bool {
    !info.is_refused_alone() || pool.is_in_use() || pool.holds_in(&info.scope)
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
pub(crate) fn count(
    view: &mut NetworkView,
    family: Family,
    members: &[&PoolInfo],
    entry: &ScopeEntry,
) {
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
            used += 1;
        }
        // A remembered address is free for others.
        if !matches!(usage.availability(), Availability::Remembered(_)) {
            taken += 1;
        }
    }
    view.total = view.total.saturating_add(all.len());
    let sets = pools.iter().map(|usable| &usable.set);
    view.shared = view.shared.saturating_add(shared(sets));
    view.used = view.used.saturating_add(used);
    view.free = view.free.saturating_add(all.len().saturating_sub(taken));
}
