//! The compact form in which a controller caches objects that need no reconcile.

use std::convert::Infallible;
use std::fmt::Debug;

use super::store::Cached;
use crate::client::CallError;
use crate::namespaced_name::NamespacedName;

/// Decides which objects of a controller are cached in a compact form, for kinds with many objects
/// of which most need no reconcile. Passed to
/// [`ControllerBuilder::run_with_compaction`](super::ControllerBuilder::run_with_compaction).
///
/// An object in compact form has low [priority](crate::priority): nobody waits for its reconcile.
pub trait Compaction<K>: Send + Sync + 'static {
    /// The compact form of an object.
    type Compact: Clone + Debug + Send + Sync + 'static;

    /// The compact form of an object that needs no reconcile according to its own fields; `None` to
    /// cache it in full and to reconcile it.
    fn compact(&self, object: &K) -> Option<Self::Compact>;

    /// Whether an object in compact form needs a reconcile after all, because of other objects.
    /// Called for every watch event and every trigger of the object, so it must be fast. If true,
    /// the object is fetched and reconciled.
    fn needs_reconcile(&self, name: &NamespacedName, compact: &Self::Compact) -> bool;

    /// Reads an object that is cached in compact form from the API server. `None` if it does not
    /// exist.
    fn fetch(
        &self,
        name: &NamespacedName,
    ) -> impl Future<Output = Result<Option<K>, CallError>> + Send;

    /// Creates an object from its compact form, which the handler of the watch gets as deleted when
    /// a new list does not contain the object. `None` if the handler need not know.
    fn expand(&self, name: &NamespacedName, compact: &Self::Compact) -> Option<K>;

    /// Called when an object is cached, changes or is removed, with the cached states before and
    /// after: for metrics. It must be fast.
    fn cached(
        &self,
        _before: Option<&Cached<K, Self::Compact>>,
        _after: Option<&Cached<K, Self::Compact>>,
    ) {
    }
}

/// Caches all objects in full.
pub(super) struct NoCompaction;

impl<K: 'static> Compaction<K> for NoCompaction {
    type Compact = Infallible;

    fn compact(&self, _: &K) -> Option<Infallible> {
        None
    }

    fn needs_reconcile(&self, _: &NamespacedName, compact: &Infallible) -> bool {
        match *compact {}
    }

    async fn fetch(&self, _: &NamespacedName) -> Result<Option<K>, CallError> {
        Ok(None)
    }

    fn expand(&self, _: &NamespacedName, compact: &Infallible) -> Option<K> {
        match *compact {}
    }
}
