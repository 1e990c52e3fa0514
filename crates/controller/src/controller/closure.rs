//! A closure as a reconciler.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{Action, Attempt, Reconciler};
use crate::watch::Keyed;

/// A reconciler without state that calls a closure. Created by [`reconcile_fn`].
pub struct ReconcileFn<K, F> {
    function: F,
    kind: PhantomData<fn(K)>,
}

/// Creates a reconciler without state from an asynchronous closure.
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
///
/// use capi_ipam_controller::controller::{Action, reconcile_fn};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::ResourceExt;
///
/// let reconciler = reconcile_fn(async |object: Arc<ConfigMap>| {
///     tracing::info!(name = object.name_any(), "reconciled");
///     Ok::<_, Infallible>(Action::AwaitChange)
/// });
/// # let _ = reconciler;
/// ```
pub fn reconcile_fn<K, E, F, R>(function: F) -> ReconcileFn<K, F>
where
    K: Keyed,
    E: std::error::Error + Send + Sync + 'static,
    F: Fn(Arc<K>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, E>> + Send,
{
    ReconcileFn {
        function,
        kind: PhantomData,
    }
}

impl<K, E, F, R> Reconciler for ReconcileFn<K, F>
where
    K: Keyed,
    E: std::error::Error + Send + Sync + 'static,
    F: Fn(Arc<K>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, E>> + Send,
{
    type Object = K;
    type State = ();
    type Error = E;

    async fn reconcile(&self, object: Arc<K>, _: &mut Attempt<()>) -> Result<Action, E> {
        (self.function)(object).await
    }
}
