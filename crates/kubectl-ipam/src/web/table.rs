//! The objects of one kind, as a watch reports them.

use std::time::{Duration, Instant};

use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{Observed, Origin};
use capi_ipam_controller::watch::MaybeInvalid;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use crate::cluster::Kind;
use crate::error::MissingRight;
use crate::load::Readable;
use crate::model::Overview;

/// Time for which a watch can fail before the page reports it: a restart of the API server
/// interrupts all of them for a moment.
const FAILURE_PATIENCE: Duration = Duration::from_secs(5);

/// The verb of a list.
const LIST: &str = "list";

/// The objects of one kind.
#[derive(Debug)]
pub(super) struct Table<V> {
    /// The row of each object, or why the object cannot be decoded.
    rows: Observed<Result<V, String>>,
    is_listed: bool,
    missing: Vec<MissingRight>,
    /// Since when the watch fails, and its last error.
    failure: Option<(Instant, String)>,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            rows: Observed::default(),
            is_listed: false,
            missing: Vec::new(),
            failure: None,
        }
    }
}

impl<V> Table<V> {
    /// Applies an event of a watch. `row` returns `None` for an object of another provider.
    pub(super) fn apply<K: kube::Resource>(
        &mut self,
        event: Event<MaybeInvalid<K>>,
        row: impl Fn(&K) -> Option<V>,
    ) {
        // kube sends `Init` before its request.
        if !matches!(event, Event::Init) {
            self.failure = None;
        }
        match event {
            Event::Init => self.rows.begin_list(),
            Event::InitApply(object) | Event::Apply(object) => {
                let shown = match &object.0 {
                    Ok(valid) => row(valid).map(Ok),
                    Err(invalid) => Some(Err(invalid.to_string())),
                };
                match shown {
                    Some(shown) => {
                        drop(
                            self.rows
                                .see(Origin::Watch, object.meta(), shown, Instant::now()),
                        )
                    }
                    None => drop(
                        self.rows
                            .forget(&object.namespace().unwrap_or_default(), &object.name_any()),
                    ),
                }
            }
            Event::Delete(object) => {
                let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                self.rows.delete(
                    &namespace,
                    &name,
                    object.meta().uid.as_deref(),
                    Instant::now(),
                );
            }
            Event::InitDone => {
                self.rows.end_list(Instant::now());
                self.is_listed = true;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn insert(&mut self, namespace: &str, name: &str, row: V) {
        let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
        let metadata = kube::core::ObjectMeta {
            namespace,
            name,
            ..kube::core::ObjectMeta::default()
        };
        self.rows
            .see(Origin::Watch, &metadata, Ok(row), Instant::now());
    }

    /// Records a permission that the caller lacks.
    pub(super) fn missing(&mut self, right: MissingRight) {
        if !self.missing.contains(&right) {
            self.missing.push(right);
        }
    }

    /// Records that the watch fails.
    pub(super) fn failed(&mut self, error: String) {
        let since = self.failure.take().map(|(since, _)| since);
        self.failure = Some((since.unwrap_or_else(Instant::now), error));
    }

    /// The objects are not listed: no such kind is served, or the permission is missing.
    pub(super) fn skip_list(&mut self) {
        self.is_listed = true;
        self.failure = None;
    }

    /// Whether the objects were listed once, or cannot be.
    pub(super) fn is_listed(&self) -> bool {
        self.is_listed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &V> {
        self.rows.iter().filter_map(|(_, _, row)| row.as_ref().ok())
    }

    /// The objects, with the permissions without which they are not all. What is only not watched
    /// is known: it is read again and again.
    pub(super) fn read(&self) -> Readable<impl Iterator<Item = &V>> {
        let missing = self
            .missing
            .iter()
            .filter(|right| right.verb == LIST)
            .cloned()
            .collect();
        Readable::part(self.iter(), missing)
    }

    pub(super) fn get(&self, key: &NamespacedName) -> Option<&V> {
        self.rows.get(key.namespace(), key.name())?.as_ref().ok()
    }

    /// The missing permissions in words. Without the permission for the whole cluster, that for a
    /// namespace is a detail.
    fn missing_rights(&self) -> impl Iterator<Item = String> {
        let has_whole = |verb: &str| {
            let mut rights = self.missing.iter();
            rights.any(|right| right.verb == verb && right.namespace.is_none())
        };
        self.missing
            .iter()
            .filter(move |right| right.namespace.is_none() || !has_whole(right.verb))
            .map(ToString::to_string)
    }

    #[cfg(test)]
    pub(super) fn finish_list(&mut self) {
        self.is_listed = true;
    }

    /// Adds to the overview what is not known of this kind.
    pub(super) fn report(&self, kind: Kind, overview: &mut Overview) {
        if !self.is_listed {
            overview.listing.push(kind.plural());
        }
        overview.missing.extend(self.missing_rights());
        if let Some((since, error)) = &self.failure
            && since.elapsed() >= FAILURE_PATIENCE
        {
            overview.problems.push(error.clone());
        }
        let all = self.rows.iter();
        let invalid: Vec<_> = all
            .filter_map(|(namespace, name, row)| Some((namespace, name, row.as_ref().err()?)))
            .collect();
        let count = invalid.len();
        if let Some((namespace, name, error)) = invalid.first() {
            let place = if namespace.is_empty() {
                (*name).to_owned()
            } else {
                format!("{namespace}/{name}")
            };
            let text = format!(
                "{count} {} cannot be decoded and are missing here, such as {place}: {error}",
                kind.plural()
            );
            overview.problems.push(text);
        }
    }
}
