//! The objects of one kind, as lists or a watch report them.

use std::time::{Duration, Instant};

use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{Observed, Origin};
use capi_ipam_controller::watch::MaybeInvalid;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use super::kind::Kind;
use crate::error::MissingRight;
use crate::first_names::first_names;

/// Time for which a watch can fail before it is reported: a restart of the API server interrupts all of
/// them for a moment.
const FAILURE_PATIENCE: Duration = Duration::from_secs(5);
/// Number of objects that cannot be decoded and that a text names.
const MAX_NAMED: usize = 5;
/// The verb of a list.
const LIST: &str = "list";

/// The objects of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Table<V> {
    /// The row of each object, or why the object cannot be decoded.
    rows: Observed<Result<V, String>>,
}

/// How far the objects of one kind are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListState {
    is_finished: bool,
    missing: Vec<MissingRight>,
    /// The namespace that may be listed although the whole cluster may not.
    namespace: Option<String>,
    /// Since when the watch fails, and its last error.
    failure: Option<(Instant, String)>,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            rows: Observed::default(),
        }
    }
}

impl<V> Table<V> {
    /// Applies an event of a watch or an object of a list. `row` returns `None` for an object of another
    /// provider.
    pub(super) fn apply<K: Resource>(
        &mut self,
        event: Event<MaybeInvalid<K>>,
        row: impl Fn(&K) -> Option<Result<V, String>>,
    ) {
        let now = Instant::now();
        match event {
            Event::Init => self.rows.begin_list(),
            Event::InitApply(object) | Event::Apply(object) => {
                let shown = match &object.0 {
                    Ok(valid) => row(valid),
                    Err(invalid) => Some(Err(invalid.to_string())),
                };
                let (namespace, name) = names_of(&object);
                match shown {
                    Some(shown) => drop(self.rows.see(Origin::Watch, object.meta(), shown, now)),
                    None => drop(self.rows.forget(&namespace, &name)),
                }
            }
            Event::Delete(object) => {
                let (namespace, name) = names_of(&object);
                let uid = object.meta().uid.as_deref();
                self.rows.delete(&namespace, &name, uid, now);
            }
            Event::InitDone => drop(self.rows.end_list(now)),
        }
    }

    #[cfg(test)]
    pub(super) fn insert(&mut self, key: &NamespacedName, row: V) {
        self.insert_result(key, Ok(row));
    }

    /// An object that cannot be decoded.
    #[cfg(test)]
    pub(crate) fn insert_invalid(&mut self, key: &NamespacedName) {
        self.insert_result(key, Err("no spec".to_owned()));
    }

    #[cfg(test)]
    fn insert_result(&mut self, key: &NamespacedName, row: Result<V, String>) {
        let metadata = kube::core::ObjectMeta {
            namespace: Some(key.namespace().to_owned()),
            name: Some(key.name().to_owned()),
            ..kube::core::ObjectMeta::default()
        };
        self.rows.see(Origin::Watch, &metadata, row, Instant::now());
    }

    /// The objects, in no particular order.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.iter().next().is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &V> {
        self.rows.iter().filter_map(|(_, _, row)| row.as_ref().ok())
    }

    /// The objects by namespace and name.
    pub(crate) fn sorted(&self) -> Vec<&V> {
        let mut rows: Vec<(&str, &str, &V)> = Vec::new();
        for (namespace, name, row) in self.rows.iter() {
            rows.extend(row.as_ref().ok().map(|row| (namespace, name, row)));
        }
        rows.sort_unstable_by_key(|(namespace, name, _)| (*namespace, *name));
        rows.into_iter().map(|(.., row)| row).collect()
    }

    pub(crate) fn get(&self, key: &NamespacedName) -> Option<&V> {
        self.rows.get(key.namespace(), key.name())?.as_ref().ok()
    }

    /// Whether an object exists, also one that cannot be decoded.
    pub(crate) fn contains(&self, key: &NamespacedName) -> bool {
        self.rows.get(key.namespace(), key.name()).is_some()
    }

    /// What cannot be decoded, in one sentence; `None` if everything can.
    pub(crate) fn undecodable(&self, kind: Kind) -> Option<String> {
        let mut invalid = Vec::new();
        for (namespace, name, row) in self.rows.iter() {
            if let Err(error) = row {
                let key = NamespacedName::new(namespace, name).to_string();
                invalid.push((key, error));
            }
        }
        invalid.sort();
        let (_, error) = invalid.first()?;
        let objects = match invalid.len() {
            1 => format!("an object of {}", kind.plural()),
            several => format!("{several} objects of {}", kind.plural()),
        };
        let names = first_names(invalid.iter().map(|(key, _)| key), MAX_NAMED);
        Some(format!("{objects} cannot be decoded: {names} ({error})"))
    }
}

impl ListState {
    /// Records that the API server has sent an event.
    pub(super) fn receive<K>(&mut self, event: &Event<K>) {
        // kube sends `Init` before its request.
        if !matches!(event, Event::Init) {
            self.failure = None;
        }
        if matches!(event, Event::InitDone) {
            self.is_finished = true;
        }
    }

    /// Records a permission that the caller lacks.
    pub(crate) fn missing(&mut self, right: MissingRight) {
        // It was there when the namespace was listed.
        if right.verb == LIST && right.namespace == self.namespace {
            self.namespace = None;
        }
        if !self.missing.contains(&right) {
            self.missing.push(right);
        }
    }

    /// Records that all objects of one namespace were listed, and of no other one.
    pub(crate) fn only(&mut self, namespace: &str) {
        self.namespace = Some(namespace.to_owned());
    }

    /// Records that the watch fails.
    pub(crate) fn failed(&mut self, error: String) {
        let since = self.failure.take().map(|(since, _)| since);
        self.failure = Some((since.unwrap_or_else(Instant::now), error));
    }

    /// The list is complete, or the objects are not listed: no such kind is served, or the permission is
    /// missing.
    pub(crate) fn finish(&mut self) {
        self.is_finished = true;
        self.failure = None;
    }

    /// Whether the objects were listed once, or cannot be.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// The permissions without which these are not all objects. What is only not watched is known: it is
    /// listed again and again.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = &MissingRight> {
        self.missing.iter().filter(|right| right.verb == LIST)
    }

    /// Whether all objects of a namespace are known; `None` stands for all namespaces.
    pub(crate) fn covers(&self, namespace: Option<&str>) -> bool {
        let is_complete = self.lacking().next().is_none();
        is_complete || namespace.is_some() && self.namespace.as_deref() == namespace
    }

    /// All missing permissions. Without that for the whole cluster, that for a namespace is a detail.
    pub(crate) fn missing_rights(&self) -> impl Iterator<Item = &MissingRight> {
        let has_whole = |verb: &str| {
            let mut rights = self.missing.iter();
            rights.any(|right| right.verb == verb && right.namespace.is_none())
        };
        self.missing
            .iter()
            .filter(move |right| right.namespace.is_none() || !has_whole(right.verb))
    }

    /// Why the watch fails, if it has failed for a while.
    pub(crate) fn failure(&self) -> Option<&str> {
        let (since, error) = self.failure.as_ref()?;
        (since.elapsed() >= FAILURE_PATIENCE).then_some(error)
    }
}

fn names_of(object: &impl ResourceExt) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_whose_right_is_gone_is_not_covered() {
        let right = |namespace: Option<&str>| MissingRight {
            verb: LIST,
            resource: "pools".to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        let mut list = ListState::default();
        list.missing(right(None));
        list.only("lab");
        assert!(list.covers(Some("lab")) && !list.covers(Some("other")) && !list.covers(None));
        list.missing(right(Some("lab")));
        assert!(!list.covers(Some("lab")));
        list.only("lab");
        assert!(list.covers(Some("lab")), "the right was given again");
    }
}
