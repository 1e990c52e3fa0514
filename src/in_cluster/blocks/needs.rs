//! Which blocks a network needs that are not in use: plain values, no I/O.
//!
//! | need | blocks |
//! |---|---|
//! | a claim requests an address | the block of the address |
//! | a claim waits, and no address of its pool is free | an unused block of this cluster in the ranges of the pool, else the lowest one that no management cluster holds |
//! | `spec.blocks.spare` | unused blocks of this cluster, the lowest first, else the lowest ones that no management cluster holds |
//!
//! A block in use is kept, whatever this says. A block that is neither in use nor needed is returned.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::BlockRules;
use capi_ipam_ip::{Block, Family, SpanSet};

use super::other_blocks::{Addresses, OtherBlocks};

/// A block that this management cluster has, or is taking or returning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnBlock {
    /// Whether an address of it is in use.
    pub(super) is_used: bool,
    /// Whether another management cluster uses it as well.
    pub(super) is_conflicting: bool,
    /// Whether addresses of it can be allocated already. If not, it is being taken.
    pub(super) is_usable: bool,
}

/// A pool of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) family: Family,
    /// The length of the blocks of the network in this family.
    pub(super) length: u8,
    /// What the pool can allocate, as numbers of addresses.
    pub(super) ranges: SpanSet,
    /// Whether a claim waits for an address, and none is free for it.
    pub(super) waits: bool,
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

/// Why a network does not get a block that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Other management clusters have all other blocks.
    AllTaken,
    /// This management cluster has as many blocks as it may have.
    Limit,
}

/// The blocks that a network needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Blocks to keep or to take although no address of them is in use.
    pub(super) blocks: BTreeSet<Block>,
    /// Why a claim waits that no block in `blocks` is for.
    pub(super) shortage: Option<Shortage>,
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
        self.keep_spare(&mut needs);
        needs
    }

    /// The block of an address that a claim requests.
    fn need_address(&self, member: &Member, address: Block, needs: &mut Needs) {
        let block = Block::new(address.base(), member.length);
        if let Some(own) = self.own.get(&block) {
            // A conflict ends when one side has no address in use: nothing else helps.
            if own.is_conflicting {
                needs.lacks(Shortage::AllTaken);
            } else {
                needs.keep(block);
            }
        } else if self.others.overlaps(block) {
            needs.lacks(Shortage::AllTaken);
        } else if self.is_full(needs) {
            needs.lacks(Shortage::Limit);
        } else {
            needs.keep(block);
        }
    }

    /// A block for a pool without a free address.
    fn need_any(&self, member: &Member, needs: &mut Needs) {
        if let Some(block) = self.supply(member) {
            needs.keep(block);
            return;
        }
        // One that another claim needs may serve this one, too.
        if needs.blocks.iter().any(|block| member.has(*block)) {
            return;
        }
        self.take_another(member, needs);
    }

    /// A block of this cluster in the ranges of a pool from which it gets addresses as soon as the
    /// block is usable.
    fn supply(&self, member: &Member) -> Option<Block> {
        for (block, own) in self.own {
            let is_coming = !own.is_used || !own.is_usable;
            if is_coming && !own.is_conflicting && member.has(*block) {
                return Some(*block);
            }
        }
        None
    }

    /// Keeps unused blocks, and takes others until there are as many as the network holds ahead.
    fn keep_spare(&self, needs: &mut Needs) {
        let mut missing = self.rules.spare;
        for (block, own) in self.own {
            let is_spare = !own.is_used && !own.is_conflicting && self.is_of_member(*block);
            if missing > 0 && is_spare {
                needs.blocks.insert(*block);
                missing = missing.saturating_sub(1);
            }
        }
        let taken_now = needs
            .blocks
            .iter()
            .filter(|block| !self.own.contains_key(block));
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

    /// Takes the lowest block in the ranges of a pool that no management cluster holds.
    fn take_another(&self, member: &Member, needs: &mut Needs) {
        match self.lowest(member, needs) {
            None => needs.lacks(Shortage::AllTaken),
            Some(_) if self.is_full(needs) => needs.lacks(Shortage::Limit),
            Some(block) => needs.keep(block),
        }
    }

    /// The lowest block in the ranges of a pool that no management cluster holds and that is not
    /// needed already. Linear in the number of held blocks.
    fn lowest(&self, member: &Member, needs: &Needs) -> Option<Block> {
        for span in member.ranges.spans() {
            let mut number = span.first();
            while number <= span.last() {
                let block = Block::new(member.family.address(number), member.length);
                if !self.held.overlaps(block) && !needs.blocks.contains(&block) {
                    return Some(block);
                }
                number = block.span().last().checked_add(1)?;
            }
        }
        None
    }

    /// Whether this cluster may take no further block.
    fn is_full(&self, needs: &Needs) -> bool {
        let taken_now = needs
            .blocks
            .iter()
            .filter(|block| !self.own.contains_key(block));
        let count = self.own.len().saturating_add(taken_now.count());
        match self.rules.most {
            Some(most) => count >= most,
            None => false,
        }
    }

    fn is_of_member(&self, block: Block) -> bool {
        self.members.iter().any(|member| member.has(block))
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

    fn lacks(&mut self, shortage: Shortage) {
        self.shortage.get_or_insert(shortage);
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_ip::Span;

    use super::*;

    const FREE: OwnBlock = OwnBlock {
        is_used: false,
        is_conflicting: false,
        is_usable: true,
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

    fn member(first: u8, last: u8) -> Member {
        let numbers = block(first).span().first()..=block(last).span().last();
        Member {
            family: Family::V4,
            length: 30,
            ranges: SpanSet::from(Span::new(*numbers.start(), *numbers.end()).unwrap()),
            waits: false,
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

    fn needs(
        rules: &BlockRules,
        own: &[(u8, OwnBlock)],
        others: &[u8],
        members: &[Member],
    ) -> (Vec<u8>, Option<Shortage>) {
        let own = own
            .iter()
            .map(|(number, own)| (block(*number), *own))
            .collect();
        let others = others.iter().map(|number| (block(*number), None)).collect();
        let needs = Situation::new(rules, &own, &others, members).needs();
        let number = |block: &Block| match block.base() {
            std::net::IpAddr::V4(address) => address.octets()[3] / 4,
            std::net::IpAddr::V6(_) => u8::MAX,
        };
        (needs.blocks.iter().map(number).collect(), needs.shortage)
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
        assert_eq!(needs.shortage, Some(Shortage::AllTaken));
        assert!(needs.blocks.is_empty());
    }
}
