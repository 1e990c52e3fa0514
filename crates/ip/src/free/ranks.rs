use super::FreeSet;
use crate::{Span, SpanSet};

/// The count of numbers of a group.
const GROUP: u128 = 64;

/// Larger sets have no counts: so few of their numbers can be taken that a random number is nearly
/// always free.
const MAX_COUNTED: u128 = 1 << 26;

/// The number of random numbers of a large set that are tried.
const MAX_DRAWS: u32 = 10_000;

/// Finds the n-th free number of a set, and so a random one, in logarithmic time.
///
/// The usable numbers are divided into groups of 64, and a Fenwick tree has the count of free
/// numbers of each: 4 bytes for 64 numbers.
#[derive(Debug, Clone)]
pub struct FreeRanks {
    /// The usable spans, and the count of usable numbers below each.
    spans: Vec<(Span, u128)>,
    /// The count of usable numbers.
    len: u128,
    /// The Fenwick tree; empty for a set of more than [`MAX_COUNTED`] numbers.
    tree: Vec<u32>,
}

impl FreeRanks {
    /// Counts the free numbers of `usable`. Linear in the spans, and in the groups.
    pub fn new(usable: &SpanSet, free: &FreeSet) -> Self {
        let mut len = 0_u128;
        let mut spans = Vec::with_capacity(usable.spans().len());
        for span in usable.spans() {
            spans.push((*span, len));
            len = len.saturating_add(span.len());
        }
        let groups = if len > MAX_COUNTED {
            0
        } else {
            usize::try_from(len.div_ceil(GROUP)).unwrap_or_default()
        };
        let mut ranks = Self {
            spans,
            len,
            tree: vec![0; groups],
        };
        for (&first, &last) in &free.spans {
            let Some((mut start, end)) = ranks.offset(first).zip(ranks.offset(last)) else {
                continue;
            };
            while groups > 0 && start <= end {
                let last_of_group = (start | (GROUP - 1)).min(end);
                ranks.count_in(start, last_of_group.saturating_sub(start).saturating_add(1));
                start = last_of_group.saturating_add(1);
            }
        }
        ranks.build();
        ranks
    }

    /// Counts a number that became free, or is no longer free.
    pub fn set_free(&mut self, number: u128, is_free: bool) {
        let Some(mut group) = self
            .offset(number)
            .and_then(|offset| usize::try_from(offset / GROUP).ok())
        else {
            return;
        };
        while let Some(count) = self.tree.get_mut(group) {
            *count = if is_free {
                count.saturating_add(1)
            } else {
                count.saturating_sub(1)
            };
            group |= group.saturating_add(1);
        }
    }

    /// A random free number that is not among the `kept` highest ones. Each has the same
    /// probability if `draw(n)` returns each number below n with the same probability.
    pub fn random(
        &self,
        free: &FreeSet,
        kept: u128,
        mut draw: impl FnMut(u128) -> u128,
    ) -> Option<u128> {
        let candidates = free.len().checked_sub(kept).filter(|count| *count > 0)?;
        if !self.tree.is_empty() {
            return self.select(free, draw(candidates));
        }
        let highest = free.highest_but(kept)?;
        for _ in 0..MAX_DRAWS {
            let number = self.number(draw(self.len))?;
            if number <= highest && free.contains(number) {
                return Some(number);
            }
        }
        free.lowest()
    }

    /// The free number below which `rank` other ones are free.
    fn select(&self, free: &FreeSet, rank: u128) -> Option<u128> {
        let (mut groups, mut left) = (0_usize, rank);
        let mut step = self
            .tree
            .len()
            .checked_next_power_of_two()
            .unwrap_or_default();
        while step > 0 {
            let next = groups.saturating_add(step);
            let count = next
                .checked_sub(1)
                .and_then(|last| self.tree.get(last))
                .map(|count| u128::from(*count));
            if let Some(count) = count.filter(|count| *count <= left) {
                (groups, left) = (next, left.saturating_sub(count));
            }
            step >>= 1;
        }
        let start = (groups as u128).saturating_mul(GROUP);
        self.usable_spans(start, start.saturating_add(GROUP))
            .flat_map(|span| free.within(span))
            .find_map(|span| {
                let found = span
                    .first()
                    .checked_add(left)
                    .filter(|number| span.contains(*number));
                left = left.saturating_sub(span.len());
                found
            })
    }

    /// The usable spans of the numbers with the offsets from `start` to below `end`.
    fn usable_spans(&self, start: u128, end: u128) -> impl Iterator<Item = Span> {
        let index = self
            .spans
            .partition_point(|(span, below)| below.saturating_add(span.len()) <= start);
        let spans = self
            .spans
            .get(index..)
            .unwrap_or_default()
            .iter()
            .take_while(move |(_, below)| *below < end);
        spans.filter_map(move |(span, below)| {
            let first = span.first().saturating_add(start.saturating_sub(*below));
            let last = span
                .first()
                .saturating_add(end.saturating_sub(*below).saturating_sub(1))
                .min(span.last());
            Span::new(first, last)
        })
    }

    /// The count of usable numbers below a usable number.
    fn offset(&self, number: u128) -> Option<u128> {
        let index = self.spans.partition_point(|(span, _)| span.last() < number);
        let (span, below) = self.spans.get(index)?;
        Some(number.checked_sub(span.first())?.saturating_add(*below))
    }

    /// The usable number below which `offset` other ones are usable.
    fn number(&self, offset: u128) -> Option<u128> {
        let index = self
            .spans
            .partition_point(|(_, below)| *below <= offset)
            .checked_sub(1)?;
        let (span, below) = self.spans.get(index)?;
        span.first()
            .checked_add(offset.checked_sub(*below)?)
            .filter(|number| span.contains(*number))
    }

    fn count_in(&mut self, offset: u128, count: u128) {
        let group = usize::try_from(offset / GROUP)
            .ok()
            .and_then(|group| self.tree.get_mut(group));
        if let Some(known) = group {
            *known = known.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Makes a Fenwick tree of the counts of single groups.
    fn build(&mut self) {
        for index in 0..self.tree.len() {
            let parent = index | index.saturating_add(1);
            let count = self.tree.get(index).copied().unwrap_or_default();
            if let Some(sum) = self.tree.get_mut(parent) {
                *sum = sum.saturating_add(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Three spans, of which the second one is shorter than a group.
    fn usable() -> SpanSet {
        [(5, 300), (1_000, 1_009), (2_000, 2_200)]
            .into_iter()
            .filter_map(|(a, b)| Span::new(a, b))
            .collect()
    }

    proptest! {
        #[test]
        fn ranks_agree_with_a_list(changes in vec((0..507_usize, any::<bool>()), 0..300), built_at in 0..300_usize) {
            let numbers: Vec<u128> =
                usable().spans().iter().flat_map(|span| span.first()..=span.last()).collect();
            let mut free = FreeSet::new(&usable());
            let mut ranks = FreeRanks::new(&usable(), &free);
            for (index, (which, is_free)) in changes.iter().enumerate() {
                if index == built_at {
                    ranks = FreeRanks::new(&usable(), &free);
                }
                let number = numbers[*which];
                if if *is_free { free.release(number) } else { free.take(number) } {
                    ranks.set_free(number, *is_free);
                }
            }
            let expected: Vec<u128> = numbers.into_iter().filter(|number| free.contains(*number)).collect();
            let found: Vec<u128> = (0..free.len()).filter_map(|rank| ranks.select(&free, rank)).collect();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(ranks.select(&free, free.len()), None);
            for kept in [0_usize, 1, 70] {
                let highest = free.highest_but(kept as u128);
                prop_assert_eq!(highest, expected.len().checked_sub(kept + 1).map(|index| expected[index]));
                let last = ranks.random(&free, kept as u128, |count| count - 1);
                prop_assert_eq!(last, highest);
            }
        }
    }

    /// Pearson's chi-squared statistic of draws, whose distribution has the mean `cells - 1`.
    fn chi_squared(mut draw: impl FnMut() -> usize, cells: u32, draws: u32) -> f64 {
        let mut counts = vec![0_u32; cells as usize];
        (0..draws).for_each(|_| counts[draw()] += 1);
        let expected = f64::from(draws) / f64::from(cells);
        counts
            .iter()
            .map(|count| (f64::from(*count) - expected).powi(2) / expected)
            .sum()
    }

    #[test]
    fn random_number_is_uniform() {
        let mut free = FreeSet::new(&usable());
        // Two of three numbers are taken, and a whole group.
        for number in (5..=300).filter(|number| number % 3 > 0 || *number < 90) {
            free.take(number);
        }
        let ranks = FreeRanks::new(&usable(), &free);
        let numbers: Vec<u128> = (0..3_000).filter(|number| free.contains(*number)).collect();
        let mut random = SmallRng::seed_from_u64(7);
        let draw = || {
            let number = ranks
                .random(&free, 0, |count| random.random_range(0..count))
                .unwrap();
            numbers.binary_search(&number).unwrap()
        };
        let cells = u32::try_from(numbers.len()).unwrap();
        let statistic = chi_squared(draw, cells, 100_000);
        // 281 degrees of freedom: below 200 and above 370 each have a probability of less than
        // 0.0005.
        assert_eq!(cells, 282);
        assert!((200.0..370.0).contains(&statistic), "{statistic}");
    }

    #[test]
    fn large_set_is_sampled_without_counts() {
        let all = SpanSet::from(Span::new(0, u128::MAX).unwrap());
        let mut free = FreeSet::new(&all);
        for number in 0..1_000 {
            free.take(number);
        }
        let ranks = FreeRanks::new(&all, &free);
        assert!(ranks.tree.is_empty());
        let mut random = SmallRng::seed_from_u64(7);
        // The four quarters of all numbers.
        let draw = || {
            let number = ranks
                .random(&free, 5, |count| random.random_range(0..count))
                .unwrap();
            (number >> 126) as usize
        };
        assert!(
            chi_squared(draw, 4, 10_000) < 17.7,
            "3 degrees of freedom: the probability is 0.0005"
        );
        let mut draws = [999, 12].into_iter();
        let number = ranks.random(&free, 0, |_| draws.next().unwrap_or(5_000));
        assert_eq!(number, Some(5_000), "taken numbers are drawn again");
    }
}
