//! Spans and sets of numbers.

use ipnet::IpNet;

use crate::Family;

/// The numbers from `first` to `last`, both included. A span has at least one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    first: u128,
    last: u128,
}

#[expect(
    clippy::len_without_is_empty,
    reason = "a span is never empty by construction"
)]
impl Span {
    /// Returns the span from `first` to `last`; `None` if `first` is greater than `last`.
    pub fn new(first: u128, last: u128) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// Returns the span of one number.
    pub fn single(number: u128) -> Self {
        Self {
            first: number,
            last: number,
        }
    }

    /// The lowest number of the span.
    pub fn first(self) -> u128 {
        self.first
    }

    /// The highest number of the span.
    pub fn last(self) -> u128 {
        self.last
    }

    /// The count of numbers, at most `u128::MAX`: the span of all 2^128 numbers has this length
    /// too.
    pub fn len(self) -> u128 {
        self.last.saturating_sub(self.first).saturating_add(1)
    }

    /// Whether `number` is in the span.
    pub fn contains(self, number: u128) -> bool {
        self.first <= number && number <= self.last
    }
}

/// The numbers of all addresses of a network, including the first and the last one. Host bits are
/// ignored.
impl From<IpNet> for Span {
    fn from(network: IpNet) -> Self {
        Self {
            first: Family::to_number(network.network()),
            last: Family::to_number(network.broadcast()),
        }
    }
}

/// A set of numbers, stored as sorted spans that are neither overlapping nor adjacent.
///
/// Equal sets have equal spans. Memory and time depend on the number of spans, not on the count of
/// numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SpanSet {
    spans: Vec<Span>,
}

impl SpanSet {
    /// The spans in ascending order. There is a gap between any two of them.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The count of numbers, at most `u128::MAX`: the set of all 2^128 numbers has this length too.
    pub fn len(&self) -> u128 {
        self.spans
            .iter()
            .fold(0, |sum, span| sum.saturating_add(span.len()))
    }

    /// The lowest number of the set; `None` if it is empty.
    pub fn lowest(&self) -> Option<u128> {
        self.spans.first().map(|span| span.first)
    }

    /// Whether `number` is in the set, by binary search.
    pub fn contains(&self, number: u128) -> bool {
        let index = self.spans.partition_point(|span| span.last < number);
        self.spans
            .get(index)
            .is_some_and(|span| span.contains(number))
    }

    /// Whether any number of `span` is in the set, by binary search.
    pub fn overlaps(&self, span: Span) -> bool {
        let index = self.spans.partition_point(|own| own.last < span.first);
        self.spans
            .get(index)
            .is_some_and(|own| own.first <= span.last)
    }

    /// Returns the numbers that are in this set and in `other`. Linear in the spans of both.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let mut common = Vec::new();
        let mut left = self.spans.iter().peekable();
        let mut right = other.spans.iter().peekable();
        while let (Some(&a), Some(&b)) = (left.peek(), right.peek()) {
            common.extend(Span::new(a.first.max(b.first), a.last.min(b.last)));
            // The span that ends first overlaps with no later span.
            if a.last < b.last {
                left.next();
            } else {
                right.next();
            }
        }
        Self { spans: common }
    }

    /// Returns the numbers that are in this set and not in `other`. Spans of `other` between two
    /// spans of this set are skipped by binary search.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        let mut remaining = Vec::new();
        let mut others = other.spans.as_slice();
        for span in &self.spans {
            let skipped = others.partition_point(|other| other.last < span.first);
            others = others.get(skipped..).unwrap_or_default();
            let overlapping = others.partition_point(|other| other.first <= span.last);
            remaining.reserve(overlapping.saturating_add(1));
            // The first number that is not compared yet; `None` after the last one that exists.
            let mut start = Some(span.first);
            for other in others.iter().take(overlapping) {
                if let (Some(start), Some(end)) = (start, other.first.checked_sub(1)) {
                    remaining.extend(Span::new(start, end));
                }
                start = other.last.checked_add(1);
            }
            remaining.extend(start.and_then(|start| Span::new(start, span.last)));
        }
        Self { spans: remaining }
    }
}

/// Adds the spans of other sets.
impl<'a> FromIterator<&'a SpanSet> for SpanSet {
    fn from_iter<I: IntoIterator<Item = &'a SpanSet>>(sets: I) -> Self {
        sets.into_iter()
            .flat_map(|set| set.spans.iter().copied())
            .collect()
    }
}

/// Collects spans, which may overlap, in any order. They are sorted once.
impl FromIterator<Span> for SpanSet {
    fn from_iter<I: IntoIterator<Item = Span>>(spans: I) -> Self {
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
        Self { spans: merged }
    }
}

impl From<Span> for SpanSet {
    fn from(span: Span) -> Self {
        Self { spans: vec![span] }
    }
}

#[cfg(test)]
mod tests;
