//! The records of the blocks of a network, sorted by who has them.
//!
//! Every bind makes a pass, and a network can have 100,000 records. So they are sorted again only when one
//! of them has changed, or when the quarantine of one is over.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use capi_ipam_ip::{Block, Family};
use capi_ipam_protocol::block::{Holding, Record as RecordState};
use capi_ipam_registry::{Entry, Record};

use super::super::addresses::Addresses;
use super::super::open_registry::OpenRegistry;
use super::super::target::shown;

/// The records of the blocks of a network.
#[derive(Debug, Default)]
pub(super) struct SortedRecords {
    /// The blocks that this cluster has, and whether another one contends for them. One that was returned is
    /// nobody's: this cluster may take it back.
    pub(super) own: Vec<(Block, bool)>,
    /// The blocks that other clusters have, also those in quarantine.
    pub(super) others: BTreeSet<Block>,
    /// The addresses of these.
    pub(super) addresses: Addresses,
    /// The blocks that this cluster contends for.
    pub(super) contended: BTreeSet<Block>,
    /// The first block of each family and length that somebody has.
    pub(super) of_lengths: BTreeMap<(Family, u8), Block>,
    /// When the next quarantine is over, in seconds since the Unix epoch.
    until: Option<i64>,
}

impl SortedRecords {
    fn new(records: &[(Block, Arc<Entry>)], cluster: &str, quarantine: i64, second: i64) -> Self {
        let mut sorted = Self::default();
        for (block, entry) in records {
            let state = shown(Some(entry), cluster, quarantine, second);
            sorted.add(*block, state);
            if let RecordState::Theirs {
                holding: Holding::Returned,
                ..
            } = state
            {
                sorted.sort_again_after(entry, quarantine, second);
            }
        }
        sorted.addresses = sorted.others.iter().copied().collect();
        sorted
    }

    fn add(&mut self, block: Block, state: RecordState) {
        match state {
            RecordState::Ours {
                is_returned: false,
                is_contested,
            } => {
                self.own.push((block, is_contested));
                self.add_length(block);
                return;
            }
            RecordState::Theirs {
                names_us, holding, ..
            } => {
                if names_us {
                    self.contended.insert(block);
                }
                if holding == Holding::Free {
                    return;
                }
            }
            // The cluster that contends for it takes it after the quarantine.
            RecordState::Ours {
                is_contested: true, ..
            }
            | RecordState::Unreadable => {}
            RecordState::Ours { .. } | RecordState::Absent | RecordState::Unknown => return,
        }
        self.others.insert(block);
        self.add_length(block);
    }

    fn add_length(&mut self, block: Block) {
        let length = (block.family(), block.length());
        self.of_lengths.entry(length).or_insert(block);
    }

    /// Records when the quarantine of a block is over. Afterwards, only a change of its record matters.
    fn sort_again_after(&mut self, entry: &Entry, quarantine: i64, second: i64) {
        let Some(Record::Block(record)) = entry.record() else {
            return;
        };
        if let Some(at) = &record.returned_at {
            let end = at.0.as_second().saturating_add(quarantine);
            if end > second {
                self.until = Some(self.until.unwrap_or(end).min(end));
            }
        }
    }
}

/// The sorted records of networks.
#[derive(Debug, Default)]
pub(super) struct SortedNetworks(HashMap<Arc<str>, Sorted>);

#[derive(Debug)]
struct Sorted {
    /// The number of changes of the records, see
    /// [`block_changes`](capi_ipam_registry::RecordCache::block_changes).
    changes: u64,
    quarantine: i64,
    records: Arc<SortedRecords>,
}

impl SortedNetworks {
    /// The records of a network at this second.
    pub(super) fn get(
        &mut self,
        registry: &OpenRegistry,
        network: &Arc<str>,
        quarantine: i64,
        second: i64,
    ) -> Arc<SortedRecords> {
        // A change after this number is read is found in the next pass.
        let changes = registry.records.block_changes(network);
        if let Some(known) = self.0.get(network)
            && known.changes == changes
            && known.quarantine == quarantine
            && known.records.until.is_none_or(|until| second < until)
        {
            return Arc::clone(&known.records);
        }
        let all = registry.records.blocks(network);
        let records = SortedRecords::new(&all, &registry.cluster, quarantine, second);
        let records = Arc::new(records);
        let sorted = Sorted {
            changes,
            quarantine,
            records: Arc::clone(&records),
        };
        self.0.insert(Arc::clone(network), sorted);
        records
    }

    /// Forgets other networks than these.
    pub(super) fn retain(&mut self, networks: &BTreeSet<Arc<str>>) {
        self.0.retain(|network, _| networks.contains(network));
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::BlockRecord;
    use capi_ipam_registry::{Key, Version};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn block(last: u8) -> Block {
        Block::new([10, 0, 0, last].into(), 30)
    }

    /// A record of the block with this last byte, and when it was returned.
    fn record(
        last: u8,
        cluster: &str,
        contender: Option<&str>,
        returned: Option<i64>,
    ) -> (Block, Arc<Entry>) {
        let block = block(last);
        let at = returned.and_then(|second| jiff::Timestamp::from_second(second).ok());
        let record = BlockRecord {
            network: "lab".to_owned(),
            block: capi_ipam_registry::cidr(block),
            cluster: cluster.to_owned(),
            contenders: contender.into_iter().map(str::to_owned).collect(),
            returned_at: at.map(Time),
            ..BlockRecord::default()
        };
        let key = Key::Block {
            network: "lab".into(),
            block,
        };
        let entry = Entry {
            key: key.to_string(),
            version: Version::Bucket {
                incarnation: None,
                revision: 1,
            },
            value: Ok(Record::Block(record)),
        };
        (block, Arc::new(entry))
    }

    #[test]
    fn returned_blocks_are_others_until_their_quarantine_is_over() {
        let records = [
            record(0, "west", None, None),
            record(4, "west", Some("east"), None),
            record(8, "west", None, Some(100)),
            record(12, "west", Some("east"), Some(100)),
            record(16, "east", None, None),
            record(20, "east", Some("west"), Some(100)),
            record(24, "east", None, Some(150)),
            record(28, "east", Some("north"), Some(100)),
        ];
        let at = |second| SortedRecords::new(&records, "west", 50, second);
        let sorted = at(120);
        assert_eq!(sorted.own, [(block(0), false), (block(4), true)]);
        assert_eq!(sorted.others, [12, 16, 20, 24, 28].map(block).into());
        assert_eq!(sorted.contended, [block(20)].into());
        assert_eq!(sorted.until, Some(150));
        assert!(sorted.addresses.overlaps(block(24)));
        assert_eq!(sorted.of_lengths.len(), 1);
        let later = at(150);
        assert_eq!(later.others, [12, 16, 24, 28].map(block).into());
        assert_eq!((later.contended.len(), later.until), (1, Some(200)));
        assert_eq!(at(200).others, [12, 16, 28].map(block).into());
    }

    #[test]
    fn records_are_sorted_again_after_a_change() {
        let cache = capi_ipam_registry::RecordCache::default();
        let before = cache.block_changes("lab");
        let (_, entry) = record(0, "east", None, None);
        cache.apply(&entry);
        let changed = cache.block_changes("lab");
        assert_ne!(before, changed);
        cache.apply(&entry);
        assert_eq!(cache.block_changes("lab"), changed);
        cache.remove(&entry);
        assert_ne!(cache.block_changes("lab"), changed);
        assert_eq!(cache.block_changes("other"), 0);
    }
}
