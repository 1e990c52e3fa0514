//! Objects that seem abandoned, and how long they have.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Confirms objects that seem abandoned in consecutive passes and for a grace period.
#[derive(Debug)]
pub(super) struct Suspects<T> {
    /// The objects of the last pass: when each was first found or postponed, and for how long.
    since: HashMap<T, (Instant, Duration)>,
}

impl<T> Default for Suspects<T> {
    fn default() -> Self {
        Self {
            since: HashMap::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Suspects<T> {
    /// Takes the objects that a pass has found at the time `now`. Returns those that an earlier
    /// pass found too, and every pass for the `grace` period.
    pub(super) fn update(
        &mut self,
        found: impl IntoIterator<Item = T>,
        grace: Duration,
        now: Instant,
    ) -> Vec<T> {
        let before = std::mem::take(&mut self.since);
        let since = |object: &T| before.get(object).copied().unwrap_or((now, grace));
        self.since = found
            .into_iter()
            .map(|object| (object.clone(), since(&object)))
            .collect();
        let is_confirmed = |(since, delay): (Instant, Duration)| {
            since < now && now.saturating_duration_since(since) >= delay
        };
        let confirmed = self.since.iter().filter(|(_, since)| is_confirmed(**since));
        confirmed.map(|(object, _)| object.clone()).collect()
    }

    /// Confirms an object again only after this delay, if it is found until then.
    pub(super) fn postpone(&mut self, object: T, now: Instant, delay: Duration) {
        self.since.insert(object, (now, delay));
    }

    /// Forgets an object: if it is found again, its grace period starts again.
    pub(super) fn remove(&mut self, object: &T) {
        self.since.remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_confirmed_after_two_passes_and_the_grace_period() {
        let (mut suspects, start, grace) =
            (Suspects::default(), Instant::now(), Duration::from_secs(10));
        let mut update = |found: &[&'static str], second| {
            suspects.update(
                found.iter().copied(),
                grace,
                start + Duration::from_secs(second),
            )
        };
        assert!(update(&["a", "b"], 0).is_empty());
        assert!(update(&["a", "b"], 9).is_empty());
        assert_eq!(update(&["a"], 10), ["a"]);
        assert!(update(&["a", "b"], 20).contains(&"a"));
        assert!(
            !update(&["b"], 21).contains(&"b"),
            "it was not found by the pass before"
        );
    }

    #[test]
    fn one_pass_confirms_nothing() {
        let (mut suspects, now) = (Suspects::default(), Instant::now());
        assert!(suspects.update(["a"], Duration::ZERO, now).is_empty());
        assert_eq!(
            suspects.update(["a"], Duration::ZERO, now + Duration::from_millis(1)),
            ["a"]
        );
        suspects.remove(&"a");
        assert!(
            suspects
                .update(["a"], Duration::ZERO, now + Duration::from_millis(2))
                .is_empty()
        );
    }
}
