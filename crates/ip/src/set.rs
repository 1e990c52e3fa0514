//! Sets of numbers, kept as sorted spans.

use ipnet::IpNet;

use crate::Family;

/// The numbers from `first` to `last`, both included. A span holds at least one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    first: u128,
    last: u128,
}

#[expect(clippy::len_without_is_empty, reason = "a span is never empty by construction")]
impl Span {
    /// The numbers from `first` to `last`, or `None` when `first` is the greater one.
    #[must_use]
    pub fn new(first: u128, last: u128) -> Option<Span> {
        (first <= last).then_some(Span { first, last })
    }

    /// The span of `number` alone.
    #[must_use]
    pub fn single(number: u128) -> Span {
        Span { first: number, last: number }
    }

    /// The lowest number of the span.
    #[must_use]
    pub fn first(self) -> u128 {
        self.first
    }

    /// The highest number of the span.
    #[must_use]
    pub fn last(self) -> u128 {
        self.last
    }

    /// How many numbers the span holds. The span of all 2^128 numbers gives `u128::MAX`.
    #[must_use]
    pub fn len(self) -> u128 {
        self.last.saturating_sub(self.first).saturating_add(1)
    }

    /// Whether `number` is in the span.
    #[must_use]
    pub fn contains(self, number: u128) -> bool {
        self.first <= number && number <= self.last
    }
}

/// The numbers of a whole network, host bits ignored, its first and last address included.
impl From<IpNet> for Span {
    fn from(network: IpNet) -> Span {
        Span { first: Family::to_number(network.network()), last: Family::to_number(network.broadcast()) }
    }
}

/// A set of numbers, kept as the fewest spans: sorted, disjoint and never adjacent.
///
/// Equal sets have equal spans. Memory and time go by the number of spans, never by how many
/// numbers they hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SpanSet {
    spans: Vec<Span>,
}

impl SpanSet {
    /// The spans in ascending order; between two of them at least one number is missing.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Whether the set holds no number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// How many numbers the set holds. The set of all 2^128 numbers gives `u128::MAX`.
    #[must_use]
    pub fn len(&self) -> u128 {
        self.spans.iter().fold(0, |sum, span| sum.saturating_add(span.len()))
    }

    /// The lowest number of the set, `None` when it is empty.
    #[must_use]
    pub fn lowest(&self) -> Option<u128> {
        self.spans.first().map(|span| span.first)
    }

    /// Whether `number` is in the set; a binary search.
    #[must_use]
    pub fn contains(&self, number: u128) -> bool {
        let index = self.spans.partition_point(|span| span.last < number);
        self.spans.get(index).is_some_and(|span| span.contains(number))
    }

    /// The numbers that are in this set or in `other`.
    #[must_use]
    pub fn union(&self, other: &SpanSet) -> SpanSet {
        self.spans.iter().chain(&other.spans).copied().collect()
    }

    /// The numbers that are in this set and in `other`; linear in the spans of both.
    #[must_use]
    pub fn intersect(&self, other: &SpanSet) -> SpanSet {
        let mut common = Vec::new();
        let mut left = self.spans.iter().peekable();
        let mut right = other.spans.iter().peekable();
        while let (Some(&a), Some(&b)) = (left.peek(), right.peek()) {
            common.extend(Span::new(a.first.max(b.first), a.last.min(b.last)));
            // Only the span that ends first cannot meet any further one.
            if a.last < b.last {
                left.next();
            } else {
                right.next();
            }
        }
        SpanSet { spans: common }
    }

    /// The numbers that are in this set and not in `other`; linear in the spans of both.
    #[must_use]
    pub fn subtract(&self, other: &SpanSet) -> SpanSet {
        self.intersect(&other.complement())
    }

    /// Every number that is not in this set.
    fn complement(&self) -> SpanSet {
        let mut gaps = Vec::new();
        let mut gap_start = Some(0);
        for span in &self.spans {
            if let (Some(start), Some(end)) = (gap_start, span.first.checked_sub(1)) {
                gaps.extend(Span::new(start, end));
            }
            gap_start = span.last.checked_add(1);
        }
        gaps.extend(gap_start.and_then(|start| Span::new(start, u128::MAX)));
        SpanSet { spans: gaps }
    }
}

/// Takes spans in any order, overlapping or not; sorts them once.
impl FromIterator<Span> for SpanSet {
    fn from_iter<I: IntoIterator<Item = Span>>(spans: I) -> SpanSet {
        let mut sorted: Vec<Span> = spans.into_iter().collect();
        sorted.sort();
        let mut merged: Vec<Span> = Vec::new();
        for span in sorted {
            match merged.last_mut() {
                Some(before) if span.first <= before.last.saturating_add(1) => {
                    before.last = before.last.max(span.last);
                }
                _ => merged.push(span),
            }
        }
        SpanSet { spans: merged }
    }
}

impl From<Span> for SpanSet {
    fn from(span: Span) -> SpanSet {
        SpanSet { spans: vec![span] }
    }
}

#[cfg(test)]
mod tests;
