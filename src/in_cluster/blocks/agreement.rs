//! What the management clusters agree on for a network: the size of blocks, and the addresses that
//! none of them allocates. Plain values, no I/O.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use capi_ipam_registry::NetworkRecord;

/// How long addresses stay excluded after the record of a network has contained them. When the
/// record is lost or deleted, the first management cluster writes it without the exclusions of the
/// others. Each of them compares the record with its own at least every ten minutes.
const EXCLUSION_RETENTION: Duration = Duration::from_mins(15);

/// What is to be done about the record of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// Write this record, and decide again.
    Write(NetworkRecord),
    /// The record says what this management cluster does.
    Agreed {
        /// What other management clusters exclude.
        excluded: Vec<String>,
    },
    /// Blocks have another size in another management cluster.
    SizeDiffers {
        /// The size there.
        size: u64,
        /// The management cluster that set it first.
        cluster: String,
    },
    /// The record cannot be decoded: what the others do is not known.
    Undecodable,
}

/// What other management clusters exclude from a network, and when the record contained it last.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ForeignEntries(BTreeMap<String, Instant>);

impl ForeignEntries {
    /// What this process respects when it reads the record for the first time: an earlier process
    /// has read it.
    pub(super) fn new(respected: Vec<String>, now: Instant) -> Self {
        let respected = respected.into_iter();
        Self(respected.map(|entry| (entry, now)).collect())
    }

    /// Takes in what the record contains. Returns what is excluded, in order.
    pub(super) fn update(&mut self, excluded: Vec<String>, now: Instant) -> Vec<String> {
        for entry in excluded {
            self.0.insert(entry, now);
        }
        self.0
            .retain(|_, seen| now.saturating_duration_since(*seen) < EXCLUSION_RETENTION);
        self.0.keys().cloned().collect()
    }
}

/// What this management cluster does with a network.
pub(super) struct Proposal<'a> {
    pub(super) cluster: &'a str,
    pub(super) network: &'a str,
    /// The number of addresses of a block.
    pub(super) size: u64,
    /// What it excludes.
    pub(super) excluded: &'a [String],
}

impl Proposal<'_> {
    /// Compares the proposal with the record; `None` if there is none.
    pub(super) fn agree(&self, record: Option<&NetworkRecord>) -> Agreement {
        let Some(record) = record else {
            return Agreement::Write(NetworkRecord {
                network: self.network.to_owned(),
                size: self.size,
                size_of: self.cluster.to_owned(),
                excluded: self.with_own(&BTreeMap::new()),
            });
        };
        if record.size != self.size {
            return Agreement::SizeDiffers {
                size: record.size,
                cluster: record.size_of.clone(),
            };
        }
        let wanted = self.with_own(&record.excluded);
        if wanted != record.excluded {
            return Agreement::Write(NetworkRecord {
                excluded: wanted,
                ..record.clone()
            });
        }
        let mut excluded = Vec::new();
        for (cluster, entries) in &record.excluded {
            if cluster != self.cluster {
                excluded.extend(entries.iter().cloned());
            }
        }
        excluded.sort_unstable();
        excluded.dedup();
        Agreement::Agreed { excluded }
    }

    /// The exclusions of all management clusters with those of this one.
    fn with_own(&self, known: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
        let mut all = known.clone();
        if self.excluded.is_empty() {
            all.remove(self.cluster);
        } else {
            all.insert(self.cluster.to_owned(), self.excluded.to_vec());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(excluded: &[String]) -> Proposal<'_> {
        Proposal {
            cluster: "west",
            network: "lab",
            size: 64,
            excluded,
        }
    }

    fn written(agreement: Agreement) -> NetworkRecord {
        match agreement {
            Agreement::Write(record) => record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_cluster_writes_its_own_exclusions() {
        let own = ["10.0.0.1".to_owned()];
        let first = written(proposal(&own).agree(None));
        assert_eq!((first.size, first.size_of.as_str()), (64, "west"));
        let east = Proposal {
            cluster: "east",
            ..proposal(&[])
        };
        let seen = Agreement::Agreed {
            excluded: own.to_vec(),
        };
        assert_eq!(east.agree(Some(&first)), seen);
        let other = ["10.0.0.2".to_owned()];
        let second = written(
            Proposal {
                excluded: &other,
                ..east
            }
            .agree(Some(&first)),
        );
        assert_eq!(second.excluded.len(), 2);
        let seen = Agreement::Agreed {
            excluded: other.to_vec(),
        };
        assert_eq!(proposal(&own).agree(Some(&second)), seen);
        // What is no longer excluded here leaves the record.
        let third = written(proposal(&[]).agree(Some(&second)));
        assert_eq!(third.excluded.keys().collect::<Vec<_>>(), ["east"]);
    }

    #[test]
    fn exclusions_outlive_a_lost_record() {
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(str::to_owned);
        let start = Instant::now();
        let mut known = ForeignEntries::new(vec![a.clone()], start);
        // The record is lost, and this management cluster writes it again.
        let own = ["10.0.0.9".to_owned()];
        let first = written(proposal(&own).agree(None));
        let Agreement::Agreed { excluded } = proposal(&own).agree(Some(&first)) else {
            panic!("the record is the own one");
        };
        assert!(excluded.is_empty());
        let later = start + EXCLUSION_RETENTION / 2;
        assert_eq!(known.update(excluded, later), std::slice::from_ref(&a));
        assert_eq!(known.update(vec![b.clone()], later), [a, b.clone()]);
        // Its cluster does not exclude it any more.
        let end = start + EXCLUSION_RETENTION;
        assert_eq!(known.update(vec![b.clone()], end), [b]);
        let end = end + EXCLUSION_RETENTION;
        assert!(known.update(Vec::new(), end).is_empty());
    }

    #[test]
    fn later_size_differs() {
        let first = written(proposal(&[]).agree(None));
        let later = Proposal {
            cluster: "east",
            size: 32,
            ..proposal(&[])
        };
        let expected = Agreement::SizeDiffers {
            size: 64,
            cluster: "west".to_owned(),
        };
        assert_eq!(later.agree(Some(&first)), expected);
    }
}
