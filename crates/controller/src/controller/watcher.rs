//! A closure that gets each change of an object.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Action, Attempt, Cause, Reconciler};
use crate::namespaced_name::NamespacedName;
use crate::watch::Keyed;

/// A change of an object, since the last one that was handled.
#[derive(Clone, Debug)]
pub enum Changed<K> {
    /// The object was created, or this process sees it for the first time.
    Added(Arc<K>),
    /// The object has changed. Several changes in a short time are one.
    Updated {
        /// The object as it was when the last change was handled.
        before: Arc<K>,
        /// The object as it is now.
        after: Arc<K>,
    },
    /// The object is gone. This is its last known state. What is deleted while no process runs is
    /// not reported.
    Deleted(Arc<K>),
}

/// A reconciler that calls a closure for each change. Created by [`watch_fn`].
pub struct WatchFn<K, F> {
    function: F,
    /// The objects as they were when their last change was handled.
    handled: Mutex<HashMap<NamespacedName, Arc<K>>>,
}

/// Creates a reconciler that calls an asynchronous closure with each change of an object, and with
/// the object before the change. A change is retried until the closure succeeds; what changes
/// meanwhile becomes a part of it.
///
/// ```
/// use std::convert::Infallible;
///
/// use capi_ipam_controller::controller::{Changed, watch_fn};
/// use k8s_openapi::api::core::v1::Node;
///
/// let watcher = watch_fn(async |change: Changed<Node>| {
///     if let Changed::Updated { before, after } = change
///         && before.spec != after.spec
///     {
///         tracing::info!(name = after.metadata.name, "the specification has changed");
///     }
///     Ok::<_, Infallible>(())
/// });
/// # let _ = watcher;
/// ```
pub fn watch_fn<K, E, F, R>(function: F) -> WatchFn<K, F>
where
    K: Keyed,
    E: std::error::Error + Send + Sync + 'static,
    F: Fn(Changed<K>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send,
{
    WatchFn {
        function,
        handled: Mutex::default(),
    }
}

impl<K: Keyed, F> WatchFn<K, F> {
    /// What has changed since the last change that was handled.
    fn change_of(&self, object: &Arc<K>, cause: Cause) -> Option<Changed<K>> {
        if cause == Cause::Deleted {
            return Some(Changed::Deleted(Arc::clone(object)));
        }
        match self.handled.lock().get(&object.key()) {
            None => Some(Changed::Added(Arc::clone(object))),
            // It was requeued by another reconciler, or triggered.
            Some(before) if Arc::ptr_eq(before, object) => None,
            Some(before) => Some(Changed::Updated {
                before: Arc::clone(before),
                after: Arc::clone(object),
            }),
        }
    }
}

impl<K, E, F, R> Reconciler for WatchFn<K, F>
where
    K: Keyed,
    E: std::error::Error + Send + Sync + 'static,
    F: Fn(Changed<K>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send,
{
    type Object = K;
    type State = ();
    type Error = E;

    async fn reconcile(&self, object: Arc<K>, attempt: &mut Attempt<()>) -> Result<Action, E> {
        let Some(change) = self.change_of(&object, attempt.cause) else {
            return Ok(Action::AwaitChange);
        };
        (self.function)(change).await?;
        let mut handled = self.handled.lock();
        if attempt.cause == Cause::Deleted {
            handled.remove(&object.key());
        } else {
            handled.insert(object.key(), object);
        }
        Ok(Action::AwaitChange)
    }

    fn wants_deleted(&self, _: &K) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Error;

    use super::*;
    use crate::controller::tests::{Item, item};

    fn text(change: &Changed<Item>) -> String {
        match change {
            Changed::Added(item) => format!("added {}", item.revision),
            Changed::Updated { before, after } => {
                format!("updated {} {}", before.revision, after.revision)
            }
            Changed::Deleted(item) => format!("deleted {}", item.revision),
        }
    }

    #[tokio::test]
    async fn change_contains_what_failed_before() {
        let (calls, fails) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(Mutex::new(false)),
        );
        let (recorded, failing) = (Arc::clone(&calls), Arc::clone(&fails));
        let watcher = watch_fn(move |change: Changed<Item>| {
            recorded.lock().push(text(&change));
            let result = if *failing.lock() { Err(Error) } else { Ok(()) };
            std::future::ready(result)
        });
        let reconcile = async |object: &Arc<Item>, cause| {
            let mut attempt = Attempt {
                cause,
                ..Attempt::default()
            };
            let result = watcher.reconcile(Arc::clone(object), &mut attempt).await;
            assert_eq!(result.is_err(), *fails.lock());
        };
        let [first, second, third] = [1, 2, 3].map(|revision| Arc::new(item("a", revision)));
        reconcile(&first, Cause::Resumed).await;
        // Nothing has changed.
        reconcile(&first, Cause::Triggered).await;
        *fails.lock() = true;
        reconcile(&second, Cause::Changed).await;
        reconcile(&third, Cause::Changed).await;
        *fails.lock() = false;
        reconcile(&third, Cause::Requeued).await;
        reconcile(&third, Cause::Deleted).await;
        // Another object of that name.
        reconcile(&first, Cause::Created).await;
        let expected = [
            "added 1",
            "updated 1 2",
            "updated 1 3",
            "updated 1 3",
            "deleted 3",
            "added 1",
        ];
        assert_eq!(*calls.lock(), expected);
    }
}
