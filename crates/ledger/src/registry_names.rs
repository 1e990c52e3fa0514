//! The names of the registries of blocks, for admission.

use std::collections::BTreeMap;

use capi_ipam_objects::observed::{ListNumber, Lists};
use kube::core::ObjectMeta;

/// The names of the IPRegistries that the watch has shown.
#[derive(Default)]
pub(super) struct RegistryNames {
    known: BTreeMap<String, ListNumber>,
    lists: Lists,
    /// Whether a first list was complete.
    is_listed: bool,
}

impl RegistryNames {
    /// A list begins.
    pub(super) fn begin_list(&mut self) {
        self.lists.begin();
    }

    /// Whether there is no registry of this name. False before all are listed.
    pub(super) fn lacks(&self, name: &str) -> bool {
        self.is_listed && !self.known.contains_key(name)
    }

    /// Records a registry that exists.
    pub(super) fn insert(&mut self, metadata: &ObjectMeta) {
        if let Some(name) = &metadata.name {
            let list = self.lists.current();
            self.known.insert(name.clone(), list);
        }
    }

    /// Removes a registry that was deleted.
    pub(super) fn remove(&mut self, metadata: &ObjectMeta) {
        if let Some(name) = &metadata.name {
            self.known.remove(name);
        }
    }

    /// The list is complete: what it has not shown does not exist.
    pub(super) fn end_list(&mut self) {
        let unlisted = self.lists.end();
        self.known.retain(|_, list| !unlisted.contains(*list));
        self.is_listed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn only_a_complete_list_shows_that_a_registry_is_missing() {
        let mut names = RegistryNames::default();
        names.begin_list();
        names.insert(&named("site"));
        assert!(!names.lacks("other"));
        names.end_list();
        assert!(names.lacks("other") && !names.lacks("site"));
        // It was deleted while the watch was interrupted.
        names.begin_list();
        names.insert(&named("other"));
        assert!(!names.lacks("site"));
        names.end_list();
        assert!(names.lacks("site") && !names.lacks("other"));
        names.remove(&named("other"));
        assert!(names.lacks("other"));
    }
}
