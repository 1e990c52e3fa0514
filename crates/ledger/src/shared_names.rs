use std::collections::HashSet;
use std::sync::Arc;

/// The smallest number of names at which unused ones are removed.
const MIN_PRUNED: usize = 1_024;

/// Names that many entries of the ledger have, each stored once.
#[derive(Debug, Default)]
pub(super) struct SharedNames {
    names: HashSet<Arc<str>>,
    /// The number of names at which unused ones are removed next.
    prune_at: usize,
}

impl SharedNames {
    /// Returns the stored copy of a name.
    pub(super) fn share(&mut self, name: Option<&str>) -> Option<Arc<str>> {
        let name = name.filter(|name| !name.is_empty())?;
        if let Some(known) = self.names.get(name) {
            return Some(known.clone());
        }
        if self.names.len() >= self.prune_at.max(MIN_PRUNED) {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.prune_at = self.names.len().saturating_mul(2);
        }
        let name: Arc<str> = name.into();
        self.names.insert(name.clone());
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_names_are_removed() {
        let mut names = SharedNames::default();
        let used = names.share(Some("used")).unwrap();
        for number in 0..10 * MIN_PRUNED {
            names.share(Some(&number.to_string()));
        }
        assert!(names.names.len() <= MIN_PRUNED, "{}", names.names.len());
        assert!(Arc::ptr_eq(&used, &names.share(Some("used")).unwrap()));
        assert_eq!(names.share(Some("")), None);
    }
}
