//! The markers that a watch has delivered. Each list contains all markers of the bucket, and those
//! of other programs stay for good, so they are not delivered again.

use std::collections::HashMap;

/// The revisions of the delivered markers by key, of one bucket.
#[derive(Default)]
pub(super) struct Markers {
    incarnation: String,
    delivered: HashMap<String, u64>,
    /// Those that the list of the moment contains.
    listed: HashMap<String, u64>,
}

impl Markers {
    /// A list begins. Those of another bucket are forgotten.
    pub(super) fn begin_list(&mut self, incarnation: String) {
        self.listed.clear();
        if self.incarnation != incarnation {
            self.delivered.clear();
            self.incarnation = incarnation;
        }
    }

    /// Records a marker. Returns whether it was not delivered before.
    pub(super) fn is_new(&mut self, key: &str, revision: u64) -> bool {
        self.listed.insert(key.to_owned(), revision);
        self.delivered.insert(key.to_owned(), revision) != Some(revision)
    }

    /// The key has a value.
    pub(super) fn forget(&mut self, key: &str) {
        self.delivered.remove(key);
    }

    /// The list is complete: markers that it does not contain are forgotten.
    pub(super) fn end_list(&mut self) {
        self.delivered = std::mem::take(&mut self.listed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_is_new_once_in_a_bucket() {
        let mut markers = Markers::default();
        for (bucket, is_new) in [("a", true), ("a", false), ("b", true)] {
            markers.begin_list(bucket.to_owned());
            assert_eq!(markers.is_new("key", 7), is_new, "{bucket}");
            markers.end_list();
        }
        assert!(markers.is_new("key", 9));
        markers.begin_list("b".to_owned());
        assert!(!markers.is_new("key", 9));
    }

    #[test]
    fn value_or_a_list_without_the_marker_forgets_it() {
        let mut markers = Markers::default();
        markers.begin_list("a".to_owned());
        assert!(markers.is_new("key", 7));
        markers.forget("key");
        assert!(markers.is_new("key", 7));
        markers.end_list();
        markers.begin_list("a".to_owned());
        markers.end_list();
        assert!(markers.is_new("key", 7));
    }
}
