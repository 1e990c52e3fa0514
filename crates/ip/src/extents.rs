//! Search for pools whose address ranges overlap.

use std::collections::BTreeMap;

use crate::{Family, Span, UsableBlocks};

/// The extents of pools, each from the lowest to the highest usable address, by a key of each pool.
///
/// Extents of similar lengths are kept together, so that a search looks only at those that begin in
/// the searched one, or at most twice their length before it: a few large pools do not slow the
/// search among small ones.
#[derive(Clone, Debug)]
pub struct Extents<K> {
    /// By family and the binary logarithm of the distance from the first to the last address, then
    /// by the first address. The value is the last address.
    classes: BTreeMap<(Family, u32), BTreeMap<u128, BTreeMap<K, u128>>>,
}

impl<K> Default for Extents<K> {
    fn default() -> Self {
        Self {
            classes: BTreeMap::new(),
        }
    }
}

impl<K: Ord> Extents<K> {
    /// Adds the extent of a pool that has no other extent. Without usable addresses it has none.
    pub fn insert(&mut self, usable: &UsableBlocks, key: K) {
        let Some(span) = usable.bounds() else { return };
        let class = self
            .classes
            .entry((usable.family, class_of(span)))
            .or_default();
        class
            .entry(span.first())
            .or_default()
            .insert(key, span.last());
    }

    /// Removes the extent of a pool, which had these blocks when it was added.
    pub fn remove(&mut self, usable: &UsableBlocks, key: &K) {
        let Some(span) = usable.bounds() else { return };
        let class_key = (usable.family, class_of(span));
        let Some(class) = self.classes.get_mut(&class_key) else {
            return;
        };
        let Some(keys) = class.get_mut(&span.first()) else {
            return;
        };
        keys.remove(key);
        if keys.is_empty() {
            class.remove(&span.first());
        }
        if class.is_empty() {
            self.classes.remove(&class_key);
        }
    }

    /// The keys of the pools whose extent overlaps with that of these blocks, in no particular
    /// order. See [`UsableBlocks::overlaps`] for whether they have a common address.
    pub fn overlapping(&self, usable: &UsableBlocks) -> impl Iterator<Item = &K> {
        let family = usable.family;
        usable.bounds().into_iter().flat_map(move |span| {
            let classes = self.classes.range((family, 0)..=(family, u32::MAX));
            classes.flat_map(move |((_, class), extents)| in_class(*class, extents, span))
        })
    }
}

/// The keys of the extents of a class that overlap with a span.
fn in_class<K>(
    class: u32,
    extents: &BTreeMap<u128, BTreeMap<K, u128>>,
    span: Span,
) -> impl Iterator<Item = &K> {
    let longest = u128::MAX
        .checked_shr(127_u32.saturating_sub(class))
        .unwrap_or(u128::MAX);
    let candidates = extents.range(span.first().saturating_sub(longest)..=span.last());
    let overlapping = candidates
        .flat_map(|(_, keys)| keys)
        .filter(move |(_, last)| **last >= span.first());
    overlapping.map(|(key, _)| key)
}

/// The class of an extent: in class n the distances from the first to the last address are 2^n to
/// 2^(n+1)-1, and in class 0 also 0.
fn class_of(span: Span) -> u32 {
    span.last()
        .wrapping_sub(span.first())
        .checked_ilog2()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SpanSet;

    fn usable() -> impl Strategy<Value = UsableBlocks> {
        let family = prop_oneof![2 => Just(Family::V6), 1 => Just(Family::V4)];
        let origin = prop_oneof![Just(0), Just(1 << 100), Just(u128::MAX - 40)];
        let ends = (origin, 0..40_u128, 0..40_u128)
            .prop_map(|(origin, one, other)| (origin + one, origin + other));
        let ends = prop_oneof![9 => ends, 1 => any::<(u128, u128)>()];
        (family, proptest::collection::vec(ends, 0..3)).prop_map(|(family, ends)| {
            // The addresses of IPv4 are the lowest numbers.
            let first = |number: u128| {
                if family == Family::V4 {
                    number & 0xffff
                } else {
                    number
                }
            };
            let span = |(one, other)| {
                Span::new(first(one).min(first(other)), first(one).max(first(other)))
            };
            let set: SpanSet = ends.into_iter().filter_map(span).collect();
            UsableBlocks {
                family,
                length: family.bits(),
                ranges: Vec::new(),
                set,
                draining: SpanSet::default(),
            }
        })
    }

    proptest! {
        #[test]
        fn found_pools_agree_with_a_naive_model(
            steps in proptest::collection::vec((usable(), 0..8_u8, proptest::bool::weighted(0.7)), 0..40),
            searched in usable(),
        ) {
            let mut extents = Extents::default();
            let mut model = BTreeMap::new();
            for (usable, key, is_added) in steps {
                if let Some(before) = model.remove(&key) {
                    extents.remove(&before, &key);
                }
                if is_added {
                    extents.insert(&usable, key);
                    model.insert(key, usable);
                }
            }
            let overlaps = |other: &UsableBlocks| {
                let both = other.bounds().zip(searched.bounds());
                other.family == searched.family
                    && both.is_some_and(|(one, two)| one.first() <= two.last() && two.first() <= one.last())
            };
            let expected: Vec<u8> = model.iter().filter(|(_, usable)| overlaps(usable)).map(|(key, _)| *key).collect();
            let mut found: Vec<u8> = extents.overlapping(&searched).copied().collect();
            found.sort_unstable();
            prop_assert_eq!(found, expected);
            model.iter().for_each(|(key, usable)| extents.remove(usable, key));
            prop_assert!(extents.classes.is_empty());
        }
    }
}
