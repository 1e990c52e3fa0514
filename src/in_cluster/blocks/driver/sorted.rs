//! The records of the blocks of a network, sorted by who has them.
//!
//! Every bind makes a pass, and a network can have 100,000 records. So a record is sorted again only when it
//! has changed, or when its quarantine is over.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use capi_ipam_api::BlockLengths;
use capi_ipam_ip::Block;
use capi_ipam_protocol::block::{Holding, Record as RecordState};
use capi_ipam_registry::{ChangedBlocks, Entry, Record};

use super::super::addresses::Addresses;
use super::super::open_registry::OpenRegistry;
use super::super::target::shown;

/// The records of the blocks of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SortedRecords {
    /// The blocks that this cluster has, and whether another one contends for them. One that was returned is
    /// nobody's: this cluster may take it back.
    pub(super) own: BTreeMap<Block, bool>,
    /// The blocks that other clusters have, also those in quarantine.
    pub(super) others: BTreeSet<Block>,
    /// The addresses of these.
    pub(super) addresses: Addresses,
    /// The blocks that this cluster contends for.
    pub(super) contended: BTreeSet<Block>,
    /// The blocks that somebody has with another length than those of the network, which can contain addresses
    /// of these.
    pub(super) of_other_length: BTreeSet<Block>,
    /// When a quarantine may be over, in seconds since the Unix epoch.
    quarantines: BTreeSet<(i64, Block)>,
}

impl SortedRecords {
    /// Sorts a record again, as it is now.
    fn update(
        &mut self,
        block: Block,
        entry: Option<&Entry>,
        cluster: &str,
        rules: Rules,
        second: i64,
    ) {
        self.remove(block);
        let state = shown(entry, cluster, rules.quarantine, second);
        let length = rules.lengths.of(block.family());
        self.add(block, state, length.unwrap_or(block.length()));
        if let RecordState::Theirs {
            holding: Holding::Returned,
            ..
        } = state
            && let Some(Record::Block(record)) = entry.and_then(Entry::record)
            && let Some(at) = &record.returned_at
        {
            // One whose quarantine is over waits for a change of the record.
            let end = at.0.as_second().saturating_add(rules.quarantine);
            if end > second {
                self.quarantines.insert((end, block));
            }
        }
    }

    fn add(&mut self, block: Block, state: RecordState, length: u8) {
        let is_own = match state {
            RecordState::Ours {
                is_returned: false,
                is_contested,
            } => {
                self.own.insert(block, is_contested);
                true
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
                false
            }
            // The cluster that contends for it takes it after the quarantine.
            RecordState::Ours {
                is_contested: true, ..
            }
            | RecordState::Unreadable => false,
            RecordState::Ours { .. } | RecordState::Absent | RecordState::Unknown => return,
        };
        if block.length() != length {
            self.of_other_length.insert(block);
        } else if !is_own {
            self.others.insert(block);
            self.addresses.insert(block);
        }
    }

    fn remove(&mut self, block: Block) {
        self.own.remove(&block);
        self.contended.remove(&block);
        self.of_other_length.remove(&block);
        if self.others.remove(&block) {
            self.addresses.remove(block);
        }
    }

    /// Removes and returns the blocks whose quarantine may be over.
    fn take_due(&mut self, second: i64) -> Vec<Block> {
        let mut due = Vec::new();
        while let Some((end, block)) = self.quarantines.first().copied()
            && end <= second
        {
            self.quarantines.pop_first();
            due.push(block);
        }
        due
    }
}

/// The sorted records of networks.
#[derive(Debug, Default)]
pub(super) struct SortedNetworks {
    networks: HashMap<Arc<str>, Sorted>,
    /// The blocks of all networks whose records name this management cluster.
    naming: BTreeMap<Box<str>, BTreeSet<Block>>,
}

/// What the records of a network are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// How long after its return another cluster takes no block, in seconds.
    pub(super) quarantine: i64,
    /// The lengths of the blocks of the network.
    pub(super) lengths: BlockLengths,
}

#[derive(Debug)]
struct Sorted {
    rules: Rules,
    records: Arc<SortedRecords>,
}

impl SortedNetworks {
    /// Takes in what has changed since the last call.
    pub(super) fn update(&mut self, registry: &OpenRegistry, second: i64) {
        match registry.records.take_changed_blocks() {
            ChangedBlocks::These(changed) => {
                for (network, block) in changed {
                    self.update_block(registry, network, block, second);
                }
            }
            ChangedBlocks::Many => {
                *self = Self::default();
                for (network, block, _) in registry.records.blocks_naming(&registry.cluster) {
                    self.naming.entry(network).or_default().insert(block);
                }
            }
        }
    }

    fn update_block(
        &mut self,
        registry: &OpenRegistry,
        network: Box<str>,
        block: Block,
        second: i64,
    ) {
        let cluster = &*registry.cluster;
        let entry = registry.records.block(&network, block);
        let entry = entry.as_deref();
        if let Some(known) = self.networks.get_mut(&*network) {
            let records = Arc::make_mut(&mut known.records);
            records.update(block, entry, cluster, known.rules, second);
        }
        if entry.is_some_and(|entry| entry.names(cluster)) {
            self.naming.entry(network).or_default().insert(block);
        } else if let Some(blocks) = self.naming.get_mut(&network) {
            blocks.remove(&block);
            if blocks.is_empty() {
                self.naming.remove(&network);
            }
        }
    }

    /// The networks with a record that names this management cluster.
    pub(super) fn naming(&self) -> impl Iterator<Item = &str> {
        self.naming.keys().map(|network| &**network)
    }

    /// Whether a network has a record that names this management cluster.
    pub(super) fn names_this_cluster(&self, network: &str) -> bool {
        self.naming.contains_key(network)
    }

    /// The records of a network at this second.
    pub(super) fn get(
        &mut self,
        registry: &OpenRegistry,
        network: &Arc<str>,
        rules: Rules,
        second: i64,
    ) -> Arc<SortedRecords> {
        let cluster = &*registry.cluster;
        let known = self.networks.get_mut(network);
        if let Some(known) = known.filter(|known| known.rules == rules) {
            let records = Arc::make_mut(&mut known.records);
            for block in records.take_due(second) {
                let entry = registry.records.block(network, block);
                records.update(block, entry.as_deref(), cluster, rules, second);
            }
            return Arc::clone(&known.records);
        }
        let mut records = SortedRecords::default();
        for (block, entry) in registry.records.blocks(network) {
            records.update(block, Some(&entry), cluster, rules, second);
        }
        let records = Arc::new(records);
        let sorted = Sorted {
            rules,
            records: Arc::clone(&records),
        };
        self.networks.insert(Arc::clone(network), sorted);
        records
    }

    /// Forgets other networks than these.
    pub(super) fn retain(&mut self, networks: &BTreeSet<Arc<str>>) {
        self.networks
            .retain(|network, _| networks.contains(network));
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::BlockRecord;
    use capi_ipam_registry::{Key, Version};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    const RULES: Rules = Rules {
        quarantine: 50,
        lengths: BlockLengths {
            ipv4: Some(30),
            ipv6: None,
        },
    };

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
        let at = |second| {
            let mut sorted = SortedRecords::default();
            for (block, entry) in &records {
                sorted.update(*block, Some(entry), "west", RULES, second);
            }
            sorted
        };
        let sorted = at(120);
        assert_eq!(sorted.own, [(block(0), false), (block(4), true)].into());
        assert_eq!(sorted.others, [12, 16, 20, 24, 28].map(block).into());
        assert_eq!(sorted.contended, [block(20)].into());
        assert!(sorted.addresses.overlaps(block(24)));
        let later = at(150);
        assert_eq!(later.others, [12, 16, 24, 28].map(block).into());
        assert_eq!(later.contended.len(), 1);
        assert_eq!(at(200).others, [12, 16, 28].map(block).into());

        // The same, found one after the other.
        let mut sorted = at(120);
        for (second, expected) in [(149, vec![]), (150, vec![20, 28]), (200, vec![24])] {
            let due = sorted.take_due(second);
            assert_eq!(due, expected.into_iter().map(block).collect::<Vec<_>>());
            for (block, entry) in &records {
                if due.contains(block) {
                    sorted.update(*block, Some(entry), "west", RULES, second);
                }
            }
        }
        assert_eq!(sorted, at(200));
    }

    /// A record that changes is sorted as if all records were sorted again.
    #[test]
    fn change_of_a_record_sorts_it_again() {
        let states = [
            None,
            Some(record(0, "west", None, None)),
            Some(record(0, "west", Some("east"), None)),
            Some(record(0, "west", None, Some(100))),
            Some(record(0, "east", None, None)),
            Some(record(0, "east", Some("west"), Some(100))),
        ];
        let sorted = |entry: Option<&Entry>| {
            let mut sorted = SortedRecords::default();
            sorted.update(block(0), entry, "west", RULES, 120);
            sorted
        };
        for before in &states {
            for after in &states {
                let [before, after] =
                    [before, after].map(|state| state.as_ref().map(|(_, entry)| &**entry));
                let mut changed = sorted(before);
                changed.update(block(0), after, "west", RULES, 120);
                let mut expected = sorted(after);
                // An end that was remembered before is without effect.
                expected.quarantines.clone_from(&changed.quarantines);
                assert_eq!(changed, expected, "{before:?} {after:?}");
            }
        }
    }

    #[test]
    fn block_of_another_length_is_noted() {
        let block = Block::new([10, 0, 0, 0].into(), 29);
        let mut sorted = SortedRecords::default();
        for (cluster, is_own) in [("east", false), ("west", true)] {
            let (_, entry) = record(0, cluster, None, None);
            sorted.update(block, Some(&entry), "west", RULES, 120);
            assert_eq!(sorted.of_other_length, [block].into());
            assert_eq!(sorted.own.contains_key(&block), is_own);
            assert_eq!(sorted.others, BTreeSet::new());
        }
        sorted.update(block, None, "west", RULES, 120);
        assert_eq!(sorted, SortedRecords::default());
    }
}
