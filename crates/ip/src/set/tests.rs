use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The size of the small universes of the naive model.
const SIZE: u128 = 40;

/// The first and last numbers of spans.
type Pairs<'a> = &'a [(u128, u128)];

impl SpanSet {
    fn union(&self, other: &Self) -> Self {
        self.spans.iter().chain(&other.spans).copied().collect()
    }

    fn complement(&self) -> Self {
        Self::from(span(0, u128::MAX)).subtract(self)
    }
}

fn span(first: u128, last: u128) -> Span {
    Span::new(first, last).expect("first is not greater than last")
}

fn set(spans: Pairs<'_>) -> SpanSet {
    spans
        .iter()
        .map(|&(first, last)| span(first, last))
        .collect()
}

fn pairs(set: &SpanSet) -> Vec<(u128, u128)> {
    set.spans()
        .iter()
        .map(|span| (span.first(), span.last()))
        .collect()
}

/// The lowest numbers of universes: at both ends of the range of u128 and in the middle.
fn origins() -> impl Strategy<Value = u128> {
    prop_oneof![
        Just(0),
        Just(u128::from(u64::MAX) - SIZE / 2),
        Just(u128::MAX - SIZE + 1)
    ]
}

/// Spans in a universe of [`SIZE`] numbers from `origin`.
fn small_spans(origin: u128) -> impl Strategy<Value = Vec<Span>> {
    vec((0..SIZE, 0..SIZE), 0..12).prop_map(move |ends| {
        ends.iter()
            .map(|(a, b)| span(origin + a.min(b), origin + a.max(b)))
            .collect()
    })
}

fn any_set() -> impl Strategy<Value = SpanSet> {
    vec((any::<u128>(), any::<u128>()), 0..8).prop_map(|ends| {
        ends.iter()
            .map(|(a, b)| span(*a.min(b), *a.max(b)))
            .collect()
    })
}

fn naive(spans: &[Span]) -> BTreeSet<u128> {
    spans
        .iter()
        .flat_map(|span| span.first()..=span.last())
        .collect()
}

fn listed(set: &SpanSet) -> Vec<u128> {
    naive(set.spans()).into_iter().collect()
}

/// Whether the spans are sorted, with a gap between any two.
fn is_canonical(set: &SpanSet) -> bool {
    set.spans().windows(2).all(|two| {
        two[0]
            .last()
            .checked_add(1)
            .is_some_and(|next| next < two[1].first())
    })
}

#[test]
fn span_has_ends_and_length() {
    assert_eq!(Span::new(5, 4), None);
    assert_eq!(Span::new(4, 4), Some(Span::single(4)));
    let some = span(3, 7);
    assert_eq!((some.first(), some.last(), some.len()), (3, 7, 5));
    assert!(some.contains(3) && some.contains(7));
    assert!(!some.contains(2) && !some.contains(8));
    assert_eq!(span(0, u128::MAX).len(), u128::MAX);
    assert_eq!(span(1, u128::MAX).len(), u128::MAX);
    assert_eq!(span(2, u128::MAX).len(), u128::MAX - 1);
}

#[test]
fn network_is_the_span_of_all_its_addresses() {
    let cases: [(&str, u128, u128); 6] = [
        ("10.0.0.5/24", 0x0a00_0000, 0x0a00_00ff),
        ("10.0.0.5/32", 0x0a00_0005, 0x0a00_0005),
        ("0.0.0.0/0", 0, 0xffff_ffff),
        ("::/0", 0, u128::MAX),
        ("::5/127", 4, 5),
        ("ffff::/16", 0xffff << 112, u128::MAX),
    ];
    for (text, first, last) in cases {
        let network: IpNet = text.parse().expect("a network");
        assert_eq!(Span::from(network), span(first, last), "{text}");
    }
}

#[test]
fn adjacent_spans_are_merged() {
    let cases: [(Pairs<'_>, Pairs<'_>); 6] = [
        (&[], &[]),
        (&[(5, 6), (1, 2)], &[(1, 2), (5, 6)]),
        (&[(3, 4), (1, 2)], &[(1, 4)]),
        (&[(1, 9), (2, 3), (5, 10)], &[(1, 10)]),
        (&[(0, 0), (0, 0)], &[(0, 0)]),
        (
            &[(7, u128::MAX), (u128::MAX, u128::MAX), (0, 5)],
            &[(0, 5), (7, u128::MAX)],
        ),
    ];
    for (given, expected) in cases {
        assert_eq!(pairs(&set(given)), expected, "{given:?}");
    }
}

#[test]
fn set_of_all_numbers_does_not_overflow() {
    let all = SpanSet::from(span(0, u128::MAX));
    assert_eq!(all.len(), u128::MAX);
    assert!(all.contains(0) && all.contains(u128::MAX));
    assert!(all.subtract(&all).is_empty());
    assert_eq!(all.union(&all), all);
    assert_eq!(all.intersect(&all), all);
    let ends = set(&[(0, 0), (u128::MAX, u128::MAX)]);
    assert_eq!(pairs(&all.subtract(&ends)), [(1, u128::MAX - 1)]);
    assert_eq!(all.subtract(&ends).len(), u128::MAX - 1);
    assert_eq!(SpanSet::default().subtract(&all), SpanSet::default());
}

#[test]
fn lowest_number_is_that_of_the_first_span() {
    assert_eq!(SpanSet::default().lowest(), None);
    assert_eq!(set(&[(9, 9), (4, 5)]).lowest(), Some(4));
}

#[test]
fn many_spans_are_subtracted_in_linear_time() {
    let even: SpanSet = (0..200_000).map(|n| Span::single(n * 2)).collect();
    let rest = SpanSet::from(span(0, 399_999)).subtract(&even);
    assert_eq!(rest.spans().len(), 200_000);
    assert_eq!(rest.len(), 200_000);
    assert_eq!(rest.lowest(), Some(1));
}

proptest! {
    #[test]
    fn set_agrees_with_a_naive_model(
        (origin, ours, theirs) in origins()
            .prop_flat_map(|origin| (Just(origin), small_spans(origin), small_spans(origin)))
    ) {
        let (a, b): (SpanSet, SpanSet) = (ours.iter().copied().collect(), theirs.iter().copied().collect());
        let (x, y) = (naive(&ours), naive(&theirs));
        let list = |numbers: BTreeSet<u128>| numbers.into_iter().collect::<Vec<_>>();
        prop_assert_eq!(listed(&a), list(x.clone()));
        prop_assert_eq!(listed(&a.union(&b)), list(&x | &y));
        prop_assert_eq!(listed(&a.intersect(&b)), list(&x & &y));
        prop_assert_eq!(listed(&a.subtract(&b)), list(&x - &y));
        for result in [a.union(&b), a.intersect(&b), a.subtract(&b), a.complement()] {
            prop_assert!(is_canonical(&result), "{result:?}");
        }
        for number in (0..SIZE).map(|offset| origin + offset) {
            prop_assert_eq!(a.contains(number), x.contains(&number));
        }
        prop_assert_eq!(a.len(), x.len() as u128);
        prop_assert_eq!(a.is_empty(), x.is_empty());
        prop_assert_eq!(a.lowest(), x.first().copied());
    }

    #[test]
    fn set_laws_hold(a in any_set(), b in any_set(), c in any_set(), number: u128) {
        prop_assert_eq!(a.subtract(&b).union(&a.intersect(&b)), a.clone());
        prop_assert!(a.subtract(&b).intersect(&b).is_empty());
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.intersect(&b), b.intersect(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(
            a.intersect(&b.union(&c)),
            a.intersect(&b).union(&a.intersect(&c))
        );
        prop_assert_eq!(a.subtract(&b).subtract(&c), a.subtract(&b.union(&c)));
        prop_assert_eq!(a.complement().complement(), a.clone());
        prop_assert_eq!(a.complement().contains(number), !a.contains(number));
        prop_assert!(is_canonical(&a.union(&b)) && is_canonical(&a.subtract(&b)));
    }
}
