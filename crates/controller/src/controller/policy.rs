//! A reconciler with another policy for its failures.

use std::sync::Arc;

use super::{Action, Attempt, Failure, Reconciler};
use crate::retry::Retry;

type RetryFn<E> = dyn Fn(&E, u32) -> Retry + Send + Sync;
type OnErrorFn<K, E> = dyn Fn(&K, &Attempt<()>, &Failure<'_, E>) + Send + Sync;

/// A reconciler with closures for what happens after a failure. Created by
/// [`Reconciler::with_retry`] and [`Reconciler::with_on_error`].
pub struct Policy<R: Reconciler> {
    inner: R,
    pub(super) retry: Option<Box<RetryFn<R::Error>>>,
    pub(super) on_error: Option<Box<OnErrorFn<R::Object, R::Error>>>,
}

impl<R: Reconciler> Policy<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            retry: None,
            on_error: None,
        }
    }
}

impl<R: Reconciler> Reconciler for Policy<R> {
    type Object = R::Object;
    type State = R::State;
    type Error = R::Error;

    async fn reconcile(
        &self,
        object: Arc<R::Object>,
        attempt: &mut Attempt<R::State>,
    ) -> Result<Action, R::Error> {
        self.inner.reconcile(object, attempt).await
    }

    fn wants_deleted(&self, object: &R::Object) -> bool {
        self.inner.wants_deleted(object)
    }

    fn retry(&self, error: &R::Error, failures: u32) -> Retry {
        match &self.retry {
            Some(retry) => retry(error, failures),
            None => self.inner.retry(error, failures),
        }
    }

    fn on_error(&self, object: &R::Object, attempt: &Attempt<()>, failure: &Failure<'_, R::Error>) {
        match &self.on_error {
            Some(on_error) => on_error(object, attempt, failure),
            None => self.inner.on_error(object, attempt, failure),
        }
    }
}
