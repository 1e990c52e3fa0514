//! What is the same in two consecutive passes.

use std::collections::HashMap;
use std::hash::Hash;

/// Passes on each finding once, when two consecutive passes have found it.
#[derive(Debug)]
pub(super) struct Lasting<T> {
    /// The findings of the last pass, and whether each was passed on.
    found: HashMap<T, bool>,
}

impl<T> Default for Lasting<T> {
    fn default() -> Self {
        Self {
            found: HashMap::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Lasting<T> {
    /// Takes the findings of a pass. Returns those that the pass before found too, and that were
    /// not returned since.
    pub(super) fn update(&mut self, found: Vec<T>) -> Vec<T> {
        let before = std::mem::take(&mut self.found);
        let new = |finding: &T| before.get(finding) == Some(&false);
        let lasting = found
            .iter()
            .filter(|finding| new(finding))
            .cloned()
            .collect();
        self.found = found
            .into_iter()
            .map(|finding| {
                let is_known = before.contains_key(&finding);
                (finding, is_known)
            })
            .collect();
        lasting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_of_two_passes_is_returned_once() {
        let mut lasting = Lasting::default();
        assert!(lasting.update(vec!["a", "b"]).is_empty());
        assert_eq!(lasting.update(vec!["a", "c"]), ["a"]);
        assert_eq!(lasting.update(vec!["a", "c"]), ["c"]);
        assert!(lasting.update(vec!["a", "c"]).is_empty());
        assert!(lasting.update(vec![]).is_empty());
        assert!(lasting.update(vec!["a"]).is_empty(), "it is a new finding");
    }
}
