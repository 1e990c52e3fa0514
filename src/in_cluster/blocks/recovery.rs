//! A registry that has lost writes, as after a restore from a backup: plain values, no I/O.
//!
//! It shows blocks as free that management clusters have taken since. Each of them counts the writes of its
//! record, and notices a smaller number. It writes the records of its blocks again, and then signs of
//! life. Until all have done so, no block is taken.
//!
//! The first sign of life can be of a cluster that has not noticed the loss: its watch has not listed the
//! records again. Its process writes no further one before the watch has shown the first, see
//! `OpenRegistry::may_show_life`. So the second one of a process shows that the records are written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::ClusterRecord;
use capi_ipam_registry::{Entry, Record, Version};

/// How long a management cluster is waited for that writes nothing: it may not exist any more.
pub(super) const RECOVERY_TIMEOUT: Duration = Duration::from_mins(15);

/// The signs of life of management clusters in a registry, by identity.
pub(super) type Signs = BTreeMap<Box<str>, Arc<Entry>>;

/// Whether a registry has lost writes: the record of this management cluster was written `known` times,
/// as far as is known, and the registry shows `record`. One without a number was written by an earlier
/// version of this program, or at an API server that does not store it.
pub(super) fn has_lost_writes(known: Option<u64>, record: Option<&ClusterRecord>) -> bool {
    let Some(known) = known else {
        return false;
    };
    match record {
        Some(record) => record.writes.is_some_and(|found| found < known),
        None => true,
    }
}

/// The management clusters that have to write again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    began: Instant,
    /// Those that are waited for.
    awaited: BTreeMap<Box<str>, Awaited>,
}

/// What a management cluster has written since the begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Awaited {
    /// The last sign of life that the registry has shown.
    last: Option<Version>,
    /// The processes that have written one since the begin.
    processes: BTreeSet<String>,
}

impl Recovery {
    /// All other management clusters are waited for: those in the registry, and those that were there
    /// before.
    pub(super) fn begin<'a>(
        own: &str,
        shown: &Signs,
        before: impl Iterator<Item = &'a str>,
        now: Instant,
    ) -> Self {
        let before = before.map(|id| (id.into(), Awaited::default()));
        let mut awaited: BTreeMap<_, _> = before.collect();
        for (id, sign) in shown {
            let shown = Awaited {
                last: Some(sign.version.clone()),
                ..Awaited::default()
            };
            awaited.insert(id.clone(), shown);
        }
        awaited.remove(own);
        Self {
            began: now,
            awaited,
        }
    }

    /// When it has begun.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// The registry cannot be reached now: the time until those that write nothing are not waited for begins again.
    pub(super) fn postpone(&mut self, now: Instant) {
        self.began = now;
    }

    /// Compares the signs of life with those that were shown before. A cluster is no longer waited for after the
    /// second one of a process.
    pub(super) fn update(&mut self, shown: &Signs) {
        self.awaited.retain(|id, awaited| {
            let sign = shown.get(id);
            let Some(sign) = sign.filter(|sign| awaited.last.as_ref() != Some(&sign.version))
            else {
                return true;
            };
            awaited.last = Some(sign.version.clone());
            match sign.record() {
                Some(Record::Cluster(record)) => awaited.processes.insert(record.process.clone()),
                _ => true,
            }
        });
    }

    /// Whether all of them have written again, or are not waited for any longer.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.began);
        self.awaited.is_empty() || elapsed >= RECOVERY_TIMEOUT
    }

    /// The management clusters that are waited for.
    pub(super) fn awaited(&self) -> Vec<String> {
        self.awaited.keys().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs of life by identity, process and revision.
    fn signs(signs: &[(&str, &str, u64)]) -> Signs {
        let mut found = Signs::new();
        for (id, process, revision) in signs {
            let record = ClusterRecord {
                process: (*process).to_owned(),
                ..ClusterRecord::default()
            };
            let entry = Entry {
                key: format!("cluster.{id}"),
                version: Version::Bucket {
                    incarnation: None,
                    revision: *revision,
                },
                value: Ok(Record::Cluster(record)),
            };
            found.insert((*id).into(), Arc::new(entry));
        }
        found
    }

    #[test]
    fn fewer_writes_than_before_are_a_loss() {
        let record = |writes| ClusterRecord {
            writes,
            ..ClusterRecord::default()
        };
        assert!(has_lost_writes(Some(3), None));
        assert!(!has_lost_writes(None, None));
        for (known, found, expected) in [
            (None, Some(3), false),
            (Some(3), Some(2), true),
            (Some(3), Some(3), false),
            (Some(3), Some(4), false),
            (Some(3), None, false),
        ] {
            let has_lost = has_lost_writes(known, Some(&record(found)));
            assert_eq!(has_lost, expected, "{known:?} {found:?}");
        }
    }

    #[test]
    fn blocks_are_taken_when_all_others_have_written_again() {
        let now = Instant::now();
        let shown = signs(&[("east", "a", 7), ("west", "b", 9)]);
        let before = ["east", "south", "west"];
        let mut recovery = Recovery::begin("west", &shown, before.into_iter(), now);
        assert_eq!(recovery.awaited(), ["east", "south"]);
        recovery.update(&signs(&[("east", "a", 7), ("south", "c", 10)]));
        recovery.update(&signs(&[("east", "a", 7), ("south", "c", 11)]));
        assert_eq!(recovery.awaited(), ["east"]);
        recovery.update(&signs(&[("east", "a", 12)]));
        // It may not have noticed the loss yet.
        assert!(!recovery.is_over(now));
        recovery.update(&signs(&[("east", "a", 12)]));
        assert!(!recovery.is_over(now));
        recovery.update(&signs(&[("east", "a", 13)]));
        assert!(recovery.is_over(now));
    }

    /// Two managers of a management cluster, neither of which may have noticed the loss.
    #[test]
    fn signs_of_two_processes_are_not_enough() {
        let now = Instant::now();
        let shown = signs(&[("east", "a", 7)]);
        let mut recovery = Recovery::begin("west", &shown, std::iter::empty(), now);
        recovery.update(&signs(&[("east", "a", 8)]));
        recovery.update(&signs(&[("east", "b", 9)]));
        assert!(!recovery.is_over(now));
        recovery.update(&signs(&[("east", "b", 10)]));
        assert!(recovery.is_over(now));
    }

    #[test]
    fn cluster_that_writes_nothing_is_not_waited_for_forever() {
        let now = Instant::now();
        let shown = signs(&[("east", "a", 7)]);
        let mut recovery = Recovery::begin("west", &shown, std::iter::empty(), now);
        let almost = RECOVERY_TIMEOUT.saturating_sub(Duration::from_secs(1));
        assert!(!recovery.is_over(now + almost));
        assert!(recovery.is_over(now + RECOVERY_TIMEOUT));
        // The registry could not be reached until then.
        recovery.postpone(now + almost);
        assert!(!recovery.is_over(now + RECOVERY_TIMEOUT));
        assert!(recovery.is_over(now + almost + RECOVERY_TIMEOUT));
    }
}
