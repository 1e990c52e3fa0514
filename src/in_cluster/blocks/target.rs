//! A block for which something can be due, as the protocol has to know it: plain values, no I/O.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{BlockRecord, MAX_CONTENDERS};
use capi_ipam_ip::Block;
use capi_ipam_ledger::BlockSlice;
use capi_ipam_protocol::block::{Access, Confirmation, Holding, Mark, Record, Slice, Step, View};
use capi_ipam_registry::{Entry, Key, Record as RegistryRecord, Version};

use super::backoff::Backoff;

/// How long another manager of this cluster can need to take a block for a claim, in seconds.
const TAKE_TIMEOUT: i64 = 60;

/// How long a block at most stays usable that is neither used nor needed.
const MAX_IDLE_DELAY: Duration = Duration::from_mins(1);

/// A block of a network, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) network: Arc<str>,
    pub(super) block: Block,
    /// The identity of this management cluster.
    pub(super) cluster: Arc<str>,
    /// Whether other managers of this management cluster serve a part of the objects.
    pub(super) has_peers: bool,
    /// Whether the network shares blocks through this registry. If not, it shares none any more.
    pub(super) is_shared: bool,
    /// Whether an address of it is in use.
    pub(super) is_used: bool,
    pub(super) is_needed: bool,
    /// Whether the size of the blocks is that of the other clusters: a further one may be taken.
    pub(super) may_take: bool,
    pub(super) access: Access,
    pub(super) delays: Delays,
    pub(super) slice: Option<BlockSlice>,
    /// Whether the slice is one of another management cluster, which `clusterctl move` has brought, or of a
    /// registry that the network does not name any more: it is never usable here, and is deleted. What is
    /// in use in its block gets a slice of this cluster.
    pub(super) is_foreign: bool,
    /// Whether the registry shows what it has of the block: the entry.
    pub(super) is_listed: bool,
    pub(super) entry: Option<Arc<Entry>>,
}

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
    /// The last write of the record, if its outcome is unknown: the record is read first.
    pub(super) unread: Option<Step>,
    /// Whether the slice was not valid or was being deleted.
    is_unavailable: bool,
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

impl Memory {
    /// Forgets what was seen. A write whose outcome is unknown is still read back.
    pub(super) fn forget(&mut self) {
        *self = Self {
            unread: self.unread.take(),
            backoff: std::mem::take(&mut self.backoff),
            ..Self::default()
        };
    }

    /// The registry has confirmed the record while the slice had this version.
    pub(super) fn confirmed(&mut self, slice: &str) {
        self.confirmed_for = Some(slice.to_owned());
    }

    /// When the list can have begun at the earliest that decides whether the slice in this version is
    /// deleted.
    pub(super) fn list_after(&mut self, version: &String, now: Instant) -> Instant {
        let (version, since) = since(self.listed.take(), version, now);
        self.listed = Some((version, since));
        since
    }

    /// The list has shown an address in use: the next decision takes a later one.
    pub(super) fn forget_list(&mut self) {
        self.listed = None;
    }

    /// Whether no address of the block is allocated any more, since its slice is not valid or is being deleted. True
    /// once.
    pub(super) fn becomes_unavailable(&mut self, slice: Option<&BlockSlice>) -> bool {
        let was_unavailable = self.is_unavailable;
        self.is_unavailable = slice.is_some_and(|slice| !slice.is_valid || slice.is_deleting);
        self.is_unavailable && !was_unavailable
    }

    /// Compares what is remembered with what is known now.
    pub(super) fn update(&mut self, target: &Target, now: Instant) {
        let own = target.own_record();
        self.record = own.map(|(entry, _)| since(self.record.take(), &entry.version, now));
        let slice = target.slice.as_ref();
        let marked = slice.filter(|slice| slice.empty_since.is_some());
        self.marked = marked.map(|slice| since(self.marked.take(), &slice.version, now));
        // A record that was lost or that another cluster has confirms nothing.
        if self.record.is_none() || self.confirmed_for.as_ref() != slice.map(|slice| &slice.version)
        {
            self.confirmed_for = None;
        }
        self.is_known |= target.is_shared || slice.is_some();
        let is_idle = slice.is_some() && !target.is_used && !target.is_needed;
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or(now));
        self.backoff.forget_old(now);
    }

    /// How long the block is neither used nor needed, but not longer than it takes until it is marked:
    /// the mark of a block that could not be marked in time is no older than that of any other one.
    pub(super) fn idle_time(&self, delays: Delays, now: Instant) -> Duration {
        let since = self.idle_since.unwrap_or(now);
        now.saturating_duration_since(since).min(delays.idle())
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
    since.is_some_and(|(_, at)| now.saturating_duration_since(*at) >= delay)
}

impl Target {
    /// The name of the record.
    pub(super) fn key(&self) -> Key {
        Key::Block {
            network: (*self.network).into(),
            block: self.block,
        }
    }

    /// The record, if there is one that can be decoded.
    pub(super) fn record(&self) -> Option<(&Entry, &BlockRecord)> {
        let entry = self.entry.as_deref()?;
        match entry.record()? {
            RegistryRecord::Block(record) => Some((entry, record)),
            _ => None,
        }
    }

    /// The record, if the registry shows that it is one of this cluster.
    fn own_record(&self) -> Option<(&Entry, &BlockRecord)> {
        let is_own = |(_, record): &(&Entry, &BlockRecord)| *record.cluster == *self.cluster;
        self.record().filter(is_own).filter(|_| self.is_listed)
    }

    /// What the registry shows, as the protocol sees it, at `second`.
    pub(super) fn shown(&self, second: i64) -> Record {
        if !self.is_listed {
            return Record::Unknown;
        }
        let entry = self.entry.as_deref();
        shown(entry, &self.cluster, self.delays.quarantine, second)
    }

    /// Whether no claim uses the block or waits for it.
    pub(super) fn is_unused(&self) -> bool {
        !self.is_needed && !self.is_used
    }

    /// The view of the protocol, after [`Memory::update`]. `second` is the time of the API server,
    /// in seconds since the Unix epoch.
    pub(super) fn view(&self, memory: &Memory, now: Instant, second: i64) -> View {
        let slice = self.slice.as_ref().map(|slice| Slice {
            confirmation: if memory.confirmed_for.is_some() {
                Confirmation::Received
            } else {
                slice.state().confirmation
            },
            mark: self.mark(slice, memory, now, second),
            ..slice.state()
        });
        let has_conflict = slice.is_some_and(|slice| slice.is_conflicting);
        let mut view = View {
            // The network and the slice may be missing only because they are not restored yet.
            record: if memory.is_known {
                self.shown(second)
            } else {
                Record::Unknown
            },
            is_shared: self.is_shared,
            slice,
            is_used: self.is_used,
            is_needed: self.is_needed,
            is_idle: has_conflict || memory.idle_time(self.delays, now) >= self.delays.idle(),
            is_settled: is_known_for(memory.record.as_ref(), self.delays.settle, now),
            is_being_taken: self.is_being_taken(second),
            access: self.access,
        };
        // A mark in the future would keep the block until then: the clock has jumped, or the mark was
        // edited. It is written again, unless it is removed.
        let marked = self.slice.as_ref().and_then(|slice| slice.empty_since);
        let is_rewritten = marked.is_some_and(|since| since > second) && !view.is_wanted();
        if is_rewritten && let Some(slice) = &mut view.slice {
            slice.mark = Mark::None;
        }
        view
    }

    /// The mark of a slice. Whether a list shows every address that was allocated before the mark is
    /// measured by the clock of this process; for how long the block was empty, by that of the API
    /// server.
    fn mark(&self, slice: &BlockSlice, memory: &Memory, now: Instant, second: i64) -> Mark {
        let Some(empty_since) = slice.empty_since else {
            return Mark::None;
        };
        let is_recent = second.saturating_sub(empty_since) < self.delays.keep;
        // No address of a block of two clusters is allocated: to keep it helps neither.
        let is_kept = is_recent && slice.conflict.is_none();
        if is_kept || !is_known_for(memory.marked.as_ref(), self.delays.drain, now) {
            return Mark::Recent;
        }
        Mark::Old
    }

    /// Whether another manager of this cluster can have begun to take the block: it knows claims
    /// that this one does not serve.
    fn is_being_taken(&self, second: i64) -> bool {
        let began = match (&self.slice, self.own_record()) {
            (Some(slice), _) if slice.confirmed_at.is_some() => None,
            (Some(slice), _) => slice.assigned_at,
            (None, Some((_, record))) => record.since.as_ref().map(|since| since.0.as_second()),
            (None, None) => None,
        };
        self.has_peers && began.is_some_and(|began| second.saturating_sub(began) < TAKE_TIMEOUT)
    }
}

/// What a listed registry shows under the name of a block, as the protocol sees it, for the management cluster
/// with this identity, at `second`. `quarantine` is how long after its return another cluster takes no
/// block, in seconds.
pub(super) fn shown(entry: Option<&Entry>, cluster: &str, quarantine: i64, second: i64) -> Record {
    match entry.map(Entry::record) {
        None => Record::Absent,
        Some(Some(RegistryRecord::Block(record))) if record.cluster == cluster => Record::Ours {
            is_returned: record.returned_at.is_some(),
            is_contested: !record.contenders.is_empty(),
        },
        Some(Some(RegistryRecord::Block(record))) => Record::Theirs {
            names_us: record.contenders.iter().any(|id| id == cluster),
            is_full: record.contenders.len() >= MAX_CONTENDERS,
            holding: holding(record, cluster, quarantine, second),
        },
        Some(_) => Record::Unreadable,
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

#[cfg(test)]
mod tests;
