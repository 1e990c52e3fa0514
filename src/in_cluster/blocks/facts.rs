//! What the protocol of blocks has to know of a block, from what objects, registry and this process
//! show: plain values, no I/O.

use std::time::{Duration, Instant};

use capi_ipam_api::BlockRecord;
use capi_ipam_ledger::BlockSlice;
use capi_ipam_protocol::block::{Confirmation, Mark, Record, Slice, View};
use capi_ipam_registry::Version;

/// What this process remembers of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// The version of the record of this cluster, and since when it is known.
    record: Option<(Version, Instant)>,
    /// The version of the slice for which the registry has confirmed the record.
    confirmed_for: Option<String>,
    /// The version of the slice whose mark was seen, and when it was seen first.
    marked: Option<(String, Instant)>,
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

    /// Compares what is remembered with what is known now.
    pub(super) fn update(&mut self, facts: &Facts<'_>, now: Instant) {
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
            mark: mark(slice, memory, delays, now, second),
        });
        View {
            record: self.record(),
            is_overlapped: self.is_overlapped,
            slice,
            is_used: self.is_used,
            is_needed: self.is_needed,
            is_settled: is_known_for(memory.record.as_ref(), delays.settle, now),
            is_watched: self.is_watched,
        }
    }

    fn record(&self) -> Record {
        match self.shown {
            Shown::Unknown => Record::Unknown,
            Shown::Absent => Record::Absent,
            Shown::Unreadable => Record::Unreadable,
            Shown::Record(record, _) if record.cluster == self.cluster => Record::Ours {
                is_returning: record.empty_since.is_some(),
                is_contested: !record.contenders.is_empty(),
            },
            Shown::Record(record, _) => Record::Theirs {
                names_us: record.contenders.iter().any(|id| id == self.cluster),
            },
        }
    }
}

/// The mark of a slice. Whether a list shows every address that was allocated before the mark is
/// measured by the clock of this process; for how long the block was empty, by that of the API
/// server.
fn mark(slice: &BlockSlice, memory: &Memory, delays: Delays, now: Instant, second: i64) -> Mark {
    let Some(empty_since) = slice.empty_since else {
        return Mark::None;
    };
    // No address of a block of two clusters is allocated: to keep it helps neither.
    let is_conflicting = slice.conflict.is_some();
    let is_kept = !is_conflicting && second.saturating_sub(empty_since) < delays.keep;
    if is_kept || !is_known_for(memory.marked.as_ref(), delays.drain, now) {
        return Mark::Recent;
    }
    Mark::Old
}
