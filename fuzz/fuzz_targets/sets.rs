//! Fuzzes the sets of numbers with arbitrary spans and steps, and compares them with a naive model.
//!
//! The model has 256 numbers from an arbitrary start, also at the end of the range of u128.
//! Invariants: the operations agree with the model, equal sets have equal spans, and the lowest
//! free number is the lowest of the model.
//!
//! Run with `cargo +nightly fuzz run sets`.

#![no_main]

use std::collections::BTreeSet;

use capi_ipam_ip::{FreeSet, Span, SpanSet};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    start: Start,
    left: Vec<(u8, u8)>,
    right: Vec<(u8, u8)>,
    steps: Vec<(Step, u8)>,
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Start {
    Zero,
    At(u128),
    End,
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Step {
    Take,
    Release,
    TakeLowest,
}

type Model = BTreeSet<u128>;

fuzz_target!(|input: Input| {
    let end = u128::MAX - 255;
    let start = match input.start {
        Start::Zero => 0,
        Start::At(number) => number.min(end),
        Start::End => end,
    };
    let ends = |pairs: &[(u8, u8)]| -> Vec<(u128, u128)> {
        pairs
            .iter()
            .map(|(a, b)| (start + u128::from(*a), start + u128::from(*b)))
            .collect()
    };
    let (left, right) = (ends(&input.left), ends(&input.right));
    let (a, b) = (set(&left), set(&right));
    let (model_a, model_b) = (model(&left), model(&right));
    let all = Span::new(start, start + 255)
        .map(SpanSet::from)
        .expect("in order");

    agree(&a, &model_a);
    agree(&union(&a, &b), &(&model_a | &model_b));
    agree(&a.intersect(&b), &(&model_a & &model_b));
    agree(&a.subtract(&b), &(&model_a - &model_b));
    agree(
        &all.subtract(&a),
        &all_numbers(start)
            .filter(|number| !model_a.contains(number))
            .collect(),
    );
    assert_eq!(all.subtract(&all.subtract(&a)), a);
    assert_eq!(union(&a, &b), union(&b, &a));

    let mut free = FreeSet::new(&a);
    let mut free_model = model_a.clone();
    compare(&free, &free_model);
    for (step, number) in input.steps {
        let number = start + u128::from(number);
        match step {
            Step::Take => assert_eq!(free.take(number), free_model.remove(&number)),
            // Only usable numbers are ever released.
            Step::Release if a.contains(number) => {
                assert_eq!(free.release(number), free_model.insert(number))
            }
            Step::Release => {}
            Step::TakeLowest => {
                let lowest = free.lowest();
                assert_eq!(lowest, free_model.pop_first());
                assert!(lowest.is_none_or(|lowest| free.take(lowest)));
            }
        }
        compare(&free, &free_model);
    }
    let taken = model_a.difference(&free_model).chain(&model_b).copied();
    assert_eq!(
        FreeSet::without(&a, taken),
        FreeSet::new(&a.intersect(&numbers(&free_model)).subtract(&b))
    );
});

fn union(one: &SpanSet, other: &SpanSet) -> SpanSet {
    one.spans().iter().chain(other.spans()).copied().collect()
}

fn set(ends: &[(u128, u128)]) -> SpanSet {
    ends.iter()
        .filter_map(|(first, last)| Span::new(*first, *last))
        .collect()
}

fn model(ends: &[(u128, u128)]) -> Model {
    ends.iter()
        .flat_map(|(first, last)| *first..=*last)
        .collect()
}

fn numbers(model: &Model) -> SpanSet {
    model.iter().copied().map(Span::single).collect()
}

fn all_numbers(start: u128) -> impl Iterator<Item = u128> {
    start..=start + 255
}

fn agree(set: &SpanSet, model: &Model) {
    assert!(
        set.spans()
            .iter()
            .flat_map(|span| span.first()..=span.last())
            .eq(model.iter().copied())
    );
    assert_eq!(
        (set.len(), set.is_empty(), set.lowest()),
        (
            model.len() as u128,
            model.is_empty(),
            model.first().copied()
        )
    );
    assert_eq!(*set, numbers(model));
    let (low, high) = (
        model.first().copied().unwrap_or(0),
        model.last().copied().unwrap_or(0),
    );
    for number in [
        low,
        high,
        low.wrapping_sub(1),
        high.wrapping_add(1),
        low.midpoint(high),
    ] {
        assert_eq!(set.contains(number), model.contains(&number));
    }
}

fn compare(free: &FreeSet, model: &Model) {
    assert_eq!(
        (free.len(), free.is_empty(), free.lowest()),
        (
            model.len() as u128,
            model.is_empty(),
            model.first().copied()
        )
    );
    assert_eq!(*free, FreeSet::new(&numbers(model)));
}
