//! What the protocol of blocks has to know of a block, from what objects, registry and this process
//! show: plain values, no I/O.

use std::time::{Duration, Instant};

use capi_ipam_api::{BlockRecord, MAX_CONTENDERS};
use capi_ipam_controller::absence::Absence;
use capi_ipam_ledger::BlockSlice;
use capi_ipam_protocol::block::{Confirmation, Mark, Record, Recorded, Seen, Slice, View};
use capi_ipam_registry::{Entry, Record as RegistryEntry, Version};
use jiff::Timestamp;

use super::backoff::Backoff;

/// How long another manager of this cluster can need to take a block for a claim, in seconds.
const TAKE_TIMEOUT: i64 = 60;

/// The age from which a record without a slice is not one that a process of this cluster has created
/// a moment ago, in seconds.
const FOUND_AGE: i64 = 60;

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
    /// Whether the registry has or had a record of the block that names this cluster.
    recorded: Recorded,
    /// Whether this process has seen a slice of the block, with such a record.
    was_held: bool,
    /// Whether the block is taken up again: its record was found without a slice.
    is_taken_up: bool,
    /// What is deleted after the next list of the reservations, and since when the list is waited for.
    listed: Option<(Listed, Instant)>,
    /// The steps that were sent not long ago.
    pub(super) backoff: Backoff,
}

/// An object that is deleted when a list shows that no address of the block is reserved, in the version
/// that was known before the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    Slice(String),
    Record(Version),
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
    /// How long the addresses of a restored block may be missing.
    pub(super) restore: Duration,
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
    /// The registry.
    pub(super) registry: &'a str,
    /// The identity of this management cluster.
    pub(super) cluster: &'a str,
    /// Whether other managers of this management cluster serve a part of the objects.
    pub(super) has_peers: bool,
    /// Whether the network shares blocks through the registry. If not, it shares none any more.
    pub(super) is_shared: bool,
    pub(super) shown: Shown<'a>,
    /// Whether another management cluster has a block of another size that overlaps with this one.
    pub(super) is_overlapped: bool,
    /// Whether the watch of the registry has shown the record, and all that was written before.
    pub(super) is_watched: bool,
    pub(super) slice: Option<&'a BlockSlice>,
    pub(super) is_used: bool,
    pub(super) is_needed: bool,
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

    /// When the list can have begun at the earliest that decides whether an object is deleted.
    pub(super) fn list_after(&mut self, object: &Listed, now: Instant) -> Instant {
        let (object, since) = since(self.listed.take(), object, now);
        self.listed = Some((object, since));
        since
    }

    /// The list has shown an address in use: the next decision takes a later one.
    pub(super) fn forget_list(&mut self) {
        self.listed = None;
    }

    /// Compares what is remembered with what is known now.
    /// `second` is the time of the API server, in seconds since the Unix epoch.
    pub(super) fn update(&mut self, facts: &Facts<'_>, now: Instant, second: i64) {
        self.record = match facts.shown {
            // One that overlaps with that of another management cluster confirms nothing.
            Shown::Record(record, version)
                if record.cluster == facts.cluster && !facts.is_overlapped =>
            {
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
        self.remember_record(facts, second);
        self.measure_idle_time(facts, now);
        self.backoff.forget_old(now);
    }

    /// Remembers which record the registry has shown.
    fn remember_record(&mut self, facts: &Facts<'_>, second: i64) {
        // The machines of this cluster may use addresses of a block whose objects are not restored yet,
        // or a process was killed while it returned the block. So the block is kept as long as any
        // other one that is empty.
        self.is_taken_up = match facts.slice {
            Some(slice) => self.is_taken_up && slice.confirmed_at.is_none(),
            None => !self.was_held && facts.is_found(second),
        };
        let seen = facts.seen(second);
        self.recorded = self.recorded.update(seen);
        let is_named = seen.is_named.unwrap_or(self.was_held);
        self.was_held = if facts.slice.is_some() {
            self.was_held || is_named
        } else {
            self.was_held && is_named
        };
    }

    /// Finds out since when the block is neither used nor needed.
    fn measure_idle_time(&mut self, facts: &Facts<'_>, now: Instant) {
        let is_needed = facts.is_needed || self.is_taken_up;
        let is_idle = facts.slice.is_some() && !facts.is_used && !is_needed;
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
            mark: self.mark(slice, memory, delays, now, second),
        });
        let mut view = View {
            record: self.record(),
            sharing: memory.recorded.sharing(self.is_shared),
            is_overlapped: self.is_overlapped,
            slice,
            is_used: self.is_used,
            is_needed: self.is_needed || memory.is_taken_up,
            is_idle: self.has_conflict() || memory.idle_time(delays, now) >= delays.idle(),
            is_settled: is_known_for(memory.record.as_ref(), delays.settle, now),
            is_watched: self.is_watched,
            is_being_taken: self.is_being_taken(second),
        };
        // A mark in the future would keep the block until then: the clock has jumped, or the mark was
        // edited. It is written again, unless it is removed.
        let is_rewritten = self.is_marked_after(second) && !view.is_wanted();
        if is_rewritten && let Some(slice) = &mut view.slice {
            slice.mark = Mark::None;
        }
        view
    }

    /// The mark of a slice. Whether a list shows every address that was allocated before the mark is
    /// measured by the clock of this process; for how long the block was empty, by that of the API
    /// server.
    fn mark(
        &self,
        slice: &BlockSlice,
        memory: &Memory,
        delays: Delays,
        now: Instant,
        second: i64,
    ) -> Mark {
        let Some(empty_since) = slice.empty_since else {
            return Mark::None;
        };
        // No address of a block of two clusters is allocated: to keep it helps neither.
        let is_conflicting = slice.conflict.is_some();
        let time = Timestamp::from_second(second).unwrap_or_default();
        let is_restoring = self
            .absence(slice)
            .remaining(delays.restore, time)
            .is_some();
        let is_recent = second.saturating_sub(empty_since) < delays.keep;
        let is_kept = !is_conflicting && (is_recent || is_restoring);
        if is_kept || !is_known_for(memory.marked.as_ref(), delays.drain, now) {
            return Mark::Recent;
        }
        Mark::Old
    }

    /// Why addresses of the block can be missing. A slice that is younger than the record of this
    /// cluster was created for a record that was found alone: other objects may be restored later.
    fn absence(&self, slice: &BlockSlice) -> Absence {
        let Shown::Record(record, _) = self.shown else {
            return slice.absence;
        };
        let times = record.since.as_ref().zip(slice.assigned_at);
        match times {
            Some((since, assigned))
                if record.cluster == self.cluster
                    && assigned.saturating_sub(since.0.as_second()) >= FOUND_AGE =>
            {
                Absence::Restore(Timestamp::from_second(assigned).unwrap_or_default())
            }
            _ => slice.absence,
        }
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

    /// Whether the record of this cluster is older than one that a process creates before its slice,
    /// and is not being returned.
    fn is_found(&self, second: i64) -> bool {
        let age = self.record_age(second);
        self.is_shared && age.is_some_and(|age| age >= FOUND_AGE)
    }

    /// Whether the record of this cluster is so young that this process can have created it before the
    /// slice.
    fn is_fresh(&self, second: i64) -> bool {
        let age = self.record_age(second);
        age.is_some_and(|age| age < FOUND_AGE)
    }

    /// The age of the record of this cluster, in seconds; `None` if there is none, or if it is being
    /// returned.
    fn record_age(&self, second: i64) -> Option<i64> {
        let Shown::Record(record, _) = self.shown else {
            return None;
        };
        if record.cluster != self.cluster || record.empty_since.is_some() {
            return None;
        }
        match &record.since {
            Some(since) => Some(second.saturating_sub(since.0.as_second())),
            None => Some(i64::MAX),
        }
    }

    /// What is known of the record.
    fn seen(&self, second: i64) -> Seen {
        let is_named = match self.shown {
            Shown::Unknown => None,
            Shown::Record(record, _) => {
                Some(record.cluster == self.cluster || self.is_contender(record))
            }
            Shown::Absent | Shown::Unreadable => Some(false),
        };
        let registry = self.slice.and_then(|slice| slice.registry.as_deref());
        Seen {
            is_taking: self.is_shared && self.is_fresh(second),
            has_slice: self.slice.is_some(),
            is_slice_of_registry: registry == Some(self.registry),
            is_named,
        }
    }

    fn is_contender(&self, record: &BlockRecord) -> bool {
        record.contenders.iter().any(|id| id == self.cluster)
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

    fn record(&self) -> Record {
        self.shown.record(self.cluster)
    }
}

impl Shown<'_> {
    /// The record as the protocol sees it, for the management cluster with this identity.
    pub(super) fn record(self, cluster: &str) -> Record {
        match self {
            Self::Unknown => Record::Unknown,
            Self::Absent => Record::Absent,
            Self::Unreadable => Record::Unreadable,
            Self::Record(record, _) if record.cluster == cluster => Record::Ours {
                is_returning: record.empty_since.is_some(),
                is_contested: !record.contenders.is_empty(),
            },
            Self::Record(record, _) => Record::Theirs {
                names_us: record.contenders.iter().any(|id| id == cluster),
                is_full: record.contenders.len() >= MAX_CONTENDERS,
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
