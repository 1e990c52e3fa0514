use capi_ipam_api::InClusterKind;
use capi_ipam_ip::{Family, Span};

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

fn member(first: u8, last: u8) -> BlockMember {
    let numbers = block(first).span().first()..=block(last).span().last();
    BlockMember {
        pool: pool(&format!("{first}-{last}")),
        family: Family::V4,
        length: 30,
        ranges: SpanSet::from(Span::new(*numbers.start(), *numbers.end()).unwrap()),
        waits: false,
        needs_further_block: false,
        turns: 0,
        is_full: false,
        requested: Vec::new(),
    }
}

fn waiting(first: u8, last: u8) -> BlockMember {
    BlockMember {
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
        quarantine_seconds: 0,
    }
}

fn all_needs(
    rules: &BlockRules,
    own: &[(u8, OwnBlock)],
    others: &[u8],
    members: &[BlockMember],
) -> Needs {
    let own = own
        .iter()
        .map(|(number, own)| (block(*number), *own))
        .collect();
    let others = others.iter().map(|number| block(*number)).collect();
    Situation::new("lab", rules, &own, &others, members).needs()
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
    members: &[BlockMember],
) -> (Vec<u8>, Option<BlockObstacle>) {
    let needs = all_needs(rules, own, others, members);
    let mut shortages = needs.pools.values().chain(needs.requested.values());
    (numbers(&needs), shortages.next().cloned())
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
fn blocks_are_kept_for_claims_that_are_about_to_get_an_address() {
    let own = [(0, USED), (2, FREE), (3, FREE), (4, FREE), (6, FREE)];
    let about_to_get = |turns: usize| {
        let member = BlockMember {
            turns,
            ..member(3, 7)
        };
        needs(&rules(0, None), &own, &[], &[member])
    };
    assert_eq!(about_to_get(0), (vec![], None));
    assert_eq!(about_to_get(4), (vec![3], None));
    assert_eq!(about_to_get(5), (vec![3, 4], None));
    assert_eq!(about_to_get(100), (vec![3, 4, 6], None));
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
    let member = BlockMember {
        requested: vec![Block::address([10, 0, 0, 17].into())],
        ..member(0, 7)
    };
    let all = [member];
    assert_eq!(needs(&rules(0, None), &[], &[], &all), (vec![4], None));
    let taken = Some(BlockObstacle::AllTaken);
    assert_eq!(
        needs(&rules(0, None), &[], &[4], &all),
        (vec![], taken.clone())
    );
    assert_eq!(
        needs(&rules(0, None), &[(4, CONFLICT)], &[], &all),
        (vec![], taken.clone())
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
    let limit = Some(BlockObstacle::Limit(1));
    assert_eq!(
        needs(&rules(1, Some(1)), &[(0, USED)], &[], &[waiting(0, 7)]),
        (vec![], limit.clone())
    );
    let all = [waiting(0, 1)];
    let taken = Some(BlockObstacle::AllTaken);
    assert_eq!(
        needs(&rules(0, None), &[(0, USED)], &[1], &all),
        (vec![], taken.clone())
    );
    assert_eq!(
        needs(&rules(0, None), &[(0, USED), (1, CONFLICT)], &[], &all),
        (vec![], taken.clone())
    );
}

#[test]
fn large_ranges_cost_what_is_held() {
    let all = BlockMember {
        family: Family::V6,
        length: 64,
        ranges: SpanSet::from(Span::new(0, u128::MAX).unwrap()),
        ..waiting(0, 0)
    };
    let own = BTreeMap::new();
    let others = (0..1000_u128)
        .map(|n| Block::new(Family::V6.address(n << 64), 64))
        .collect();
    let rules = rules(0, None);
    let needs = Situation::new("lab", &rules, &own, &others, &[all]).needs();
    let expected = Block::new(Family::V6.address(1000 << 64), 64);
    assert_eq!(needs.blocks, [expected].into());
}

#[test]
fn block_that_overlaps_with_another_one_is_not_free() {
    let rules = rules(0, None);
    let own = [(Block::new(block(0).base(), 29), USED)].into();
    let others = [Block::new(block(2).base(), 31)].into_iter().collect();
    let members = [waiting(0, 7)];
    let needs = Situation::new("lab", &rules, &own, &others, &members).needs();
    assert_eq!(needs.blocks, [block(3)].into());

    let member = BlockMember {
        requested: vec![Block::address(block(2).base())],
        ..member(0, 7)
    };
    let members = [member];
    let needs = Situation::new("lab", &rules, &own, &others, &members).needs();
    let shortages: Vec<_> = needs.requested.into_values().collect();
    assert_eq!(shortages, [BlockObstacle::AllTaken]);
    assert!(needs.blocks.is_empty());
}

#[test]
fn spare_blocks_make_room_for_a_waiting_claim() {
    let limit = Some(BlockObstacle::Limit(1));
    // The spare block is outside of the ranges of the pool that waits.
    let members = [member(0, 0), waiting(1, 1)];
    let one = rules(1, Some(1));
    let limited = all_needs(&one, &[(0, FREE)], &[], &members);
    assert!(limited.is_limited);
    assert_eq!(
        needs(&one, &[(0, FREE)], &[], &members),
        (vec![], limit.clone()),
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
    let requests = BlockMember {
        requested: vec![Block::address([10, 0, 0, 17].into())],
        ..member(0, 7)
    };
    assert_eq!(
        needs(&one, &[(0, FREE)], &[], &[requests]),
        (vec![], limit.clone())
    );
}

#[test]
fn headroom_larger_than_a_block_takes_a_second_block() {
    let beyond = BlockMember {
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
        (vec![0], Some(BlockObstacle::Limit(1)))
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
    let named = Some(BlockObstacle::SliceUnavailable(slice_name("lab", block(0))));
    assert_eq!(
        needs(&none, &own, &[1], &[waiting(0, 1)]),
        (vec![], named.clone())
    );
    let requests = BlockMember {
        requested: vec![Block::address(block(0).base())],
        ..member(0, 7)
    };
    assert_eq!(
        needs(&none, &own, &[], &[requests]),
        (vec![], named.clone())
    );
}

#[test]
fn slice_that_cannot_be_used_makes_its_block_unavailable() {
    let valid = BlockSlice {
        uid: "u".to_owned(),
        version: "1".to_owned(),
        cluster: "west".into(),
        registry: None,
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
        own.set_slice(slice, *slice.cluster == *"west");
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
    let full = BlockMember {
        is_full: true,
        ..member(0, 1)
    };
    let own = [(0, USED)];
    let members = [full.clone(), waiting(2, 3)];
    let found = all_needs(&rules(0, None), &own, &[1], &members);
    let taken = BTreeMap::from([(pool("0-1"), BlockObstacle::AllTaken)]);
    assert_eq!((numbers(&found), found.pools), (vec![2], taken));
    assert!(!found.is_limited);
    // A further block can be had.
    let found = all_needs(&rules(0, None), &own, &[], &members);
    assert_eq!((numbers(&found), found.pools.len()), (vec![2], 0));
    // No claim waits for one: spare blocks stay.
    let limited = rules(1, Some(2));
    let own = [(0, USED), (5, FREE)];
    let found = all_needs(&limited, &own, &[], &[full, member(5, 5)]);
    let limit = BTreeMap::from([(pool("0-1"), BlockObstacle::Limit(2))]);
    assert_eq!((numbers(&found), found.pools), (vec![5], limit));
}

#[test]
fn request_for_a_held_block_is_not_the_shortage_of_its_pool() {
    let both = BlockMember {
        requested: vec![Block::address(block(4).base())],
        ..waiting(0, 7)
    };
    let found = all_needs(&rules(0, None), &[], &[4], &[both]);
    assert_eq!(numbers(&found), [0]);
    assert_eq!((found.pools.len(), found.requested.len()), (0, 1));
}

#[test]
fn requests_take_no_more_than_a_quarter_by_default() {
    let requests = BlockMember {
        requested: vec![Block::address(block(4).base())],
        ..member(0, 7)
    };
    let members = [requests];
    let own = [(0, USED), (1, USED)];
    assert_eq!(
        needs(&rules(0, None), &own[..1], &[], &members),
        (vec![4], None)
    );
    let found = all_needs(&rules(0, None), &own, &[], &members);
    let limit = [(block(4).base(), BlockObstacle::Limit(2))];
    let limit = limit.map(|(address, limit)| (Block::address(address), limit));
    assert_eq!(
        (&found.blocks, found.requested),
        (&BTreeSet::new(), limit.into())
    );
    // No empty block is returned for it.
    assert!(!found.is_limited);
    assert_eq!(
        needs(&rules(0, Some(3)), &own, &[], &members),
        (vec![4], None)
    );
    // A claim that waits for any address gets a block.
    assert_eq!(
        needs(&rules(0, None), &own, &[], &[waiting(0, 7)]),
        (vec![2], None)
    );
}

#[test]
fn requests_are_limited_by_the_blocks_in_use_of_their_pool() {
    let requests = |numbers: &[u8], ranges: SpanSet| BlockMember {
        requested: vec![Block::address(block(4).base())],
        ranges,
        ..member(numbers[0], numbers[1])
    };
    let whole = |first: u8, last: u8| member(first, last).ranges;
    let unlimited = (vec![4], None);
    // A quarter of four blocks is one: an empty block does not count.
    let spare = [(5, FREE)];
    let small = requests(&[4, 7], whole(4, 7));
    let found = needs(&rules(0, None), &spare, &[], std::slice::from_ref(&small));
    assert_eq!(found, unlimited);
    // Those of other pools do not count.
    let others = [(0, USED), (1, USED), (2, USED)];
    assert_eq!(needs(&rules(0, None), &others, &[], &[small]), unlimited);
    // A pool with one address of each block has as many blocks as one with all.
    let scattered = (0..8).map(|number| Block::address(block(number).base()).span());
    let scattered = requests(&[0, 7], scattered.collect());
    assert_eq!(block_count(&scattered), 8);
    let one = [(0, USED)];
    assert_eq!(needs(&rules(0, None), &one, &[], &[scattered]), unlimited);
}
