//! Which numbers of a usable set are free.

use std::collections::BTreeMap;

use crate::{Span, SpanSet};

/// The free numbers of a usable set.
///
/// Only the borders of free spans are stored. Numbers taken lowest first leave one span however
/// many they are; the worst case, every second number taken, has one span per taken number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FreeSet {
    /// First and last number of every free span: disjoint and never adjacent.
    spans: BTreeMap<u128, u128>,
    /// How many numbers are free, modulo 2^128.
    count: u128,
}

impl FreeSet {
    /// All numbers of `usable` are free.
    #[must_use]
    pub fn new(usable: &SpanSet) -> FreeSet {
        let spans = usable.spans().iter();
        FreeSet {
            count: spans.clone().fold(0, |sum, span| sum.wrapping_add(count_of(*span))),
            spans: spans.map(|span| (span.first(), span.last())).collect(),
        }
    }

    /// The numbers of `usable` are free, save for those in `taken`.
    ///
    /// `taken` may come in any order, repeat itself and name numbers that are not usable. It is
    /// sorted once, which is cheaper than calling [`FreeSet::take`] for each.
    #[must_use]
    pub fn without(usable: &SpanSet, taken: impl Iterator<Item = u128>) -> FreeSet {
        FreeSet::new(&usable.subtract(&taken.map(Span::single).collect()))
    }

    /// The lowest free number.
    #[must_use]
    pub fn lowest(&self) -> Option<u128> {
        self.spans.first_key_value().map(|(&first, _)| first)
    }

    /// The lowest free number that is `number` or greater.
    #[must_use]
    pub fn lowest_from(&self, number: u128) -> Option<u128> {
        if self.contains(number) {
            return Some(number);
        }
        self.spans.range(number..).next().map(|(&first, _)| first)
    }

    /// Whether `number` is free.
    #[must_use]
    pub fn contains(&self, number: u128) -> bool {
        self.span_of(number).is_some()
    }

    /// How many numbers are free. All 2^128 give `u128::MAX`; every other count is exact.
    #[must_use]
    pub fn len(&self) -> u128 {
        if self.count == 0 && !self.is_empty() { u128::MAX } else { self.count }
    }

    /// Whether no number is free.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Makes `number` no longer free. Returns whether it was free; if not, nothing changes.
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

    /// Makes `number` free again. Returns whether it was not free; if it was, nothing changes.
    ///
    /// The set does not remember what is usable: the caller makes sure that `number` is.
    pub fn give_back(&mut self, number: u128) -> bool {
        if self.contains(number) {
            return false;
        }
        let before = number.checked_sub(1).and_then(|next| self.span_of(next));
        let after = number.checked_add(1).and_then(|next| self.spans.remove(&next));
        let first = before.map_or(number, |(first, _)| first);
        self.spans.insert(first, after.unwrap_or(number));
        self.count = self.count.wrapping_add(1);
        true
    }

    /// First and last number of the free span that holds `number`.
    fn span_of(&self, number: u128) -> Option<(u128, u128)> {
        let (&first, &last) = self.spans.range(..=number).next_back()?;
        (number <= last).then_some((first, last))
    }
}

/// How many numbers `span` holds, modulo 2^128.
fn count_of(span: Span) -> u128 {
    span.last().wrapping_sub(span.first()).wrapping_add(1)
}

#[cfg(test)]
mod tests;
