//! What the management clusters agree on for a network: the size of blocks, and the addresses that
//! none of them allocates. Plain values, no I/O.

use std::collections::BTreeMap;

use capi_ipam_registry::NetworkRecord;

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
