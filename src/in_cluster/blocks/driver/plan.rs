//! Decides on the blocks of a network: compares what the registry, the IPSlices and the pools say,
//! and reports what the network can get.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{Scope, reservation_name};
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::clock;
use capi_ipam_ip::{Block, Span};
use capi_ipam_ledger::{BlockMember, BlockObstacle, BlockSupply, BlockView, NetworkBlocks};
use capi_ipam_registry::{Entry, Key, NetworkRecord, Record, RegistryError, cidr};
use tracing::{debug, warn};

use super::super::needs::{Member, Needs, OwnBlock, Shortage, Situation};
use super::super::steps::UNKNOWN_CLUSTER;
use super::sorted::SortedRecords;
use super::{Driver, Due, network_key};

/// The time between two changes of the record of a network.
const NETWORK_WRITE_INTERVAL: Duration = Duration::from_mins(1);

/// What a pass found of a network.
struct Pass {
    blocks: BTreeMap<Block, BlockView>,
    own: BTreeMap<Block, OwnBlock>,
    records: Arc<SortedRecords>,
}

impl Driver {
    /// Decides on the blocks of a network.
    pub(super) async fn plan(&mut self, network: &Arc<str>, found: &NetworkBlocks) -> Vec<Due> {
        let mut delays = self.delays(network, found);
        let registry = Arc::clone(&self.writer.registry);
        let second = clock::now().0.as_second();
        let records = self
            .sorted
            .get(&registry, network, delays.quarantine, second);
        let agreed = self.agree(network, found, &records).await;
        let pass = self.classify(found, &records);
        self.warn_of_unavailable(network, &pass);
        let needs = match &found.rules {
            Some(rules) => {
                let others = &pass.records.addresses;
                Situation::new(rules, &pass.own, others, &members(found)).needs()
            }
            None => Needs::default(),
        };
        self.report_supply(network, found, &pass, &needs, agreed.as_ref());
        if needs.is_limited {
            // A claim waits for the room that empty blocks take.
            delays.keep = 0;
        }
        let mut all = Vec::new();
        for block in pass.targets(&needs) {
            all.push(Due {
                network: Arc::clone(network),
                block,
                is_needed: needs.blocks.contains(&block),
                is_used: pass.is_used(block),
                is_shared: found.rules.is_some(),
                may_take: matches!(agreed, Some(Ok(()))),
                delays,
            });
        }
        all
    }

    /// Compares the rules of a network with its record, and writes the record if it has to. Returns why no
    /// block is taken; `None` if the record is not known, or cannot be written now.
    async fn agree(
        &mut self,
        network: &Arc<str>,
        found: &NetworkBlocks,
        records: &SortedRecords,
    ) -> Option<Result<(), BlockObstacle>> {
        let registry = Arc::clone(&self.writer.registry);
        let rules = found.rules.as_ref()?;
        if !registry.is_confirmed() || registry.is_suspended() || !self.may_request() {
            return None;
        }
        let key = network_key(network);
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
            size_of: registry.cluster.clone(),
            quarantine_seconds: Some(rules.quarantine_seconds),
        };
        let obstacle = match known {
            Some(known) if known.size != own.size => Some(BlockObstacle::SizeDiffers {
                size: known.size,
                cluster: known.size_of.clone(),
            }),
            _ => self.block_of_other_size(network, found, own.size, records),
        };
        if let Some(obstacle) = obstacle {
            self.refusals.ended(&key);
            return Some(Err(obstacle));
        }
        if let Some(wanted) = wanted_record(known, own)
            && self.may_write_network(network, known.is_none())
        {
            self.write_network(&key, entry.as_deref(), wanted).await?;
            self.network_writes
                .insert(Arc::clone(network), Instant::now());
        }
        self.refusals.ended(&key);
        Some(Ok(()))
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
        for block in &records.of_lengths {
            let length = found.lengths.of(block.family());
            if let Some(length) = length.filter(|length| *length != block.length()) {
                let entry = self.registry().records.block(network, *block);
                return Some(BlockObstacle::SizeDiffers {
                    size: other_size(size, length, block.length()),
                    cluster: holder(entry.as_deref()).to_owned(),
                });
            }
        }
        None
    }

    /// Whether the record of a network may be written now. A manager of an earlier version removes the
    /// quarantine from it each time.
    fn may_write_network(&self, network: &Arc<str>, is_missing: bool) -> bool {
        let last = self.network_writes.get(network);
        let is_recent = last.is_some_and(|last| last.elapsed() < NETWORK_WRITE_INTERVAL);
        is_missing || !is_recent
    }

    /// Writes the record of a network; `None` if this fails.
    async fn write_network(
        &mut self,
        key: &Key,
        known: Option<&Entry>,
        wanted: NetworkRecord,
    ) -> Option<()> {
        if !self.refusals.is_due(key, Instant::now()) {
            return None;
        }
        let Err(error) = self.writer.write_network(key, known, wanted).await else {
            return Some(());
        };
        debug!(record = %key, error = error_chain(&error), "cannot write the record of a network, will retry");
        // The next pass finds what was written meanwhile.
        let is_changed = matches!(
            error,
            RegistryError::Conflict { .. } | RegistryError::Unknown { .. }
        );
        if !is_changed {
            self.request_failed(key, &error);
        }
        None
    }

    /// Reports each block once of which no address is allocated, since its IPSlice is not valid or is
    /// being deleted: an operator has to correct it.
    fn warn_of_unavailable(&mut self, network: &Arc<str>, pass: &Pass) {
        for (block, view) in &pass.blocks {
            let place = (Arc::clone(network), *block);
            let is_unavailable = match &view.slice {
                Some(slice) => !slice.is_valid || slice.is_deleting,
                None => false,
            };
            if !is_unavailable {
                self.reported.remove(&place);
            } else if self.reported.insert(place) {
                warn!(
                    %network,
                    block = %cidr(*block),
                    slice = slice_name(network, *block),
                    "the IPSlice of a block is not valid or is being deleted; no address of the block is allocated; \
                     correct the IPSlice, or delete it and remove its finalizers"
                );
            }
        }
    }

    /// Sorts the blocks of a network by who has them.
    fn classify(&self, found: &NetworkBlocks, records: &Arc<SortedRecords>) -> Pass {
        let mut pass = Pass {
            blocks: found
                .blocks
                .iter()
                .map(|view| (view.block, view.clone()))
                .collect(),
            own: BTreeMap::new(),
            records: Arc::clone(records),
        };
        for (block, is_contested) in &records.own {
            pass.own_block(*block).is_conflicting |= is_contested;
        }
        for view in &found.blocks {
            let Some(slice) = &view.slice else {
                continue;
            };
            let is_own = self.is_own(slice, found.rules.is_some());
            pass.own_block(view.block).set_slice(slice, is_own);
        }
        for (block, own) in &mut pass.own {
            own.is_conflicting |= records.others.contains(block);
            own.is_usable &= !own.is_conflicting;
        }
        pass
    }

    /// Tells the network, and the claims that wait for a block, what the registry has for them.
    fn report_supply(
        &self,
        network: &str,
        found: &NetworkBlocks,
        pass: &Pass,
        needs: &Needs,
        agreed: Option<&Result<(), BlockObstacle>>,
    ) {
        let most = found.rules.as_ref().and_then(|rules| rules.most);
        let obstacle_of = |shortage: &Shortage| match shortage {
            Shortage::AllTaken => BlockObstacle::AllTaken,
            Shortage::Limit => BlockObstacle::Limit(most.unwrap_or_default()),
            Shortage::Unavailable(block) => {
                BlockObstacle::SliceUnavailable(slice_name(network, *block))
            }
        };
        let mut pools = BTreeMap::new();
        for (pool, shortage) in &needs.pools {
            pools.insert(pool.clone(), obstacle_of(shortage));
        }
        let mut requested = BTreeMap::new();
        for (address, shortage) in &needs.requested {
            requested.insert(*address, obstacle_of(shortage));
        }
        let is_shown = self.registry().is_available();
        let supply = BlockSupply {
            others: match &found.rules {
                Some(_) if is_shown => Some(pass.records.others.len()),
                Some(_) => None,
                None => Some(0),
            },
            // A network that shares no blocks any more needs no further block. The drivers of several
            // registries report the same.
            obstacle: match &found.rules {
                Some(_) => self.obstacle(network, needs, agreed),
                None => None,
            },
            pools,
            requested,
            differing_clusters: self.registry().differing_clusters(network),
        };
        self.writer
            .context
            .ledger
            .change(|ledger| ledger.set_block_supply(network, &supply));
    }

    /// Why no pool of a network gets a further block now.
    fn obstacle(
        &self,
        network: &str,
        needs: &Needs,
        agreed: Option<&Result<(), BlockObstacle>>,
    ) -> Option<BlockObstacle> {
        match agreed {
            Some(Err(obstacle)) => Some(obstacle.clone()),
            _ if self.registry().is_suspended() => Some(BlockObstacle::Suspended),
            _ if self.registry().is_replaced() => Some(BlockObstacle::Replaced),
            _ if self.registry().unreachable().is_some() => Some(BlockObstacle::Unreachable),
            _ if self.registry().is_recovering() => Some(BlockObstacle::Restored),
            _ if self.is_refused(network, needs) => Some(BlockObstacle::Refused),
            _ => None,
        }
    }
}

impl Pass {
    /// The blocks for which something can be due: those that this cluster has, uses, needs, or contends
    /// for.
    fn targets(&self, needs: &Needs) -> BTreeSet<Block> {
        let mut targets: BTreeSet<Block> = self.own.keys().copied().collect();
        targets.extend(self.blocks.keys());
        targets.extend(&needs.blocks);
        targets.extend(&self.records.contended);
        targets
    }

    /// Whether an address of a block is in use.
    fn is_used(&self, block: Block) -> bool {
        match self.blocks.get(&block) {
            Some(view) => view.is_used,
            None => false,
        }
    }

    /// A block that this cluster has, or is taking or returning.
    fn own_block(&mut self, block: Block) -> &mut OwnBlock {
        let is_used = self.is_used(block);
        self.own.entry(block).or_insert(OwnBlock {
            is_used,
            is_conflicting: false,
            is_usable: false,
            is_marked: false,
            is_unavailable: false,
        })
    }
}

/// What the record of a network becomes; `None` if it stays. The longest quarantine counts.
fn wanted_record(known: Option<&NetworkRecord>, own: NetworkRecord) -> Option<NetworkRecord> {
    let Some(known) = known else {
        return Some(own);
    };
    if own.quarantine() <= known.quarantine() {
        return None;
    }
    Some(NetworkRecord {
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

/// The holder in the record of a block.
fn holder(entry: Option<&Entry>) -> &str {
    match entry.and_then(Entry::record) {
        Some(Record::Block(record)) => &record.cluster,
        _ => UNKNOWN_CLUSTER,
    }
}

/// The name of the IPSlice of a block.
fn slice_name(network: &str, block: Block) -> String {
    reservation_name(&Scope::Network(network.into()), block)
}

/// The pools of a network, as the choice of blocks needs them.
fn members(found: &NetworkBlocks) -> Vec<Member> {
    let mut members = Vec::new();
    for member in &found.members {
        if member.can_allocate {
            members.extend(self::member(member));
        }
    }
    members
}

/// A pool of a network; `None` if the length of its blocks is not known.
fn member(member: &BlockMember) -> Option<Member> {
    let allowed = member.allowed.as_ref()?;
    let mut ranges = Vec::new();
    for span in allowed.allocatable().spans() {
        let first = allowed.block(span.first()).span().first();
        let last = allowed.block(span.last()).span().last();
        ranges.extend(Span::new(first, last));
    }
    Some(Member {
        pool: member.pool.clone(),
        family: allowed.family,
        length: member.length?,
        ranges: ranges.into_iter().collect(),
        waits: member.waits,
        needs_further_block: member.needs_further_block,
        turns: member.turns,
        is_full: member.is_full,
        requested: member.requested.clone(),
    })
}
