//! Which blocks a network needs that are not in use: plain values, no I/O.
//!
//! | need | blocks |
//! |---|---|
//! | a claim requests an address | the block of the address |
//! | a claim waits, and no address of its pool is free | an unused block of this cluster in the ranges of the pool, else the lowest one that no management cluster holds |
//! | `spec.blocks.spare` | unused blocks of this cluster, the lowest first, else the lowest ones that no management cluster holds. None while a claim waits because of `spec.blocks.most` |
//!
//! A block in use is kept, whatever this says. A block that is neither in use nor needed is returned.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::{BlockRules, PoolKey};
use capi_ipam_ip::{Block, Family, SpanSet};
use capi_ipam_ledger::BlockSlice;

use super::other_blocks::{Addresses, OtherBlocks};

/// A block that this management cluster has, or is taking or returning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// one of another management cluster.
    pub(super) is_unavailable: bool,
}

/// A pool of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) pool: PoolKey,
    pub(super) family: Family,
    /// The length of the blocks of the network in this family.
    pub(super) length: u8,
    /// What the pool can allocate, as numbers of addresses.
    pub(super) ranges: SpanSet,
    /// Whether a claim waits for an address, and none is free for it.
    pub(super) waits: bool,
    /// Whether a claim waits although addresses of usable blocks are free: these are the headroom of
    /// the pool, or for other claims.
    pub(super) needs_further_block: bool,
    /// Whether the next claim needs another block.
    pub(super) is_full: bool,
    /// The addresses that waiting claims request.
    pub(super) requested: Vec<Block>,
}

/// What decides which blocks a network needs.
pub(super) struct Situation<'a> {
    rules: &'a BlockRules,
    own: &'a BTreeMap<Block, OwnBlock>,
    others: &'a OtherBlocks,
    members: &'a [Member],
    /// The addresses of all blocks that somebody has.
    held: Addresses,
}

/// Why a pool does not get a block that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Other management clusters have all other blocks.
    AllTaken,
    /// This management cluster has as many blocks as it may have.
    Limit,
    /// No address of this block is allocated, since its IPSlice is not valid, is being deleted, or is
    /// one of another management cluster. There is no other block.
    Unavailable(Block),
}

/// The blocks that a network needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Blocks to keep or to take although no address of them is in use.
    pub(super) blocks: BTreeSet<Block>,
    /// Why pools get no further block: those with a claim that waits for one, and those whose next
    /// claim needs one.
    pub(super) pools: BTreeMap<PoolKey, Shortage>,
    /// Why the blocks of requested addresses are not taken.
    pub(super) requested: BTreeMap<Block, Shortage>,
    /// Whether a claim waits because this management cluster has as many blocks as it may have. Each
    /// block that is returned makes room for one that the claim can use.
    pub(super) is_limited: bool,
}

impl<'a> Situation<'a> {
    pub(super) fn new(
        rules: &'a BlockRules,
        own: &'a BTreeMap<Block, OwnBlock>,
        others: &'a OtherBlocks,
        members: &'a [Member],
    ) -> Self {
        let held = own.keys().copied().chain(others.blocks()).collect();
        Self {
            rules,
            own,
            others,
            members,
            held,
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
    fn need_address(&self, member: &Member, address: Block, needs: &mut Needs) {
        let block = Block::new(address.base(), member.length);
        let shortage = match self.own.get(&block) {
            Some(own) if own.is_unavailable => Some(Shortage::Unavailable(block)),
            // A conflict ends when one side has no address in use: nothing else helps.
            Some(own) if own.is_conflicting => Some(Shortage::AllTaken),
            None if self.others.overlaps(block) => Some(Shortage::AllTaken),
            None if self.is_full(needs) => Some(Shortage::Limit),
            Some(_) | None => None,
        };
        match shortage {
            None => needs.keep(block),
            Some(shortage) => {
                needs.is_limited |= shortage == Shortage::Limit;
                needs.requested.insert(address, shortage);
            }
        }
    }

    /// A block for a pool without a free address.
    fn need_any(&self, member: &Member, needs: &mut Needs) {
        if member.needs_further_block {
            // If one of them were returned, fewer addresses than before would be free.
            for (block, own) in self.own {
                if !own.is_used && own.is_usable && member.has(*block) {
                    needs.keep(*block);
                }
            }
        }
        match self.next_block(member, needs) {
            Ok(block) => needs.keep(block),
            Err(shortage) => {
                needs.is_limited |= shortage == Shortage::Limit;
                needs.pools.insert(member.pool.clone(), shortage);
            }
        }
    }

    /// The block from which a pool without a free address gets one.
    fn next_block(&self, member: &Member, needs: &Needs) -> Result<Block, Shortage> {
        if let Some(block) = self.supply(member) {
            return Ok(block);
        }
        // One that is taken for another claim may serve this one, too.
        let mut taken_now = needs.blocks.iter().filter(|block| self.is_taken_now(block));
        if let Some(block) = taken_now.find(|block| member.has(**block)) {
            return Ok(*block);
        }
        match self.lowest(member, needs) {
            None => Err(self.exhaustion(member)),
            Some(_) if self.is_full(needs) => Err(Shortage::Limit),
            Some(block) => Ok(block),
        }
    }

    /// A block of this cluster in the ranges of a pool from which it gets addresses as soon as the
    /// block is usable.
    fn supply(&self, member: &Member) -> Option<Block> {
        for (block, own) in self.own {
            let has_more = !own.is_used && !member.needs_further_block;
            let is_coming = has_more || !own.is_usable;
            if is_coming && own.is_available() && member.has(*block) {
                return Some(*block);
            }
        }
        None
    }

    /// Why no further block in the ranges of a pool can be taken.
    fn exhaustion(&self, member: &Member) -> Shortage {
        for (block, own) in self.own {
            if own.is_unavailable && member.has(*block) {
                return Shortage::Unavailable(*block);
            }
        }
        Shortage::AllTaken
    }

    /// Keeps unused blocks, and takes others until there are as many as the network holds ahead.
    fn keep_spare(&self, needs: &mut Needs) {
        let mut missing = self.rules.spare;
        // A marked block may make room for a claim that only another manager of this cluster knows.
        let keeps_marked = !self.is_full(needs);
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
            while missing > 0 && !self.is_full(needs) {
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
    fn lowest(&self, member: &Member, needs: &Needs) -> Option<Block> {
        for span in member.ranges.spans() {
            let mut number = span.first();
            while number <= span.last() {
                let block = Block::new(member.family.address(number), member.length);
                let held = self.held.last_from(block);
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

    /// Whether this cluster may take no further block.
    fn is_full(&self, needs: &Needs) -> bool {
        let taken_now = needs.blocks.iter().filter(|block| self.is_taken_now(block));
        let count = self.own.len().saturating_add(taken_now.count());
        match self.rules.most {
            Some(most) => count >= most,
            None => false,
        }
    }

    /// Whether a needed block is not one of this cluster yet.
    fn is_taken_now(&self, block: &Block) -> bool {
        !self.own.contains_key(block)
    }

    fn is_of_member(&self, block: Block) -> bool {
        self.members.iter().any(|member| member.has(block))
    }
}

impl OwnBlock {
    /// Takes in the IPSlice of the block. `cluster` is the identity of this management cluster.
    pub(super) fn set_slice(&mut self, slice: &BlockSlice, cluster: &str) {
        self.is_conflicting |= slice.conflict.is_some();
        self.is_usable = slice.is_usable;
        self.is_marked = slice.empty_since.is_some();
        // An object that is not valid has no management cluster.
        let is_own = *slice.cluster == *cluster;
        self.is_unavailable = !is_own || slice.is_deleting || slice.is_returning;
    }

    /// Whether addresses of it are allocated, now or as soon as it is usable.
    fn is_available(self) -> bool {
        !self.is_conflicting && !self.is_unavailable
    }
}

impl Member {
    /// Whether the pool can allocate an address of a block.
    fn has(&self, block: Block) -> bool {
        block.family() == self.family && self.ranges.overlaps(block.span())
    }
}

impl Needs {
    fn keep(&mut self, block: Block) {
        self.blocks.insert(block);
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::InClusterKind;
    use capi_ipam_ip::Span;

    use super::*;

    const FREE: OwnBlock = OwnBlock {
        is_used: false,
        is_conflicting: false,
        is_usable: true,
        is_marked: false,
        is_unavailable: false,
    };
    const USED: OwnBlock = OwnBlock {
        is_used: true,
        ..FREE
    };
    const CONFLICT: OwnBlock = OwnBlock {
        is_conflicting: true,
        is_usable: false,
        ..USED
    };

    /// The blocks 10.0.0.0/30 and the following ones by number.
    fn block(number: u8) -> Block {
        Block::new([10, 0, 0, number * 4].into(), 30)
    }

    fn pool(name: &str) -> PoolKey {
        PoolKey::new(InClusterKind::GlobalIPPool, None, name)
    }

    fn member(first: u8, last: u8) -> Member {
        let numbers = block(first).span().first()..=block(last).span().last();
        Member {
            pool: pool(&format!("{first}-{last}")),
            family: Family::V4,
            length: 30,
            ranges: SpanSet::from(Span::new(*numbers.start(), *numbers.end()).unwrap()),
            waits: false,
            needs_further_block: false,
            is_full: false,
            requested: Vec::new(),
        }
    }

    fn waiting(first: u8, last: u8) -> Member {
        Member {
            waits: true,
            ..member(first, last)
        }
    }

    fn rules(spare: usize, most: Option<usize>) -> BlockRules {
        BlockRules {
            registry: "site".to_owned(),
            shift: 2,
            most,
            spare,
            keep_seconds: 0,
        }
    }

    fn all_needs(
        rules: &BlockRules,
        own: &[(u8, OwnBlock)],
        others: &[u8],
        members: &[Member],
    ) -> Needs {
        let own = own
            .iter()
            .map(|(number, own)| (block(*number), *own))
            .collect();
        let others = others.iter().map(|number| (block(*number), None)).collect();
        Situation::new(rules, &own, &others, members).needs()
    }

    fn numbers(needs: &Needs) -> Vec<u8> {
        let number = |block: &Block| match block.base() {
            std::net::IpAddr::V4(address) => address.octets()[3] / 4,
            std::net::IpAddr::V6(_) => u8::MAX,
        };
        needs.blocks.iter().map(number).collect()
    }

    /// The numbers of the blocks, and the first shortage.
    fn needs(
        rules: &BlockRules,
        own: &[(u8, OwnBlock)],
        others: &[u8],
        members: &[Member],
    ) -> (Vec<u8>, Option<Shortage>) {
        let needs = all_needs(rules, own, others, members);
        let shortages = needs.pools.values().chain(needs.requested.values());
        (numbers(&needs), shortages.copied().next())
    }

    #[test]
    fn waiting_claim_gets_the_lowest_free_block() {
        let rules = rules(0, None);
        assert_eq!(
            needs(&rules, &[], &[0, 2], &[waiting(0, 7)]),
            (vec![1], None)
        );
        assert_eq!(
            needs(&rules, &[(1, USED)], &[0, 2], &[waiting(0, 7)]),
            (vec![3], None)
        );
    }

    #[test]
    fn unused_block_serves_a_waiting_claim_first() {
        let own = [(1, USED), (5, FREE)];
        assert_eq!(
            needs(&rules(0, None), &own, &[], &[waiting(0, 7)]),
            (vec![5], None)
        );
        // It is not in the ranges of this pool.
        assert_eq!(
            needs(&rules(0, None), &own, &[], &[waiting(0, 3)]),
            (vec![0], None)
        );
    }

    #[test]
    fn block_that_is_being_taken_is_waited_for() {
        let taking = OwnBlock {
            is_used: true,
            is_usable: false,
            ..FREE
        };
        assert_eq!(
            needs(&rules(0, None), &[(1, taking)], &[], &[waiting(0, 7)]),
            (vec![1], None)
        );
    }

    #[test]
    fn two_waiting_pools_share_one_new_block() {
        let members = [waiting(0, 7), waiting(0, 7)];
        assert_eq!(needs(&rules(0, None), &[], &[], &members), (vec![0], None));
        let members = [waiting(0, 3), waiting(4, 7)];
        assert_eq!(
            needs(&rules(0, None), &[], &[], &members),
            (vec![0, 4], None)
        );
    }

    #[test]
    fn requested_address_decides_on_its_block() {
        let member = Member {
            requested: vec![Block::address([10, 0, 0, 17].into())],
            ..member(0, 7)
        };
        let all = [member];
        assert_eq!(needs(&rules(0, None), &[], &[], &all), (vec![4], None));
        let taken = Some(Shortage::AllTaken);
        assert_eq!(needs(&rules(0, None), &[], &[4], &all), (vec![], taken));
        assert_eq!(
            needs(&rules(0, None), &[(4, CONFLICT)], &[], &all),
            (vec![], taken)
        );
    }

    #[test]
    fn spare_blocks_are_kept_and_taken() {
        let own = [(0, USED), (2, FREE), (3, FREE), (4, FREE)];
        assert_eq!(
            needs(&rules(2, None), &own, &[], &[member(0, 7)]),
            (vec![2, 3], None)
        );
        assert_eq!(
            needs(&rules(1, None), &[(0, USED)], &[1], &[member(0, 7)]),
            (vec![2], None)
        );
        // The one for a waiting claim is free until it gets an address of it.
        assert_eq!(
            needs(&rules(1, None), &[(0, USED)], &[1], &[waiting(0, 7)]),
            (vec![2], None)
        );
        // A lack of spare blocks is no shortage: no claim waits.
        assert_eq!(
            needs(&rules(1, None), &[(0, USED)], &[1], &[member(0, 1)]),
            (vec![], None)
        );
        // No pool can use them.
        assert_eq!(
            needs(&rules(1, None), &[(9, FREE)], &[], &[]),
            (vec![], None)
        );
    }

    #[test]
    fn limit_and_exhaustion_are_told_apart() {
        let limit = Some(Shortage::Limit);
        assert_eq!(
            needs(&rules(1, Some(1)), &[(0, USED)], &[], &[waiting(0, 7)]),
            (vec![], limit)
        );
        let all = [waiting(0, 1)];
        let taken = Some(Shortage::AllTaken);
        assert_eq!(
            needs(&rules(0, None), &[(0, USED)], &[1], &all),
            (vec![], taken)
        );
        assert_eq!(
            needs(&rules(0, None), &[(0, USED), (1, CONFLICT)], &[], &all),
            (vec![], taken)
        );
    }

    #[test]
    fn large_ranges_cost_what_is_held() {
        let all = Member {
            family: Family::V6,
            length: 64,
            ranges: SpanSet::from(Span::new(0, u128::MAX).unwrap()),
            ..waiting(0, 0)
        };
        let own = BTreeMap::new();
        let others = (0..1000_u128)
            .map(|n| (Block::new(Family::V6.address(n << 64), 64), None))
            .collect();
        let rules = rules(0, None);
        let needs = Situation::new(&rules, &own, &others, &[all]).needs();
        let expected = Block::new(Family::V6.address(1000 << 64), 64);
        assert_eq!(needs.blocks, [expected].into());
    }

    #[test]
    fn block_that_overlaps_with_another_one_is_not_free() {
        let rules = rules(0, None);
        let own = [(Block::new(block(0).base(), 29), USED)].into();
        let others = [(Block::new(block(2).base(), 31), None)]
            .into_iter()
            .collect();
        let members = [waiting(0, 7)];
        let needs = Situation::new(&rules, &own, &others, &members).needs();
        assert_eq!(needs.blocks, [block(3)].into());

        let member = Member {
            requested: vec![Block::address(block(2).base())],
            ..member(0, 7)
        };
        let members = [member];
        let needs = Situation::new(&rules, &own, &others, &members).needs();
        let shortages: Vec<_> = needs.requested.into_values().collect();
        assert_eq!(shortages, [Shortage::AllTaken]);
        assert!(needs.blocks.is_empty());
    }

    #[test]
    fn spare_blocks_make_room_for_a_waiting_claim() {
        let limit = Some(Shortage::Limit);
        // The spare block is outside of the ranges of the pool that waits.
        let members = [member(0, 0), waiting(1, 1)];
        let one = rules(1, Some(1));
        let limited = all_needs(&one, &[(0, FREE)], &[], &members);
        assert!(limited.is_limited);
        assert_eq!(
            needs(&one, &[(0, FREE)], &[], &members),
            (vec![], limit),
            "block 0 is returned"
        );
        // Another manager of this cluster does not see the claim that waits.
        let marked = OwnBlock {
            is_marked: true,
            is_usable: false,
            ..FREE
        };
        let some = [member(0, 0)];
        assert_eq!(needs(&one, &[(0, marked)], &[], &some), (vec![], None));
        assert_eq!(needs(&one, &[], &[], &members), (vec![1], None));
        // Below the limit, a marked block is kept before another one is taken.
        assert_eq!(
            needs(&rules(1, Some(2)), &[(0, marked)], &[], &[member(0, 7)]),
            (vec![0], None)
        );
        // A claim that waits can use a marked block.
        assert_eq!(
            needs(&one, &[(0, marked)], &[], &[waiting(0, 7)]),
            (vec![0], None)
        );
        // Also a requested address waits for room.
        let requests = Member {
            requested: vec![Block::address([10, 0, 0, 17].into())],
            ..member(0, 7)
        };
        assert_eq!(needs(&one, &[(0, FREE)], &[], &[requests]), (vec![], limit));
    }

    #[test]
    fn headroom_larger_than_a_block_takes_a_second_block() {
        let beyond = Member {
            needs_further_block: true,
            ..waiting(0, 7)
        };
        let none = rules(0, None);
        let all = [beyond];
        // The first one is kept: without it, fewer addresses are free.
        assert_eq!(needs(&none, &[(0, FREE)], &[], &all), (vec![0, 1], None));
        let taking = OwnBlock {
            is_usable: false,
            ..FREE
        };
        assert_eq!(
            needs(&none, &[(0, FREE), (1, taking)], &[], &all),
            (vec![0, 1], None)
        );
        assert_eq!(
            needs(&rules(0, Some(1)), &[(0, FREE)], &[], &all),
            (vec![0], Some(Shortage::Limit))
        );
    }

    #[test]
    fn block_that_never_becomes_usable_is_not_waited_for() {
        let unavailable = OwnBlock {
            is_usable: false,
            is_unavailable: true,
            ..FREE
        };
        let own = [(0, unavailable)];
        let none = rules(0, None);
        assert_eq!(needs(&none, &own, &[], &[waiting(0, 7)]), (vec![1], None));
        assert_eq!(
            needs(&rules(1, None), &own, &[], &[member(0, 7)]),
            (vec![1], None)
        );
        // An operator finds it if there is no other block.
        let named = Some(Shortage::Unavailable(block(0)));
        assert_eq!(needs(&none, &own, &[1], &[waiting(0, 1)]), (vec![], named));
        let requests = Member {
            requested: vec![Block::address(block(0).base())],
            ..member(0, 7)
        };
        assert_eq!(needs(&none, &own, &[], &[requests]), (vec![], named));
    }

    #[test]
    fn slice_that_cannot_be_used_makes_its_block_unavailable() {
        let valid = BlockSlice {
            uid: "u".to_owned(),
            version: "1".to_owned(),
            cluster: "west".into(),
            is_valid: true,
            is_deleting: false,
            is_returning: false,
            is_usable: true,
            assigned_at: Some(1),
            confirmed_at: Some(1),
            conflict: None,
            empty_since: None,
        };
        let taking = OwnBlock {
            is_usable: false,
            ..FREE
        };
        let with = |slice: &BlockSlice| {
            let mut own = taking;
            own.set_slice(slice, "west");
            own
        };
        assert_eq!(with(&valid), FREE);
        let invalid = BlockSlice {
            cluster: "".into(),
            is_valid: false,
            is_usable: false,
            confirmed_at: None,
            ..valid.clone()
        };
        let deleting = BlockSlice {
            is_deleting: true,
            is_usable: false,
            ..valid.clone()
        };
        let foreign = BlockSlice {
            cluster: "east".into(),
            is_usable: false,
            ..valid.clone()
        };
        for slice in [invalid, deleting, foreign] {
            assert!(with(&slice).is_unavailable, "{slice:?}");
        }
        let marked = BlockSlice {
            is_usable: false,
            empty_since: Some(7),
            ..valid
        };
        let own = with(&marked);
        assert!(own.is_marked && !own.is_usable && !own.is_unavailable);
    }

    #[test]
    fn each_pool_has_its_own_shortage() {
        let full = Member {
            is_full: true,
            ..member(0, 1)
        };
        let own = [(0, USED)];
        let members = [full.clone(), waiting(2, 3)];
        let found = all_needs(&rules(0, None), &own, &[1], &members);
        let taken = BTreeMap::from([(pool("0-1"), Shortage::AllTaken)]);
        assert_eq!((numbers(&found), found.pools), (vec![2], taken));
        assert!(!found.is_limited);
        // A further block can be had.
        let found = all_needs(&rules(0, None), &own, &[], &members);
        assert_eq!((numbers(&found), found.pools.len()), (vec![2], 0));
        // No claim waits for one: spare blocks stay.
        let limited = rules(1, Some(2));
        let own = [(0, USED), (5, FREE)];
        let found = all_needs(&limited, &own, &[], &[full, member(5, 5)]);
        let limit = BTreeMap::from([(pool("0-1"), Shortage::Limit)]);
        assert_eq!((numbers(&found), found.pools), (vec![5], limit));
    }

    #[test]
    fn request_for_a_held_block_is_not_the_shortage_of_its_pool() {
        let both = Member {
            requested: vec![Block::address(block(4).base())],
            ..waiting(0, 7)
        };
        let found = all_needs(&rules(0, None), &[], &[4], &[both]);
        assert_eq!(numbers(&found), [0]);
        assert_eq!((found.pools.len(), found.requested.len()), (0, 1));
    }
}
