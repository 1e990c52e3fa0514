//! What the protocol of blocks has to know of a block, from what objects, registry and this process
//! show: plain values, no I/O.

use std::time::{Duration, Instant};

use capi_ipam_api::{BlockRecord, MAX_CONTENDERS};
use capi_ipam_ledger::BlockSlice;
use capi_ipam_protocol::block::{Access, Confirmation, Holding, Mark, Record, Slice, View};
use capi_ipam_registry::{Entry, Record as RegistryEntry, Version};

use super::backoff::Backoff;

/// How long another manager of this cluster can need to take a block for a claim, in seconds.
const TAKE_TIMEOUT: i64 = 60;

/// How long a block at most stays usable that is neither used nor needed.
const MAX_IDLE_DELAY: Duration = Duration::from_mins(1);

/// What this process remembers of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// The version of the record of this cluster, and since when it is known.
    record: Option<(Version, Instant)>,
    /// The version of the slice for which the registry has confirmed the record.
    confirmed_for: Option<String>,
    /// The version of the slice whose mark was seen, and when it was seen first.
    marked: Option<(String, Instant)>,
    /// Since when the block is neither used nor needed.
    idle_since: Option<Instant>,
    /// Whether this process has seen a slice of the block, or that the network shares blocks.
    is_known: bool,
    /// The version of the slice that is deleted after the next list of the reservations, and since when the
    /// list is waited for.
    listed: Option<(String, Instant)>,
    /// The steps that were sent not long ago.
    pub(super) backoff: Backoff,
}

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    /// How long after a write the registry can lose it.
    pub(super) settle: Duration,
    /// How long after the mark of an empty slice a list shows every address that was allocated
    /// from it.
    pub(super) drain: Duration,
    /// How long an empty block is kept, in seconds.
    pub(super) keep: i64,
    /// How long after its return another cluster takes no block, in seconds.
    pub(super) quarantine: i64,
}

impl Delays {
    /// How long a block stays usable that is neither used nor needed, before its slice is marked. Claims
    /// that come soon after others were released find it so, and cost no write for the block.
    fn idle(self) -> Duration {
        let tenth = u64::try_from(self.keep / 10).unwrap_or_default();
        Duration::from_secs(tenth).min(MAX_IDLE_DELAY)
    }
}

/// The record of a block, as the registry shows it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shown<'a> {
    /// The registry is unavailable.
    Unknown,
    /// There is none.
    Absent,
    /// This one, in this version.
    Record(&'a BlockRecord, &'a Version),
    /// One that cannot be decoded.
    Unreadable,
}

/// What is known of a block.
pub(super) struct Facts<'a> {
    /// The identity of this management cluster.
    pub(super) cluster: &'a str,
    /// Whether other managers of this management cluster serve a part of the objects.
    pub(super) has_peers: bool,
    /// Whether the network shares blocks. If not, it shares none any more.
    pub(super) is_shared: bool,
    pub(super) shown: Shown<'a>,
    pub(super) slice: Option<&'a BlockSlice>,
    pub(super) is_used: bool,
    pub(super) is_needed: bool,
    pub(super) access: Access,
}

impl Memory {
    /// Whether nothing is remembered.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The registry has confirmed the record while the slice had this version.
    pub(super) fn confirmed(&mut self, slice: &str) {
        self.confirmed_for = Some(slice.to_owned());
    }

    /// When the list can have begun at the earliest that decides whether the slice in this version is
    /// deleted.
    pub(super) fn list_after(&mut self, version: &str, now: Instant) -> Instant {
        let (version, since) = since(self.listed.take(), &version.to_owned(), now);
        self.listed = Some((version, since));
        since
    }

    /// The list has shown an address in use: the next decision takes a later one.
    pub(super) fn forget_list(&mut self) {
        self.listed = None;
    }

    /// Compares what is remembered with what is known now.
    pub(super) fn update(&mut self, facts: &Facts<'_>, now: Instant) {
        self.record = match facts.shown {
            Shown::Record(record, version) if record.cluster == facts.cluster => {
                Some(since(self.record.take(), version, now))
            }
            _ => None,
        };
        self.marked = match facts.slice {
            Some(slice) if slice.empty_since.is_some() => {
                Some(since(self.marked.take(), &slice.version, now))
            }
            _ => None,
        };
        let is_same = match (&self.confirmed_for, facts.slice) {
            (Some(version), Some(slice)) => *version == *slice.version,
            _ => false,
        };
        // A record that was lost or that another cluster has confirms nothing.
        if !is_same || self.record.is_none() {
            self.confirmed_for = None;
        }
        self.is_known |= facts.is_shared || facts.slice.is_some();
        self.measure_idle_time(facts, now);
        self.backoff.forget_old(now);
    }

    /// Finds out since when the block is neither used nor needed.
    fn measure_idle_time(&mut self, facts: &Facts<'_>, now: Instant) {
        let is_idle = facts.slice.is_some() && !facts.is_used && !facts.is_needed;
        self.idle_since = match self.idle_since {
            _ if !is_idle => None,
            None => Some(now),
            since => since,
        };
    }

    /// How long the block is neither used nor needed, but not longer than it takes until it is marked:
    /// the mark of a block that could not be marked in time is no older than that of any other one.
    pub(super) fn idle_time(&self, delays: Delays, now: Instant) -> Duration {
        match self.idle_since {
            Some(since) => now.saturating_duration_since(since).min(delays.idle()),
            None => Duration::ZERO,
        }
    }
}

/// Since when a version is known.
fn since<V: Clone + PartialEq>(
    known: Option<(V, Instant)>,
    version: &V,
    now: Instant,
) -> (V, Instant) {
    match known {
        Some((known, at)) if known == *version => (known, at),
        _ => (version.clone(), now),
    }
}

/// Whether something is known for this long.
fn is_known_for<V>(since: Option<&(V, Instant)>, delay: Duration, now: Instant) -> bool {
    match since {
        Some((_, at)) => now.saturating_duration_since(*at) >= delay,
        None => false,
    }
}

/// The mark of a slice. Whether a list shows every address that was allocated before the mark is
/// measured by the clock of this process; for how long the block was empty, by that of the API
/// server.
fn mark(slice: &BlockSlice, memory: &Memory, delays: Delays, now: Instant, second: i64) -> Mark {
    let Some(empty_since) = slice.empty_since else {
        return Mark::None;
    };
    let is_recent = second.saturating_sub(empty_since) < delays.keep;
    // No address of a block of two clusters is allocated: to keep it helps neither.
    let is_kept = is_recent && slice.conflict.is_none();
    if is_kept || !is_known_for(memory.marked.as_ref(), delays.drain, now) {
        return Mark::Recent;
    }
    Mark::Old
}

impl Facts<'_> {
    /// The view of the protocol, after [`Memory::update`]. `second` is the time of the API server,
    /// in seconds since the Unix epoch.
    pub(super) fn view(&self, memory: &Memory, delays: Delays, now: Instant, second: i64) -> View {
        let slice = self.slice.map(|slice| Slice {
            confirmation: if memory.confirmed_for.is_some() {
                Confirmation::Received
            } else if slice.confirmed_at.is_some() {
                Confirmation::Written
            } else {
                Confirmation::Missing
            },
            is_conflicting: slice.conflict.is_some(),
            mark: mark(slice, memory, delays, now, second),
        });
        // The network and the slice may be missing only because they are not restored yet.
        let record = if memory.is_known {
            self.shown.record(self.cluster, delays.quarantine, second)
        } else {
            Record::Unknown
        };
        let mut view = View {
            record,
            is_shared: self.is_shared,
            slice,
            is_used: self.is_used,
            is_needed: self.is_needed,
            is_idle: self.has_conflict() || memory.idle_time(delays, now) >= delays.idle(),
            is_settled: is_known_for(memory.record.as_ref(), delays.settle, now),
            is_being_taken: self.is_being_taken(second),
            access: self.access,
        };
        // A mark in the future would keep the block until then: the clock has jumped, or the mark was
        // edited. It is written again, unless it is removed.
        let is_rewritten = self.is_marked_after(second) && !view.is_wanted();
        if is_rewritten && let Some(slice) = &mut view.slice {
            slice.mark = Mark::None;
        }
        view
    }

    /// Whether the slice says that another management cluster uses the block as well.
    fn has_conflict(&self) -> bool {
        match self.slice {
            Some(slice) => slice.conflict.is_some(),
            None => false,
        }
    }

    /// Whether the slice is marked with a time after this second.
    fn is_marked_after(&self, second: i64) -> bool {
        let mark = self.slice.and_then(|slice| slice.empty_since);
        mark.is_some_and(|empty_since| empty_since > second)
    }

    /// Whether another manager of this cluster can have begun to take the block: it knows claims
    /// that this one does not serve.
    fn is_being_taken(&self, second: i64) -> bool {
        let began = match (self.slice, self.shown) {
            (Some(slice), _) if slice.confirmed_at.is_some() => None,
            (Some(slice), _) => slice.assigned_at,
            (None, Shown::Record(record, _)) if record.cluster == self.cluster => {
                record.since.as_ref().map(|since| since.0.as_second())
            }
            _ => None,
        };
        match began {
            Some(began) => self.has_peers && second.saturating_sub(began) < TAKE_TIMEOUT,
            None => false,
        }
    }
}

/// Whether another cluster still has a block. One that others contend for is theirs after the quarantine.
fn holding(record: &BlockRecord, cluster: &str, quarantine: i64, second: i64) -> Holding {
    let Some(at) = &record.returned_at else {
        return Holding::Held;
    };
    let contenders = &record.contenders;
    let may_take = contenders.is_empty() || contenders.iter().any(|id| id == cluster);
    if may_take && second.saturating_sub(at.0.as_second()) >= quarantine {
        Holding::Free
    } else {
        Holding::Returned
    }
}

impl Shown<'_> {
    /// The record as the protocol sees it, for the management cluster with this identity, at `second`.
    /// `quarantine` is how long after its return another cluster takes no block, in seconds.
    pub(super) fn record(self, cluster: &str, quarantine: i64, second: i64) -> Record {
        match self {
            Self::Unknown => Record::Unknown,
            Self::Absent => Record::Absent,
            Self::Unreadable => Record::Unreadable,
            Self::Record(record, _) if record.cluster == cluster => Record::Ours {
                is_returned: record.returned_at.is_some(),
                is_contested: !record.contenders.is_empty(),
            },
            Self::Record(record, _) => Record::Theirs {
                names_us: record.contenders.iter().any(|id| id == cluster),
                is_full: record.contenders.len() >= MAX_CONTENDERS,
                holding: holding(record, cluster, quarantine, second),
            },
        }
    }

    /// What a listed registry shows under the name of a block.
    pub(super) fn of(entry: Option<&'_ Entry>) -> Shown<'_> {
        match entry {
            None => Shown::Absent,
            Some(Entry {
                value: Ok(RegistryEntry::Block(record)),
                version,
                ..
            }) => Shown::Record(record, version),
            Some(_) => Shown::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests;
