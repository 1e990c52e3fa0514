//! How many objects one pass releases.

use std::collections::HashMap;
use std::hash::Hash;

/// The number of objects of a group that one pass releases in any case.
const MIN_LIMIT: usize = 5;
/// The part of a group that one pass releases if that is more: one twentieth.
const LIMIT_DIVISOR: usize = 20;

/// Limits how many objects of each group, such as a pool, one pass releases. If a cache is wrong or
/// a restore is incomplete, there is time to notice it.
pub(super) struct ReleaseBudget<G> {
    groups: HashMap<G, Group>,
}

/// What one pass does with the objects of a group.
struct Group {
    limit: usize,
    released: usize,
    postponed: usize,
}

impl<G: Clone + Eq + Hash> ReleaseBudget<G> {
    pub(super) fn new() -> Self {
        Self {
            groups: HashMap::new(),
        }
    }

    /// Whether another object of a group may be released. If not, it counts as postponed. `size`
    /// counts the objects of the group; it is called once for each group.
    pub(super) fn admits(&mut self, group: &G, size: impl FnOnce() -> usize) -> bool {
        let entry = self.groups.entry(group.clone());
        let group = entry.or_insert_with(|| Group {
            limit: MIN_LIMIT.max(size() / LIMIT_DIVISOR),
            released: 0,
            postponed: 0,
        });
        let is_admitted = group.released < group.limit;
        if !is_admitted {
            group.postponed = group.postponed.saturating_add(1);
        }
        is_admitted
    }

    /// Records that an admitted object is released.
    pub(super) fn record_release(&mut self, group: &G) {
        if let Some(group) = self.groups.get_mut(group) {
            group.released = group.released.saturating_add(1);
        }
    }

    /// The groups with objects that are left for the next pass, and their number.
    pub(super) fn postponed(&self) -> impl Iterator<Item = (&G, usize)> {
        let counts = self
            .groups
            .iter()
            .map(|(group, state)| (group, state.postponed));
        counts.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `wanted` objects of a group with `size` objects one pass releases, and how many
    /// it leaves.
    fn pass(size: usize, wanted: usize) -> (usize, usize) {
        let mut budget = ReleaseBudget::new();
        let mut released = 0;
        for _ in 0..wanted {
            if budget.admits(&"pool", || size) {
                budget.record_release(&"pool");
                released += 1;
            }
        }
        (
            released,
            budget.postponed().map(|(_, count)| count).sum::<usize>(),
        )
    }

    #[test]
    fn pass_releases_five_or_a_twentieth() {
        for (size, limit) in [(0, 5), (10, 5), (119, 5), (120, 6), (1000, 50)] {
            assert_eq!(pass(size, 3), (3, 0), "{size}");
            assert_eq!(pass(size, limit), (limit, 0), "{size}");
            assert_eq!(pass(size, limit + 7), (limit, 7), "{size}");
        }
    }

    #[test]
    fn groups_have_separate_limits() {
        let mut budget = ReleaseBudget::new();
        for _ in 0..MIN_LIMIT {
            assert!(budget.admits(&"a", || 0));
            budget.record_release(&"a");
        }
        assert!(!budget.admits(&"a", || 0));
        assert!(budget.admits(&"b", || 0));
        assert_eq!(budget.postponed().collect::<Vec<_>>(), [(&"a", 1)]);
    }

    #[test]
    fn object_that_is_kept_costs_nothing() {
        let mut budget = ReleaseBudget::new();
        for _ in 0..100 {
            assert!(budget.admits(&"a", || 0));
        }
    }
}
