//! Names that many entries of the ledger have, each stored once.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The smallest number of names at which unused ones are removed.
const MIN_PRUNED: usize = 1_024;

/// A name of [`SharedNames`]. One pointer, since each address in use has two of them: an `Arc<str>`
/// also contains its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedName(Arc<Arc<str>>);

impl SharedName {
    /// The name.
    pub(crate) fn text(&self) -> Arc<str> {
        Arc::clone(&*self.0)
    }
}

/// The same as that of the text: a set of names can be searched by text.
impl Hash for SharedName {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        str::hash(&self.0, hasher);
    }
}

impl Borrow<str> for SharedName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Names that many entries of the ledger have, each stored once.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedNames {
    names: HashSet<SharedName>,
    /// The number of names at which unused ones are removed next.
    prune_at: usize,
}

impl SharedNames {
    /// Returns the stored copy of a name.
    pub(crate) fn share(&mut self, name: Option<&str>) -> Option<SharedName> {
        let name = name.filter(|name| !name.is_empty())?;
        if let Some(known) = self.names.get(name) {
            return Some(known.clone());
        }
        if self.names.len() >= self.prune_at.max(MIN_PRUNED) {
            self.names.retain(|name| Arc::strong_count(&name.0) > 1);
            self.prune_at = self.names.len().saturating_mul(2);
        }
        let name = SharedName(Arc::new(name.into()));
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
        assert!(Arc::ptr_eq(&used.0, &names.share(Some("used")).unwrap().0));
        assert_eq!(&*used.text(), "used");
        assert_eq!(names.share(Some("")), None);
    }
}
