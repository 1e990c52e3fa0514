//! Decides on the blocks of a network: compares what the registry, the IPSlices and the pools say,
//! and reports what the network can get.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::clock;
use capi_ipam_ip::Block;
use capi_ipam_ledger::{BlockObstacle, BlockSupply, NetworkBlocks};
use capi_ipam_protocol::block::{Access, Step};
use capi_ipam_registry::{Created, Entry, Key, NetworkRecord, Record};
use tracing::debug;

use super::super::backoff::Backoff;
use super::super::needs::{Needs, OwnBlock, Situation};
use super::super::target::{Delays, Target};
use super::Driver;
use super::sorted::{Rules, SortedRecords};
use super::steps::UNKNOWN_CLUSTER;

/// The time between two changes of the record of a network.
const NETWORK_WRITE_INTERVAL: Duration = Duration::from_mins(1);

/// The writes of the record of a network.
#[derive(Debug, Default)]
pub(super) struct NetworkWrites {
    last: Option<Instant>,
    backoff: Backoff,
}

impl Driver {
    /// Decides on the blocks of a network.
    pub(super) async fn plan(&mut self, network: &Arc<str>, found: &NetworkBlocks) -> Vec<Target> {
        let mut delays = self.delays(network, found);
        let registry = Arc::clone(&self.registry);
        let second = clock::now().0.as_second();
        let rules = Rules {
            quarantine: delays.quarantine,
            lengths: found.lengths,
        };
        let records = self.sorted.get(&registry, network, rules, second);
        let agreed = self.agree(network, found, &records).await;
        let own = self.own_blocks(found, &records);
        let needs = match &found.rules {
            Some(rules) => {
                let others = &records.addresses;
                Situation::new(network, rules, &own, others, &found.members).needs()
            }
            None => Needs::default(),
        };
        if needs.is_limited {
            // A claim waits for the room that empty blocks take.
            delays.keep = 0;
        }
        // Those that this cluster has, uses, needs, or contends for.
        let mut blocks: BTreeSet<Block> = own.keys().copied().collect();
        blocks.extend(found.blocks.iter().map(|view| view.block));
        blocks.extend(&needs.blocks);
        blocks.extend(&records.contended);
        let mut targets = Vec::new();
        for block in blocks {
            let mut target = Target {
                network: Arc::clone(network),
                block,
                cluster: Arc::clone(&registry.cluster),
                has_peers: !self.context.selection.is_everything(),
                is_shared: found.rules.is_some(),
                is_used: false,
                is_needed: needs.blocks.contains(&block),
                may_take: matches!(agreed, Some(Ok(()))),
                access: Access::Limited,
                delays,
                slice: None,
                is_foreign: false,
                is_listed: false,
                entry: None,
            };
            self.refresh(&mut target);
            targets.push(target);
        }
        let supply = self.supply(network, found, &records, needs, agreed);
        let ledger = &self.context.ledger;
        ledger.change(|ledger| ledger.set_block_supply(network, &supply));
        targets
    }

    /// The delays of the blocks of a network.
    fn delays(&self, network: &str, found: &NetworkBlocks) -> Delays {
        let (keep, quarantine) = match &found.rules {
            Some(rules) => (rules.keep_seconds, rules.quarantine_seconds),
            None => (0, 0),
        };
        let record = self.registry.records.network(network).unwrap_or_default();
        Delays {
            settle: self.registry.backend.registry.settle_time(),
            drain: self.drain,
            keep,
            quarantine: record.quarantine().max(quarantine),
        }
    }

    /// Compares the rules of a network with its record, and writes the record if it has to. Returns why no
    /// block is taken; `None` if the record is not known, or cannot be written now.
    async fn agree(
        &mut self,
        network: &Arc<str>,
        found: &NetworkBlocks,
        records: &SortedRecords,
    ) -> Option<Result<(), BlockObstacle>> {
        let registry = Arc::clone(&self.registry);
        let rules = found.rules.as_ref()?;
        if !registry.is_confirmed() || registry.is_suspended() || !self.may_request() {
            return None;
        }
        let key = Key::Network {
            name: (**network).into(),
        };
        let entry = registry.records.get(&key);
        let known = match entry.as_deref().map(Entry::record) {
            None => None,
            Some(Some(Record::Network(record))) => Some(record),
            // Another version of this program may have written it.
            Some(_) => return Some(Err(BlockObstacle::RecordUndecodable)),
        };
        let own = NetworkRecord {
            network: network.to_string(),
            size: 1_u64.checked_shl(rules.shift)?,
            size_of: registry.cluster.to_string(),
            quarantine_seconds: Some(rules.quarantine_seconds),
        };
        let obstacle = match known {
            Some(known) if known.size != own.size => Some(BlockObstacle::SizeDiffers {
                size: known.size,
                cluster: known.size_of.clone(),
            }),
            _ => self.block_of_other_size(network, found, own.size, records),
        };
        let mut writes = self.network_writes.remove(network).unwrap_or_default();
        let mut is_agreed = true;
        if obstacle.is_none()
            && let Some(wanted) = wanted_record(known, own)
            && writes.may_write(known.is_none())
        {
            is_agreed = self
                .write_network(&key, entry.as_deref(), wanted, &mut writes)
                .await;
        }
        if is_agreed {
            writes.backoff.end_refusals();
        }
        self.network_writes.insert(Arc::clone(network), writes);
        is_agreed.then_some(obstacle.map_or(Ok(()), Err))
    }

    /// A block in the registry of another size, which can overlap with those that this cluster takes: the
    /// record of the network was lost, or its size is being changed.
    fn block_of_other_size(
        &self,
        network: &str,
        found: &NetworkBlocks,
        size: u64,
        records: &SortedRecords,
    ) -> Option<BlockObstacle> {
        let block = *records.of_other_length.first()?;
        let own = found.lengths.of(block.family())?;
        let entry = self.registry.records.block(network, block);
        let cluster = match entry.as_deref().and_then(Entry::record) {
            Some(Record::Block(record)) => &record.cluster,
            _ => UNKNOWN_CLUSTER,
        };
        Some(BlockObstacle::SizeDiffers {
            size: other_size(size, own, block.length()),
            cluster: cluster.to_owned(),
        })
    }

    /// Creates or replaces the record of a network. Another management cluster may have created it. Returns
    /// whether this has succeeded.
    async fn write_network(
        &mut self,
        key: &Key,
        known: Option<&Entry>,
        wanted: NetworkRecord,
        writes: &mut NetworkWrites,
    ) -> bool {
        let step = Step::CreateRecord;
        if writes.backoff.wait_time(step, Instant::now()).is_some() {
            return false;
        }
        let registry = Arc::clone(&self.registry);
        let wanted = Record::Network(wanted);
        let written = match known {
            Some(known) => registry.update(known, &wanted).await.map(drop),
            None => match registry.create(key, &wanted).await {
                Ok(Created::Ours(_)) => Ok(()),
                // The next pass compares it: it can have another size.
                Ok(Created::Theirs(_)) => return false,
                Err(error) => Err(error),
            },
        };
        match written {
            Ok(()) => {
                writes.last = Some(Instant::now());
                return true;
            }
            // The next pass finds what was written meanwhile.
            Err(error) => {
                debug!(record = %key, error = error_chain(&error), "cannot write the record of a network, will retry");
                if !error.leaves_record_unknown() {
                    self.request_failed(key, step, &mut writes.backoff, &error);
                }
            }
        }
        false
    }

    /// The blocks that this cluster has, or is taking or returning.
    fn own_blocks(
        &self,
        found: &NetworkBlocks,
        records: &SortedRecords,
    ) -> BTreeMap<Block, OwnBlock> {
        let mut all: BTreeMap<Block, OwnBlock> = BTreeMap::new();
        for (block, is_contested) in &records.own {
            all.entry(*block).or_default().is_conflicting = *is_contested;
        }
        for view in &found.blocks {
            if let Some(slice) = &view.slice {
                let is_other = found.rules.is_some() && self.names_other_registry(slice);
                let is_own = self.has_own_id(slice) && !is_other;
                all.entry(view.block).or_default().set_slice(slice, is_own);
            }
            if let Some(own) = all.get_mut(&view.block) {
                own.is_used = view.is_used;
            }
        }
        for (block, own) in &mut all {
            own.is_conflicting |= records.others.contains(block);
            own.is_usable &= !own.is_conflicting;
        }
        all
    }

    /// What the registry has for the network, and for the claims that wait for a block.
    fn supply(
        &self,
        network: &Arc<str>,
        found: &NetworkBlocks,
        records: &SortedRecords,
        needs: Needs,
        agreed: Option<Result<(), BlockObstacle>>,
    ) -> BlockSupply {
        let registry = &self.registry;
        let mut supply = BlockSupply {
            others: Some(0),
            differing_clusters: registry.differing_clusters(network),
            ..BlockSupply::default()
        };
        // A network that shares no blocks any more needs no further block. The drivers of several
        // registries report the same.
        if found.rules.is_some() {
            supply.others = registry.is_available().then_some(records.others.len());
            supply.obstacle = match agreed {
                Some(Err(obstacle)) => Some(obstacle),
                _ if self.is_refused(network, &needs) => {
                    registry.obstacle().or(Some(BlockObstacle::Refused))
                }
                _ => registry.obstacle(),
            };
            supply.pools = needs.pools;
            supply.requested = needs.requested;
        }
        supply
    }

    /// Whether the registry refuses the record of a network, or that of a block that it needs.
    fn is_refused(&self, network: &Arc<str>, needs: &Needs) -> bool {
        let writes = self.network_writes.get(network);
        let is_block_refused = |block: &Block| {
            let memory = self.memory.get(&(Arc::clone(network), *block));
            memory.is_some_and(|memory| memory.backoff.is_refused())
        };
        writes.is_some_and(|writes| writes.backoff.is_refused())
            || needs.blocks.iter().any(is_block_refused)
    }
}

impl NetworkWrites {
    /// Whether the record may be written now. A manager of an earlier version removes the quarantine from it
    /// each time.
    fn may_write(&self, is_missing: bool) -> bool {
        let is_recent = |last: Instant| last.elapsed() < NETWORK_WRITE_INTERVAL;
        is_missing || !self.last.is_some_and(is_recent)
    }
}

/// What the record of a network becomes; `None` if it stays. The longest quarantine counts.
fn wanted_record(known: Option<&NetworkRecord>, own: NetworkRecord) -> Option<NetworkRecord> {
    let Some(known) = known else {
        return Some(own);
    };
    let is_longer = own.quarantine() > known.quarantine();
    is_longer.then(|| NetworkRecord {
        quarantine_seconds: own.quarantine_seconds,
        ..known.clone()
    })
}

/// The number of addresses of a block with a length, if one with the length `own` has `size`.
fn other_size(size: u64, own: u8, length: u8) -> u64 {
    let larger = u32::from(own.saturating_sub(length));
    let smaller = u32::from(length.saturating_sub(own));
    let size = size.checked_shl(larger).unwrap_or(u64::MAX);
    size.checked_shr(smaller).unwrap_or_default()
}
