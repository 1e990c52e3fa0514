//! The names of the registries of blocks, for admission.

use std::time::Instant;

use capi_ipam_objects::observed::{Observed, Origin};
use kube::core::ObjectMeta;

/// The names of the IPRegistries that the watch has shown.
#[derive(Clone, Default)]
pub(super) struct RegistryNames {
    pub(super) known: Observed<()>,
    /// Whether a first list was complete.
    is_listed: bool,
}

impl RegistryNames {
    /// Whether there is no registry of this name. False before all are listed.
    pub(super) fn lacks(&self, name: &str) -> bool {
        self.is_listed && self.known.get("", name).is_none()
    }

    /// Records a registry that exists.
    pub(super) fn insert(&mut self, metadata: &ObjectMeta) {
        self.known.see(Origin::Watch, metadata, (), Instant::now());
    }

    /// Removes a registry that was deleted.
    pub(super) fn remove(&mut self, metadata: &ObjectMeta) {
        let name = metadata.name.as_deref().unwrap_or_default();
        self.known
            .delete("", name, metadata.uid.as_deref(), Instant::now());
    }

    /// The list is complete: what it has not shown does not exist.
    pub(super) fn end_list(&mut self) {
        self.known.end_list(Instant::now());
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
        names.known.begin_list();
        names.insert(&named("site"));
        assert!(!names.lacks("other"));
        names.end_list();
        assert!(names.lacks("other") && !names.lacks("site"));
        // It was deleted while the watch was interrupted.
        names.known.begin_list();
        names.insert(&named("other"));
        assert!(!names.lacks("site"));
        names.end_list();
        assert!(names.lacks("site") && !names.lacks("other"));
        names.remove(&named("other"));
        assert!(names.lacks("other"));
    }
}
