//! Which blocks a network needs that are not in use: plain values, no I/O.
//!
//! | need | blocks |
//! |---|---|
//! | a claim requests an address | the block of the address, but by default none if this cluster uses a quarter of the blocks of its pool |
//! | a claim waits, and no address of its pool is free | an unused block of this cluster in the ranges of the pool, else the lowest one that no management cluster holds |
//! | a claim has waited, and is about to get an address | unused blocks of this cluster in the ranges of the pool, the lowest first |
//! | `spec.blocks.spare` | unused blocks of this cluster, the lowest first, else the lowest ones that no management cluster holds. None while a claim waits because of `spec.blocks.most` |
//!
//! A block in use is kept, whatever this says. A block that is neither in use nor needed is returned.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::{BlockRules, PoolKey, Scope, reservation_name};
use capi_ipam_ip::{Block, SpanSet};
use capi_ipam_ledger::{BlockMember, BlockObstacle, BlockSlice};

use super::addresses::Addresses;

/// A block that this management cluster has, or is taking or returning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnBlock {
    /// Whether an address of it is in use.
    pub(super) is_used: bool,
    /// Whether another management cluster uses it as well.
    pub(super) is_conflicting: bool,
    /// Whether addresses of it can be allocated now. If not, it is being taken, or is marked.
    pub(super) is_usable: bool,
    /// Whether it is marked as empty: it is returned unless it is needed.
    pub(super) is_marked: bool,
    /// Whether no address of it will be allocated: its IPSlice is not valid, is being deleted, or is
    /// one of another management cluster or registry.
    pub(super) is_unavailable: bool,
}

/// What decides which blocks a network needs.
pub(super) struct Situation<'a> {
    network: &'a str,
    rules: &'a BlockRules,
    own: &'a BTreeMap<Block, OwnBlock>,
    members: &'a [BlockMember],
    /// The addresses of the blocks of this management cluster.
    held: Addresses,
    /// Those of the blocks of other ones.
    others: &'a Addresses,
}

/// The blocks that a network needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Blocks to keep or to take although no address of them is in use.
    pub(super) blocks: BTreeSet<Block>,
    /// Why pools get no further block: those with a claim that waits for one, and those whose next
    /// claim needs one.
    pub(super) pools: BTreeMap<PoolKey, BlockObstacle>,
    /// Why the blocks of requested addresses are not taken.
    pub(super) requested: BTreeMap<Block, BlockObstacle>,
    /// Whether a claim waits because this management cluster has as many blocks as it may have. Each
    /// block that is returned makes room for one that the claim can use.
    pub(super) is_limited: bool,
}

impl<'a> Situation<'a> {
    pub(super) fn new(
        network: &'a str,
        rules: &'a BlockRules,
        own: &'a BTreeMap<Block, OwnBlock>,
        others: &'a Addresses,
        members: &'a [BlockMember],
    ) -> Self {
        let held = own.keys().copied().collect();
        Self {
            network,
            rules,
            own,
            members,
            held,
            others,
        }
    }

    /// The blocks that the network needs.
    pub(super) fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        for member in self.members {
            for address in &member.requested {
                self.need_address(member, *address, &mut needs);
            }
            if member.waits {
                self.need_any(member, &mut needs);
            }
            self.keep_for_turns(member, &mut needs);
        }
        for member in self.members {
            if member.is_full
                && !member.waits
                && let Err(shortage) = self.next_block(member, &needs)
            {
                needs.pools.insert(member.pool.clone(), shortage);
            }
        }
        if !needs.is_limited {
            self.keep_spare(&mut needs);
        }
        needs
    }

    /// The block of an address that a claim requests.
    fn need_address(&self, member: &BlockMember, address: Block, needs: &mut Needs) {
        let block = Block::new(address.base(), member.length);
        let shortage = match self.own.get(&block) {
            Some(own) if own.is_unavailable => Some(self.unavailable(block)),
            // A conflict ends when one side has no address in use: nothing else helps.
            Some(own) if own.is_conflicting => Some(BlockObstacle::AllTaken),
            None if self.last_held(block).is_some() => Some(BlockObstacle::AllTaken),
            None => self.request_limit(member, needs),
            Some(_) => None,
        };
        let Some(shortage) = shortage else {
            needs.blocks.insert(block);
            return;
        };
        needs.is_limited |= Some(&shortage) == self.limit(needs).as_ref();
        needs.requested.insert(address, shortage);
    }

    /// A block for a pool without a free address.
    fn need_any(&self, member: &BlockMember, needs: &mut Needs) {
        if member.needs_further_block {
            // If one of them were returned, fewer addresses than before would be free.
            for (block, own) in self.own {
                if !own.is_used && own.is_usable && can_use(member, *block) {
                    needs.blocks.insert(*block);
                }
            }
        }
        match self.next_block(member, needs) {
            Ok(block) => {
                needs.blocks.insert(block);
            }
            Err(shortage) => {
                needs.is_limited |= Some(&shortage) == self.limit(needs).as_ref();
                needs.pools.insert(member.pool.clone(), shortage);
            }
        }
    }

    /// Keeps the unused blocks from which claims are about to get an address.
    fn keep_for_turns(&self, member: &BlockMember, needs: &mut Needs) {
        let mut missing = member.turns as u128;
        for (block, own) in self.own {
            if missing > 0 && !own.is_used && own.is_usable {
                let addresses = addresses_of(member, *block);
                if addresses > 0 {
                    needs.blocks.insert(*block);
                }
                missing = missing.saturating_sub(addresses);
            }
        }
    }

    /// The block from which a pool without a free address gets one.
    fn next_block(&self, member: &BlockMember, needs: &Needs) -> Result<Block, BlockObstacle> {
        if let Some(block) = self.supply(member) {
            return Ok(block);
        }
        // One that is taken for another claim may serve this one, too.
        let mut taken_now = needs.blocks.iter().filter(|block| self.is_taken_now(block));
        if let Some(block) = taken_now.find(|block| can_use(member, **block)) {
            return Ok(*block);
        }
        let lowest = self.lowest(member, needs);
        let block = lowest.ok_or_else(|| self.exhaustion(member))?;
        match self.limit(needs) {
            Some(limit) => Err(limit),
            None => Ok(block),
        }
    }

    /// A block of this cluster in the ranges of a pool from which it gets addresses as soon as the
    /// block is usable.
    fn supply(&self, member: &BlockMember) -> Option<Block> {
        for (block, own) in self.own {
            let has_more = !own.is_used && !member.needs_further_block;
            let is_coming = has_more || !own.is_usable;
            if is_coming && own.is_available() && can_use(member, *block) {
                return Some(*block);
            }
        }
        None
    }

    /// Why no further block in the ranges of a pool can be taken.
    fn exhaustion(&self, member: &BlockMember) -> BlockObstacle {
        for (block, own) in self.own {
            if own.is_unavailable && can_use(member, *block) {
                return self.unavailable(*block);
            }
        }
        BlockObstacle::AllTaken
    }

    /// Keeps unused blocks, and takes others until there are as many as the network holds ahead.
    fn keep_spare(&self, needs: &mut Needs) {
        let mut missing = self.rules.spare;
        // A marked block may make room for a claim that only another manager of this cluster knows.
        let keeps_marked = self.limit(needs).is_none();
        for (block, own) in self.own {
            let is_kept = keeps_marked || !own.is_marked;
            let is_unused = !own.is_used && own.is_available();
            let is_spare = is_unused && is_kept && self.is_of_member(*block);
            if missing > 0 && is_spare {
                needs.blocks.insert(*block);
                missing = missing.saturating_sub(1);
            }
        }
        let taken_now = needs.blocks.iter().filter(|block| self.is_taken_now(block));
        missing = missing.saturating_sub(taken_now.count());
        for member in self.members {
            while missing > 0 && self.limit(needs).is_none() {
                let Some(block) = self.lowest(member, needs) else {
                    break;
                };
                needs.blocks.insert(block);
                missing = missing.saturating_sub(1);
            }
        }
    }

    /// The lowest block in the ranges of a pool that no management cluster holds and that is not
    /// needed already. Linear in the number of gaps between held blocks.
    fn lowest(&self, member: &BlockMember, needs: &Needs) -> Option<Block> {
        for span in member.ranges.spans() {
            let mut number = span.first();
            while number <= span.last() {
                let block = Block::new(member.family.address(number), member.length);
                let held = self.last_held(block);
                if held.is_none() && !needs.blocks.contains(&block) {
                    return Some(block);
                }
                // The held addresses can end within the block.
                let last = block.span().last();
                number = held.unwrap_or(last).max(last).checked_add(1)?;
            }
        }
        None
    }

    /// If somebody has an address of a block, the number of the last one of those that follow without a gap.
    fn last_held(&self, block: Block) -> Option<u128> {
        self.held.last_from(block).max(self.others.last_from(block))
    }

    /// Why this cluster may take no further block, if it has as many as it may have.
    fn limit(&self, needs: &Needs) -> Option<BlockObstacle> {
        let most = self.rules.most?;
        let taken_now = needs.blocks.iter().filter(|block| self.is_taken_now(block));
        let count = self.own.len().saturating_add(taken_now.count());
        (count >= most).then_some(BlockObstacle::Limit(most))
    }

    /// Why this cluster may not take the block of a requested address. A user who may request addresses could take
    /// all blocks from the other management clusters. By default, no further block is taken for a request if a
    /// quarter of the blocks of the pool are in use or needed. Empty blocks do not count: they are kept for a time.
    fn request_limit(&self, member: &BlockMember, needs: &Needs) -> Option<BlockObstacle> {
        if self.rules.most.is_some() {
            return self.limit(needs);
        }
        let quarter = block_count(member).div_ceil(4).max(1);
        let quarter = usize::try_from(quarter).unwrap_or(usize::MAX);
        let is_used = |block: &&Block| self.own.get(*block).is_some_and(|own| own.is_used);
        let used = self.own.keys().filter(is_used);
        let needed = needs.blocks.iter().filter(|block| !is_used(block));
        let of_pool = used.chain(needed).filter(|block| can_use(member, **block));
        (of_pool.count() >= quarter).then_some(BlockObstacle::Limit(quarter))
    }

    /// No address of this block is allocated.
    fn unavailable(&self, block: Block) -> BlockObstacle {
        BlockObstacle::SliceUnavailable(slice_name(self.network, block))
    }

    /// Whether a needed block is not one of this cluster yet.
    fn is_taken_now(&self, block: &Block) -> bool {
        !self.own.contains_key(block)
    }

    fn is_of_member(&self, block: Block) -> bool {
        self.members.iter().any(|member| can_use(member, block))
    }
}

/// The name of the IPSlice of a block.
pub(super) fn slice_name(network: &str, block: Block) -> String {
    reservation_name(&Scope::Network(network.into()), block)
}

impl OwnBlock {
    /// Takes in the IPSlice of the block. `is_own` is whether it is one of this management cluster and
    /// of the registry of the network.
    pub(super) fn set_slice(&mut self, slice: &BlockSlice, is_own: bool) {
        self.is_conflicting |= slice.conflict.is_some();
        self.is_usable = slice.is_usable;
        self.is_marked = slice.empty_since.is_some();
        self.is_unavailable = !is_own || slice.is_deleting || slice.is_returning;
    }

    /// Whether addresses of it are allocated, now or as soon as it is usable.
    fn is_available(self) -> bool {
        !self.is_conflicting && !self.is_unavailable
    }
}

/// Whether a pool can allocate an address of a block.
fn can_use(member: &BlockMember, block: Block) -> bool {
    block.family() == member.family && member.ranges.overlaps(block.span())
}

/// The number of blocks with an address that a pool can allocate.
fn block_count(member: &BlockMember) -> u128 {
    let host_bits = member.family.bits().saturating_sub(member.length);
    let number = |address: u128| address.checked_shr(host_bits.into()).unwrap_or_default();
    let mut count = 0_u128;
    let mut counted = None;
    for span in member.ranges.spans() {
        let (first, last) = (number(span.first()), number(span.last()));
        // The previous range can end in the block in which this one begins.
        let is_counted = counted == Some(first);
        let blocks = last.saturating_sub(first).saturating_add(1);
        count = count.saturating_add(blocks.saturating_sub(is_counted.into()));
        counted = Some(last);
    }
    count
}

/// The number of addresses of a block that a pool can allocate.
fn addresses_of(member: &BlockMember, block: Block) -> u128 {
    if block.family() != member.family {
        return 0;
    }
    let block = SpanSet::from(block.span());
    member.ranges.intersect(&block).len()
}

#[cfg(test)]
mod tests;
