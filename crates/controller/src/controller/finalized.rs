//! A reconciler whose objects have a finalizer.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_objects::references;
use kube::Resource;
use kube::core::ObjectMeta;
use tracing::info;

use super::{Action, Attempt, Cause, Failure, Reconciler};
use crate::client::{ApiObject, CallError, ResourceClient};
use crate::finalizer;
use crate::priority::Priority;
use crate::retry::Retry;
use crate::watch::Keyed;

/// The delay after a conflict with another write of the object, whose event comes soon.
pub const CONFLICT_DELAY: Duration = Duration::from_millis(250);

/// The delay before an object in deletion that others use is reconciled again. The removal of the
/// last reference enqueues it earlier.
pub const IN_USE_DELAY: Duration = Duration::from_mins(1);

/// What [`Finalized`] has to know of a reconciler.
pub trait Protect: Reconciler<Object: ApiObject, Error: From<CallError>> {
    /// The client that reads and writes the object.
    fn objects(&self, object: &Self::Object) -> ResourceClient<Self::Object>;

    /// Whether the object is reconciled now, and with which rule for its finalizer.
    fn protection(&self, _object: &Self::Object) -> Protection {
        Protection::Managed
    }

    /// Called with the object as the API server returned it after the finalizer was added. It is
    /// reconciled next.
    fn protected(&self, _object: &Self::Object) {}

    /// Called if the API server rejects the finalizer. By default this fails the attempt.
    fn rejected(
        &self,
        _object: &Self::Object,
        error: CallError,
        _attempt: &mut Attempt<Self::State>,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send {
        std::future::ready(Err(error.into()))
    }

    /// Called with an object that is being deleted while others refer to it. It is not reconciled
    /// before the last [reference](crate::references) is removed. By default nothing is reported.
    fn in_use(
        &self,
        _object: Arc<Self::Object>,
        _attempt: &mut Attempt<Self::State>,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send {
        std::future::ready(Ok(Action::Requeue(IN_USE_DELAY)))
    }
}

/// What [`Finalized`] does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// It adds a missing finalizer, and removes it when a deletion has been reconciled.
    Managed,
    /// It does not change the finalizer: the object is only reconciled.
    Unmanaged,
    /// It does nothing now.
    Postponed(Action),
}

/// Adds a finalizer to each object before the first reconcile, so that no deletion is missed, and
/// adds it again if somebody removes it.
///
/// The inner reconciler gets an object that is being deleted with [`Cause::Deleting`], once no other
/// object has a [reference](crate::references) to it, until it
/// returns [`Action::AwaitChange`]: then there is nothing left to release, and the finalizer is
/// removed. With [`Action::Requeue`] or an error the object remains, and so it must not return
/// [`Action::AwaitChange`] if it does not know. A new object has the cause [`Cause::Created`], also
/// if it was created while no process ran, until an attempt has succeeded; an object with the
/// finalizer is [`Cause::Resumed`]. For a closure there is [`Reconciler::finalizer`].
///
/// ```
/// use std::sync::Arc;
///
/// use capi_ipam_controller::client::{CallError, ResourceClient};
/// use capi_ipam_controller::controller::{Action, Attempt, Cause, Finalized, Protect, Reconciler};
/// use k8s_openapi::api::core::v1::Node;
///
/// struct Racks {
///     nodes: ResourceClient<Node>,
/// }
///
/// impl Reconciler for Racks {
///     type Object = Node;
///     type State = ();
///     type Error = CallError;
///
///     async fn reconcile(&self, node: Arc<Node>, attempt: &mut Attempt<()>) -> Result<Action, CallError> {
///         match attempt.cause {
///             Cause::Deleting => tracing::info!(?node.metadata.name, "its place in the rack is free"),
///             _ => tracing::info!(?node.metadata.name, "it has a place in a rack"),
///         }
///         Ok(Action::AwaitChange)
///     }
/// }
///
/// impl Protect for Racks {
///     fn objects(&self, _: &Node) -> ResourceClient<Node> {
///         self.nodes.clone()
///     }
/// }
///
/// fn reconciler(nodes: ResourceClient<Node>) -> Finalized<Racks> {
///     Finalized::new(Racks { nodes }, "racks.example.com/place")
/// }
/// ```
pub struct Finalized<R> {
    inner: R,
    finalizer: Arc<str>,
}

impl<R: Protect> Finalized<R> {
    /// Protects the objects of a reconciler with a finalizer.
    pub fn new(inner: R, finalizer: impl Into<Arc<str>>) -> Self {
        let finalizer = finalizer.into();
        Self { inner, finalizer }
    }

    async fn reconcile_protected(
        &self,
        object: Arc<R::Object>,
        attempt: &mut Attempt<R::State>,
    ) -> Result<Action, R::Error> {
        let is_set = finalizer::is_set(object.as_ref(), &self.finalizer);
        if object.is_deleting() {
            // Without the finalizer the object has been released.
            return if is_set {
                self.release(object, attempt).await
            } else {
                Ok(Action::AwaitChange)
            };
        }
        let is_first = matches!(attempt.cause, Cause::Created | Cause::Resumed);
        if is_set {
            // An attempt of this process can have added the finalizer, and failed then.
            if is_first && !attempt.is_carried {
                attempt.cause = Cause::Resumed;
            }
            return self.inner.reconcile(object, attempt).await;
        }
        let objects = self.inner.objects(&object);
        match finalizer::add(&objects, object.as_ref(), &self.finalizer).await {
            Ok(written) => {
                self.inner.protected(&written);
                if is_first {
                    attempt.cause = Cause::Created;
                }
                self.inner.reconcile(Arc::new(written), attempt).await
            }
            Err(error) => {
                attempt.keeps_cause = true;
                self.inner.rejected(&object, error, attempt).await
            }
        }
    }

    /// Reconciles a deleted object, and removes the finalizer when that is done.
    async fn release(
        &self,
        object: Arc<R::Object>,
        attempt: &mut Attempt<R::State>,
    ) -> Result<Action, R::Error> {
        attempt.cause = Cause::Deleting;
        // None is added to an object that is being deleted.
        if references::of(object.as_ref()).next().is_some() {
            return self.inner.in_use(object, attempt).await;
        }
        let action = self.inner.reconcile(Arc::clone(&object), attempt).await?;
        if action != Action::AwaitChange {
            return Ok(action);
        }
        // A restore of etcd can undo a deletion. The cached object may lack fields, or be the last
        // one that could be decoded.
        let (objects, meta) = (self.inner.objects(&object), object.meta());
        let is_released =
            |found: &ObjectMeta| found.uid == meta.uid && found.deletion_timestamp.is_some();
        let name = meta.name.as_deref().unwrap_or_default();
        match finalizer::remove_unread(&objects, name, &self.finalizer, is_released).await {
            Err(error) if error.is_not_found() => {}
            Err(error) if error.is_conflict() => return Ok(Action::Requeue(CONFLICT_DELAY)),
            Err(error) => return Err(error.into()),
            Ok(None) => {}
            Ok(Some(_)) => info!(
                object = %object.key(),
                finalizer = &*self.finalizer,
                "removed the finalizer: the deleted object is released"
            ),
        }
        Ok(Action::AwaitChange)
    }
}

impl<R: Protect> Reconciler for Finalized<R> {
    type Object = R::Object;
    type State = R::State;
    type Error = R::Error;

    async fn reconcile(
        &self,
        object: Arc<R::Object>,
        attempt: &mut Attempt<R::State>,
    ) -> Result<Action, R::Error> {
        // What is gone has no finalizer.
        let is_gone = attempt.cause == Cause::Deleted;
        let is_managed = match self.inner.protection(&object) {
            Protection::Postponed(action) if !is_gone => {
                attempt.keeps_cause = true;
                return Ok(action);
            }
            protection => protection == Protection::Managed && !is_gone,
        };
        if is_managed {
            self.reconcile_protected(object, attempt).await
        } else {
            self.inner.reconcile(object, attempt).await
        }
    }

    fn wants_deleted(&self, object: &R::Object) -> bool {
        self.inner.wants_deleted(object)
    }

    fn retry(&self, error: &R::Error, failures: u32) -> Retry {
        self.inner.retry(error, failures)
    }

    fn on_error(&self, object: &R::Object, attempt: &Attempt<()>, failure: &Failure<'_, R::Error>) {
        self.inner.on_error(object, attempt, failure);
    }
}

/// The priority of objects whose reconciles nobody waits for: low, once they have the finalizer.
/// Others wait for that of a new object, whatever else its reconcile does. For
/// [`ControllerBuilder::priority`](super::ControllerBuilder::priority).
pub fn low_with_finalizer<K: ApiObject>(
    finalizer: impl Into<Arc<str>>,
) -> impl Fn(&K, Cause) -> Priority {
    let finalizer = finalizer.into();
    move |object, _| {
        let is_new = object.meta().deletion_timestamp.is_none();
        if is_new && !finalizer::is_set(object, &finalizer) {
            Priority::Normal
        } else {
            Priority::Low
        }
    }
}

/// A reconciler with a closure for objects that are being deleted. Created by
/// [`Reconciler::finalizer`].
pub struct CleanUp<R, O, C> {
    inner: R,
    objects: O,
    when_deleting: C,
}

impl<R, O, C> CleanUp<R, O, C> {
    /// Calls `clean_up` with an object that is being deleted, in place of `inner`.
    pub fn new(inner: R, objects: O, clean_up: C) -> Self {
        Self {
            inner,
            objects,
            when_deleting: clean_up,
        }
    }
}

impl<R, O, C, F> Reconciler for CleanUp<R, O, C>
where
    R: Reconciler,
    O: Send + Sync + 'static,
    C: Fn(Arc<R::Object>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Action, R::Error>> + Send,
{
    type Object = R::Object;
    type State = R::State;
    type Error = R::Error;

    async fn reconcile(
        &self,
        object: Arc<R::Object>,
        attempt: &mut Attempt<R::State>,
    ) -> Result<Action, R::Error> {
        if attempt.cause == Cause::Deleting {
            (self.when_deleting)(object).await
        } else {
            self.inner.reconcile(object, attempt).await
        }
    }

    fn wants_deleted(&self, object: &R::Object) -> bool {
        self.inner.wants_deleted(object)
    }

    fn retry(&self, error: &R::Error, failures: u32) -> Retry {
        self.inner.retry(error, failures)
    }

    fn on_error(&self, object: &R::Object, attempt: &Attempt<()>, failure: &Failure<'_, R::Error>) {
        self.inner.on_error(object, attempt, failure);
    }
}

impl<R, O, C, F> Protect for CleanUp<R, O, C>
where
    R: Reconciler<Object: ApiObject, Error: From<CallError>>,
    O: Fn(&R::Object) -> ResourceClient<R::Object> + Send + Sync + 'static,
    C: Fn(Arc<R::Object>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Action, R::Error>> + Send,
{
    fn objects(&self, object: &R::Object) -> ResourceClient<R::Object> {
        (self.objects)(object)
    }
}
