//! The free numbers of a pool.

use std::collections::BTreeMap;

mod ranks;

pub use self::ranks::FreeRanks;
use crate::{Span, SpanSet};

/// The free numbers of a set of usable ones.
///
/// Stores the ends of free spans only. If the lowest number is always taken first, there is one
/// span, whatever the count of numbers. In the worst case, when every second number is taken, there
/// is one span for each taken number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FreeSet {
    /// The first and the last number of each free span. Spans are neither overlapping nor adjacent.
    spans: BTreeMap<u128, u128>,
    /// The count of free numbers, modulo 2^128.
    count: u128,
}

impl FreeSet {
    /// Returns a set in which all numbers of `usable` are free.
    pub fn new(usable: &SpanSet) -> Self {
        let spans = usable.spans().iter();
        Self {
            count: spans
                .clone()
                .fold(0, |sum, span| sum.wrapping_add(count_of(*span))),
            spans: spans.map(|span| (span.first(), span.last())).collect(),
        }
    }

    /// Returns a set in which all numbers of `usable` are free, except those in `taken`.
    ///
    /// `taken` can have any order, duplicates, and numbers that are not usable. It is sorted once,
    /// which is cheaper than calling [`FreeSet::take`] for each number.
    pub fn without(usable: &SpanSet, taken: impl Iterator<Item = u128>) -> Self {
        Self::new(&usable.subtract(&taken.map(Span::single).collect()))
    }

    /// The lowest free number.
    pub fn lowest(&self) -> Option<u128> {
        self.spans.first_key_value().map(|(&first, _)| first)
    }

    /// The lowest free number that is in `set`. Each step skips either the spans of `set` that are
    /// not free, or the free spans that are not in `set`, in logarithmic time.
    pub fn lowest_in(&self, set: &SpanSet) -> Option<u128> {
        let spans = set.spans();
        let mut start = spans.first()?.first();
        loop {
            let free = self.first_from(start)?;
            let span = spans.get(spans.partition_point(|span| span.last() < free))?;
            if span.contains(free) {
                return Some(free);
            }
            start = span.first();
        }
    }

    /// The lowest free number that is not lower than `number`.
    fn first_from(&self, number: u128) -> Option<u128> {
        Some(self.span_from(number)?.first().max(number))
    }

    /// The free span that contains `number`, or else the next one above it.
    pub fn span_from(&self, number: u128) -> Option<Span> {
        let next = || {
            self.spans
                .range(number..)
                .next()
                .map(|(&first, &last)| (first, last))
        };
        let (first, last) = self.span_of(number).or_else(next)?;
        Span::new(first, last)
    }

    /// The lowest free number that is higher than `number`; the lowest one if there is none.
    pub fn next_above(&self, number: u128) -> Option<u128> {
        let Some(next) = number.checked_add(1) else {
            return self.lowest();
        };
        self.first_from(next).or_else(|| self.lowest())
    }

    /// The highest free number that is not among the `kept` highest ones. Linear in the spans of
    /// these.
    pub fn highest_but(&self, mut kept: u128) -> Option<u128> {
        for (&first, &last) in self.spans.iter().rev() {
            let below = last.saturating_sub(first);
            if kept <= below {
                return last.checked_sub(kept);
            }
            kept = kept.saturating_sub(below).saturating_sub(1);
        }
        None
    }

    /// Whether `number` is free.
    pub fn contains(&self, number: u128) -> bool {
        self.span_of(number).is_some()
    }

    /// The count of free numbers, at most `u128::MAX`: it is the length of all 2^128 numbers too.
    pub fn len(&self) -> u128 {
        if self.count == 0 && !self.is_empty() {
            u128::MAX
        } else {
            self.count
        }
    }

    /// Whether no number is free.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Removes `number` from the free numbers. Returns whether it was free.
    pub fn take(&mut self, number: u128) -> bool {
        let Some((first, last)) = self.span_of(number) else {
            return false;
        };
        if first < number {
            self.spans.insert(first, number.saturating_sub(1));
        } else {
            self.spans.remove(&first);
        }
        if number < last {
            self.spans.insert(number.saturating_add(1), last);
        }
        self.count = self.count.wrapping_sub(1);
        true
    }

    /// Adds `number` to the free numbers. Returns whether it was not free.
    ///
    /// The set does not store the usable numbers: only pass numbers that are usable.
    pub fn release(&mut self, number: u128) -> bool {
        if self.contains(number) {
            return false;
        }
        let before = number
            .checked_sub(1)
            .and_then(|previous| self.span_of(previous));
        let after = number
            .checked_add(1)
            .and_then(|next| self.spans.remove(&next));
        let first = before.map_or(number, |(first, _)| first);
        self.spans.insert(first, after.unwrap_or(number));
        self.count = self.count.wrapping_add(1);
        true
    }

    /// Adds the numbers of `span` to the free numbers.
    pub fn release_span(&mut self, span: Span) {
        self.take_span(span);
        let before = span
            .first()
            .checked_sub(1)
            .and_then(|previous| self.span_of(previous));
        let after = span
            .last()
            .checked_add(1)
            .and_then(|next| self.spans.remove(&next));
        let first = before.map_or(span.first(), |(first, _)| first);
        self.spans.insert(first, after.unwrap_or(span.last()));
        self.count = self.count.wrapping_add(count_of(span));
    }

    /// Removes the numbers of `span` from the free numbers. Linear in the free spans within it.
    pub fn take_span(&mut self, span: Span) {
        let free: Vec<Span> = self.within(span).collect();
        for taken in free {
            let Some((first, last)) = self.span_of(taken.first()) else {
                continue;
            };
            self.spans.remove(&first);
            if let Some(end) = taken.first().checked_sub(1).filter(|end| *end >= first) {
                self.spans.insert(first, end);
            }
            if let Some(start) = taken.last().checked_add(1).filter(|start| *start <= last) {
                self.spans.insert(start, last);
            }
            self.count = self.count.wrapping_sub(count_of(taken));
        }
    }

    /// Makes the numbers of `among` free that are in `free` and not in `taken`, and takes the
    /// others of `among`. `taken` may contain other numbers.
    pub fn replace(&mut self, among: &SpanSet, free: &SpanSet, taken: impl Iterator<Item = u128>) {
        among.spans().iter().for_each(|span| self.take_span(*span));
        let free = among
            .intersect(free)
            .subtract(&taken.map(Span::single).collect());
        free.spans()
            .iter()
            .for_each(|span| self.release_span(*span));
    }

    /// The free spans, in ascending order.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.spans
            .iter()
            .filter_map(|(&first, &last)| Span::new(first, last))
    }

    /// The free spans within a span.
    pub fn within(&self, span: Span) -> impl Iterator<Item = Span> {
        let start = self
            .span_of(span.first())
            .map_or(span.first(), |(first, _)| first);
        let spans = self.spans.range(start..=span.last());
        spans.filter_map(move |(&first, &last)| {
            Span::new(first.max(span.first()), last.min(span.last()))
        })
    }

    /// Returns the first and the last number of the free span that contains `number`.
    fn span_of(&self, number: u128) -> Option<(u128, u128)> {
        let (&first, &last) = self.spans.range(..=number).next_back()?;
        (number <= last).then_some((first, last))
    }
}

/// The count of numbers of a span, modulo 2^128.
fn count_of(span: Span) -> u128 {
    span.last().wrapping_sub(span.first()).wrapping_add(1)
}

#[cfg(test)]
mod tests;
