//! Decides on the blocks of a network: compares what the registry, the IPSlices and the pools say,
//! and reports what the network can get.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{Scope, reservation_name};
use capi_ipam_controller::client::error_chain;
use capi_ipam_ip::{Block, Span};
use capi_ipam_ledger::{BlockMember, BlockObstacle, BlockSupply, BlockView, NetworkBlocks};
use capi_ipam_registry::{Record, cidr};
use tracing::{debug, warn};

use super::super::agreement::{Agreement, ForeignEntries, Proposal};
use super::super::needs::{Member, Needs, OwnBlock, Shortage, Situation};
use super::super::other_blocks::OtherBlocks;
use super::super::steps::UNKNOWN_CLUSTER;
use super::{Driver, Due, network_key};

/// The maximum number of writes of the record of a network in one pass.
const MAX_WRITES: usize = 8;

/// What a pass found of a network.
pub(super) struct Pass {
    blocks: BTreeMap<Block, BlockView>,
    own: BTreeMap<Block, OwnBlock>,
    pub(super) others: OtherBlocks,
    /// The blocks that this cluster contends for.
    contended: BTreeSet<Block>,
}

impl Driver {
    /// Decides on the blocks of a network.
    pub(super) async fn plan(&mut self, network: &Arc<str>, found: &NetworkBlocks) -> Vec<Due> {
        let agreed = self.agree(network, found).await;
        let agreed = agreed.map(|agreed| self.keep_foreign(network, agreed));
        let pass = self.classify(network, found);
        self.warn_of_unavailable(network, &pass);
        let needs = match &found.rules {
            Some(rules) => Situation::new(rules, &pass.own, &pass.others, &members(found)).needs(),
            None => Needs::default(),
        };
        self.report_supply(network, found, &pass, &needs, agreed.as_ref());
        // No block is taken before the pools respect what other management clusters exclude.
        let may_take = match &agreed {
            Some(Agreement::Agreed { excluded }) => {
                self.ledger(|ledger| ledger.respects(network, excluded))
            }
            _ => false,
        };
        let mut delays = self.delays(found);
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
                may_take,
                overlaps: pass.overlapping_holder(block),
                delays,
            });
        }
        all
    }

    /// Compares the record of a network with what this management cluster does, and writes it if
    /// it has to. `None` if the record is not known, or cannot be written now.
    async fn agree(&mut self, network: &Arc<str>, found: &NetworkBlocks) -> Option<Agreement> {
        let registry = Arc::clone(&self.writer.registry);
        let rules = found.rules.as_ref()?;
        if !registry.is_confirmed() || registry.is_suspended() || !self.may_request() {
            return None;
        }
        let key = network_key(network);
        let excluded = self.ledger(|ledger| ledger.own_exclusions(network));
        let proposal = Proposal {
            cluster: &registry.cluster,
            network,
            size: 1_u64.checked_shl(rules.shift)?,
            excluded: &excluded,
        };
        for _ in 0..MAX_WRITES {
            let entry = registry.records.get(&key);
            let record = match entry.as_deref() {
                None => None,
                Some(entry) => match entry.record() {
                    Some(Record::Network(record)) => Some(record),
                    // It cannot be decoded: another version of this program may have written it.
                    _ => return Some(Agreement::Undecodable),
                },
            };
            let wanted = match proposal.agree(record) {
                Agreement::Write(wanted) => wanted,
                agreed => {
                    self.refusals.ended(&key);
                    return Some(agreed);
                }
            };
            if !self.refusals.is_due(&key, Instant::now()) {
                return None;
            }
            let written = self
                .writer
                .write_network(&key, entry.as_deref(), wanted)
                .await;
            if let Err(error) = written {
                debug!(%network, error = error_chain(&error), "cannot write the record of a network, will retry");
                self.request_failed(&key, &error);
                return None;
            }
        }
        None
    }

    /// Adds to what other management clusters exclude what the record has contained until recently.
    fn keep_foreign(&mut self, network: &Arc<str>, agreed: Agreement) -> Agreement {
        let Agreement::Agreed { excluded } = agreed else {
            return agreed;
        };
        let now = Instant::now();
        if !self.foreign.contains_key(network) {
            let respected = self.ledger(|ledger| ledger.foreign_exclusions(network));
            let known = ForeignEntries::new(respected, now);
            self.foreign.insert(Arc::clone(network), known);
        }
        let excluded = match self.foreign.get_mut(network) {
            Some(known) => known.update(excluded, now),
            None => excluded,
        };
        Agreement::Agreed { excluded }
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
    pub(super) fn classify(&self, network: &Arc<str>, found: &NetworkBlocks) -> Pass {
        let mut pass = Pass {
            blocks: found
                .blocks
                .iter()
                .map(|view| (view.block, view.clone()))
                .collect(),
            own: BTreeMap::new(),
            others: OtherBlocks::default(),
            contended: BTreeSet::new(),
        };
        let mut others = Vec::new();
        let cluster = &self.registry().cluster;
        for (block, entry) in self.registry().records.blocks(network) {
            match entry.record() {
                Some(Record::Block(record)) if record.cluster == *cluster => {
                    let own = pass.own_block(block);
                    own.is_conflicting |= !record.contenders.is_empty();
                }
                Some(Record::Block(record)) => {
                    if record.contenders.contains(cluster) {
                        pass.contended.insert(block);
                    }
                    others.push((block, Some(Arc::from(record.cluster.as_str()))));
                }
                _ => others.push((block, None)),
            }
        }
        pass.others = others.into_iter().collect();
        for view in &found.blocks {
            let Some(slice) = &view.slice else {
                continue;
            };
            let is_own = self.is_own(slice, found.rules.is_some());
            pass.own_block(view.block).set_slice(slice, is_own);
        }
        for (block, own) in &mut pass.own {
            own.is_conflicting |= pass.others.overlaps(*block);
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
        agreed: Option<&Agreement>,
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
        // What was known last stays: another manager may have written it.
        let excluded = match agreed {
            Some(Agreement::Agreed { excluded }) => Some(excluded.clone()),
            _ => None,
        };
        let is_shown = self.registry().is_available();
        let supply = BlockSupply {
            others: match &found.rules {
                Some(_) if is_shown => Some(pass.others.len()),
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
            excluded,
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
        agreed: Option<&Agreement>,
    ) -> Option<BlockObstacle> {
        match agreed {
            Some(Agreement::SizeDiffers { size, cluster }) => Some(BlockObstacle::SizeDiffers {
                size: *size,
                cluster: cluster.clone(),
            }),
            Some(Agreement::Undecodable) => Some(BlockObstacle::RecordUndecodable),
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
        targets.extend(&self.contended);
        targets
    }

    /// Whether an address of a block is in use.
    fn is_used(&self, block: Block) -> bool {
        match self.blocks.get(&block) {
            Some(view) => view.is_used,
            None => false,
        }
    }

    /// The holder of a block of another size that overlaps with this one.
    pub(super) fn overlapping_holder(&self, block: Block) -> Option<Arc<str>> {
        let other = self.others.of_other_size(block)?;
        match other.holder {
            Some(holder) => Some(Arc::clone(holder)),
            None => Some(UNKNOWN_CLUSTER.into()),
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
