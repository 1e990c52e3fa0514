use std::collections::BTreeSet;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;

/// The size of the small universes of the naive model.
const SIZE: u128 = 48;

fn span_set(first: u128, last: u128) -> SpanSet {
    SpanSet::from(Span::new(first, last).expect("first is not greater than last"))
}

/// Asserts that no spans are adjacent, and that the count agrees with them.
fn assert_consistent(free: &FreeSet) {
    let spans: SpanSet = free
        .spans
        .iter()
        .map(|(&first, &last)| Span::new(first, last).expect("no span is reversed"))
        .collect();
    assert_eq!(spans.spans().len(), free.spans.len(), "{free:?}");
    assert_eq!(spans.len(), free.len(), "{free:?}");
}

#[derive(Debug, Clone)]
enum Step {
    Take(u128),
    TakeLowest,
    Release(u128),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..SIZE).prop_map(Step::Take),
        1 => Just(Step::TakeLowest),
        3 => (0..SIZE).prop_map(Step::Release),
    ];
    vec(step, 0..120)
}

#[test]
fn take_and_release_split_and_merge_spans() {
    let mut free = FreeSet::new(&span_set(10, 14));
    assert!(free.take(12));
    assert!(!free.take(12));
    assert_eq!(free.spans, BTreeMap::from([(10, 11), (13, 14)]));
    assert!(free.take(10));
    assert!(free.take(14));
    assert_eq!(free.spans, BTreeMap::from([(11, 11), (13, 13)]));
    assert_eq!((free.lowest(), free.len()), (Some(11), 2));
    assert!(free.release(12));
    assert!(!free.release(12));
    assert_eq!(free.spans, BTreeMap::from([(11, 13)]));
}

#[test]
fn empty_set_has_no_free_number() {
    let mut free = FreeSet::new(&SpanSet::default());
    assert_eq!(free, FreeSet::default());
    assert_eq!(free.lowest(), None);
    assert_eq!((free.len(), free.is_empty()), (0, true));
    assert!(!free.contains(0) && !free.take(0));
}

#[test]
fn all_numbers_are_counted_without_overflow() {
    let mut free = FreeSet::new(&span_set(0, u128::MAX));
    assert_eq!(free.len(), u128::MAX);
    assert!(free.take(0));
    assert_eq!(free.len(), u128::MAX);
    assert!(free.take(u128::MAX));
    assert_eq!(free.len(), u128::MAX - 1);
    assert_eq!((free.lowest(), free.contains(u128::MAX)), (Some(1), false));
    assert!(free.release(u128::MAX) && free.release(0));
    assert_eq!(free, FreeSet::new(&span_set(0, u128::MAX)));
}

#[test]
fn million_lowest_numbers_taken_leave_one_span() {
    let usable = span_set(1 << 64, (1 << 64) + (1 << 63));
    let mut free = FreeSet::new(&usable);
    for _ in 0..1_000_000 {
        let lowest = free.lowest().expect("numbers are free");
        assert!(free.take(lowest));
    }
    assert_eq!(free.spans.len(), 1);
    assert_eq!(free.len(), usable.len() - 1_000_000);
    let taken = (0..1_000_000).rev().map(|offset| (1 << 64) + offset);
    assert_eq!(FreeSet::without(&usable, taken.clone()), free);
    for number in taken {
        assert!(free.release(number));
    }
    assert_eq!(free, FreeSet::new(&usable));
}

proptest! {
    #[test]
    fn free_set_agrees_with_a_naive_model(
        origin in prop_oneof![Just(0), Just(1 << 100), Just(u128::MAX - SIZE + 1)],
        usable in btree_set(0..SIZE, 0..48),
        taken in vec(0..SIZE, 0..20),
        steps in steps(),
    ) {
        let usable: BTreeSet<u128> = usable.into_iter().map(|offset| origin + offset).collect();
        let taken: Vec<u128> = taken.into_iter().map(|offset| origin + offset).collect();
        let usable_set: SpanSet = usable.iter().copied().map(Span::single).collect();
        let mut model = usable.clone();
        model.retain(|number| !taken.contains(number));
        let mut free = FreeSet::without(&usable_set, taken.into_iter());
        for step in steps {
            match step {
                Step::Take(offset) => {
                    let number = origin + offset;
                    prop_assert_eq!(free.take(number), model.remove(&number));
                }
                Step::TakeLowest => {
                    let number = free.lowest();
                    prop_assert_eq!(number, model.pop_first());
                    prop_assert!(number.is_none_or(|number| free.take(number)));
                }
                Step::Release(offset) => {
                    let number = origin + offset;
                    if usable.contains(&number) {
                        prop_assert_eq!(free.release(number), model.insert(number));
                    }
                }
            }
            assert_consistent(&free);
            prop_assert_eq!(free.len(), model.len() as u128);
            prop_assert_eq!(free.is_empty(), model.is_empty());
            prop_assert_eq!(free.lowest(), model.first().copied());
        }
        for number in (0..SIZE).map(|offset| origin + offset) {
            prop_assert_eq!(free.contains(number), model.contains(&number));
        }
        for &number in &usable {
            free.release(number);
        }
        prop_assert_eq!(free, FreeSet::new(&usable_set));
    }

    #[test]
    fn taking_one_by_one_equals_taking_in_bulk(
        first: u128,
        more in 0..5_000_u128,
        offsets in vec(0..6_000_u128, 0..200),
    ) {
        let usable = span_set(first, first.saturating_add(more));
        let taken = offsets.iter().map(|offset| first.saturating_add(*offset));
        let mut free = FreeSet::new(&usable);
        for number in taken.clone() {
            free.take(number);
        }
        assert_consistent(&free);
        prop_assert_eq!(free, FreeSet::without(&usable, taken));
    }
}

#[test]
fn next_above_continues_at_the_lowest_number() {
    let mut free = FreeSet::new(&span_set(10, 20));
    for number in [10, 13, 14, 20] {
        free.take(number);
    }
    for (number, next) in [
        (0, 11),
        (11, 12),
        (12, 15),
        (13, 15),
        (18, 19),
        (19, 11),
        (20, 11),
        (u128::MAX, 11),
    ] {
        assert_eq!(free.next_above(number), Some(next), "{number}");
    }
    assert_eq!(FreeSet::default().next_above(0), None);
}

proptest! {
    #[test]
    fn spans_agree_with_single_numbers(changes in proptest::collection::vec((0..60_u128, 0..9_u128, any::<bool>()), 0..40)) {
        let usable = span_set(0, 80);
        let (mut free, mut expected) = (FreeSet::new(&usable), FreeSet::new(&usable));
        for (first, more, is_free) in changes {
            let span = Span::new(first, first + more).unwrap();
            for number in first..=first + more {
                if is_free { expected.release(number) } else { expected.take(number) };
            }
            if is_free { free.release_span(span) } else { free.take_span(span) }
            prop_assert_eq!(&free, &expected);
        }
    }

    #[test]
    fn replaced_numbers_agree_with_single_ones(
        before in btree_set(0..60_u128, 0..40),
        among in vec((0..60_u128, 0..9_u128), 0..6),
        usable in btree_set(0..60_u128, 0..40),
        taken in vec(0..60_u128, 0..20),
    ) {
        let set = |numbers: &BTreeSet<u128>| numbers.iter().copied().map(Span::single).collect::<SpanSet>();
        let among: SpanSet = among.into_iter().filter_map(|(first, more)| Span::new(first, first + more)).collect();
        let mut free = FreeSet::new(&set(&before));
        free.replace(&among, &set(&usable), taken.iter().copied());
        let is_free = |number: &u128| {
            if among.contains(*number) {
                usable.contains(number) && !taken.contains(number)
            } else {
                before.contains(number)
            }
        };
        prop_assert_eq!(free, FreeSet::new(&set(&(0..70).filter(is_free).collect())));
    }
}
